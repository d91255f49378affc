"""State of Tensors that is not in their nodes: leaves and derivatives by them, deferred changes, delayed calls."""

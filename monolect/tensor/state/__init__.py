"""State of Tensors that is not in their nodes: leaves of gradients, deferred changes, delayed calls."""

"""Random Tensors: numbers from bits, distributions, and the methods of `Tensor` that draw."""

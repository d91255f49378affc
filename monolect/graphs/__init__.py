"""Tensor operations as graphs of nodes: sorting, products, convolution, attention."""

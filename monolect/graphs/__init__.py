"""Build graphs of UOps for tensor operations: sorting, products, convolution, attention."""

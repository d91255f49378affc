"""Methods of Tensor for neural networks: convolution, pooling, normalisation, losses."""

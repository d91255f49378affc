"""Methods that are products of matrices and vectors, norms and distances, by PyTorch's names."""

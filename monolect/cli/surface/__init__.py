"""Compare the surface of Tensor and its functions with PyTorch's: generated sources, and the names that are absent."""

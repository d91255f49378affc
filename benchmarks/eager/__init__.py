"""Programs of single operations on tiny tensors, without `jit`, compared with PyTorch, JAX and NumPy."""

"""Programs of single operations on tiny tensors, without `jit`, beside PyTorch, JAX and NumPy."""

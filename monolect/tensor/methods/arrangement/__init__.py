"""Methods that split, join and rearrange tensors, and that describe them, by PyTorch's names."""

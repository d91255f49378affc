"""monolect on a GPU beside PyTorch on the same one."""

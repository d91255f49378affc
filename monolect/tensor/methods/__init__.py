"""Methods of Tensor, by topic."""

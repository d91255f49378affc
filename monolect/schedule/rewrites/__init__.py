"""Rewrite the tensor graph before kernels are chosen."""

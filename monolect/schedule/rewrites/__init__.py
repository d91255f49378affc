"""Passes over the tensor graph before kernels are chosen."""

"""Tensors on other devices: moves, meshes of several devices, and files."""

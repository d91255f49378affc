"""Layers by topic: each holds parameters and settings, and calls a method of Tensor."""

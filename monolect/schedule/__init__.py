"""Turn a graph of tensors into kernels: choose which values get a buffer, which share a kernel, and the order of
kernels.

The folder decides nothing inside a kernel and names no device. It must not import `optimize`, `lower`, a backend or
anything above them.
"""

"""From a graph of tensors to kernels: which values get a buffer, what is computed together, in what order, and where.

It decides nothing inside a kernel, and names no device. It must not import `optimize`, `lower`, a backend or anything
above them.
"""

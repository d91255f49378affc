"""Running what was compiled: buffers, plans of kernels, capture and replay, timings.

It works on nodes and devices, and must not import tensors or what is built from them; of a target it knows what
`backend.base` promises, and nothing else.
"""

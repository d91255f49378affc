"""Run compiled programs: buffers, plans of kernels, capture and replay, timings.

This package works on UOps and devices. It must not import tensors or anything built on them. Of a target it knows only
the interface in `backend.base`.
"""

"""OpenCL: kernels as OpenCL C, compiled by the driver, in the driver's own memory. PoCL runs it on a processor.

It must not import another target or anything above the backends.
"""

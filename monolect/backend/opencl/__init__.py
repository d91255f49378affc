"""Back end for OpenCL devices: the driver compiles OpenCL C and owns the memory. PoCL runs it on a processor.

This package must not import another target or anything above the backends.
"""

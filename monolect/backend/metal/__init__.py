"""Back end for Apple GPUs: macOS compiles kernels from the Metal Shading Language and runs them.

This package must not import another target or anything above the backends.
"""

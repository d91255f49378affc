"""Back end for NVIDIA GPUs: NVRTC compiles CUDA C++ for one architecture, or LLVM emits PTX; the driver runs it.

This package must not import another target or anything above the backends.
"""

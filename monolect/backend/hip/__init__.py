"""Back end for AMD GPUs: clang compiles HIP C++ to code objects for one architecture, without ROCm's compilers.

This package must not import another target or anything above the backends.
"""

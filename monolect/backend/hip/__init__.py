"""AMD GPUs by way of HIP C++: source for clang alone, with no ROCm installed, code objects for one architecture.

It must not import another target or anything above the backends.
"""

"""The host's processor: LLVM in this process, objects kept on disk, and a native pool of threads.

It must not import another target or anything above the backends. LLVM is imported when a kernel is missing from the
caches, and not before.
"""

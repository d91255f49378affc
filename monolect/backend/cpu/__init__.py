"""Back end for the host processor: LLVM compiles in this process, objects are cached on disk, native threads run them.

This package must not import another target or anything above the backends. LLVM is imported only when a kernel is
missing from the caches.
"""

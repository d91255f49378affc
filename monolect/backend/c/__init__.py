"""Back end for the host processor through C: clang or gcc compiles freestanding source; this process loads the object.

This package must not import another target or anything above the backends.
"""

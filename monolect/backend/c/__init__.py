"""The host's processor by way of C: freestanding source for clang or gcc, object code loaded into this process.

It must not import another target or anything above the backends.
"""

"""Implement files as devices, `disk:/path`: memory to copy from and to, without programs.

It must not import another target or anything above the backends.
"""

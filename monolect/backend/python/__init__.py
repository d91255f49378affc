"""The Python target: programs are interpreted with NumPy, every index checked; the oracle without hardware.

It must not import another target or anything above the backends, and calls no compiler.
"""

"""Implement the Python target: NumPy interprets programs and checks every index; the oracle without hardware.

It must not import another target or anything above the backends, and calls no compiler.
"""

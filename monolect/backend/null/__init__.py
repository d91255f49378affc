"""Implement a target that renders programs and runs nothing, to measure the compiler.

It must not import another target or anything above the backends.
"""

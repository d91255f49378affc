"""A target that runs nothing: programs are rendered and launches return at once. It measures the compiler.

It must not import another target or anything above the backends.
"""

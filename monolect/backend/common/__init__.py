"""Supply code that several targets share: renderers of program text, host memory, loaders of object code.

Invariant: nothing here imports a target; differences between targets are arguments.
"""

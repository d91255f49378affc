"""What several targets share: renderers of program text, host memory, loading of object code.

It knows no target, and must not import one: what differs between targets is an argument.
"""

"""The command buffer as IR: a schedule joined, planned and put in order until a device can encode it.

Each module is one pass over a step, FUNCTION(TUPLE(results...)) with a LINEAR of items; `forms` has the grammar.
"""

"""Define the command buffer as IR, and the passes that join, plan and order a schedule until a device can encode it.

Each pass takes and returns a step: a FUNCTION whose body is a TUPLE of results, computed by a LINEAR of items. An item
is a kernel launch (CALL) or a copy (STORE). `forms` has the grammar.
"""

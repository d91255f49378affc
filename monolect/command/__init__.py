"""Define the command buffer as IR, and the passes that join, plan and order a schedule until a device can encode it.

Each pass takes and returns a step: a FUNCTION of a TUPLE of results, with a LINEAR of items. `forms` has the grammar.
"""

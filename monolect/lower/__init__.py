"""Lower an optimized kernel to a LINEAR program: shaped values, accumulators, instruction selection, order.

The folder chooses nothing about the loops. It must not import `schedule`, `optimize`, a backend or anything above them:
a target's instructions are passed in as data.
"""

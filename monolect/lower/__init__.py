"""From an arranged kernel to a LINEAR program: shaped values, accumulators, instruction selection, order.

It chooses nothing about the loops. It must not import `schedule`, `optimize`, a backend or anything above them: what a
target has instructions for reaches it as data.
"""

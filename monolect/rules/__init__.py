"""Named rewrite rules, in tables: what an op becomes where a target lacks it, and loops that need not be loops.

A rule says what may be replaced, never when: the passes choose tables and order. This layer must not import passes,
backends or tensors, and knows a target only as data (`base.target`).
"""

"""Define named rewrite rules in tables: decompositions of ops that a target lacks, and replacements of loops.

A rule says what may be replaced, never when: the passes choose tables and order. This layer must not import passes,
backends or tensors, and knows a target only as data (`base.target`).
"""

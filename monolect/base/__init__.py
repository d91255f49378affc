"""The lowest layer: the error tree, the table of settings, the disk cache, element types, and targets as data.

Everything stands on it, so it must not import any other part of monolect.
"""

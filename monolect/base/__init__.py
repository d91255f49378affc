"""The lowest layer: the error tree, the table of settings, the disk cache, element types, and targets as data.

All other layers import it, so it must not import any other part of monolect.
"""

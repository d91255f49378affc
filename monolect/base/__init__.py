"""The lowest layer: the error tree, the table of settings, the disk cache, element types. Imports nothing above it."""

"""Data of other projects: file formats and array protocols, in and out of tensors.

The formats' own libraries are optional and imported where they are used. It must not import `nn` or anything above.
"""

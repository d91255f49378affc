"""Exchange data with other projects: file formats and array protocols, in and out of tensors.

The libraries of the formats are optional and imported at their use. This layer must not import `nn` or a layer above.
"""

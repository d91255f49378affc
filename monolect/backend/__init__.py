"""The targets, one folder each with the same files: `render`, `compile`, `runtime`; and `registry`, which opens them.

A target imports `base`, `common` and the layers of the compiler below; it must not import another target, the pipeline,
the runtime or tensors. The registry imports a target only when a device of it is opened.
"""

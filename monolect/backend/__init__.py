"""Implement the targets, one folder each: `runtime`, and `render` and `compile` if it has programs and a compiler.

A target imports `base`, `common` and the layers of the compiler below. It must not import another target, the pipeline,
the runtime or tensors. The registry imports a target only when one of its devices is opened.
"""

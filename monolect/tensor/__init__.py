"""The Tensor of the user: lazy methods in families by what they do, random numbers, capture of whole steps.

A method builds nodes and computes nothing. This layer must not import `nn`, `interop` or what is above them, nor a
target or a pass: it reaches those through the runtime.
"""

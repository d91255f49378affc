"""Define the user's Tensor: its lazy methods in families, its creation, views, copies, printing and random numbers.

A method builds nodes and computes nothing. This layer must not import `nn`, `interop` or a layer above them. It reaches
targets and passes only through the runtime.
"""

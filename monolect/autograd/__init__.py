"""Differentiate graphs: the derivative of a graph is a graph, by one row for each differentiable op.

This package works on nodes only. It must not import tensors, passes, backends or the rules of `rules/`. The passes
treat a derivative like any other graph. Its name `grad`, a function of tensors that PyTorch has here, is imported from
a higher layer at its first use.
"""

from importlib import import_module
from typing import Any

from monolect.base.absent import hint


def __getattr__(name: str) -> Any:
    if name != "grad":
        raise AttributeError(hint("autograd", name))
    found = globals()[name] = import_module("monolect.tensor.state.backward").grad
    return found

"""Differentiate graphs: the derivative of a graph is a graph, by one row for each differentiable op.

This package works on nodes only. It must not import tensors, passes, backends or the rules of `rules/`. The passes
treat a derivative like any other graph.
"""

from typing import NoReturn

from monolect.base.absent import hint


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(hint("autograd", name))

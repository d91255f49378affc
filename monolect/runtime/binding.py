"""Bind values to symbolic Variables while a program runs.

A kernel takes a Variable as one more argument, so one compiled kernel serves every value. Results of symbolic shape get
the shape for the bound value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, idx, substitute, toposort

BY = "__by_"  # separates the name of a Variable of multiples from the factor, as in "n__by_4"
# The bound values by (name, bounds), set by `Variable.bind`; each thread and each asyncio task has its own mapping.
values: ContextVar[Mapping[tuple, int]] = ContextVar("values")
_none: Mapping[tuple, int] = {}


def value_of(p: UOp) -> int:
    """Return the value bound to the Variable of the PARAM `p`. Raises ArgumentError if no value is bound."""
    value = values.get(_none).get(p.arg.symbol)
    if value is None:
        name, bounds = as_written(p)
        expected = f"a value in {bounds}, as in `with {name}.bind(value):`"
        raise ArgumentError(f"Variable {name} is not bound", expected=expected, found=value)
    return value


@contextmanager
def bound(p: UOp, value: int) -> Iterator[None]:
    """In the block, bind `value` to the Variable of the PARAM `p`. Raises ArgumentError for a value out of its
    bounds.
    """
    if value.__class__ is not int or not p.arg.min <= value <= p.arg.max:
        raise ArgumentError(f"Variable {p.arg.name}", expected=f"{p.arg.min}..{p.arg.max}", found=value)
    with bound_all({p: value}):
        yield


@contextmanager
def bound_all(sizes: Mapping[UOp, int]) -> Iterator[None]:
    """In the block, bind the Variables of the PARAMs `sizes`, whose values are in their bounds."""
    token = values.set({**values.get(_none), **{p.arg.symbol: value for p, value in sizes.items()}})
    try:
        yield
    finally:
        values.reset(token)


def as_written(p: UOp) -> tuple[str, str]:
    """Return (name, "min..max") of the Variable of the PARAM `p`, as the user declared it, with multiples multiplied
    out.
    """
    name, _, multiple_of = p.arg.name.partition(BY)
    m = int(multiple_of or 1)
    return name, f"{p.arg.min * m}..{p.arg.max * m}"


def variables(*roots: UOp) -> set[UOp]:
    """Return the PARAMs of the Variables that the UOps below `roots` depend on."""
    return {u for u in toposort(*roots) if u.op == "PARAM" and u.arg.name is not None}


def bound_to(u: UOp) -> dict[str, int] | None:
    """Return the values of the Variables of the graph `u` by name; None if it has none or one is not bound."""
    bound = values.get(None)
    steering = variables(u) if bound else ()
    if not bound or not steering or any(v.arg.symbol not in bound for v in steering):
        return None
    return {v.arg.name: bound[v.arg.symbol] for v in steering}


def concrete(shape: tuple) -> tuple[Any, ...]:
    """Return `shape` with every symbolic size replaced by its value under the bound Variables."""
    if all(n.__class__ is int for n in shape):
        return shape
    out = []
    for n in shape:
        if n.__class__ is UOp:
            n = count((substitute(n, {p: idx(value_of(p)) for p in variables(n)}),))
        out.append(n)
    return tuple(out)


__all__ = ["BY", "as_written", "bound", "bound_to", "concrete", "value_of", "values", "variables"]

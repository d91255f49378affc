"""Running sums, products and extremes of the last axis, on nodes.

What it is not: loops. A running sum is a REDUCE over a triangle mask, a form that `rules.loops.reductions` turns into
one pass.
Invariants: halves are added up in float32; a gradient takes as many steps as the value.
"""

from __future__ import annotations

from typing import Any

from monolect.autograd import graph
from monolect.autograd.gradient import closed_form, gradients, running_product
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.graphs import sort_keys as order
from monolect.graphs.gather_scatter import add_rows
from monolect.ir.bounds import size_max
from monolect.ir.rewrite.normal import count, negate
from monolect.ir.uop import UOp, build, const, node

_NEUTRAL = {"ADD": 0, "MUL": 1}


def neutral(op: str, d: DType) -> Any:
    """What joining nothing gives: 0, 1, or the least value."""
    return d.min if op == "MAX" else _NEUTRAL[op]


def scan(u: UOp, op: str) -> UOp:
    """The running ADD, MUL or MAX along the last axis: REDUCE over j of (j <= i ? u[j] : neutral)."""
    n, rank, d = u.shape[-1], len(u.shape), u.dtype
    if n.__class__ is int and n < 2:
        return u
    wide = cast(u, dtypes.float32) if d.is_float and d.bits < 32 else u
    rows = graph.reshape(wide, (*u.shape[:-1], 1, n))
    i, j = iota(n, dtypes.index, rank - 1, rank + 1), iota(n, dtypes.index, rank, rank + 1)
    masked = where(build("CMPLT", j, i + 1), rows, const(neutral(op, wide.dtype), wide.dtype))
    out = cast(graph.reshape(build("REDUCE", masked, arg=(op, (rank,))), u.shape), d)
    return closed_form(out, (u,), _DERIVATIVES[op]) if d.is_float else out


def last_maximum(u: UOp) -> UOp:
    """The position of the largest element so far along the last axis, of equal ones the last; int64."""
    n, axis = u.shape[-1], len(u.shape) - 1
    k, many = order.key(u), max(1, (size_max(n) - 1).bit_length())
    d = next((d for d in (dtypes.int32, dtypes.int64) if k.dtype.bits + many <= d.bits), None)
    if d is not None:
        both = build("OR", e("SHL", cast(k, d), many), iota(n, d, axis, axis + 1))
        return cast(e("AND", scan(both, "MAX"), (1 << many) - 1), dtypes.int64)
    is_top = negate(build("CMPNE", k, scan(k, "MAX")))  # where an element equals the maximum so far it is the latest
    return scan(where(is_top, iota(n, dtypes.int64, axis, axis + 1), 0), "MAX")


def _backwards(u: UOp) -> UOp:
    """A running sum from the other end."""
    last = (len(u.shape) - 1,)
    return graph.flip(scan(graph.flip(u, last), "ADD"), last)


def _of_sum(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    return (_backwards(g),)


def _of_product(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """The sum of g*y from each element on, over the element. The products from the first zero on are those of the other
    elements times the zero, and elements behind it change nothing. That is no formula to differentiate.
    """
    zero = e("CMPEQ", u, 0.0)
    first = build("AND", zero, e("CMPEQ", scan(cast(zero, dtypes.int32), "ADD"), 1))
    others = scan(where(first, 1.0, u), "MUL")
    rest = build("DIV", _backwards(build("MUL", g, y)), where(zero, 1.0, u))
    out = where(first, _backwards(build("MUL", g, others)), where(zero, 0.0, rest))
    return (closed_form(out, (g, u), _of_product_again),)


def _of_product_again(h: UOp, y: UOp, g: UOp, u: UOp) -> tuple[UOp | None, UOp | None]:
    own = node("CONTIGUOUS_BACKWARD", (g,))  # not `u`, which it may be
    found = gradients(running_product(u), own, [u], cut=True)[u]
    both = {} if found is None else gradients(found, h, [own, u], cut=True)
    return both.get(own), both.get(u)


def _of_maximum(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """Each result's gradient goes to the element it is."""
    r, n = count(u.shape[:-1]), u.shape[-1]
    places = graph.reshape(last_maximum(u), (r, n))
    return (graph.reshape(add_rows(graph.reshape(g, (r, n)), places, n), u.shape),)


_DERIVATIVES = {"ADD": _of_sum, "MUL": _of_product, "MAX": _of_maximum}


__all__ = ["last_maximum", "neutral", "scan"]

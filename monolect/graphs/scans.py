"""Build running sums, products and maxima along the last axis.

What it is not: there are no loops here. A running sum is a REDUCE over a triangle mask, which `rules.loops.reductions`
turns into one pass.
Invariants: float16 and bfloat16 are accumulated in float32. A gradient takes as many passes as the value.
"""

from __future__ import annotations

from typing import Any

from monolect.autograd import graph
from monolect.autograd.closed_forms import closed_form
from monolect.autograd.gradient import gradients, running_product
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.graphs import sort_keys as order
from monolect.graphs.gather_scatter import add_rows
from monolect.ir.bounds import size_max
from monolect.ir.rewrite.normal import count, negate
from monolect.ir.uop import UOp, build, const, node

_NEUTRAL = {"ADD": 0, "MUL": 1}


def neutral(op: str, d: DType) -> Any:
    """Return the neutral element of `op`, ADD, MUL or MAX, for dtype `d`: 0, 1 or the least value."""
    return d.min if op == "MAX" else _NEUTRAL[op]


def scan(u: UOp, op: str) -> UOp:
    """Return the running sum, product or maximum of `u` along the last axis; `op` is ADD, MUL or MAX.

    It is the REDUCE over j of (j <= i ? u[j] : neutral).
    """
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
    """Return the int64 index of the largest element so far along the last axis; of equal elements the last."""
    n, axis = u.shape[-1], len(u.shape) - 1
    k, index_bits = order.key(u), max(1, (size_max(n) - 1).bit_length())
    d = next((d for d in (dtypes.int32, dtypes.int64) if k.dtype.bits + index_bits <= d.bits), None)
    if d is not None:
        both = build("OR", e("SHL", cast(k, d), index_bits), iota(n, d, axis, axis + 1))
        return cast(e("AND", scan(both, "MAX"), (1 << index_bits) - 1), dtypes.int64)
    is_top = negate(build("CMPNE", k, scan(k, "MAX")))  # an element that equals the maximum so far is the last maximum
    return scan(where(is_top, iota(n, dtypes.int64, axis, axis + 1), 0), "MAX")


def _reverse_cumsum(u: UOp) -> UOp:
    """Return the running sum of `u` along the last axis from its end."""
    last = (len(u.shape) - 1,)
    return graph.flip(scan(graph.flip(u, last), "ADD"), last)


def _sum_gradient(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """Return the gradient of the running sum `y` of `u`, a 1-tuple: the running sum from the end of `g`, the gradient
    of `y`.
    """
    return (_reverse_cumsum(g),)


def _product_gradient(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """Return the gradient of the running product `y` of `u`, a 1-tuple, from the gradient `g` of `y`.

    It is the sum of g * y from each element on, divided by the element.

    From the first zero on, each product is the product of the other elements times the zero, and later elements do not
    change it. This formula has no derivative at zeros, so its own derivative is `_product_second_gradient`.
    """
    zero = e("CMPEQ", u, 0.0)
    first = build("AND", zero, e("CMPEQ", scan(cast(zero, dtypes.int32), "ADD"), 1))
    others = scan(where(first, 1.0, u), "MUL")
    rest = build("DIV", _reverse_cumsum(build("MUL", g, y)), where(zero, 1.0, u))
    out = where(first, _reverse_cumsum(build("MUL", g, others)), where(zero, 0.0, rest))
    return (closed_form(out, (g, u), _product_second_gradient),)


def _product_second_gradient(h: UOp, y: UOp, g: UOp, u: UOp) -> tuple[UOp | None, UOp | None]:
    """Return the gradients of `_product_gradient` with respect to `g` and `u`, from the running product written as
    plain nodes. `h`: the gradient of its result `y`. A gradient is None where `y` does not depend on that operand.
    """
    own = node("CONTIGUOUS_BACKWARD", (g,))  # a separate node, as `g` may be `u` itself
    found = gradients(running_product(u), own, [u], cut=True)[u]
    both = {} if found is None else gradients(found, h, [own, u], cut=True)
    return both.get(own), both.get(u)


def _maximum_gradient(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """Return the gradient of the running maximum `y` of `u`, a 1-tuple, from the gradient `g` of `y`.

    Each result's gradient is added to the element that it equals, the last one if there are several.
    """
    r, n = count(u.shape[:-1]), u.shape[-1]
    indices = graph.reshape(last_maximum(u), (r, n))
    return (graph.reshape(add_rows(graph.reshape(g, (r, n)), indices, n), u.shape),)


_DERIVATIVES = {"ADD": _sum_gradient, "MUL": _product_gradient, "MAX": _maximum_gradient}


__all__ = ["last_maximum", "neutral", "scan"]

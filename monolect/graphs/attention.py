"""Attention on nodes: scores, masks, and the weighted sum of values.

What it is for: the parts of scaled_dot_product_attention between which the softmax and dropout methods stand.
What it is not: no tiling over keys; whether the scores get a buffer is the scheduler's choice.
Invariant: scores and weights are float32 or wider; a query that may see no key gets zeros and passes zero gradients.
Source: torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

from typing import Any

from monolect.autograd import graph as g
from monolect.base.dtype import DType, accumulator, dtypes, promote
from monolect.base.errors import DTypeError, IRError, ShapeError
from monolect.graphs.products import matmul, swapped
from monolect.ir.ops import broadcast
from monolect.ir.uop import UOp, build, idx

# Finite, unlike -inf: a row that is masked everywhere stays finite, and so does its gradient.
HIDDEN = -1e30
BEHIND = float("-inf")  # what a causal mask hides, which hides no row everywhere


def _check(q: UOp, k: UOp, v: UOp, gqa: bool) -> None:
    for name, x in (("query", q), ("key", k), ("value", v)):
        if len(x.shape) < 2:
            raise ShapeError(f"attention: rank of {name}", expected="(..., length, width)", found=x.shape)
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError("attention: width of key", expected=f"{q.shape[-1]}, as query", found=k.shape[-1])
    if k.shape[-2] != v.shape[-2]:
        raise ShapeError("attention: length of value", expected=f"{k.shape[-2]}, as key", found=v.shape[-2])
    if not gqa:
        return
    if min(len(x.shape) for x in (q, k, v)) < 3 or q.shape[-3] % k.shape[-3] or k.shape[-3] != v.shape[-3]:
        expected = "(..., heads, length, width), query heads a multiple of the key and value heads"
        raise ShapeError("attention: heads", expected=expected, found=f"{q.shape}, {k.shape}, {v.shape}")


def prepared(
    q: UOp, k: UOp, v: UOp, mask: UOp | None, gqa: bool
) -> tuple[UOp, UOp, UOp, UOp | None, tuple[Any, ...] | None]:
    """The checked operands and, under `gqa`, the shape of the result; then heads stand as (key heads, group)."""
    _check(q, k, v, gqa)
    if mask is not None:
        shape = (*q.shape[:-1], k.shape[-2])
        try:
            broadcast([shape, mask.shape])
        except IRError:
            raise ShapeError("attention: mask", expected=f"broadcasts to {shape}", found=mask.shape) from None
    if not gqa:
        return q, k, v, mask, None
    heads = k.shape[-3]
    if mask is not None and len(mask.shape) > 2:
        mask = _grouped(mask, min(heads, mask.shape[-3]))
    return _grouped(q, heads), _grouped(k, heads), _grouped(v, heads), mask, (*q.shape[:-1], v.shape[-1])


def _grouped(x: UOp, heads: int) -> UOp:
    """(..., heads * groups, L, E) as (..., heads, groups, L, E)."""
    return g.reshape(x, (*x.shape[:-3], heads, x.shape[-3] // heads, *x.shape[-2:]))


def scores(q: UOp, k: UOp, scale: float | None) -> UOp:
    """The scores q @ k.T * scale, by default 1 / sqrt(width). Raises DTypeError for integers."""
    wide = accumulator(promote(q.dtype, k.dtype))
    if not wide.is_float:
        raise DTypeError("attention needs floats", expected="a float dtype", found=wide.name)
    factor: Any = float(scale) if scale is not None else _root(q.shape[-1], wide)
    return g.e("MUL", matmul(g.cast(q, wide), g.cast(swapped(k), wide), "attention"), factor)


def _root(width: Any, dtype: DType) -> Any:
    """1 / sqrt(width): a number, or a node of `dtype` where the width is symbolic."""
    if width.__class__ is int:
        return max(width, 1) ** -0.5
    return build("RECIP", build("SQRT", g.cast(build("MAX", width, idx(1)), dtype)))


def causal(rows: Any, columns: Any) -> UOp:
    """Where column <= row: what the query of a row may see. Shape (rows, columns)."""
    return g.e("CMPLT", g.iota(columns, axis=1, rank=2), g.e("ADD", g.iota(rows, axis=0, rank=2), 1))


def masked(s: UOp, mask: UOp | None, hidden: float = HIDDEN) -> UOp:
    """`s` where a bool mask is true, or with a float mask added."""
    if mask is None:
        return s
    return g.where(mask, s, hidden) if mask.dtype is dtypes.bool else g.e("ADD", s, g.cast(mask, s.dtype))


def without_blind_rows(weights: UOp, s: UOp) -> UOp:
    """`weights`, 0 in the rows in which the mask of the scores `s` hides every key."""
    highest = g.reduce(s, "MAX", (len(s.shape) - 1,))
    return g.where(g.e("CMPLT", highest, HIDDEN / 2), 0.0, weights)  # NaN compares as false, and stays


def weighted(weights: UOp, v: UOp, shape: tuple[Any, ...] | None) -> UOp:
    """The sum weights @ v in the dtype of `v`, as `shape` when it is given."""
    out = g.cast(matmul(weights, g.cast(v, weights.dtype), "attention"), v.dtype)
    return out if shape is None else g.reshape(out, shape)

"""Build the graph of attention: scores, masks, and the weighted sum of values.

What it is for: `scaled_dot_product_attention` calls these functions before and after its softmax and dropout.
What it is not: it does no tiling over keys. The scheduler decides whether the scores get a buffer.
Invariant: scores and weights are float32 or wider. A query that may see no key gets zeros and passes zero gradients.
Source: torch.nn.functional.scaled_dot_product_attention.
"""

from __future__ import annotations

from typing import Any

from monolect.autograd import graph as g
from monolect.base.dtype import DType, accumulator, dtypes, promote
from monolect.base.errors import DTypeError, IRError, ShapeError
from monolect.graphs.products import matmul, swap_last_axes
from monolect.ir.ops import broadcast
from monolect.ir.uop import UOp, build, idx

# Score of a key hidden by a bool mask; finite, so that a fully masked row and its gradient are finite.
MASKED_SCORE = -1e30
CAUSAL_SCORE = float("-inf")  # score of a key hidden by the causal mask, which masks no row fully


def _check(q: UOp, k: UOp, v: UOp, gqa: bool) -> None:
    """Raise ShapeError unless the shapes of query `q`, key `k` and value `v` fit together.

    Each needs the axes (..., length, width); `k` has the width of `q`, and `v` the length of `k`. With `gqa`
    (grouped-query attention: several query heads share one key and value head) each also needs a heads axis before
    them, `v` has as many heads as `k`, and `q` a multiple of that number.
    """
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


def prepare_operands(
    q: UOp, k: UOp, v: UOp, mask: UOp | None, gqa: bool
) -> tuple[UOp, UOp, UOp, UOp | None, tuple[Any, ...] | None]:
    """Return (query, key, value, mask, result shape) after checking the shapes of `q`, `k`, `v` and the mask.

    Under `gqa` (grouped-query attention) the heads axis -3 of each operand, and of a mask that has one, is split into
    (key heads, group). The result shape is then the shape of the result of attention without that split. Else the
    operands are unchanged and the result shape is None. A `mask` of None stays None. Raises ShapeError if the operands
    do not fit (`_check`), or if the mask does not broadcast to the shape of the scores.
    """
    _check(q, k, v, gqa)
    if mask is not None:
        shape = (*q.shape[:-1], k.shape[-2])
        try:
            broadcast([shape, mask.shape])
        except IRError:
            raise ShapeError(
                "attention: mask", expected=f"a shape that broadcasts to {shape}", found=mask.shape
            ) from None
    if not gqa:
        return q, k, v, mask, None
    heads = k.shape[-3]
    if mask is not None and len(mask.shape) > 2:
        mask = _group_heads(mask, min(heads, mask.shape[-3]))
    return _group_heads(q, heads), _group_heads(k, heads), _group_heads(v, heads), mask, (*q.shape[:-1], v.shape[-1])


def _group_heads(x: UOp, heads: int) -> UOp:
    """Reshape `x` from (..., heads * groups, L, E) to (..., heads, groups, L, E)."""
    return g.reshape(x, (*x.shape[:-3], heads, x.shape[-3] // heads, *x.shape[-2:]))


def scores(q: UOp, k: UOp, scale: float | None) -> UOp:
    """Return the scores `q @ k.T * scale` of queries (..., L, E) and keys (..., S, E), shape (..., L, S).

    They are float32 or wider. `scale` None means 1 / sqrt(E). Raises DTypeError unless an operand is a float.
    """
    wide = accumulator(promote(q.dtype, k.dtype))
    if not wide.is_float:
        raise DTypeError("attention needs floats", expected="a float dtype", found=wide.name)
    factor: Any = float(scale) if scale is not None else _inverse_root(q.shape[-1], wide)
    return g.e("MUL", matmul(g.cast(q, wide), g.cast(swap_last_axes(k), wide), "attention"), factor)


def _inverse_root(width: Any, dtype: DType) -> Any:
    """Return 1 / sqrt(width): a float, or a UOp of `dtype` if the width is symbolic."""
    if width.__class__ is int:
        return max(width, 1) ** -0.5
    return build("RECIP", build("SQRT", g.cast(build("MAX", width, idx(1)), dtype)))


def causal_mask(rows: Any, columns: Any) -> UOp:
    """Return a bool mask of shape (rows, columns), true where column <= row: the keys that each query may see."""
    return g.e("CMPLT", g.iota(columns, axis=1, rank=2), g.e("ADD", g.iota(rows, axis=0, rank=2), 1))


def apply_mask(s: UOp, mask: UOp | None, masked_score: float = MASKED_SCORE) -> UOp:
    """Return the scores `s` with the mask applied: a bool mask sets `masked_score` where it is false, a float mask is
    added, and None leaves `s` unchanged.
    """
    if mask is None:
        return s
    return g.where(mask, s, masked_score) if mask.dtype is dtypes.bool else g.e("ADD", s, g.cast(mask, s.dtype))


def zero_fully_masked_rows(weights: UOp, s: UOp) -> UOp:
    """Return `weights` with 0 in each row whose scores `s` are all below MASKED_SCORE / 2: every key is masked."""
    highest = g.reduce(s, "MAX", (len(s.shape) - 1,))
    return g.where(g.e("CMPLT", highest, MASKED_SCORE / 2), 0.0, weights)  # a NaN compares as false and is kept


def weighted_sum(weights: UOp, v: UOp, shape: tuple[Any, ...] | None) -> UOp:
    """Return `weights @ v`, the result of attention, in the dtype of the values `v`.

    It is reshaped to `shape` unless that is None.
    """
    out = g.cast(matmul(weights, g.cast(v, weights.dtype), "attention"), v.dtype)
    return out if shape is None else g.reshape(out, shape)


__all__ = ["apply_mask", "causal_mask", "prepare_operands", "scores", "weighted_sum", "zero_fully_masked_rows"]

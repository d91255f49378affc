"""Compute movement ops and the ops of ROW_VALUES (constants, ranges, reductions, loads, ...) on NumPy arrays.

What it is for: the reference interpreter. A function of ROW_VALUES takes the Evaluation and a node whose sources have
values, and returns (value, mask) of the node.
What it is not: it does not walk graphs, evaluate elementwise ops or write memory; `interp` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from monolect.base.dtype import DType
from monolect.base.errors import IRError
from monolect.ir.check.arrays import (
    Array,
    Mask,
    bitcast,
    garbage,
    multiply_tiles,
    reduce_array,
    scan_array,
    select_valid,
    storage,
)
from monolect.ir.ops import INVALID
from monolect.ir.uop import UOp


class Evaluation:
    """The part of an Evaluator that functions in this module read.

    `values` and `masks` have the value and the mask of each node. `axes` has the batch axis of each loop, and `batch`
    is the number of batch axes, which all values have in front.
    """

    axes: dict[UOp, int]
    batch: int  # the number of batch axes
    values: dict[UOp, Any]
    masks: dict[UOp, Mask]

    def ints(self, u: UOp) -> tuple[int, ...]:
        """Return the computed value of `u`, a scalar or the sizes or offsets of a movement op, as ints. Raises IRError
        if it varies within the batch.
        """
        v = self.values[u]
        want = len(u.src) if u.op == "STACK" else 1
        if v.size != want:
            raise IRError("a size depends on a loop", op=u.op, expected="one value", found=repr(u))
        return tuple(int(x) for x in v.reshape(-1))

    def aligned(self, v: Array, rank: int) -> Array:
        """Return `v`, the value of an operand, with size-1 axes inserted after its batch axes, so that it has `rank`
        axes besides these.
        """
        own = v.ndim - self.batch
        return v if own == rank else v.reshape(v.shape[: self.batch] + (1,) * (rank - own) + v.shape[self.batch :])


def move(evaluation: Evaluation, u: UOp, x: Array, b: int, fill: Any) -> Array:
    """Return the movement op `u` applied to `x`, an array with `b` batch axes. `fill` is the value of elements that PAD
    adds.

    `u`: any movement op except INDEX, which `Evaluator.index` computes. `evaluation` has the values of the offsets and
    sizes of `u`.
    """
    op, lead = u.op, x.shape[:b]
    if op == "PERMUTE":
        return x.transpose((*range(b), *(b + a for a in u.arg)))
    if op == "FLIP":
        return np.flip(x, tuple(b + k for k, f in enumerate(u.arg) if f))
    if op == "RESHAPE":
        return x.reshape(lead + evaluation.ints(u.src[1]))
    if op == "EXPAND":
        return np.broadcast_to(x, lead + evaluation.ints(u.src[1]))
    off, size = evaluation.ints(u.src[1]), evaluation.ints(u.src[2])
    if op == "SHRINK":
        return x[_window(b, off, size)]
    out = np.full(lead + size, fill, x.dtype)
    out[_window(b, off, x.shape[b:])] = x
    return out


def _window(b: int, off: tuple[int, ...], size: tuple[int, ...]) -> Any:
    return (slice(None),) * b + tuple(slice(o, o + n) for o, n in zip(off, size, strict=True))


_NEUTRAL: dict[str, Callable[[DType], Any]] = {"ADD": lambda d: 0, "MUL": lambda d: 1, "MAX": lambda d: d.min}


def _reduce(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    op, axes = u.arg
    x, mask = m.values[u.src[0]], m.masks[u.src[0]]
    over = [m.batch + a for a in axes]
    for r in u.src[1:]:
        k = m.axes[r] if r in m.axes else None
        if k is None:
            raise IRError("REDUCE over a bound RANGE", op="REDUCE", expected="a RANGE that env does not bind")
        over.append(k)
        count, bound = m.values[r], m.values[r.src[0]]
        x = np.broadcast_to(x, np.broadcast_shapes(x.shape, m.aligned(count, x.ndim - m.batch).shape))
        if bound.size > 1:  # iterations past the bound do not happen
            x = np.where(m.aligned(count < bound, x.ndim - m.batch), x, storage(u.dtype).type(_NEUTRAL[op](u.dtype)))
    if not over:
        return x, mask
    out = reduce_array(op, u.dtype, x, tuple(over))
    if mask is not None:
        mask = np.all(np.broadcast_to(mask, x.shape), axis=tuple(over), keepdims=True)
    return out, mask


def _scan(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    op, axis = u.arg
    return scan_array(op, u.dtype, m.values[u.src[0]], m.batch + axis), m.masks[u.src[0]]


def _range(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    if u not in m.axes:
        raise IRError("a loop is neither closed nor bound", op=u.op, expected="a binding in env", found=repr(u))
    size, k = max(0, int(m.values[u.src[0]].max(initial=0))), m.axes[u]
    return np.arange(size, dtype=np.int64).reshape((1,) * k + (size,) + (1,) * (m.batch - k - 1)), None


def _const(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    shape = (1,) * m.batch
    if u.arg[0] is INVALID:
        return np.full(shape, garbage(u.dtype)), np.zeros(shape, bool)
    return np.full(shape, u.arg[0], storage(u.dtype)), None


def _binary(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    return np.frombuffer(u.arg, np.uint8).reshape((1,) * m.batch + (len(u.arg),)), None


def _iota(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    (n,) = m.ints(u.src[0])
    return np.arange(n).astype(storage(u.dtype)).reshape((1,) * m.batch + (n,)), None


def _stack(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    if not u.src:
        return np.zeros((1,) * m.batch + (0,), np.int64), None
    out = np.stack(np.broadcast_arrays(*(m.values[s] for s in u.src)), axis=m.batch)
    masks = [m.masks[s] for s in u.src]
    if all(k is None for k in masks):
        return out, None
    full = [np.ones(m.values[s].shape, bool) if k is None else k for s, k in zip(u.src, masks, strict=True)]
    return out, np.stack(np.broadcast_arrays(*full), axis=m.batch)


def _bitcast(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    return bitcast(m.values[u.src[0]], u.dtype), None


def _load(m: Evaluation, u: UOp) -> tuple[Any, Mask]:
    v, mask = m.values[u.src[0]], m.masks[u.src[0]]
    if len(u.src) < 3:
        return v, mask
    rank = len(u.shape)
    v, alt, gate = (m.aligned(x, rank) for x in (v, m.values[u.src[1]], m.values[u.src[2]]))
    mask, alt_mask = (None if k is None else m.aligned(k, rank) for k in (mask, m.masks[u.src[1]]))
    return np.where(gate, v, alt), select_valid(gate, mask, alt_mask)


def _wmma(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    n = u.arg[1]
    a, b = (m.aligned(m.values[s], n + len(u.shape)) for s in u.src[:2])
    return multiply_tiles(u.dtype, a, b, m.values[u.src[2]], n), None


def _replicated(m: Evaluation, u: UOp) -> tuple[Array, Mask]:
    x, mask, k = m.values[u.src[0]], m.masks[u.src[0]], m.batch + u.arg
    return x.take(0, k), None if mask is None else np.broadcast_to(mask, x.shape).take(0, k)


def _gettuple(m: Evaluation, u: UOp) -> tuple[Any, Mask]:
    v = m.values[u.src[0]]
    return (v[u.arg] if isinstance(v, tuple) else v), None


ROW_VALUES: dict[str, Callable[[Evaluation, UOp], tuple[Any, Mask]]] = {
    "CONST": _const, "BINARY": _binary, "IOTA": _iota, "STACK": _stack, "BITCAST": _bitcast, "REDUCE": _reduce,
    "SCAN": _scan, "RANGE": _range, "SPECIAL": _range, "LOAD": _load, "WMMA": _wmma, "GETTUPLE": _gettuple,
    "REPLICATED": _replicated,
}  # fmt: skip


__all__ = ["Evaluation", "ROW_VALUES", "move"]

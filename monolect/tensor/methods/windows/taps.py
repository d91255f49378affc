"""Multiply axes of a tensor by sparse matrices: each element of the result is a weighted sum of a few elements, taps.

What it is for: resizing, uneven means and folds are such products along one or more axes.
What it is not: it computes no taps. The callers do, on the host, because they depend on sizes only.
Invariant: the gradient is the product with the transposed matrices, so it also reads elements and writes each once.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any, NamedTuple

from monolect.autograd.closed_forms import closed_alone
from monolect.base.numpy import np
from monolect.ir.uop import UOp

MOST_TAPS = 16  # taps of one element over all axes; with more, one axis after the other is multiplied


class Taps(NamedTuple):
    """A sparse matrix of `size` columns: row o has `weight[o, k]` in column `column[o, k]`.

    Rows with fewer taps than others end in taps of column -1, which count as 0.
    """

    column: np.ndarray  # int64, (rows, taps)
    weight: np.ndarray | None  # float64, (rows, taps); None means ones
    size: int

    def transposed(self) -> Taps:
        """Return the transposed matrix."""
        row, tap = np.nonzero(self.column >= 0)
        column = self.column[row, tap]
        order = np.argsort(column, kind="stable")
        row, tap, column = row[order], tap[order], column[order]
        counts = np.bincount(column, minlength=self.size)
        k = np.arange(len(column)) - np.repeat(np.cumsum(counts) - counts, counts)
        width = max(1, int(counts.max(initial=0)))
        index = np.full((self.size, width), -1, np.int64)
        index[column, k] = row
        if self.weight is None:
            return Taps(index, None, len(self.column))
        weight = np.zeros((self.size, width))
        weight[column, k] = self.weight[row, tap]
        return Taps(index, weight, len(self.column))


def weighted_sums(x: Any, axis: int, taps: list[Taps]) -> Any:
    """Return the Tensor `x` with `axis` and the axes after it multiplied by the matrices `taps`, one for each axis.

    The products are computed in the dtype of `x`.
    """
    groups = [list(taps)]
    if prod(t.column.shape[1] for t in taps) > MOST_TAPS:
        groups = [[t] for t in taps]
    for group in groups:
        x = _product(x, axis, group)
        axis += len(group)
    return x


def _product(x: Any, axis: int, taps: list[Taps]) -> Any:
    """Return `x` multiplied along `axis` and the axes after it, in one sum; the arguments are of `weighted_sums`."""
    n, device, wrap = len(taps), x.device, x._wrap
    before = x
    for a in range(n - 1, -1, -1):
        index = x._kind(np.maximum(taps[a].column, 0), device=device)
        x = x[(slice(None),) * (axis + a) + (index,)]
    for a, t in enumerate(taps):
        ones = (1,) * (2 * (n - 1 - a) + before.ndim - axis - n)
        if t.weight is not None:
            x = x * x._kind(t.weight, dtype=x.dtype, device=device).reshape(*t.column.shape, *ones)
        if t.column.min(initial=0) < 0:
            x = x._kind(t.column >= 0, device=device).reshape(*t.column.shape, *ones).where(x, 0)
    dtype = x.dtype
    y = x.sum(tuple(axis + 2 * a + 1 for a in range(n)), dtype=dtype) if any(t.column.shape[1] > 1 for t in taps) else x
    shape = (*before.shape[:axis], *(len(t.column) for t in taps), *before.shape[axis + n :])
    y = y.reshape(*shape)
    if not dtype.is_float:
        return y

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        return (weighted_sums(wrap(g), axis, [t.transposed() for t in taps])._uop,)

    return wrap(closed_alone(y._uop, (before._uop,), derivative))


@cache
def ranges(starts: tuple[int, ...], stops: tuple[int, ...], size: int, mean: bool) -> Taps:
    """Return the taps of rows that add up, or with `mean` average, the elements from `starts` to before `stops`."""
    width = max((b - a for a, b in zip(starts, stops, strict=True)), default=1)
    index = np.array(starts, np.int64).reshape(-1, 1) + np.arange(width)
    stop = np.array(stops, np.int64).reshape(-1, 1)
    inside = index < stop
    counts = inside.sum(1, keepdims=True)
    return Taps(np.where(inside, index, -1), inside / np.maximum(counts, 1) if mean else None, size)


__all__ = ["MOST_TAPS", "Taps", "ranges", "weighted_sums"]

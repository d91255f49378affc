"""Multiply axes of a tensor by sparse matrices: each element of the result is a weighted sum of a few elements, taps.

What it is for: resizing, uneven means and folds are such products along one or more axes.
What it is not: it computes no taps. The callers do, on the host, because they depend on sizes only.
Invariant: the gradient is the product with the transposed matrices, so it also reads elements and writes each once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from monolect.autograd.closed_forms import closed_alone
from monolect.base.numpy import np
from monolect.ir.uop import UOp

KEPT_TABLES = 64  # tables of each kind that are kept for further calls; the least recently used one goes


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

    One axis after the other: fewer elements are read than by one sum over all axes, and rows stay vectors. The products
    are computed in the dtype of `x`.
    """
    for a, t in enumerate(taps):
        x = _product(x, axis + a, t)
    return x


def _product(x: Any, axis: int, taps: Taps) -> Any:
    """Return `x` multiplied along `axis` by the matrix `taps`."""
    device, wrap, before = x.device, x._wrap, x
    shape = (*taps.column.shape, *(1,) * (x.ndim - 1 - axis))
    x = x[(slice(None),) * axis + (x._kind(np.maximum(taps.column, 0), device=device),)]
    if taps.weight is not None:
        x = x * x._kind(taps.weight, dtype=x.dtype, device=device).reshape(*shape)
    if taps.column.min(initial=0) < 0:
        x = x._kind(taps.column >= 0, device=device).reshape(*shape).where(x, 0)
    y = x.squeeze(axis + 1) if taps.column.shape[1] == 1 else x.sum(axis + 1, dtype=x.dtype)
    if not y.dtype.is_float:
        return y

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        return (_product(wrap(g), axis, taps.transposed())._uop,)

    return wrap(closed_alone(y._uop, (before._uop,), derivative))


@lru_cache(KEPT_TABLES)
def ranges(starts: tuple[int, ...], stops: tuple[int, ...], size: int, mean: bool) -> Taps:
    """Return the taps of rows that add up, or with `mean` average, the elements from `starts` to before `stops`."""
    width = max((b - a for a, b in zip(starts, stops, strict=True)), default=1)
    index = np.array(starts, np.int64).reshape(-1, 1) + np.arange(width)
    stop = np.array(stops, np.int64).reshape(-1, 1)
    inside = index < stop
    counts = inside.sum(1, keepdims=True)
    return Taps(np.where(inside, index, -1), inside / np.maximum(counts, 1) if mean else None, size)


__all__ = ["KEPT_TABLES", "Taps", "ranges", "weighted_sums"]

"""Methods that count and search: positions in sorted sequences, histograms, membership.

Invariant: only `bincount` without a known size, and `repeat_interleave` by a tensor, compute values at the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any, NamedTuple, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import np
from monolect.tensor.base import Number, TensorBase, TensorLike, as_int
from monolect.tensor.guard import guard_methods


class Histogram(NamedTuple):
    """The result of `histogram`: the counts, and the edges of the bins."""

    hist: Any
    bin_edges: Any


@guard_methods
class CountsMixin(TensorBase):
    """Methods of Tensor that count elements and search for them."""

    __slots__ = ()

    def searchsorted(
        self,
        input: TensorLike,
        *,
        out_int32: bool = False,
        right: bool = False,
        side: str | None = None,
        sorter: TensorBase | None = None,
    ) -> Self:
        """Return the positions at which the values of `input` keep the ascending self sorted along its last axis.

        Equal elements: the first position, or the last with `right` or side="right". self is a vector, or has the axes
        of `input` but the last. `sorter` are the indices that sort self. nan is after all numbers. Raises ShapeError
        for axes that differ, ArgumentError for another `side`.

        >>> Tensor([1, 3, 5]).searchsorted(Tensor([3, 4])).tolist()
        [1, 2]
        """
        x: Any = self
        if side not in (None, "left", "right") or (side == "left" and right):
            raise ArgumentError("searchsorted: side", expected="'left' or 'right', as `right` says", found=side)
        if sorter is not None:
            x = x.gather(-1, sorter)
        v: Any = input if isinstance(input, TensorBase) else x._scalar(input)
        if x.ndim == 0 or (x.ndim > 1 and x.shape[:-1] != v.shape[:-1]):
            expected = f"{(*x.shape[:-1], 'n')}" if x.ndim else "a sequence with an axis"
            raise ShapeError("searchsorted: axes before the last", expected=expected, found=v.shape)
        n = x.shape[-1]
        rows = 0 if x.ndim == 1 else _row_numbers(x).reshape(*x.shape[:-1], 1) * n
        flat, low = x.reshape(-1), (v.detach() * 0).long() if not v.dtype.is_float else v.isnan().long() * 0
        high = low + n
        for _ in range(int(log2(n)) + 1 if n else 0):
            middle = (low + high) // 2
            at = flat[middle.clamp(0, n - 1) + rows]
            after = ~((at > v) if right or side == "right" else (at >= v)) & (low < high)
            low, high = after.where(middle + 1, low), after.where(high, middle)
        return low.int() if out_int32 else low

    def bucketize(self, boundaries: TensorBase, *, out_int32: bool = False, right: bool = False) -> Self:
        """Return the number of the bucket between the ascending `boundaries`, a vector, that each element falls into.

        A boundary belongs to the bucket before it, or with `right` to the one after it. Raises ShapeError for
        boundaries that are no vector.

        >>> Tensor([0, 1, 5]).bucketize(Tensor([1, 3])).tolist()
        [0, 0, 2]
        """
        if boundaries.ndim != 1:
            raise ShapeError("bucketize: boundaries", expected="a vector", found=boundaries.shape)
        b: Any = boundaries
        return b.searchsorted(self, out_int32=out_int32, right=right)

    def isin(self, test_elements: TensorLike, *, assume_unique: bool = False, invert: bool = False) -> Self:
        """Return a bool tensor: True where the element is one of `test_elements`, or with `invert` where it is none.

        `assume_unique` changes nothing.

        >>> Tensor([1, 2, 3]).isin(Tensor([2, 5])).tolist()
        [False, True, False]
        """
        x: Any = self
        t: Any = test_elements if isinstance(test_elements, TensorBase) else x._scalar(test_elements)
        found = (x.unsqueeze(-1) == t.reshape(-1)).any(-1)
        return ~found if invert else found

    def bincount(self, weights: TensorBase | None = None, minlength: int = 0) -> Self:
        """Return how often each of 0, 1, 2, ... is in self, a vector of integers that are not negative.

        With `weights` it adds up those of each number. The result has at least `minlength` elements. The call computes
        self; it raises JitError inside a captured step. Raises DTypeError for floats, ShapeError for another rank,
        ArgumentError for negative numbers.

        >>> Tensor([1, 3, 1]).bincount().tolist()
        [0, 2, 0, 1]
        """
        if not self.dtype.is_int or self.dtype is dtypes.bool:
            raise DTypeError("bincount needs integers", expected="an integer dtype", found=self.dtype.name)
        if self.ndim != 1:
            raise ShapeError("bincount needs a vector", expected="1 axis", found=self.shape)
        if weights is not None and weights.shape != self.shape:
            raise ShapeError("bincount: weights", expected=self.shape, found=weights.shape)
        least = as_int(minlength, "minlength")
        values = self.numpy()
        if least < 0 or (values.size and values.min() < 0):
            found = min(least, int(values.min()) if values.size else least)
            raise ArgumentError("bincount counts numbers from 0 on", expected="at least 0", found=found)
        n = max(int(values.max()) + 1 if values.size else 0, least)
        x: Any = self
        w: Any = weights
        w = x._kind.ones(x.shape[0], dtype=dtypes.int64, device=x.device) if w is None else w
        w = w if w.dtype.is_float or weights is None else w.double()
        out: Self = x._kind.zeros(n, dtype=w.dtype, device=x.device)
        return out.scatter_add(0, x.long(), w) if values.size else out  # type: ignore[attr-defined]

    def histc(self, bins: int = 100, min: Number = 0, max: Number = 0) -> Self:
        """Return how many elements fall into each of `bins` equal parts of [min, max], in the dtype of self.

        The largest and the smallest element are the bounds where `min` equals `max`. Elements outside are not counted.
        Raises DTypeError for integers, ArgumentError for no bins or bounds in another order.

        >>> Tensor([1.0, 2.0, 1.0]).histc(4, 0, 3).tolist()
        [0.0, 2.0, 1.0, 0.0]
        """
        self._check_float("histc")
        n = as_int(bins, "bins")
        if n < 1 or min > max:
            raise ArgumentError("histc", expected="at least 1 bin, and min <= max", found=(bins, min, max))
        x: Any = self
        x = x.reshape(-1)
        if not x.shape[0]:
            return x._kind.zeros(n, dtype=self.dtype, device=x.device)
        low, high = (x.amin(), x.amax()) if min == max else (x._scalar(float(min)), x._scalar(float(max)))
        if min == max:
            same = low == high
            low, high = same.where(low - 1, low), same.where(high + 1, high)
        at = ((x - low) * (n / (high - low))).floor().clamp(0, n - 1)
        inside = (x >= low) & (x <= high)
        counted = (at.nan_to_num().long().unsqueeze(1) == x._kind.arange(n)) & inside.unsqueeze(1)
        out: Self = counted.sum(0).cast(self.dtype)
        return out

    def histogram(
        self,
        bins: int | TensorBase,
        *,
        range: tuple[float, float] | None = None,
        weight: TensorBase | None = None,
        density: bool = False,
    ) -> Histogram:
        """Return (hist, bin_edges): how many elements fall into each bin, and the edges of the bins.

        `bins` is a number of equal bins in `range`, by default between the smallest and the largest element, or a
        vector of ascending edges. The last bin includes its end. `weight` has the shape of self and is added up
        instead. With `density` the integral is 1. Raises DTypeError for integers, ShapeError for another shape of
        `weight`.

        >>> [t.tolist() for t in Tensor([1.0, 2.0, 1.0]).histogram(2, range=(0.0, 4.0))]
        [[2.0, 1.0], [0.0, 2.0, 4.0]]
        """
        self._check_float("histogram")
        x: Any = self
        x = x.reshape(-1)
        w: Any = weight
        if w is not None and w.shape != self.shape:
            raise ShapeError("histogram: weight", expected=self.shape, found=w.shape)
        edges = _edges(x, bins, range, "histogram")
        m = edges.shape[0] - 1
        inside = (x.unsqueeze(1) >= edges[:-1]) & ((x.unsqueeze(1) < edges[1:]) | _is_end(x, edges, m))
        hist = (inside.cast(self.dtype) if w is None else inside.where(w.reshape(-1, 1), 0.0)).sum(0)
        if density:
            hist = hist / hist.sum() / (edges[1:] - edges[:-1])
        return Histogram(hist, edges)

    def histogramdd(
        self,
        bins: int | Sequence[int] | Sequence[TensorBase],
        *,
        range: Sequence[float] | None = None,
        weight: TensorBase | None = None,
        density: bool = False,
    ) -> Histogram:
        """Return (hist, bin_edges): how many points fall into each cell, and the edges of the bins of each coordinate.

        The last axis of self, of shape (..., d), has the coordinates of a point. `bins` is a number of equal bins, or
        one for each coordinate, or a vector of ascending edges for each. `range` has the first and last edge of each
        coordinate in turn, by default its smallest and largest value. The last bin includes its end. `hist` has d axes.
        `weight`, of shape (...), is added up instead. With `density` the integral is 1. Raises DTypeError for integers,
        ShapeError for a tensor with less than 2 axes and another shape of `weight`, ArgumentError for another number of
        bins or edges.

        >>> hist, edges = Tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]).histogramdd([2, 1])
        >>> hist.tolist(), [e.tolist() for e in edges]
        ([[1.0], [2.0]], [[0.0, 0.5, 1.0], [0.0, 1.0]])
        """
        self._check_float("histogramdd")
        if self.ndim < 2:
            raise ShapeError("histogramdd needs points", expected="2 axes or more", found=self.shape)
        x: Any = self
        w: Any = weight
        if w is not None and w.shape != self.shape[:-1]:
            raise ShapeError("histogramdd: weight", expected=self.shape[:-1], found=w.shape)
        d, rows = self.shape[-1], x.reshape(-1, self.shape[-1])
        given: list[Any] = list(bins) if isinstance(bins, Sequence) else [bins] * d
        limits = [None] * d if range is None else list(zip(range[::2], range[1::2], strict=False))
        if len(given) != d or len(limits) != d or (range is not None and len(range) != 2 * d):
            found = f"{len(given)} bins, {None if range is None else len(range)} limits"
            raise ArgumentError("histogramdd", expected=f"bins and limits of {d} coordinates", found=found)
        columns = rows.unbind(1)
        edges = [_edges(c, b, r, "histogramdd") for c, b, r in zip(columns, given, limits, strict=True)]
        cell = x._kind.zeros(rows.shape[0], dtype=dtypes.int64, device=x.device)
        is_inside = cell.eq(0)
        for column, e in zip(columns, edges, strict=True):
            m = e.shape[0] - 1
            at = e.searchsorted(column, right=True) - 1
            is_inside = (column >= e[0]) & (column <= e[-1]) & is_inside
            cell = cell * m + at.clamp(0, m - 1)
        shape = tuple(e.shape[0] - 1 for e in edges)
        each = x._kind.ones(rows.shape[0], dtype=self.dtype, device=x.device) if w is None else w.reshape(-1)
        each = each.cast(self.dtype)
        flat = x._kind.zeros(int(np.prod(shape)), dtype=self.dtype, device=x.device)
        hist = flat.index_add(0, is_inside.where(cell, 0), is_inside.where(each, 0.0)).reshape(shape)
        if density:
            hist = hist / hist.sum()
            for i, e in enumerate(edges):
                hist = hist / (e[1:] - e[:-1]).reshape(-1, *[1] * (d - 1 - i))
        return Histogram(hist, tuple(edges))


def _edges(x: Any, bins: Any, limits: Any, name: str) -> Any:
    """Return the edges of the bins of the vector `x`: those given, or of `bins` equal bins between `limits`, by default
    between the smallest and the largest element. Raises ArgumentError, which names the method `name`.
    """
    if isinstance(bins, TensorBase):
        return bins
    n = as_int(bins, "bins")
    if n < 1:
        raise ArgumentError(f"{name}: bins", expected="at least 1", found=n)
    found = (0.0, 1.0) if limits is None and not x.numel() else limits  # as in PyTorch
    low, high = (x.amin(), x.amax()) if found is None else map(x._scalar, found)
    same = low == high
    low, high = same.where(low - 0.5, low), same.where(high + 0.5, high)
    return low.lerp(high, x._kind.arange(n + 1, dtype=x.dtype) / n)


def _is_end(x: Any, edges: Any, m: int) -> Any:
    """Return, for each element and bin, whether the bin is the last one and the element its end."""
    return (x.unsqueeze(1) == edges[1:]) & (x._kind.arange(m) == m - 1)


def _row_numbers(x: Any) -> Any:
    """Return 0, 1, 2, ... for each row of `x` along its last axis."""
    rows = int(np.prod(x.shape[:-1]))
    return x._kind.arange(rows, device=x.device)


__all__ = ["CountsMixin", "Histogram"]

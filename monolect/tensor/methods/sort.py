"""Methods that order the elements of an axis: sort, topk, order statistics.

What it is not: the algorithms, which are in `graphs.radix_sort` and `graphs.select` and work on rows of a known length.
An axis of symbolic size is padded to its largest size, and the padding sorts last. Selecting distinct elements
(`unique`) is in `selection.masks`, as their number depends on the data. Invariants: nan comes after every number, equal
elements keep their order, indices are int64, and a gradient goes to the selected element.
"""

from __future__ import annotations

import math
from typing import Any, Self, overload

from monolect import graphs
from monolect.autograd import graph
from monolect.autograd.closed_forms import closed_form
from monolect.autograd.graph import cast, e, full, where
from monolect.autograd.sharding import copied
from monolect.autograd.special import lerp
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.ir.bounds import bounds_text, min_max, size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import Data, TensorBase, as_int, on_device_of
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.reduce import ValuesIndices

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


@guard_methods
class SortMixin(TensorBase):
    """Methods that order the elements along an axis. A base class of Tensor."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices[Self]:
        """Return (values, int64 indices) sorted along axis `dim`, in the shape of self; nan is the largest.

        The sort is ascending unless `descending`. It is always stable, whatever `stable` says, and O(n) for long axes.

        >>> Tensor([3, 1, 2]).sort().indices.tolist()
        [1, 2, 0]
        """
        a, rows = self._rows(dim, self._sorts_last(descending))
        return self._result(rows, graphs.radix_sort.sort_rows(rows, bool(descending)), a, self._length(a))

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Self:
        """Return the int64 indices that sort self along axis `dim`, in the shape of self.

        The sort is ascending unless `descending`, and always stable, whatever `stable` says.

        >>> Tensor([3, 1, 2]).argsort().tolist()
        [1, 2, 0]
        """
        return self.sort(dim, descending).indices

    def msort(self) -> Self:
        """Return the values sorted along the first axis.

        >>> Tensor([[3, 1], [2, 4]]).msort().tolist()
        [[2, 1], [3, 4]]
        """
        return self.sort(0).values

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices[Self]:
        """Return (values, int64 indices) of the k largest, or smallest, elements along axis `dim`, in order; of equal
        elements the first.

        Axis `dim` gets size k. A few elements of a long axis are found without sorting it. The order is the same
        with sorted=False. Raises ArgumentError if k is not in 0..size.

        >>> Tensor([3, 1, 2]).topk(2).values.tolist()
        [3, 2]
        """
        a, rows = self._rows(dim, self._sorts_last(largest))
        k = self._checked_count("topk", k, a, 0)
        return self._result(rows, graphs.radix_sort.top_rows(rows, k, bool(largest)) if k else None, a, k)

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices[Self]:
        """Return (values, int64 indices) of the k-th smallest element along axis `dim`, k from 1; `keepdim` keeps the
        axis.

        Raises ArgumentError if k is not in 1..size.

        >>> [t.item() for t in Tensor([3, 1, 2]).kthvalue(2)]
        [2, 2]
        """
        a, rows = self._rows(dim, self._sorts_last(False))
        k = self._checked_count("kthvalue", k, a, 1)
        at = full((rows.shape[0], 1), k - 1, dtypes.int32)
        return self._element_of_rank(rows, at, a, keepdim)

    @overload
    def median(self, dim: None = None, keepdim: bool = False) -> Self: ...
    @overload
    def median(self, dim: int, keepdim: bool = False) -> ValuesIndices[Self]: ...
    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """Return the middle element, the lower of two: of all elements, or (values, indices) along axis `dim`.

        `keepdim` keeps the axis with size 1. The result is nan if an element is nan. Raises ShapeError for no elements.

        >>> Tensor([3.0, 1.0, 2.0, 9.0]).median().item()
        2.0
        """
        t, n = self._flat_elements() if dim is None else (self, None)
        a, rows = t._rows(0 if dim is None else dim, t._largest_number())
        n = self._refuse_empty("median", t._length(a) if n is None else n)
        at = graph.broadcast_to(graph.size((n - 1) // 2, dtypes.int32), (rows.shape[0], 1))
        both = t._element_of_rank(rows, _or_last(rows, at), a, keepdim and dim is not None)
        return both.values if dim is None else both

    def quantile(
        self, q: Data, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> Self:
        """Return the q-th quantiles (0 <= q <= 1) along axis `dim`, by default of all elements; a vector `q` adds a
        first axis.

        `keepdim` keeps the axes with size 1. `interpolation` is linear, lower, higher, nearest or midpoint. Raises
        DTypeError for integers, ArgumentError for another interpolation or numbers `q` outside of [0, 1], and
        ShapeError for no elements or a tensor `q` with more than one axis or another dtype. The values of a tensor `q`
        are not checked.

        >>> Tensor([1.0, 2.0, 4.0]).quantile(0.75).item()
        3.0
        """
        self._check_float("quantile")
        if interpolation not in INTERPOLATIONS:
            raise ArgumentError(
                "quantile: unknown interpolation", expected=", ".join(INTERPOLATIONS), found=interpolation
            )
        wide = self if self.dtype.bits >= 32 else self.float()
        is_flat = dim is None or not self.ndim
        t, n = wide._flat_elements() if is_flat else (wide, None)
        a, rows = t._rows(0 if dim is None or is_flat else dim, t._largest_number())
        n = self._refuse_empty("quantile", t._length(a) if n is None else n)
        tensor_class: Any = type(t)
        q_tensor = q if isinstance(q, TensorBase) else tensor_class(q, dtype=t.dtype)
        numbers: Any = q if q_tensor.ndim == 1 else [q] * (1 - q_tensor.ndim)
        if q_tensor is not q and not all(0 <= x <= 1 for x in numbers):
            raise ArgumentError("quantile: q", expected="numbers from 0 to 1", found=q)
        if q_tensor.ndim > 1 or q_tensor.dtype is not t.dtype:
            raise ShapeError("quantile: q", expected=f"a number or a vector of {t.dtype.name}", found=repr(q_tensor))
        m = count(q_tensor.shape)
        out = _interpolated(rows, graph.reshape(q_tensor._uop, (1, m)), n, interpolation)
        y = t._wrap(t._restored(out, a, m)).movedim(a, 0).cast(self.dtype)
        if keepdim:
            y = y.reshape((m, *(1,) * self.ndim)) if is_flat else y.unsqueeze(a + 1)
        return y if q_tensor.ndim else y.squeeze(0)

    # ---- rows --------------------------------------------------------------------------------------------------------
    def _rows(self, dim: int, fill: Any) -> tuple[int, UOp]:
        """Return (axis, rows): axis `dim` counted from the front, and the tensor as rows along it, shape (r, n).

        Symbolic sizes are padded with `fill` to their maximum. Raises ShapeError for an axis of 2**31 elements or more,
        AxisError for a missing axis.
        """
        devices = self.device
        u = self._uop if isinstance(devices, str) else copied(self._uop, devices[0])  # rows are sorted on one device
        u = u if u.shape else graph.reshape(u, (1,))
        a = self._axis(dim, len(u.shape))
        u = graph.padded_to_max(u, fill, range(len(u.shape)))
        n = u.shape[a]
        if n >= 1 << 31:
            raise ShapeError("the axis is too long to be sorted", expected="fewer than 2**31 elements", found=n)
        last = graph.permute(u, [*(i for i in range(len(u.shape)) if i != a), a])
        return a, graph.reshape(last, (count(last.shape[:-1]), n))

    def _flat_elements(self) -> tuple[Any, Any]:
        """Return (tensor, n): all elements as one axis, padded with the largest number if a size is symbolic, and the
        number of elements without padding.
        """
        u = graph.padded_to_max(self._uop, self._largest_number(), range(len(self._uop.shape)))
        return self._wrap(graph.reshape(u, (count(u.shape),))), count(self._uop.shape)

    def _length(self, a: int) -> Any:
        """Return the size of axis `a`; 1 for a scalar."""
        return self._uop.shape[a] if self._uop.shape else 1

    def _sorts_last(self, descending: bool) -> Any:
        """Return a value that sorts last, in ascending or `descending` order, as padding at the end of an axis."""
        if self.dtype is dtypes.bool:
            return not descending
        return self.dtype.min if descending else math.nan if self.dtype.is_float else self.dtype.max

    def _largest_number(self) -> Any:
        """Return the largest number of the dtype, which sorts before nan."""
        return self.dtype is dtypes.bool or self.dtype.max

    def _checked_count(self, name: str, k: Any, a: int, least: int) -> int:
        """Return `k`, a number of elements of axis `a`, as an int. Raises ArgumentError, which names the method `name`,
        if it is no integer or below `least`, or if the axis may have fewer than `k` elements.
        """
        k, n = as_int(k, "k"), self._length(a)
        most = n if n.__class__ is int else min_max(n)[0]
        if not least <= k <= most:
            expected = f"{least}..{most}" + ("" if n is most else f", the least of {bounds_text(n)} elements")
            raise ArgumentError(f"{name}: k is outside the axis", expected=expected, found=k)
        return k

    def _restored(self, rows: UOp, a: int, n: Any) -> UOp:
        """Return the first n elements of each of `rows` as axis `a` of a node with the other axes of self.

        `rows` has the shape (r, at least n), with a row for each element of the other axes.
        """
        if not self._uop.shape:
            return graph.reshape(rows, () if n == 1 else (n,))
        others = [s for i, s in enumerate(self._uop.shape) if i != a]
        order = [*range(a), len(others), *range(a, len(others))]
        u = graph.permute(graph.reshape(rows, (*map(size_max, others), rows.shape[1])), order)
        return graph.leading(u, (*others[:a], n, *others[a:]))

    def _result(self, rows: UOp, found: graphs.radix_sort.Sorted | None, a: int, k: Any) -> ValuesIndices[Self]:
        """Return (values, int64 indices) with k elements of axis `a`, from the sort `found` of `rows`, shape (r, n).

        If `found` is None, which is so for k = 0, both are zeros of that shape.
        """
        r, n = rows.shape
        if found is None or 0 in (r, n):
            nothing = [on_device_of(full((r, size_max(k)), 0, d), rows) for d in (rows.dtype, dtypes.int64)]
            return ValuesIndices(*(self._wrap(self._restored(u, a, k)) for u in nothing))
        values, indices = _values_with_gradient(rows, found), cast(found.indices, dtypes.int64)
        return ValuesIndices(self._wrap(self._restored(values, a, k)), self._wrap(self._restored(indices, a, k)))

    def _element_of_rank(self, rows: UOp, at: UOp, a: int, keepdim: bool) -> ValuesIndices[Self]:
        """Return (values, int64 indices) of the elements that the sorted `rows` of axis `a` have at positions `at`.

        `at` has the shape (r, 1): one position for each row. `keepdim` keeps the axis with size 1.
        """
        index = _indices_of_ranks(rows, at)
        both = self._result(rows, graphs.radix_sort.Sorted(graphs.gather_scatter.gather_rows(rows, index), index), a, 1)
        return both if keepdim or not self.ndim else ValuesIndices(*(t.squeeze(a) for t in both))

    def _refuse_empty(self, name: str, n: Any) -> Any:
        """Return the number of elements `n`. Raises ShapeError, which names method `name`, if it may be 0."""
        if not (n if n.__class__ is int else min_max(n)[0]):
            raise ShapeError(f"the {name} of no elements", expected="a non-empty axis", found=f"shape {self.shape}")
        return n


def _values_with_gradient(rows: UOp, found: graphs.radix_sort.Sorted) -> UOp:
    """Return the values of `found`, the sort of `rows`; their gradient goes to the selected elements of `rows`, others
    get 0.
    """
    if not rows.dtype.is_float:
        return found.values
    is_partial = found.indices.shape != rows.shape
    base = full(rows.shape, 0, rows.dtype) if is_partial else None
    # The indices are an input without a gradient, so that the body of a function can replace both nodes by others.
    # The gradient is attached below the RESHAPE of the values, since the RESHAPE may be merged with another view.
    y = found.values.src[0] if found.values.op == "RESHAPE" else found.values

    def scatter_gradient(g: UOp, y: UOp, x: UOp, at: UOp) -> tuple[UOp, None]:
        return graphs.gather_scatter.scatter_rows(graph.reshape(g, at.shape), at, base), None

    return graph.reshape(closed_form(y, (rows, found.indices), scatter_gradient), found.values.shape)


def _indices_of_ranks(rows: UOp, at: UOp) -> UOp:
    """Return the int indices in `rows` of the elements that sorted rows have at the positions `at`, shape (r, m)."""
    if graphs.select.is_cheaper_than_sorting(rows, at.shape[1]):
        return graphs.select.index_of_rank(rows, at)
    return graphs.gather_scatter.gather_rows(graphs.radix_sort.sort_rows(rows).indices, at)


def _or_last(rows: UOp, at: UOp) -> UOp:
    """Return the positions `at` in sorted rows, or the last one if the row holds a nan."""
    if not rows.dtype.is_float:
        return at
    has_nan = graph.reduce(build("CMPNE", rows, rows), "MAX", (1,))
    return where(has_nan, rows.shape[1] - 1, at)


def _interpolated(rows: UOp, q: UOp, n: Any, how: str) -> UOp:
    """Return the quantiles `q`, shape (1, m), of the n elements of each of `rows`; the result has shape (r, m).

    `how` is one of INTERPOLATIONS.
    """
    position = build("MUL", q, graph.size(n - 1, q.dtype))
    low = build("TRUNC", position)
    weight = build("SUB", position, low)
    high = where(e("CMPNE", weight, 0.0), e("ADD", low, 1.0), low)
    if how == "nearest":  # halves to the even position
        odd = e("CMPNE", build("TRUNC", e("MUL", low, 0.5)), e("MUL", low, 0.5))
        up = build("OR", e("CMPLT", const(0.5, q.dtype), weight), build("AND", e("CMPEQ", weight, 0.5), odd))
        low = where(up, high, low)

    def at(p: UOp) -> UOp:
        ranks = _or_last(rows, graph.expand(cast(p, dtypes.int32), (rows.shape[0], q.shape[1])))
        return graphs.gather_scatter.gather_rows(rows, _indices_of_ranks(rows, ranks))

    if how in ("lower", "nearest"):
        return at(low)
    if how == "higher":
        return at(high)
    a, b = at(low), at(high)
    return lerp(a, b, weight if how == "linear" else const(0.5, q.dtype))


__all__ = ["SortMixin"]

"""Methods that put the elements of an axis in order: sort, the first few, order statistics.

What it is not: the algorithms, which are in `radix` and `rank` and work on rows of a known length: an axis of symbolic
size is as long as it may be, and what is behind its elements comes last. Nor does it select distinct elements
(`unique`), as their number depends on the data. Invariants: nan comes after every number, equal elements keep their
order, positions are int64, and a gradient goes to the element that was taken.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from monolect.autograd import graph
from monolect.autograd.gradient import closed_form
from monolect.autograd.graph import cast, e, full, where
from monolect.autograd.special import lerp
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.graphs.gather_scatter import gather_rows, scatter_rows
from monolect.graphs.radix_sort import Sorted, sort_rows, top_rows
from monolect.graphs.select import is_cheaper_than_sorting, place_of_rank
from monolect.ir.bounds import bounds_text, min_max, size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import TensorBase, as_int, placed_like
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.reduce import ValuesIndices

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor

INTERPOLATIONS = ("linear", "lower", "higher", "nearest", "midpoint")


@guard_methods
class SortMixin(TensorBase):
    """Order along an axis."""

    __slots__ = ()

    def sort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices:
        """(values, indices) in order along an axis; nan is the largest. Always stable. O(n) for long axes.

        >>> Tensor([3, 1, 2]).sort().indices.tolist()
        [1, 2, 0]
        """
        a, rows = self._rows(dim, self._last(descending))
        return self._result(rows, sort_rows(rows, bool(descending)), a, self._length(a))

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The positions that sort an axis, int64.

        >>> Tensor([3, 1, 2]).argsort().tolist()
        [1, 2, 0]
        """
        return self.sort(dim, descending).indices

    def msort(self) -> Tensor:
        """The values in order along the first axis.

        >>> Tensor([[3, 1], [2, 4]]).msort().tolist()
        [[2, 1], [3, 4]]
        """
        return self.sort(0).values

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
        """(values, indices) of the k largest, or smallest, elements along an axis, in order; of equal ones the first.

        A few elements of a long axis are found without sorting it.

        >>> Tensor([3, 1, 2]).topk(2).values.tolist()
        [3, 2]
        """
        a, rows = self._rows(dim, self._last(largest))
        k = self._within_axis("topk", k, a, 0)
        return self._result(rows, top_rows(rows, k, bool(largest)) if k else None, a, k)

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """(values, indices) of the k-th smallest element along an axis, from 1; of equal ones, of one of them.

        >>> [t.item() for t in Tensor([3, 1, 2]).kthvalue(2)]
        [2, 2]
        """
        a, rows = self._rows(dim, self._last(False))
        k = self._within_axis("kthvalue", k, a, 1)
        at = full((rows.shape[0], 1), k - 1, dtypes.int32)
        return self._one(rows, at, a, keepdim)

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The middle element, the lower of two: of all, or (values, indices) along an axis. nan if one is nan.

        >>> Tensor([3.0, 1.0, 2.0, 9.0]).median().item()
        2.0
        """
        t, n = self._whole() if dim is None else (self, None)
        a, rows = t._rows(0 if dim is None else dim, t._greatest())
        n = self._no_extreme("median", t._length(a) if n is None else n)
        at = graph.broadcast_to(graph.size((n - 1) // 2, dtypes.int32), (rows.shape[0], 1))
        both = t._one(rows, _or_last(rows, at), a, keepdim and dim is not None)
        return both.values if dim is None else both

    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> Tensor:
        """The q-th quantiles (0 <= q <= 1) along an axis, or of all elements; a vector `q` adds an axis in front.

        `interpolation` is linear, lower, higher, nearest or midpoint. Raises DTypeError for integers,
        ShapeError and ArgumentError for `q`.

        >>> Tensor([1.0, 2.0, 4.0]).quantile(0.75).item()
        3.0
        """
        self._check_float("quantile")
        if interpolation not in INTERPOLATIONS:
            raise ArgumentError(
                "quantile: unknown interpolation", expected=", ".join(INTERPOLATIONS), found=interpolation
            )
        wide = self if self.dtype.bits >= 32 else self.float()
        whole = dim is None or not self.ndim
        t, n = wide._whole() if whole else (wide, None)
        a, rows = t._rows(0 if dim is None or whole else dim, t._greatest())
        n = self._no_extreme("quantile", t._length(a) if n is None else n)
        make: Any = type(t)
        many = q if isinstance(q, TensorBase) else make(q, dtype=t.dtype)
        if many is not q and not all(0 <= x <= 1 for x in (q if many.ndim == 1 else [q] * (1 - many.ndim))):
            raise ArgumentError("quantile: q", expected="numbers from 0 to 1", found=q)
        if many.ndim > 1 or many.dtype is not t.dtype:
            raise ShapeError("quantile: q", expected=f"a number or a vector of {t.dtype.name}", found=repr(many))
        m = count(many.shape)
        out = _interpolated(rows, graph.reshape(many._uop, (1, m)), n, interpolation)
        y = t._wrap(t._back(out, a, m)).movedim(a, 0).cast(self.dtype)
        if keepdim:
            y = y.reshape((m, *(1,) * self.ndim)) if whole else y.unsqueeze(a + 1)
        return y if many.ndim else y.squeeze(0)

    # ---- rows --------------------------------------------------------------------------------------------------------
    def _rows(self, dim: int, fill: Any) -> tuple[int, UOp]:
        """The axis from the front, and the tensor as rows along it, shape (r, n); `fill` behind symbolic sizes."""
        u = self._uop if self._uop.shape else graph.reshape(self._uop, (1,))
        a = self._axis(dim, len(u.shape))
        u = graph.as_long_as_may_be(u, fill, range(len(u.shape)))
        n = u.shape[a]
        if n >= 1 << 31:
            raise ShapeError("the axis is too long to be sorted", expected="fewer than 2**31 elements", found=n)
        last = graph.permute(u, [*(i for i in range(len(u.shape)) if i != a), a])
        return a, graph.reshape(last, (count(last.shape[:-1]), n))

    def _whole(self) -> tuple[Any, Any]:
        """All elements along one axis, the greatest number in place of those not there, and how many there are."""
        u = graph.as_long_as_may_be(self._uop, self._greatest(), range(len(self._uop.shape)))
        return self._wrap(graph.reshape(u, (count(u.shape),))), count(self._uop.shape)

    def _length(self, a: int) -> Any:
        return self._uop.shape[a] if self._uop.shape else 1

    def _last(self, descending: bool) -> Any:
        """What comes behind all others, of equal ones the later, in that order."""
        if self.dtype is dtypes.bool:
            return not descending
        return self.dtype.min if descending else math.nan if self.dtype.is_float else self.dtype.max

    def _greatest(self) -> Any:
        """The greatest number: nan comes behind it."""
        return self.dtype is dtypes.bool or self.dtype.max

    def _within_axis(self, name: str, k: Any, a: int, least: int) -> int:
        """`k`, a number of elements that the axis always has. Raises ArgumentError."""
        k, n = as_int(k, "k"), self._length(a)
        most = n if n.__class__ is int else min_max(n)[0]
        if not least <= k <= most:
            expected = f"{least}..{most}" + ("" if n is most else f", the least of {bounds_text(n)} elements")
            raise ArgumentError(f"{name}: k is outside the axis", expected=expected, found=k)
        return k

    def _back(self, rows: UOp, a: int, n: Any) -> UOp:
        """The first n elements of rows as the axis `a` of a tensor like self."""
        if not self._uop.shape:
            return graph.reshape(rows, () if n == 1 else (n,))
        others = [s for i, s in enumerate(self._uop.shape) if i != a]
        order = [*range(a), len(others), *range(a, len(others))]
        u = graph.permute(graph.reshape(rows, (*map(size_max, others), rows.shape[1])), order)
        return graph.leading(u, (*others[:a], n, *others[a:]))

    def _result(self, rows: UOp, found: Sorted | None, a: int, k: Any) -> ValuesIndices:
        r, n = rows.shape
        if found is None or 0 in (r, n):
            nothing = [placed_like(full((r, size_max(k)), 0, d), rows) for d in (rows.dtype, dtypes.int64)]
            return ValuesIndices(*(self._wrap(self._back(u, a, k)) for u in nothing))
        values, places = _taken(rows, found), cast(found.places, dtypes.int64)
        return ValuesIndices(self._wrap(self._back(values, a, k)), self._wrap(self._back(places, a, k)))

    def _one(self, rows: UOp, at: UOp, a: int, keepdim: bool) -> ValuesIndices:
        """The elements of each row in order that `at` names, shape (r, 1)."""
        place = _places_in_order(rows, at)
        both = self._result(rows, Sorted(gather_rows(rows, place), place), a, 1)
        return both if keepdim or not self.ndim else ValuesIndices(*(t.squeeze(a) for t in both))

    def _no_extreme(self, name: str, n: Any) -> Any:
        if not (n if n.__class__ is int else min_max(n)[0]):
            raise ShapeError(f"the {name} of no elements", expected="a non-empty axis", found=f"shape {self.shape}")
        return n


def _taken(rows: UOp, found: Sorted) -> UOp:
    """The values, whose gradient goes back to where they were; everything else gets none."""
    if not rows.dtype.is_float:
        return found.values
    some = found.places.shape != rows.shape
    base = full(rows.shape, 0, rows.dtype) if some else None
    # The places are an input, without a gradient, for the sake of bodies of functions: there other nodes replace both.
    y = found.values.src[0] if found.values.op == "RESHAPE" else found.values  # a view of it may be merged with another

    def to_places(g: UOp, y: UOp, x: UOp, at: UOp) -> tuple[UOp, None]:
        return scatter_rows(graph.reshape(g, at.shape), at, base), None

    return graph.reshape(closed_form(y, (rows, found.places), to_places), found.values.shape)


def _places_in_order(rows: UOp, at: UOp) -> UOp:
    """Where the elements are that sorted rows would have at the positions `at`, shape (r, m)."""
    if is_cheaper_than_sorting(rows, at.shape[1]):
        return place_of_rank(rows, at)
    return gather_rows(sort_rows(rows).places, at)


def _or_last(rows: UOp, at: UOp) -> UOp:
    """Positions in sorted rows, or the last one where the row holds a nan."""
    if not rows.dtype.is_float:
        return at
    has_nan = graph.reduce(build("CMPNE", rows, rows), "MAX", (1,))
    return where(has_nan, rows.shape[1] - 1, at)


def _interpolated(rows: UOp, q: UOp, n: Any, how: str) -> UOp:
    """The quantiles `q`, shape (1, m), of the n elements of each row, shape (r, m)."""
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
        return gather_rows(rows, _places_in_order(rows, ranks))

    if how in ("lower", "nearest"):
        return at(low)
    if how == "higher":
        return at(high)
    a, b = at(low), at(high)
    return lerp(a, b, weight if how == "linear" else const(0.5, q.dtype))

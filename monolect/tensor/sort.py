"""Methods that put the elements of an axis in order: sort, the first few, order statistics.

What it is not: the algorithms, which are in `radix` and work on rows; selecting distinct elements (`unique`), as their
number depends on the data. Invariants: nan comes after every number, equal elements keep their order, positions are
int64, and a gradient goes to the element that was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monolect.autograd import graph
from monolect.autograd.gradient import closed_form
from monolect.autograd.graph import cast, e, full, where
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.ir.normal import count
from monolect.ir.uop import UOp, build, const
from monolect.tensor.base import TensorBase, as_int
from monolect.tensor.guard import guard_methods
from monolect.tensor.radix import Sorted, sort_rows, top_rows
from monolect.tensor.reduce import ValuesIndices
from monolect.tensor.rows import gather_rows, scatter_rows

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
        a, rows = self._rows(dim)
        return self._result(rows, sort_rows(rows, bool(descending)), a)

    def argsort(self, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """The positions that sort an axis, int64."""
        return self.sort(dim, descending).indices

    def msort(self) -> Tensor:
        """The values in order along the first axis."""
        return self.sort(0).values

    def topk(self, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices:
        """(values, indices) of the k largest, or smallest, elements along an axis, in order; of equal ones the first.

        A few elements of a long axis are found without sorting it.

        >>> Tensor([3, 1, 2]).topk(2).values.tolist()
        [3, 2]
        """
        a, rows = self._rows(dim)
        k = as_int(k, "k")
        if not 0 <= k <= rows.shape[1]:
            raise ArgumentError("topk: k is outside the axis", expected=f"0..{rows.shape[1]}", found=k)
        return self._result(rows, top_rows(rows, k, bool(largest)) if k else None, a, k)

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
        """(values, indices) of the k-th smallest element along an axis, from 1."""
        a, rows = self._rows(dim)
        k = as_int(k, "k")
        if not 1 <= k <= rows.shape[1]:
            raise ArgumentError("kthvalue: k is outside the axis", expected=f"1..{rows.shape[1]}", found=k)
        at = full((rows.shape[0], 1), k - 1, dtypes.int32)
        return self._one(rows, at, a, keepdim)

    def median(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """The middle element, the lower of two: of all, or (values, indices) along an axis. nan if one is nan.

        >>> Tensor([3.0, 1.0, 2.0, 9.0]).median().item()
        2.0
        """
        if dim is None:
            return self.flatten().median(0).values
        a, rows = self._rows(dim)
        n = self._no_extreme("median", rows)
        at = full((rows.shape[0], 1), (n - 1) // 2, dtypes.int32)
        return self._one(rows, _or_last(rows, at), a, keepdim)

    def quantile(
        self, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
    ) -> Tensor:
        """The q-th quantiles (0 <= q <= 1) along an axis, or of all elements; a vector `q` adds an axis in front.

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
        t = wide.flatten() if whole else wide
        a, rows = t._rows(0 if dim is None else dim)
        n = self._no_extreme("quantile", rows)
        make: Any = type(t)
        many = q if isinstance(q, TensorBase) else make(q, dtype=t.dtype)
        if many.ndim > 1 or many.dtype is not t.dtype:
            raise ShapeError("quantile: q", expected=f"a number or a vector of {t.dtype.name}", found=repr(many))
        m = count(many.shape)
        out = _interpolated(rows, graph.reshape(many._uop, (1, m)), n, interpolation)
        y = t._wrap(t._back(out, a, m)).movedim(a, 0).cast(self.dtype)
        if keepdim:
            y = y.reshape((m, *(1,) * self.ndim)) if whole else y.unsqueeze(a + 1)
        return y if many.ndim else y.squeeze(0)

    # ---- rows --------------------------------------------------------------------------------------------------------
    def _rows(self, dim: int) -> tuple[int, UOp]:
        """The axis from the front, and the tensor as rows along it, shape (r, n). Raises for symbolic sizes."""
        u = self._uop if self._uop.shape else graph.reshape(self._uop, (1,))
        a = self._axis(dim, len(u.shape))
        if any(n.__class__ is not int for n in u.shape):
            raise ShapeError("order along an axis needs sizes that are known", expected="integers", found=u.shape)
        n = u.shape[a]
        if n >= 1 << 31:
            raise ShapeError("the axis is too long to be sorted", expected="fewer than 2**31 elements", found=n)
        last = graph.permute(u, [*(i for i in range(len(u.shape)) if i != a), a])
        return a, graph.reshape(last, (count(last.shape[:-1]), n))

    def _back(self, rows: UOp, a: int, n: int) -> UOp:
        """Rows of n elements as the axis `a` of a tensor like self."""
        if not self._uop.shape:
            return graph.reshape(rows, () if n == 1 else (n,))
        lead = [s for i, s in enumerate(self._uop.shape) if i != a]
        order = [*range(a), len(lead), *range(a, len(lead))]
        return graph.permute(graph.reshape(rows, (*lead, n)), order)

    def _result(self, rows: UOp, found: Sorted | None, a: int, k: int | None = None) -> ValuesIndices:
        r, n = rows.shape
        k = n if k is None else k
        if found is None or 0 in (r, n):
            nothing = [full((r, k), 0, d) for d in (rows.dtype, dtypes.int64)]
            return ValuesIndices(*(self._wrap(self._back(u, a, k)) for u in nothing))
        values, places = _taken(rows, found), cast(found.places, dtypes.int64)
        return ValuesIndices(self._wrap(self._back(values, a, k)), self._wrap(self._back(places, a, k)))

    def _one(self, rows: UOp, at: UOp, a: int, keepdim: bool) -> ValuesIndices:
        """The elements of each row in order that `at` names, shape (r, 1)."""
        place = gather_rows(sort_rows(rows).places, at)
        both = self._result(rows, Sorted(gather_rows(rows, place), place), a, 1)
        return both if keepdim or not self.ndim else ValuesIndices(*(t.squeeze(a) for t in both))

    def _no_extreme(self, name: str, rows: UOp) -> int:
        if not rows.shape[1]:
            raise ShapeError(f"the {name} of no elements", expected="a non-empty axis", found=f"shape {self.shape}")
        return rows.shape[1]


def _taken(rows: UOp, found: Sorted) -> UOp:
    """The values, whose gradient goes back to where they were; everything else gets none."""
    if not rows.dtype.is_float:
        return found.values
    some = found.places.shape != rows.shape
    base = full(rows.shape, 0, rows.dtype) if some else None
    return closed_form(found.values, (rows,), lambda g, y, x: (scatter_rows(g, found.places, base),))


def _or_last(rows: UOp, at: UOp) -> UOp:
    """Positions in sorted rows, or the last one where the row holds a nan."""
    if not rows.dtype.is_float:
        return at
    has_nan = graph.reduce(build("CMPNE", rows, rows), "MAX", (1,))
    return where(has_nan, rows.shape[1] - 1, at)


def _interpolated(rows: UOp, q: UOp, n: int, how: str) -> UOp:
    """The quantiles `q`, shape (1, m), of each row, shape (r, m)."""
    position = e("MUL", q, n - 1)
    low = build("TRUNC", position)
    weight = build("SUB", position, low)
    high = where(e("CMPNE", weight, 0.0), e("ADD", low, 1.0), low)
    if how == "nearest":  # halves to the even position
        odd = e("CMPNE", build("TRUNC", e("MUL", low, 0.5)), e("MUL", low, 0.5))
        up = build("OR", e("CMPLT", const(0.5, q.dtype), weight), build("AND", e("CMPEQ", weight, 0.5), odd))
        low = where(up, high, low)
    ordered = _taken(rows, sort_rows(rows))

    def at(p: UOp) -> UOp:
        places = graph.expand(cast(p, dtypes.int32), (rows.shape[0], q.shape[1]))
        return gather_rows(ordered, _or_last(rows, places))

    if how in ("lower", "nearest"):
        return at(low)
    if how == "higher":
        return at(high)
    a, b = at(low), at(high)
    return build("ADD", a, build("MUL", build("SUB", b, a), weight if how == "linear" else const(0.5, q.dtype)))

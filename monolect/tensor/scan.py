"""Running sums, products and extremes along an axis.

What it is not: loops. A running sum is a REDUCE over a triangle mask, a form that `rules.loops` turns into one pass.
Invariants: integers become int64, halves are added up in float32; a gradient takes as many steps as the value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from monolect.autograd import graph
from monolect.autograd.gradient import closed_form, gradients, running_product
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import as_dtype, dtypes, sum_dtype
from monolect.ir.bounds import size_max
from monolect.ir.normal import count, negate
from monolect.ir.uop import UOp, build, const, node
from monolect.tensor import order
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.reduce import ValuesIndices, neutral, reverse, top
from monolect.tensor.rows import add_rows

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor


@guard_methods
class ScanMixin(TensorBase):
    """Running sums, products and extremes."""

    __slots__ = ()

    def cumsum(self, dim: int = 0, *, dtype: Any = None, axis: int | None = None) -> Tensor:
        """The running sum along an axis; integers become int64.

        >>> Tensor([1, 2, 3]).cumsum(0).tolist()
        [1, 3, 6]
        """
        u = cast(self._uop, sum_dtype(self.dtype) if dtype is None else as_dtype(dtype))
        return self._wrap(self._along(u, dim if axis is None else axis, lambda x: scan(x, "ADD")))

    def cumprod(self, dim: int = 0, *, dtype: Any = None, axis: int | None = None) -> Tensor:
        """The running product along an axis; integers become int64.

        >>> Tensor([1, 2, 3, 4]).cumprod(0).tolist()
        [1, 2, 6, 24]
        """
        u = cast(self._uop, sum_dtype(self.dtype) if dtype is None else as_dtype(dtype))
        return self._wrap(self._along(u, dim if axis is None else axis, lambda x: scan(x, "MUL")))

    def cummax(self, dim: int = 0) -> ValuesIndices:
        """(values, indices) of the largest element so far; of equal ones the last, as in PyTorch.

        >>> [t.tolist() for t in Tensor([1, 3, 2, 3]).cummax(0)]
        [[1, 3, 3, 3], [0, 1, 1, 3]]
        """
        return self._running_extreme(self._uop, dim)

    def cummin(self, dim: int = 0) -> ValuesIndices:
        """(values, indices) of the smallest element so far; of equal ones the last, as in PyTorch.

        >>> [t.tolist() for t in Tensor([3, 1, 2, 1]).cummin(0)]
        [[3, 1, 1, 1], [0, 1, 1, 3]]
        """
        flip = reverse(self.dtype)
        values, indices = self._running_extreme(flip(self._uop), dim)
        return ValuesIndices(self._wrap(flip(values._uop)), indices)

    def _running_extreme(self, u: UOp, dim: int) -> ValuesIndices:
        place = self._along(u, dim, last_maximum)
        return ValuesIndices(self._wrap(self._along(u, dim, lambda x: scan(x, "MAX"))), self._wrap(place))

    def logcumsumexp(self, dim: int = 0) -> Tensor:
        """log(cumsum(exp(self))), shifted by the largest element of the axis, in float64.

        A partial sum is -inf where its elements are more than 745 below the largest of the axis. Raises DTypeError for
        integers.

        >>> [round(x, 3) for x in Tensor([1000.0, 1000.0]).logcumsumexp(0).tolist()]
        [1000.0, 1000.693]
        """
        self._check_float("logcumsumexp")
        wide = self.double()
        x = wide.detach()  # what is not finite must not be subtracted, nor reach the sums before it
        most = top(x.isfinite().where(x, -inf)._uop, self._axes(dim))
        m = self._wrap(where(e("CMPEQ", most, -inf), 0.0, most))
        return ((wide - m).exp().cumsum(dim).log() + m).cast(self.dtype)

    def _along(self, u: UOp, dim: int, f: Callable[[UOp], UOp]) -> UOp:
        """`f`, which works along the last axis, along `dim`."""
        a = self._axis(dim, max(1, len(u.shape)))
        if not u.shape:
            return graph.reshape(f(graph.reshape(u, (1,))), ())
        order_ = [*(i for i in range(len(u.shape)) if i != a), a]
        return graph.permute(f(graph.permute(u, order_)), sorted(range(len(order_)), key=order_.__getitem__))


# ---- node level ------------------------------------------------------------------------------------------------------
def scan(u: UOp, op: str) -> UOp:
    """The running ADD, MUL or MAX along the last axis: REDUCE over j of (j <= i ? u[j] : neutral)."""
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
    """The position of the largest element so far along the last axis, of equal ones the last; int64."""
    n, axis = u.shape[-1], len(u.shape) - 1
    k, many = order.key(u), max(1, (size_max(n) - 1).bit_length())
    d = next((d for d in (dtypes.int32, dtypes.int64) if k.dtype.bits + many <= d.bits), None)
    if d is not None:
        both = build("OR", e("SHL", cast(k, d), many), iota(n, d, axis, axis + 1))
        return cast(e("AND", scan(both, "MAX"), (1 << many) - 1), dtypes.int64)
    is_top = negate(build("CMPNE", k, scan(k, "MAX")))  # where an element equals the maximum so far it is the latest
    return scan(where(is_top, iota(n, dtypes.int64, axis, axis + 1), 0), "MAX")


def _backwards(u: UOp) -> UOp:
    """A running sum from the other end."""
    last = (len(u.shape) - 1,)
    return graph.flip(scan(graph.flip(u, last), "ADD"), last)


def _of_sum(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    return (_backwards(g),)


def _of_product(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """The sum of g*y from each element on, over the element. The products from the first zero on are those of the other
    elements times the zero, and elements behind it change nothing. That is no formula to differentiate.
    """
    zero = e("CMPEQ", u, 0.0)
    first = build("AND", zero, e("CMPEQ", scan(cast(zero, dtypes.int32), "ADD"), 1))
    others = scan(where(first, 1.0, u), "MUL")
    rest = build("DIV", _backwards(build("MUL", g, y)), where(zero, 1.0, u))
    out = where(first, _backwards(build("MUL", g, others)), where(zero, 0.0, rest))
    return (closed_form(out, (g, u), _of_product_again),)


def _of_product_again(h: UOp, y: UOp, g: UOp, u: UOp) -> tuple[UOp | None, UOp | None]:
    own = node("CONTIGUOUS_BACKWARD", (g,))  # not `u`, which it may be
    found = gradients(running_product(u), own, [u], cut=True)[u]
    both = {} if found is None else gradients(found, h, [own, u], cut=True)
    return both.get(own), both.get(u)


def _of_maximum(g: UOp, y: UOp, u: UOp) -> tuple[UOp]:
    """Each result's gradient goes to the element it is."""
    r, n = count(u.shape[:-1]), u.shape[-1]
    places = graph.reshape(last_maximum(u), (r, n))
    return (graph.reshape(add_rows(graph.reshape(g, (r, n)), places, n), u.shape),)


_DERIVATIVES = {"ADD": _of_sum, "MUL": _of_product, "MAX": _of_maximum}

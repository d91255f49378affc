"""Methods for running sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Self

from monolect import graphs
from monolect.autograd import graph
from monolect.autograd.graph import cast, e, where
from monolect.base.dtype import as_dtype, sum_dtype
from monolect.ir.uop import UOp
from monolect.tensor.base import DTypeLike, TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.reduce import ValuesIndices, detached_maximum, reverse


@guard_methods
class ScanMixin(TensorBase):
    """Running sums, products and extremes along one axis; the shape stays.

    Methods raise AxisError for a missing axis.
    """

    __slots__ = ()

    def cumsum(self, dim: int = 0, *, dtype: DTypeLike | None = None, axis: int | None = None) -> Self:
        """Return the running sum along axis `dim`, in the same shape. `axis`, if given, replaces `dim`.

        Integers and bools give int64; `dtype` casts before adding.

        >>> Tensor([1, 2, 3]).cumsum(0).tolist()
        [1, 3, 6]
        """
        u = cast(self._uop, sum_dtype(self.dtype) if dtype is None else as_dtype(dtype))
        return self._wrap(self._along(u, dim if axis is None else axis, lambda x: graphs.scans.scan(x, "ADD")))

    def cumprod(self, dim: int = 0, *, dtype: DTypeLike | None = None, axis: int | None = None) -> Self:
        """Return the running product along axis `dim`, in the same shape. `axis`, if given, replaces `dim`.

        Integers and bools give int64; `dtype` casts before multiplying.

        >>> Tensor([1, 2, 3, 4]).cumprod(0).tolist()
        [1, 2, 6, 24]
        """
        u = cast(self._uop, sum_dtype(self.dtype) if dtype is None else as_dtype(dtype))
        return self._wrap(self._along(u, dim if axis is None else axis, lambda x: graphs.scans.scan(x, "MUL")))

    def cummax(self, dim: int = 0) -> ValuesIndices[Self]:
        """Return (values, int64 indices) of the largest element so far along axis `dim`; of equal elements the last, as
        in PyTorch.

        >>> [t.tolist() for t in Tensor([1, 3, 2, 3]).cummax(0)]
        [[1, 3, 3, 3], [0, 1, 1, 3]]
        """
        return self._running_extreme(self._uop, dim)

    def cummin(self, dim: int = 0) -> ValuesIndices[Self]:
        """Return (values, int64 indices) of the smallest element so far along axis `dim`; of equal elements the last,
        as in PyTorch.

        >>> [t.tolist() for t in Tensor([3, 1, 2, 1]).cummin(0)]
        [[3, 1, 1, 1], [0, 1, 1, 3]]
        """
        flip = reverse(self.dtype)
        values, indices = self._running_extreme(flip(self._uop), dim)
        return ValuesIndices(self._wrap(flip(values._uop)), indices)

    def _running_extreme(self, u: UOp, dim: int) -> ValuesIndices[Self]:
        """Return (values, indices) of the running maximum of `u` along `dim`."""
        indices = self._along(u, dim, graphs.scans.last_maximum)
        return ValuesIndices(
            self._wrap(self._along(u, dim, lambda x: graphs.scans.scan(x, "MAX"))), self._wrap(indices)
        )

    def logcumsumexp(self, dim: int = 0) -> Self:
        """Return log(cumsum(exp(self))) along axis `dim`, shifted by the largest element of the axis and computed in
        float64.

        A partial sum is -inf, a constant, if its elements are more than 745 below the largest of the axis. Raises
        DTypeError for integers.

        >>> [round(x, 3) for x in Tensor([1000.0, 1000.0]).logcumsumexp(0).tolist()]
        [1000.0, 1000.693]
        """
        self._check_float("logcumsumexp")
        wide = self.double()
        x = wide.detach()  # a shift that is not finite would make earlier sums nan
        most = detached_maximum(x.isfinite().where(x, -inf)._uop, self._axes(dim))
        m = self._wrap(where(e("CMPEQ", most, -inf), 0.0, most))
        sums = (wide - m).exp().cumsum(dim)
        some = sums.ne(0)  # the derivative of log at 0 would make that of each earlier element nan
        return some.where(some.where(sums, 1.0).log() + m, -inf).cast(self.dtype)

    def _along(self, u: UOp, dim: int, f: Callable[[UOp], UOp]) -> UOp:
        """Return the result of `f` along axis `dim` of `u`.

        `f` maps a node to a node of the same shape and works along the last axis; it is called once, with the axes of
        `u` permuted. Raises AxisError for a missing axis.
        """
        a = self._axis(dim, max(1, len(u.shape)))
        if not u.shape:
            return graph.reshape(f(graph.reshape(u, (1,))), ())
        order = [*(i for i in range(len(u.shape)) if i != a), a]
        return graph.permute(f(graph.permute(u, order)), sorted(range(len(order)), key=order.__getitem__))


__all__ = ["ScanMixin"]

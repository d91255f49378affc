"""Methods that return a copy of a tensor with parts replaced, added to, or reduced.

Invariant: self does not change; gradients flow to self where it is kept and to the values that are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Self

from monolect.autograd import graph
from monolect.autograd.graph import cast
from monolect.base.dtype import accumulator, dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import TensorBase, as_int, refused_shape
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import position, selection
from monolect.tensor.methods.selection.masks import without_masks

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@guard_methods
class WritesMixin(TensorBase):
    """Methods of Tensor that write at indices, slices and diagonals of a copy."""

    __slots__ = ()

    def index_put(self, indices: Sequence[TensorBase | None], values: TensorBase, accumulate: bool = False) -> Self:
        """Return a copy of self with `values`, broadcast, at the positions that `indices` name, one tensor for each
        axis; with `accumulate` they are added, equal positions too.

        Raises DTypeError for values of another dtype, ShapeError for values that do not broadcast.

        >>> Tensor([1, 2, 3]).index_put((Tensor([0, 2]),), Tensor([7, 8])).tolist()
        [7, 2, 8]
        """
        x: Any = self
        v: Any = values
        if v.dtype is not self.dtype:
            raise DTypeError("index_put: values", expected=self.dtype.name, found=v.dtype.name)
        key = without_masks(self, tuple(slice(None) if i is None else i for i in indices))
        if not accumulate:
            base = x.clone()
            base[key] = v
            return base
        base = x._whole_copy(v, *key)
        target = selection(base, key, writes=True).of(base._uop)
        return x._after_write("ATOMICADD", base._uop, target, base._fitting(target, v._uop))

    def select_scatter(self, src: TensorBase, dim: int, index: int) -> Self:
        """Return a copy of self with `src` at position `index` of axis `dim`.

        Raises ShapeError unless `src` has the shape of that slice.

        >>> Tensor.zeros(2, 2).select_scatter(Tensor([1.0, 2.0]), 0, 1).tolist()
        [[0.0, 0.0], [1.0, 2.0]]
        """
        return _with_part(self, (slice(None),) * self._axis(dim) + (as_int(index, "index"),), src, "select_scatter")

    def slice_scatter(
        self, src: TensorBase, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
    ) -> Self:
        """Return a copy of self with `src` in the slice start:end:step of axis `dim`.

        Raises ShapeError unless `src` has the shape of that slice.

        >>> Tensor.zeros(4).slice_scatter(Tensor([1.0, 2.0]), start=1, end=3).tolist()
        [0.0, 1.0, 2.0, 0.0]
        """
        key = (slice(None),) * self._axis(dim) + (slice(start, end, step),)
        return _with_part(self, key, src, "slice_scatter")

    def diagonal_scatter(self, src: TensorBase, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return a copy of self with `src` on a diagonal of the axes `dim1` and `dim2`; `offset` is column minus row.

        Raises ShapeError unless `src` has the shape of that diagonal.

        >>> Tensor.zeros(2, 2).diagonal_scatter(Tensor([1.0, 2.0])).tolist()
        [[1.0, 0.0], [0.0, 2.0]]
        """
        x: Any = self
        part = x.diagonal(offset, dim1, dim2)
        if part.shape != src.shape:
            raise refused_shape("diagonal_scatter", part.shape, src.shape)
        a, b, s = self._axis(dim1), self._axis(dim2), self.shape
        rows = x._kind.arange(s[a]).reshape(*(s[a] if i == a else 1 for i in range(self.ndim)))
        columns = x._kind.arange(s[b]).reshape(*(s[b] if i == b else 1 for i in range(self.ndim)))
        if not src.numel():
            return x.clone()
        v: Any = src
        at = (rows - max(0, -offset)).clamp(0, part.shape[-1] - 1)  # the element of the diagonal of each row
        v = v.movedim(-1, 0)[at.reshape(-1)].movedim(0, -1).unsqueeze(-1)
        others = [i for i in range(self.ndim) if i not in (a, b)]
        v = v.permute(
            *(len(others) if i == a else len(others) + 1 if i == b else others.index(i) for i in range(x.ndim))
        )
        return (columns - rows == offset).where(v, x)

    def fill_diagonal(self, fill_value: float, wrap: bool = False) -> Self:
        """Return a copy of self, a matrix or a tensor of equal sizes, with `fill_value` on its main diagonal.

        With `wrap` the diagonal of a tall matrix starts again after the last column. Raises ShapeError for another
        shape.

        >>> Tensor.zeros(2, 2).fill_diagonal(3.0).tolist()
        [[3.0, 0.0], [0.0, 3.0]]
        """
        x: Any = self
        n = self.ndim
        if n < 2 or (n > 2 and len({*self.shape}) > 1):
            raise ShapeError("fill_diagonal", expected="a matrix, or axes of one size", found=self.shape)
        at = [x._kind.arange(s).reshape(*(s if i == k else 1 for i in range(n))) for k, s in enumerate(self.shape)]
        if n == 2:
            rows, columns = self.shape
            on = (at[0] % (columns + 1) if wrap and rows > columns else at[0]) == at[1]
        else:
            on = at[0] == at[1]
            for other in at[2:]:
                on = on & (at[0] == other)
        return x.masked_fill(on, fill_value)

    def scatter_reduce(
        self, dim: int, index: TensorBase, src: TensorBase, reduce: str, *, include_self: bool = True
    ) -> Self:
        """Return a copy of self with the values of `src` at the positions `index` along axis `dim` reduced by `reduce`:
        sum, prod, mean, amax or amin.

        The values of self take part if `include_self`. `index` has the rank of self and is at most as long as it on
        other axes; `src` is at least as large as `index`. Raises ShapeError, DTypeError or ArgumentError otherwise.

        >>> Tensor([1, 2, 3]).scatter_reduce(0, Tensor([0, 0]), Tensor([5, 4]), "amax").tolist()
        [5, 2, 3]
        """
        x: Any = self
        i: Any = index
        _check_reduce("scatter_reduce", reduce)
        a = self._axis(dim) if self.ndim else 0
        if not self.ndim:
            out: Self = x.reshape(1).scatter_reduce(
                0, i.reshape(-1), _as_vector(src), reduce, include_self=include_self
            )
            return out.reshape(())
        v = x._wrap(x._source(src, index.shape))
        ones = x._kind.zeros(*self.shape, dtype=dtypes.int64, device=self.device)
        counts = ones.scatter_add(a, i, 1)
        touched = counts > 0
        base = x if include_self else touched.where(_neutral(x, reduce), x)
        if reduce == "sum":
            return base.scatter_add(a, i, v)
        if reduce == "mean":
            d = accumulator(self.dtype)
            total = base.cast(d).scatter_add(a, i, v.cast(d))
            counts = (counts + include_self).clamp(min=1)
            mean = total.div(counts.cast(d), rounding_mode=None if self.dtype.is_float else "floor").cast(self.dtype)
            return touched.where(mean, x) if not include_self else mean
        return _reduced_matches(x, base, a, i, v, reduce, touched, include_self)

    def index_reduce(
        self, dim: int, index: TensorBase, source: TensorBase, reduce: str, *, include_self: bool = True
    ) -> Self:
        """Return a copy of self with the slices of `source` at the positions in the vector `index` along axis `dim`
        reduced by `reduce`: prod, mean, amax or amin.

        The values of self take part if `include_self`. `source` has the dtype and shape of self, but as many slices as
        `index` has elements. Negative indices count from the end. Raises ShapeError, DTypeError or ArgumentError
        otherwise.

        >>> Tensor([1, 2, 3]).index_reduce(0, Tensor([0, 0]), Tensor([5, 4]), "amin").tolist()
        [1, 2, 3]
        """
        if reduce == "sum":
            raise ArgumentError("index_reduce: reduce", expected="prod, mean, amax or amin", found="'sum'")
        _check_reduce("index_reduce", reduce)
        a, i = self._axis(dim) if self.ndim else 0, index
        if i.ndim > 1:
            raise ShapeError("index_reduce: the index", expected="a vector", found=i.shape)
        shape = [i.numel() if k == a else n for k, n in enumerate(self.shape)] or [i.numel()]
        if tuple(source.shape) != tuple(shape) and self.ndim:
            raise ShapeError("index_reduce: the source", expected=tuple(shape), found=source.shape)
        n = self.shape[a] if self.ndim else 1
        at: Any = self._wrap(cast(position(i, n, "index_reduce"), dtypes.int64))
        at = at.reshape(*(-1 if k == a else 1 for k in range(max(self.ndim, 1)))).expand(*shape)
        return self.scatter_reduce(dim if self.ndim else 0, at, source, reduce, include_self=include_self)


def _with_part(t: Any, key: Any, src: Any, name: str) -> Any:
    """Return a copy of the Tensor `t` with `src` in the part that `key` names. Raises ShapeError for another shape."""
    shape = t[key].shape
    if src.shape != shape:
        raise refused_shape(name, shape, src.shape)
    out = t.clone()
    out[key] = src
    return out


def _as_vector(x: Any) -> Any:
    return x.reshape(-1) if isinstance(x, TensorBase) else x


def _check_reduce(name: str, reduce: str) -> None:
    if reduce not in REDUCTIONS:
        raise ArgumentError(f"{name}: reduce", expected=", ".join(REDUCTIONS), found=repr(reduce))


def _neutral(x: Any, reduce: str) -> Any:
    """Return the neutral element of a reduction in the dtype of `x`, as a Tensor of no axes."""
    d: Any = x.dtype
    least, most = (-inf, inf) if d.is_float else (False, True) if d is dtypes.bool else (d.min, d.max)
    value = {"prod": 1, "amax": least, "amin": most}.get(reduce, 0)
    return x._wrap(graph.full((), bool(value) if d is dtypes.bool else value, d))


def _reduced_matches(
    x: Any, base: Any, a: int, index: Any, value: Any, reduce: str, touched: Any, include_self: bool
) -> Any:
    """Return prod, amax or amin of the values at each position: each position is compared with each index along the
    axis.

    The cost is the product of the sizes of `x` and of the index along the axis.
    """
    at = index.long().movedim(a, -1)
    values = value.movedim(a, -1)
    rest = [n for k, n in enumerate(x.shape) if k != a]
    widths = [w for n, m in reversed([*zip(rest, at.shape, strict=False)]) for w in (0, n - m)]
    at = at.pad([0, 0, *widths], value=-1) if any(widths) else at  # no element has position -1
    values = values.pad([0, 0, *widths]) if any(widths) else values
    matches = at.unsqueeze(-2) == x._kind.arange(x.shape[a], device=x.device).unsqueeze(-1)
    chosen = matches.where(values.unsqueeze(-2), _neutral(x, reduce))
    if include_self:
        chosen = chosen.cat(base.movedim(a, -1).unsqueeze(-1), dim=-1)
    found = chosen.prod(-1) if reduce == "prod" else getattr(chosen, reduce)(-1)
    found = x._wrap(cast(found._uop, x.dtype)).movedim(-1, a)
    return found if include_self else touched.where(found, x)


__all__ = ["WritesMixin"]

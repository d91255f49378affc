"""Methods that rearrange elements and compute nothing: views, concatenation, padding.

A method that returns a view in PyTorch returns a view here (`tensor/view.py`); `reshape` copies if elements that are to
be adjacent have no common stride.
Invariant: every method is a chain of movement ops, masks and WHERE. So it needs no kernel of its own, and becomes index
arithmetic in the kernel that reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias

from monolect.autograd import gradient, graph
from monolect.autograd.graph import pad_invalid, shrink, shrink_axis
from monolect.autograd.operands import join
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, AxisError, IRError, ShapeError
from monolect.ir.bounds import at_most, bounds_text, min_max
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, idx
from monolect.tensor.base import (
    AnyTensor,
    Axes,
    Number,
    Size,
    Sizes,
    TensorBase,
    as_int,
    as_size,
    as_sizes,
    check_sizes,
    unpacked,
)
from monolect.tensor.guard import guard_methods
from monolect.tensor.view import reshaped, shown, slices, strides

OneOrMore: TypeAlias = "AnyTensor | Sequence[AnyTensor]"  # as `a.cat(b)` and `Tensor.cat([a, b])` take them


@guard_methods
class MovementMixin(TensorBase):
    """Methods of Tensor for views, concatenation and padding; the dtype stays."""

    __slots__ = ()

    # ---- shape -------------------------------------------------------------------------------------------------------
    def reshape(self, *shape: Sizes) -> Self:
        """Return the same elements, in row-major order, in another shape; one size may be -1.

        Raises ShapeError for another number of elements.

        >>> Tensor.arange(6).reshape(2, -1).shape
        (2, 3)
        """
        new, old = as_sizes(shape), self.shape
        if any(n.__class__ is int and n < 0 for n in new):
            new = _infer(old, new)
        try:
            if self._is_view and reshaped(old, strides(self), new) is None:
                return self._wrap(graph.reshape(self._uop, new))
            return shown(self, lambda u: graph.reshape(u, new), lambda s: reshaped(old, s, new))
        except IRError:
            expected, found = f"{count(old)} elements, as {old} has", f"{count(new)} elements, in {new}"
            raise ShapeError("reshape changes the number of elements", expected=expected, found=found) from None

    def view_as(self, other: TensorBase) -> Self:
        """Return self reshaped to the shape of `other`. Raises ShapeError for another number of elements.

        >>> Tensor([1, 2, 3, 4]).view_as(Tensor.zeros(2, 2)).tolist()
        [[1, 2], [3, 4]]
        """
        return self.reshape(other.shape)

    reshape_as = view_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """Return self with axes `start_dim` to `end_dim` as one. Raises AxisError if one is missing or start > end.

        >>> Tensor.ones(2, 3, 4).flatten(1).shape
        (2, 12)
        """
        rank = self.ndim or 1
        a, b = self._axis(start_dim, rank), self._axis(end_dim, rank)
        if a > b:
            raise AxisError("flatten: the first axis comes after the last", expected="start <= end", found=(a, b))
        s = self.shape
        return self.reshape(*s[:a], count(s[a : b + 1]), *s[b + 1 :])

    def unflatten(self, dim: int, sizes: Sizes) -> Self:
        """Return self with axis `dim` split into `sizes`, of which one may be -1. Raises ShapeError for another
        product.

        >>> Tensor.ones(2, 12).unflatten(1, (3, -1)).shape
        (2, 3, 4)
        """
        a, s = self._axis(dim), self.shape
        new = as_sizes((sizes,))
        return self.reshape(*s[:a], *(_infer((s[a],), new) if -1 in new else new), *s[a + 1 :])

    def squeeze(self, dim: Axes = None) -> Self:
        """Return self without its axes of size 1, or without those of `dim` (an axis or several) that have size 1.

        >>> Tensor.ones(2, 1, 3, 1).squeeze().shape, Tensor.ones(2, 1, 3, 1).squeeze(1).shape
        ((2, 3), (2, 3, 1))
        """
        axes = self._axes(dim)
        return self.reshape(tuple(n for i, n in enumerate(self.shape) if i not in axes or may_differ(n, 1)))

    def unsqueeze(self, dim: int) -> Self:
        """Return self with a new axis of size 1 at index `dim` of the result. Raises AxisError outside of the result.

        >>> Tensor.ones(2, 3).unsqueeze(-1).shape
        (2, 3, 1)
        """
        a, s = self._axis(dim, self.ndim + 1), self.shape
        return self.reshape((*s[:a], 1, *s[a:]))

    def expand(self, *sizes: Sizes) -> Self:
        """Return self with axes of size 1 repeated to `sizes`, without copying; -1 keeps an axis, and new axes come
        first.

        Raises ShapeError for fewer sizes than axes, -1 for a new axis, or another size for an axis longer than 1.

        >>> Tensor([[1], [2]]).expand(-1, 3).tolist()
        [[1, 1, 1], [2, 2, 2]]
        """
        s, new = self.shape, as_sizes(sizes)
        if len(new) < len(s):
            raise ShapeError("expand: fewer axes than the tensor has", expected=f"at least {len(s)}", found=new)
        k = len(new) - len(s)
        if any(n.__class__ is int and n == -1 for n in new[:k]):
            raise ShapeError("expand: -1 keeps an axis, but this axis is new", expected="a size", found=new)
        old = (1,) * k + s
        new = tuple(o if n.__class__ is int and n == -1 else n for o, n in zip(old, new, strict=True))
        return self.broadcast_to(new)

    def broadcast_to(self, shape: Sizes) -> Self:
        """Return self repeated to `shape`, with the axes aligned at the last.

        Raises ShapeError for sizes that differ and are not 1.

        >>> Tensor.ones(3, 1).broadcast_to((2, 3, 4)).shape
        (2, 3, 4)
        """
        new, old = check_sizes(as_sizes((shape,))), self.shape
        added = len(new) - len(old)
        kept = [k >= added and not may_differ(n, old[k - added]) for k, n in enumerate(new)]
        try:
            writes = new == old or all(k or not may_differ(n, 1) for k, n in zip(kept, new, strict=True))
            return shown(
                self,
                lambda u: graph.broadcast_to(u, new),
                lambda s: tuple(s[k - added] if kept[k] else 0 for k in range(len(new))),
                writes,
            )
        except IRError:
            raise ShapeError(
                "broadcast_to: sizes differ", expected=f"{self.shape} with size-1 axes enlarged", found=new
            ) from None

    def expand_as(self, other: TensorBase) -> Self:
        """Return self repeated to the shape of `other`. Raises ShapeError if self does not broadcast to it.

        >>> Tensor([1, 2]).expand_as(Tensor.zeros(2, 2)).tolist()
        [[1, 2], [1, 2]]
        """
        return self.expand(other.shape)

    # ---- order -------------------------------------------------------------------------------------------------------
    def permute(self, *dims: int | Sequence[int]) -> Self:
        """Return self with its axes reordered: axis k of the result is axis `dims[k]`.

        Raises AxisError unless each axis is named once.

        >>> Tensor.ones(2, 3, 4).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        order = unpacked(dims)
        axes = tuple(self._axis(d) for d in order)
        if sorted(axes) != list(range(self.ndim)):
            raise AxisError("permute needs each axis once", expected=f"{self.ndim} distinct axes", found=order)
        return _permuted(self, axes)

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """Return self with axes `dim0` and `dim1` exchanged. Raises AxisError for a missing axis.

        >>> Tensor.ones(2, 3, 4).transpose(0, 2).shape
        (4, 3, 2)
        """
        order = list(range(self.ndim))
        a, b = self._axis(dim0), self._axis(dim1)
        order[a], order[b] = b, a
        return _permuted(self, order)

    swapaxes = swapdims = transpose

    @property
    def T(self) -> Self:
        """The tensor with all axes in reverse order.

        >>> Tensor([[1, 2], [3, 4]]).T.tolist()
        [[1, 3], [2, 4]]
        """
        return _permuted(self, [*reversed(range(self.ndim))])

    @property
    def mT(self) -> Self:
        """The tensor with its last two axes exchanged. Raises ShapeError for fewer than two axes.

        >>> Tensor([[[1, 2], [3, 4]]]).mT.tolist()
        [[[1, 3], [2, 4]]]
        """
        if self.ndim < 2:
            raise ShapeError("mT needs a matrix", expected="at least 2 axes", found=f"shape {self.shape}")
        return self.transpose(-2, -1)

    def t(self) -> Self:
        """Return a matrix transposed; a vector or a scalar is unchanged. Raises ShapeError for more than two axes.

        >>> Tensor([[1, 2], [3, 4]]).t().tolist()
        [[1, 3], [2, 4]]
        """
        if self.ndim > 2:
            raise ShapeError("t() is for matrices", expected="at most 2 axes", found=f"shape {self.shape}")
        return self.T

    def movedim(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return self with axes moved from `source` to `destination`; the other axes keep their order.

        Raises AxisError unless both name equally many distinct axes.

        >>> Tensor.ones(2, 3, 4).movedim(0, -1).shape
        (3, 4, 2)
        """
        src = tuple(source) if isinstance(source, tuple | list) else (source,)
        dst = tuple(destination) if isinstance(destination, tuple | list) else (destination,)
        src, dst = tuple(self._axis(a) for a in src), tuple(self._axis(a) for a in dst)
        if len(src) != len(dst) or len(set(src)) != len(src) or len(set(dst)) != len(dst):
            raise AxisError("movedim needs equally many distinct axes on both sides", expected=src, found=dst)
        order = [i for i in range(self.ndim) if i not in src]
        for d, s in sorted(zip(dst, src, strict=True)):
            order.insert(d, s)
        return _permuted(self, order)

    moveaxis = movedim

    def flip(self, *dims: int | Sequence[int]) -> Self:
        """Return self with the elements in reverse order along `dims`.

        Raises AxisError for an axis that is missing or named twice.

        >>> Tensor([[1, 2], [3, 4]]).flip(1).tolist()
        [[2, 1], [4, 3]]
        """
        axes = self._axes(unpacked(dims))
        return self._wrap(graph.flip(self._uop, axes))

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Return self rotated by 90 degrees `k` times, from the first axis of `dims` toward the second.

        Raises AxisError unless `dims` names two distinct axes.

        >>> Tensor([[1, 2], [3, 4]]).rot90().tolist()
        [[2, 4], [1, 3]]
        """
        if len(dims) != 2 or self._axis(dims[0]) == self._axis(dims[1]):
            raise AxisError("rot90 needs two axes", expected="two distinct axes", found=tuple(dims))
        a, b = dims
        return [
            lambda: self._wrap(self._uop),
            lambda: self.flip(b).transpose(a, b),
            lambda: self.flip(a, b),
            lambda: self.transpose(a, b).flip(b),
        ][k % 4]()

    def roll(self, shifts: int | Sequence[int], dims: Axes = None) -> Self:
        """Return self shifted by `shifts` along axes `dims`; elements shifted past one end re-enter at the other.

        Without `dims` the flattened tensor is rolled. Raises ArgumentError unless each axis has a shift.

        >>> Tensor([1, 2, 3, 4]).roll(1, 0).tolist()
        [4, 1, 2, 3]
        """
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(self.shape)
        dims = dims if isinstance(dims, tuple | list) else (dims,)
        shifts = shifts if isinstance(shifts, tuple | list) else (shifts,)
        if len(dims) != len(shifts):
            raise ArgumentError("roll needs a shift for each axis", expected=len(dims), found=len(shifts))
        out: Any = self
        for d, by in zip(dims, (as_size(by, "shift") for by in shifts), strict=True):
            n, a = out.shape[(a := out._axis(d))], out._axis(d)
            if n.__class__ is not int or by.__class__ is not int:
                out = out._wrap(_rolled(out._uop, a, by))
            elif n and by % n:
                k = n - by % n
                out = out.narrow(a, k, n - k).cat(out.narrow(a, 0, k), dim=a)
        return self._wrap(out._uop)

    # ---- parts -------------------------------------------------------------------------------------------------------
    def narrow(self, dim: int, start: Size, length: Size) -> Self:
        """Return `length` elements of axis `dim` from index `start` on.

        Raises ShapeError for a part that leaves the axis.

        >>> Tensor([1, 2, 3, 4]).narrow(0, 1, 2).tolist()
        [2, 3]
        """
        a = self._axis(dim)
        n, first, size = self.shape[a], as_size(start, "start"), as_size(length, "length")
        if all(x.__class__ is int for x in (n, first, size)):
            first = first + n if first < 0 else first
            if first < 0 or size < 0 or first + size > n:
                raise ShapeError("narrow leaves the axis", expected=f"a part of {n} elements", found=(first, size))
        return _narrowed(self, a, first, size)

    def shrink(self, *bounds: Sequence[Size] | Sequence[Sequence[Size] | None] | None) -> Self:
        """Return the part of each axis from a first index to an end index, as a view.

        The bounds are one pair (first, end) for each axis, as arguments or in one tuple; None keeps an axis. Sizes may
        be symbolic. Raises ShapeError for pairs that leave an axis.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink(None, (1, 3)).tolist()
        [[2, 3], [5, 6]]
        """
        found = bounds[0] if len(bounds) == 1 and (self.ndim != 1 or _is_nested(bounds[0])) else bounds
        x: Any = self
        for axis, pair in enumerate(_one_per_axis("shrink", found, self.ndim)):
            if pair is None:
                continue
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ShapeError("shrink needs a pair for each axis", expected="(first, end) or None", found=pair)
            first, end, n = as_size(pair[0], "bound"), as_size(pair[1], "bound"), self.shape[axis]
            if not (at_most(0, first) and at_most(first, end) and at_most(end, n)):
                text = tuple(map(bounds_text, (first, end)))
                raise ShapeError(
                    f"shrink leaves axis {axis}", expected=f"0 <= first <= end <= {bounds_text(n)}", found=text
                )
            x = _narrowed(x, axis, first, end - first)
        return x

    def shrink_to(self, *sizes: Size | None | Sequence[Size | None]) -> Self:
        """Return the first `sizes[k]` elements of each axis k, as a view; None keeps an axis.

        Sizes may be symbolic. Raises ShapeError for larger sizes than those of self.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).shrink_to(1, 2).tolist()
        [[1, 2]]
        """
        wanted = _one_per_axis("shrink_to", unpacked(sizes), self.ndim)
        return self.shrink(tuple(None if n is None else (0, n) for n in wanted))

    def split(self, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Self, ...]:
        """Return parts along axis `dim`, as views: parts of one size (the last may be smaller), or of the sizes in a
        list.

        Raises ShapeError for sizes that do not add up, ArgumentError for one size below 1.

        >>> [part.shape for part in Tensor.ones(5, 2).split(2)]
        [(2, 2), (2, 2), (1, 2)]
        """
        a = self._axis(dim)
        n, k = self.shape[a], split_size_or_sections
        if isinstance(k, tuple | list):
            if not (at_most(total := sum(map(as_size, k)), n) and at_most(n, total)):
                raise ShapeError("split: the sizes do not add up", expected=n, found=tuple(k))
            sizes = [as_size(size) for size in k]
        else:
            k = as_int(k, "split size")
            if k < 1:
                raise ArgumentError("split: bad size", expected="at least 1", found=k)
            sizes = [min(k, n - i) for i in range(0, n, k)] or [0]
        out, start = [], 0
        for size in sizes:
            out.append(_narrowed(self, a, start, size))
            start += size
        return tuple(out)

    def chunk(self, chunks: int, dim: int = 0) -> tuple[Self, ...]:
        """Return at most `chunks` parts of equal size along axis `dim`, as views; the last may be smaller.

        Raises ArgumentError for less than 1.

        >>> [part.shape for part in Tensor.ones(5, 2).chunk(3)]
        [(2, 2), (2, 2), (1, 2)]
        """
        chunks = as_int(chunks, "chunks")
        if chunks < 1:
            raise ArgumentError("chunk: bad number of parts", expected="at least 1", found=chunks)
        n = self.shape[self._axis(dim)]
        if n.__class__ is int and n == 0:
            return self.split([0] * chunks, dim)  # an empty axis gives `chunks` empty parts
        return self.split(max(1, -(-n // chunks)), dim)

    def unbind(self, dim: int = 0) -> tuple[Self, ...]:
        """Return the slices along axis `dim`, without that axis, as views.

        >>> [part.tolist() for part in Tensor([[1, 2], [3, 4]]).unbind(1)]
        [[1, 3], [2, 4]]
        """
        return tuple(slices(self, self._axis(dim)))

    def __iter__(self) -> Iterator[Self]:
        if not self.shape:
            raise ShapeError("a tensor without axes has no rows", expected="at least 1 axis", found="shape ()")
        return slices(self, 0)

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """Return a diagonal of axes `dim1` and `dim2` as the last axis of the result; `offset` is column minus row.

        Raises AxisError for equal axes.

        >>> Tensor([[1, 2, 3], [4, 5, 6]]).diagonal(1).tolist()
        [2, 6]
        """
        a, b = self._axis(dim1), self._axis(dim2)
        if a == b:
            raise AxisError("diagonal needs two axes", expected="distinct axes", found=(dim1, dim2))
        x = self.permute(*(i for i in range(self.ndim) if i not in (a, b)), a, b)
        n, m, batch = x.shape[-2], x.shape[-1], x.shape[:-2]
        row, column = max(0, -offset), max(0, offset)
        k = max(0, min(n - row, m - column))

        def of(u: UOp) -> UOp:
            if k == 0:
                return shrink_axis(graph.reshape(u, (*batch, n * m)), len(batch), 0, 0)
            u = shrink(u, (0,) * len(batch) + (row, column), (*batch, k, k))
            # rows longer by one element put element (i, i) into column 0 of row i
            u = graph.reshape(u, (*batch, k * k))
            u = pad_invalid(u, (0,) * u.shape.__len__(), (*batch, k * (k + 1)))
            u = shrink_axis(graph.reshape(u, (*batch, k, k + 1)), len(batch) + 1, 0, 1)
            return graph.reshape(u, (*batch, k))

        return shown(x, of, lambda s: (*s[:-2], s[-2] + s[-1]))

    def unfold(self, dimension: int, size: int, step: int = 1) -> Self:
        """Return the windows of `size` elements, `step` apart, along an axis; the elements of a window are the last
        axis.

        Axis `dimension` gets the number of windows. Raises ArgumentError for a window that does not fit.

        >>> Tensor([1, 2, 3, 4, 5]).unfold(0, 3, 2).tolist()
        [[1, 2, 3], [3, 4, 5]]
        """
        a, size, step = self._axis(dimension), as_int(size, "size"), as_int(step, "step")
        n = self.shape[a]
        if not (0 < size and at_most(size, n)) or step < 1:
            expected = f"0 < size <= {bounds_text(n)} and step >= 1"
            raise ArgumentError("unfold: bad window", expected=expected, found=(size, step))
        if n.__class__ is not int:  # build the windows of the largest size and keep the leading ones
            u = self._wrap(graph.padded_to_max(self._uop, 0, (a,))).unfold(a, size, step)._uop
            return self._wrap(shrink_axis(u, a, 0, (n - size) // step + 1))
        x = self.movedim(a, -1)
        out = (n - size) // step + 1
        batch = x.shape[:-1]
        # repeating the axis and reading it in rows of n + 1 shifts each row by one more element
        reps = -(-size * (n + 1) // n)

        def of(u: UOp) -> UOp:
            u = graph.expand(graph.reshape(u, (*batch, 1, n)), (*batch, reps, n))
            u = shrink_axis(graph.reshape(u, (*batch, reps * n)), len(batch), 0, size * (n + 1))
            u = shrink_axis(graph.reshape(u, (*batch, size, n + 1)), len(batch) + 1, 0, (out - 1) * step + 1)
            u = strided(u, len(batch) + 1, step)
            return graph.permute(u, (*range(len(batch)), len(batch) + 1, len(batch)))

        def windows(u: UOp) -> UOp:  # each element is in at most one window
            """Return the windows of `unfold` as a view of `u` that can be written; they must not overlap."""
            u = shrink_axis(u, len(batch), 0, (out - 1) * step + size)
            if out > 1:
                u = pad_invalid(u, (0,) * (len(batch) + 1), (*batch, out * step))
                u = shrink_axis(graph.reshape(u, (*batch, out, step)), len(batch) + 1, 0, size)
            return graph.reshape(u, (*batch, out, size))

        for_write = windows if size <= step or out == 1 else False
        return shown(x, of, lambda s: (*s[:-1], s[-1] * step, s[-1]), for_write).movedim(-2, a)

    # ---- repeats and concatenation -----------------------------------------------------------------------------------
    def repeat(self, *repeats: Sizes) -> Self:
        """Return self repeated `repeats[k]` times along axis k; extra counts are for new leading axes.

        Raises ShapeError for fewer counts than axes.

        >>> Tensor([1, 2]).repeat(2, 2).tolist()
        [[1, 2, 1, 2], [1, 2, 1, 2]]
        """
        reps = as_sizes(repeats, "repeat")
        if len(reps) < self.ndim or not all(at_most(0, r) for r in reps):
            raise ShapeError("repeat needs a count for each axis", expected=f"at least {self.ndim}", found=reps)
        s = (1,) * (len(reps) - self.ndim) + self.shape
        u = graph.reshape(self._uop, tuple(x for n in s for x in (1, n)))
        u = graph.expand(u, tuple(x for r, n in zip(reps, s, strict=True) for x in (r, n)))
        return self._wrap(graph.reshape(u, tuple(r * n for r, n in zip(reps, s, strict=True))))

    def tile(self, *dims: int | Sequence[int]) -> Self:
        """Return self repeated as by `repeat`, where missing leading counts are 1.

        >>> Tensor([[1, 2], [3, 4]]).tile(2).tolist()
        [[1, 2, 1, 2], [3, 4, 3, 4]]
        """
        reps = as_sizes(dims, "repeat")
        return self.repeat(*(1,) * (self.ndim - len(reps)), *reps)

    def cat(
        self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor] | int, dim: int = 0, axis: int | None = None
    ) -> AnyTensor:
        """Return tensors concatenated along axis `dim`: `a.cat(b, c, dim=1)` or `Tensor.cat([a, b, c], dim=1)`.

        `axis` is NumPy's name of `dim`. Dtypes promote. Raises ShapeError for shapes that differ on another axis,
        ArgumentError for other objects.

        >>> Tensor.cat([Tensor([1, 2]), Tensor([3])]).tolist()
        [1, 2, 3]
        """
        ts, dim = tensors_and_axis("cat", self, others, dim if axis is None else axis)
        return ts[0]._wrap(join([t._uop for t in ts], ts[0]._axis(dim)))

    concat = concatenate = cat

    def stack(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor] | int, dim: int = 0) -> AnyTensor:
        """Return tensors of one shape concatenated along a new axis `dim`: `a.stack(b)` or `Tensor.stack([a, b])`.

        Dtypes promote. Raises ShapeError for different shapes, ArgumentError for other objects than Tensors.

        >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1).tolist()
        [[1, 3], [2, 4]]
        """
        ts, dim = tensors_and_axis("stack", self, others, dim)
        for t in ts:
            if t.shape != ts[0].shape:
                raise ShapeError("stack: shapes differ", expected=ts[0].shape, found=t.shape)
        a, s = ts[0]._axis(dim, ts[0].ndim + 1), ts[0].shape
        return ts[0]._wrap(join([graph.reshape(t._uop, (*s[:a], 1, *s[a:])) for t in ts], a))

    def meshgrid(
        self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor], indexing: str = "ij"
    ) -> tuple[AnyTensor, ...]:
        """Return the coordinates of a grid over vectors, one tensor for each vector: `Tensor.meshgrid(x, y)`.

        `indexing` is "ij" or "xy"; "xy" exchanges the first two axes. Raises ShapeError for matrices, ArgumentError for
        another `indexing`.

        >>> [t.tolist() for t in Tensor.meshgrid(Tensor([1, 2]), Tensor([5, 6]))]
        [[[1, 1], [2, 2]], [[5, 6], [5, 6]]]
        """
        ts, _ = tensors_and_axis("meshgrid", self, others, 0)
        if indexing not in ("ij", "xy"):
            raise ArgumentError("meshgrid: unknown indexing", expected="'ij' or 'xy'", found=repr(indexing))
        if any(t.ndim > 1 for t in ts):
            raise ShapeError("meshgrid needs vectors", expected="1 axis each", found=[t.shape for t in ts])
        ts = [t.reshape(t.numel()) for t in ts]
        order = [1, 0, *range(2, len(ts))] if indexing == "xy" and len(ts) > 1 else list(range(len(ts)))
        full = tuple(t.shape[0] for t in ts)
        out = [graph.expand(graph.on_axis(t._uop, i, len(ts)), full) for i, t in enumerate(ts)]
        return tuple(ts[0]._wrap(graph.permute(u, order)) for u in out)

    # ---- padding -----------------------------------------------------------------------------------------------------
    def pad_to(self, *sizes: Size | None | Sequence[Size | None]) -> Self:
        """Return self with zeros added at the end of each axis, up to `sizes`; None keeps an axis.

        Sizes may be symbolic. Raises ShapeError for smaller sizes than those of self.

        >>> Tensor([[1, 2], [3, 4]]).pad_to(2, 3).tolist()
        [[1, 2, 0], [3, 4, 0]]
        """
        wanted = _one_per_axis("pad_to", unpacked(sizes), self.ndim)
        shape = tuple(n if m is None else as_size(m) for m, n in zip(wanted, self.shape, strict=True))
        if not all(at_most(n, m) for m, n in zip(shape, self.shape, strict=True)):
            found = tuple(map(bounds_text, shape))
            raise ShapeError(
                "pad_to: a size is smaller than the axis", expected=f"sizes of at least {self.shape}", found=found
            )
        zero = False if self.dtype is dtypes.bool else 0
        return self._wrap(gradient.padded(self._uop, (0,) * self.ndim, check_sizes(shape), zero))

    def pad(
        self, pad: int | Sequence[Size] | Sequence[Sequence[Size] | None], mode: str = "constant", value: Number = 0
    ) -> Self:
        """Return self with elements added before and after its axes; negative widths crop.

        `pad` is one width for all ends; (before, after) of the last axis, then of the axis before it, and so on; or one
        (before, after) pair for each axis, first axis first. `mode` is constant (`value`), reflect, replicate or
        circular. Raises ShapeError for widths that do not fit, ArgumentError for another `mode`.

        >>> Tensor([1, 2]).pad((1, 2), value=9).tolist()
        [9, 1, 2, 9, 9]
        """
        widths = _widths(pad, self.ndim)
        if mode == "constant":
            return self._wrap(_pad_constant(self._uop, widths, 0 if value is None else value))
        if mode not in _PAD_MODES:
            raise ArgumentError("pad: unknown mode", expected="constant, reflect, replicate or circular", found=mode)
        out: Any = self
        for a, (before, after) in enumerate(widths):
            out = _pad_axis(out, a, before, after, mode)
        return self._wrap(out._uop)


# ---- parts of methods ------------------------------------------------------------------------------------------------
def _permuted(x: AnyTensor, order: Sequence[int]) -> AnyTensor:
    """Return the view of `x` whose axis k is axis `order[k]`."""
    return shown(x, lambda u: graph.permute(u, order), lambda s: tuple(s[i] for i in order))


def _narrowed(x: AnyTensor, axis: int, start: Any, length: Any) -> AnyTensor:
    """Return the view of `length` elements of one axis of `x` from `start` on."""
    return shown(x, lambda u: shrink_axis(u, axis, start, length), lambda s: s)


def _one_per_axis(name: str, given: Any, rank: int) -> tuple:
    """Return `given` as a tuple. Raises ShapeError, which names method `name`, unless it has `rank` items."""
    if not isinstance(given, tuple | list) or len(given) != rank:
        raise ShapeError(f"{name} needs one item for each axis", expected=f"{rank} items", found=given)
    return tuple(given)


def _is_nested(x: Any) -> bool:
    """Whether `x` is a list or tuple of one item that is None, a list or a tuple, such as one (first, end) pair."""
    return isinstance(x, tuple | list) and len(x) == 1 and (x[0] is None or isinstance(x[0], tuple | list))


def may_differ(n: Any, k: int) -> bool:
    """Whether the size `n` is not known to be `k`."""
    return n.__class__ is not int or n != k


def _infer(old: tuple, new: tuple) -> tuple:
    """Return the sizes `new` with -1 replaced to give as many elements as `old`. Raises ShapeError if no size does."""
    holes = [i for i, n in enumerate(new) if n.__class__ is int and n < 0]
    if len(holes) > 1 or new[holes[0]] != -1:
        raise ShapeError("reshape: one size may be -1, none may be negative", expected="at most one -1", found=new)
    left_of_old, given = list(old), []
    for n in (n for i, n in enumerate(new) if i != holes[0]):
        if n.__class__ is UOp and n in left_of_old:  # a symbolic size in both shapes cancels out
            left_of_old.remove(n)
        else:
            given.append(n)
    total, known = count(tuple(left_of_old)), count(tuple(given))
    if total.__class__ is int and known.__class__ is int:
        if known == 0 or total % known:
            raise ShapeError(
                "reshape changes the number of elements", expected=f"{total} elements, as {old} has", found=new
            )
        left: Any = total // known
    else:
        left = idx(total) // idx(known)
        left = left.arg[0] if left.op == "CONST" else left
    return (*new[: holes[0]], left, *new[holes[0] + 1 :])


def strided(u: UOp, axis: int, step: int) -> UOp:
    """Return every `step`-th element of one axis, from its first."""
    n = u.shape[axis]
    if step == 1:
        return u
    out = -(-n // step)
    before, after = u.shape[:axis], u.shape[axis + 1 :]
    if out * step != n:  # rows must be complete; the padding is not kept
        u = pad_invalid(u, (0,) * len(u.shape), (*before, out * step, *after))
    u = graph.reshape(u, (*before, out, step, *after))
    return graph.reshape(shrink_axis(u, axis + 1, 0, 1), (*before, out, *after))


def _rolled(u: UOp, axis: int, by: Any) -> UOp:
    """Return `u` shifted along an axis by `by` elements, if its size or `by` is symbolic.

    It is a part of two joined copies of `u`, at a remainder. Raises ShapeError for an axis that may be empty.
    """
    n = u.shape[axis]
    if not at_most(1, n):
        raise ShapeError("roll along an axis that may be empty", expected="a size of at least 1", found=bounds_text(n))
    return shrink_axis(join([u, u], axis), axis, build("MOD", idx(by) * -1, idx(n)), n)


def tensors_and_axis(name: str, first: Any, others: tuple, dim: Any) -> tuple[list[Any], int]:
    """Return (tensors, axis) of a call such as `a.cat(b)`, `Tensor.cat([a, b])` or `Tensor.cat([a, b], 1)`.

    `first` and `others` are its positional arguments, `dim` the axis if these have none. `name` is the method in
    messages. Raises ArgumentError for other objects than Tensors.
    """
    if isinstance(first, tuple | list):
        ts, dim = list(first), others[0] if others else dim
    else:
        ts = [first]
        for o in others:
            ts.extend(o if isinstance(o, tuple | list) else (o,))
    if not ts or not all(isinstance(t, TensorBase) for t in ts):
        raise ArgumentError(f"{name} needs tensors", expected="one tensor or more", found=repr(ts)[:80])
    return ts, dim


def _widths(pad: Any, rank: int) -> list[tuple[Any, Any]]:
    """Return (before, after) of each of `rank` axes from `pad`: an int for all, widths from the last axis on, or a pair
    for each axis. Raises ShapeError for another number of widths.
    """
    if isinstance(pad, int):
        return [(pad, pad)] * rank
    pad = tuple(pad)
    if pad and isinstance(pad[0], tuple | list):
        if len(pad) != rank or any(len(p) != 2 for p in pad):
            raise ShapeError("pad needs a pair for each axis", expected=f"{rank} pairs", found=pad)
        return [(as_size(a, "width"), as_size(b, "width")) for a, b in pad]
    if len(pad) % 2 or len(pad) > 2 * rank:
        raise ShapeError("pad: bad number of widths", expected=f"an even number, at most {2 * rank}", found=pad)
    pairs = [(as_size(pad[i], "width"), as_size(pad[i + 1], "width")) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


def _least(n: Any) -> int:
    """Return the least value of the size `n`, which may be symbolic."""
    return n if n.__class__ is int else min_max(n)[0]


def _pad_constant(u: UOp, widths: list[tuple[Any, Any]], value: Any) -> UOp:
    """Return `u` cropped by negative and padded with `value` by other widths. Raises ShapeError for too large crops."""
    cut = [(max(0, -b) if b.__class__ is int else 0, max(0, -a) if a.__class__ is int else 0) for b, a in widths]
    kept = tuple(n - x - y if x or y else n for n, (x, y) in zip(u.shape, cut, strict=True))
    if any(_least(n) < 0 for n in kept):
        raise ShapeError("pad crops more elements than an axis has", expected=f"at most {u.shape}", found=tuple(widths))
    if kept != u.shape:
        u = shrink(u, tuple(x for x, _ in cut), kept)
    grow = [tuple(w if w.__class__ is not int or w > 0 else 0 for w in pair) for pair in widths]
    if not all(at_most(0, w) for pair in grow for w in pair):
        expected, found = "widths of one sign", tuple(tuple(map(bounds_text, pair)) for pair in grow)
        raise ShapeError("pad: a symbolic width may be negative", expected=expected, found=found)
    shape = tuple(
        b + n + a if b.__class__ is not int or a.__class__ is not int or b or a else n
        for n, (b, a) in zip(u.shape, grow, strict=True)
    )
    if u.dtype is dtypes.bool:
        value = bool(value)
    return gradient.padded(u, tuple(b for b, _ in grow), shape, value)


def _reflected(x: Any, a: int, k: int, end: bool) -> Any:
    """Return `k` elements at the start of axis `a`, or at its `end`, without the edge itself, in reverse order."""
    n = x.shape[a]
    return x.narrow(a, n - 1 - k, k).flip(a) if end else x.narrow(a, 1, k).flip(a)


def _edge(x: Any, a: int, k: int, end: bool) -> Any:
    """Return the first element of axis `a`, or the last if `end`, repeated `k` times."""
    one = x.narrow(a, x.shape[a] - 1 if end else 0, 1)
    return one.expand(*(k if i == a else -1 for i in range(x.ndim)))


def _wrapped(x: Any, a: int, k: int, end: bool) -> Any:
    """Return the `k` elements that continue axis `a` periodically: its last ones, or its first ones if at its `end`."""
    return x.narrow(a, 0, k) if end else x.narrow(a, x.shape[a] - k, k)


_PAD_MODES = {"reflect": (_reflected, -1), "replicate": (_edge, None), "circular": (_wrapped, 0)}


def _pad_axis(x: Any, a: int, before: int, after: int, mode: str) -> Any:
    """Return `x` with axis `a` padded by `before` and `after` elements (negative: cropped) by `mode` reflect, replicate
    or circular, in PyTorch's order.

    circular pads after cropping; the others before. Raises ShapeError for widths beyond the elements to be repeated.
    """
    part, less = _PAD_MODES[mode]
    if mode == "circular":
        x, before, after = _cut(x, a, before, after), max(0, before), max(0, after)
    n = x.shape[a]
    if less is not None and max(before, after) > max(0, n + less):
        raise ShapeError(
            f"pad: {mode} needs more elements", expected=f"widths of at most {max(0, n + less)}", found=(before, after)
        )
    parts = [x]
    if before > 0:
        parts.insert(0, part(x, a, before, False))
    if after > 0:
        parts.append(part(x, a, after, True))
    return _cut(parts[0].cat(*parts[1:], dim=a) if len(parts) > 1 else x, a, before, after)


def _cut(x: Any, a: int, before: int, after: int) -> Any:
    """Return `x` cropped along axis `a` by the negative ones of the widths `before` and `after`."""
    start, stop = max(0, -before), x.shape[a] - max(0, -after)
    return x if start == 0 and stop == x.shape[a] else x.narrow(a, start, stop - start)


__all__ = ["MovementMixin", "tensors_and_axis", "strided"]

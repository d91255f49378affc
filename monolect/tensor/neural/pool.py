"""Methods for pooling over one, two or three axes: maxima and means of windows.

What it is for: the windows of the input are a view (`graphs.windows`), and a pool reduces this view in one kernel.
What it is not: it has no adaptive pools and no unpooling (`methods.windows`).

Invariant: outputs have PyTorch's shapes; there may be any number of axes before the pooled ones.
Source: names, defaults and shapes of torch.nn.functional.
"""

from __future__ import annotations

from math import prod
from typing import Any, Literal, Self, overload

from monolect.autograd import graph as g
from monolect.autograd.closed_forms import closed_alone, closed_form
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.graphs.windows import (
    Ints,
    OverlapAdd,
    as_ints,
    check_windows,
    leading_windows,
    overlap,
    pad_or_crop,
    refuse_symbolic,
    windows,
)
from monolect.ir.rewrite.normal import TRUE, within
from monolect.ir.uop import UOp, build, const, idx
from monolect.tensor.base import PerAxis, TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import computes_in_float32


def _ceil_extra(size: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """Return the number of elements that ceil_mode adds at the end of an axis of `size` so that a last, partial window
    fits.

    That window must start inside the input or the padding before it, not in the padding after it. Windows have `kernel`
    elements that are `dilation` apart and start `stride` apart; `padding` is that at either end.
    """
    out = -(-(size + 2 * padding - dilation * (kernel - 1) - 1) // stride) + 1
    if (out - 1) * stride >= size + padding:
        out -= 1
    return max(0, (out - 1) * stride + dilation * (kernel - 1) + 1 - (size + 2 * padding))


def _covered(size: Any, out: Any, kernel: int, stride: int, padding: int, include_pad: bool) -> list[int] | UOp:
    """Return how many elements each of the `out` windows of an axis of `size` covers, without elements that ceil_mode
    added, and without padding unless `include_pad`. Windows have `kernel` elements and start `stride` apart.

    For an axis of symbolic size, return a 1-d index node, or a list of one count if all windows cover the same number.
    """
    if size.__class__ is not int:
        if include_pad or not padding:
            return [kernel]
        first = g.iota(out) * stride - padding
        return build("MAX", (first + kernel) * -1, size * -1) * -1 - build("MAX", first, idx(0))
    low, high = (-padding, size + padding) if include_pad else (0, size)
    return [min(j * stride - padding + kernel, high) - max(j * stride - padding, low) for j in range(out)]


def _reciprocal_count(counts: list[list[int] | UOp], dtype: DType) -> UOp | float:
    """Return 1 / the number of elements of each window: a float if all windows have the same number, else a node.

    `counts` holds the result of `_covered` for each axis; the node has the shape of the outputs.
    """
    uniform = [c[0] for c in counts if isinstance(c, list) and len(set(c)) == 1]
    if len(uniform) == len(counts):
        return 1.0 / prod(uniform)
    acc: UOp | None = None
    for axis, c in enumerate(counts):
        if isinstance(c, UOp):
            node = g.on_axis(g.cast(c, dtype), axis, len(counts))
            acc = node if acc is None else g.e("MUL", acc, node)
            continue
        # Only a few windows at either end differ from those in the middle, so a chain of WHEREs over them is short.
        i = g.iota(len(c), dtypes.int32, axis, len(counts))
        common = max(set(c), key=c.count)
        node = const(float(common), dtype)
        for j, v in enumerate(c):
            if v != common:
                node = g.where(g.e("CMPEQ", i, j), const(float(v), dtype), node)
        acc = node if acc is None else g.e("MUL", acc, node)
    assert acc is not None
    return build("RECIP", acc)


def _first_maxima(view: UOp, y: UOp, inside: UOp) -> UOp:
    """Return for each window of `view`, (..., *outputs, *kernel), the row-major int32 index in the window of its first
    element that equals the maximum `y`, or is nan, and is `inside`.
    """
    n, kernel = len(view.shape) - len(y.shape), view.shape[len(y.shape) :]
    last = prod(kernel) - 1
    top = build("OR", g.e("CMPEQ", view, g.reshape(y, (*y.shape, *(1,) * n))), build("CMPNE", view, view))
    from_end = g.e("SUB", last, _window_numbers(kernel, len(view.shape)))
    found = g.where(build("AND", top, inside), from_end, 0)
    return g.e("SUB", last, g.reduce(found, "MAX", range(len(y.shape), len(view.shape)), keep=False))


def _window_numbers(kernel: Ints, rank: int) -> UOp:
    """Return the row-major numbers of the elements of a window: int32, (1, ..., 1, *kernel), with `rank` axes."""
    return g.reshape(g.iota(prod(kernel), dtypes.int32), (*(1,) * (rank - len(kernel)), *kernel))


def _inside(view: UOp, sizes: tuple[Any, ...], kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> UOp:
    """Return a bool node: true where a window of `view`, (..., *outputs, *kernel), holds an element of the input, whose
    last axes have `sizes`, not padding. The other arguments have an int for each of these axes.
    """
    rank, n, out = len(view.shape), len(kernel), TRUE
    for a, (size, k, s, p, r) in enumerate(zip(sizes, kernel, stride, padding, dilation, strict=True)):
        outs = view.shape[rank - 2 * n + a]
        if p or (outs.__class__ is int and size.__class__ is int and (outs - 1) * s + (k - 1) * r >= size):
            window, element = (g.iota(m, axis=rank - d * n + a, rank=rank) for m, d in ((outs, 2), (k, 1)))
            out = build("AND", out, within(g.e("ADD", window * s, element * r), p, size + p))
    return out


def _element_numbers(index: UOp, sizes: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> UOp:
    """Return the row-major int64 number in the axes of `sizes` of the element number `index` of each window.

    `index` has the shape (..., *outputs); the other arguments have an int for each of its last axes.
    """
    rank, n = len(index.shape), len(sizes)
    index, total, inner = g.cast(index, dtypes.int64), const(0, dtypes.int64), prod(kernel)
    for a, (size, k, s, p, r) in enumerate(zip(sizes, kernel, stride, padding, dilation, strict=True)):
        inner //= k
        element = g.e("MOD", g.e("IDIV", index, inner), k)
        window = g.iota(index.shape[rank - n + a], dtypes.int64, rank - n + a, rank)
        at = g.e("ADD", g.e("ADD", g.e("MUL", window, s), g.e("MUL", element, r)), -p)
        total = g.e("ADD", g.e("MUL", total, size), at)
    return total


def _scatter_to_maxima(d: UOp, index: UOp, overlap_add: OverlapAdd) -> UOp:
    """Return the gradient of the input: `d` of each window is added to the element number `index` of the window.

    `overlap_add` is the OverlapAdd for the shape of the input and the windows of the pooling.
    """
    rank = overlap_add.head + 2 * overlap_add.n

    def term(at: Ints) -> UOp:
        own: UOp | None = None
        for a, (t, s, k) in enumerate(zip(at, overlap_add.stride, overlap_add.kernel, strict=True)):
            here = g.e("ADD", g.iota(s, dtypes.int32, overlap_add.head + 2 * a + 1, rank), s * t)
            own = here if own is None else g.e("ADD", g.e("MUL", own, k), here)
        assert own is not None
        is_maximum = build("AND", overlap_add.covered(at), build("CMPEQ", own, overlap_add.window_values(index, at)))
        return g.where(is_maximum, overlap_add.window_values(d, at), 0.0)

    return overlap_add.total(term)


@guard_methods
class PoolMixin(TensorBase):
    """Methods of Tensor for pooling. Every method returns a lazy tensor; windows are views, not copies."""

    __slots__ = ()

    def _pooled(
        self, n: int, name: str, sizes: tuple[Any, Any, Any, Any], ceil_mode: bool, fill: Any
    ) -> tuple[UOp, UOp, tuple[Ints, Ints, Ints, Ints]]:
        """Return (windows, padded, sizes): the windows over the last n axes, (..., *outputs, *kernel), the padded input
        that they are a view of, and (kernel, stride, padding, dilation) as tuples of n ints.

        With `ceil_mode` a last window may extend past the end, which is padded for it.

        `sizes`: these four as the user gave them; a stride of None is the kernel. `fill`: value of the padding. `name`:
        the method in messages. Raises ShapeError for fewer than n axes or a window larger than the padded input,
        ArgumentError for sizes that are no ints and for padding above half of the kernel.
        """
        x = self._uop
        if len(x.shape) < n:
            raise ShapeError(f"{name}: rank of the input", expected=f"at least {n} axes", found=x.shape)
        kernel = as_ints(sizes[0], n, f"{name}: kernel_size", 1)
        stride = kernel if sizes[1] is None else as_ints(sizes[1], n, f"{name}: stride", 1)
        padding, dilation = as_ints(sizes[2], n, f"{name}: padding", 0), as_ints(sizes[3], n, f"{name}: dilation", 1)
        if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
            raise ArgumentError(f"{name}: padding", expected=f"at most half of kernel {kernel}", found=padding)
        after = padding
        if ceil_mode:
            spatial = x.shape[len(x.shape) - n :]
            refuse_symbolic(spatial, f"{name}: ceil_mode", "ceil_mode=False, or int sizes")
            extra = (_ceil_extra(*a) for a in zip(spatial, kernel, stride, padding, dilation, strict=True))
            after = tuple(p + e for p, e in zip(padding, extra, strict=True))
        axes = range(len(x.shape) - n, len(x.shape))
        sizes = tuple(x.shape[i] + p + e for i, p, e in zip(axes, padding, after, strict=True))
        outs = check_windows(sizes, kernel, stride, dilation, name)
        padded = pad_or_crop(g.padded_to_max(x, fill, axes), padding, after, fill)
        view = leading_windows(windows(padded, kernel, stride, dilation), axes, outs)
        return view, padded, (kernel, stride, padding, dilation)

    def _max_pool(
        self, n: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool, return_indices: bool
    ) -> Self | tuple[Self, Self]:
        """Return the maximum of each window over the last n axes; the first of equal elements gets the gradient.

        `kernel`, `stride`, `padding` and `dilation` are an int or n ints; a stride of None is the kernel. With
        `ceil_mode` a last window may extend past the end. With `return_indices` the result is (maxima, their row-major
        numbers in the last n axes).
        """
        low = False if self.dtype is dtypes.bool else self.dtype.min
        view, x, sizes = self._pooled(n, f"max_pool{n}d", (kernel, stride, padding, dilation), ceil_mode, low)
        k, s, _, r = sizes
        y = g.reduce(view, "MAX", range(len(view.shape) - n, len(view.shape)), keep=False)
        own = self._uop.shape[len(self._uop.shape) - n :]
        if return_indices:
            refuse_symbolic(own, f"max_pool{n}d: return_indices", "return_indices=False, or int sizes")
            numbers = self._wrap(_element_numbers(_first_maxima(view, y, _inside(view, own, *sizes)), own, *sizes))
            values: Any = self._max_pool(n, kernel, stride, padding, dilation, ceil_mode, False)
            return values, numbers
        if not y.dtype.is_float:
            return self._wrap(y)

        def gradient_by_elements(d: UOp, y: UOp, x: UOp) -> tuple[UOp]:
            view = windows(x, k, s, r)
            index = build("CONTIGUOUS", _first_maxima(view, y, _inside(view, own, *sizes)))
            return (_scatter_to_maxima(d, index, OverlapAdd(x.shape, k, s)),)

        def gradient_by_windows(d: UOp, y: UOp, view: UOp) -> tuple[UOp]:
            index, d = (
                g.reshape(u, (*y.shape, *(1,) * n)) for u in (_first_maxima(view, y, _inside(view, own, *sizes)), d)
            )
            return (g.where(build("CMPEQ", _window_numbers(k, len(view.shape)), index), d, 0.0),)

        is_overlapping = overlap(y.shape[len(y.shape) - n :], k, s, r)
        return self._wrap(
            closed_alone(y, (x,), gradient_by_elements)
            if is_overlapping
            else closed_alone(y, (view,), gradient_by_windows)
        )

    @computes_in_float32
    def _avg_pool(
        self, n: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, include_pad: bool, divisor: int | None
    ) -> Self:
        """Return the mean of each window over the last n axes.

        `kernel`, `stride` and `padding` are an int or n ints; a stride of None is the kernel. With `ceil_mode` a last
        window may extend past the end. Padding counts as zeros if `include_pad`. `divisor`, unless None, replaces the
        number of elements. Raises DTypeError for integers, ArgumentError for a divisor of 0.
        """
        self._check_float(f"avg_pool{n}d")
        view, x, (k, s, p, r) = self._pooled(n, f"avg_pool{n}d", (kernel, stride, padding, 1), ceil_mode, 0)
        rank = len(view.shape)
        total = g.reduce(view, "ADD", range(rank - n, rank), keep=False)

        def derivative(d: UOp, y: UOp, x: UOp) -> tuple[UOp]:
            overlap_add = OverlapAdd(x.shape, k, s)
            return (
                overlap_add.total(lambda at: g.where(overlap_add.covered(at), overlap_add.window_values(d, at), 0.0)),
            )

        if overlap(total.shape[len(total.shape) - n :], k, s, r):
            total = closed_form(total, (x,), derivative)
        if divisor is not None:
            if not divisor:
                raise ArgumentError(f"avg_pool{n}d: divisor_override", expected="not 0", found=divisor)
            return self._wrap(g.e("MUL", total, 1.0 / divisor))
        spatial, outs = self._uop.shape[len(self._uop.shape) - n :], total.shape[len(total.shape) - n :]
        counts = [_covered(*a, include_pad) for a in zip(spatial, outs, k, s, p, strict=True)]
        return self._wrap(g.e("MUL", total, _reciprocal_count(counts, total.dtype)))

    @overload
    def max_pool1d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        return_indices: Literal[False] = False,
    ) -> Self: ...
    @overload
    def max_pool1d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        *,
        return_indices: Literal[True],
    ) -> tuple[Self, Self]: ...
    def max_pool1d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Self | tuple[Self, Self]:
        """Return the largest element of each window over the last axis: (..., L) -> (..., L').

        The stride is the kernel size by default. Padding is never the maximum. With `ceil_mode` a last window may
        extend past the end if it starts inside. With `return_indices` also return the numbers of the maxima in the last
        axis, int64. Raises ShapeError for a window larger than the padded input, ArgumentError for padding above half
        of the kernel.

        >>> Tensor([[1, 5, 2, 3]]).max_pool1d(2).tolist()
        [[5, 3]]
        """
        return self._max_pool(1, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    @overload
    def max_pool2d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        return_indices: Literal[False] = False,
    ) -> Self: ...
    @overload
    def max_pool2d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        *,
        return_indices: Literal[True],
    ) -> tuple[Self, Self]: ...
    def max_pool2d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Self | tuple[Self, Self]:
        """Return the largest element of each window over the last two axes: (..., H, W) -> (..., H', W').

        `kernel_size`, `stride`, `padding` and `dilation` are an int or one for each axis; the stride is the kernel size
        by default. Padding is never the maximum. With `ceil_mode` a last window may
        extend past the end if it starts inside. The first of equal elements gets the gradient. With
        `return_indices` also return the row-major numbers of the maxima in the pooled axes, int64. Raises ShapeError
        for a window larger than the padded input, ArgumentError for padding above half of the kernel.

        >>> Tensor([[1, 5], [2, 3]]).max_pool2d(2).tolist()
        [[5]]
        """
        return self._max_pool(2, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    @overload
    def max_pool3d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        return_indices: Literal[False] = False,
    ) -> Self: ...
    @overload
    def max_pool3d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        *,
        return_indices: Literal[True],
    ) -> tuple[Self, Self]: ...
    def max_pool3d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Self | tuple[Self, Self]:
        """Return the largest element of each window over the last three axes: (..., D, H, W) -> (..., D', H', W').

        Sizes are an int or one for each axis; the stride is the kernel size by default. Padding is never the maximum.
        With `ceil_mode` a last window may extend past the end if it starts inside. With `return_indices` also return
        the row-major numbers of the maxima in the pooled axes, int64. Raises ShapeError for a window larger than the
        padded input, ArgumentError for padding above half of the kernel.

        >>> Tensor([[[[1, 5], [2, 3]]]]).max_pool3d((1, 2, 2)).tolist()
        [[[[5]]]]
        """
        return self._max_pool(3, kernel_size, stride, padding, dilation, ceil_mode, return_indices)

    def avg_pool1d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """Return the mean of each window over the last axis: (..., L) -> (..., L').

        The stride is the kernel size by default. Padding counts as zeros unless `count_include_pad` is False. With
        `ceil_mode` a last window may extend past the end. `divisor_override` replaces the number of elements as the
        divisor. Raises DTypeError for integers, ShapeError or ArgumentError for sizes that do not fit.

        >>> Tensor([[1.0, 5.0, 2.0, 4.0]]).avg_pool1d(2).tolist()
        [[3.0, 3.0]]
        """
        return self._avg_pool(1, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def avg_pool2d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """Return the mean of each window over the last two axes: (..., H, W) -> (..., H', W').

        Padding counts as zeros unless `count_include_pad` is False. Elements that `ceil_mode` adds never count.
        `divisor_override` replaces the number of elements as the divisor. Sizes are an int or one for each axis; the
        stride is the kernel size by default. Raises DTypeError for integers, ShapeError for a window larger than the
        padded input, ArgumentError for padding above half of the kernel or a divisor of 0.

        >>> Tensor([[1.0, 5.0], [2.0, 4.0]]).avg_pool2d(2).tolist()
        [[3.0]]
        """
        return self._avg_pool(2, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)

    def avg_pool3d(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """Return the mean of each window over the last three axes: (..., D, H, W) -> (..., D', H', W').

        Sizes are an int or one for each axis; the stride is the kernel size by default. Padding counts as zeros unless
        `count_include_pad` is False. With `ceil_mode` a last window may extend past the end. `divisor_override`
        replaces the number of elements as the divisor. Raises DTypeError for integers, ShapeError or ArgumentError for
        sizes that do not fit.

        >>> Tensor([[[[1.0, 5.0], [2.0, 4.0]]]]).avg_pool3d((1, 2, 2)).tolist()
        [[[[3.0]]]]
        """
        return self._avg_pool(3, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


__all__ = ["PoolMixin"]

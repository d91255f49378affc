"""Build sliding windows as views, which convolution and pooling read.

What it is for: `windows` puts the elements of each window along new axes by movement ops only. So nothing is copied,
and gradients follow from the movement ops.
What it is not: it pads with no value; callers pad first. Sizes are ints: for an axis of symbolic size, callers take the
windows of its largest size and keep the leading ones.

An axis has one of two forms. If windows do not overlap (stride >= kernel, dilation 1), the axis is reshaped to (window,
element). Otherwise the axis is repeated once for each kernel element, into rows of pitch P, and reshaped to rows of
pitch P + dilation: each row starts `dilation` elements later than the row above. Elements outside of the source are
cropped afterwards. All axes are repeated by one EXPAND, together with the axes that the caller broadcasts, so the
gradient of the view is one sum.

Invariant: element (..., o, k) of an axis is element o * stride + k * dilation of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

from monolect.autograd import graph as g
from monolect.base.dtype import accumulator
from monolect.base.errors import ArgumentError, ShapeError
from monolect.ir.bounds import at_most, bounds_text
from monolect.ir.rewrite.normal import TRUE
from monolect.ir.rewrite.padding import inside
from monolect.ir.uop import UOp, build

Ints = tuple[int, ...]
MAX_TERMS = 16  # windows that cover an element; up to it, the sum over them is one expression


def as_ints(value: Any, n: int, what: str, least: int) -> Ints:
    """Return `value`, an int or one int for each of `n` axes, as a tuple of `n` ints; one int is repeated.

    Raises ArgumentError, which names the argument `what`, for other values and for ints below `least`.
    """
    out = (value,) * n if isinstance(value, int) else tuple(value) if isinstance(value, tuple | list) else ()
    if len(out) == 1:
        out *= n
    if len(out) != n or not all(isinstance(v, int) and v >= least for v in out):
        raise ArgumentError(what, expected=f"an int or {n} ints of at least {least}", found=repr(value))
    return out


def count_windows(size: Any, kernel: int, stride: int, dilation: int) -> Any:
    """Return the number of windows of `kernel` elements that fit on an axis of `size`; 0 or less if none does.

    `stride` is the distance of the starts of two windows, `dilation` that of two elements of a window. For a symbolic
    `size` the result is an index node.
    """
    return (size - dilation * (kernel - 1) - 1) // stride + 1


class _Axis(NamedTuple):
    """The sizes and offsets of the movement ops by which `windows` turns one axis into (window, element) axes.

    `_axis` computes them for one axis, and `windows` builds one view from those of all axes.
    """

    repeats: int  # copies of the source, each in a row of its own
    offset: int  # index of the first source element in its row
    pitch: int  # elements of a row
    flat: int  # elements of all rows, padded to be reshaped to `rows`
    rows: Ints  # shape of the second form of the rows
    first: Ints  # offset of the part of `rows` that is kept
    kept: Ints  # sizes of that part
    cut: Ints  # `kept`, with the stride as an axis of its own
    result: Ints  # sizes kept of `cut`
    swap: bool  # whether the kernel axis comes before the window axis


def _axis(size: int, kernel: int, stride: int, dilation: int) -> _Axis:
    """Return the sizes and offsets by which `windows` turns an axis of `size` elements into windows of `kernel`
    elements.

    Windows start `stride` elements apart; the elements of a window are `dilation` apart.
    """
    out = count_windows(size, kernel, stride, dilation)
    if kernel == 1 or (stride >= kernel and dilation == 1):
        step = (out, stride)
        return _Axis(1, 0, out * stride, out * stride, step, (0, 0), (out, kernel), (out, kernel), (out, kernel), False)
    # The source starts at offset `lead` of its row, so that no row of the gradient's view reaches into the row above.
    lead = (kernel - 1) * dilation
    pitch = lead + max(size, out * stride - dilation)
    wide = pitch + dilation
    kept, cut = (kernel, out * stride), (kernel, out, stride)
    return _Axis(kernel, lead, pitch, kernel * wide, (kernel, wide), (0, lead), kept, cut, (kernel, out, 1), True)


def windows(x: UOp, kernel: Ints, stride: Ints, dilation: Ints, lead: Sequence[int] | None = None) -> UOp:
    """Return the windows of the last axes of `x` as a view: (..., *spatial) -> (*lead, *outputs, *kernel).

    `kernel`, `stride` (between windows) and `dilation` (between the elements of a window) have an int for each of these
    axes. With `lead` the other axes are first broadcast to it; None leaves them as they are. Every axis must hold at
    least one window.
    """
    n = len(kernel)
    own = x.shape[: len(x.shape) - n]
    head: Ints = tuple(own if lead is None else lead)
    axes = [_axis(*a) for a in zip(x.shape[len(own) :], kernel, stride, dilation, strict=True)]
    zeros = (0,) * len(own)
    sizes = tuple(min(s, a.pitch) for s, a in zip(x.shape[len(own) :], axes, strict=True))
    x = g.shrink(x, (0,) * len(x.shape), (*own, *sizes))
    x = g.pad_invalid(x, (*zeros, *(a.offset for a in axes)), (*own, *(a.pitch for a in axes)))
    x = g.reshape(x, (*own, *(s for a in axes for s in (1, a.pitch))))
    x = g.expand(x, (*head, *(s for a in axes for s in (a.repeats, a.pitch))))
    x = g.reshape(x, (*head, *(a.repeats * a.pitch for a in axes)))
    x = g.pad_invalid(x, (0,) * len(x.shape), (*head, *(a.flat for a in axes)))
    x = g.reshape(x, (*head, *(s for a in axes for s in a.rows)))
    x = g.shrink(
        x, ((0,) * len(head) + tuple(s for a in axes for s in a.first)), (*head, *(s for a in axes for s in a.kept))
    )
    x = g.reshape(x, (*head, *(s for a in axes for s in a.cut)))
    x = g.shrink(x, (0,) * len(x.shape), (*head, *(s for a in axes for s in a.result)))
    x = g.reshape(x, (*head, *(s for a in axes for s in a.result[:2])))
    first = len(head)
    outs = tuple(first + 2 * i + a.swap for i, a in enumerate(axes))
    inner = tuple(first + 2 * i + 1 - a.swap for i, a in enumerate(axes))
    return g.permute(x, (*range(first), *outs, *inner))


def overlap(outs: Sequence[Any], kernel: Ints, stride: Ints, dilation: Ints) -> bool:
    """Whether windows overlap and OverlapAdd applies: dilation is 1, the numbers of windows `outs` are ints, and more
    than one but at most MAX_TERMS windows cover an element.

    `kernel`, `stride` and `dilation` have an int for each axis.
    """
    reach = prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    return 1 < reach <= MAX_TERMS and all(r == 1 for r in dilation) and all(o.__class__ is int for o in outs)


class OverlapAdd:
    """Add window values to the elements of `shape` that the windows cover: the gradient of overlapping windows.

    On one axis, element s * j + r is element s * t + r of window j - t, for each t. So the sum is one term for each t,
    in which adjacent elements are adjacent in memory; its index `at` is the tuple of the t of all axes. A gradient
    through the view of all windows would instead be read element by element, with a modulo for each index. Terms have
    the shape (*lead, J, s, ...) with a pair (J, s) for each axis.
    """

    def __init__(self, shape: tuple[Any, ...], kernel: Ints, stride: Ints):
        self.kernel, self.stride, self.shape = kernel, stride, shape
        self.n, self.head = len(kernel), len(shape) - len(kernel)
        self.reach = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
        outs = [count_windows(m, k, s, 1) for m, k, s in zip(shape[self.head :], kernel, stride, strict=True)]
        self.counts = [o + t - 1 for o, t in zip(outs, self.reach, strict=True)]
        self.sizes = [j * s for j, s in zip(self.counts, stride, strict=True)]
        self.split_shape = (*shape[: self.head], *(v for js in zip(self.counts, stride, strict=True) for v in js))

    def total(self, term: Callable[[Ints], UOp]) -> UOp:
        """Return the sum of term((t, ...)) over all t, in the shape `shape` of the elements.

        `term` is called once for each tuple of one t for each axis, and returns the node of that term.
        """
        terms = [term(at) for at in product(*map(range, self.reach))]
        wide = accumulator(terms[0].dtype)
        y = g.cast(reduce(lambda a, b: g.e("ADD", a, b), [g.cast(x, wide) for x in terms]), terms[0].dtype)
        y = g.reshape(g.broadcast_to(y, self.split_shape), (*self.shape[: self.head], *self.sizes))
        return pad_or_crop(
            y, (0,) * self.n, tuple(m - v for m, v in zip(self.shape[self.head :], self.sizes, strict=True))
        )

    def window_values(self, y: UOp, at: Ints) -> UOp:
        """Return the window values `y`, shape (*lead, *outs), shifted by `at` to (*lead, J, 1, ...): index j holds the
        value of window j - t, or 0 if there is no such window. `at`: the t of each axis.
        """
        split_shape = [v for m in y.shape[self.head :] for v in (m, 1)]
        first = (*(0,) * self.head, *(v for t in at for v in (t, 0)))
        y = g.reshape(y, (*y.shape[: self.head], *split_shape))
        return g.pad(y, first, (*y.shape[: self.head], *(v for j in self.counts for v in (j, 1))))

    def covered(self, at: Ints) -> UOp:
        """Return a bool node in the shape of terms: true where s * t + r is below the kernel size.

        `at`: the t of each axis.
        """
        rank, out = self.head + 2 * self.n, TRUE
        for a, (t, s, k) in enumerate(zip(at, self.stride, self.kernel, strict=True)):
            out = build("AND", out, inside(0, min(s, k - t * s), s, self.head + 2 * a + 1, rank))
        return out


def pad_or_crop(x: UOp, before: Ints, after: Ints, fill: Any = 0) -> UOp:
    """Pad the last axes of `x` with `fill`, by `before` and `after` elements at their ends; negative amounts crop."""
    head = len(x.shape) - len(before)
    lead = x.shape[:head]
    offsets = tuple(max(-b, 0) for b in before)
    sizes = tuple(n - o - max(-a, 0) for n, o, a in zip(x.shape[head:], offsets, after, strict=True))
    x = g.shrink(x, ((0,) * head + offsets), (*lead, *sizes))
    grown = tuple(n + max(b, 0) + max(a, 0) for n, b, a in zip(sizes, before, after, strict=True))
    return g.pad(x, ((0,) * head + tuple(max(b, 0) for b in before)), (*lead, *grown), fill)


def check_windows(sizes: tuple, kernel: Ints, stride: Ints, dilation: Ints, name: str) -> tuple[Any, ...]:
    """Return the number of windows on each axis; `sizes` are the sizes of the axes with their padding.

    Raises ShapeError, which names the method `name`, if an axis may have no window for some value of a symbolic size.
    """
    out = tuple(count_windows(*a) for a in zip(sizes, kernel, stride, dilation, strict=True))
    if not all(at_most(1, o) for o in out):
        reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        found = tuple(map(bounds_text, sizes)) if any(n.__class__ is not int for n in sizes) else sizes
        raise ShapeError(
            f"{name}: the window is larger than the padded input", expected=f"at least {reach}", found=found
        )
    return out


def refuse_symbolic(sizes: tuple, what: str, expected: str) -> None:
    """Raise ShapeError if one of `sizes` is symbolic. The message names the operation `what`; `expected` tells the user
    what to do instead.
    """
    if any(n.__class__ is not int for n in sizes):
        found = tuple(map(bounds_text, sizes))
        raise ShapeError(f"{what} over an axis of symbolic size", expected=expected, found=found)


def leading_windows(x: UOp, axes: Sequence[int], counts: Sequence[Any]) -> UOp:
    """Return the first `counts` windows of `x` along each of `axes`, which were built for the largest symbolic size."""
    shape = list(x.shape)
    for a, n in zip(axes, counts, strict=True):
        shape[a] = n
    return g.leading(x, tuple(shape))


__all__ = [
    "Ints",
    "OverlapAdd",
    "as_ints",
    "check_windows",
    "count_windows",
    "leading_windows",
    "overlap",
    "pad_or_crop",
    "refuse_symbolic",
    "windows",
]

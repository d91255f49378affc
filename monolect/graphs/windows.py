"""Sliding windows as views: what convolution and pooling read.

What it is for: `windows` lays the elements that each window covers along new axes, with movement ops alone, so that no
copy is made and gradients come out of the movement ops.
What it is not: it pads nothing with a value; callers pad first. Sizes are ints: of an axis of symbolic size callers
take the windows of the longest it may be, and keep the first of them.

Two forms an axis. Where windows do not overlap (stride >= kernel, dilation 1) the axis is cut into (window, element).
Otherwise it is repeated once for each element of the kernel, into rows of pitch P, and read again in rows of pitch
P + dilation: each row starts `dilation` elements later than the one above it. What is read outside the source in
between is cut off again. All axes are repeated by one EXPAND, together with axes the caller wants to broadcast, so the
gradient of the whole view is one sum.

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
from monolect.ir.uop import UOp, build

Ints = tuple[int, ...]
MOST_TERMS = 16  # windows that hold an element, up to which a sum over them is one expression


def as_ints(value: Any, n: int, what: str, least: int) -> Ints:
    """`value`, an int or one for each of `n` axes, as a tuple. Raises ArgumentError below `least`."""
    out = (value,) * n if isinstance(value, int) else tuple(value) if isinstance(value, tuple | list) else ()
    if len(out) == 1:
        out *= n
    if len(out) != n or not all(isinstance(v, int) and v >= least for v in out):
        raise ArgumentError(what, expected=f"an int or {n} ints of at least {least}", found=repr(value))
    return out


def count_windows(size: Any, kernel: int, stride: int, dilation: int) -> Any:
    """How many windows fit on an axis; 0 or less when none does."""
    return (size - dilation * (kernel - 1) - 1) // stride + 1


class _Axis(NamedTuple):
    """One axis: where the source goes (offset in a row of `pitch`), and how rows are cut into windows."""

    repeats: int  # rows
    offset: int
    pitch: int
    flat: int  # elements before they are cut into `rows`
    rows: Ints
    first: Ints  # what is kept of the rows
    kept: Ints
    cut: Ints  # kept, with a stride taken apart
    result: Ints  # the sizes that stay, of `cut`
    swap: bool  # whether the kernel stands before the windows


def _axis(size: int, kernel: int, stride: int, dilation: int) -> _Axis:
    out = count_windows(size, kernel, stride, dilation)
    if kernel == 1 or (stride >= kernel and dilation == 1):
        step = (out, stride)
        return _Axis(1, 0, out * stride, out * stride, step, (0, 0), (out, kernel), (out, kernel), (out, kernel), False)
    # The source starts `lead` into its row: then no row of the gradient's view reaches back into the row above it.
    lead = (kernel - 1) * dilation
    pitch = lead + max(size, out * stride - dilation)
    wide = pitch + dilation
    kept, cut = (kernel, out * stride), (kernel, out, stride)
    return _Axis(kernel, lead, pitch, kernel * wide, (kernel, wide), (0, lead), kept, cut, (kernel, out, 1), True)


def windows(x: UOp, kernel: Ints, stride: Ints, dilation: Ints, lead: Sequence[int] | None = None) -> UOp:
    """The windows of the last axes of `x`: (*lead, *spatial) -> (*lead, *outputs, *kernel).

    With `lead` the other axes are broadcast to it first. Every axis must hold at least one window.
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
    """Whether each element is in several windows, in few, and there is a known number of all."""
    reach = prod(-(-k // s) for k, s in zip(kernel, stride, strict=True))
    return 1 < reach <= MOST_TERMS and all(r == 1 for r in dilation) and all(o.__class__ is int for o in outs)


class Back:
    """The way back from overlapping windows of the last axes to elements of `shape`, as a sum of terms: on one axis
    element s * j + r is element s * t + r of window j - t, for each t. A view of all windows would be read element by
    element, by remainders of places; neighbours in a term are neighbours in memory.

    What belongs to elements has shape (*lead, J, s, ...), a pair for each axis moved over.
    """

    def __init__(self, shape: tuple[Any, ...], kernel: Ints, stride: Ints):
        self.kernel, self.stride, self.shape = kernel, stride, shape
        self.n, self.head = len(kernel), len(shape) - len(kernel)
        self.reach = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
        outs = [count_windows(m, k, s, 1) for m, k, s in zip(shape[self.head :], kernel, stride, strict=True)]
        self.places = [o + t - 1 for o, t in zip(outs, self.reach, strict=True)]
        self.sizes = [j * s for j, s in zip(self.places, stride, strict=True)]
        self.pairs = (*shape[: self.head], *(v for js in zip(self.places, stride, strict=True) for v in js))

    def total(self, term: Callable[[Ints], UOp]) -> UOp:
        """The sum of term((t, ...)) over all t, in `shape`."""
        terms = [term(at) for at in product(*map(range, self.reach))]
        wide = accumulator(terms[0].dtype)
        y = g.cast(reduce(lambda a, b: g.e("ADD", a, b), [g.cast(x, wide) for x in terms]), terms[0].dtype)
        y = g.reshape(g.broadcast_to(y, self.pairs), (*self.shape[: self.head], *self.sizes))
        return framed(y, (0,) * self.n, tuple(m - v for m, v in zip(self.shape[self.head :], self.sizes, strict=True)))

    def elements(self, x: UOp) -> UOp:
        """`x`, of `shape`, in pairs."""
        ends = tuple(v - m for m, v in zip(self.shape[self.head :], self.sizes, strict=True))
        return g.reshape(framed(x, (0,) * self.n, ends), self.pairs)

    def placed(self, y: UOp, at: Ints) -> UOp:
        """What belongs to windows, (*lead, *outs), at j = window + t, zeros around it."""
        pairs = [v for m in y.shape[self.head :] for v in (m, 1)]
        first = (*(0,) * self.head, *(v for t in at for v in (t, 0)))
        y = g.reshape(y, (*y.shape[: self.head], *pairs))
        return g.pad(y, first, (*y.shape[: self.head], *(v for j in self.places for v in (j, 1))))

    def held(self, at: Ints) -> UOp:
        """Where s * t + r is inside of a window."""
        rank, out = self.head + 2 * self.n, TRUE
        for a, (t, s, k) in enumerate(zip(at, self.stride, self.kernel, strict=True)):
            out = build("AND", out, g.inside(0, min(s, k - t * s), s, self.head + 2 * a + 1, rank))
        return out


def framed(x: UOp, before: Ints, after: Ints, fill: Any = 0) -> UOp:
    """The last axes of `x` with `fill` around them; negative amounts cut off."""
    head = len(x.shape) - len(before)
    lead = x.shape[:head]
    offsets = tuple(max(-b, 0) for b in before)
    sizes = tuple(n - o - max(-a, 0) for n, o, a in zip(x.shape[head:], offsets, after, strict=True))
    x = g.shrink(x, ((0,) * head + offsets), (*lead, *sizes))
    grown = tuple(n + max(b, 0) + max(a, 0) for n, b, a in zip(sizes, before, after, strict=True))
    return g.pad(x, ((0,) * head + tuple(max(b, 0) for b in before)), (*lead, *grown), fill)


def check_windows(sizes: tuple, kernel: Ints, stride: Ints, dilation: Ints, name: str) -> tuple[Any, ...]:
    """How many windows fit on each axis. Raises ShapeError when none does, for some value of a symbolic size."""
    out = tuple(count_windows(*a) for a in zip(sizes, kernel, stride, dilation, strict=True))
    if not all(at_most(1, o) for o in out):
        reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
        found = tuple(map(bounds_text, sizes)) if any(n.__class__ is not int for n in sizes) else sizes
        raise ShapeError(
            f"{name}: the window is larger than the padded input", expected=f"at least {reach}", found=found
        )
    return out


def refuse_symbolic(sizes: tuple, what: str, expected: str) -> None:
    """Raise ShapeError for axes of symbolic size, and say what to do."""
    if any(n.__class__ is not int for n in sizes):
        found = tuple(map(bounds_text, sizes))
        raise ShapeError(f"{what} over an axis of symbolic size", expected=expected, found=found)


def first_windows(x: UOp, axes: Sequence[int], counts: Sequence[Any]) -> UOp:
    """Of axes that are as long as they may be the windows that are there, `counts` along each."""
    shape = list(x.shape)
    for a, n in zip(axes, counts, strict=True):
        shape[a] = n
    return g.leading(x, tuple(shape))

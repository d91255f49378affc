"""Convolution and its transpose on nodes, n-dimensional, with their gradients.

What it is for: the windows of the input are a view (`windows`), which is multiplied by the weight and summed. Nothing
is copied, so padding, stride, dilation and groups become index arithmetic of one kernel.
What it is not: no FFT forms. Those of Winograd (`winograd`) are taken where they cost less.

Invariant: the derivative of a convolution is a transpose of it, whose derivative is a convolution.
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

from monolect.autograd import graph as g
from monolect.autograd.gradient import closed_form
from monolect.backend.registry import Device
from monolect.base.settings import settings
from monolect.graphs.gather_scatter import empty
from monolect.graphs.products import contract
from monolect.graphs.windows import Ints, framed, windows
from monolect.graphs.winograd import TAPS, best_tile, convolve_tiles
from monolect.ir.placement import device
from monolect.ir.uop import UOp, build

FEWER_PRODUCTS = 0.8  # of a transpose, from which on its phases are computed one by one


class Moves(NamedTuple):
    """How a convolution moves over its input. Negative padding cuts off."""

    before: Ints
    after: Ints
    stride: Ints
    dilation: Ints
    groups: int


def convolve(x: UOp, w: UOp, c: Moves, *, kept: bool = False) -> UOp:
    """(N, Cin, *spatial) with (Cout, Cin / groups, *kernel) -> (N, Cout, *outputs). `kept`: as `best_tile` says."""
    y = _in_tiles(x, w, c, kept) if settings.WINOGRAD else None
    y = _direct(x, w, c) if y is None else y
    if w.shape[2:] == (1,) * len(c.stride) == c.stride:
        return y  # as a product of matrices its gradients are those of one

    def derivative(d: UOp, y: UOp, x: UOp, w: UOp) -> tuple[UOp, UOp]:
        return convolve_back(d, w, c, x.shape[2:]), _weight_gradient(d, x, w, c)

    return closed_form(y, (x, w), derivative)


def convolve_back(x: UOp, w: UOp, c: Moves, sizes: Ints) -> UOp:
    """The transpose of the convolution `c`, with a derivative: the convolution."""

    def derivative(d: UOp, y: UOp, x: UOp, w: UOp) -> tuple[UOp, UOp]:
        return convolve(d, w, c), _weight_gradient(x, d, w, c)

    return closed_form(_transposed(x, w, c, sizes), (x, w), derivative)


def _in_tiles(x: UOp, w: UOp, c: Moves, kept: bool) -> UOp | None:
    """The convolution through Winograd, None where that is not possible or takes longer."""
    if w.shape[2:] != (TAPS, TAPS) or c.stride != (1, 1) or c.dilation != (1, 1):
        return None
    outs = tuple(n - TAPS + 1 for n in padded(x, c))
    m = best_tile(x, w, outs, Device[device(x) or Device.default].target, kept=kept)
    return None if m is None else convolve_tiles(x, w, c.before, c.after, c.groups, m)


def _direct(x: UOp, w: UOp, c: Moves) -> UOp:
    """The sum of products over windows."""
    n = len(c.stride)
    batch, out, inner, kernel = x.shape[0], w.shape[0] // c.groups, w.shape[1], w.shape[2:]
    # Broadcast along the outputs before the windows are taken: the gradient of both is then one sum.
    view = windows(_by_group(x, c), kernel, c.stride, c.dilation, (batch, c.groups, out, inner))
    view = g.permute(view, (0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)))
    y = contract(view, g.reshape(w, (1, c.groups, out, *(1,) * n, inner, *kernel)), range(3 + n, 4 + 2 * n))
    return g.reshape(y, (batch, c.groups * out, *y.shape[3:]))


def padded(x: UOp, c: Moves) -> tuple[Any, ...]:
    """The sizes of the moved-over axes with their padding."""
    return tuple(n + b + a for n, b, a in zip(x.shape[2:], c.before, c.after, strict=True))


def _by_group(x: UOp, c: Moves) -> UOp:
    """The padded input as (N, groups, 1, Cin / groups, *spatial)."""
    x = framed(x, c.before, c.after)
    return g.reshape(x, (x.shape[0], c.groups, 1, x.shape[1] // c.groups, *x.shape[2:]))


def _weight_gradient(d: UOp, x: UOp, w: UOp, c: Moves) -> UOp:
    """The windows of the input times the gradient, summed over batch and outputs."""
    n = len(c.dilation)
    view = windows(_by_group(x, c), w.shape[2:], c.stride, c.dilation)  # (N, groups, 1, inner, *outputs, *kernel)
    d = g.reshape(d, (x.shape[0], c.groups, w.shape[0] // c.groups, 1, *d.shape[2:], *(1,) * n))
    return g.reshape(contract(view, d, (0, *range(4, 4 + n))), w.shape)


# ---- the transpose ---------------------------------------------------------------------------------------------------
def _transposed(d: UOp, w: UOp, c: Moves, sizes: Ints) -> UOp:
    """The transpose of the convolution `c`, (N, Cout, *outputs) -> (N, Cin, *sizes).

    Elements that are `stride` apart are a convolution of stride 1, of the taps that reach them. Each of those is
    computed alone, or all of them together, whichever `_saves_by_phases` tells to be fewer products in whole vectors.
    """
    if any(s > 1 for s in c.stride) and all(r == 1 for r in c.dilation) and not _saves_by_phases(d, w, c, sizes):
        return _together(d, w, c, sizes)
    n, shape = len(sizes), (d.shape[0], w.shape[1] * c.groups)
    places = tuple(-(-m // s) for m, s in zip(sizes, c.stride, strict=True))
    every = zip(w.shape[2:], c.before, c.stride, c.dilation, strict=True)
    phases = product(*([_phase(r, *axis) for r in range(axis[2])] for axis in every))
    parts = [_of_phase(d, w, c, phase, places) for phase in phases]
    if len(parts) == 1:
        return parts[0]
    memory = empty((*shape, len(parts), *places), d.dtype)
    views = [g.reshape(g.shrink_axis(memory, 2, i, 1), (*shape, *places)) for i in range(len(parts))]
    y = build("AFTER", memory, *(build("STORE", *vu) for vu in zip(views, parts, strict=True)))
    return _moved_in(y, c.stride, places, (0,) * n, sizes)


def _saves_by_phases(d: UOp, w: UOp, c: Moves, sizes: Ints) -> bool:
    """Whether there are channels enough to fill vectors without those of the neighbours, and so many products of taps
    that are not there that it pays to read `d` anew for each phase.
    """
    if w.shape[1] < Device[device(d) or Device.default].target.lanes(d.dtype.itemsize):
        return False
    together = 1
    for k, p, s, m in zip(w.shape[2:], c.before, c.stride, sizes, strict=True):
        first, last = _taps(k, p - _begins(k, p, s, m), s)
        together *= s * (last - first + 1)
    return prod(w.shape[2:]) <= FEWER_PRODUCTS * together


def _of_phase(d: UOp, w: UOp, c: Moves, phase: tuple[_Phase, ...], places: Ints) -> UOp:
    """The elements of one phase, (N, Cin, *places)."""
    if not all(t.taps for t in phase):
        return g.full((d.shape[0], w.shape[1] * c.groups, *places), 0, d.dtype)
    for a, t in enumerate(phase, 2):
        w = _every(w, a, t.first, t.step, t.taps)
    reach = [t.apart * (t.taps - 1) for t in phase]
    before = tuple(r - t.at for r, t in zip(reach, phase, strict=True))
    after = tuple(j + r - b - m for j, r, b, m in zip(places, reach, before, d.shape[2:], strict=True))
    moved = Moves(before, after, (1,) * len(places), tuple(t.apart for t in phase), c.groups)
    return convolve(d, _turned(w, c.groups), moved)


def _moved_in(y: UOp, stride: Ints, places: Ints, first: Ints, sizes: Ints) -> UOp:
    """(N, C, strides, *places) in memory -> (N, C, *sizes): the neighbours of each place moved into it."""
    n = len(stride)
    y = g.reshape(y, (*y.shape[:2], *stride, *places))
    y = g.permute(y, (0, 1, *(v for a in range(n) for v in (2 + n + a, 2 + a))))
    y = g.reshape(y, (*y.shape[:2], *(j * s for j, s in zip(places, stride, strict=True))))
    return g.shrink(y, (0, 0, *first), (*y.shape[:2], *sizes))


class _Phase(NamedTuple):
    """Of one axis the taps first, first + step, ... that reach every stride-th element of a result: they read outputs
    that are `apart`, the first `at` outputs behind the element's place.
    """

    first: int
    step: int
    taps: int
    at: int
    apart: int


def _phase(r: int, k: int, p: int, s: int, d: int) -> _Phase:
    """The taps of a kernel of k that reach the elements s * j + r."""
    step, apart = s // gcd(s, d), d // gcd(s, d)
    first = next((t for t in range(min(step, k)) if (r + p - d * t) % s == 0), k)
    return _Phase(first, step, len(range(first, k, step)), (r + p - d * first) // s, apart)


def _every(u: UOp, axis: int, first: int, step: int, count: int) -> UOp:
    """Of an axis the elements first, first + step, ..."""
    if step == 1:
        return g.shrink_axis(u, axis, first, count)
    lead, n, rest = u.shape[:axis], u.shape[axis], u.shape[axis + 1 :]
    end = first + count * step
    if end > n:
        u = g.pad(u, (0,) * len(u.shape), (*lead, end, *rest))
    u = g.reshape(g.shrink_axis(u, axis, first, count * step), (*lead, count, step, *rest))
    return g.reshape(g.shrink_axis(u, axis + 1, 0, 1), (*lead, count, *rest))


def _together(d: UOp, w: UOp, c: Moves, sizes: Ints) -> UOp:
    """The transpose of the convolution `c` without dilation: one of stride 1 that computes the `stride` neighbours of a
    place as channels, which then move into it.

    On one axis element s * j + r of the result meets d[j + t] with the tap r + p - s * t of the kernel: for each r a
    kernel of the same few t, the taps beyond the kernel being zeros. They are fewest where the result begins with some
    elements more, which change p.
    """
    n, kernel, outs = len(c.stride), w.shape[2:], d.shape[2:]
    more = tuple(_begins(*axis) for axis in zip(kernel, c.before, c.stride, sizes, strict=True))
    padding = [p - o for p, o in zip(c.before, more, strict=True)]
    places = tuple(-(-(m + o) // s) for m, o, s in zip(sizes, more, c.stride, strict=True))
    first, last = zip(*(_taps(*axis) for axis in zip(kernel, padding, c.stride, strict=True)), strict=True)
    taps = [b - a + 1 for a, b in zip(first, last, strict=True)]
    before = tuple(s * b - p for s, b, p in zip(c.stride, last, padding, strict=True))
    after = tuple(s * t - k - b for s, t, k, b in zip(c.stride, taps, kernel, before, strict=True))
    out, inner = w.shape[0] // c.groups, w.shape[1]
    cut = [v for t, s in zip(taps, c.stride, strict=True) for v in (t, s)]
    w = g.reshape(framed(w, before, after), (c.groups, out, inner, *cut))
    w = g.permute(w, (0, 2, *range(4, 4 + 2 * n, 2), 1, *range(3, 3 + 2 * n, 2)))  # groups, inner, *strides, out, *taps
    w = g.reshape(w, (c.groups * inner * prod(c.stride), out, *taps))
    ends = tuple(m + b - o for m, b, o in zip(places, last, outs, strict=True))
    moved = c._replace(before=tuple(-a for a in first), after=ends, stride=(1,) * n)
    y = build("CONTIGUOUS", convolve(d, g.flip(w, range(2, 2 + n)), moved))
    return _moved_in(g.reshape(y, (d.shape[0], c.groups * inner, *c.stride, *places)), c.stride, places, more, sizes)


def _taps(k: int, p: int, s: int) -> tuple[int, int]:
    """The least t and the largest for which some r + p - s * t is one of k taps, 0 <= r < s."""
    return -((k - 1 - p) // s), -(-p // s)


def _begins(k: int, p: int, s: int, size: int) -> int:
    """How many elements more a result of `size` begins with for the fewest products."""

    def products(more: int) -> int:
        first, last = _taps(k, p - more, s)
        return (last - first + 1) * -(-(size + more) // s)

    return min(range(s), key=products)


def _turned(w: UOp, groups: int) -> UOp:
    """The weight of the transpose, kernel reversed: (Cin, Cout / groups, *k) -> (Cout, Cin / groups, *k)."""
    inner, out, kernel = w.shape[0] // groups, w.shape[1], w.shape[2:]
    n = len(kernel)
    w = g.permute(g.reshape(w, (groups, inner, out, *kernel)), (0, 2, 1, *range(3, 3 + n)))
    return g.flip(g.reshape(w, (groups * out, inner, *kernel)), range(2, 2 + n))

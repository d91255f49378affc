"""Build n-dimensional convolution and its transpose as graphs of UOps, with their gradients.

What it is for: the windows of the input are a view (`windows`), which is multiplied by the weight and summed. Nothing
is copied, so padding, stride, dilation and groups become index arithmetic of one kernel.
What it is not: there are no FFT forms. Winograd forms (`winograd`) are used if they cost less.

Invariant: the derivative of a convolution is a transposed convolution, whose derivative is a convolution.
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

from monolect.autograd import graph as g
from monolect.autograd.closed_forms import closed_form
from monolect.backend.registry import target_of
from monolect.base.settings import settings
from monolect.graphs.gather_scatter import empty
from monolect.graphs.products import contract
from monolect.graphs.windows import Ints, pad_or_crop, windows
from monolect.graphs.winograd import TAPS, best_tile, convolve_tiles
from monolect.ir.placement import device
from monolect.ir.uop import UOp, build

MAX_PHASE_PRODUCTS = 0.8  # phases are computed one by one if they need at most this fraction of the joint products


class ConvGeometry(NamedTuple):
    """Parameters of a convolution, an argument of `convolve` and `convolve_back`.

    They are the padding `before` and `after` each spatial axis, `stride`, `dilation` (one int for each spatial axis)
    and the number of channel `groups`. Negative padding crops.
    """

    before: Ints
    after: Ints
    stride: Ints
    dilation: Ints
    groups: int


def convolve(x: UOp, weight: UOp, conv: ConvGeometry, *, weight_cached: bool = False) -> UOp:
    """Return the convolution of `x`, (N, Cin, *spatial), with `weight`, (Cout, Cin / groups, *kernel).

    The result has the shape (N, Cout, *outputs).

    `conv` has padding, stride, dilation and groups. `weight_cached`: a captured step keeps the transformed weight from
    one call to the next, which favours Winograd's method.
    """
    y = _by_winograd(x, weight, conv, weight_cached) if settings.WINOGRAD else None
    y = _direct(x, weight, conv) if y is None else y
    if weight.shape[2:] == (1,) * len(conv.stride) == conv.stride:
        return y  # a 1x1 convolution is a matrix product: its gradients are those of the product

    def derivative(d: UOp, y: UOp, x: UOp, weight: UOp) -> tuple[UOp, UOp]:
        return convolve_back(d, weight, conv, x.shape[2:]), _weight_gradient(d, x, weight, conv)

    return closed_form(y, (x, weight), derivative)


def convolve_back(x: UOp, weight: UOp, conv: ConvGeometry, sizes: Ints) -> UOp:
    """Return `x`, (N, Cout, *outputs), after the transpose of the convolution `conv` with `weight`: (N, Cin, *sizes).

    `sizes`: the sizes of the spatial axes of the result. The derivative of the transpose is the convolution.
    """

    def derivative(d: UOp, y: UOp, x: UOp, weight: UOp) -> tuple[UOp, UOp]:
        return convolve(d, weight, conv), _weight_gradient(x, d, weight, conv)

    return closed_form(_transpose(x, weight, conv, sizes), (x, weight), derivative)


def _by_winograd(x: UOp, weight: UOp, conv: ConvGeometry, weight_cached: bool) -> UOp | None:
    """Return the convolution computed by Winograd's method, or None if that is impossible or slower.

    It needs a 3x3 kernel, stride 1 and dilation 1. `weight_cached`: a captured step keeps the transformed weight from
    one call to the next, so that its cost counts less.
    """
    if weight.shape[2:] != (TAPS, TAPS) or conv.stride != (1, 1) or conv.dilation != (1, 1):
        return None
    outs = tuple(n - TAPS + 1 for n in padded(x, conv))
    m = best_tile(x, weight, outs, target_of(device(x)), weight_cached=weight_cached)
    return None if m is None else convolve_tiles(x, weight, conv.before, conv.after, conv.groups, m)


def _direct(x: UOp, weight: UOp, conv: ConvGeometry) -> UOp:
    """Return the convolution as one sum of products over the windows of `x`, shape (N, Cout, *outputs)."""
    n = len(conv.stride)
    batch, out, inner, kernel = x.shape[0], weight.shape[0] // conv.groups, weight.shape[1], weight.shape[2:]
    # Broadcast along the outputs before the windows are taken, so that the gradient of both is one sum.
    view = windows(_by_group(x, conv), kernel, conv.stride, conv.dilation, (batch, conv.groups, out, inner))
    view = g.permute(view, (0, 1, 2, *range(4, 4 + n), 3, *range(4 + n, 4 + 2 * n)))
    y = contract(view, g.reshape(weight, (1, conv.groups, out, *(1,) * n, inner, *kernel)), range(3 + n, 4 + 2 * n))
    return g.reshape(y, (batch, conv.groups * out, *y.shape[3:]))


def padded(x: UOp, conv: ConvGeometry) -> tuple[Any, ...]:
    """Return the sizes of the spatial axes of `x` including the padding of `conv`."""
    return tuple(n + b + a for n, b, a in zip(x.shape[2:], conv.before, conv.after, strict=True))


def _by_group(x: UOp, conv: ConvGeometry) -> UOp:
    """Return the input `x`, (N, Cin, *spatial), padded by `conv`, as (N, groups, 1, Cin / groups, *spatial)."""
    x = pad_or_crop(x, conv.before, conv.after)
    return g.reshape(x, (x.shape[0], conv.groups, 1, x.shape[1] // conv.groups, *x.shape[2:]))


def _weight_gradient(d: UOp, x: UOp, weight: UOp, conv: ConvGeometry) -> UOp:
    """Return the gradient of the weight: the windows of `x` times the output gradient `d`, summed over batch and
    outputs.
    """
    n = len(conv.dilation)
    # The view has shape (N, groups, 1, inner, *outputs, *kernel).
    view = windows(_by_group(x, conv), weight.shape[2:], conv.stride, conv.dilation)
    d = g.reshape(d, (x.shape[0], conv.groups, weight.shape[0] // conv.groups, 1, *d.shape[2:], *(1,) * n))
    return g.reshape(contract(view, d, (0, *range(4, 4 + n))), weight.shape)


# ---- the transpose ---------------------------------------------------------------------------------------------------
def _transpose(x: UOp, weight: UOp, conv: ConvGeometry, sizes: Ints) -> UOp:
    """Return the transpose of the convolution `conv` with `weight`, (N, Cout, *outputs) -> (N, Cin, *sizes).

    Result elements that are `stride` apart form a phase. A phase is a convolution of stride 1 with the taps that reach
    it. The phases are computed one by one if that is cheaper (`_phases_are_cheaper`), else jointly.
    """
    has_only_stride = any(s > 1 for s in conv.stride) and all(r == 1 for r in conv.dilation)
    if has_only_stride and not _phases_are_cheaper(x, weight, conv, sizes):
        return _transpose_jointly(x, weight, conv, sizes)
    n, shape = len(sizes), (x.shape[0], weight.shape[1] * conv.groups)
    counts = tuple(-(-m // s) for m, s in zip(sizes, conv.stride, strict=True))
    every = zip(weight.shape[2:], conv.before, conv.stride, conv.dilation, strict=True)
    phases = product(*([_phase(r, *axis) for r in range(axis[2])] for axis in every))
    parts = [_phase_elements(x, weight, conv, phase, counts) for phase in phases]
    if len(parts) == 1:
        return parts[0]
    memory = empty((*shape, len(parts), *counts), x.dtype)
    views = [g.reshape(g.shrink_axis(memory, 2, i, 1), (*shape, *counts)) for i in range(len(parts))]
    y = build("AFTER", memory, *(build("STORE", *vu) for vu in zip(views, parts, strict=True)))
    return _interleave(y, conv.stride, counts, (0,) * n, sizes)


def _phases_are_cheaper(x: UOp, weight: UOp, conv: ConvGeometry, sizes: Ints) -> bool:
    """Whether computing the phases of a transposed convolution one by one is faster than jointly.

    A phase is the set of result elements that are `stride` apart. The arguments are those of `_transpose`: the input,
    the weight, the convolution and the spatial sizes of the result.

    The joint form also multiplies by taps that are 0, and separate phases read `x` once each. Separate phases also need
    enough channels to fill a vector.
    """
    if weight.shape[1] < target_of(device(x)).lanes(x.dtype.itemsize):
        return False
    joint = 1
    for k, p, s, m in zip(weight.shape[2:], conv.before, conv.stride, sizes, strict=True):
        first, last = _taps(k, p - _leading_extra(k, p, s, m), s)
        joint *= s * (last - first + 1)
    return prod(weight.shape[2:]) <= MAX_PHASE_PRODUCTS * joint


def _phase_elements(x: UOp, weight: UOp, conv: ConvGeometry, phase: tuple[_Phase, ...], counts: Ints) -> UOp:
    """Return the result elements of one `phase` of a transposed convolution, shape (N, Cin, *counts).

    A phase is the set of result elements that are `stride` apart; it is a convolution of stride 1 of `x`.

    `phase` has a _Phase for each spatial axis, `counts` the number of elements of the phase along that axis.
    """
    if not all(t.taps for t in phase):
        return g.full((x.shape[0], weight.shape[1] * conv.groups, *counts), 0, x.dtype)
    for a, t in enumerate(phase, 2):
        weight = _strided(weight, a, t.first, t.step, t.taps)
    reach = [t.spacing * (t.taps - 1) for t in phase]
    before = tuple(r - t.at for r, t in zip(reach, phase, strict=True))
    after = tuple(j + r - b - m for j, r, b, m in zip(counts, reach, before, x.shape[2:], strict=True))
    geometry = ConvGeometry(before, after, (1,) * len(counts), tuple(t.spacing for t in phase), conv.groups)
    return convolve(x, _transposed_weight(weight, conv.groups), geometry)


def _interleave(y: UOp, stride: Ints, counts: Ints, first: Ints, sizes: Ints) -> UOp:
    """Return the interleaved phases of `y` as (N, C, *sizes), cropped from offset `first` of each axis.

    `y` has the shape (N, C, prod(stride), *counts) or (N, C, *stride, *counts), and is in memory: phase r of an axis
    holds its elements r, r + stride, ... `counts` has the number of elements of a phase along each axis.
    """
    n = len(stride)
    y = g.reshape(y, (*y.shape[:2], *stride, *counts))
    y = g.permute(y, (0, 1, *(v for a in range(n) for v in (2 + n + a, 2 + a))))
    y = g.reshape(y, (*y.shape[:2], *(j * s for j, s in zip(counts, stride, strict=True))))
    return g.shrink(y, (0, 0, *first), (*y.shape[:2], *sizes))


class _Phase(NamedTuple):
    """The kernel taps that contribute to one phase of a transposed convolution, on one axis; `_phase_elements` computes
    the phase by them.

    For stride s, phase r has the result elements s * j + r. Its `taps` taps have the indices first, first + step, ...
    For element j they multiply the operand's elements j + at, j + at - spacing, ...
    """

    first: int
    step: int
    taps: int
    at: int
    spacing: int


def _phase(r: int, k: int, p: int, s: int, d: int) -> _Phase:
    """Return the _Phase of the elements s * j + r for a kernel of k taps, padding p, stride s and dilation d."""
    step, spacing = s // gcd(s, d), d // gcd(s, d)
    first = next((t for t in range(min(step, k)) if (r + p - d * t) % s == 0), k)
    return _Phase(first, step, len(range(first, k, step)), (r + p - d * first) // s, spacing)


def _strided(u: UOp, axis: int, first: int, step: int, count: int) -> UOp:
    """Return the elements first, first + step, ..., `count` in number, of an axis; beyond its end they are 0."""
    if step == 1:
        return g.shrink_axis(u, axis, first, count)
    lead, n, rest = u.shape[:axis], u.shape[axis], u.shape[axis + 1 :]
    end = first + count * step
    if end > n:
        u = g.pad(u, (0,) * len(u.shape), (*lead, end, *rest))
    u = g.reshape(g.shrink_axis(u, axis, first, count * step), (*lead, count, step, *rest))
    return g.reshape(g.shrink_axis(u, axis + 1, 0, 1), (*lead, count, *rest))


def _transpose_jointly(x: UOp, weight: UOp, conv: ConvGeometry, sizes: Ints) -> UOp:
    """Return the transpose of the convolution `conv` without dilation, computed as one convolution of stride 1.

    That convolution computes each `stride` adjacent elements as channels, which `_interleave` then orders. On one axis,
    element s * j + r of the result is the sum over t of x[j + t] times tap r + p - s * t. So for each r the kernel has
    the same few t, and taps outside of the kernel are zeros. Computing some extra leading elements changes p, and can
    reduce the number of t.
    """
    n, kernel, outs = len(conv.stride), weight.shape[2:], x.shape[2:]
    extra = tuple(_leading_extra(*axis) for axis in zip(kernel, conv.before, conv.stride, sizes, strict=True))
    padding = [p - o for p, o in zip(conv.before, extra, strict=True)]
    counts = tuple(-(-(m + o) // s) for m, o, s in zip(sizes, extra, conv.stride, strict=True))
    first, last = zip(*(_taps(*axis) for axis in zip(kernel, padding, conv.stride, strict=True)), strict=True)
    taps = [b - a + 1 for a, b in zip(first, last, strict=True)]
    before = tuple(s * b - p for s, b, p in zip(conv.stride, last, padding, strict=True))
    after = tuple(s * t - k - b for s, t, k, b in zip(conv.stride, taps, kernel, before, strict=True))
    out, inner = weight.shape[0] // conv.groups, weight.shape[1]
    cut = [v for t, s in zip(taps, conv.stride, strict=True) for v in (t, s)]
    weight = g.reshape(pad_or_crop(weight, before, after), (conv.groups, out, inner, *cut))
    # groups, inner, *strides, out, *taps
    weight = g.permute(weight, (0, 2, *range(4, 4 + 2 * n, 2), 1, *range(3, 3 + 2 * n, 2)))
    weight = g.reshape(weight, (conv.groups * inner * prod(conv.stride), out, *taps))
    ends = tuple(m + b - o for m, b, o in zip(counts, last, outs, strict=True))
    geometry = conv._replace(before=tuple(-a for a in first), after=ends, stride=(1,) * n)
    y = build("CONTIGUOUS", convolve(x, g.flip(weight, range(2, 2 + n)), geometry))
    return _interleave(
        g.reshape(y, (x.shape[0], conv.groups * inner, *conv.stride, *counts)), conv.stride, counts, extra, sizes
    )


def _taps(k: int, p: int, s: int) -> tuple[int, int]:
    """Return the smallest and the largest t for which r + p - s * t is one of k taps for some r, 0 <= r < s.

    p: the padding; s: the stride.
    """
    return -((k - 1 - p) // s), -(-p // s)


def _leading_extra(k: int, p: int, s: int, size: int) -> int:
    """Return the number of extra leading elements for which a result of `size` needs the fewest products.

    One axis has k taps, padding p and stride s.
    """

    def products(extra: int) -> int:
        first, last = _taps(k, p - extra, s)
        return (last - first + 1) * -(-(size + extra) // s)

    return min(range(s), key=products)


def _transposed_weight(weight: UOp, groups: int) -> UOp:
    """Return the weight of the transposed convolution, taps reversed: (Cin, Cout / groups, *k) -> (Cout, Cin / groups,
    *k).
    """
    inner, out, kernel = weight.shape[0] // groups, weight.shape[1], weight.shape[2:]
    n = len(kernel)
    weight = g.permute(g.reshape(weight, (groups, inner, out, *kernel)), (0, 2, 1, *range(3, 3 + n)))
    return g.flip(g.reshape(weight, (groups * out, inner, *kernel)), range(2, 2 + n))


__all__ = ["ConvGeometry", "convolve", "convolve_back", "padded"]

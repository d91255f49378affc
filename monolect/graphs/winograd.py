"""Convolution by 3x3 in steps of 1 through Winograd's minimal filtering F(m x m, 3x3): fewer products, more sums.

Tiles of m x m outputs, of (m + 2) x (m + 2) inputs each, and the kernels are polynomials in two variables. A polynomial
is evaluated at m + 1 points and at infinity on either axis; values are multiplied and summed over channels, one matrix
product for each pair of points; the result is interpolated. 4 outputs take 16 products instead of 36 for m = 2, 16 take
36 instead of 144 for m = 4. Channels lie innermost on the way, so that every step works on whole vectors, however few
tiles stand side by side. For m = 2 both axes are one step: a tile of 16 vectors fits the registers.

What it is not: a rewrite of any graph. `conv` asks for it where `best_tile` estimates that it takes less, with tiles no
larger than the setting WINOGRAD. Its gradient is that of the convolution, again one that may be computed this way.

Accuracy: points near 1 in pairs x, -x and 1 / x keep what is added of one size. The largest error by the largest value,
16 to 512 channels of normal values in float32, is 0.6 to 1.1 times that of the sum of products itself for m = 2, whose
sums are shorter, and 1.4e-6 to 3e-6 for m = 4 (0, 1, -1, 2, -2 would give five times that). What every sum of products
of small whole numbers is, the result for m = 2 is, too: exact. But an output is made of its tile: a value that is not
finite spreads over it, and beside one that is much larger than the others these lose places.

Source: Lavin and Gray, Fast algorithms for convolutional neural networks (2016); Alam et al. on points (2022).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from monolect.autograd import graph as g
from monolect.autograd.operands import join
from monolect.base.dtype import dtypes
from monolect.base.numpy import np
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.graphs.products import matmul
from monolect.graphs.windows import Ints, framed
from monolect.ir.uop import UOp, build

TAPS = 3
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 2**0.5, -(2**0.5), 0.5**0.5, -(0.5**0.5))}  # by m
AT_ONCE = 2  # the m of which a tile fits the registers
Matrix = tuple[tuple[float, ...], ...]

# in multiply-adds of a direct convolution, measured on AVX-512; of memory, where one of a vector starts in a cycle
PRODUCT = 1.15  # a multiply-add of the matrix products, whose operands come from further away
TRANSFORM = {2: 20.0, 4: 40.0}  # an element of a tile, in or out: evaluated or interpolated, stored and loaded
FAR = 1.7  # times as much where the last cache does not hold all of them, and what they are made of
WEIGHT = 8.0  # an element of the weight's values, read once a call
CHANGED = 85.0  # and where the weight may be another one at each call, evaluated and packed
BUILT = 1.5e8  # and where nothing is captured, a graph four times as large, built in more than a millisecond
WORTH = 0.9  # of the direct convolution, at most: less than a tenth is not gained for certain


@lru_cache
def matrices(m: int) -> tuple[Matrix, Matrix, Matrix]:
    """(evaluation of kernels, (m + 2) x 3; of inputs, (m + 2) x (m + 2); interpolation, m x (m + 2))."""
    points = np.array(POINTS[m])
    apart = points[:, None] - points + np.eye(len(points))
    scale = np.append(apart.prod(1), 1.0)[:, None]

    def powers(n: int) -> np.ndarray:
        return np.vstack([np.vander(points, n, increasing=True), np.eye(n)[-1:]])

    found = powers(TAPS) / scale, np.linalg.inv(powers(m + 2)).T * scale, powers(m).T
    kernel, inputs, outputs = (tuple(tuple(float(v) for v in row) for row in a.round(14)) for a in found)
    return kernel, inputs, outputs


def best_tile(x: UOp, w: UOp, outs: Ints, target: Target, *, kept: bool) -> int | None:
    """The m that costs least, None where the direct convolution (3x3, stride 1, `outs` outputs) does, or not much more.

    The more multiply-adds start in a cycle, the more of them memory costs. `kept`: a captured step keeps the values of
    the weight from one call to the next. What memory costs was measured on CPUs: nothing is known of workgroups.
    """
    known = x.dtype in (dtypes.float32, dtypes.float64) and all(isinstance(n, int) for n in x.shape)
    if target.workgroups or not known:
        return None
    n, channels, out, inner = x.shape[0], x.shape[1], w.shape[0], w.shape[1]
    weight, built = (WEIGHT, 0.0) if kept else (WEIGHT + CHANGED, BUILT)
    costs: dict[int | None, float] = {None: WORTH * n * out * inner * prod(outs) * TAPS**2}
    for m in (m for m in POINTS if m <= settings.WINOGRAD):
        values, tiles = (m + 2) ** 2, n * prod(-(-o // m) for o in outs)
        elements = values * tiles * (channels + out)
        is_far = elements * (values + m * m) // values * x.dtype.itemsize > target.l3_bytes
        moved = elements * TRANSFORM[m] * (FAR if is_far else 1)
        memory = moved + values * weight * out * inner + built
        costs[m] = values * PRODUCT * tiles * out * inner + target.multiply_adds * memory
    return min(costs, key=lambda m: costs[m])


def convolve_tiles(x: UOp, w: UOp, before: Ints, after: Ints, groups: int, m: int) -> UOp:
    """(N, Cin, H, W) with (Cout, Cin / groups, 3, 3) -> (N, Cout, H', W'), as the convolution of stride 1."""
    kernel, inputs, outputs = matrices(m)
    t, out = m + 2, w.shape[0]
    outs = [n + b + a - TAPS + 1 for n, b, a in zip(x.shape[2:], before, after, strict=True)]
    tall, wide = (-(-n // m) for n in outs)
    whole = [(k + 1) * m - n - b for k, n, b in zip((tall, wide), x.shape[2:], before, strict=True)]
    x = framed(x, before, tuple(whole))
    n, channels = x.shape[:2]
    x = _stored(x, (0, 2, 3, 1))  # N, height, width, channels: whole vectors of those, wherever a tile begins
    x = g.reshape(x, (n, tall + 1, m, wide + 1, m, channels))
    v = _combined(inputs, [_part(x, 1, i // m, tall, i % m) for i in range(t)], 2)
    v = v if m == AT_ONCE else _stored(v, (2, 0, 1, 3, 4, 5), back=True)
    v = _combined(inputs, [_part(v, 3, i // m, wide, i % m) for i in range(t)], 4)
    v = g.reshape(_stored(v, (2, 4, 0, 1, 3, 5)), (t * t, n * tall * wide, groups, channels // groups))
    u = _stored(_both(kernel, _stored(w, (2, 3, 0, 1)), m), range(4))
    u = g.reshape(u, (t * t, groups, out // groups, w.shape[1]))
    y = matmul(g.permute(v, (0, 2, 1, 3)), g.permute(u, (0, 1, 3, 2)))
    y = g.reshape(_stored(y, (0, 2, 1, 3)), (t, t, n, tall, wide, out))
    y = _stored(_both(outputs, y, m), (2, 3, 0, 4, 1, 5))  # N, tall, m, wide, m, out
    y = g.permute(g.reshape(y, (n, tall * m, wide * m, out)), (0, 3, 1, 2))
    return g.shrink(y, (0,) * 4, (n, out, *outs))


def _stored(u: UOp, order: Iterable[int], *, back: bool = False) -> UOp:
    """`u` with its axes in this order, in memory; `back`: seen as before."""
    order = tuple(order)
    out = build("CONTIGUOUS", g.permute(u, order))
    return g.permute(out, tuple(order.index(a) for a in range(len(order)))) if back else out


def _part(u: UOp, axis: int, start: int, n: int, place: int) -> UOp:
    """Of the pair of axes (tiles, places in one) n tiles from `start` on, and one place."""
    offsets, sizes = [0] * len(u.shape), list(u.shape)
    offsets[axis : axis + 2], sizes[axis : axis + 2] = (start, place), (n, 1)
    return g.shrink(u, tuple(offsets), tuple(sizes))


def _both(matrix: Matrix, u: UOp, m: int) -> UOp:
    """`u` with both of its first axes multiplied by the matrix: at once where a tile fits the registers."""
    u = _combined(matrix, [g.shrink_axis(u, 0, i, 1) for i in range(u.shape[0])], 0)
    u = u if m == AT_ONCE else _stored(u, range(len(u.shape)))
    return _combined(matrix, [g.shrink_axis(u, 1, i, 1) for i in range(u.shape[1])], 1)


def _combined(matrix: Matrix, parts: list[UOp], axis: int) -> UOp:
    """The matrix times the vector of these parts, along an axis of theirs of size 1."""
    return join([_sum(row, parts) for row in matrix], axis)


def _sum(row: tuple[float, ...], parts: list[UOp]) -> UOp:
    """What is added comes first, so that nothing is negated but a row of one element."""
    (first, x), *terms = sorted(((k, p) for k, p in zip(row, parts, strict=True) if k), key=lambda t: t[0] < 0)
    total = x if first == 1 else g.e("MUL", x, first)
    for k, p in terms:
        if abs(k) == 1:
            total = g.e("ADD" if k > 0 else "SUB", total, p)
        else:
            total = g.multiply_add(p, k, total)
    return total


__all__ = ["best_tile", "convolve_tiles", "matrices"]

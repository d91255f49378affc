"""Convolution by 3x3 in steps of 1 through Winograd's minimal filtering F(m x m, 3x3): fewer products, more sums.

Tiles of m x m outputs, of (m + 2) x (m + 2) inputs each, and the kernels are polynomials in two variables. A polynomial
is evaluated at m + 1 points and at infinity on either axis; values are multiplied and summed over channels, one matrix
product for each pair of points; the result is interpolated. m = 4 takes 36 products where 16 outputs took 144.
Channels lie innermost on the way, so that every step works on whole vectors, however few tiles stand side by side.

What it is not: a rewrite of any graph. `conv` asks for it with WINOGRAD=1, where `best_tile` estimates that it takes
less. Its gradient is that of the convolution, again one that may be computed this way.

Accuracy: points near 1 in pairs x, -x and 1 / x keep what is added of one size. The largest error by the largest value,
64 to 512 channels of normal values in float32, is 4e-7 to 8e-7 for m = 2, as that of the sum of products itself, and
1.4e-6 to 3e-6 for m = 4 (0, 1, -1, 2, -2 would give five times that). A value that is not finite spreads over its tile.

Source: Lavin and Gray, Fast algorithms for convolutional neural networks (2016); Alam et al. on points (2022).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod

from monolect.autograd import graph as g
from monolect.base.dtype import dtypes
from monolect.base.numpy import np
from monolect.base.settings import settings
from monolect.ir.uop import UOp, build
from monolect.tensor.movement import join
from monolect.tensor.product import matmul
from monolect.tensor.windows import Ints, framed, windows

TAPS = 3
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 2**0.5, -(2**0.5), 0.5**0.5, -(0.5**0.5))}  # by m
Matrix = tuple[tuple[float, ...], ...]

# in multiply-adds of a direct convolution, measured on AVX-512; of memory, where one of a vector starts in a cycle
PRODUCT = 1.3  # a multiply-add of the matrix products, whose operands are read more often
TRANSFORM = {2: 30.0, 4: 60.0}  # an element of a tile, in or out: evaluated or interpolated, stored and loaded
WEIGHT = 8.0  # an element of the weight's values, read once a call
CHANGED = 60.0  # and where the weight is another one at each step, evaluated and packed


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


def best_tile(x: UOp, w: UOp, outs: Ints, a_cycle: int) -> int | None:
    """The m that costs least, None where the direct convolution (3x3, stride 1, `outs` outputs) does.

    `a_cycle`: how many multiply-adds of whole vectors start in one. Memory costs more products, the more do.
    """
    if x.dtype not in (dtypes.float32, dtypes.float64) or not all(isinstance(n, int) for n in x.shape):
        return None
    n, channels, out, inner = x.shape[0], x.shape[1], w.shape[0], w.shape[1]
    weight = WEIGHT + CHANGED * settings.TRAINING
    costs: dict[int | None, float] = {None: float(n * out * inner * prod(outs) * TAPS**2)}
    for m in POINTS:
        values, tiles = (m + 2) ** 2, n * prod(-(-o // m) for o in outs)
        products = PRODUCT * tiles + a_cycle * weight
        costs[m] = values * (products * out * inner + a_cycle * TRANSFORM[m] * tiles * (channels + out))
    return min(costs, key=lambda m: costs[m])


def convolve_tiles(x: UOp, w: UOp, before: Ints, after: Ints, groups: int, m: int) -> UOp:
    """(N, Cin, H, W) with (Cout, Cin / groups, 3, 3) -> (N, Cout, H', W'), as the convolution of stride 1."""
    kernel, inputs, outputs = matrices(m)
    t, out = m + 2, w.shape[0]
    outs = [n + b + a - TAPS + 1 for n, b, a in zip(x.shape[2:], before, after, strict=True)]
    tall, wide = (-(-n // m) for n in outs)
    x = framed(x, before, (after[0] + tall * m - outs[0], after[1] + wide * m - outs[1]))
    n, channels = x.shape[:2]
    x = _stored(x, (0, 2, 3, 1))  # N, height, width, channels: whole vectors of those, wherever a tile begins
    v = windows(g.permute(x, (0, 3, 2, 1)), (t,), (m,), (1,))  # N, channels, width, tall, t
    v = _stored(_combined(inputs, v, 4), (4, 0, 3, 2, 1))
    v = windows(g.permute(v, (0, 1, 2, 4, 3)), (t,), (m,), (1,))  # t, N, tall, channels, wide, t
    v = _stored(_combined(inputs, v, 5), (0, 5, 1, 2, 4, 3))
    v = g.reshape(v, (t * t, n * tall * wide, groups, channels // groups))
    u = _stored(_combined(kernel, _combined(kernel, _stored(w, (2, 3, 0, 1)), 0), 1), range(4))
    u = g.reshape(u, (t * t, groups, out // groups, w.shape[1]))
    y = matmul(g.permute(v, (0, 2, 1, 3)), g.permute(u, (0, 1, 3, 2)))
    y = g.reshape(_stored(y, (0, 2, 1, 3)), (t, t, n, tall, wide, out))
    y = _stored(_combined(outputs, y, 0), range(6))
    y = _stored(_combined(outputs, y, 1), (2, 3, 0, 4, 1, 5))  # N, tall, m, wide, m, out
    y = g.permute(g.reshape(y, (n, tall * m, wide * m, out)), (0, 3, 1, 2))
    return g.shrink(y, (0,) * 4, (n, out, *outs))


def _stored(u: UOp, order: Iterable[int]) -> UOp:
    """`u` with its axes in this order, in memory."""
    return build("CONTIGUOUS", g.permute(u, tuple(order)))


def _combined(matrix: Matrix, u: UOp, axis: int) -> UOp:
    """`u` with `axis` multiplied by the matrix, as sums of slices."""
    parts = [g.shrink_axis(u, axis, i, 1) for i in range(u.shape[axis])]
    return join([_sum(row, parts) for row in matrix], axis)


def _sum(row: tuple[float, ...], parts: list[UOp]) -> UOp:
    terms = [p if k == 1 else g.e("MUL", p, k) for k, p in zip(row, parts, strict=True) if k]
    total = terms[0]
    for term in terms[1:]:
        total = g.e("ADD", total, term)
    return total


__all__ = ["best_tile", "convolve_tiles", "matrices"]

"""Build a 3x3 convolution of stride 1 by Winograd's minimal filtering F(m x m, 3x3): fewer products, more sums.

Tiles of m x m outputs, each from (m + 2) x (m + 2) inputs, and the kernels are polynomials in two variables. The
polynomials are evaluated at m + 1 points and at infinity on each axis. The values are multiplied and summed over
channels, by one matrix product for each pair of points. The result is interpolated. For m = 2, 4 outputs take 16
products instead of 36; for m = 4, 16 outputs take 36 instead of 144. Channels are the innermost axis of the
intermediate values, so that every step works on whole vectors, even with few tiles. For m = 2 both axes are transformed
in one step, as a tile of 16 vectors fits the registers.

What it is not: it rewrites no graph. `convolution` calls it if `best_tile` estimates a lower cost, with tiles no larger
than the setting WINOGRAD. The gradient is that of the convolution, which may again be computed this way.

Accuracy: points near 1 in pairs x, -x and 1 / x keep all terms of a sum of similar size. The figure is the largest
error over the largest value, for 16 to 512 channels of normal values in float32. For m = 2 it is 0.1 to 0.7 times that
of a sum of products in order, and 0.3 to 2 times that of the direct kernel, which sums in blocks. For m = 4 it is
1.4e-6 to 3e-6; the points 0, 1, -1, 2, -2 would give five times that. For m = 2 the result for small whole numbers is
exact, as the direct sum is. An output depends on its whole tile: a value that is not finite spreads over the tile, and
a value much larger than the others costs them precision.

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
from monolect.graphs.windows import Ints, pad_or_crop
from monolect.ir.uop import UOp, build

TAPS = 3
POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 2**0.5, -(2**0.5), 0.5**0.5, -(0.5**0.5))}  # finite evaluation points, by m
REGISTER_TILE = 2  # the m for which a tile fits the registers
Matrix = tuple[tuple[float, ...], ...]

# Costs are in multiply-adds of a direct convolution, measured on AVX-512. Memory costs hold for one multiply-add of a
# vector a cycle.
PRODUCT_COST = 1.15  # cost of a multiply-add of the matrix products, whose operands are further away in the caches
TRANSFORM_COST = {2: 20.0, 4: 40.0}  # by m: cost of transforming, storing and loading an element of a tile
MEMORY_FACTOR = 1.7  # factor of the transform cost if the values and the inputs together exceed L3
WEIGHT_COST = 8.0  # cost of reading an element of the transformed weight, once a call
WEIGHT_CHANGE_COST = 85.0  # added for an element if the weight may change between calls: transforming and packing it
GRAPH_COST = 1.5e8  # added if nothing is captured: building a graph four times as large takes more than 1 ms
MAX_COST_RATIO = 0.9  # of the direct cost; a gain of less than a tenth is not certain


@lru_cache
def matrices(m: int) -> tuple[Matrix, Matrix, Matrix]:
    """Return the three matrices of F(m, 3): kernel evaluation, (m + 2) x 3; input evaluation, (m + 2) x (m + 2); and
    interpolation, m x (m + 2).
    """
    points = np.array(POINTS[m])
    differences = points[:, None] - points + np.eye(len(points))
    scale = np.append(differences.prod(1), 1.0)[:, None]

    def powers(n: int) -> np.ndarray:
        """Return the powers 0..n-1 of each point, and a last row for infinity."""
        return np.vstack([np.vander(points, n, increasing=True), np.eye(n)[-1:]])

    found = powers(TAPS) / scale, np.linalg.inv(powers(m + 2)).T * scale, powers(m).T
    kernel, inputs, outputs = (tuple(tuple(float(v) for v in row) for row in a.round(14)) for a in found)
    return kernel, inputs, outputs


def best_tile(x: UOp, weight: UOp, outs: Ints, target: Target, *, weight_cached: bool) -> int | None:
    """Return the cheapest tile size m, or None if the direct convolution (3x3, stride 1, `outs` outputs) costs less or
    little more.

    Costs are in multiply-adds, so a memory access costs more of them on a target that starts more in a cycle.
    `weight_cached`: a captured step keeps the transformed weight from one call to the next. Memory costs were measured
    on CPUs, so the result is None for targets with workgroups.
    """
    known = x.dtype in (dtypes.float32, dtypes.float64) and all(isinstance(n, int) for n in x.shape)
    if target.workgroups or not known:
        return None
    n, channels, out, inner = x.shape[0], x.shape[1], weight.shape[0], weight.shape[1]
    weight_cost, build_cost = (WEIGHT_COST, 0.0) if weight_cached else (WEIGHT_COST + WEIGHT_CHANGE_COST, GRAPH_COST)
    costs: dict[int | None, float] = {None: MAX_COST_RATIO * n * out * inner * prod(outs) * TAPS**2}
    for m in (m for m in POINTS if m <= settings.WINOGRAD):
        values, tiles = (m + 2) ** 2, n * prod(-(-o // m) for o in outs)
        elements = values * tiles * (channels + out)
        exceeds_l3 = elements * (values + m * m) // values * x.dtype.itemsize > target.l3_bytes
        transform = elements * TRANSFORM_COST[m] * (MEMORY_FACTOR if exceeds_l3 else 1)
        memory = transform + values * weight_cost * out * inner + build_cost
        costs[m] = values * PRODUCT_COST * tiles * out * inner + target.multiply_adds * memory
    return min(costs, key=lambda m: costs[m])


def convolve_tiles(x: UOp, weight: UOp, before: Ints, after: Ints, groups: int, m: int) -> UOp:
    """Return the convolution of stride 1, (N, Cin, H, W) with (Cout, Cin / groups, 3, 3) -> (N, Cout, H', W'), by tiles
    of m x m outputs.

    `before` and `after`: the padding of the two spatial axes; negative amounts crop.
    """
    kernel, inputs, outputs = matrices(m)
    t, out = m + 2, weight.shape[0]
    outs = [n + b + a - TAPS + 1 for n, b, a in zip(x.shape[2:], before, after, strict=True)]
    tall, wide = (-(-n // m) for n in outs)
    after_padded = [(k + 1) * m - n - b for k, n, b in zip((tall, wide), x.shape[2:], before, strict=True)]
    x = pad_or_crop(x, before, tuple(after_padded))
    n, channels = x.shape[:2]
    x = _contiguous(x, (0, 2, 3, 1))  # N, height, width, channels: whole vectors of channels at every offset
    x = g.reshape(x, (n, tall + 1, m, wide + 1, m, channels))
    v = _transform(inputs, [_part(x, 1, i // m, tall, i % m) for i in range(t)], 2)
    v = v if m == REGISTER_TILE else _contiguous(v, (2, 0, 1, 3, 4, 5), restore=True)
    v = _transform(inputs, [_part(v, 3, i // m, wide, i % m) for i in range(t)], 4)
    v = g.reshape(_contiguous(v, (2, 4, 0, 1, 3, 5)), (t * t, n * tall * wide, groups, channels // groups))
    u = _contiguous(_transform_both_axes(kernel, _contiguous(weight, (2, 3, 0, 1)), m), range(4))
    u = g.reshape(u, (t * t, groups, out // groups, weight.shape[1]))
    y = matmul(g.permute(v, (0, 2, 1, 3)), g.permute(u, (0, 1, 3, 2)))
    y = g.reshape(_contiguous(y, (0, 2, 1, 3)), (t, t, n, tall, wide, out))
    y = _contiguous(_transform_both_axes(outputs, y, m), (2, 3, 0, 4, 1, 5))  # N, tall, m, wide, m, out
    y = g.permute(g.reshape(y, (n, tall * m, wide * m, out)), (0, 3, 1, 2))
    return g.shrink(y, (0,) * 4, (n, out, *outs))


def _contiguous(u: UOp, order: Iterable[int], *, restore: bool = False) -> UOp:
    """Store `u` with its axes in the order `order`; with `restore`, return a view in the original order."""
    order = tuple(order)
    out = build("CONTIGUOUS", g.permute(u, order))
    return g.permute(out, tuple(order.index(a) for a in range(len(order)))) if restore else out


def _part(u: UOp, axis: int, start: int, n: int, offset_in_tile: int) -> UOp:
    """Return n tiles of `u` from tile `start` on, and of each only the elements at `offset_in_tile`.

    `axis` of `u` counts tiles and the next axis the offset in a tile; that axis keeps size 1.
    """
    offsets, sizes = [0] * len(u.shape), list(u.shape)
    offsets[axis : axis + 2], sizes[axis : axis + 2] = (start, offset_in_tile), (n, 1)
    return g.shrink(u, tuple(offsets), tuple(sizes))


def _transform_both_axes(matrix: Matrix, u: UOp, m: int) -> UOp:
    """Multiply both of the first two axes of `u` by the matrix: in one step if a tile of m x m outputs fits the
    registers, else with the values stored in between.
    """
    u = _transform(matrix, [g.shrink_axis(u, 0, i, 1) for i in range(u.shape[0])], 0)
    u = u if m == REGISTER_TILE else _contiguous(u, range(len(u.shape)))
    return _transform(matrix, [g.shrink_axis(u, 1, i, 1) for i in range(u.shape[1])], 1)


def _transform(matrix: Matrix, parts: list[UOp], axis: int) -> UOp:
    """Multiply the vector whose elements are the nodes `parts` by the matrix, and concatenate the results along `axis`,
    in which each part has size 1.
    """
    return join([_linear_combination(row, parts) for row in matrix], axis)


def _linear_combination(row: tuple[float, ...], parts: list[UOp]) -> UOp:
    """Return the sum of row[i] * parts[i].

    Positive terms come first, so that only a row of one negative term needs a negation.
    """
    (first, x), *terms = sorted(((k, p) for k, p in zip(row, parts, strict=True) if k), key=lambda t: t[0] < 0)
    total = x if first == 1 else g.e("MUL", x, first)
    for k, p in terms:
        if abs(k) == 1:
            total = g.e("ADD" if k > 0 else "SUB", total, p)
        else:
            total = g.multiply_add(p, k, total)
    return total


__all__ = ["best_tile", "convolve_tiles", "matrices"]

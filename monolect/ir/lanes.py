"""How axes become lanes of a workgroup and workgroups of a launch: which can be the same lanes, what fits where.

Axes that no value depends on together can be the same lanes: those that share the sum of a row can, once it is known,
each write a part of the row. Both the optimizer, which must keep within a target's limits, and `device_axes`, which
numbers lanes and workgroups, read this file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeVar

from monolect.base.errors import ActionError

T = TypeVar("T")
MOST_DIMENSIONS = 3  # of a launch, and of a workgroup
MOST_SLOTS = 32  # that each lane reads to join partial results; more are joined in two steps


def shared_lanes(axes: Sequence[tuple[T, int]], nests: Iterable[frozenset[T]]) -> list[list[T]]:
    """The dimensions of a workgroup, each a list of axes that are the same lanes. `axes`: (axis, size), the one whose
    lanes stand side by side first; `nests`: axes that a value depends on together.
    """
    apart = list({n for n in nests if len(n) > 1})
    dims: list[tuple[int, list[T]]] = []
    for axis, size in axes:
        rivals = frozenset().union(*(n for n in apart if axis in n))
        found = next((mine for n, mine in dims if n == size and rivals.isdisjoint(mine)), None)
        if found is None:
            dims.append((size, [axis]))
        else:
            found.append(axis)
    return [mine for _, mine in dims]


def in_warp(sizes: Sequence[int], joined: Sequence[int], warp: int) -> dict[int, list[int]]:
    """For each dimension of `joined` the bits of a lane's number along it that stay within a warp, lowest first: lanes
    that differ in these alone can read each other's registers. `sizes`: all dimensions, neighbouring lanes first.

    Example: `in_warp([8, 64], [1], 32) == {1: [8, 16]}`
    """
    total, out = prod(sizes), {}
    for k in joined:
        stride, bits = prod(sizes[:k]), []
        bit = stride
        while (
            stride & (stride - 1) == 0 and 2 * bit <= warp and sizes[k] % (2 * bit // stride) == 0 == total % (2 * bit)
        ):
            bits.append(bit)
            bit *= 2
        out[k] = bits
    return out


def fitted(sizes: list[int], limits: tuple[int, ...], name: str = "gidx") -> list[int] | None:
    """Dimensions that hold all iterations of `sizes`, innermost first; None: one axis each is within the limits."""
    plain = [*sizes[: MOST_DIMENSIONS - 1], prod(sizes[MOST_DIMENSIONS - 1 :])][: len(sizes)]
    if all(n <= most for n, most in zip(plain, limits, strict=False)):
        return None
    left, out = prod(sizes), []
    for most in limits:
        n = left if left <= most else next((n for n in range(min(most, left), 0, -1) if left % n == 0), 1)
        out.append(n)
        left //= n
    if left > 1:
        raise ActionError(f"too many {name}", expected=f"at most {limits} along the dimensions", found=prod(sizes))
    return out

"""Map loop axes to the dimensions of a workgroup (its lanes) and of a launch (its workgroups), within a target's
limits.

Two axes can share one dimension if no value depends on both. Example: the lanes that add up a row can each write a part
of the row afterwards. The optimizer uses these functions to stay within a target's limits, and the function
`device_axes` uses them to number lanes and workgroups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeVar

from monolect.base.errors import ActionError

T = TypeVar("T")
MOST_DIMENSIONS = 3  # dimensions of a launch, and of a workgroup
MOST_SLOTS = 32  # partial results that one lane reads and combines; more are combined in two steps


def shared_lanes(axes: Sequence[tuple[T, int]], nests: Iterable[frozenset[T]]) -> list[list[T]]:
    """Return the dimensions of a workgroup, each as a list of the axes that are mapped to that dimension.

    `axes`: (axis, size) pairs; the axis that numbers adjacent lanes is first. `nests`: one set for each value of the
    kernel, with the axes that the value depends on. Axes of one set get different dimensions. Axes of one dimension
    have the same size.
    """
    conflicts = list({n for n in nests if len(n) > 1})
    dims: list[tuple[int, list[T]]] = []
    for axis, size in axes:
        rivals = frozenset().union(*(n for n in conflicts if axis in n))
        found = next((mine for n, mine in dims if n == size and rivals.isdisjoint(mine)), None)
        if found is None:
            dims.append((size, [axis]))
        else:
            found.append(axis)
    return [mine for _, mine in dims]


def in_warp(sizes: Sequence[int], joined: Sequence[int], warp: int) -> dict[int, list[int]]:
    """Return, for each dimension number in `joined`, the bits of the lane number that vary along this dimension within
    one warp.

    Lanes that differ only in these bits can read each other's registers. Each bit is given as a power of two, lowest
    first; the list is empty if there are none. `sizes`: sizes of all dimensions of the workgroup; the dimension of
    adjacent lanes is first. `warp`: lanes of a warp.

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
    """Return sizes of launch dimensions within `limits` whose product is the product of `sizes`, innermost dimension
    first.

    `sizes`: sizes of the axes to map, innermost first. `limits`: the target's maximum size of each dimension. Returns
    None if no change is needed: one dimension for each axis, where the last dimension takes all further axes, is within
    `limits`. Raises ActionError if no factorization fits; `name` is used only in its text, as the name of the
    dimensions.
    """
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


__all__ = ["MOST_DIMENSIONS", "MOST_SLOTS", "fitted", "in_warp", "shared_lanes"]

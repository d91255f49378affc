"""Describe how several devices divide the axes of a value: its layout.

A layout is an int (the devices divide that axis), None (each device holds all elements), or, for a mesh of devices, a
tuple of pairs (number of parts, axis or None), one for each axis of the mesh. ((2, 0), (4, 1)) on eight devices divides
axis 0 into 2 parts and each of them along axis 1 into 4. The devices of a mesh are in row-major order: those that
differ only in the last axis of the mesh are neighbours.

Invariant: equal divisions of a mesh have equal layouts. A pair has at least two parts, neighbouring pairs without an
axis are one pair, and a single pair is an int or None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from math import prod
from typing import Any

Pair = tuple[int, int | None]
Layout = int | None | tuple[Pair, ...]


def pairs_of(layout: Layout, n: int) -> tuple[Pair, ...]:
    """Return the pairs (number of parts, axis or None) of a layout over `n` devices."""
    return layout if isinstance(layout, tuple) else ((n, layout),)


def layout_of(pairs: Iterable[Pair]) -> Layout:
    """Return the layout with these pairs, in its one form."""
    out: list[Pair] = []
    for count, axis in pairs:
        if axis is None and out and out[-1][1] is None:
            out[-1] = (out[-1][0] * count, None)
        elif count > 1:
            out.append((count, axis))
    if all(axis is None for _, axis in out):
        return None
    return out[0][1] if len(out) == 1 else tuple(out)


def mapped(layout: Layout, n: int, new_axis: Callable[[int, int], int | None]) -> Layout:
    """Return the layout with `new_axis(axis, number of parts of that axis)` in place of each axis."""
    if layout is None:
        return None
    pairs = pairs_of(layout, n)
    parts = {a: prod(count for count, b in pairs if a == b) for _, a in pairs}
    return layout_of([(count, None if a is None else new_axis(a, parts[a])) for count, a in pairs])


def is_layout(x: Any, n: int, n_axes: int) -> bool:
    """Whether `x` is the layout, in its one form, of a value of `n_axes` axes over `n` devices."""
    if x is None or x.__class__ is int:
        return x is None or 0 <= x < n_axes
    pairs = x if isinstance(x, tuple) else ()
    are_pairs = all(isinstance(p, tuple) and len(p) == 2 and p[0].__class__ is int and p[0] > 1 for p in pairs)
    fits = are_pairs and all(a is None or (a.__class__ is int and 0 <= a < n_axes) for _, a in pairs)
    return bool(pairs) and fits and prod([count for count, _ in pairs]) == n and layout_of(pairs) == x


def axes_of(layout: Layout) -> frozenset[int]:
    """Return the axes that are divided."""
    return frozenset(a for _, a in pairs_of(layout, 0) if a is not None)


def position(layout: Layout, i: int, n: int) -> tuple[int, ...]:
    """Return the index of device `i` of `n` along each pair of the layout."""
    out = []
    for count, _ in reversed(pairs_of(layout, n)):
        i, k = divmod(i, count)
        out.append(k)
    return tuple(reversed(out))


def neighbours(layout: Layout, i: int, n: int, along: Sequence[int]) -> list[int]:
    """Return the devices whose position differs from that of device `i` at most along the pairs numbered `along`, in
    order.
    """
    mine = position(layout, i, n)
    others = [k for k in range(len(mine)) if k not in along]
    return [j for j in range(n) if all(position(layout, j, n)[k] == mine[k] for k in others)]


def common_counts(layouts: Iterable[Layout], n: int) -> tuple[int, ...] | None:
    """Return the numbers of parts of the coarsest mesh of `n` devices whose axes the axes of all the layouts' meshes
    consist of; None if there is none, as for meshes of 2 x 3 and 3 x 2.
    """
    ends = {1, n}
    for layout in layouts:
        end = 1
        for count, _ in pairs_of(layout, n):
            ends.add(end := end * count)
    ordered = sorted(ends)
    fits = all(b % a == 0 for a, b in pairwise(ordered))
    return tuple([b // a for a, b in pairwise(ordered)]) if fits else None


def refined(layout: Layout, n: int, counts: Sequence[int], shape: Sequence[Any]) -> list[int | None] | None:
    """Return the axis of each axis of the finer mesh with the numbers of parts `counts` that the layout of a value of
    `shape` has; None if a finer mesh cuts the value differently, because an axis has parts of unequal sizes.
    """
    out: list[int | None] = []
    rest = iter(counts)
    for count, a in pairs_of(layout, n):
        k, done = 0, 1
        while done < count:
            done *= next(rest)
            out.append(a)
            k += 1
        size = 0 if a is None else shape[a]
        if k > 1 and size.__class__ is int and size % prod(c for c, b in pairs_of(layout, n) if b == a):
            return None
    return out


def span(size: Any, i: int, n: int) -> tuple[Any, Any]:
    """Return (offset, size) of part `i` of `n` of an axis of `size`: parts of the smallest equal size that holds the
    axis, of which the last are shorter or empty. A symbolic size must divide.
    """
    if size.__class__ is not int:
        return size // n * i, size // n
    step = -(-size // n)
    start = min(i * step, size)
    return start, min(step, size - start)


def box(shape: Sequence[Any], layout: Layout, i: int, n: int) -> list[tuple[Any, Any]]:
    """Return (offset, size) of the part of device `i` of `n` along each axis of a value of `shape`."""
    out = [(0, size) for size in shape]
    for (count, a), k in zip(pairs_of(layout, n), position(layout, i, n), strict=True):
        if a is not None:
            start, size = span(out[a][1], k, count)
            out[a] = (out[a][0] + start if out[a][0].__class__ is not int or out[a][0] else start, size)
    return out


def part_shape(shape: Sequence[Any], layout: Layout, i: int, n: int) -> tuple[Any, ...]:
    """Return the shape of the part of device `i` of `n`."""
    return tuple([size for _, size in box(shape, layout, i, n)])


def assembled(parts: Sequence[Any], layout: Layout, join: Callable[[Sequence[Any], int], Any]) -> Any:
    """Return the whole value of the parts of all devices. `join(parts, axis)` concatenates."""
    for count, a in reversed(pairs_of(layout, len(parts))):
        groups = [parts[k : k + count] for k in range(0, len(parts), count)]
        parts = [group[0] if a is None else join(group, a) for group in groups]
    return parts[0]


__all__ = [
    "Layout",
    "Pair",
    "assembled",
    "axes_of",
    "box",
    "common_counts",
    "is_layout",
    "layout_of",
    "mapped",
    "neighbours",
    "pairs_of",
    "part_shape",
    "position",
    "refined",
    "span",
]

"""Sums of padded parts: many disjoint ones are concatenated instead, one axis after the other.

Such a sum tests every element against every part, and may store as many values of full size as there are parts.

Invariant: parts do not overlap. An element outside of all parts is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from monolect.autograd.graph import full
from monolect.ir.uop import UOp

Part = tuple[tuple[int, ...], UOp]  # its offset along each axis, and its value
Cat = Callable[[Sequence[UOp], int], UOp]

MANY_PARTS = 4  # number of disjoint parts from which on they are concatenated


def joined_parts(parts: list[Part], shape: tuple[int, ...], cat: Cat) -> list[Part]:
    """As few parts of a value of `shape` with the same sum. Parts that overlap stay terms of their own."""
    for axis in reversed(range(len(shape))):
        parts = _joined_along(axis, shape[axis], parts, cat)
    return parts


def _joined_along(axis: int, total: int, parts: list[Part], cat: Cat) -> list[Part]:
    """`parts` with those that differ in offset or size along `axis` alone concatenated, if they are MANY_PARTS or more
    and disjoint. `total`: the size of the axis.
    """
    rows: dict[tuple, list[Part]] = {}
    for offsets, g in parts:
        others = (*offsets[:axis], *g.shape[:axis], *offsets[axis + 1 :], *g.shape[axis + 1 :])
        rows.setdefault(others, []).append((offsets, g))
    out: list[Part] = []
    for row in rows.values():
        for layer in _disjoint(axis, row) if len(row) >= MANY_PARTS else [row]:
            if len(layer) < MANY_PARTS:
                out += layer
                continue
            offsets = layer[0][0]
            first = (*offsets[:axis], 0, *offsets[axis + 1 :])
            out.append((first, _between_zeros(axis, total, [(offsets[axis], g) for offsets, g in layer], cat)))
    return out


def _between_zeros(axis: int, total: int, parts: list[tuple[int, UOp]], cat: Cat) -> UOp:
    """An axis of `total` elements that holds disjoint (offset, part), sorted by offset, and zeros elsewhere."""
    pieces: list[UOp] = []
    end = 0
    for offset, g in [*parts, (total, None)]:
        if gap := offset - end:
            like = parts[0][1]
            pieces.append(full((*like.shape[:axis], gap, *like.shape[axis + 1 :]), 0, like.dtype))
        if g is not None:
            pieces.append(g)
            end = offset + g.shape[axis]
    return cat(pieces, axis)


def _disjoint(axis: int, parts: list[Part]) -> list[list[Part]]:
    """`parts` in as few lists as possible. Those of one list are disjoint along `axis` and sorted by offset."""
    ends: list[tuple[int, int]] = []  # a heap of (end of the last part, number) of each list
    out: list[list[Part]] = []
    for offsets, g in sorted(parts, key=lambda p: p[0][axis]):
        if ends and ends[0][0] <= offsets[axis]:
            k = heappop(ends)[1]
        else:
            k = len(out)
            out.append([])
        out[k].append((offsets, g))
        heappush(ends, (offsets[axis] + g.shape[axis], k))
    return out

"""Replace a sum of many disjoint padded parts by concatenations, one axis after the other.

The sum would test every element against every part, and could store one full-size value for each part.

Invariant: parts do not overlap. An element outside of all parts is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush

from monolect.autograd.graph import full
from monolect.ir.uop import UOp

Part = tuple[tuple[int, ...], UOp]  # (offset along each axis, value)
Cat = Callable[[Sequence[UOp], int], UOp]

MANY_PARTS = 4  # disjoint parts; fewer are added up instead of concatenated


def joined_parts(parts: list[Part], shape: tuple[int, ...], cat: Cat) -> list[Part]:
    """Return parts of a value of `shape` that have the same sum as `parts`: many disjoint parts are joined into one.

    A part is (offset along each axis, value), and 0 elsewhere. `cat(values, axis)` is called to concatenate values.
    Parts that overlap, and fewer than MANY_PARTS, are not joined.
    """
    for axis in reversed(range(len(shape))):
        parts = _joined_along(axis, shape[axis], parts, cat)
    return parts


def _joined_along(axis: int, total: int, parts: list[Part], cat: Cat) -> list[Part]:
    """Concatenate parts that differ only in offset or size along `axis`, if at least MANY_PARTS are disjoint.

    Returns the new list of parts, each (offset along each axis, value). `total`: size of the axis. `cat` concatenates
    values along an axis.
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
    """Return disjoint parts, (offset, value) sorted by offset, concatenated along `axis` with zeros in the gaps.

    `total`: size of the axis of the result. `cat` concatenates values along an axis.
    """
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
    """Split `parts`, pairs (offset along each axis, value), into as few lists as possible whose parts are disjoint
    along `axis`; each list is sorted by offset.
    """
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


__all__ = ["MANY_PARTS", "Part", "joined_parts"]

"""Intermediate buffers with disjoint lifetimes share storage.

Every intermediate gets an offset in one arena. Buffers are placed largest first, each at the lowest offset free during
all of its life, so the arena stays near the largest set that is alive at once.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.ir.bounds import size_max
from monolect.ir.normal import count
from monolect.ir.uop import UOp

ALIGN_BYTES = 64


class MemoryPlan(NamedTuple):
    """`offsets[b]` is where intermediate b starts in an arena of `arena_bytes`."""

    offsets: dict[UOp, int]
    arena_bytes: int


def buffer_bytes(b: UOp) -> int:
    """Bytes the storage of BUFFER b takes."""
    return max(1, size_max(count(b.shape)) * b.dtype.itemsize)


def plan_memory(linear: UOp, keep: set[UOp]) -> MemoryPlan:
    """Offsets for the BUFFERs of LINEAR(CALL(kernel, buffers...)...) that are not in `keep`."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for i, call in enumerate(linear.src):
        for b in call.src[1:]:
            if b.op == "BUFFER" and b not in keep:
                first.setdefault(b, i)
                last[b] = i
    offsets: dict[UOp, int] = {}
    placed: list[tuple[int, int, UOp]] = []  # (start, end, buffer), sorted by start
    for b in sorted(first, key=lambda b: (-buffer_bytes(b), first[b])):
        size = -(-buffer_bytes(b) // ALIGN_BYTES) * ALIGN_BYTES
        at = 0
        for start, end, o in placed:
            if first[o] <= last[b] and first[b] <= last[o]:  # alive at the same time
                if start >= at + size:
                    break
                at = max(at, end)
        offsets[b] = at
        placed.append((at, at + size, b))
        placed.sort(key=lambda t: t[0])
    return MemoryPlan(offsets, max((end for _, end, _ in placed), default=0))

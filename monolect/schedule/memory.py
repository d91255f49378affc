"""Intermediate buffers with disjoint lifetimes share storage.

Every intermediate gets an offset in one arena. Buffers are placed largest first, each at the lowest offset free during
all of its life, so the arena stays near the largest set that is alive at once. That compares every buffer with those
placed before it, a few operations on arrays a buffer: thousands of buffers take some hundredths of a second.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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


def plan_memory(linear: UOp, keep: set[UOp], align_bytes: int = ALIGN_BYTES) -> MemoryPlan:
    """Offsets for the BUFFERs of LINEAR(CALL(kernel, buffers...)...) that are not in `keep`."""
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for i, call in enumerate(linear.src):
        for b in call.src[1:]:
            if b.op == "BUFFER" and b not in keep:
                first.setdefault(b, i)
                last[b] = i
    offsets: dict[UOp, int] = {}
    placed = Placed(len(first))
    for b in sorted(first, key=lambda b: (-buffer_bytes(b), first[b])):
        size = -(-buffer_bytes(b) // align_bytes) * align_bytes
        offsets[b] = placed.lowest(size, first[b], last[b])
        placed.add(offsets[b], size, first[b], last[b])
    return MemoryPlan(offsets, placed.n_bytes)


class Placed:
    """Blocks of the arena and the steps they are alive in, as rows sorted by address: searched as whole arrays."""

    def __init__(self, most: int):
        self.rows = np.empty((4, most), np.int64)  # start, end, first step, last step
        self.n = self.n_bytes = 0

    def lowest(self, size: int, first: int, last: int) -> int:
        """The lowest address from which `size` bytes are free from step `first` to `last`."""
        start, end, begin, until = self.rows[:, : self.n]
        busy = (begin <= last) & (until >= first)
        start, end = start[busy], np.maximum.accumulate(end[busy])
        free_from = np.concatenate(([0], end))
        fits = start - free_from[:-1] >= size
        return int(free_from[fits.argmax() if fits.any() else -1])

    def add(self, start: int, size: int, first: int, last: int) -> None:
        """Take this block."""
        at = int(np.searchsorted(self.rows[0, : self.n], start))
        self.rows[:, at + 1 : self.n + 1] = self.rows[:, at : self.n]
        self.rows[:, at] = start, start + size, first, last
        self.n, self.n_bytes = self.n + 1, max(self.n_bytes, start + size)

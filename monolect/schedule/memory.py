"""Intermediate buffers with disjoint lifetimes share storage.

Every intermediate gets an offset in one arena. Buffers are placed largest first, each at the lowest offset free during
all of its life, so the arena stays near the largest set that is alive at once. That compares every buffer with those
placed before it: thousands of buffers take some hundredths of a second. Walks through time that keep lists of what is
free take less time and up to a sixth more memory (for GPT-2's size), so that is not what is done.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping
from typing import Any, NamedTuple

from monolect.base.numpy import np
from monolect.ir.bounds import size_max
from monolect.ir.normal import count
from monolect.ir.uop import UOp

ALIGN_BYTES = 64
FEW = 1024  # blocks that are compared one by one: faster than whole arrays


class MemoryPlan(NamedTuple):
    """`offsets[b]` is where intermediate b starts in an arena of `arena_bytes`."""

    offsets: dict[Any, int]
    arena_bytes: int


class Life(NamedTuple):
    """What an intermediate takes: its bytes, and the first and the last step that touch it."""

    n_bytes: int
    first: int
    last: int


def buffer_bytes(b: UOp) -> int:
    """Bytes the storage of BUFFER b takes."""
    return max(1, size_max(count(b.shape)) * b.dtype.itemsize)


def plan_memory(linear: UOp, keep: set[UOp], align_bytes: int = ALIGN_BYTES) -> MemoryPlan:
    """Offsets for the BUFFERs of LINEAR(CALL(kernel, buffers...)...) that are not in `keep`."""
    lives: dict[UOp, Life] = {}
    for i, call in enumerate(linear.src):
        for b in call.src[1:]:
            if b.op == "BUFFER" and b not in keep:
                lives[b] = lives[b]._replace(last=i) if b in lives else Life(buffer_bytes(b), i, i)
    return place(lives, align_bytes)


def place(lives: Mapping[Any, Life], align_bytes: int = ALIGN_BYTES) -> MemoryPlan:
    """An offset for each of `lives`; what is alive at the same step lies apart."""
    offsets: dict[Any, int] = {}
    placed = Placed() if len(lives) <= FEW else PlacedMany(len(lives))
    for b, life in sorted(lives.items(), key=lambda item: (-item[1].n_bytes, item[1].first)):
        size = -(-life.n_bytes // align_bytes) * align_bytes
        offsets[b] = placed.lowest(size, life.first, life.last)
        placed.add(offsets[b], size, life.first, life.last)
    return MemoryPlan(offsets, placed.n_bytes)


class Placed:
    """Blocks of the arena, by address, and the steps they are alive in: (start, end, first step, last step)."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int, int, int]] = []
        self.n_bytes = 0

    def lowest(self, size: int, first: int, last: int) -> int:
        """The lowest address from which `size` bytes are free from step `first` to `last`."""
        free_from = 0
        for start, end, begin, until in self.blocks:
            if begin <= last and until >= first:
                if start - free_from >= size:
                    break
                if end > free_from:
                    free_from = end
        return free_from

    def add(self, start: int, size: int, first: int, last: int) -> None:
        """Take this block."""
        insort(self.blocks, (start, start + size, first, last))
        self.n_bytes = max(self.n_bytes, start + size)


class PlacedMany(Placed):
    """The same for many: rows of an array, searched as a whole."""

    def __init__(self, most: int) -> None:
        self.rows = np.empty((4, most), np.int64)
        self.n = self.n_bytes = 0

    def lowest(self, size: int, first: int, last: int) -> int:
        start, end, begin, until = self.rows[:, : self.n]
        busy = (begin <= last) & (until >= first)
        start, end = start[busy], np.maximum.accumulate(end[busy])
        free_from = np.concatenate(([0], end))
        fits = start - free_from[:-1] >= size
        return int(free_from[fits.argmax() if fits.any() else -1])

    def add(self, start: int, size: int, first: int, last: int) -> None:
        at = int(np.searchsorted(self.rows[0, : self.n], start))
        self.rows[:, at + 1 : self.n + 1] = self.rows[:, at : self.n]
        self.rows[:, at] = start, start + size, first, last
        self.n, self.n_bytes = self.n + 1, max(self.n_bytes, start + size)

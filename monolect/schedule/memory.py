"""Intermediate buffers with disjoint lifetimes share storage.

Every intermediate gets an offset in one arena. Buffers are placed largest first, each at the lowest offset free during
all of its life, so the arena stays near the largest set that is alive at once. That compares every buffer with those
placed before it: thousands of buffers take some hundredths of a second. Walks through time that keep lists of what is
free take less time and up to a sixth more memory (for GPT-2's size), so that is not what is done.

On devices that run launches side by side, a place that is taken again is a reason to wait. A large intermediate is
worth that: who writes it has work for the whole device. A small one stays apart from those of launches beside it.
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
SMALL_BYTES = 1 << 20  # a GPU's lanes, 270 thousand on an H200, write less than this at once, a word each
MOST_APART_BYTES = 64 << 20  # that an arena may be larger for launches side by side


class MemoryPlan(NamedTuple):
    """`offsets[b]` is where intermediate b starts in an arena of `arena_bytes`."""

    offsets: dict[Any, int]
    arena_bytes: int


class Life(NamedTuple):
    """What an intermediate takes: its bytes, and the first and the last step that touch it; where steps may run side by
    side, all that touch it, as bits, and all that the first of them comes after.
    """

    n_bytes: int
    first: int
    last: int
    users: int = 0
    before: int = 0

    def is_beside(self, other: Life) -> bool:
        """Whether both may be alive at the same time, when steps wait only for what they come after."""
        return bool(other.users & ~self.before and self.users & ~other.before)


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
    return _placed(lives, align_bytes, Placed() if len(lives) <= FEW else PlacedMany(len(lives)))


def place_apart(lives: Mapping[Any, Life], align_bytes: int = ALIGN_BYTES) -> MemoryPlan:
    """The same, and small ones lie apart from all that may be alive beside them, if there is memory for that."""
    least = place(lives, align_bytes)
    if len(lives) > FEW:
        return least
    apart = _placed(lives, align_bytes, PlacedApart())
    return apart if apart.arena_bytes <= least.arena_bytes + MOST_APART_BYTES else least


def _placed(lives: Mapping[Any, Life], align_bytes: int, placed: Placed) -> MemoryPlan:
    offsets: dict[Any, int] = {}
    for b, life in sorted(lives.items(), key=lambda item: (-item[1].n_bytes, item[1].first)):
        size = -(-life.n_bytes // align_bytes) * align_bytes
        offsets[b] = placed.lowest(size, life)
        placed.add(offsets[b], size, life)
    return MemoryPlan(offsets, placed.n_bytes)


class Placed:
    """Blocks of the arena, by address, and the lives of what is in them: (start, end, number, life)."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int, int, Life]] = []
        self.n_bytes = 0

    def lowest(self, size: int, life: Life) -> int:
        """The lowest address from which `size` bytes are free during all of `life`."""
        free_from = 0
        for start, end, _, other in self.blocks:
            if self.collide(life, other):
                if start - free_from >= size:
                    break
                if end > free_from:
                    free_from = end
        return free_from

    def collide(self, life: Life, other: Life) -> bool:
        """Whether two may not share memory."""
        return life.first <= other.last and other.first <= life.last

    def add(self, start: int, size: int, life: Life) -> None:
        """Take this block."""
        insort(self.blocks, (start, start + size, len(self.blocks), life))
        self.n_bytes = max(self.n_bytes, start + size)


class PlacedApart(Placed):
    """The same, for steps side by side; see the module docstring."""

    def collide(self, life: Life, other: Life) -> bool:
        is_small = min(life.n_bytes, other.n_bytes) <= SMALL_BYTES
        return super().collide(life, other) or (is_small and life.is_beside(other))


class PlacedMany(Placed):
    """The same for many: rows of an array, searched as a whole."""

    def __init__(self, most: int) -> None:
        self.rows = np.empty((4, most), np.int64)
        self.n = self.n_bytes = 0

    def lowest(self, size: int, life: Life) -> int:
        start, end, begin, until = self.rows[:, : self.n]
        busy = (begin <= life.last) & (until >= life.first)
        start, end = start[busy], np.maximum.accumulate(end[busy])
        free_from = np.concatenate(([0], end))
        fits = start - free_from[:-1] >= size
        return int(free_from[fits.argmax() if fits.any() else -1])

    def add(self, start: int, size: int, life: Life) -> None:
        at = int(np.searchsorted(self.rows[0, : self.n], start))
        self.rows[:, at + 1 : self.n + 1] = self.rows[:, at : self.n]
        self.rows[:, at] = start, start + size, life.first, life.last
        self.n, self.n_bytes = self.n + 1, max(self.n_bytes, start + size)

"""Intermediate buffers with disjoint lifetimes share storage: views of one arena.

Before: LINEAR(CALL(a, B1, P0), CALL(b, B2, B1), CALL(c, P1, B2))              B1, B2 f32[16]
After:  LINEAR(CALL(a, BITCAST(SHRINK(arena, 0, 64)), P0), CALL(b, BITCAST(SHRINK(arena, 64, 64)), ..), ..)

Every intermediate gets an offset in one arena. Buffers are placed largest first, each at the lowest offset free during
all of its life, so the arena stays near the largest set that is alive at once. That compares every buffer with those
placed before it: thousands of buffers take some hundredths of a second. Walks through time that keep lists of what is
free take less time and up to a sixth more memory (for GPT-2's size), so that is not what is done.

On devices that run launches side by side, a place that is taken again is a reason to wait. A large intermediate is
worth that: who writes it has work for the whole device. A small one stays apart from those of launches beside it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from monolect.base.numpy import np
from monolect.base.target import Target
from monolect.command.forms import (
    ARENA,
    base_of,
    buffer_bytes,
    calls_in,
    extent,
    home,
    is_frame,
    items_of,
    kernel_of,
    memory,
    once_of,
    operands_of,
    program_of,
    read_operand,
    rebuilt,
    view,
    with_operands,
    with_program,
    writes,
)
from monolect.command.rewrites.dependencies import all_before, needs, uses_of
from monolect.command.rewrites.group import reused
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


# ---- steps -----------------------------------------------------------------------------------------------------------
def plan_memory(step: UOp, target: Target) -> UOp:
    """The pass: every BUFFER that the items write becomes a view of the arena, but for what items of "once" leave to
    the others. Values that a padded frame surrounds share memory with equal frames, and with nothing else.
    """
    linear = program_of(step)
    once, items = once_of(linear), items_of(linear)
    order = calls_in(items)
    late_bases = {b for c in order for b in map(base_of, operands_of(c))}
    kept = {b for c in once if not is_frame(c) for b in _written(c) if b in late_bases}
    is_graph = target.concurrency == "graph"
    when = [*range(len(once)), *(len(once) + t for t in (range(len(order)) if is_graph else _times(items)))]
    lives: dict[UOp, Life] = {}
    behind = _behind(once, order, step) if is_graph else [0] * len(when)
    kept |= {base_of(c.src[0]) for c in order if c.op == "STORE"}  # a copy is to the first byte of a memory
    private = {b for c in (*once, *order) for b in _written(c) if b.op == "BUFFER"} - kept
    for i, (at, c) in enumerate(zip(when, (*once, *order), strict=True)):
        if is_frame(c) and i < len(once):
            continue  # a frame stays as it is, also while its middle holds nothing
        for b in map(base_of, operands_of(c)):
            if b in private:
                life = lives.get(b) or Life(buffer_bytes(b), at, at, 0, behind[i])
                lives[b] = life._replace(last=at, users=life.users | 1 << i)
    places: dict[UOp, tuple[UOp, int]] = {}
    for dev in dict.fromkeys(home(b, target.name) for b in lives):
        mine = {b: life for b, life in lives.items() if home(b, target.name) == dev}
        offsets, n_bytes = _placed_in_groups(mine, once, target)
        arena = memory(ARENA, n_bytes, dev)
        places.update((b, (arena, offset)) for b, offset in offsets.items())
    if not places:
        return step
    new = {b: view(a, at, buffer_bytes(b) // b.dtype.itemsize, b.dtype) for b, (a, at) in places.items()}
    moved = [_moved(c, new, places) for c in (*once, *order)]
    first, rest = moved[: len(once)], rebuilt(items, moved[len(once) :])
    return with_program(step, rest, first)


def _written(c: UOp) -> list[UOp]:
    operands = operands_of(c)
    return [base_of(operands[k]) for k in writes(c)]


def _times(items: Sequence[UOp]) -> Iterator[int]:
    """For each CALL a time, by which lives are compared: members of a GROUP, and of a loop, are at the same time."""
    now = count()
    at, depth = next(now), 0
    for u in items:
        depth += (u.op == "RANGE") - (u.op == "END")
        if u.op == "GROUP" or u.op in ("CALL", "STORE"):
            if not depth:
                at = next(now)
            yield from (at for _ in (u.src if u.op == "GROUP" else (u,)))
        elif u.op in ("RANGE", "END"):
            at = next(now)


def _moved(c: UOp, new: Mapping[UOp, UOp], places: Mapping[UOp, tuple[UOp, int]]) -> UOp:
    """An item whose intermediates are in an arena."""
    operands = []
    for u in operands_of(c):
        if u in new:
            u = new[u]
        elif u.op not in ("PARAM", "BUFFER") and (b := (at := read_operand(u)).base) in new:
            arena, first = places[b]
            u = view(arena, first + at.offset, buffer_bytes(u) // u.dtype.itemsize, u.dtype)
        operands.append(u)
    return with_operands(c, operands)


def _placed_in_groups(lives: dict[UOp, Life], once: Sequence[UOp], target: Target) -> tuple[dict[UOp, int], int]:
    """Offsets of buffers by their lives, and the bytes of all."""
    groups: dict[Any, dict[UOp, Life]] = {None: lives}
    for c in once:
        if is_frame(c):
            at = [(extent(u), buffer_bytes(base_of(u))) for u in operands_of(c)]
            group = groups.setdefault((kernel_of(c), *at), {})  # a kernel that was rebased serves several places
            group.update((b, lives.pop(b)) for b in _written(c) if b in lives)
    offsets: dict[UOp, int] = {}
    n_bytes = 0
    for group in groups.values():
        plan = (place_apart if target.concurrency == "graph" else place)(group, target.align_bytes)
        offsets.update((b, n_bytes + offset) for b, offset in plan.offsets.items())
        n_bytes += plan.arena_bytes
    return offsets, n_bytes


def _behind(once: Sequence[UOp], order: Sequence[UOp], step: UOp) -> list[int]:
    """For each item all that it comes after, as bits, where the last ones run but for what they need side by side."""
    n = len(once)
    same = reused(step)
    after = [[j for row in rows for j in row] for rows in needs([uses_of(c, same) for c in order])]
    first = [(1 << i) - 1 for i in range(n)]
    return first + [b << n | (1 << n) - 1 for b in all_before(after)]

"""Plan memory: intermediate buffers with disjoint lifetimes share bytes of one arena.

Before: LINEAR(CALL(a, B1, P0), CALL(b, B2, B1), CALL(c, P1, B2))              B1, B2 f32[16]
After:  LINEAR(CALL(a, BITCAST(SHRINK(arena, 0, 64)), P0), CALL(b, BITCAST(SHRINK(arena, 64, 64)), ..), ..)

Every intermediate gets an offset in the arena of its device. Buffers are assigned largest first, each at the lowest
offset that is free during its lifetime, so the arena stays near the largest set that is alive at once. Each buffer is
compared with all that were assigned before: some hundredths of a second for thousands of buffers. A linear scan over
time with free lists is faster, but takes up to a sixth more memory (for GPT-2's size).

On devices that run launches concurrently, reused memory adds a dependency. For a large intermediate that is worth it:
its writer has work for the whole device. A small one does not share memory with intermediates of concurrent launches.
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
    SHARED_ARENA,
    base_of,
    buffer_bytes,
    calls_in,
    extent,
    home,
    is_allreduce,
    is_collective,
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

ALIGN_BYTES = 64  # alignment of intermediates in the arena, if the target has no other
MAX_LISTED_BLOCKS = 1024  # blocks up to which a Python list is faster than NumPy arrays
SMALL_BYTES = 1 << 20  # bytes that all lanes of a GPU write at once, a word each (270 thousand lanes on an H200)
MAX_EXTRA_BYTES = 64 << 20  # bytes by which an arena may grow so that concurrent launches share no memory


class MemoryPlan(NamedTuple):
    """The byte offset of each intermediate in an arena of `arena_bytes` bytes.
    `plan_memory` replaces each intermediate by a view of the arena at its offset.
    """

    offsets: dict[Any, int]
    arena_bytes: int


class Life(NamedTuple):
    """The lifetime of an intermediate: its size in bytes, and the times of the first and the last item that touch it.

    If items run concurrently, also two bit sets of item numbers: `users` are the items that touch the intermediate,
    `before` those that precede the first user.
    """

    n_bytes: int
    first: int
    last: int
    users: int = 0
    before: int = 0

    def is_concurrent(self, other: Life) -> bool:
        """Return whether this intermediate and `other` may be alive at the same time, if items wait only for their
        predecessors.
        """
        return bool(other.users & ~self.before and self.users & ~other.before)


def assign_offsets(lives: Mapping[Any, Life], align_bytes: int = ALIGN_BYTES) -> MemoryPlan:
    """Return a MemoryPlan with an offset for each of `lives` (intermediate -> Life), a multiple of `align_bytes`.

    Intermediates that are alive at the same time do not overlap.
    """
    return _assigned(lives, align_bytes, Blocks() if len(lives) <= MAX_LISTED_BLOCKS else ManyBlocks(len(lives)))


def assign_offsets_concurrent(lives: Mapping[Any, Life], align_bytes: int = ALIGN_BYTES) -> MemoryPlan:
    """Return a MemoryPlan with an offset for each of `lives` (intermediate -> Life), a multiple of `align_bytes`, for
    items that run concurrently.

    Small intermediates do not overlap with any that may be alive at the same time, given the order of the items. If the
    arena would grow by more than MAX_EXTRA_BYTES, or there are more than MAX_LISTED_BLOCKS intermediates, return the
    plan of `assign_offsets`, for items that run in sequence.
    """
    least = assign_offsets(lives, align_bytes)
    if len(lives) > MAX_LISTED_BLOCKS:
        return least
    apart = _assigned(lives, align_bytes, ConcurrentBlocks())
    return apart if apart.arena_bytes <= least.arena_bytes + MAX_EXTRA_BYTES else least


def _assigned(lives: Mapping[Any, Life], align_bytes: int, blocks: Blocks) -> MemoryPlan:
    """Return a MemoryPlan that gives each of `lives`, largest first, the lowest free offset in `blocks`, which is empty
    at first.

    Sizes are rounded up to multiples of `align_bytes`.
    """
    offsets: dict[Any, int] = {}
    for b, life in sorted(lives.items(), key=lambda item: (-item[1].n_bytes, item[1].first)):
        size = -(-life.n_bytes // align_bytes) * align_bytes
        offsets[b] = blocks.lowest(size, life)
        blocks.add(offsets[b], size, life)
    return MemoryPlan(offsets, blocks.n_bytes)


class Blocks:
    """The allocated blocks of an arena in the order of addresses, as tuples (start, end, number of the block, its
    Life).
    It finds the free offset for the next block, in a scan over all blocks. `n_bytes`: size of the arena so far.
    """

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int, int, Life]] = []
        self.n_bytes = 0

    def lowest(self, size: int, life: Life) -> int:
        """Return the lowest offset from which `size` bytes are free during the lifetime `life`."""
        free_from = 0
        for start, end, _, other in self.blocks:
            if self.collide(life, other):
                if start - free_from >= size:
                    break
                if end > free_from:
                    free_from = end
        return free_from

    def collide(self, life: Life, other: Life) -> bool:
        """Return whether intermediates with the lifetimes `life` and `other` must not overlap in memory."""
        return life.first <= other.last and other.first <= life.last

    def add(self, start: int, size: int, life: Life) -> None:
        """Record that the `size` bytes from offset `start` on are allocated during the lifetime `life`."""
        insort(self.blocks, (start, start + size, len(self.blocks), life))
        self.n_bytes = max(self.n_bytes, start + size)


class ConcurrentBlocks(Blocks):
    """The allocated blocks of an arena for items that run concurrently.

    Intermediates that are alive at the same time, if items run in order, never overlap. Those that may be alive at the
    same time only if items run concurrently may overlap if both have more than SMALL_BYTES; an item then waits.
    """

    def collide(self, life: Life, other: Life) -> bool:
        is_small = min(life.n_bytes, other.n_bytes) <= SMALL_BYTES
        return super().collide(life, other) or (is_small and life.is_concurrent(other))


class ManyBlocks(Blocks):
    """The allocated blocks of an arena as a NumPy array, which is faster for many intermediates. `most`: the largest
    number of blocks.
    """

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
    """The pass: return `step` with the BUFFERs that its items write replaced by views of the arena of their device;
    those of sums over processes by views of an arena that other processes may reach.

    Destinations of copies, and results of items that run once and that other items use, keep their own BUFFER. A BUFFER
    with a padded frame (`forms.is_frame`) shares memory only with BUFFERs that have an equal frame. `target` gives the
    alignment, and says whether items run concurrently.
    """
    linear = program_of(step)
    once, items = once_of(linear), items_of(linear)
    order = calls_in(items)
    late_bases = {b for c in order for b in map(base_of, operands_of(c))}
    kept = {b for c in once if not is_frame(c) for b in _written(c) if b in late_bases}
    is_graph = target.concurrency == "graph"
    when = [*range(len(once)), *(len(once) + t for t in (range(len(order)) if is_graph else _times(items)))]
    lives: dict[UOp, Life] = {}
    predecessors = _predecessors(once, order, step) if is_graph else [0] * len(when)
    kept |= {base_of(c.src[0]) for c in order if c.op == "STORE"}  # a copy needs a destination at offset 0
    private = {b for c in (*once, *order) for b in _written(c) if b.op == "BUFFER"} - kept
    for i, (at, c) in enumerate(zip(when, (*once, *order), strict=True)):
        if is_frame(c) and i < len(once):
            continue  # a frame's lifetime is that of the values inside
        for b in map(base_of, operands_of(c)):
            if b in private:
                life = lives.get(b) or Life(buffer_bytes(b), at, at, 0, predecessors[i])
                lives[b] = life._replace(last=at, users=life.users | 1 << i)
    for b, at in _held_by_messages([*once, *order], when):
        if b in lives:
            lives[b] = lives[b]._replace(last=max(lives[b].last, at))
    locations: dict[UOp, tuple[UOp, int]] = {}
    summed = {base_of(u) for c in (*once, *order) if is_allreduce(c) for u in operands_of(c)}
    arena_of = {b: (SHARED_ARENA if b in summed else ARENA, home(b, target.name)) for b in lives}
    for slot, dev in dict.fromkeys(arena_of.values()):
        mine = {b: life for b, life in lives.items() if arena_of[b] == (slot, dev)}
        offsets, n_bytes = _offsets_by_group(mine, once, target)
        arena = memory(slot, n_bytes, dev)
        locations.update((b, (arena, offset)) for b, offset in offsets.items())
    if not locations:
        return step
    new = {b: view(a, at, buffer_bytes(b) // b.dtype.itemsize, b.dtype) for b, (a, at) in locations.items()}
    moved = [_in_arena(c, new, locations) for c in (*once, *order)]
    first, rest = moved[: len(once)], rebuilt(items, moved[len(once) :])
    return with_program(step, rest, first)


def _written(c: UOp) -> list[UOp]:
    """Return the PARAMs and BUFFERs that the item `c` writes."""
    operands = operands_of(c)
    return [base_of(operands[k]) for k in writes(c)]


def _held_by_messages(items: Sequence[UOp], when: Sequence[int]) -> Iterator[tuple[UOp, int]]:
    """Yield each PARAM and BUFFER that a sum over processes reads, with the time at which the first item needs the
    result: until then the sum may run beside other items. `when`: the time of each item.
    """
    for k, c in enumerate(items):
        if is_collective(c):
            results = _written(c)
            users = (i for i in range(k + 1, len(items)) if any(base_of(u) in results for u in operands_of(items[i])))
            until = when[next(users, len(items) - 1)]
            yield from ((base_of(u), until) for u in operands_of(c))


def _times(items: Sequence[UOp]) -> Iterator[int]:
    """Yield a time (an int) for each CALL and copy in `items`, to compare lifetimes. The members of a GROUP or of a
    loop have the same time.
    """
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


def _in_arena(c: UOp, new: Mapping[UOp, UOp], locations: Mapping[UOp, tuple[UOp, int]]) -> UOp:
    """Return the item `c` with its intermediates replaced by views of an arena.

    `new`: the view of each intermediate as a whole. `locations`: (arena, byte offset) of each intermediate.
    """
    operands = []
    for u in operands_of(c):
        if u in new:
            u = new[u]
        elif u.op not in ("PARAM", "BUFFER") and (b := (at := read_operand(u)).base) in new:
            arena, first = locations[b]
            u = view(arena, first + at.offset, buffer_bytes(u) // u.dtype.itemsize, u.dtype)
        operands.append(u)
    return with_operands(c, operands)


def _offsets_by_group(lives: dict[UOp, Life], once: Sequence[UOp], target: Target) -> tuple[dict[UOp, int], int]:
    """Return ({intermediate: byte offset in the arena}, bytes of the arena) for the intermediates in `lives`.

    `once`: the items that run once. BUFFERs with equal padded frames form a group, which has its own range of the
    arena. `target` gives the alignment, and says whether items run concurrently.
    """
    groups: dict[Any, dict[UOp, Life]] = {None: lives}
    for c in once:
        if is_frame(c):
            at = [(extent(u), buffer_bytes(base_of(u))) for u in operands_of(c)]
            group = groups.setdefault((kernel_of(c), *at), {})  # a rebased kernel stores frames at several offsets
            group.update((b, lives.pop(b)) for b in _written(c) if b in lives)
    offsets: dict[UOp, int] = {}
    n_bytes = 0
    for group in groups.values():
        plan = (assign_offsets_concurrent if target.concurrency == "graph" else assign_offsets)(
            group, target.align_bytes
        )
        offsets.update((b, n_bytes + offset) for b, offset in plan.offsets.items())
        n_bytes += plan.arena_bytes
    return offsets, n_bytes


def _predecessors(once: Sequence[UOp], order: Sequence[UOp], step: UOp) -> list[int]:
    """Return, for each item of `step`, a bit set of the numbers of the items that it comes after.

    The items are `once`, those that run once in sequence, and then `order`, which run concurrently.
    """
    n = len(once)
    same = reused(step)
    after = [[j for row in rows for j in row] for rows in needs([uses_of(c, same) for c in order])]
    first = [(1 << i) - 1 for i in range(n)]
    return first + [b << n | (1 << n) - 1 for b in all_before(after)]


__all__ = [
    "ALIGN_BYTES",
    "Blocks",
    "ConcurrentBlocks",
    "Life",
    "ManyBlocks",
    "MemoryPlan",
    "SMALL_BYTES",
    "assign_offsets",
    "assign_offsets_concurrent",
    "plan_memory",
]

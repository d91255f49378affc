"""Which launches a launch must come after, in the sense of memory: for devices whose command buffers are graphs.

A launch comes after the last writer of what it reads, and after the last writer of what it writes with all who read
that since. Memory is buffers, by number, and ranges of bytes of the arena, where intermediates follow each other.

What it is not: it knows no addresses. What a call brings may be bound anywhere, also twice, as none of it is written:
written is memory that nobody else holds, or that of a donated argument, which `same` tells.
Invariant: of two launches one of which writes what the other touches, the later one is behind the earlier one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from monolect.ir.call import stored_slots
from monolect.ir.uop import UOp
from monolect.schedule.memory import buffer_bytes


class Use(NamedTuple):
    """What a launch touches, and what it writes of that, by number."""

    touched: Collection[int]
    written: Collection[int]


def written(args: Sequence[int], call: UOp) -> dict[int, int]:
    """Of the buffers `args` that a launch of `call` takes, by number, those it stores in, and their bytes."""
    return {args[k]: buffer_bytes(call.src[1 + k]) for k in stored_slots(call.src[0])}


class _Piece(NamedTuple):
    """A range of bytes that begins at `start`, its last writer, -1 where there is none, and who read it since."""

    start: int
    writer: int
    readers: list[int]


class _Memory:
    """One memory, in pieces up to where the next begins."""

    def __init__(self) -> None:
        self.pieces = [_Piece(0, -1, [])]

    def _cut(self, at: int) -> int:
        """The number of the piece that begins there."""
        k = bisect_left(self.pieces, at, key=lambda p: p.start)
        if k == len(self.pieces) or self.pieces[k].start != at:
            _, writer, readers = self.pieces[k - 1]
            self.pieces.insert(k, _Piece(at, writer, [*readers]))
        return k

    def read(self, i: int, start: int, end: int) -> set[int]:
        """The launches that launch `i`, which reads these bytes, comes after."""
        first = self._cut(start)
        pieces = self.pieces[first : self._cut(end)]
        for p in pieces:
            p.readers.append(i)
        return {p.writer for p in pieces}

    def write(self, i: int, start: int, end: int) -> set[int]:
        """The launches that launch `i`, which writes these bytes, comes after."""
        first, last = self._cut(start), self._cut(end)
        found = {j for p in self.pieces[first:last] for j in (p.writer, *p.readers)}
        self.pieces[first:last] = [_Piece(start, i, [])]
        return found


def dependencies(
    uses: Sequence[Use], ranges: Mapping[int, tuple[int, int]], same: Mapping[int, int]
) -> tuple[tuple[int, ...], ...]:
    """For each launch those that it waits for; not those which one of them waits for.

    `ranges`: the bytes of the arena that a buffer takes, from and to. `same`: buffers that may be in the memory of
    another, by number.
    """
    written = {same.get(n, n) for u in uses for n in u.written}
    arena = _Memory()
    others: dict[int, _Memory] = {}
    out: list[tuple[int, ...]] = []
    behind: list[int] = []  # all that a launch comes after, as bits
    for i, u in enumerate(uses):
        found: set[int] = set()
        for n in u.touched:
            if (m := same.get(n, n)) in written or n in ranges:  # who reads what nobody writes waits for nobody
                memory = arena if n in ranges else others.setdefault(m, _Memory())
                use = memory.write if n in u.written else memory.read
                found |= use(i, *ranges.get(n, (0, 1)))
        needed, known = _fewest(found - {-1, i}, behind)
        out.append(needed)
        behind.append(known)
    return tuple(out)


def all_before(after: Sequence[Sequence[int]]) -> list[int]:
    """For each launch everything it comes after, as bits."""
    behind: list[int] = []
    for needed in after:
        behind.append(_fewest(needed, behind)[1])
    return behind


def _fewest(found: Collection[int], behind: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """What of `found` no other of it comes after, and all that these come after with themselves, as bits."""
    known = 0
    needed = []
    for j in sorted(found, reverse=True):  # the latest first, as it may be behind others
        if not known >> j & 1:
            needed.append(j)
            known |= behind[j] | 1 << j
    return tuple(reversed(needed)), known


__all__ = ["Use", "all_before", "dependencies", "written"]

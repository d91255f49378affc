"""What each item must come after, in the sense of memory.

An item comes after the last writer of what it reads, and after the last writer of what it writes with all that read it
since. In the arena, where intermediates follow each other, that is asked of bytes; elsewhere of whole buffers. An item
names the fewest: none that comes before another one that it names.

Before: LINEAR(CALL(a, B, P0), CALL(b, P1, B))
After:  LINEAR(CALL(a, B, P0), CALL(b, P1, AFTER(B, CALL(a, B, P0))))
What a call brings may be bound anywhere, also twice, as none of it is written: written is memory that nobody else
holds, or that of a donated argument, which `StepInfo.reuse` tells.
Invariant: of two items one of which writes what the other touches, the later one is behind the earlier one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from typing import NamedTuple

from monolect.command.forms import (
    calls_in,
    extent,
    is_arena,
    items_of,
    once_of,
    operands_of,
    program_of,
    read_operand,
    rebuilt,
    with_operands,
    with_program,
    writes,
)
from monolect.command.rewrites.group import reused
from monolect.ir.uop import UOp, node


class Use(NamedTuple):
    """One operand: its buffer, the bytes of it, None for all, and whether the item writes it."""

    base: UOp
    span: tuple[int, int] | None
    is_write: bool


class _Piece(NamedTuple):
    """A range of bytes that begins at `start`, its last writer, -1 where there is none, and who read it since."""

    start: int
    writer: int
    readers: list[int]


class _Bytes:
    """Memory of which items use parts, in pieces up to where the next begins."""

    def __init__(self) -> None:
        self.pieces = [_Piece(0, -1, [])]

    def _cut(self, at: int) -> int:
        """The number of the piece that begins there."""
        k = bisect_left(self.pieces, at, key=lambda p: p.start)
        if k == len(self.pieces) or self.pieces[k].start != at:
            _, writer, readers = self.pieces[k - 1]
            self.pieces.insert(k, _Piece(at, writer, [*readers]))
        return k

    def use(self, i: int, u: Use) -> set[int]:
        """The items that item `i` comes after for this operand."""
        assert u.span is not None
        first = self._cut(u.span[0])
        last = self._cut(u.span[1])
        pieces = self.pieces[first:last]
        if u.is_write:
            self.pieces[first:last] = [_Piece(u.span[0], i, [])]
            return {j for p in pieces for j in (p.writer, *p.readers)}
        for p in pieces:
            p.readers.append(i)
        return {p.writer for p in pieces}


class _Whole:
    """Memory that items use as a whole."""

    def __init__(self) -> None:
        self.writer, self.readers = -1, list[int]()

    def use(self, i: int, u: Use) -> set[int]:
        """See `_Bytes.use`."""
        found = {self.writer, *self.readers} if u.is_write else {self.writer}
        if u.is_write:
            self.writer, self.readers = i, []
        else:
            self.readers.append(i)
        return found


def needs(uses: Sequence[Sequence[Use]]) -> list[list[tuple[int, ...]]]:
    """For each item and operand the items that it must come after, each named once; not those behind another."""
    written = {u.base for mine in uses for u in mine if u.is_write}
    memory: dict[UOp, _Bytes | _Whole] = {}
    out: list[list[tuple[int, ...]]] = []
    behind: list[int] = []  # all that an item comes after, as bits
    for i, mine in enumerate(uses):
        by_operand: list[set[int]] = []
        for u in mine:
            found: set[int] = set()
            if u.base in written:  # who reads what nobody writes waits for nobody
                m = memory.get(u.base)
                if m is None:
                    m = memory[u.base] = _Whole() if u.span is None else _Bytes()
                found = m.use(i, u)
            by_operand.append(found)
        needed, known = _fewest(set().union(*by_operand) - {-1, i}, behind)
        behind.append(known)
        left = set(needed)
        rows = []
        for found in by_operand:
            rows.append(tuple(sorted(found & left)))
            left -= found
        out.append(rows)
    return out


def all_before(after: Sequence[Collection[int]]) -> list[int]:
    """For each item everything it comes after, as bits."""
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


# ---- items -----------------------------------------------------------------------------------------------------------
def uses_of(item: UOp, same: dict[UOp, UOp]) -> list[Use]:
    """The uses of an item, one for each operand."""
    written = {*writes(item)}
    out = []
    for k, u in enumerate(operands_of(item)):
        b = read_operand(u).base
        out.append(Use(same.get(b, b), extent(u) if is_arena(b) else None, k in written))
    return out


def dependencies(step: UOp) -> UOp:
    """The pass; see the module docstring."""
    linear = program_of(step)
    if not linear.src:
        return step
    same = reused(step)
    items = rebuilt(items_of(linear), _ordered(calls_in(items_of(linear)), same))
    return with_program(step, items, _ordered(once_of(linear), same))


def _ordered(items: Sequence[UOp], same: dict[UOp, UOp]) -> list[UOp]:
    """The items with AFTER on their operands."""
    out: list[UOp] = []
    for item, rows in zip(items, needs([uses_of(c, same) for c in items]), strict=True):
        if any(rows):
            operands = [
                node("AFTER", (u, *[out[j] for j in row])) if row else u
                for u, row in zip(operands_of(item), rows, strict=True)
            ]
            item = with_operands(item, operands)
        out.append(item)
    return out


__all__ = ["Use", "all_before", "dependencies", "needs", "uses_of"]

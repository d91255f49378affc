"""Order items (kernel launches and copies) by the memory that they touch: put AFTER on each operand.

An item comes after the last writer of what it reads. It also comes after the last writer of what it writes, and after
all readers since that write. In the arena, whose bytes several intermediates share at different times, this is decided
by bytes; elsewhere by whole buffers. An item names a minimal set of items in its AFTERs: none that already precedes
another one of the set.

Before: LINEAR(CALL(a, B, P0), CALL(b, P1, B))
After:  LINEAR(CALL(a, B, P0), CALL(b, P1, AFTER(B, CALL(a, B, P0))))
Two arguments of a call may be the same memory, as arguments are only read. Written memory has no other holder, or is
that of a donated argument, which `StepInfo.reuse` names.
Invariant: of two items, one of which writes what the other touches, the later one comes after the earlier one.
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
    """One operand of an item: its buffer, whether the item writes it, and `span`, its (start, end) bytes; None for the
    whole buffer.
    Uses of common memory decide which items must come after which.
    """

    base: UOp
    span: tuple[int, int] | None
    is_write: bool


class _Piece(NamedTuple):
    """A range of bytes, from `start` to the start of the next piece.

    `writer`: number of the item that wrote it last, -1 for none. `readers`: numbers of the items that read it since.
    """

    start: int
    writer: int
    readers: list[int]


class _Bytes:
    """The last writers and readers of memory that items use in parts, as _Pieces in ascending order.
    It is for an arena, where items that touch other bytes need not wait.
    """

    def __init__(self) -> None:
        self.pieces = [_Piece(0, -1, [])]

    def _cut(self, at: int) -> int:
        """Split the piece that contains byte number `at`; return the index of the piece that begins there."""
        k = bisect_left(self.pieces, at, key=lambda p: p.start)
        if k == len(self.pieces) or self.pieces[k].start != at:
            _, writer, readers = self.pieces[k - 1]
            self.pieces.insert(k, _Piece(at, writer, [*readers]))
        return k

    def use(self, i: int, u: Use) -> set[int]:
        """Record that item number `i` uses the bytes of `u`; return the numbers of the items that it must come after.

        The result contains -1 if no item wrote some of the bytes.
        """
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
    """The last writer and the readers since of a buffer that items use as a whole.
    It is for memory whose parts are not told apart.
    """

    def __init__(self) -> None:
        self.writer, self.readers = -1, list[int]()

    def use(self, i: int, u: Use) -> set[int]:
        """Record that item number `i` uses the buffer of `u`; return the numbers of the items that it must come after.

        The result contains -1 if no item wrote the buffer.
        """
        found = {self.writer, *self.readers} if u.is_write else {self.writer}
        if u.is_write:
            self.writer, self.readers = i, []
        else:
            self.readers.append(i)
        return found


def needs(uses: Sequence[Sequence[Use]]) -> list[list[tuple[int, ...]]]:
    """Return, for each item and each of its operands, the numbers of the items that the operand must be AFTER.

    `uses`: a Use for each operand of each item. The set of each item is minimal, and each number is listed at one
    operand only.
    """
    written = {u.base for mine in uses for u in mine if u.is_write}
    memory: dict[UOp, _Bytes | _Whole] = {}
    out: list[list[tuple[int, ...]]] = []
    predecessors: list[int] = []  # for each item a bit set of all items that it comes after
    for i, mine in enumerate(uses):
        by_operand: list[set[int]] = []
        for u in mine:
            found: set[int] = set()
            if u.base in written:  # reads of memory that no item writes need no order
                m = memory.get(u.base)
                if m is None:
                    m = memory[u.base] = _Whole() if u.span is None else _Bytes()
                found = m.use(i, u)
            by_operand.append(found)
        needed, known = _minimal(set().union(*by_operand) - {-1, i}, predecessors)
        predecessors.append(known)
        left = set(needed)
        rows = []
        for found in by_operand:
            rows.append(tuple(sorted(found & left)))
            left -= found
        out.append(rows)
    return out


def all_before(after: Sequence[Collection[int]]) -> list[int]:
    """Return, for each item, a bit set of the numbers of all items that it comes after, directly or indirectly.

    `after`: for each item, the numbers of the items that it is directly AFTER.
    """
    predecessors: list[int] = []
    for needed in after:
        predecessors.append(_minimal(needed, predecessors)[1])
    return predecessors


def _minimal(found: Collection[int], predecessors: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """Return (the numbers in `found` of items that do not precede another item in `found`, bit set of `found` and all
    their predecessors).

    `predecessors`: for each earlier item, the bit set of the items that it comes after.
    """
    known = 0
    needed = []
    for j in sorted(found, reverse=True):  # the latest first, as it may come after others
        if not known >> j & 1:
            needed.append(j)
            known |= predecessors[j] | 1 << j
    return tuple(reversed(needed)), known


# ---- items -----------------------------------------------------------------------------------------------------------
def uses_of(item: UOp, same: dict[UOp, UOp]) -> list[Use]:
    """Return a Use for each operand of `item`. Only uses of an arena have a span. `same`: {result: argument} of the
    PARAMs that may share memory (from `reused`).
    """
    written = {*writes(item)}
    out = []
    for k, u in enumerate(operands_of(item)):
        b = read_operand(u).base
        out.append(Use(same.get(b, b), extent(u) if is_arena(b) else None, k in written))
    return out


def dependencies(step: UOp) -> UOp:
    """The pass: return `step` with each operand put AFTER the earlier items that it must wait for, because they touch
    the same memory.
    """
    linear = program_of(step)
    if not linear.src:
        return step
    same = reused(step)
    items = rebuilt(items_of(linear), _ordered(calls_in(items_of(linear)), same))
    return with_program(step, items, _ordered(once_of(linear), same))


def _ordered(items: Sequence[UOp], same: dict[UOp, UOp]) -> list[UOp]:
    """Return `items` with each operand AFTER the earlier items that it must wait for.

    `same`: {result: argument} of the PARAMs that may share memory (from `reused`).
    """
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

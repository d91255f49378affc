"""Values stored in the middle of what they are framed by.

A convolution reads its padded input many times over, so what is padded is stored with the constant around it. Where the
value inside would be stored as well, by the kernel of the sum it is made of, a copy of it can be saved: that kernel
stores it in the middle of the padded memory, and whoever else reads the value reads it there. The constant around is
stored by a kernel of its own, in blocks: before and after each padded axis. A captured step runs that kernel once: the
memory is then shared only with values that have the same around them (`command.rewrites.memory`).

What it is not: a value that no sum is below is computed where it is framed, in one kernel; nor is one stored so whose
frame is several times as large as itself, or that is a result and needs memory of its own.
Invariant: the blocks around and the value in the middle are disjoint, and together all of the padded memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import TRUE, count
from monolect.ir.uop import UOp, build, node
from monolect.schedule.ranges import Index, full_index, sources

if TYPE_CHECKING:
    from monolect.schedule.partition import Partition

LARGEST = 4  # times the value, what it is stored in: a copy reads and writes more than lies idle around it


class Frame(NamedTuple):
    """`value` begins at `offsets` in `around`, a constant elsewhere."""

    around: UOp
    value: UOp
    offsets: tuple[int, ...]

    def place(self, index: Index) -> Index:
        """Where element `index` of the value is in what is around it."""
        return tuple(i + o for i, o in zip(index, self.offsets, strict=True))

    def borders(self) -> list[Index]:
        """What is around the value, in blocks: of each padded axis what is before and after it, along the axes behind
        whole, along those in front only as far as the value goes. From the first padded axis on each block has loops of
        its own: those of equal sizes would not all nest in one another.
        """
        out: list[Index] = []
        rank, front = len(self.around.shape), self._axes_in_front()
        for a, (o, n, total) in enumerate(zip(self.offsets, self.value.shape, self.around.shape, strict=True)):
            if n is total or n == total:
                continue
            for start, size in ((0, o), (o + n, total - o - n)):
                if size:
                    shape = (*self.value.shape[:a], size, *self.around.shape[a + 1 :])
                    first = (*self.offsets[:a], start, *(0,) * (rank - a - 1))
                    own = (_numbered(i, k + len(out) * rank) for k, i in enumerate(full_index(shape)) if k >= front)
                    index = (*full_index(shape)[:front], *own)
                    out.append(tuple(i + o for i, o in zip(index, first, strict=True)))
        return out

    def _axes_in_front(self) -> int:
        """How many axes stand before the first padded one."""
        sizes = zip(self.value.shape, self.around.shape, strict=True)
        return next(a for a, (n, total) in enumerate(sizes) if n is not total and n != total)


def _numbered(i: UOp, number: int) -> UOp:
    return node("RANGE", i.src, (number, i.arg[1])) if i.op == "RANGE" else i


def frame(part: Partition, u: UOp) -> Frame | None:
    """`u`, which is to be stored, as the frame of a value that a kernel stores in it; None where that saves no copy."""
    if u.op != "WHERE" or u.src[1].op != "PAD" or u.src[2].op != "CONST":
        return None
    mask, pad, _ = u.src
    value = pad.src[0]
    if value in part.forced or value.op not in ELEMENTWISE | {"REDUCE"}:
        return None
    if not part.cost[value].reduces or size_max(count(u.shape)) > LARGEST * size_max(count(value.shape)):
        return None
    offsets = pad.src[1].sizes
    axes = zip(offsets, value.shape, u.shape, strict=True)
    if any(x.__class__ is not int for o, n, total in axes if n is not total for x in (o, n, total)):
        return None
    index = full_index(u.shape)
    ((_, _, inside),) = sources(pad, index, TRUE)
    return Frame(u, value, offsets) if formula(mask, index) is inside else None


def formula(u: UOp, index: Index) -> UOp | None:
    """Element `index` of a value that is made of places and constants alone, None for any other."""
    if u.op == "CONST":
        return u
    if u.op == "IOTA":
        return index[0] if u.dtype.kind == "x" else None
    if u.op not in ELEMENTWISE and u.op not in ("RESHAPE", "EXPAND", "PERMUTE"):
        return None
    found: list[UOp] = []
    for s, i, _ in sources(u, index, TRUE):
        if (x := formula(s, i)) is None:
            return None
        found.append(x)
    return build(u.op, *found, arg=u.arg) if u.op in ELEMENTWISE else found[0]


__all__ = ["Frame", "frame"]

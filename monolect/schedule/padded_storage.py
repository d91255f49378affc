"""Store a value directly into the interior of its padded buffer, so that padding needs no copy.

A convolution reads its padded input many times, so the padded value is stored with its constant border. If the inner
value would be stored too, by the kernel of the reduction it depends on, that kernel stores it into the interior of the
padded buffer instead. All readers of the inner value then read it there. The constant border is stored by a separate
kernel, in blocks: before and after each padded axis. A captured step runs that kernel once, not at every call.
So the buffer shares memory only with values that have the same border (`command.rewrites.memory`).

What it is not: it does not apply to a value without a reduction, which is computed and padded in one kernel. It does
not apply where the padded buffer is several times as large as the value, or where the value is a requested result and
needs its own memory.
Invariant: the border blocks and the interior are disjoint, and together they cover the padded buffer.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import TRUE, count
from monolect.ir.uop import UOp, build, node
from monolect.schedule.kernel_graph import KernelGraph
from monolect.schedule.ranges import Index, full_index, sources

MAX_PADDED_RATIO = 4  # padded elements per element of the value; above it, the unused border costs more than a copy


class PaddedValue(NamedTuple):
    """A value stored in the interior of `padded`, from `offsets` on; the rest of `padded` is a constant."""

    padded: UOp
    value: UOp
    offsets: tuple[int, ...]

    def padded_index(self, index: Index) -> Index:
        """Return the index in `padded` of the element at `index` of the value."""
        return tuple(i + o for i, o in zip(index, self.offsets, strict=True))

    def borders(self) -> list[Index]:
        """Return the index of each border block: for each padded axis the elements before and after the value.

        A block spans later axes completely, and earlier axes only as far as the value. From the first padded axis on,
        each block has its own RANGEs: shared RANGEs of equal sizes could not all be nested.
        """
        out: list[Index] = []
        rank, front = len(self.padded.shape), self._n_leading_axes()
        for a, (o, n, total) in enumerate(zip(self.offsets, self.value.shape, self.padded.shape, strict=True)):
            if n is total or n == total:
                continue
            for start, size in ((0, o), (o + n, total - o - n)):
                if size:
                    shape = (*self.value.shape[:a], size, *self.padded.shape[a + 1 :])
                    first = (*self.offsets[:a], start, *(0,) * (rank - a - 1))
                    own = (_renumbered(i, k + len(out) * rank) for k, i in enumerate(full_index(shape)) if k >= front)
                    index = (*full_index(shape)[:front], *own)
                    out.append(tuple(i + o for i, o in zip(index, first, strict=True)))
        return out

    def _n_leading_axes(self) -> int:
        """Return the number of axes before the first padded axis."""
        sizes = zip(self.value.shape, self.padded.shape, strict=True)
        return next(a for a, (n, total) in enumerate(sizes) if n is not total and n != total)


def _renumbered(i: UOp, number: int) -> UOp:
    """Return the RANGE `i` with another number. Other nodes are returned unchanged."""
    return node("RANGE", i.src, (number, i.arg[1])) if i.op == "RANGE" else i


def padded_value(part: KernelGraph, u: UOp) -> PaddedValue | None:
    """Return `u`, which is to be stored, as a PaddedValue, or None where storing into the interior saves no copy."""
    if u.op != "WHERE" or u.src[1].op != "PAD" or u.src[2].op != "CONST":
        return None
    mask, pad, _ = u.src
    value = pad.src[0]
    if value in part.forced or value.op not in ELEMENTWISE | {"REDUCE"}:
        return None
    if not part.cost[value].reduces or size_max(count(u.shape)) > MAX_PADDED_RATIO * size_max(count(value.shape)):
        return None
    offsets = pad.src[1].sizes
    axes = zip(offsets, value.shape, u.shape, strict=True)
    if any(x.__class__ is not int for o, n, total in axes if n is not total for x in (o, n, total)):
        return None
    index = full_index(u.shape)
    ((_, _, inside),) = sources(pad, index, TRUE)
    return PaddedValue(u, value, offsets) if index_formula(mask, index) is inside else None


def index_formula(u: UOp, index: Index) -> UOp | None:
    """Return element `index` of `u` as index arithmetic, or None if `u` depends on more than IOTAs and constants."""
    if u.op == "CONST":
        return u
    if u.op == "IOTA":
        return index[0] if u.dtype.kind == "x" else None
    if u.op not in ELEMENTWISE and u.op not in ("RESHAPE", "EXPAND", "PERMUTE"):
        return None
    found: list[UOp] = []
    for s, i, _ in sources(u, index, TRUE):
        if (x := index_formula(s, i)) is None:
            return None
        found.append(x)
    return build(u.op, *found, arg=u.arg) if u.op in ELEMENTWISE else found[0]


__all__ = ["PaddedValue", "padded_value"]

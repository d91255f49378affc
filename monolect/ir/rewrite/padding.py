"""Build the masks of PAD: elements outside of its operand are invalid, so a WHERE with a mask replaces them.

Invariant: equal offsets and sizes give the same node, so a mask is recognized by building it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.base.dtype import dtypes
from monolect.ir.rewrite.normal import TRUE, negate, within
from monolect.ir.uop import UOp, build, idx, iota

Size = Any  # an int, or an index node of a symbolic size


def pad_mask(offsets: Sequence[Size], sizes: Sequence[Size], shape: Sequence[Size]) -> UOp:
    """Return the bool node that is true where a PAD to `shape` has the elements of its operand: `sizes` elements along
    each axis, from `offsets` on. It has size 1 along axes that are not padded; TRUE if none is.
    """
    mask = TRUE
    for axis, (offset, size, total) in enumerate(zip(offsets, sizes, shape, strict=True)):
        m = inside(offset, size, total, axis, len(shape))
        if m is not TRUE:
            mask = m if mask is TRUE else build("AND", mask, m)
    return mask


def inside(offset: Size, size: Size, total: Size, axis: int, rank: int) -> UOp:
    """Return a bool node of `rank` axes, of size `total` along `axis` and 1 on the others: the mask that is true for
    indices i along `axis` with offset <= i < offset + size. Return the constant TRUE if all indices are inside.
    """
    starts = offset.__class__ is int and offset == 0
    end = offset + size
    ends = end is total or (end.__class__ is int and end == total)
    if starts and ends:
        return TRUE
    i = iota(total, dtypes.index, axis, rank)
    below = build("CMPLT", i, idx(end))
    if starts:
        return below
    above = negate(build("CMPLT", i, idx(offset)))
    return above if ends else within(i, offset, end)


__all__ = ["inside", "pad_mask"]

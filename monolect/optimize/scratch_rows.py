"""Give each lane of a tile its own row of a kernel's scratch buffers.

A loop around a scratch value (`optimize.loops.scratch`) may become an axis of a vector or tile. Its iterations then run
at once, and each needs the buffer for itself.
"""

from __future__ import annotations

from math import prod

from monolect.ir.uop import UOp, idx, node, shape_source
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest


class Rows:
    """The rows of each scratch buffer of a plan: one row for each combination of lanes of the UPCAST parts of the loops
    around the buffer.

    `made`: {part of an axis: its new RANGE}. `new`: {scratch BUFFER: the BUFFER with room for all of its rows}.
    """

    def __init__(self, plan: LoopNest, made: dict[AxisPart, UOp]):
        self.plan, self.made = plan, made
        self.new = {b: self._widened(b) for b in plan.scratch.fills}

    def row_length(self, b: UOp) -> int:
        """Number of elements from the start of one row of the scratch buffer `b` to the next: whole vectors, and no
        multiple of 512 bytes, since such rows would share cache sets.
        """
        lanes = self.plan.target.lanes(b.dtype.itemsize)
        n = -(-prod(b.shape) // lanes) * lanes
        return n + lanes if n * b.dtype.itemsize % 512 == 0 else n

    def _parts(self, b: UOp) -> list[AxisPart]:
        """Return the UPCAST parts of the loops around the scratch buffer `b`: each of their lanes needs its own row."""
        around = self.plan.scratch.around(b)
        return [p for p in self.plan.axes if p.type == "UPCAST" and p.root in around and p in self.made]

    def _widened(self, b: UOp) -> UOp:
        """Return the scratch BUFFER `b` with room for all of its rows; `b` itself if it has one row."""
        n = prod(p.size for p in self._parts(b))
        return node("BUFFER", (shape_source((n * self.row_length(b),)),), b.arg) if n > 1 else b

    def offset(self, b: UOp) -> UOp:
        """Return an index expression: the offset, in elements, of the current lane's row in the scratch buffer `b`. It
        is added to each index into `b`.
        """
        out, step = idx(0), self.row_length(b)
        for p in self._parts(b):
            out, step = out + self.made[p] * step, step * p.size
        return out


__all__ = ["Rows"]

"""PACK for a matrix unit that reads local memory, by boxes: one lane asks for all that a step needs of an operand.

What it is for: targets that copy a box of memory to local memory by themselves (TMA), along axes of which the launch
tells them the strides and sizes. The block lies in panels of lines of 128 bytes (`base.matrix_units.Cores`): the axis
that is side by side in memory is cut at 128 bytes, the other one makes the lines. Each panel is one box. What is beyond
an axis is zeros, so a tile that overhangs needs no gate.

What it is not: strides that are no multiple of 16 bytes, sizes known at run time, loads under a gate, windows: those
are copied by the lanes (`cores`). Invariant: a box has no place in memory that the loads have not, but beyond an axis.
Source: NVIDIA, "PTX ISA", tensors and swizzling modes; "CUDA driver API", cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from monolect.base.errors import ActionError
from monolect.base.matrix_units import CORE_LINES, PANEL_BYTES
from monolect.ir.ops import BufferArg, TmaCopyArg
from monolect.ir.rewrite.normal import TRUE, linear
from monolect.ir.uop import UOp, node, shape_source
from monolect.optimize.actions.pack import Dim, _sum
from monolect.optimize.gpu.core_matrices import CoresBlock

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part

MOST_AXES, MOST_BOX = 5, 256  # axes of memory, places along one in a box
STRIDE_BYTES = 16  # which divide strides, and where memory begins
MOST_SIZE = 1 << 31  # places along an axis


class BoxBlock(CoresBlock):
    """The block of an operand, `turns` of them in turns. Raises ActionError where no box fits."""

    most_turns = 4

    def _check_turns(self) -> None:
        super()._check_turns()
        if (n := next(p.size for p in self.plan.axes if p.is_step)) < self.turns:
            raise ActionError("PACK of blocks in turns", expected=f"at most {n}", found=self.turns)
        self._arg()

    @property
    def is_async(self) -> bool:
        """Always: no lane holds anything."""
        return True

    # ---- layout ------------------------------------------------------------------------------------------------------
    def _dims(self) -> list[Dim]:
        """What is side by side in a panel, its lines, panels."""
        self._check_parts()
        side = next(r for r in self.plan.sides if r in self.steps)
        steps = next(p.root for p in self.plan.axes if p.type == "CONTRACT")
        n = PANEL_BYTES // self.load.dtype.itemsize
        turned = self.steps.get(steps) != 1 and self.load.dtype.itemsize == 2
        self.inner_axis, self.lines = (side, steps) if turned else (steps, side)
        if self.steps.get(self.inner_axis) != 1 or self.lines not in self.steps or self.gate is not TRUE:
            raise ActionError("PACK by boxes", expected="lines in memory, read without a gate", found=self.steps)
        if any(self.extent(r) > 1 for r in self.steps if r not in (side, steps)):
            raise ActionError("PACK by boxes", expected="a block of rows and steps", found="one of other loops too")
        lines = self.extent(self.lines)
        if lines % CORE_LINES or lines > MOST_BOX:
            raise ActionError("PACK by boxes", expected=f"{CORE_LINES} to {MOST_BOX} lines", found=lines)
        near, far = self._cut(self.inner_axis, n)
        mine = tuple((p, p.stride) for p in self.inner if p.root is self.lines)
        return [near, Dim(lines, self.steps[self.lines], 0, {self.lines: 1}, mine), far]

    def _laid_out(self, dims: list[Dim]) -> list[Dim]:
        near, lines, far = dims
        return [near._replace(dst=1), lines._replace(dst=near.size), far._replace(dst=near.size * lines.size)]

    # ---- the box -----------------------------------------------------------------------------------------------------
    def _axes(self) -> list[UOp]:
        """The loops along which memory is told, the innermost first."""
        return sorted(self.steps, key=lambda r: (self.steps[r], r is not self.inner_axis))

    def _arg(self) -> TmaCopyArg:
        axes, itemsize = self._axes(), self.load.dtype.itemsize
        strides, sizes = tuple(self.steps[r] for r in axes), tuple(self.plan.size(r) or 0 for r in axes)
        start = linear(self.index)[0]
        if any(s * itemsize % STRIDE_BYTES for s in (start, *strides[1:])) or strides[0] < 1 or start < 0:
            raise ActionError("PACK by boxes", expected=f"strides of {STRIDE_BYTES} bytes", found=strides)
        if any(b % a for a, b in zip(strides, strides[1:], strict=False)) or len(axes) > MOST_AXES:
            raise ActionError("PACK by boxes", expected="axes in each other", found=strides)
        if not all(0 < n < MOST_SIZE for n in sizes):
            raise ActionError("PACK by boxes", expected="sizes that are known", found=sizes)
        near, lines, _ = self.dims
        box = tuple(near.size if r is self.inner_axis else lines.size if r is self.lines else 1 for r in axes)
        return TmaCopyArg(start, strides, sizes, box, self.turns)

    def packed(self, made: dict[Part, UOp], ids: count, slots: count) -> UOp:
        """The load from the block, after the copy of its panels. `made`: the RANGE of each part."""
        u, arg = self.load, self._arg()
        shape = shape_source((self.local_bytes // u.dtype.itemsize,))
        memory = node("BUFFER", (shape,), BufferArg(next(slots), u.dtype, None, "LOCAL"))
        turn = made[next(p for p in self.outer if p.is_step)] % self.turns
        start, (near, _, far) = turn * self.stride, self.dims
        places = [_sum((made[p], p.stride) for p in self.outer if p.root is r and p in made) for r in self._axes()]
        copies = []
        for k in range(far.size):
            at = [x + k * near.size if r is self.inner_axis else x for r, x in zip(self._axes(), places, strict=True)]
            to = node("INDEX", (memory, start + k * far.dst))
            copies.append(node("TMACOPY", (to, u.src[0].src[0], turn, TRUE, *at), arg))
        filled = node("AFTER", (memory, *copies))
        reading = _sum((made[p], w * d.dst) for d in self.dims for p, w in d.parts if p in made)
        return node("LOAD", (node("INDEX", (filled, start + reading)),), u.arg)


__all__ = ["BoxBlock"]

"""Implement PACK by TMA copies for a matrix unit that reads local memory: one lane copies all operands of a step.

What it is for: targets that copy a box of memory to local memory asynchronously (TMA), with a tensor map whose strides
and sizes the launch sets. The block is stored in panels of lines of 128 bytes (`base.matrix_units.Cores`). The axis
that is contiguous in memory is cut at 128 bytes; the other axis makes the lines. Each panel is one box. The copy fills
elements beyond an axis with zeros, so a tile that overhangs needs no gate.

What it is not: strides that are no multiple of 16 bytes, sizes known at run time, gated loads, windows. The lanes copy
those (`core_matrices`). Invariant: a box covers no address that the loads do not, except beyond the end of an axis.
Source: NVIDIA, "PTX ISA", tensors and swizzling modes; "CUDA driver API", cuTensorMapEncodeTiled.
"""

from __future__ import annotations

from itertools import count

from monolect.base.errors import ActionError
from monolect.base.matrix_units import CORE_LINES, PANEL_BYTES
from monolect.ir.ops import BufferArg, TmaCopyArg
from monolect.ir.rewrite.normal import TRUE, linear
from monolect.ir.uop import UOp, node, shape_source
from monolect.optimize.blocks.core_matrices import CoresBlock
from monolect.optimize.blocks.packed import BlockDim, _sum
from monolect.optimize.loops.axis_part import AxisPart


class BoxBlock(CoresBlock):
    """The packed block of an operand of a matrix unit that TMA (the asynchronous copy unit) copies as boxes of memory,
    into one of `n_buffers` buffers in rotation. Raises ActionError where no box fits.
    """

    max_buffers = 4

    def _check_buffers(self) -> None:
        """Raise ActionError unless the block may have `n_buffers` buffers: also, there must be at least as many steps,
        and the tensor map must be possible.
        """
        super()._check_buffers()
        if (n := next(p.size for p in self.plan.axes if p.is_step)) < self.n_buffers:
            raise ActionError("PACK to several buffers", expected=f"at most {n}", found=self.n_buffers)
        self._arg()

    @property
    def is_async(self) -> bool:
        """Always True: TMA copies to local memory without registers."""
        return True

    # ---- layout ------------------------------------------------------------------------------------------------------
    def _dims(self) -> list[BlockDim]:
        """Return three dimensions: the contiguous elements in one line (128 bytes) of a panel, the lines of a panel,
        the panels of the block. Each panel is one box.
        """
        self._check_parts()
        side = next(r for r in self.plan.sides if r in self.steps)
        steps = next(p.root for p in self.plan.axes if p.type == "CONTRACT")
        n = PANEL_BYTES // self.load.dtype.itemsize
        turned = self.steps.get(steps) != 1 and self.load.dtype.itemsize == 2
        self.inner_axis, self.lines = (side, steps) if turned else (steps, side)
        if self.steps.get(self.inner_axis) != 1 or self.lines not in self.steps or self.gate is not TRUE:
            raise ActionError("PACK by boxes", expected="lines in memory, read without a gate", found=self.steps)
        if any(self.extent(r) > 1 for r in self.steps if r not in (side, steps)):
            raise ActionError(
                "PACK by boxes", expected="a block of rows and steps", found="a block of other loops, too"
            )
        lines = self.extent(self.lines)
        most = self.plan.target.tensor_map.box_extent
        if lines % CORE_LINES or lines > most:
            raise ActionError("PACK by boxes", expected=f"{CORE_LINES} to {most} lines", found=lines)
        near, far = self._cut(self.inner_axis, n)
        mine = tuple((p, p.stride) for p in self.inner if p.root is self.lines)
        return [near, BlockDim(lines, self.steps[self.lines], 0, {self.lines: 1}, mine), far]

    def _laid_out(self, dims: list[BlockDim]) -> list[BlockDim]:
        """Return the dimensions `dims` with their strides `dst`: panels are stored one after another, without gaps."""
        near, lines, far = dims
        return [near._replace(dst=1), lines._replace(dst=near.size), far._replace(dst=near.size * lines.size)]

    # ---- the box -----------------------------------------------------------------------------------------------------
    def _axes(self) -> list[UOp]:
        """Return the RANGEs that are the axes of the tensor map (TMA's description of the memory), innermost in memory
        first.
        """
        return sorted(self.steps, key=lambda r: (self.steps[r], r is not self.inner_axis))

    def _arg(self) -> TmaCopyArg:
        """Return the arg of the TMACOPY nodes: offset, strides and sizes of the tensor map, the box, and the number of
        buffers. Raises ActionError where the target's limits of a tensor map are exceeded.
        """
        axes, itemsize, limits = self._axes(), self.load.dtype.itemsize, self.plan.target.tensor_map
        strides, sizes = tuple(self.steps[r] for r in axes), tuple(self.plan.size(r) or 0 for r in axes)
        start = linear(self.index)[0]
        if any(s * itemsize % limits.align_bytes for s in (start, *strides[1:])) or strides[0] < 1 or start < 0:
            raise ActionError("PACK by boxes", expected=f"strides of {limits.align_bytes} bytes", found=strides)
        if any(b % a for a, b in zip(strides, strides[1:], strict=False)) or len(axes) > limits.axes:
            raise ActionError("PACK by boxes", expected="strides that are multiples of each other", found=strides)
        if not all(0 < n < limits.extent for n in sizes):
            raise ActionError("PACK by boxes", expected="constant sizes", found=sizes)
        near, lines, _ = self.dims
        box = tuple(near.size if r is self.inner_axis else lines.size if r is self.lines else 1 for r in axes)
        return TmaCopyArg(start, strides, sizes, box, self.n_buffers)

    def packed(self, made: dict[AxisPart, UOp], ids: count, slots: count) -> UOp:
        """Return the LOAD from the block that replaces the packed load, AFTER one TMACOPY for each panel.

        `made`: {part of an axis: its new RANGE}. `slots`: free numbers of BUFFERs. `ids` is not used, as no loop is
        made.
        """
        u, arg = self.load, self._arg()
        shape = shape_source((self.local_bytes // u.dtype.itemsize,))
        memory = node("BUFFER", (shape,), BufferArg(next(slots), u.dtype, None, "LOCAL"))
        buffer = made[next(p for p in self.outer if p.is_step)] % self.n_buffers
        start, (near, _, far) = buffer * self.stride, self.dims
        offsets = [_sum((made[p], p.stride) for p in self.outer if p.root is r and p in made) for r in self._axes()]
        copies = []
        for k in range(far.size):
            at = [x + k * near.size if r is self.inner_axis else x for r, x in zip(self._axes(), offsets, strict=True)]
            to = node("INDEX", (memory, start + k * far.dst))
            copies.append(node("TMACOPY", (to, u.src[0].src[0], buffer, TRUE, *at), arg))
        filled = node("AFTER", (memory, *copies))
        reading = _sum((made[p], w * d.dst) for d in self.dims for p, w in d.parts if p in made)
        return node("LOAD", (node("INDEX", (filled, start + reading)),), u.arg)


__all__ = ["BoxBlock"]

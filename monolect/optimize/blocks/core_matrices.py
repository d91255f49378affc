"""Implement PACK for a unit that reads local memory: store the block as core matrices (`base.matrix_units.Cores`).

What it is for: the axis of rows (or columns) is cut into groups of 8 and the steps of the reduction into lines of 16
bytes. One group by one line is a core matrix, stored without gaps; the strides between core matrices are free. Where
dtypes have 16 bits and rows are contiguous in memory, lines run along the rows instead ("turned"), so that a lane still
copies 16 bytes at once. The unit
reads each core matrix from all banks at once. The gap between groups is chosen so that the lanes that fill the block
have the fewest bank conflicts.

What it is not: the descriptor, which `lower.gpu.fragments` derives from the index, nor a swizzled layout.
Invariant: an offset in the block is linear in the parts of the axes, none of which crosses the border of a core matrix.
"""

from __future__ import annotations

from monolect.base.errors import ActionError
from monolect.base.matrix_units import CORE_BYTES, CORE_LINES
from monolect.ir.uop import UOp
from monolect.optimize.blocks.packed import BlockDim, SlidingWindow
from monolect.optimize.blocks.shared import SharedBlock, bank_cycles
from monolect.optimize.loops.nest import LoopNest


def unit_reads_local(plan: LoopNest, load: UOp) -> bool:
    """Whether `load` is an operand of the plan's matrix unit, and that unit reads its operands from local memory."""
    return plan.unit is not None and plan.unit.from_memory and load in plan.factors


class CoresBlock(SharedBlock):
    """The packed block of an operand of a matrix unit, stored as core matrices: groups of 8 rows by lines of 16 bytes.
    Raises ActionError where PACK is not possible.
    """

    def _windows(self) -> list[SlidingWindow]:
        """Return no windows: each row stores its own steps, also where rows overlap in memory."""
        return []  # each row stores its own steps, also where rows overlap

    def _dims(self) -> list[BlockDim]:
        """Return the dimensions of the block in this order: steps in a line, lines of steps, rows in a group of 8,
        groups of rows, then one for each other loop. Steps are iterations of the reduction; rows are rows or columns of
        the product.
        """
        self._check_parts()
        assert self.plan.unit is not None
        side = next(r for r in self.plan.sides if r in self.steps)
        steps = next(p.root for p in self.plan.axes if p.type == "CONTRACT")
        if steps not in self.steps:
            raise ActionError("PACK for a unit", expected="an operand that moves with the steps", found=self.load.op)
        rest = [r for r in self.steps if r not in (side, steps)]
        k = CORE_BYTES // self.plan.unit.a.itemsize
        others = sorted(map(self._of_root, rest), key=lambda d: abs(d.step))
        return [*self._cut(steps, k), *self._cut(side, CORE_LINES), *(d for d in others if d.size > 1)]

    def _cut(self, r: UOp, k: int) -> tuple[BlockDim, BlockDim]:
        """Split the RANGE r into groups of k consecutive iterations; return two dimensions: (inside a group, over the
        groups).
        """
        n, mine = self.extent(r), [p for p in self.inner if p.root is r]
        if n % k or any(p.stride < k < p.stride * p.size for p in mine):
            raise ActionError("PACK for a unit", expected=f"parts of whole groups of {k}", found=n)
        near, far = ([p for p in mine if (p.stride < k) == inside] for inside in (True, False))
        return (
            BlockDim(k, self.steps[r], 0, {r: 1}, tuple((p, p.stride) for p in near)),
            BlockDim(n // k, self.steps[r] * k, 0, {r: k}, tuple((p, p.stride // k) for p in far)),
        )

    def _laid_out(self, dims: list[BlockDim]) -> list[BlockDim]:
        """Return the dimensions `dims` with the strides `dst` in the block that give the fewest bank conflicts during
        the copy.
        """
        step, steps, row, rows, *others = dims
        turned = self.load.dtype.itemsize == 2 and row.step == 1 and step.step != 1
        line, lines = (row, step) if turned else (step, row)
        core = line.size * lines.size
        inside = [line._replace(dst=1), lines._replace(dst=line.size)]
        found = []
        for near, far in ((rows, steps), (steps, rows)):
            for pad in (0, line.size, 2 * line.size, 4 * line.size):
                out, at = [*inside, near._replace(dst=core)], core * near.size + pad
                for d in (far, *others):
                    out.append(d._replace(dst=at))
                    at *= d.size
                found.append(out)
        return min(found, key=self._fill_cycles)

    def _fill_cycles(self, dims: list[BlockDim]) -> tuple[int, int]:
        """Return (cycles in which the first warp stores its elements to a block with the dimensions `dims`, size of the
        block in elements). Bank conflicts add cycles.
        """
        target, itemsize, v = self.plan.target, self.load.dtype.itemsize, self._vector(dims)
        fills = [self._fill_offset(dims, lane * v) * itemsize for lane in range(target.warp)]
        side = v if self._in_memory_order(dims)[0].dst == 1 else 1
        cycles = bank_cycles(fills, side * itemsize, target.local_banks, target.bank_bytes)
        return cycles, max(d.dst * d.size for d in dims)


__all__ = ["CoresBlock", "unit_reads_local"]

"""PACK for a matrix unit that reads local memory: the block lies in core matrices, as `base.matrix_units.Cores` says.

What it is for: the axis of rows (or columns) is cut in groups of 8 and the steps in lines of 16 bytes; those two make a
core matrix without a gap, the rest says how far apart core matrices are. Where types have 16 bits and rows are
neighbours in memory, lines are parts of steps instead ("turned"), so that a lane still moves 16 bytes at once. The unit
reads each core matrix from all banks at once, wherever it lies; the gap between groups is the one that lets the lanes
that fill the block meet in the fewest banks.

What it is not: the descriptor, which `lower.gpu.fragments` reads off the index, nor a layout that is swizzled.
Invariant: a place in the block is linear in the parts of the axes, none of which crosses a border of a core matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monolect.base.errors import ActionError
from monolect.base.matrix_units import CORE_BYTES, CORE_LINES
from monolect.ir.uop import UOp
from monolect.optimize.actions.pack import Dim, Window
from monolect.optimize.gpu.shared import SharedBlock, bank_cycles

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Plan


def reads_memory(plan: Plan, load: UOp) -> bool:
    """Whether the plan's matrix unit reads what `load` loads from local memory."""
    return plan.unit is not None and plan.unit.from_memory and load in plan.factors


class CoresBlock(SharedBlock):
    """The block of an operand. Raises ActionError where PACK is not possible."""

    def _windows(self) -> list[Window]:
        return []  # each row has its own steps, also where rows overlap

    def _dims(self) -> list[Dim]:
        """Steps in a line, lines of steps, rows in a group, groups of rows, then what else there is."""
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

    def _cut(self, r: UOp, k: int) -> tuple[Dim, Dim]:
        """k neighbours of the axis, and groups of them."""
        n, mine = self.extent(r), [p for p in self.inner if p.root is r]
        if n % k or any(p.stride < k < p.stride * p.size for p in mine):
            raise ActionError("PACK for a unit", expected=f"parts of whole groups of {k}", found=n)
        near, far = ([p for p in mine if (p.stride < k) == inside] for inside in (True, False))
        return (
            Dim(k, self.steps[r], 0, {r: 1}, tuple((p, p.stride) for p in near)),
            Dim(n // k, self.steps[r] * k, 0, {r: k}, tuple((p, p.stride // k) for p in far)),
        )

    def _laid_out(self, dims: list[Dim]) -> list[Dim]:
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

    def _fill_cycles(self, dims: list[Dim]) -> tuple[int, int]:
        """Steps in which the first warp fills the block, then its size."""
        target, itemsize, v = self.plan.target, self.load.dtype.itemsize, self._vector(dims)
        fills = [self._fill_place(dims, lane * v) * itemsize for lane in range(target.warp)]
        side = v if self._in_memory_order(dims)[0].dst == 1 else 1
        return bank_cycles(fills, side * itemsize, target.local_banks), max(d.dst * d.size for d in dims)

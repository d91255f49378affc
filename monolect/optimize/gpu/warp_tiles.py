"""Choose tiles for sums of products by matrix units that a warp shares: tiles of a unit per warp, warps per workgroup.

Each warp has some tiles of the unit along rows and along columns, whose operands it keeps in registers. The warps of a
workgroup share rows and columns through local memory, one step of the reduction at a time. The sizes with the lowest
estimate are chosen. Like in `tiles`, products, reads of local memory and reads of global memory overlap, so the slowest
counts; so do tiles beyond the edges. The cost is compared with that of multiplying without a unit. A unit that reads
local memory needs both operands there: the whole choice is tried on a copy of the plan first.

What it is not: the mapping of elements to lanes (`blocks.warp`, `base.matrix_units`). A unit rounds float32 operands:
TF32=1 allows it.
Source: NVIDIA, "CUTLASS: efficient GEMM in CUDA", the hierarchy of tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import Any, NamedTuple

from monolect.base.errors import ActionError
from monolect.base.matrix_units import n_elements
from monolect.base.target import MatrixUnit
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.choices import Choices
from monolect.optimize.tuning import (
    ASYNC_STEPS_PER_COPY,
    CORE_GAP_SHARE,
    MAX_LANES,
    STEPS_PER_COPY,
    STORED_WEIGHT,
    SYMBOLIC_EXTENT,
    TILES_PER_SIDE,
    UNIT_REGISTER_SHARE,
    WARP_GRIDS,
)


class WarpTile(NamedTuple):
    """The tile of results that a workgroup computes by a matrix unit: `warps` of the workgroup, and tiles of `unit` for
    `each` warp, both as (rows, columns). `cost`: cycles of a multiprocessor for the whole kernel.
    """

    cost: float
    unit: MatrixUnit
    warps: tuple[int, int]
    each: tuple[int, int]

    @property
    def sizes(self) -> tuple[int, int]:
        """(Rows, columns) of the workgroup's tile."""
        return self.warps[0] * self.each[0] * self.unit.m, self.warps[1] * self.each[1] * self.unit.n


class WarpTiles:
    """Choose the tiles of one sum of products by a matrix unit that a warp shares, and perform the actions through
    `choices.act`.

    `c`: the output RANGE of the columns; `m`: that of the rows. `contracted`: the reduction RANGEs whose operands are
    reused; `scope`: the output RANGEs around them.
    """

    def __init__(self, choices: Choices, contracted: list[UOp], scope: list[UOp], c: UOp, m: UOp):
        self.choices, self.plan, self.c, self.m = choices, choices.plan, c, m
        self.contracted, self.scope = contracted, scope
        self.j = max(contracted, key=self.plan.size)

    def best(self) -> WarpTile | None:
        """The tile with the lowest cost over all matrix units of the target, or None where no unit fits."""
        units = [u for u in self.plan.units if u.threads and self.fits(u)]
        found = sorted((t for u in units for t in self.candidates(u)), key=lambda t: t.cost)
        return next((t for t in found if not t.unit.from_memory or self.has_operands(t)), None)

    def has_operands(self, tile: WarpTile) -> bool:
        """Whether all actions of `tile`, and PACKs of both operands for a unit that reads local memory, are legal. They
        are tried on a copy of the plan.
        """
        trial = self.plan.copy()
        try:
            self.perform(tile, trial, lambda op, axis, arg, why: trial.act((op, axis, arg)))
            for p in [p for p in trial.axes if p.type == "LOOP" and p.size > 1]:
                trial.act(("SPLIT", trial.axes.index(p), (p.size, "GLOBAL", True)))
            for u in trial.factors:
                trial.act(("PACK", trial.loads.index(u), None))
        except ActionError:
            return False
        return True

    def fits(self, unit: MatrixUnit) -> bool:
        """Whether TC with `unit` is legal for this kernel, after padding of its rows, columns and reduction."""
        trial = self.plan.copy()
        try:
            for r, n in ((self.m, unit.m), (self.c, unit.n), (self.j, unit.k)):
                if self.plan.size(r) % n:
                    trial.act(("PADTO", trial.axis_of(r), n))
            trial.act(("TC", trial.axis_of(self.j), (unit.name, trial.axis_of(self.m), trial.axis_of(self.c))))
        except ActionError:
            return False
        return True

    def candidates(self, unit: MatrixUnit) -> list[WarpTile]:
        """Return every tile of `unit` whose lanes fit a workgroup, whose sums and operands fit the registers, and whose
        copied operands fit local memory, with its cost.
        """
        target, held = self.plan.target, [n_elements(words) for words in unit.maps]
        out = []
        for warps, rows, columns in product(WARP_GRIDS, TILES_PER_SIDE, TILES_PER_SIDE):
            words = rows * held[0] * unit.a.itemsize // 4 + columns * held[1] * unit.b.itemsize // 4
            lanes = prod(warps) * unit.threads
            room = rows * columns * held[2] + words <= target.n_registers * UNIT_REGISTER_SHARE
            if (
                room
                and lanes <= min(MAX_LANES, target.max_local or lanes)
                and self.steps_per_copy(unit, warps, (rows, columns))
            ):
                out.append(WarpTile(self.cost(unit, warps, (rows, columns)), unit, warps, (rows, columns)))
        return out

    def steps_per_copy(self, unit: MatrixUnit, warps: tuple[int, int], each: tuple[int, int]) -> int:
        """Number of steps of `unit` whose operands are copied to local memory at once: the first candidate that divides
        the number of steps and whose operands fit half of local memory; 0 if none does.

        `warps`: warps of a workgroup; `each`: tiles of the unit for each warp; both as (rows, columns).
        """
        rows, columns = warps[0] * each[0] * unit.m, warps[1] * each[1] * unit.n
        others = prod(self.plan.size(x) or SYMBOLIC_EXTENT for x in self.contracted if x is not self.j)
        step_bytes = (rows * unit.a.itemsize + columns * unit.b.itemsize) * unit.k * others
        n = -(-self.plan.size(self.j) // unit.k)
        room = self.plan.target.local_bytes // 2
        room -= room // CORE_GAP_SHARE if unit.from_memory else 0  # room for gaps between core matrices
        fits = [
            k
            for k in (ASYNC_STEPS_PER_COPY if unit.from_memory else STEPS_PER_COPY)
            if k * step_bytes <= room and k <= n
        ]
        return next((k for k in fits if n % k == 0), 0)

    def cost(self, unit: MatrixUnit, warps: tuple[int, int], each: tuple[int, int]) -> float:
        """Return the cycles until the last multiprocessor has finished.

        `warps`: warps of a workgroup; `each`: tiles of `unit` for each warp; both as (rows, columns).
        """
        size, target = self.plan.size, self.plan.target
        rows, columns = warps[0] * each[0] * unit.m, warps[1] * each[1] * unit.n
        others = prod(size(x) or SYMBOLIC_EXTENT for x in self.scope if x not in (self.c, self.m))
        groups = -(-size(self.m) // rows) * -(-size(self.c) // columns) * others
        steps = prod(size(x) or SYMBOLIC_EXTENT for x in self.contracted if x is not self.j) * -(
            -size(self.j) // unit.k
        )
        itemsize, n = unit.a.itemsize, prod(warps)
        multiplied = prod(each) * unit.m * unit.n * unit.k * itemsize / target.matrix_bytes_per_cycle
        read = n * (each[0] * unit.m + each[1] * unit.n) * unit.k * itemsize / target.local_bytes_per_cycle
        copied = (rows + columns) * unit.k * itemsize / target.global_bytes_per_cycle
        # it reads local memory for each product, and uses all units of the multiprocessor, at twice the rate
        if unit.from_memory:
            multiplied, read = (
                n * multiplied / 2,
                n * prod(each) * (unit.m + unit.n) * unit.k * itemsize / target.local_bytes_per_cycle,
            )
        else:
            multiplied *= target.schedulers * -(-n // target.schedulers)
        busy = max(multiplied, read, copied)
        stored = STORED_WEIGHT * rows * columns * self.choices.profile.itemsize / target.global_bytes_per_cycle
        return -(-groups // target.n_units) * (steps * (busy + unit.k) + stored)

    def act(self, tile: WarpTile) -> None:
        """Perform the actions of `tile` on the kernel's plan, with their reasons."""
        self.perform(tile, self.plan, self.choices.act)

    def perform(self, tile: WarpTile, plan: LoopPlan, act: Callable[..., Any]) -> None:
        """Perform the actions of `tile` on `plan` by calls of `act(op, axis, argument, reason)`.

        PADTO and TC come first; then SPLITs into the tiles of a warp, the warps of a workgroup, and the steps of the
        reduction whose operands are copied at once.
        """
        unit = tile.unit
        why = f"{unit.name}, {tile.sizes[0]} x {tile.sizes[1]}, about {tile.cost / 1e3:.0f} k cycles"
        for r, n in ((self.m, tile.sizes[0]), (self.c, tile.sizes[1]), (self.j, unit.k)):
            if plan.size(r) % n:
                act("PADTO", plan.axis_of(r), n, "a masked tile at the edge")
        act("TC", plan.axis_of(self.j), (unit.name, plan.axis_of(self.m), plan.axis_of(self.c)), why)
        for r, each, warps in zip((self.m, self.c), tile.each, tile.warps, strict=True):
            for n, kind in ((each, "UPCAST"), (warps, "LOCAL")):
                if n > 1:
                    act("SPLIT", plan.axis_of(r, "LOOP"), (n, kind, False), "tiles of a warp, and warps")
        axis, k = plan.axis_of(self.j, "REDUCE"), self.steps_per_copy(unit, tile.warps, tile.each)
        if plan.axes[axis].size > k:
            n = k * unit.k
            act("SPLIT", axis, (plan.axes[axis].size // k, "REDUCE", True), f"{n} at a time in local memory")
            axis = next(i for i, p in enumerate(plan.axes) if p.root is self.j and p.type == "REDUCE" and not p.is_step)
        if unit.from_memory and 1 < (n := plan.axes[axis].size) <= max(STEPS_PER_COPY):
            act("SPLIT", axis, (n, "UNROLL", False), "products with one wait")


__all__ = ["WarpTile", "WarpTiles"]

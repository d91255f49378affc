"""Choose tiles for sums of products on targets with workgroups: a tile of the output per workgroup, a register tile per
lane.

A tile has columns, along the axis in which stores are contiguous. It has rows, along an axis that moves only loads that
the columns do not move. Adjacent lanes take adjacent columns. The workgroup runs through the reduction in steps. In
each step all lanes copy the operands of the tile to local memory (PACK), and every lane multiplies its part. The sizes
with the lowest estimate are chosen: multiply-adds, reads of local memory and reads of global memory overlap, so the
slowest counts; so do tiles beyond the edges and multiprocessors without a workgroup.

Source: Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra", SC 2008.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from monolect.ir.uop import UOp
from monolect.optimize.blocks.core_matrices import unit_reads_local
from monolect.optimize.choices import Choices
from monolect.optimize.gpu.warp_tiles import WarpTiles
from monolect.optimize.tuning import (
    BOX_BUFFER_COUNTS,
    ELEMENTS_PER_LANE,
    LANES_PER_SIDE,
    MAX_LANES,
    MIN_TILE_SIDE,
    STEP_LENGTHS,
    STORED_WEIGHT,
    SYMBOLIC_EXTENT,
)


class WorkgroupTile(NamedTuple):
    """The tile of results that a workgroup computes: `lanes` and the elements that `each` lane computes, both as
    (columns, rows). `cost`: cycles of a multiprocessor for the whole kernel.
    """

    cost: float
    lanes: tuple[int, int]
    each: tuple[int, int]

    @property
    def sizes(self) -> tuple[int, int]:
        """(Columns, rows) of the workgroup's tile."""
        return self.lanes[0] * self.each[0], self.lanes[1] * self.each[1]


class WorkgroupTiles:
    """Choose the tile of one sum of products on a target with workgroups, with or without a matrix unit, and perform
    the actions through `chooser.act`.

    `contracted`: the reduction RANGEs whose operands are reused.
    """

    def __init__(self, chooser: Choices, contracted: list[UOp]):
        self.chooser, self.plan, self.profile = chooser, chooser.plan, chooser.profile
        self.target, self.contracted = chooser.plan.target, contracted
        self.size, self.axis_of, self.act = chooser.plan.size, chooser.plan.axis_of, chooser.act
        scope = frozenset().union(*(self.profile.scope(j) for j in contracted))
        self.scope = [r for r in self.plan.outputs if r in scope and r not in self.plan.sequential]
        self.inside = list({a.uop: a for j in contracted for a in self.profile.inside(j)}.values())

    def run(self) -> bool:
        """Choose a tile and perform its actions. Return False if no two output axes share operands, or if the kernel
        reads memory that it writes.
        """
        sides = self.sides()
        if sides is None or self.plan.workgroup is None or self.plan.workgroup.reads_back:
            return False
        c, m = sides
        tile = min(self.candidates(c, m), key=lambda t: t.cost)
        warps = WarpTiles(self.chooser, self.contracted, self.scope, c, m)
        with_unit = warps.best()
        if with_unit is not None and with_unit.cost <= tile.cost:
            warps.act(with_unit)
        else:
            for r, n in zip((c, m), tile.sizes, strict=True):
                if self.size(r) % n:
                    self.act("PADTO", self.axis_of(r), n, "a masked tile at the edge")
            why = f"{tile.sizes[0]} x {tile.sizes[1]}, about {tile.cost / 1e3:.0f} k cycles"
            self.side(c, tile.lanes[0], tile.each[0], why)
            self.side(m, tile.lanes[1], tile.each[1], "rows that share the columns")
            self.step(tile)
        for r in (c, m, *(x for x in reversed(self.scope) if x not in (c, m))):
            for i in [i for i, p in enumerate(self.plan.axes) if p.root is r and p.type == "LOOP" and p.size > 1]:
                self.act("SPLIT", i, (self.plan.axes[i].size, "GLOBAL", True), "one workgroup each")
        for a in self.inside:
            if not {c, m} <= a.steps.keys():
                self.share(a.uop)
        return True

    def sides(self) -> tuple[UOp, UOp] | None:
        """Return (RANGE of the tile's columns, RANGE of its rows), or None if there are no two axes of which each moves
        loads that the other does not.
        """
        long = [r for r in self.scope if self.size(r) >= MIN_TILE_SIDE]
        stored = [r for r in long if all(a.step(r) == 1 for a in self.profile.stores)]
        read = [r for r in long if any(a.step(r) == 1 for a in self.inside)]
        for c in (*stored, *read, *reversed(long)):
            apart = [a for a in self.inside if c not in a.steps]
            rows = [r for r in long if r is not c and any(r in a.steps for a in apart)]
            rows = [r for r in rows if all(r not in a.steps or c not in a.steps for a in self.inside)]
            if rows:
                return c, max(rows, key=self.size)
        return None

    def share(self, u: UOp) -> None:
        """Perform PACK of the LOAD `u`: let all lanes of a workgroup copy the memory that it reads to local memory.
        Where several buffers are legal, the copy is one step ahead.
        """
        load, why = self.plan.loads.index(u), "lanes share what they read"
        if self.target.bulk_copies and unit_reads_local(self.plan, u):
            if any(
                self.act("PACK", load, n, "boxes that are copied while other boxes are multiplied")
                for n in BOX_BUFFER_COUNTS
            ):
                return
        if self.target.warp == 1 or not self.act("PACK", load, 2, f"{why}, and copy the next step meanwhile"):
            self.act("PACK", load, None, why)

    # ---- the tile ----------------------------------------------------------------------------------------------------
    def candidates(self, c: UOp, m: UOp) -> list[WorkgroupTile]:
        """Return every tile whose lanes fit a workgroup and whose sums and operands fit the registers of a lane, with
        its cost.

        `c`: the RANGE of the columns. `m`: the RANGE of the rows.
        """
        most = min(MAX_LANES, self.target.max_local or MAX_LANES)
        sides = product(*LANES_PER_SIDE, *ELEMENTS_PER_LANE)
        return [
            WorkgroupTile(self.cost(c, m, (lc, lm), (rc, rm)), (lc, lm), (rc, rm))
            for lc, lm, rc, rm in sides
            if lc * lm <= most and 2 * rc * rm + rc + rm <= self.target.n_registers
        ]

    def cost(self, c: UOp, m: UOp, lanes: tuple[int, int], each: tuple[int, int]) -> float:
        """Return the cycles until the last multiprocessor has finished, for tiles with columns along the RANGE c and
        rows along the RANGE m. Partly filled warps cost as much as full ones.

        `lanes`: lanes of a workgroup; `each`: elements of each lane; both as (columns, rows).
        """
        columns, rows = lanes[0] * each[0], lanes[1] * each[1]
        others = prod(self.size(x) or SYMBOLIC_EXTENT for x in self.scope if x not in (c, m))
        depth = prod(self.size(j) or SYMBOLIC_EXTENT for j in self.contracted)
        tiles = -(-self.size(c) // columns) * -(-self.size(m) // rows) * others
        warps = -(-prod(lanes) // self.target.warp) * self.target.warp
        itemsize = self.profile.itemsize
        panels = sum(columns for a in self.inside if c in a.steps) + sum(rows for a in self.inside if c not in a.steps)
        busy = max(
            warps * prod(each) / self.target.unit_multiply_adds,
            warps
            * sum(each)
            * itemsize
            / self.target.local_bytes_per_cycle
            / 2,  # a whole warp reads half of the operands at once
            panels * itemsize / self.target.global_bytes_per_cycle,
        )
        return -(-tiles // self.target.n_units) * (
            depth * (busy + 1) + STORED_WEIGHT * columns * rows * itemsize / self.target.global_bytes_per_cycle
        )

    # ---- the actions -------------------------------------------------------------------------------------------------
    def side(self, r: UOp, lanes: int, each: int, why: str) -> None:
        """Split the RANGE r into, from the inside: contiguous elements of a lane (one vector), `lanes` lanes, and the
        remaining elements of a lane.

        `each`: number of elements of a lane in total. `why`: the reason to record.
        """
        wide = min(each, self.chooser.lanes)
        if wide > 1:
            self.act("SPLIT", self.axis_of(r), (wide, "UPCAST", False), why)
        if lanes > 1:
            self.act("SPLIT", self.axis_of(r), (lanes, "LOCAL", False), f"{lanes} lanes: {why}")
        if each > wide:
            self.act("SPLIT", self.axis_of(r), (each // wide, "UPCAST", False), "registers as far apart as lanes reach")

    def step(self, tile: WorkgroupTile) -> None:
        """Split the longest reduction into steps whose operands, for the workgroup's tile `tile`, fit half of local
        memory.
        """
        j = max(self.contracted, key=self.size)
        axis, n = self.axis_of(j), self.size(j)
        others = prod(self.size(x) or SYMBOLIC_EXTENT for x in self.contracted if x is not j)
        room = self.target.local_bytes // 2 // (sum(tile.sizes) * self.profile.itemsize * others)
        fits = [k for k in STEP_LENGTHS if k <= room]
        if not fits or n <= fits[0]:
            return
        k = next((k for k in fits[:3] if n % k == 0), 0)
        if not k:
            k = fits[0]
            if not self.act("PADTO", axis, k, "whole steps, with zeros beyond the end"):
                return
        self.act("SPLIT", axis, (self.plan.axes[axis].size // k, "REDUCE", True), f"{k} at a time in local memory")


__all__ = ["WorkgroupTile", "WorkgroupTiles"]

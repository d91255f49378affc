"""Tile sums of products (matrix products, convolutions, their gradients): register tile, cache blocks, packing.

A contraction has an axis c for the vector lanes. The loads that move along c are the panel, whose vectors every row
reuses. The other loads are broadcast operands: one scalar is repeated over the lanes. A row axis moves broadcast
operands only. The tile is vectors x rows accumulators in registers. Multiply-adds, loads and work beyond the edges
limit its speed.

With few rows, packing a panel from memory does not pay: a few rows of the panel stream in parallel instead.

The loops around the tile are, from the outside: threads; batches; blocks of columns and of the reduction, so that a
panel stays in the L2 cache, packed if it is reused often enough; blocks of rows whose broadcast operands are packed if
they are gated, upcast or not contiguous along the reduction. Broadcast operands that are not packed are prefetched one
row of tiles ahead. `tile_cost` estimates the cost of a tile.

Source: the schedules of Goto and van de Geijn (2008) with the roles of the caches as measured on AVX-512 machines.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod

from monolect.base.errors import ActionError
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.blocks.packed import PackedBlock
from monolect.optimize.cost import StridedAccess
from monolect.optimize.cpu.tile_cost import RegisterTile, TileCosts
from monolect.optimize.loops.accesses import next_row_distance
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.partial_sums import needs_local_accumulator, partial_sum_bytes
from monolect.optimize.tuning import (
    FEW_STREAMED_ROWS,
    LINE_BYTES,
    MAX_STREAMED_ROWS_TO_UNROLL,
    MAX_UNROLLED_LENGTH,
    MIN_PRIVATE_PIECE_BYTES,
    MIN_REUSE_TO_PACK,
    MIN_THREAD_MULTIPLY_ADDS,
    NEXT_ROWS_L2_FRACTION,
    OPS_PER_WORK_UNIT,
    REPACK_CYCLES,
    ROW_PREFETCH_BYTES,
    SHARED_LINE_CYCLES,
    UNROLL_STEPS,
)


class Contraction(TileCosts):
    """Choose and perform the actions of one contraction (a sum of products whose operands are reused) by register
    tiles, through `chooser.act`.
    """

    # ---- the tile ----------------------------------------------------------------------------------------------------
    def best(self) -> RegisterTile | None:
        """The register tile with the lowest cost over all vector axes, or None if no tile fits."""
        found = [t for c in self.scope for t in self.tiles(c)]
        return min(found, key=lambda t: t.cost, default=None)

    # ---- the actions -------------------------------------------------------------------------------------------------
    def reuse(self, tile: RegisterTile, panel: list[StridedAccess]) -> int:
        """Number of register tiles that read the same elements of `panel`, the loads that move along the vector lanes
        of `tile`.
        """
        free = [x for x in self.scope if all(x not in a.steps for a in panel)]
        return prod(-(-self.plan.extent(x) // (tile.rows if x is tile.row else 1)) for x in free)

    def commit(self, tile: RegisterTile) -> None:
        """Perform all actions for the register tile `tile`: SPLITs into vectors and rows, threads, block loops, PACKs
        and PREFETCHes, in an order that keeps every later action legal.
        """
        act, axis, plan = self.chooser.act, self.plan.axis_of, self.plan
        panel = self.panel_of(tile)
        broadcasts = [a for a in self.inside if tile.c not in a.steps]
        reuse = self.reuse(tile, panel)
        transposed = any(a.step(tile.c) != 1 for a in panel)
        wide = tile.lanes * tile.vectors
        pieces = self.column_pieces(tile.c, tile.row) if tile.streams else 1
        even = wide * self.target.n_threads * pieces if pieces > 1 else wide
        if plan.size(tile.c) % even:
            act("PADTO", axis(tile.c), even, "a masked vector holds the tail")
        if tile.row is not None and plan.divisor(tile.row) % tile.rows:
            act("PADTO", axis(tile.row), tile.rows, "rows beyond the end repeat the last")
        act(
            "SPLIT",
            axis(tile.c),
            (tile.lanes, "UPCAST", False),
            f"vector of {tile.lanes}, about {tile.cost / 1e3:.0f} k cycles",
        )
        if tile.vectors > 1:
            act("SPLIT", axis(tile.c, "LOOP"), (tile.vectors, "UPCAST", False), f"{tile.vectors} vectors in flight")
        if tile.row is not None and tile.rows > 1:
            act("SPLIT", axis(tile.row), (tile.rows, "UPCAST", False), "rows that share the vectors")
        self.chooser.vector.add(tile.c)
        if tile.unit is not None:
            if plan.size(self.deepest) % tile.unit.k:
                act("PADTO", axis(self.deepest), tile.unit.k, "the last step of the matrix unit is filled with zeros")
            act("TC", axis(self.deepest), tile.unit.name, f"{tile.unit.k} steps at once")
        depth = prod(plan.extent(j) for j in self.contracted)
        size = depth * plan.size(tile.c) * self.item
        often = not tile.streams and reuse >= MIN_REUSE_TO_PACK and size > self.target.l1_bytes
        packs = transposed or plan.unit is not None or often
        self.threads(tile, panel, broadcasts, packs)
        if packs:
            again = any(self.is_repacked(a, tile.row) for a in broadcasts)
            ahead = self.prefetches_next_block(tile, panel, broadcasts)
            self.block_panel(tile, panel, again, ahead)
        elif tile.streams:
            self.stream(tile, panel)
        self.block_rows(tile, broadcasts)
        if not tile.streams or tile.rows <= MAX_STREAMED_ROWS_TO_UNROLL:
            self.unroll(tile.row)
        if packs:
            for a in panel:
                act("PACK", plan.loads.index(a.uop), None, "the panel in one piece, in the order it is read")
                if ahead and PackedBlock(plan, a.uop).has_next:
                    act(
                        "PREFETCH",
                        plan.loads.index(a.uop),
                        "next",
                        f"its share of the next block, in {reuse} passes over each",
                    )
        for a in broadcasts:
            if self.wants_pack(a) or tile.streams:
                act("PACK", plan.loads.index(a.uop), None, "scalars without gates and strides")
            elif self.target.streams and self.exceeds_l2(a) and (n := next_row_distance(plan, a.uop)):
                act("PREFETCH", plan.loads.index(a.uop), n, "the next rows, from memory")
        if tile.streams and self.target.streams and self.panel_exceeds_l3(tile):
            for a in panel:
                n = self.next_rows_distance(tile, panel) or ROW_PREFETCH_BYTES
                act("PREFETCH", plan.loads.index(a.uop), n, "rows that stream from memory")

    def panel_of(self, tile: RegisterTile) -> list[StridedAccess]:
        """The panel of `tile`: the loads that move along its vector lanes."""
        return [a for a in self.inside if tile.c in a.steps]

    def threads(
        self, tile: RegisterTile, panel: list[StridedAccess], broadcasts: list[StridedAccess], packs: bool
    ) -> None:
        """Divide one loop over batches, columns or rows among the threads: the one for which the slowest thread has the
        least work.

        `panel`: the loads that move along the vector lanes of `tile`. `broadcasts`: the other loads. `packs`: the panel
        is packed. Batches are output axes that all operands move along; each thread packs the operands that its share
        needs.
        """
        n = self.target.n_threads
        if n < 2 or self.profile.work() * max(1, self.profile.n_ops // OPS_PER_WORK_UNIT) < MIN_THREAD_MULTIPLY_ADDS:
            return
        batches = [x for x in self.scope if all(x in a.steps for a in self.inside)]
        rows = [x for x in self.scope if x not in batches and all(x not in a.steps for a in panel)]
        columns = [x for x in self.scope if x not in batches and x not in rows]
        wide, tall = (prod(self.plan.extent(x) for x in xs) for xs in (columns, rows))
        # each thread packs the operands that its rows or columns share
        again = any(self.wants_pack(a) for a in broadcasts) and wide < tall
        # whether each thread reads its own part of the panel
        own = not again if packs else self.panel_exceeds_l2(tile.c, panel)
        order = [*batches, *((*columns, *rows) if own else (*rows, *columns))]
        loops = [(i, p) for x in order for i, p in enumerate(self.plan.axes) if p.root is x and p.type == "LOOP"]
        loops.sort(key=lambda ip: (tile.streams and ip[1].root in rows, self.imbalance(ip[1], n, tile, packs)))
        for i, p in loops:
            if p.has_iterations_for(n) and self.chooser.act("SPLIT", i, (n, "THREAD", True), f"work for {n} threads"):
                return

    def imbalance(self, p: AxisPart, n: int, tile: RegisterTile, packs: bool) -> float:
        """Return the time of the slowest thread if n threads divide the loop p, as a multiple of the mean time.

        It includes packing that all threads repeat, and cache lines that two threads write, both relative to the cost
        of `tile`. `packs`: the loads along the vector lanes of `tile` are packed.
        """
        more = (n - 1) * self.duplicated_packing_cycles(p, tile, packs)
        more += n * SHARED_LINE_CYCLES * self.shared_lines(p, n)
        return (-(-p.size // n) * n / p.size if p.size else 2) + more / tile.cost

    def duplicated_packing_cycles(self, p: AxisPart, tile: RegisterTile, packs: bool) -> float:
        """Return the cycles in which one thread packs the operands of `tile` that do not move along the loop p.

        If threads divide p, each of them repeats this packing. `packs`: the loads along the vector lanes of `tile` are
        packed.
        """
        cycles, steps = 0.0, tile.unit.k if tile.unit is not None else 1
        for a in [a for a in self.inside if not a.step(p.root) and not self.plan.is_frozen(a.uop)]:
            if tile.c in a.steps and packs:
                vectors = prod(self.plan.extent(x) for x in a.steps) / (tile.lanes * steps)
                cycles += vectors * (self.copy_cycles(a, tile.c) + REPACK_CYCLES)
            elif tile.c not in a.steps and self.wants_pack(a):
                cycles += self.row_copy_cycles(a, 1, tile.rows, tile.unit)
        return cycles

    def shared_lines(self, p: AxisPart, n: int) -> int:
        """Number of cache lines of the result that two threads write if n threads divide the loop p.

        These are lines where the threads' pieces of a row meet, and lines that the end of one row shares with the start
        of the next.
        """
        lines = 0
        for a in [a for a in self.profile.stores if a.step(p.root) == 1]:
            item, others = a.uop.src[1].dtype.itemsize, [x for x in a.steps if x is not p.root]
            piece = -(-p.size // n) * p.stride * item
            ends = p.root in self.plan.padded or any((a.step(x) or 0) * item % LINE_BYTES for x in others)
            meets = piece % LINE_BYTES or p.size * p.stride * item < n * MIN_PRIVATE_PIECE_BYTES
            lines += prod(self.plan.extent(x) for x in others) * ((n - 1) * bool(meets) + ends)
        return lines

    def prefetches_next_block(
        self, tile: RegisterTile, panel: list[StridedAccess], broadcasts: list[StridedAccess]
    ) -> bool:
        """Whether PREFETCH "next" pays: while a block of the panel is read, its next block is prefetched from memory.

        That needs a panel that is packed once (such as weights). It does not pay where memory is busy all the time, or
        where each block of columns reads all broadcast rows from memory again. `panel`: the loads that move along the
        vector lanes of `tile`. `broadcasts`: the other loads.
        """
        busy = self.target.l2_miss_cycles > self.reuse(tile, panel) * tile.rows / 2
        once = all(self.plan.is_frozen(a.uop) for a in panel) and not any(map(self.exceeds_l2, broadcasts))
        return once and self.target.streams and not busy

    def loop_of(self, x: UOp) -> int | None:
        """Return the index in `plan.axes` of the part of the RANGE x that is still a loop of more than one iteration
        (type LOOP, no block loop), or None.
        """
        mine = (i for i, p in enumerate(self.plan.axes) if p.root is x and p.type == "LOOP" and not p.is_block)
        return next((i for i in mine if self.plan.axes[i].size > 1), None)

    def cut(self, x: UOp, most: int, why: str) -> None:
        """Make a block loop over the remaining loop of the RANGE x, with at most `most` iterations in a block; with
        blocks of equal size if a divisor is close.

        Where that is illegal, each iteration is a block. `why`: the reason to record.
        """
        i = self.loop_of(x)
        if i is None or (n := self.plan.axes[i].size) <= max(1, most):
            return
        least = -(-n // max(1, most))
        even = next((k for k in range(least, 3 * least) if n % k == 0), 0)
        if not self.chooser.act("SPLIT", i, (even or least, "LOOP", True), why):
            self.chooser.act("SPLIT", i, (n, "LOOP", True), why)

    def block_panel(self, tile: RegisterTile, panel: list[StridedAccess], again: bool, ahead: bool) -> None:
        """Make block loops over batches (one at a time), columns and the reduction, so that a block of the panel takes
        half of the L2 cache.

        `panel`: the loads that move along the vector lanes of `tile`. `again`: broadcast operands are packed again for
        each block of columns. `ahead`: the next block is prefetched into the same half of the cache, so blocks are half
        as large.
        """
        for x in self.scope:
            if x is not tile.c and x is not tile.row and any(x in a.steps for a in panel):
                self.cut(x, 1, "one panel at a time")
        wide = tile.lanes * tile.vectors
        i = self.loop_of(tile.c)
        n_blocks = self.n_blocks(wide, self.plan.axes[i].size * wide if i is not None else wide, again)
        deepest = self.deepest
        depth = -(-self.plan.extent(deepest) // n_blocks)
        most = self.block_columns(wide, depth, again) // wide
        self.cut(tile.c, most // 2 if ahead else most, "a panel of columns stays in cache")
        if n_blocks > 1:
            self.block_rows_for_sums(panel, tile)
            why = f"blocks of {depth}: the panel stays in cache"
            self.chooser.act("SPLIT", self.plan.axis_of(deepest), (n_blocks, "LOOP", True), why)

    def block_rows_for_sums(self, panel: list[StridedAccess], tile: RegisterTile) -> None:
        """Make block loops over rows, around the blocks of the reduction, so that local memory holds the partial sums
        of one block of rows. Nothing is done if partial sums are kept in the output.

        `panel`: the loads that move along the vector lanes of `tile`.
        """
        room = self.target.local_bytes
        if not room or not needs_local_accumulator(self.plan):
            return
        for x in [x for x in self.scope if x is not tile.c and all(x not in a.steps for a in panel)]:
            i = self.loop_of(x)
            if i is not None and (n := partial_sum_bytes(self.plan)) > room:
                self.cut(x, self.plan.axes[i].size * room // n, "their sums stay in local memory")

    def stream(self, tile: RegisterTile, panel: list[StridedAccess]) -> None:
        """Make the reduction a block loop in whose iterations a few rows of the panel are read from memory in parallel
        (streamed), as many as their L1 cache sets hold.

        The accumulators are loaded and stored for each block of rows, so batches and columns are cut into blocks whose
        sums fit L2. `panel`: the loads that move along the vector lanes of `tile`.
        """
        for x in self.scope:
            if x is not tile.c and x is not tile.row and any(x in a.steps for a in panel):
                self.cut(x, 1, "one panel at a time")
        i = self.loop_of(tile.c)
        if i is not None and (n := self.column_pieces(tile.c, tile.row)) > 1:
            self.cut(tile.c, self.plan.axes[i].size // n, "sums stay in cache")
        j, rows = (
            self.contracted[0],
            FEW_STREAMED_ROWS if self.next_rows_distance(tile, panel) else self.streamed_row_count(panel),
        )
        blocks = -(-self.plan.size(j) // rows)
        self.chooser.act("SPLIT", self.plan.axis_of(j), (blocks, "LOOP", True), f"{rows} rows stream at once")

    def panel_exceeds_l3(self, tile: RegisterTile) -> bool:
        """Whether the panel of `tile`, all columns over the whole reduction, exceeds the L3 cache."""
        return prod(map(self.plan.extent, self.contracted)) * self.plan.size(tile.c) * self.item > self.target.l3_bytes

    def next_rows_distance(self, tile: RegisterTile, panel: list[StridedAccess]) -> int:
        """Return the distance in bytes from the rows of the panel that are streamed at a time to the next rows, if
        those should be prefetched meanwhile; else 0.

        That pays on cores that start two multiply-adds a cycle, for tiles of many rows, where L2 holds many rows of a
        thread's columns. `panel`: the loads that move along the vector lanes of `tile`.
        """
        piece = self.plan.size(tile.c) * self.item // self.target.n_threads // self.column_pieces(tile.c, tile.row)
        few = (
            self.panel_exceeds_l3(tile)
            and FEW_STREAMED_ROWS * piece * NEXT_ROWS_L2_FRACTION <= self.target.l2_bytes
            and tile.rows > MAX_STREAMED_ROWS_TO_UNROLL
        )
        step = panel[0].step(self.contracted[0]) or 0
        whole = step % self.target.lanes(self.item) == 0 and len(panel) == 1
        return FEW_STREAMED_ROWS * step * self.item if self.target.multiply_adds > 1 and few and whole else 0

    def block_rows(self, tile: RegisterTile, broadcasts: list[StridedAccess]) -> None:
        """Make block loops over rows of the result, so that the packed broadcast operands of one block take at most a
        quarter of the L2 cache.

        They may take half if all of them are copied in short runs, as larger blocks have longer runs. `broadcasts`: the
        loads that do not move along the vector lanes of `tile`.
        """
        mine = [a for a in broadcasts if self.wants_pack(a)]
        if not mine:
            return
        room = self.target.l2_bytes // (2 if all(self.is_repacked(a, tile.row) for a in mine) else 4)
        for x in [x for x in self.scope if x is not tile.c and any(x in a.steps for a in mine)]:
            i = self.loop_of(x)
            if i is None or max(self.packed_bytes(self.plan, a) for a in mine) <= room:
                continue
            n = self.plan.axes[i].size
            for k in range(2, n + 1):  # the fewest blocks that fit: fewest shared window edges
                if -(-n // k) == -(-n // (k - 1)):
                    continue
                trial = self.plan.copy()
                with suppress(ActionError):
                    trial.act(("SPLIT", i, (k, "LOOP", True)))
                if k == n or max(self.packed_bytes(trial, a) for a in mine) <= room:
                    self.chooser.act("SPLIT", i, (k, "LOOP", True), "packed rows stay in cache")
                    break

    @staticmethod
    def packed_bytes(plan: LoopPlan, a: StridedAccess) -> int:
        """Bytes of the packed block of the load `a` under the actions of `plan`, also if the block is too large to be
        legal; 0 if `a` cannot be packed.
        """
        try:
            return PackedBlock(plan, a.uop).local_bytes
        except ActionError as e:
            return e.found if isinstance(e.found, int) else 0

    def has_overlapping_windows(self, a: StridedAccess, r: UOp | None, j: UOp) -> bool:
        """Whether one step along the row RANGE r moves the load `a` as far as several steps of the reduction RANGE j.

        Then neighbouring rows read the same elements a few steps later, as in a strided convolution. False where r is
        None.
        """
        if r is None or not (step := a.step(j)) or not (wide := a.step(r)):
            return False
        return bool(wide % step == 0 and 1 < wide // step < self.plan.size(j))

    def unroll(self, row: UOp | None) -> None:
        """Unroll (UNROLL) the innermost reduction loop of each sum: completely if it is short and not the sum's only
        loop, else by UNROLL_STEPS.

        `row`: the axis of the tile's rows, or None. A short loop stays if rows of the tile read the same elements a few
        steps later: unrolled, the code generator would keep these elements in registers that the tile needs.
        """
        for js in self.sums:
            self.unroll_sum(js, row)

    def unroll_sum(self, loops: list[UOp], row: UOp | None) -> None:
        """Unroll the innermost loop of `loops`, the reduction loops of one sum, by the rules of `unroll`. `row`: as in
        `unroll`.
        """
        i = self.plan.axis_of(loops[-1], "REDUCE")
        n = self.plan.axes[i].size
        if len(loops) > 1 and 1 < n <= MAX_UNROLLED_LENGTH:
            if not any(self.has_overlapping_windows(a, row, loops[-1]) for a in self.inside):
                self.chooser.act("SPLIT", i, (n, "UNROLL", False), "few steps")
            return
        if self.target.loads_first or (self.plan.unit is not None and self.plan.unit.n_tiles):
            return  # unrolled, the broadcasts of all steps would be loaded before the first is used
        if n % UNROLL_STEPS == 0:
            self.chooser.act("SPLIT", i, (UNROLL_STEPS, "UNROLL", False), "fewer loop steps")


__all__ = [
    "Contraction",
]

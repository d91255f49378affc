"""Sums of products (matrix products, convolutions, their gradients): a register tile, blocks for the caches, packing.

A contraction has an axis c for the vector lanes: the loads that move along c are the panel, vectors reused by every
row; the loads that do not are scalars, broadcast to the lanes. A row axis moves only scalars. The tile is vectors x
rows accumulators in registers; what limits it are multiply-adds, loads and what is computed beyond the edges.

Few rows, for which copying a panel from far away does not pay, let rows of it stream side by side instead.

Around the tile, from the outside: threads; batches; blocks of columns and of the reduction, so that a panel stays in
the second cache, packed when it is used often enough; blocks of rows whose scalars are packed when they are gated, are
widened, or lie at strides that share cache sets. Scalars that are not packed are asked for a row of tiles ahead. What
a tile costs is told in `tile_cost`.

Source: the schedules of Goto and van de Geijn (2008) with the roles of the caches as measured on AVX-512 machines.
"""

from __future__ import annotations

from contextlib import suppress
from math import prod

from monolect.base.errors import ActionError
from monolect.ir.uop import UOp
from monolect.optimize.actions.pack import Block
from monolect.optimize.actions.plan import Part, Plan
from monolect.optimize.actions.stream import LINE_BYTES, next_rows
from monolect.optimize.actions.sums import bytes_of_sums, had_better_wait
from monolect.optimize.cost import Access
from monolect.optimize.cpu.tile_cost import (
    FROM_MEMORY,
    LONGEST_UNROLLED,
    QUICK_ROWS,
    REUSE_TO_PACK,
    Tile,
    TileCosts,
)

SHORTEST_PIECE = 256  # bytes of a row that a thread writes alone: a line of it at either end is another's
SHARED_LINE = 70  # cycles, at least, that a line costs to which two threads write; up to 1500 by where these run
PANEL_AGAIN = 6  # cycles more for a vector of a panel that each thread copies: nothing hides where it comes from
MOST_UNROLLED = 4  # rows of a tile that streams: scalars of more would not stay in registers for several steps
FEW_OF_CACHE = 8  # a part of the second cache, at most, of what a few rows are
ROW_AHEAD_BYTES = 1024  # how far ahead along each of them is asked for


class Contraction(TileCosts):
    """The decisions for one kernel, made through `chooser.act`."""

    # ---- the tile ----------------------------------------------------------------------------------------------------
    def best(self) -> Tile | None:
        """The cheapest tile there is."""
        found = [t for c in self.scope for t in self.tiles(c)]
        return min(found, key=lambda t: t.cost, default=None)

    # ---- the actions -------------------------------------------------------------------------------------------------
    def reuse(self, tile: Tile, panel: list[Access]) -> int:
        """How many tiles read the same part of the panel."""
        free = [x for x in self.scope if all(x not in a.steps for a in panel)]
        return prod(-(-self.plan.extent(x) // (tile.rows if x is tile.row else 1)) for x in free)

    def commit(self, t: Tile) -> None:
        """Shape, threads, blocks and packs, in the order that keeps every later action legal."""
        act, axis, plan = self.chooser.act, self.plan.axis_of, self.plan
        panel = self.panel_of(t)
        scalars = [a for a in self.inside if t.c not in a.steps]
        reuse = self.reuse(t, panel)
        turned = any(a.step(t.c) != 1 for a in panel)
        wide = t.lanes * t.vectors
        pieces = self.pieces(t.c, t.row) if t.streams else 1
        even = wide * self.target.n_threads * pieces if pieces > 1 else wide
        if plan.size(t.c) % even:
            act("PADTO", axis(t.c), even, "a masked vector holds the tail")
        if t.row is not None and plan.divisor(t.row) % t.rows:
            act("PADTO", axis(t.row), t.rows, "rows beyond the end repeat the last")
        act("SPLIT", axis(t.c), (t.lanes, "UPCAST", False), f"vector of {t.lanes}, about {t.cost / 1e3:.0f} k cycles")
        if t.vectors > 1:
            act("SPLIT", axis(t.c, "LOOP"), (t.vectors, "UPCAST", False), f"{t.vectors} vectors in flight")
        if t.row is not None and t.rows > 1:
            act("SPLIT", axis(t.row), (t.rows, "UPCAST", False), "rows that share the vectors")
        self.chooser.vector.add(t.c)
        if t.unit is not None:
            if plan.size(self.deepest) % t.unit.k:
                act("PADTO", axis(self.deepest), t.unit.k, "the last step of the matrix unit is filled with zeros")
            act("TC", axis(self.deepest), t.unit.name, f"{t.unit.k} steps at once")
        depth = prod(plan.extent(j) for j in self.heavy)
        size = depth * plan.size(t.c) * self.item
        often = not t.streams and reuse >= REUSE_TO_PACK and size > self.target.l1_bytes
        packs = turned or plan.unit is not None or often
        self.threads(t, panel, scalars, packs)
        if packs:
            again = any(self.is_copied_again(a, t.row) for a in scalars)
            ahead = self.asks_for_next(t, panel, scalars)
            self.block_panel(t, panel, again, ahead)
        elif t.streams:
            self.stream(t, panel)
        self.block_rows(t, scalars)
        if not t.streams or t.rows <= MOST_UNROLLED:
            self.unroll(t.row)
        if packs:
            for a in panel:
                act("PACK", plan.loads.index(a.uop), None, "the panel in one piece, in the order it is read")
                if ahead and Block(plan, a.uop).has_next:
                    act(
                        "PREFETCH",
                        plan.loads.index(a.uop),
                        "next",
                        f"its share of the next, in {reuse} passes over each",
                    )
        for a in scalars:
            if self.wants_pack(a) or t.streams:
                act("PACK", plan.loads.index(a.uop), None, "scalars without gates and strides")
            elif self.target.streams and self.is_far(a) and (n := next_rows(plan, a.uop)):
                act("PREFETCH", plan.loads.index(a.uop), n, "the next rows, from far away")
        if t.streams and self.target.streams and self.comes_far(t):
            for a in panel:
                n = self.next_few(t, panel) or ROW_AHEAD_BYTES
                act("PREFETCH", plan.loads.index(a.uop), n, "rows that stream from far away")

    def panel_of(self, t: Tile) -> list[Access]:
        """The loads that move along the lanes."""
        return [a for a in self.inside if t.c in a.steps]

    def threads(self, t: Tile, panel: list[Access], scalars: list[Access], packs: bool) -> None:
        """Share out the batches, the columns (each thread packs its own) or the rows, whichever balances best."""
        n = self.target.n_threads
        if n < 2 or self.profile.work() * max(1, self.profile.n_ops // 8) < self.chooser.THREAD_WORK:
            return
        batches = [x for x in self.scope if all(x in a.steps for a in self.inside)]
        rows = [x for x in self.scope if x not in batches and all(x not in a.steps for a in panel)]
        columns = [x for x in self.scope if x not in batches and x not in rows]
        wide, tall = (prod(self.plan.extent(x) for x in xs) for xs in (columns, rows))
        again = (
            any(self.wants_pack(a) for a in scalars) and wide < tall
        )  # each thread packs what its rows or columns share
        own = not again if packs else self.comes_from_memory(t.c, panel)  # of a panel each thread reads its own part
        order = [*batches, *((*columns, *rows) if own else (*rows, *columns))]
        loops = [(i, p) for x in order for i, p in enumerate(self.plan.axes) if p.root is x and p.type == "LOOP"]
        loops.sort(key=lambda ip: (t.streams and ip[1].root in rows, self.imbalance(ip[1], n, t, packs)))
        for i, p in loops:
            if p.feeds(n) and self.chooser.act("SPLIT", i, (n, "THREAD", True), f"work for {n} threads"):
                return

    def imbalance(self, p: Part, n: int, t: Tile, packs: bool) -> float:
        """What the longest of n shares of the loop p takes, by the mean: with what all of them copy, and lines that go
        to and fro between them.
        """
        more = (n - 1) * self.copied_by_all(p, t, packs) + n * SHARED_LINE * self.shared_lines(p, n)
        return (-(-p.size // n) * n / p.size if p.size else 2) + more / t.cost

    def copied_by_all(self, p: Part, t: Tile, packs: bool) -> float:
        """Cycles to pack, once, what each thread that has a part of the loop p needs whole."""
        cycles, steps = 0.0, t.unit.k if t.unit is not None else 1
        for a in [a for a in self.inside if not a.step(p.root) and not self.plan.is_frozen(a.uop)]:
            if t.c in a.steps and packs:
                vectors = prod(self.plan.extent(x) for x in a.steps) / (t.lanes * steps)
                cycles += vectors * (self.copying(a, t.c) + PANEL_AGAIN)
            elif t.c not in a.steps and self.wants_pack(a):
                cycles += self.copying_rows(a, 1, t.rows, t.unit)
        return cycles

    def shared_lines(self, p: Part, n: int) -> int:
        """Lines of the result to which two threads write if n of them share out the loop p: where their pieces of a row
        meet, and between rows, also where nothing of a vector that reaches beyond the end is stored.
        """
        lines = 0
        for a in [a for a in self.profile.stores if a.step(p.root) == 1]:
            item, others = a.uop.src[1].dtype.itemsize, [x for x in a.steps if x is not p.root]
            piece = -(-p.size // n) * p.stride * item
            ends = p.root in self.plan.padded or any((a.step(x) or 0) * item % LINE_BYTES for x in others)
            meets = piece % LINE_BYTES or p.size * p.stride * item < n * SHORTEST_PIECE
            lines += prod(self.plan.extent(x) for x in others) * ((n - 1) * bool(meets) + ends)
        return lines

    def asks_for_next(self, t: Tile, panel: list[Access], scalars: list[Access]) -> bool:
        """Whether each pass over a block of a panel that was packed once asks for its share of the next one: a model
        reads its weights once a call, so they come from far away. Not where memory is busy all the time, nor beside
        rows that come from there, too, of which each block of columns reads all again.
        """
        busy = FROM_MEMORY > self.reuse(t, panel) * t.rows / 2
        once = all(self.plan.is_frozen(a.uop) for a in panel) and not any(map(self.is_far, scalars))
        return once and self.target.streams and not busy

    def loop_of(self, x: UOp) -> int | None:
        """The axis that is left of x to loop over."""
        mine = (i for i, p in enumerate(self.plan.axes) if p.root is x and p.type == "LOOP" and not p.is_block)
        return next((i for i in mine if self.plan.axes[i].size > 1), None)

    def cut(self, x: UOp, most: int, why: str) -> None:
        """Blocks of at most `most` iterations of what is left of the loop x; even ones where a divisor is near."""
        i = self.loop_of(x)
        if i is None or (n := self.plan.axes[i].size) <= max(1, most):
            return
        least = -(-n // max(1, most))
        even = next((k for k in range(least, 3 * least) if n % k == 0), 0)
        if not self.chooser.act("SPLIT", i, (even or least, "LOOP", True), why):
            self.chooser.act("SPLIT", i, (n, "LOOP", True), why)

    def block_panel(self, t: Tile, panel: list[Access], again: bool, ahead: bool) -> None:
        """Batches one by one; then columns and reduction so that a block of the panel is half the second cache.
        `again`: scalars are packed for each block of columns. `ahead`: the next block comes meanwhile, to that half.
        """
        for x in self.scope:
            if x is not t.c and x is not t.row and any(x in a.steps for a in panel):
                self.cut(x, 1, "one panel at a time")
        wide = t.lanes * t.vectors
        i = self.loop_of(t.c)
        n_blocks = self.n_blocks(wide, self.plan.axes[i].size * wide if i is not None else wide, again)
        deepest = self.deepest
        depth = -(-self.plan.extent(deepest) // n_blocks)
        most = self.columns(wide, depth, again) // wide
        self.cut(t.c, most // 2 if ahead else most, "a panel of columns stays in cache")
        if n_blocks > 1:
            self.rows_of_sums(panel, t)
            why = f"blocks of {depth}: the panel stays in cache"
            self.chooser.act("SPLIT", self.plan.axis_of(deepest), (n_blocks, "LOOP", True), why)

    def rows_of_sums(self, panel: list[Access], t: Tile) -> None:
        """Blocks of rows of which local memory holds the sums, around those of the reduction."""
        room = self.target.local_bytes
        if not room or not had_better_wait(self.plan):
            return
        for x in [x for x in self.scope if x is not t.c and all(x not in a.steps for a in panel)]:
            i = self.loop_of(x)
            if i is not None and (n := bytes_of_sums(self.plan)) > room:
                self.cut(x, self.plan.axes[i].size * room // n, "their sums stay in local memory")

    def stream(self, t: Tile, panel: list[Access]) -> None:
        """A few rows of the panel at once, the reduction outermost, no more than their sets of the first cache hold.
        Sums are loaded and stored for each, so that the second cache has to hold them: in batches and columns for which
        it does.
        """
        for x in self.scope:
            if x is not t.c and x is not t.row and any(x in a.steps for a in panel):
                self.cut(x, 1, "one panel at a time")
        i = self.loop_of(t.c)
        if i is not None and (n := self.pieces(t.c, t.row)) > 1:
            self.cut(t.c, self.plan.axes[i].size // n, "sums stay in cache")
        j, rows = self.heavy[0], QUICK_ROWS if self.next_few(t, panel) else self.rows_at_once(panel)
        blocks = -(-self.plan.size(j) // rows)
        self.chooser.act("SPLIT", self.plan.axis_of(j), (blocks, "LOOP", True), f"{rows} rows stream at once")

    def comes_far(self, t: Tile) -> bool:
        """Whether no cache holds one panel."""
        return prod(map(self.plan.extent, self.heavy)) * self.plan.size(t.c) * self.item > self.target.l3_bytes

    def next_few(self, t: Tile, panel: list[Access]) -> int:
        """Bytes to the rows that stream after a few of them, if these are what to ask for meanwhile: beside two
        multiply-adds a cycle and many sums, where the second cache holds many rows of a thread's columns. Else 0.
        """
        piece = self.plan.size(t.c) * self.item // self.target.n_threads // self.pieces(t.c, t.row)
        few = self.comes_far(t) and QUICK_ROWS * piece * FEW_OF_CACHE <= self.target.l2_bytes and t.rows > MOST_UNROLLED
        step = panel[0].step(self.heavy[0]) or 0
        whole = step % self.target.lanes(self.item) == 0 and len(panel) == 1
        return QUICK_ROWS * step * self.item if self.target.multiply_adds > 1 and few and whole else 0

    def block_rows(self, t: Tile, scalars: list[Access]) -> None:
        """Blocks of rows of which the packed scalars are a quarter of the second cache; half of it where short pieces
        are copied, which are longer then.
        """
        mine = [a for a in scalars if self.wants_pack(a)]
        if not mine:
            return
        room = self.target.l2_bytes // (2 if all(self.is_copied_again(a, t.row) for a in mine) else 4)
        for x in [x for x in self.scope if x is not t.c and any(x in a.steps for a in mine)]:
            i = self.loop_of(x)
            if i is None or max(self.packed_bytes(self.plan, a) for a in mine) <= room:
                continue
            n = self.plan.axes[i].size
            for k in range(2, n + 1):  # the fewest blocks that fit, of which neighbours share the least
                if -(-n // k) == -(-n // (k - 1)):
                    continue
                trial = self.plan.copy()
                with suppress(ActionError):
                    trial.act(("SPLIT", i, (k, "LOOP", True)))
                if k == n or max(self.packed_bytes(trial, a) for a in mine) <= room:
                    self.chooser.act("SPLIT", i, (k, "LOOP", True), "packed rows stay in cache")
                    break

    @staticmethod
    def packed_bytes(plan: Plan, a: Access) -> int:
        """The size of the block of an access, also of one too large."""
        try:
            return Block(plan, a.uop).local_bytes
        except ActionError as e:
            return e.found if isinstance(e.found, int) else 0

    def meets_later(self, a: Access, r: UOp | None, j: UOp) -> bool:
        """True when rows move by several steps of j: what a row reads is read again by its neighbour, steps later."""
        if r is None or not (step := a.step(j)) or not (wide := a.step(r)):
            return False
        return bool(wide % step == 0 and 1 < wide // step < self.plan.size(j))

    def unroll(self, row: UOp | None) -> None:
        """Short reductions whole, the longest by four. A loop is left where the code generator would load once what
        rows share in different steps, and keep it in registers that the tile does not leave.
        """
        for js in self.sums:
            self.unroll_sum(js, row)

    def unroll_sum(self, js: list[UOp], row: UOp | None) -> None:
        """The same for one of the sums."""
        i = self.plan.axis_of(js[-1], "REDUCE")
        n = self.plan.axes[i].size
        if len(js) > 1 and 1 < n <= LONGEST_UNROLLED:
            if not any(self.meets_later(a, row, js[-1]) for a in self.inside):
                self.chooser.act("SPLIT", i, (n, "UNROLL", False), "few steps")
            return
        if self.target.loads_first or (self.plan.unit is not None and self.plan.unit.n_tiles):
            return  # the scalars of all steps would be loaded before the first is used
        if n % 4 == 0:
            self.chooser.act("SPLIT", i, (4, "UNROLL", False), "fewer loop steps")

"""Sums of products (matrix products, convolutions, their gradients): a register tile, blocks for the caches, packing.

A contraction has an axis c for the vector lanes: the loads that move along c are the panel, vectors reused by every
row; the loads that do not are scalars, broadcast to the lanes. A row axis moves only scalars. The tile is vectors x
rows accumulators in registers; what limits it are multiply-adds, loads and what is computed beyond the edges.

Around the tile, from the outside: threads; batches; blocks of columns and of the reduction, so that a panel stays in
the second cache, packed when it is used often enough; blocks of rows whose scalars are packed when they are gated, or
lie at strides that share cache sets. Every estimate is in cycles of a vector unit with two multiply-adds a cycle.

Source: the schedules of Goto and van de Geijn (2008) with the roles of the caches as measured on AVX-512 machines.
"""

from __future__ import annotations

from contextlib import suppress
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from monolect.base.errors import ActionError
from monolect.base.target import MatrixUnit
from monolect.ir.uop import UOp
from monolect.optimize.cost import Access
from monolect.optimize.matrix import check, flips
from monolect.optimize.pack import Block
from monolect.optimize.stages import memory_of
from monolect.optimize.sums import bytes_of_sums

if TYPE_CHECKING:
    from monolect.optimize.action import Plan
    from monolect.optimize.heuristic import Chooser

LONGEST_UNROLLED = 8  # a reduction is unrolled whole up to this
REUSE_TO_PACK = 4  # times a panel is read again, from which on copying it pays
FEW_ROWS = 4  # tiles of rows below which a panel is not worth being turned around: dot products instead
FLIPPING = 1  # registers: the bits that turn an operand of a matrix unit into one of the other sign
MOST_ROWS = 14  # of registers, or of tiles
LEAST_FOR_UNIT = 16  # rows for which a panel is laid out as a matrix unit reads it
ROWS_AT_ONCE = 16  # rows of a panel streamed side by side from memory
ROW_AHEAD_BYTES = 512  # how far ahead along each of them is asked for
LEAST_DEPTH = 256  # steps of a sum in one block, however wide the tile is
COLUMNS_AT_ONCE = 128  # of a block, at least: the deeper it is, the less often sums are stored, loaded and finished
COLUMNS_A_PACK = 1024  # the same where scalars are packed: again for each block of columns
L1_WAY_BYTES = 4096  # rows at multiples of it share the sets of the first cache
FROM_MEMORY = 12  # cycles more to turn a vector that comes from memory: nothing else is done meanwhile


class Tile(NamedTuple):
    """A choice: lanes along `c`, `vectors` of them, `rows` along the axis `row` (None: one row). `cost`: cycles."""

    cost: float
    c: UOp
    row: UOp | None
    lanes: int
    vectors: int
    rows: int
    unit: MatrixUnit | None = None


class Contraction:
    """The decisions for one kernel, made through `chooser.act`."""

    def __init__(self, chooser: Chooser, heavy: list[UOp]):
        self.chooser, self.plan, self.profile = chooser, chooser.plan, chooser.profile
        self.target = self.plan.target
        self.heavy = heavy
        scope = frozenset().union(*(self.profile.scope(j) for j in heavy))
        self.scope = [r for r in self.plan.outputs if r in scope]
        inside = {a.uop: a for j in heavy for a in self.profile.inside(j)}
        self.inside = list(inside.values())
        self.deepest = max(heavy, key=self.plan.size)

    # ---- the tile ----------------------------------------------------------------------------------------------------
    def best(self) -> Tile | None:
        """The cheapest tile there is."""
        found = [t for c in self.scope for t in self.tiles(c)]
        return min(found, key=lambda t: t.cost, default=None)

    def tiles(self, c: UOp) -> list[Tile]:
        """Every tile with lanes along c."""
        panel = [a for a in self.inside if c in a.steps]
        n = self.plan.size(c)
        if n < 3 or not panel or c in self.plan.sequential or any(a.step(c) is None for a in panel):
            return []
        turned = [a for a in panel if a.step(c) != 1]
        if any(not self.packable(a) for a in turned):
            return []
        lanes = self.chooser.fitting_lanes(n)
        rows = [
            r for r in self.scope if r is not c and all(r not in a.steps for a in panel) and self.plan.extent(r) > 1
        ]
        scalars = [a for a in self.inside if c not in a.steps]
        out = []
        for unit in self.units(c, lanes, panel) or [None]:  # type: ignore[list-item]
            for r in rows or [None]:  # type: ignore[list-item]
                m = self.plan.extent(r) if r is not None else 1
                for v in range(1, min(8, -(-n // lanes)) + 1):
                    tall = unit.m if unit is not None else 1
                    for k in range(tall, tall * min(-(-m // tall), MOST_ROWS) + 1, tall):
                        if self.fits(v, k, scalars, r, unit):
                            cost = self.cost(c, r, lanes, v, k, panel, scalars, unit)
                            out.append(Tile(cost, c, r, lanes, v, k, unit))
        return out

    def units(self, c: UOp, lanes: int, panel: list[Access]) -> list[MatrixUnit]:
        """The matrix units for this sum with lanes along c. Their panel must be packed, so be read often enough."""
        again = prod(self.plan.extent(x) for x in self.scope if all(x not in a.steps for a in panel))
        if len(self.plan.reduces) != 1 or again < LEAST_FOR_UNIT or not all(self.packable(a) for a in panel):
            return []
        out = []
        for unit in self.target.units:
            if unit.n == lanes and self.plan.size(self.deepest) >= unit.k:
                with suppress(ActionError):
                    check(unit, self.plan.reduces[0], c)
                    out.append(unit)
        return out

    def fits(self, v: int, k: int, scalars: list[Access], r: UOp | None, unit: MatrixUnit | None) -> bool:
        """Whether v vectors by k rows of accumulators, and their operands, fit the registers."""
        if unit is not None and unit.n_tiles:
            return k % unit.m == 0 and v * (k // unit.m) + v + k // unit.m <= unit.n_tiles
        more = FLIPPING if unit is not None and flips(unit, self.plan.reduces[0]) else 0
        return self.registers(v, k, scalars, r) + more < self.target.n_registers

    def registers(self, v: int, k: int, scalars: list[Access], r: UOp | None) -> int:
        """Vector registers the tile needs. Scalars of neighbouring taps are loaded once and stay. With three vectors or
        more the loads of the next step want room beside this one's: without it nothing is spilled, and yet some orders
        of the same instructions run at half the speed.
        """
        taps = [j for j in self.heavy if self.plan.size(j) <= LONGEST_UNROLLED and r is not None]
        again = [self.plan.size(j) - 1 for j in taps for a in scalars if self.is_window(a, r, j)]
        ahead = v + 2 if v > 2 else 1
        held = k + max(again) if again else k if self.target.loads_first else ahead
        return v * k + v + held

    @staticmethod
    def is_window(a: Access, r: UOp | None, j: UOp) -> bool:
        """True when r and j move the access by the same step: different pairs meet at one place."""
        return r is not None and r in a.steps and j in a.steps and a.steps[r] is not None and a.steps[r] == a.steps[j]

    def cost(
        self,
        c: UOp,
        r: UOp | None,
        lanes: int,
        v: int,
        k: int,
        panel: list[Access],
        scalars: list[Access],
        unit: MatrixUnit | None,
    ) -> float:
        """Cycles of the whole kernel with this tile, on one thread."""
        n, m = self.plan.size(c), self.plan.extent(r) if r is not None else 1
        others = prod(self.plan.extent(x) for x in self.scope if x is not c and x is not r)
        depth = prod(self.plan.extent(j) for j in self.heavy) / (unit.k if unit is not None else 1)
        gated = sum(len(a.uop.src) == 3 and not self.packable(a) for a in scalars)
        loads = v * len(panel) + k * (len(scalars) + 4 * gated)
        missed = k * sum(self.shares_sets(a, r, k) for a in scalars) / lanes  # lines fetched anew in each step
        step = max(v * k / 2, loads / 2, 4) + 0.15 * v + 0.03 * k + 4 * missed
        if unit is not None and unit.n_tiles:  # a row a cycle
            step = v * k + 0.1 * (v * unit.m + k)
        tiles = -(-n // (lanes * v)) * -(-m // k) * others
        reuse = max(1, prod(self.plan.extent(x) for x in self.scope if all(x not in a.steps for a in panel)) // k)
        packs = reuse >= REUSE_TO_PACK or any(a.step(c) != 1 for a in panel)
        copied = [a for a in panel if packs and not self.plan.is_frozen(a.uop)]  # what is frozen is packed once
        copying = tiles * depth * v * sum(self.copying(a, c) for a in copied) / reuse
        again = [a for a in scalars if self.is_copied_again(a, r)]
        blocks = self.n_blocks(lanes * v, n, bool(again)) if packs else 1
        if again:
            wide = self.columns(lanes * v, -(-max(map(self.plan.size, self.heavy)) // blocks), True) if packs else n
            copying += sum(self.copying_rows(a, -(-n // max(wide, lanes * v))) for a in again)
        start = 8 * k // (unit.m if unit is not None else 1)
        return tiles * (depth * step + start + (2 * blocks - 1) * v * k * self.storing(c, r)) + copying

    def shares_sets(self, a: Access, r: UOp | None, k: int) -> bool:
        """Whether the k rows of a scalar are too many for the sets of the first cache that they lie in."""
        stride = abs(a.step(r) or 0) * a.uop.dtype.itemsize if r is not None else 0
        too_many = stride > 0 and k * gcd(stride, L1_WAY_BYTES) > self.target.l1_bytes * 2 // 3
        return too_many and not self.wants_pack(a)

    def storing(self, c: UOp, r: UOp | None) -> float:
        """Cycles to store a vector along c: whole, turned with the rows, or element by element."""
        stores = [a for a in self.profile.stores if c in a.steps]
        if all(a.step(c) == 1 for a in stores):
            return 1
        return 6 if r is not None and all(a.step(r) == 1 for a in stores) else 32

    def copying(self, a: Access, c: UOp) -> float:
        """Cycles to copy a vector along c: as it lies, turned with a reduction that lies along memory, or gathered."""
        if a.step(c) == 1:
            return 1
        along = any(a.step(j) == 1 and self.plan.size(j) >= 3 for j in self.heavy)
        return (5 if along and a.step(c) not in (2, 3, 4) else 40) + self.is_far(a) * FROM_MEMORY

    def is_copied_again(self, a: Access, r: UOp | None) -> bool:
        """Whether the scalars of `a` are packed for each block of columns, in short pieces: rows of a tile that are
        neighbours in memory.
        """
        rows = r is not None and a.step(r) == 1 and not any(self.is_window(a, r, j) for j in self.heavy)
        return rows and self.wants_pack(a) and not self.plan.is_frozen(a.uop)

    def copying_rows(self, a: Access, times: int) -> float:
        """Cycles to copy all of what a scalar reads, so many times; it comes from memory once in any case."""
        vectors = prod(self.plan.extent(x) for x in a.steps) / self.target.lanes(a.uop.dtype.itemsize)
        return vectors * (2 * times + (times - 1) * self.is_far(a) * FROM_MEMORY)

    def is_far(self, a: Access) -> bool:
        """Whether the second cache does not hold the memory it reads."""
        return prod(memory_of(a.uop.src[0]).shape) * a.uop.dtype.itemsize > self.target.l2_bytes

    def packable(self, a: Access) -> bool:
        """Whether the access could be packed, as far as that does not depend on its size."""
        try:
            Block(self.plan, a.uop)
        except ActionError as e:
            return "too large" in str(e)
        return True

    # ---- the actions -------------------------------------------------------------------------------------------------
    def run(self) -> bool:
        """Act. False when the kernel is no contraction that a tile fits."""
        tile = self.best()
        if tile is None or (self.has_dots() and self.few_rows(tile)):
            return False
        self.commit(tile)
        return True

    def has_dots(self) -> bool:
        """Whether every operand is contiguous along one reduction."""
        return any(self.profile.unit(j, self.inside) and self.plan.size(j) >= 3 for j in self.heavy)

    def few_rows(self, tile: Tile) -> bool:
        """Whether what is turned around is hardly used again, or does not fill a vector."""
        if tile.lanes < self.chooser.lanes:
            return True
        panel = [a for a in self.inside if tile.c in a.steps]
        least = FEW_ROWS if tile.unit is None else FEW_ROWS // tile.unit.m
        return any(a.step(tile.c) != 1 for a in panel) and self.reuse(tile, panel) < least

    def reuse(self, tile: Tile, panel: list[Access]) -> int:
        """How many tiles read the same part of the panel."""
        free = [x for x in self.scope if all(x not in a.steps for a in panel)]
        return prod(-(-self.plan.extent(x) // (tile.rows if x is tile.row else 1)) for x in free)

    def commit(self, t: Tile) -> None:
        """Shape, threads, blocks and packs, in the order that keeps every later action legal."""
        act, axis, plan = self.chooser.act, self.plan.axis_of, self.plan
        panel = [a for a in self.inside if t.c in a.steps]
        scalars = [a for a in self.inside if t.c not in a.steps]
        reuse = self.reuse(t, panel)
        turned = any(a.step(t.c) != 1 for a in panel)
        wide = t.lanes * t.vectors
        if plan.size(t.c) % wide:
            act("PADTO", axis(t.c), wide, "a masked vector holds the tail")
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
        packs = turned or plan.unit is not None or (reuse >= REUSE_TO_PACK and size > self.target.l1_bytes)
        self.threads(panel, scalars, packs)
        if packs:
            again = any(self.is_copied_again(a, t.row) for a in scalars)
            self.block_panel(t, panel, again)
        elif reuse < REUSE_TO_PACK:
            self.stream(t)
        self.block_rows(t, scalars)
        self.unroll(t.row)
        if packs:
            for a in panel:
                act("PACK", plan.loads.index(a.uop), None, "the panel in one piece, in the order it is read")
        for a in scalars:
            if self.wants_pack(a):
                act("PACK", plan.loads.index(a.uop), None, "scalars without gates and strides")
        if not packs and reuse < REUSE_TO_PACK and self.target.streams and size > self.target.l3_bytes:
            for a in panel:
                act("FETCH", plan.loads.index(a.uop), ROW_AHEAD_BYTES, "rows that stream from far away")

    def threads(self, panel: list[Access], scalars: list[Access], packs: bool) -> None:
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
        order = [*batches, *((*columns, *rows) if packs and not again else (*rows, *columns))]
        loops = [(i, p) for x in order for i, p in enumerate(self.plan.axes) if p.root is x and p.type == "LOOP"]
        loops.sort(key=lambda ip: -(-ip[1].size // n) * n / ip[1].size if ip[1].size else 2)
        for i, p in loops:
            if (p.size >= n or not p.size) and self.chooser.act(
                "SPLIT", i, (n, "THREAD", True), f"work for {n} threads"
            ):
                return

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

    def block_panel(self, t: Tile, panel: list[Access], again: bool) -> None:
        """Batches one by one; then columns and reduction so that a block of the panel is half the second cache.
        `again`: scalars are packed for each block of columns.
        """
        for x in self.scope:
            if x is not t.c and x is not t.row and any(x in a.steps for a in panel):
                self.cut(x, 1, "one panel at a time")
        wide = t.lanes * t.vectors
        i = self.loop_of(t.c)
        n_blocks = self.n_blocks(wide, self.plan.axes[i].size * wide if i is not None else wide, again)
        deepest = self.deepest
        depth = -(-self.plan.size(deepest) // n_blocks)
        self.cut(t.c, self.columns(wide, depth, again) // wide, "a panel of columns stays in cache")
        if n_blocks > 1:
            self.rows_of_sums(panel, t)
            why = f"blocks of {depth}: the panel stays in cache"
            self.chooser.act("SPLIT", self.plan.axis_of(deepest), (n_blocks, "LOOP", True), why)

    def rows_of_sums(self, panel: list[Access], t: Tile) -> None:
        """Blocks of rows of which local memory holds the sums, around those of the reduction."""
        room = self.target.local_bytes
        if self.plan.stores[0].src[1] is self.plan.reduces[0] or not room:
            return
        for x in [x for x in self.scope if x is not t.c and all(x not in a.steps for a in panel)]:
            i = self.loop_of(x)
            if i is not None and (n := bytes_of_sums(self.plan)) > room:
                self.cut(x, self.plan.axes[i].size * room // n, "their sums stay in local memory")

    def columns(self, wide: int, depth: int, again: bool) -> int:
        """Columns of a block of `depth` steps of the longest reduction. Where all of it is in one block and scalars are
        packed for each, a panel may be as large as the second cache.
        """
        sizes = [self.plan.size(j) for j in self.heavy]
        room = self.target.l2_bytes // (1 if again and depth == max(sizes) else 2)
        return room // (self.item * depth * (prod(sizes) // max(sizes))) // wide * wide

    def n_blocks(self, wide: int, columns: int, again: bool) -> int:
        """Blocks of the longest reduction for a panel of tiles `wide` columns each, so that some columns fit the cache;
        equal ones where a divisor is near; one where nothing holds what a block leaves.
        """
        room = self.target.l2_bytes // 2
        sizes = [self.plan.size(j) for j in self.heavy]
        if prod(sizes) * columns * self.item <= (room if self.are_results() else 2 * room) or not self.holds_sums(
            again
        ):
            return 1
        wide = max(wide, COLUMNS_A_PACK if again else COLUMNS_AT_ONCE)
        most = max(LEAST_DEPTH, room // (self.item * wide)) * max(sizes) // prod(sizes)
        least = -(-max(sizes) // max(1, most))
        return next((k for k in range(least, 2 * least) if max(sizes) % k == 0), least)

    @property
    def item(self) -> int:
        """Bytes of an element of what is read for each product."""
        return max(a.uop.dtype.itemsize for a in self.inside)

    def holds_sums(self, again: bool) -> bool:
        """Whether the output does that, or local memory, which costs loops of its own and pays where else scalars were
        packed for narrower blocks of columns.
        """
        in_local = again and len(self.plan.stores) == len(self.plan.reduces) == 1 and self.target.local_bytes > 0
        return in_local or self.are_results()

    def are_results(self) -> bool:
        """Whether the output can hold what blocks of the reduction leave."""
        return all(a.uop.src[1].dtype is u.dtype for a in self.profile.stores for u in self.plan.reduces)

    def stream(self, t: Tile) -> None:
        """Hardly any reuse: the reduction outermost, so that a few rows of the panel stream side by side."""
        j = self.heavy[0]
        long = self.plan.size(j) >= 8 * ROWS_AT_ONCE and self.plan.size(t.c) >= 8 * t.lanes
        if len(self.heavy) == 1 and long:
            k = -(-self.plan.size(j) // ROWS_AT_ONCE)
            self.chooser.act("SPLIT", self.plan.axis_of(j), (k, "LOOP", True), f"{ROWS_AT_ONCE} rows stream at once")

    def wants_pack(self, a: Access) -> bool:
        """A gated scalar, or one whose neighbours in memory are rows and not steps of the reduction."""
        gated = len(a.uop.src) == 3
        if (
            self.plan.unit is not None
        ):  # a tail would mask loads in the inner loop, and give rows of tiles places of their own
            padded = [x for x in self.plan.padded if x is self.deepest or self.plan.unit.n_tiles]
            gated |= any(x in a.steps for x in padded)
        along = any(a.step(j) == 1 for j in self.heavy)
        return (gated or not along) and self.packable(a)

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
            return Block(plan, a.uop).elements * a.uop.dtype.itemsize
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
        for j in self.heavy:
            i = self.plan.axis_of(j, "REDUCE")
            n = self.plan.axes[i].size
            if len(self.heavy) > 1 and 1 < n <= LONGEST_UNROLLED and j is self.heavy[-1]:
                if not any(self.meets_later(a, row, j) for a in self.inside):
                    self.chooser.act("SPLIT", i, (n, "UNROLL", False), "few steps")
                return
        i = self.plan.axis_of(self.heavy[-1], "REDUCE")
        if self.target.loads_first or (self.plan.unit is not None and self.plan.unit.n_tiles):
            return  # the scalars of all steps would be loaded before the first is used
        if self.plan.axes[i].size % 4 == 0:
            self.chooser.act("SPLIT", i, (4, "UNROLL", False), "fewer loop steps")

"""Enumerate the register tiles that fit a sum of products, and estimate their cost in cycles on one thread.

The estimate takes the larger of multiply-adds and loads; the target says how many multiply-adds start in a cycle. It
adds work beyond the edges, packing, and partial sums that blocks of the reduction store and load.

What it does not do: it performs no actions; `contraction` does, for the cheapest tile. The panel is the loads that move
along the vector lanes. The broadcast operands are the loads that do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

from monolect.base.dtype import DType
from monolect.base.errors import ActionError
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import ranges, size_max
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp
from monolect.optimize.actions.matrix_unit import check, flips
from monolect.optimize.blocks.packed import PackedBlock
from monolect.optimize.choices import Choices
from monolect.optimize.cost import StridedAccess
from monolect.optimize.loops.accesses import buffer_bytes
from monolect.optimize.tuning import (
    BROADCAST_LINE_CYCLES,
    CONFLICT_LINE_CYCLES,
    FULL_REGISTER_TILE,
    FULL_REGISTER_TILE_FACTOR,
    GATED_SCALAR_LOADS,
    GATED_STORE_CYCLES,
    GATED_SUM_CYCLES,
    GATHERED_COPY_CYCLES,
    MAX_STREAMED_ROWS,
    MAX_STREAMED_TILE_ROWS,
    MAX_TILE_ROWS,
    MAX_TILE_VECTORS,
    MAX_UNROLLED_LENGTH,
    MIN_BLOCK_COLUMNS,
    MIN_BLOCK_DEPTH,
    MIN_REPACKED_BLOCK_COLUMNS,
    MIN_REUSE_TO_PACK,
    MIN_ROWS_FOR_UNIT,
    MIN_STREAM_BLOCKS,
    PAGE_BYTES,
    PARTIAL_WORD_CYCLES,
    ROW_COPY_CYCLES,
    ROW_START_CYCLES,
    ROW_STEP_CYCLES,
    SCALAR_STORE_CYCLES,
    SIGN_FLIP_REGISTERS,
    STREAMED_TILE_VECTORS,
    STREAMED_VECTOR_CYCLES,
    SUM_MOVE_CYCLES,
    TILE_LOAD_CYCLES,
    TRANSPOSED_COPY_CYCLES,
    TRANSPOSED_STORE_CYCLES,
    VECTOR_STEP_CYCLES,
)


def max_streamed_rows(target: Target, strides: Iterable[int]) -> int:
    """Number of rows that can be read in parallel while the L1 cache sets that they map to hold a line of each; at most
    MAX_STREAMED_ROWS.

    `strides`: for each load, the bytes from the start of one row to the start of the next.
    """
    apart = max(gcd(n, target.l1_period_bytes) for n in strides)
    return max(1, min(MAX_STREAMED_ROWS, target.l1_bytes // apart))


class CostTerms(NamedTuple):
    """The parts of the estimated cost of a kernel, in cycles on one thread.

    `steps`, `start` and `stores` are those of one register tile; the kernel has `tiles` of them. `packing` and `memory`
    (cache misses) are those of the whole kernel. `factor` multiplies the total.
    """

    tiles: int
    steps: float  # multiply-adds, or the loads that take longer, with the misses of L1 that are not hidden
    start: float  # begin and end of the sums
    stores: float  # stores of results, and of partial sums between blocks of the reduction
    packing: float
    memory: float  # misses of the L2 and L3 caches, each operand once
    factor: float = 1

    @property
    def total(self) -> float:
        """Cycles of the whole kernel on one thread."""
        return (self.tiles * (self.steps + self.start + self.stores) + self.packing + self.memory) * self.factor


class RegisterTile(NamedTuple):
    """A register tile: `vectors` vectors of `lanes` elements along the RANGE `c` (columns), by `rows` rows along the
    RANGE `row` (None: one row).

    `cost`: cycles of the whole kernel on one thread; `terms`: its parts. `unit`: the matrix unit that multiplies, or
    None. `streams`: the panel is not packed; a few of its rows are read from memory in parallel.
    """

    cost: float
    c: UOp
    row: UOp | None
    lanes: int
    vectors: int
    rows: int
    unit: MatrixUnit | None = None
    streams: bool = False
    terms: CostTerms | None = None


class SumSteps(NamedTuple):
    """One step of a sum in a register tile of any size."""

    depth: int  # number of steps, where a step has one multiply-add for each accumulator
    vectors: int  # loads of the panel for each vector
    scalars: int  # loads of broadcast operands for each row; a gated one counts more
    strides: list[tuple[StridedAccess, int]]  # broadcast operands whose rows are apart, and the distance in L1
    reread: int  # broadcast operands that are no windows
    copying: float  # cycles to pack the panel, for each vector


class TileAxes(NamedTuple):
    """The RANGEs and the matrix unit of register tiles, and all that their cost depends on besides their size."""

    c: UOp
    row: UOp | None
    lanes: int
    unit: MatrixUnit | None
    n: int  # columns
    m: int  # rows
    others: int  # iterations of the loops around tiles, without those along `c` and `row`
    reuses: int  # iterations that read the same panel
    transposed: bool  # the panel is not contiguous along the lanes
    is_far: bool  # the panel exceeds the L2 cache
    columns_are_outer: bool  # the loop over columns encloses the loop over rows
    column_bytes: int  # of the panel, for each column
    window: int  # length of the longest unrolled reduction whose steps read broadcast elements of other rows; 0: none
    stores: str  # "whole", "transposed" or "scalar"; see `store_cycles`
    sums: list[SumSteps]
    panel: list[StridedAccess]
    broadcasts: list[StridedAccess]
    repacked: list[StridedAccess]  # broadcast operands that are packed for each block of columns


class TileCosts:
    """Enumerate the register tiles that fit one contraction, with their costs.

    `contracted`: the reduction RANGEs whose operands are reused. `scope`: the output RANGEs around them. `inside`: the
    loads of the operands.
    """

    def __init__(self, chooser: Choices, contracted: list[UOp]):
        self.chooser, self.plan, self.profile = chooser, chooser.plan, chooser.profile
        self.target = self.plan.target
        self.contracted = contracted
        scope = frozenset().union(*(self.profile.scope(j) for j in contracted))
        self.scope = [r for r in self.plan.outputs if r in scope]
        inside = {a.uop: a for j in contracted for a in self.profile.inside(j)}
        self.inside = list(inside.values())
        self.deepest = max(contracted, key=self.plan.size)
        self.sums = self._sums()
        self.upcast = {a.uop: self.upcast_dtype(a.uop) for a in self.inside}
        # bytes of an element of a factor as the tile reads it: upcast, unless a matrix unit takes it
        self.item = max((self.upcast[a.uop] or a.uop.dtype).itemsize for a in self.inside)
        self.found_packable: dict[tuple[UOp, int], bool] = {}  # key: (load, number of actions); read for each tile
        self.found_blocks: dict[tuple[int, int, bool], int] = {}  # key: arguments of `n_blocks`

    def _sums(self) -> list[list[UOp]]:
        """Return the reduction RANGEs of each sum, as one list for each. The RANGEs of a sum inside another sum's terms
        are in the list of the outer sum.
        """
        out: list[list[UOp]] = []
        for u in reversed(self.plan.reduces):
            mine = [j for j in u.src[1:] if j in self.contracted]
            around = next((js for js in out if not ranges(u).isdisjoint(js)), None)
            if mine and around is not None:
                around.extend(j for j in mine if j not in around)
            elif mine and mine not in out:
                out.append(mine)
        return [[j for j in self.contracted if j in js] for js in reversed(out)]

    def depth(self, js: list[UOp]) -> int:
        """Product of the numbers of iterations of the reduction RANGEs `js`."""
        return prod(self.plan.extent(j) for j in js)

    def tiles(self, c: UOp) -> list[RegisterTile]:
        """Every register tile that fits with vector lanes along the RANGE c, with its cost; none where c is too short
        or no load moves along it.
        """
        panel = [a for a in self.inside if c in a.steps]
        n = self.plan.size(c)
        if n < 2 or not panel or c in self.plan.sequential or any(a.step(c) is None for a in panel):
            return []
        transposed = [a for a in panel if a.step(c) != 1]
        if any(not self.packable(a) for a in transposed):
            return []
        lanes = self.chooser.fitting_lanes(n)
        rows = [
            r for r in self.scope if r is not c and all(r not in a.steps for a in panel) and self.plan.extent(r) > 1
        ]
        broadcasts = [a for a in self.inside if c not in a.steps]
        far = not transposed and self.may_stream(c, panel)
        again = prod(self.plan.extent(x) for x in self.scope if all(x not in a.steps for a in panel))
        out = []
        for unit in self.units(c, lanes, panel) or [None]:  # type: ignore[list-item]
            for r in rows or [None]:  # type: ignore[list-item]
                axes = self.tile_axes(c, r, lanes, unit, panel, broadcasts)
                m = axes.m
                for v in range(1, min(MAX_TILE_VECTORS, -(-n // lanes)) + 1):
                    tall = unit.m if unit is not None else 1
                    for k in range(tall, tall * min(-(-m // tall), MAX_TILE_ROWS) + 1, tall):
                        often = unit is not None or not far or again // k >= MIN_REUSE_TO_PACK
                        tight = (
                            (v, k) == FULL_REGISTER_TILE
                            and unit is None
                            and self.can_fill_registers(c, lanes * v, broadcasts)
                        )
                        if often and (tight or self.fits(axes, v, k)):
                            terms = self.cost(axes, v, k)
                            terms = terms._replace(factor=FULL_REGISTER_TILE_FACTOR) if tight else terms
                            out.append(RegisterTile(terms.total, c, r, lanes, v, k, unit, terms=terms))
                if far and unit is None:
                    for k in range(1, min(m, MAX_STREAMED_TILE_ROWS) + 1):
                        terms = self.streaming_cost(axes, k)
                        more = (None, True, terms)  # unit, streams, terms
                        out.append(RegisterTile(terms.total, c, r, lanes, STREAMED_TILE_VECTORS, k, *more))
        return out

    def tile_axes(
        self,
        c: UOp,
        r: UOp | None,
        lanes: int,
        unit: MatrixUnit | None,
        panel: list[StridedAccess],
        broadcasts: list[StridedAccess],
    ) -> TileAxes:
        """Return what register tiles of any size have in common: `lanes` elements of a vector along the RANGE c, rows
        along the RANGE r (None: one row).

        `panel`: the loads that move along c. `broadcasts`: the other loads. `unit`: the matrix unit that multiplies, or
        None.
        """
        extent = self.plan.extent
        taps = [j for j in self.contracted if self.plan.size(j) <= MAX_UNROLLED_LENGTH and r is not None]
        windows = [self.plan.size(j) for j in taps for a in broadcasts if self.is_window(a, r, j)]
        depths = (prod(extent(j) for j in self.contracted if j in a.steps) for a in panel)
        return TileAxes(
            c,
            r,
            lanes,
            unit,
            self.plan.size(c),
            extent(r) if r is not None else 1,
            prod(extent(x) for x in self.scope if x is not c and x is not r),
            prod(extent(x) for x in self.scope if all(x not in a.steps for a in panel)),
            any(a.step(c) != 1 for a in panel),
            self.panel_exceeds_l2(c, panel),
            r is not None and self.plan.outputs.index(c) < self.plan.outputs.index(r),
            max(depths) * self.item,
            max(windows, default=0),
            self.kind_of_stores(c, r),
            [self.sum_steps(js, c, r, panel, broadcasts) for js in self.sums],
            panel,
            broadcasts,
            [a for a in broadcasts if self.is_repacked(a, r)],
        )

    def sum_steps(
        self, js: list[UOp], c: UOp, r: UOp | None, panel: list[StridedAccess], broadcasts: list[StridedAccess]
    ) -> SumSteps:
        """Return the loads of one step of the sum over the RANGEs `js`; the others are arguments of `tile_axes`."""
        mine = [a for a in broadcasts if any(j in a.steps for j in js)]
        moved = [a for a in panel if any(j in a.steps for j in js)]
        gated = sum(len(a.uop.src) == 3 and not self.packable(a) for a in mine)
        strides = [(a, abs(a.step(r) or 0) * a.uop.dtype.itemsize) for a in mine if r is not None]
        return SumSteps(
            prod(self.plan.extent(j) for j in js),
            len(moved),
            len(mine) + GATED_SCALAR_LOADS * gated,
            [(a, gcd(n, self.target.l1_period_bytes)) for a, n in strides if n],
            sum(not any(self.is_window(a, r, j) for j in js) for a in mine),
            # loads of frozen memory are packed once, before
            sum(self.copy_cycles(a, c) for a in moved if not self.plan.is_frozen(a.uop)),
        )

    def units(self, c: UOp, lanes: int, panel: list[StridedAccess]) -> list[MatrixUnit]:
        """The matrix units that fit this sum with `lanes` vector lanes along the RANGE c. They need a packed panel, so
        the list is empty unless many rows reuse the panel. `panel`: the loads that move along c.
        """
        again = prod(self.plan.extent(x) for x in self.scope if all(x not in a.steps for a in panel))
        if len(self.plan.reduces) != 1 or again < MIN_ROWS_FOR_UNIT or not all(self.packable(a) for a in panel):
            return []
        out = []
        for unit in self.target.units:
            if unit.n == lanes and self.plan.size(self.deepest) >= unit.k:
                with suppress(ActionError):
                    check(unit, self.plan.reduces[0], c, self.deepest)
                    out.append(unit)
        return out

    def fits(self, axes: TileAxes, v: int, k: int) -> bool:
        """Whether the accumulators of v vectors by k rows, and their operands, fit the vector registers, or the tile
        registers of the matrix unit if it has some.
        """
        unit = axes.unit
        if unit is not None and unit.n_tiles:
            return k % unit.m == 0 and v * (k // unit.m) + v + k // unit.m <= unit.n_tiles
        more = SIGN_FLIP_REGISTERS if unit is not None and flips(unit, self.plan.reduces[0]) else 0
        return self.registers_needed(axes, v, k) + more < self.target.n_registers

    def can_fill_registers(self, c: UOp, wide: int, broadcasts: list[StridedAccess]) -> bool:
        """Whether a tile with `wide` columns along the RANGE c may use all registers for accumulators and operands
        (FULL_REGISTER_TILE).

        It may if the sum has one reduction loop, the columns divide into whole tiles for all threads, no broadcast
        operand is packed, and the core has 32 registers and starts two multiply-adds a cycle. `broadcasts`: the loads
        that do not move along c.
        """
        target, plan = self.target, self.plan
        quick = target.multiply_adds > 1 and target.n_registers == 32 and not target.loads_first
        whole = quick and plan.size(c) % (wide * target.n_threads) == 0
        return (
            whole and len(plan.reduced) == len(self.contracted) == 1 and not any(self.wants_pack(a) for a in broadcasts)
        )

    def registers_needed(self, axes: TileAxes, v: int, k: int) -> int:
        """Number of vector registers that a tile of `v` vectors by `k` rows needs, for accumulators and operands.

        Scalars of broadcast operands that several rows read (as in a convolution) are loaded once and stay in
        registers. With three vectors or more, the next step's loads need registers of their own: without them nothing
        spills, but some instruction orders run at half speed. With one vector, each broadcast is used once, in a
        register that the sum then takes.
        """
        if axes.window:
            held = k + axes.window - 1
        elif self.target.loads_first or v == 1:
            held = k
        else:
            held = v + 2 if v > 2 else 1
        return v * k + v + held

    @staticmethod
    def is_window(a: StridedAccess, r: UOp | None, j: UOp) -> bool:
        """Whether the output RANGE r and the reduction RANGE j move the load `a` by the same number of elements, so
        that different pairs of their iterations read the same element, as in a convolution. False where r is None.
        """
        return r is not None and r in a.steps and j in a.steps and a.steps[r] is not None and a.steps[r] == a.steps[j]

    def cost(self, axes: TileAxes, v: int, k: int) -> CostTerms:
        """Return the parts of the cost of the whole kernel, on one thread, with tiles of v vectors by k rows."""
        c, r, lanes, unit, n, m = axes[:6]
        at_once = unit.k if unit is not None else 1
        tiles = -(-n // (lanes * v)) * -(-m // k) * axes.others
        reuse, far = max(1, axes.reuses // k), axes.is_far
        packs = axes.transposed or (reuse >= MIN_REUSE_TO_PACK and not (far and axes.reuses <= MAX_TILE_ROWS))
        exceeds_l1 = self.panel_exceeds_l1(axes, lanes * v)
        # share of the panel's reads that repeat, whose misses are not hidden
        again = 1 - 1 / -(-axes.reuses // k) if far and not packs else 0
        steps, copying, fma_rate = 0.0, 0.0, self.fma_rate(lanes)
        for x in axes.sums:
            vectors, scalars_read = v * x.vectors, k * x.scalars
            loads = vectors + (scalars_read if n > lanes else scalars_read * fma_rate / 2)
            # cache lines loaded again in each step
            missed = k * sum(self.has_set_conflicts(a, stride, k) for a, stride in x.strides) / lanes
            step = max(
                max(v * k, loads) / fma_rate,
                vectors * self.target.l1_miss_cycles * exceeds_l1,
                self.target.multiply_add_cycles,
            )
            step += (
                VECTOR_STEP_CYCLES * v
                + ROW_STEP_CYCLES * k
                + CONFLICT_LINE_CYCLES * missed
                + vectors * self.target.l1_miss_cycles * again
            )
            lost = exceeds_l1 or axes.columns_are_outer  # the L1 cache no longer holds the operands
            if self.target.multiply_adds == 1 and lost:
                step += BROADCAST_LINE_CYCLES * x.reread * k / lanes + STREAMED_VECTOR_CYCLES * vectors * exceeds_l1
            if unit is not None and unit.n_tiles:  # the unit takes one row a cycle
                step = v * k + TILE_LOAD_CYCLES * (v * unit.m + k)
            steps += x.depth / at_once * step
            copying += tiles * x.depth / at_once * v * x.copying / reuse if packs else 0
        blocks = self.n_blocks(lanes * v, n, bool(axes.repacked)) if packs else 1
        if axes.repacked:
            wide = n
            if packs:
                depth = -(-max(map(self.plan.extent, self.contracted)) // blocks)
                wide = self.block_columns(lanes * v, depth, True)
            times = -(-n // max(wide, lanes * v))
            copying += sum(self.row_copy_cycles(a, times, k, unit) for a in axes.repacked)
        start = ROW_START_CYCLES * k // (unit.m if unit is not None else 1)
        gated = (GATED_STORE_CYCLES if blocks == 1 else GATED_SUM_CYCLES) if m % k else 0
        storing, waiting = self.store_cycles(axes, k), self.spill_cycles(axes, k)
        sums = v * k * (storing + gated + 2 * (blocks - 1) * (waiting + gated))
        return CostTerms(tiles, steps, start, sums, copying, self.first_load_cycles)

    def streaming_cost(self, axes: TileAxes, k: int) -> CostTerms:
        """Return the parts of the cost of the whole kernel, on one thread, if a few rows of the panel are read from
        memory in parallel instead of being packed. A tile has one vector by k rows of accumulators.
        """
        c, r, panel, broadcasts = axes.c, axes.row, axes.panel, axes.broadcasts
        v = STREAMED_TILE_VECTORS
        tiles = -(-axes.n // (axes.lanes * v)) * -(-axes.m // k) * axes.others
        step = (
            max(v * k, v * len(panel) + k * len(broadcasts)) / self.fma_rate(axes.lanes)
            + VECTOR_STEP_CYCLES * v
            + ROW_STEP_CYCLES * k
        )
        step += SUM_MOVE_CYCLES * v * k / self.streamed_row_count(panel)
        steps, stores = self.depth(self.contracted) * step, v * k * self.store_cycles(axes, k)
        long = axes.n * self.item // self.target.n_threads // self.column_pieces(c, r) >= PAGE_BYTES
        memory = self.memory_cycles(broadcasts) if long else self.first_load_cycles
        return CostTerms(tiles, steps, ROW_START_CYCLES * k, stores, 0, memory)

    def column_pieces(self, c: UOp, r: UOp | None) -> int:
        """Number of pieces into which to cut a thread's share of the columns (RANGE c), so that the sums of one piece,
        over all rows (RANGE r; None: one row), fit half of the L2 cache.
        """
        rows = self.plan.extent(r) if r is not None else 1
        n_bytes = rows * self.plan.size(c) * self.plan.reduces[0].dtype.itemsize // self.target.n_threads
        return -(-n_bytes // (self.target.l2_bytes // 2))

    def streamed_row_count(self, panel: list[StridedAccess]) -> int:
        """Number of rows of the panel to read from memory in parallel; if possible a divisor of the reduction's length.
        `panel`: the loads that move along the vector lanes.
        """
        j = self.contracted[0]
        n, most = (
            self.plan.size(j),
            max_streamed_rows(self.target, [(a.step(j) or 0) * a.uop.dtype.itemsize for a in panel]),
        )
        return next((k for k in range(most, 2 * most) if n % k == 0), most)

    def fma_rate(self, lanes: int) -> int:
        """Number of multiply-adds of vectors of `lanes` elements that the core starts in a cycle; at least two for
        vectors of half a register.
        """
        halves = lanes * self.item <= self.target.vector_bytes // 2
        return max(2, self.target.multiply_adds) if halves else self.target.multiply_adds

    def panel_exceeds_l1(self, axes: TileAxes, wide: int) -> bool:
        """Whether the part of the panel that is read between two rows of tiles exceeds the L1 cache, so that each row
        of tiles loads it again. False if a tile has one row.

        If the loop over columns is inside of the loop over rows, the part has all columns, else the `wide` columns of
        one tile.
        """
        columns = wide if axes.columns_are_outer else max(axes.n, wide)
        return axes.row is not None and axes.column_bytes * columns > self.target.l1_bytes

    def has_set_conflicts(self, a: StridedAccess, stride: int, k: int) -> bool:
        """Whether k rows of the broadcast operand `a`, which are `stride` bytes apart in the L1 cache, exceed the cache
        sets that they map to. False for an operand that is packed.
        """
        return k * stride > self.target.l1_bytes * 2 // 3 and not self.wants_pack(a)

    def kind_of_stores(self, c: UOp, r: UOp | None) -> str:
        """How a tile with vectors along the RANGE c and rows along the RANGE r is stored; see `store_cycles`."""
        stores = [a for a in self.profile.stores if c in a.steps]
        if all(a.step(c) == 1 for a in stores):
            return "whole"
        return "transposed" if r is not None and all(a.step(r) == 1 for a in stores) else "scalar"

    def store_cycles(self, axes: TileAxes, k: int) -> float:
        """Cycles to store one vector of results of a tile with k rows.

        Results that are contiguous along the lanes are stored whole. Those contiguous along the rows are transposed
        with the other rows of the tile, and stored in pieces whose sizes are powers of two. Others are stored element
        by element.
        """
        if axes.stores == "whole":
            return 1
        pieces = max(TRANSPOSED_STORE_CYCLES, axes.lanes * k.bit_count() / k)
        return pieces if axes.stores == "transposed" else SCALAR_STORE_CYCLES * axes.lanes

    def spill_cycles(self, axes: TileAxes, k: int) -> float:
        """Cycles to store or load one vector of partial sums between two blocks of the reduction, of a tile with k
        rows.

        It is 1 where local memory holds the sums, as their layout is then that of the tiles; else as in `store_cycles`.
        """
        alone = len(self.plan.stores) == len(self.plan.reduces) == 1
        return 1 if alone and self.target.local_bytes else self.store_cycles(axes, k)

    def copy_cycles(self, a: StridedAccess, c: UOp) -> float:
        """Cycles to pack one vector along the RANGE c of the load `a`, which moves along c: by a contiguous load, by a
        transposition with a reduction along which `a` is contiguous, or by a gather.
        """
        if a.step(c) == 1:
            return 1
        along = max((self.plan.size(j) for j in self.contracted if a.step(j) == 1), default=0)
        transposed = min(GATHERED_COPY_CYCLES, self.transposed_copy_cycles(max(along, 1)))
        each = transposed if along >= 3 and a.step(c) not in (2, 3, 4) else GATHERED_COPY_CYCLES
        return each + self.operands_exceed_l2() * self.target.l2_miss_cycles

    def transposed_copy_cycles(self, along: int) -> float:
        """Cycles per vector to copy rows of `along` contiguous elements transposed, in squares of a vector's length.
        The last square of a row may be partial.
        """
        lanes = self.chooser.lanes
        return TRANSPOSED_COPY_CYCLES * -(-along // lanes) * lanes / along

    def is_repacked(self, a: StridedAccess, r: UOp | None) -> bool:
        """Whether the broadcast operand `a` is packed, and packed again for each block of columns.

        That holds if the copy casts it to a wider dtype, or if it is contiguous along r, the RANGE of the tile's rows,
        so that it is copied in short runs. An operand with the same contents at every run is packed once instead.
        """
        rows = r is not None and a.step(r) == 1 and not any(self.is_window(a, r, j) for j in self.contracted)
        return (rows or self.upcast[a.uop] is not None) and self.wants_pack(a) and not self.plan.is_frozen(a.uop)

    def row_copy_cycles(self, a: StridedAccess, times: int, k: int, unit: MatrixUnit | None) -> float:
        """Cycles to pack the whole broadcast operand `a` for tiles of k rows, `times` times in total.

        `unit`: the matrix unit that multiplies, or None. Cache misses of the first time are counted in `memory_cycles`.
        """
        n = prod(self.plan.extent(x) for x in a.steps)
        vectors = n / self.target.lanes(a.uop.dtype.itemsize)
        odd = unit is not None and unit.pair > 1 and (k < 4 or k & (k - 1))
        each = PARTIAL_WORD_CYCLES * n / (k * unit.pair) if unit is not None and odd else ROW_COPY_CYCLES * vectors
        return each * times + vectors * (times - 1) * self.exceeds_l2(a) * self.target.l2_miss_cycles

    @cached_property
    def first_load_cycles(self) -> float:
        """The `memory_cycles` of all operands."""
        return self.memory_cycles(self.inside)

    def memory_cycles(self, accesses: list[StridedAccess]) -> float:
        """Cycles to load the operands of `accesses` once from L3 or memory, as far as other work does not hide them.
        Buffers that fit the L2 caches of all threads count 0.
        """
        cycles = 0.0
        for a in accesses:
            n_bytes = buffer_bytes(a.uop)
            # each thread has its own L2 cache
            each = self.target.l2_miss_cycles * (n_bytes > self.target.n_threads * self.target.l2_bytes)
            each += self.target.l3_miss_cycles * (n_bytes > self.target.l3_bytes)
            cycles += each * prod(self.plan.extent(x) for x in a.steps) / self.target.lanes(a.uop.dtype.itemsize)
        return cycles

    def exceeds_l2(self, a: StridedAccess) -> bool:
        """Whether the whole buffer that `a` accesses exceeds the L2 cache; symbolic sizes count at their largest."""
        elements = size_max(count(memory_of(a.uop.src[0]).shape))
        return elements * a.uop.dtype.itemsize > self.target.l2_bytes

    def operands_exceed_l2(self) -> bool:
        """Whether the buffers of all operands together exceed the L2 cache, so that data read once per call is evicted
        before the next call.
        """
        memory = {a.uop.src[0].src[0]: buffer_bytes(a.uop) for a in self.inside}
        return sum(memory.values()) > self.target.l2_bytes

    def panel_exceeds_l2(self, c: UOp, panel: list[StridedAccess]) -> bool:
        """Whether the panel, all columns over the whole reduction, exceeds the L2 cache, and so does the buffer of one
        of its loads. `panel`: the loads that move along the column RANGE c.
        """
        n_bytes = prod(self.plan.extent(j) for j in self.contracted) * self.plan.size(c) * self.item
        return n_bytes > self.target.l2_bytes and any(map(self.exceeds_l2, panel))

    def may_stream(self, c: UOp, panel: list[StridedAccess]) -> bool:
        """Whether a few rows of the panel may be read from memory in parallel instead of being packed: it exceeds L2,
        and its rows are long and many. `panel`: the loads that move along the column RANGE c.
        """
        long = (
            self.plan.size(self.deepest) >= MIN_STREAM_BLOCKS * MAX_STREAMED_ROWS
            and self.plan.size(c) >= MIN_STREAM_BLOCKS * self.chooser.lanes
        )
        return len(self.contracted) == 1 and long and self.panel_exceeds_l2(c, panel)

    def n_blocks(self, wide: int, columns: int, again: bool) -> int:
        """Number of blocks into which to cut the longest reduction, so that a block of the panel fits half of the L2
        cache; blocks of equal size if a divisor is close.

        It is 1 (not cut) if the panel fits L2 in all its `columns` columns, if a size is symbolic, or if no memory can
        hold partial sums. `wide`: columns of one tile; a block is assumed to have MIN_BLOCK_COLUMNS columns or one
        tile's. `again`: broadcast operands are packed again for each block of columns; then MIN_REPACKED_BLOCK_COLUMNS
        are assumed. Memoized: tiles with the same columns share the number.
        """
        key = (wide, columns, again)
        if key not in self.found_blocks:
            self.found_blocks[key] = self._n_blocks(*key)
        return self.found_blocks[key]

    def _n_blocks(self, wide: int, columns: int, again: bool) -> int:
        room = self.target.l2_bytes // 2
        sizes = [self.plan.size(j) for j in self.contracted]
        if prod(sizes) * columns * self.item <= (
            room if self.outputs_hold_sums() else 2 * room
        ) or not self.can_hold_partial_sums(again):
            return 1
        wide = max(wide, MIN_REPACKED_BLOCK_COLUMNS if again else MIN_BLOCK_COLUMNS)
        most = max(MIN_BLOCK_DEPTH, room // (self.item * wide)) * max(sizes) // prod(sizes)
        least = -(-max(sizes) // max(1, most))
        return next((k for k in range(least, 2 * least) if max(sizes) % k == 0), least)

    def block_columns(self, wide: int, depth: int, again: bool) -> int:
        """Number of columns of a cache block of the panel that has `depth` iterations of the longest reduction: a
        multiple of `wide`, the columns of one tile.

        The block takes half of L2, or all of L2 if broadcast operands are packed again for each block of columns
        (`again`) and `depth` is the whole reduction.
        """
        sizes = [self.plan.extent(j) for j in self.contracted]
        room = self.target.l2_bytes // (1 if again and depth == max(sizes) else 2)
        return room // (self.item * depth * (prod(sizes) // max(sizes))) // wide * wide

    def can_hold_partial_sums(self, again: bool) -> bool:
        """Whether the output or local memory can hold the partial sums of a reduction that is cut into blocks.

        Local memory counts only if broadcast operands are packed again for each block of columns (`again`): it needs
        extra loops, which pay only if blocks get wider by it.
        """
        in_local = again and len(self.plan.stores) == len(self.plan.reduces) == 1 and self.target.local_bytes > 0
        return in_local or self.outputs_hold_sums()

    def outputs_hold_sums(self) -> bool:
        """Whether all outputs have the dtype of the kernel's sums, so that they can hold partial sums between blocks of
        the reduction.
        """
        return all(a.uop.src[1].dtype is u.dtype for a in self.profile.stores for u in self.plan.reduces)

    def wants_pack(self, a: StridedAccess) -> bool:
        """Whether PACK of the broadcast operand `a` pays and is legal: it has a gate, the copy casts it to a wider
        dtype, or it is not contiguous along the reduction.
        """
        gated = len(a.uop.src) == 3
        if self.plan.unit is not None:
            # a tail would mask loads in the inner loop, and give tile rows separate addresses
            padded = [x for x in self.plan.padded if x is self.deepest or self.plan.unit.n_tiles]
            gated |= any(x in a.steps for x in padded)
        along = any(a.step(j) == 1 for j in self.contracted)
        return (gated or not along or self.upcast[a.uop] is not None) and self.packable(a)

    def upcast_dtype(self, u: UOp) -> DType | None:
        """Return the dtype to which a packed copy of the load `u` casts its elements: that of a CAST to a wider dtype
        that is the only user of `u`. None if there is no such CAST, or if a matrix unit takes the dtype of `u`.
        """
        users = self.plan.scratch.users.get(u, [])
        if len(users) != 1 or users[0].op != "CAST" or users[0].dtype.itemsize <= u.dtype.itemsize:
            return None
        return None if any(u.dtype in (x.a, x.b) for x in self.target.units) else users[0].dtype

    def packable(self, a: StridedAccess) -> bool:
        """Whether PACK of the load `a` is legal under the plan's actions so far, apart from the size of its block.
        Memoized.
        """
        key = (a.uop, len(self.plan.actions))
        if key not in self.found_packable:
            try:
                PackedBlock(self.plan, a.uop)
                self.found_packable[key] = True
            except ActionError as e:
                self.found_packable[key] = "too large" in str(e)
        return self.found_packable[key]


__all__ = [
    "CostTerms",
    "RegisterTile",
    "TileCosts",
    "max_streamed_rows",
]

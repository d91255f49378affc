"""Register tiles for sums of products: which fit, what is packed for them, what they cost.

Every estimate is in cycles on one thread, of which the target says how many multiply-adds start in each: multiply-adds
or loads, whichever take longer, what is computed beyond the edges, copying, sums that blocks of the reduction store and
load.

What it does not do: act; `contraction` does, for the cheapest tile. The panel are the loads that move along the lanes,
the scalars those that do not.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import gcd, prod
from typing import TYPE_CHECKING, NamedTuple

from monolect.base.dtype import DType
from monolect.base.errors import ActionError
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import ranges, size_max
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp
from monolect.optimize.actions.matrix_unit import check, flips
from monolect.optimize.actions.pack import Block
from monolect.optimize.actions.stream import PAGE_BYTES, buffer_bytes
from monolect.optimize.cost import Access

if TYPE_CHECKING:
    from monolect.optimize.cpu.heuristic import Chooser

LONGEST_UNROLLED = 8  # a reduction is unrolled whole up to this
REUSE_TO_PACK = 4  # times a panel is read again, from which on copying it pays
FLIPPING = 1  # registers: the bits that turn an operand of a matrix unit into one of the other sign
MOST_ROWS = 14  # of registers, or of tiles
LEAST_FOR_UNIT = 16  # rows for which a panel is laid out as a matrix unit reads it
LEAST_DEPTH = 256  # steps of a sum in one block, however wide the tile is
COLUMNS_AT_ONCE = 128  # of a block, at least: the deeper it is, the less often sums are stored, loaded and finished
COLUMNS_A_PACK = 1024  # the same where scalars are packed: again for each block of columns
L1_WAY_BYTES = 4096  # rows at multiples of it share the sets of the first cache
SHUFFLED = 4  # cycles to turn a vector of a tile in registers, at least
GATED_STORE = 1  # cycles more for a vector in a row that may lie beyond the end
GATED_SUM = 4  # the same where sums of a block are loaded and stored
ODD_PIECE = 20  # to copy what a matrix unit pairs of rows of a tile that memory has side by side, if they fill no word
TURNED = 7  # cycles to copy a vector of a whole square that is turned
GATHERED = 40  # to copy one element by element
FROM_L2 = 2  # cycles for a vector that the first cache does not hold
SCALAR_LINE = 3  # cycles for a line of scalars that each tile reads anew, and
PANEL_VECTOR = 0.15  # for a vector that streams, beside one multiply-add a cycle: beside two it comes in time
TIGHT = (4, 6)  # vectors by rows: the one tile that keeps its pace without room for the next step's loads
TIGHT_GAIN = 0.985  # of its cost: half the lines of scalars that 2x8 reads (1024 1.03, 1.2 where a neighbour shares the
# first cache; 1.0 of 128 rows, whose last tile repeats some, 0.96 of stages in front of it)
FROM_MEMORY = 12  # cycles more for a vector that comes from memory while nothing else is done
FARTHER = 24  # and more for one that no cache holds
MOVED_SUM = 1.5  # cycles to load and to store a sum between two blocks of rows that stream


ROWS_AT_ONCE = 16  # rows of a panel streamed side by side from memory, at most
# The same beside two multiply-adds a cycle. Such processors come for what streams by themselves: one sum of them asks
# for nothing (1x4096x4096 x·W 2.0 to 1.75 ms), several for the next rows (8 times 1.85 to 1.4).
QUICK_ROWS = 4
MOST_STREAMED = 16  # rows of registers beside them: each scalar is part of an instruction
STREAMED_VECTORS = 1  # of each row, where rows stream side by side: more of them are under way than of longer pieces


def rows_at_once(target: Target, strides: Iterable[int]) -> int:
    """How many rows, so many bytes apart, stream side by side: no more than their sets of the first cache hold."""
    apart = max(gcd(n, L1_WAY_BYTES) for n in strides)
    return max(1, min(ROWS_AT_ONCE, target.l1_bytes // apart))


class Tile(NamedTuple):
    """A choice: lanes along `c`, `vectors` of them, `rows` along the axis `row` (None: one row). `cost`: cycles.
    `streams`: no panel is copied, a few of its rows are read side by side.
    """

    cost: float
    c: UOp
    row: UOp | None
    lanes: int
    vectors: int
    rows: int
    unit: MatrixUnit | None = None
    streams: bool = False


class TileCosts:
    """What is read for the sums over `heavy`, the tiles that fit, and what they cost."""

    def __init__(self, chooser: Chooser, heavy: list[UOp]):
        self.chooser, self.plan, self.profile = chooser, chooser.plan, chooser.profile
        self.target = self.plan.target
        self.heavy = heavy
        scope = frozenset().union(*(self.profile.scope(j) for j in heavy))
        self.scope = [r for r in self.plan.outputs if r in scope]
        inside = {a.uop: a for j in heavy for a in self.profile.inside(j)}
        self.inside = list(inside.values())
        self.deepest = max(heavy, key=self.plan.size)
        self.sums = self._sums()
        self.wide = {a.uop: self.widened(a.uop) for a in self.inside}
        # bytes of an element of what is read for each product: what is packed is wide, but for a matrix unit
        self.item = max((self.wide[a.uop] or a.uop.dtype).itemsize for a in self.inside)
        self.found_packable: dict[tuple[UOp, int], bool] = {}  # asked for each tile; actions change it

    def _sums(self) -> list[list[UOp]]:
        """The loops of each sum: those of one inside another's terms belong to that."""
        out: list[list[UOp]] = []
        for u in reversed(self.plan.reduces):
            mine = [j for j in u.src[1:] if j in self.heavy]
            around = next((js for js in out if not ranges(u).isdisjoint(js)), None)
            if mine and around is not None:
                around.extend(j for j in mine if j not in around)
            elif mine and mine not in out:
                out.append(mine)
        return [[j for j in self.heavy if j in js] for js in reversed(out)]

    def depth(self, js: list[UOp]) -> int:
        """Steps of the loops of a sum."""
        return prod(self.plan.extent(j) for j in js)

    def tiles(self, c: UOp) -> list[Tile]:
        """Every tile with lanes along c."""
        panel = [a for a in self.inside if c in a.steps]
        n = self.plan.size(c)
        if n < 2 or not panel or c in self.plan.sequential or any(a.step(c) is None for a in panel):
            return []
        turned = [a for a in panel if a.step(c) != 1]
        if any(not self.packable(a) for a in turned):
            return []
        lanes = self.chooser.fitting_lanes(n)
        rows = [
            r for r in self.scope if r is not c and all(r not in a.steps for a in panel) and self.plan.extent(r) > 1
        ]
        scalars = [a for a in self.inside if c not in a.steps]
        far = not turned and self.streams(c, panel)
        again = prod(self.plan.extent(x) for x in self.scope if all(x not in a.steps for a in panel))
        out = []
        for unit in self.units(c, lanes, panel) or [None]:  # type: ignore[list-item]
            for r in rows or [None]:  # type: ignore[list-item]
                m = self.plan.extent(r) if r is not None else 1
                for v in range(1, min(8, -(-n // lanes)) + 1):
                    tall = unit.m if unit is not None else 1
                    for k in range(tall, tall * min(-(-m // tall), MOST_ROWS) + 1, tall):
                        often = unit is not None or not far or again // k >= REUSE_TO_PACK
                        tight = (v, k) == TIGHT and unit is None and self.is_plain(c, lanes * v, scalars)
                        if often and (tight or self.fits(v, k, scalars, r, unit)):
                            cost = self.cost(c, r, lanes, v, k, panel, scalars, unit) * (TIGHT_GAIN if tight else 1)
                            out.append(Tile(cost, c, r, lanes, v, k, unit))
                if far and unit is None:
                    for k in range(1, min(m, MOST_STREAMED) + 1):
                        cost = self.streaming(c, r, lanes, k, panel, scalars)
                        out.append(Tile(cost, c, r, lanes, STREAMED_VECTORS, k, streams=True))
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
                    check(unit, self.plan.reduces[0], c, self.deepest)
                    out.append(unit)
        return out

    def fits(self, v: int, k: int, scalars: list[Access], r: UOp | None, unit: MatrixUnit | None) -> bool:
        """Whether v vectors by k rows of accumulators, and their operands, fit the registers."""
        if unit is not None and unit.n_tiles:
            return k % unit.m == 0 and v * (k // unit.m) + v + k // unit.m <= unit.n_tiles
        more = FLIPPING if unit is not None and flips(unit, self.plan.reduces[0]) else 0
        return self.registers(v, k, scalars, r) + more < self.target.n_registers

    def is_plain(self, c: UOp, wide: int, scalars: list[Access]) -> bool:
        """Whether this is one product whose tiles, `wide` columns each, hold nothing but operands: no masks of columns,
        no taps, no rows that are packed; and every thread has as many of them. Beside two multiply-adds a cycle.
        """
        target, plan = self.target, self.plan
        quick = target.multiply_adds > 1 and target.n_registers == 32 and not target.loads_first
        whole = quick and plan.size(c) % (wide * target.n_threads) == 0
        return whole and len(plan.reduced) == len(self.heavy) == 1 and not any(self.wants_pack(a) for a in scalars)

    def registers(self, v: int, k: int, scalars: list[Access], r: UOp | None) -> int:
        """Vector registers the tile needs. Scalars of neighbouring taps are loaded once and stay. With three vectors or
        more the loads of the next step want room beside this one's: without it nothing is spilled, and yet some orders
        of the same instructions run at half the speed. Beside one vector each scalar is used once, in a register that
        the sum then takes.
        """
        taps = [j for j in self.heavy if self.plan.size(j) <= LONGEST_UNROLLED and r is not None]
        again = [self.plan.size(j) - 1 for j in taps for a in scalars if self.is_window(a, r, j)]
        ahead = v + 2 if v > 2 else 1
        held = k + max(again) if again else k if self.target.loads_first or v == 1 else ahead
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
        at_once = unit.k if unit is not None else 1
        tiles = -(-n // (lanes * v)) * -(-m // k) * others
        rows = prod(self.plan.extent(x) for x in self.scope if all(x not in a.steps for a in panel))
        reuse, turned = max(1, rows // k), any(a.step(c) != 1 for a in panel)
        far = self.comes_from_memory(c, panel)
        packs = turned or (reuse >= REUSE_TO_PACK and not (far and rows <= MOST_ROWS))
        streamed = self.streamed(c, r, lanes * v, panel)
        again = 1 - 1 / -(-rows // k) if far and not packs else 0  # of the panel; nothing hides what comes from memory
        steps, at_a_time = 0.0, self.at_a_time(lanes)
        for js in self.sums:
            mine = [a for a in scalars if any(j in a.steps for j in js)]
            gated = sum(len(a.uop.src) == 3 and not self.packable(a) for a in mine)
            vectors = v * sum(any(j in a.steps for j in js) for a in panel)
            scalars_read = k * (len(mine) + 4 * gated)
            loads = vectors + (scalars_read if n > lanes else scalars_read * at_a_time / 2)
            missed = k * sum(self.shares_sets(a, r, k) for a in mine) / lanes  # lines fetched anew in each step
            step = max(max(v * k, loads) / at_a_time, vectors * FROM_L2 * streamed, 4)
            step += 0.15 * v + 0.03 * k + 4 * missed + vectors * FROM_L2 * again
            lost = streamed or self.is_outer(c, r)  # what the first cache holds no longer
            if self.target.multiply_adds == 1 and lost:
                anew = sum(not any(self.is_window(a, r, j) for j in js) for a in mine)
                step += SCALAR_LINE * anew * k / lanes + PANEL_VECTOR * vectors * streamed
            if unit is not None and unit.n_tiles:  # a row a cycle
                step = v * k + 0.1 * (v * unit.m + k)
            steps += self.depth(js) / at_once * step
        copied = [a for a in panel if packs and not self.plan.is_frozen(a.uop)]  # what is frozen is packed once
        copying = 0.0
        for js in self.sums:
            each = sum(self.copying(a, c) for a in copied if any(j in a.steps for j in js))
            copying += tiles * self.depth(js) / at_once * v * each / reuse
        repacked = [a for a in scalars if self.is_copied_again(a, r)]
        blocks = self.n_blocks(lanes * v, n, bool(repacked)) if packs else 1
        if repacked:
            wide = self.columns(lanes * v, -(-max(map(self.plan.extent, self.heavy)) // blocks), True) if packs else n
            copying += sum(self.copying_rows(a, -(-n // max(wide, lanes * v)), k, unit) for a in repacked)
        start = 8 * k // (unit.m if unit is not None else 1)
        gated = (GATED_STORE if blocks == 1 else GATED_SUM) if m % k else 0
        storing, waiting = self.storing(c, r, lanes, k), self.waiting(c, r, lanes, k)
        sums = v * k * (storing + gated + 2 * (blocks - 1) * (waiting + gated))
        return tiles * (steps + start + sums) + copying + self.coming(self.inside)

    def streaming(self, c: UOp, r: UOp | None, lanes: int, k: int, panel: list[Access], scalars: list[Access]) -> float:
        """The same where rows of the panel stream: neither rows nor sums share cache sets, and nothing waits for it."""
        others = prod(self.plan.extent(x) for x in self.scope if x is not c and x is not r)
        m, v = self.plan.extent(r) if r is not None else 1, STREAMED_VECTORS
        tiles = -(-self.plan.size(c) // (lanes * v)) * -(-m // k) * others
        step = max(v * k, v * len(panel) + k * len(scalars)) / self.at_a_time(lanes) + 0.15 * v + 0.03 * k
        step += MOVED_SUM * v * k / self.rows_at_once(panel)
        total = tiles * (self.depth(self.heavy) * step + 8 * k + v * k * self.storing(c, r, lanes, k))
        long = self.plan.size(c) * self.item // self.target.n_threads // self.pieces(c, r) >= PAGE_BYTES
        return total + self.coming(scalars if long else self.inside)

    def pieces(self, c: UOp, r: UOp | None) -> int:
        """Of a thread's columns, of which the sums fit half of the second cache."""
        rows = self.plan.extent(r) if r is not None else 1
        n_bytes = rows * self.plan.size(c) * self.plan.reduces[0].dtype.itemsize // self.target.n_threads
        return -(-n_bytes // (self.target.l2_bytes // 2))

    def rows_at_once(self, panel: list[Access]) -> int:
        """Rows of a panel that stream side by side, if possible as many as divide the sum."""
        j = self.heavy[0]
        n, most = self.plan.size(j), rows_at_once(self.target, [(a.step(j) or 0) * a.uop.dtype.itemsize for a in panel])
        return next((k for k in range(most, 2 * most) if n % k == 0), most)

    def at_a_time(self, lanes: int) -> int:
        """Multiply-adds of so many lanes that start in a cycle: of half a vector two in any case."""
        halves = lanes * self.item <= self.target.vector_bytes // 2
        return max(2, self.target.multiply_adds) if halves else self.target.multiply_adds

    def streamed(self, c: UOp, r: UOp | None, wide: int, panel: list[Access]) -> bool:
        """Whether the first cache does not hold what is read of the panel from one row of tiles to the next: all of its
        columns where the loop over them is the inner one, else those of a tile.
        """
        if r is None:
            return False
        columns = wide if self.is_outer(c, r) else max(self.plan.size(c), wide)
        depth = max(prod(self.plan.extent(j) for j in self.heavy if j in a.steps) for a in panel)
        return depth * columns * self.item > self.target.l1_bytes

    def is_outer(self, c: UOp, r: UOp | None) -> bool:
        """Whether the loop over columns stands around that over rows: each tile then reads scalars of its own."""
        return r is not None and self.plan.outputs.index(c) < self.plan.outputs.index(r)

    def shares_sets(self, a: Access, r: UOp | None, k: int) -> bool:
        """Whether the k rows of a scalar are too many for the sets of the first cache that they lie in."""
        stride = abs(a.step(r) or 0) * a.uop.dtype.itemsize if r is not None else 0
        too_many = stride > 0 and k * gcd(stride, L1_WAY_BYTES) > self.target.l1_bytes * 2 // 3
        return too_many and not self.wants_pack(a)

    def storing(self, c: UOp, r: UOp | None, lanes: int, k: int) -> float:
        """Cycles to store a vector along c, of a tile of k rows: whole, turned with the rows, or element by element. Of
        what is turned each lane stores its rows in pieces, powers of two of them.
        """
        stores = [a for a in self.profile.stores if c in a.steps]
        if all(a.step(c) == 1 for a in stores):
            return 1
        along = r is not None and all(a.step(r) == 1 for a in stores)
        return max(SHUFFLED, lanes * k.bit_count() / k) if along else 2 * lanes

    def waiting(self, c: UOp, r: UOp | None, lanes: int, k: int) -> float:
        """Cycles to store or load a vector of sums between two blocks: as tiles lie, where local memory has them."""
        alone = len(self.plan.stores) == len(self.plan.reduces) == 1
        return 1 if alone and self.target.local_bytes else self.storing(c, r, lanes, k)

    def copying(self, a: Access, c: UOp) -> float:
        """Cycles to copy a vector along c: as it lies, turned with a reduction that lies along memory, or gathered."""
        if a.step(c) == 1:
            return 1
        along = max((self.plan.size(j) for j in self.heavy if a.step(j) == 1), default=0)
        turned = min(GATHERED, self.turned(max(along, 1)))
        each = turned if along >= 3 and a.step(c) not in (2, 3, 4) else GATHERED
        return each + self.is_gone() * FROM_MEMORY

    def turned(self, along: int) -> float:
        """Cycles a vector to turn squares of what lies `along` memory; of the last one, some is not there."""
        lanes = self.chooser.lanes
        return TURNED * -(-along // lanes) * lanes / along

    def is_copied_again(self, a: Access, r: UOp | None) -> bool:
        """Whether the scalars of `a` are packed for each block of columns: rows of a tile that are neighbours in
        memory, in short pieces, or what is widened.
        """
        rows = r is not None and a.step(r) == 1 and not any(self.is_window(a, r, j) for j in self.heavy)
        return (rows or self.wide[a.uop] is not None) and self.wants_pack(a) and not self.plan.is_frozen(a.uop)

    def copying_rows(self, a: Access, times: int, k: int, unit: MatrixUnit | None) -> float:
        """Cycles to copy all of what a scalar reads, so many times, in tiles of k rows; it comes from memory once in
        any case.
        """
        n = prod(self.plan.extent(x) for x in a.steps)
        vectors = n / self.target.lanes(a.uop.dtype.itemsize)
        odd = unit is not None and unit.pair > 1 and (k < 4 or k & (k - 1))
        each = ODD_PIECE * n / (k * unit.pair) if unit is not None and odd else 2 * vectors
        return each * times + vectors * (times - 1) * self.is_far(a) * FROM_MEMORY

    def coming(self, accesses: list[Access]) -> float:
        """Cycles until all that they read has come once from where it lies, while nothing else is done."""
        cycles = 0.0
        for a in accesses:
            n_bytes = buffer_bytes(a.uop)
            each = FROM_MEMORY * (n_bytes > self.target.n_threads * self.target.l2_bytes)  # each has its own
            each += FARTHER * (n_bytes > self.target.l3_bytes)
            cycles += each * prod(self.plan.extent(x) for x in a.steps) / self.target.lanes(a.uop.dtype.itemsize)
        return cycles

    def is_far(self, a: Access) -> bool:
        """Whether the second cache does not hold the memory it reads, of symbolic sizes the largest."""
        elements = size_max(count(memory_of(a.uop.src[0]).shape))
        return elements * a.uop.dtype.itemsize > self.target.l2_bytes

    def is_gone(self) -> bool:
        """Whether what is read once a call has left the second cache since: that does not hold all that sums read."""
        memory = {a.uop.src[0].src[0]: buffer_bytes(a.uop) for a in self.inside}
        return sum(memory.values()) > self.target.l2_bytes

    def comes_from_memory(self, c: UOp, panel: list[Access]) -> bool:
        """Whether the second cache does not hold all columns of a panel."""
        n_bytes = prod(self.plan.extent(j) for j in self.heavy) * self.plan.size(c) * self.item
        return n_bytes > self.target.l2_bytes and any(map(self.is_far, panel))

    def streams(self, c: UOp, panel: list[Access]) -> bool:
        """Whether a panel comes from memory: a few of its rows may then stream side by side."""
        long = self.plan.size(self.deepest) >= 8 * ROWS_AT_ONCE and self.plan.size(c) >= 8 * self.chooser.lanes
        return len(self.heavy) == 1 and long and self.comes_from_memory(c, panel)

    def n_blocks(self, wide: int, columns: int, again: bool) -> int:
        """Blocks of the longest reduction for a panel of tiles `wide` columns each, so that some columns fit the cache;
        equal ones where a divisor is near; one where nothing holds what a block leaves, or a size is symbolic.
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

    def columns(self, wide: int, depth: int, again: bool) -> int:
        """Columns of a block of `depth` steps of the longest reduction. Where all of it is in one block and scalars are
        packed for each, a panel may be as large as the second cache.
        """
        sizes = [self.plan.extent(j) for j in self.heavy]
        room = self.target.l2_bytes // (1 if again and depth == max(sizes) else 2)
        return room // (self.item * depth * (prod(sizes) // max(sizes))) // wide * wide

    def holds_sums(self, again: bool) -> bool:
        """Whether the output does that, or local memory, which costs loops of its own and pays where else scalars were
        packed for narrower blocks of columns.
        """
        in_local = again and len(self.plan.stores) == len(self.plan.reduces) == 1 and self.target.local_bytes > 0
        return in_local or self.are_results()

    def are_results(self) -> bool:
        """Whether the output can hold what blocks of the reduction leave."""
        return all(a.uop.src[1].dtype is u.dtype for a in self.profile.stores for u in self.plan.reduces)

    def wants_pack(self, a: Access) -> bool:
        """A gated scalar, or one whose neighbours in memory are rows and not steps of the reduction."""
        gated = len(a.uop.src) == 3
        if self.plan.unit is not None:
            # a tail would mask loads in the inner loop, and give rows of tiles places of their own
            padded = [x for x in self.plan.padded if x is self.deepest or self.plan.unit.n_tiles]
            gated |= any(x in a.steps for x in padded)
        along = any(a.step(j) == 1 for j in self.heavy)
        return (gated or not along or self.wide[a.uop] is not None) and self.packable(a)

    def widened(self, u: UOp) -> DType | None:
        """The dtype that a load is converted to, where no matrix unit takes it as it is."""
        users = self.plan.stages.users.get(u, [])
        if len(users) != 1 or users[0].op != "CAST" or users[0].dtype.itemsize <= u.dtype.itemsize:
            return None
        return None if any(u.dtype in (x.a, x.b) for x in self.target.units) else users[0].dtype

    def packable(self, a: Access) -> bool:
        """Whether the access could be packed, as far as that does not depend on its size."""
        key = (a.uop, len(self.plan.actions))
        if key not in self.found_packable:
            try:
                Block(self.plan, a.uop)
                self.found_packable[key] = True
            except ActionError as e:
                self.found_packable[key] = "too large" in str(e)
        return self.found_packable[key]

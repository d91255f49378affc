"""Vectorize sums of products along the reduction: a small square of dot products shares its operands.

Where few columns would leave most lanes of a vector empty, lanes run along the reduction. Each vector of a row is
multiplied by the vector of every column; the lanes of all sums of the square are added up at the end. PACK first
transposes an operand that is not contiguous along the reduction.

Dot products replace a register tile where they cost less, or where a tile would transpose a panel that is hardly
reused.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from monolect.ir.uop import UOp
from monolect.optimize.cost import StridedAccess
from monolect.optimize.cpu.contraction import Contraction
from monolect.optimize.cpu.tile_cost import RegisterTile
from monolect.optimize.loops.accesses import buffer_bytes
from monolect.optimize.tuning import (
    DOT_LOAD_CYCLES,
    DOT_PREFETCH_BYTES,
    GATHERED_COPY_CYCLES,
    LANE_SUM_CYCLES,
    MASKED_STEP_CYCLES,
    MAX_GATHER_STRIDE,
    MAX_SQUARE_SIDE,
    MIN_DOT_LENGTH,
    MIN_REUSE_TO_TRANSPOSE,
    MIN_ROW_TO_TRANSPOSE,
    SHUFFLED_COPY_CYCLES,
    SQUARE_SIDES,
    SQUARE_START_CYCLES,
)


class Square(NamedTuple):
    """A rectangle of results whose dot products are computed at once, with vector lanes along the reduction RANGE `j`.

    `sides`: (output RANGE, number of its iterations at once) for up to two output RANGEs. `transposed`: the loads that
    are packed, as they are not contiguous along `j`. `cost`: cycles on one thread.
    """

    cost: float
    j: UOp
    sides: tuple[tuple[UOp, int], ...]
    transposed: tuple[StridedAccess, ...] = ()


class Dots(Contraction):
    """Choose and perform the actions of one contraction by dot products, through `chooser.act`. A "square" is a
    `Square`, whose two sides may differ.
    """

    def better_square(self, tile: RegisterTile | None) -> Square | None:
        """The cheapest square of dot products if it is better than the register tile `tile` (None: no tile fits), else
        None.
        """
        square = self.best_square()
        if square is None or tile is None:
            return square
        cheaper = square.cost < tile.cost and self.has_operand_in_l1()
        return square if cheaper or (self.are_all_along_sum() and self.transposes_for_little_reuse(tile)) else None

    def has_operand_in_l1(self) -> bool:
        """Whether some operand fits the L1 cache. Otherwise each row of one operand comes from L2 for every few rows of
        the others.
        """
        return any(self.bytes_of(a) <= self.target.l1_bytes for a in self.inside)

    def are_all_along_sum(self) -> bool:
        """Whether all operands that move along some reduction, which is at least a vector long, are contiguous along
        it.
        """
        return any(
            self.profile.is_contiguous(j, self.inside) and self.plan.size(j) >= self.chooser.lanes
            for j in self.contracted
        )

    def transposes_for_little_reuse(self, tile: RegisterTile) -> bool:
        """Whether `tile` is narrower than a vector register, or needs a transposed copy of its panel (the loads along
        its vector lanes) that few tiles of rows read.
        """
        if tile.lanes < self.chooser.lanes:
            return True
        panel = [a for a in self.inside if tile.c in a.steps]
        least = MIN_REUSE_TO_TRANSPOSE if tile.unit is None else MIN_REUSE_TO_TRANSPOSE // tile.unit.m
        return any(a.step(tile.c) != 1 for a in panel) and self.reuse(tile, panel) < least

    def best_square(self) -> Square | None:
        """The cheapest square of dot products, or None if none is possible. If the sum has several reduction loops,
        costs are not compared: the first possible square is returned, with infinite cost.
        """
        if len(self.contracted) == 1:
            return min(self.squares(self.contracted[0]), key=lambda s: s.cost, default=None)
        found = [
            j
            for j in self.contracted
            if self.profile.is_contiguous(j, self.inside) and self.plan.divisor(j) >= MIN_DOT_LENGTH
        ]
        if not found:
            return None
        outs = sorted((r for r in self.scope if self.plan.size(r) > 1), key=lambda r: -self.plan.size(r))
        sides = [(r, next((k for k in SQUARE_SIDES if self.plan.size(r) % k == 0), 1)) for r in outs[:2]]
        return Square(float("inf"), found[0], tuple(sides))

    def squares(self, j: UOp) -> list[Square]:
        """Every possible square with vector lanes along the reduction RANGE j, with its cost. Some operand must be
        contiguous along j; the others are packed transposed.
        """
        transposed = [a for a in self.inside if a.step(j) not in (0, 1)]
        is_along = any(a.step(j) == 1 for a in self.inside) and all(self.can_transpose(a) for a in transposed)
        if not is_along or self.plan.divisor(j) < MIN_DOT_LENGTH:
            return []
        shared = [r for r in self.scope if self.plan.size(r) > 1 and any(r not in a.steps for a in self.inside)]
        outs = sorted(shared, key=lambda r: -self.plan.size(r))[:2]
        sides = [[k for k in range(1, MAX_SQUARE_SIDE + 1) if self.plan.size(r) % k == 0] for r in outs]
        fitting = [ks for ks in product(*sides) if prod(ks) + min(ks, default=1) + 1 < self.target.n_registers]
        pairs = [tuple(zip(outs, ks, strict=True)) for ks in fitting]
        return [Square(self.square_cost(j, p, transposed), j, p, tuple(transposed)) for p in pairs]

    def can_transpose(self, a: StridedAccess) -> bool:
        """Whether PACK of the load `a` is legal, for a transposed copy, and the copy for one batch fits half of the L2
        cache.

        A batch is one iteration of the loops that all operands move along. Loads with a gate are not packed here.
        """
        alone = len(a.uop.src) == 1 and None not in a.steps.values() and self.upcast[a.uop] is None
        return alone and self.bytes_of(a) <= self.target.l2_bytes // 2 and self.packable(a)

    def bytes_of(self, a: StridedAccess) -> int:
        """Bytes that the load `a` reads in one batch: one iteration of the loops that all operands move along."""
        shared = [x for x in self.scope if all(x in b.steps for b in self.inside)]
        return prod(self.plan.extent(x) for x in a.steps if x not in shared) * a.uop.dtype.itemsize

    def square_cost(self, j: UOp, sides: tuple[tuple[UOp, int], ...], transposed: list[StridedAccess]) -> float:
        """Return the cycles of the whole kernel, on one thread, with dot products along the reduction RANGE j.

        `sides`: (output RANGE, iterations at once) for each side of the square. `transposed`: the loads that are
        packed; the result includes their copies, which each thread makes for itself.
        """
        lanes = self.chooser.fitting_lanes(self.plan.size(j) or self.plan.divisor(j))
        steps = -(-self.plan.extent(j) // lanes)
        vectors = [(a, prod(k for r, k in sides if r in a.steps)) for a in self.inside]
        n_sums, loads = prod(k for _, k in sides), sum(n for _, n in vectors)
        far = sum(n for a, n in vectors if a not in transposed and self.bytes_of(a) > self.target.l1_bytes)
        step = (
            max(
                max(n_sums, loads) / self.fma_rate(lanes),
                self.target.l1_miss_cycles * far,
                self.target.multiply_add_cycles,
            )
            + DOT_LOAD_CYCLES * loads
        )
        step += MASKED_STEP_CYCLES * bool(self.plan.extent(j) % lanes)
        n = prod(self.plan.extent(r) for r in self.scope) / n_sums
        # loads of frozen memory are packed once, before
        copied = [a for a in transposed if not self.plan.is_frozen(a.uop)]
        copying = sum(self.transpose_cycles(a, j) * prod(self.plan.extent(x) for x in a.steps) / lanes for a in copied)
        total = n * (steps * step + LANE_SUM_CYCLES * n_sums + SQUARE_START_CYCLES) + copying * self.target.n_threads
        return total + self.memory_cycles(self.inside)

    def transpose_cycles(self, a: StridedAccess, j: UOp) -> float:
        """Cycles to copy one vector along the RANGE j of the load `a`, which is not contiguous along j: in transposed
        squares, shuffled out of a few vectors, or element by element.
        """
        along = max((self.plan.size(x) for x in a.steps if a.step(x) == 1), default=0)
        if along >= MIN_ROW_TO_TRANSPOSE:
            return self.transposed_copy_cycles(along)
        return SHUFFLED_COPY_CYCLES * along if a.step(j) == along <= MAX_GATHER_STRIDE else GATHERED_COPY_CYCLES

    def commit_square(self, s: Square) -> None:
        """Perform the actions of the square `s`: SPLITs into vector lanes and dot products, threads, then block loops,
        PACKs of its transposed loads, and PREFETCHes.
        """
        act, plan = self.chooser.act, self.plan
        if not self.chooser.split_vector(s.j, "GROUP_REDUCE", "lanes along the sum, contiguous in memory", ()):
            return
        for r, k in s.sides:
            if k > 1:
                act("SPLIT", plan.axis_of(r), (k, "UPCAST", False), "dot products that share operands")
        outs = [r for r, _ in s.sides]
        batches = [x for x in self.scope if s.transposed and all(x in a.steps for a in self.inside)]
        self.chooser.threads_over([*batches, *outs[:1]])  # each thread reads its own part of the longest axis
        if not s.transposed:
            self.block_dots(s.j, outs)
        for x in batches:
            self.cut(x, 1, "one transposed operand at a time")
        for a in s.transposed:
            act("PACK", plan.loads.index(a.uop), None, "transposed, to be contiguous along the sum")
        for i, u in enumerate(plan.loads):
            if self.target.streams and buffer_bytes(u) > self.target.l3_bytes:
                act("PREFETCH", i, DOT_PREFETCH_BYTES, "rows that stream from memory")

    def block_dots(self, j: UOp, axes: list[UOp]) -> None:
        """Make a block loop over the inner one of the output loops `axes`, so that the operand rows of a block, along
        the reduction RANGE j, fit half of the L2 cache.
        """
        if len(axes) < 2:
            return
        inner = max(self.plan.axis_of(r, "LOOP") for r in axes[:2])
        p = self.plan.axes[inner]
        row_bytes = self.plan.extent(j) * self.profile.itemsize * p.stride
        most = self.target.l2_bytes // 2 // row_bytes
        k = next((k for k in range(min(most, p.size), 3, -1) if p.size % k == 0), 0)
        if k and k < p.size:
            self.chooser.act("SPLIT", inner, (p.size // k, "LOOP", True), f"{k} tiles stay in cache")


__all__ = ["Dots", "Square"]

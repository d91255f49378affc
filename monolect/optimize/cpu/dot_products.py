"""Dot products: sums of products with the vector lanes along the sum, a small square of them side by side.

Where few columns would leave most lanes of a vector empty, lanes run along the sum: each vector of a row is multiplied
by that of every column, and at the end the lanes of all sums of the square are added up together. An operand that does
not lie along the sum is turned first, by PACK.

They take the place of a register tile where they cost less, or where a tile would turn around what is hardly read
again.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import NamedTuple

from monolect.ir.uop import UOp
from monolect.optimize.actions.pack import LEAST_TO_TURN
from monolect.optimize.actions.stream import buffer_bytes
from monolect.optimize.cost import WIDEST_STEP, Access
from monolect.optimize.cpu.contraction import Contraction
from monolect.optimize.cpu.tile_cost import FROM_L2, GATHERED, Tile

FEW_ROWS = 4  # tiles of rows below which a panel is not worth being turned around
SHORTEST = 3  # elements of a sum, for which a vector pays
MOST_SIDE = 7  # rows, or columns, of a square
DOTS_AHEAD_BYTES = 2048  # how far ahead rows that stream are asked for
LATENCY = 4  # cycles of a multiply-add, which the next step of a sum waits for
LANES_ADDED = 3  # cycles for one sum, of several together
DRAINING = 12  # cycles between the last step of a square and the first of the next one
MASKING = 2  # cycles of a step that asks which lanes are inside


class Square(NamedTuple):
    """Lanes along `j`, so many iterations of each of the output loops side by side, `turned` loads packed. `cost`: in
    cycles on one thread.
    """

    cost: float
    j: UOp
    sides: tuple[tuple[UOp, int], ...]
    turned: tuple[Access, ...] = ()


class Dots(Contraction):
    """The decisions for one kernel, made through `chooser.act`."""

    def instead_of(self, tile: Tile | None) -> Square | None:
        """The square to take in the place of a register tile."""
        square = self.square()
        if square is None or tile is None:
            return square
        cheaper = square.cost < tile.cost and self.any_stays_near()
        return square if cheaper or (self.all_lie_along() and self.turns_for_few(tile)) else None

    def any_stays_near(self) -> bool:
        """Whether the first cache holds some operand: else each row of one would come from the second cache for every
        few of the others.
        """
        return any(self.bytes_of(a) <= self.target.l1_bytes for a in self.inside)

    def all_lie_along(self) -> bool:
        """Whether every operand is contiguous along one reduction, for a vector and more."""
        return any(self.profile.unit(j, self.inside) and self.plan.size(j) >= self.chooser.lanes for j in self.heavy)

    def turns_for_few(self, tile: Tile) -> bool:
        """Whether what is turned around is hardly used again, or does not fill a vector."""
        if tile.lanes < self.chooser.lanes:
            return True
        panel = [a for a in self.inside if tile.c in a.steps]
        least = FEW_ROWS if tile.unit is None else FEW_ROWS // tile.unit.m
        return any(a.step(tile.c) != 1 for a in panel) and self.reuse(tile, panel) < least

    def square(self) -> Square | None:
        """The cheapest one; where a sum has several loops, the first that there is, at no known cost."""
        if len(self.heavy) == 1:
            return min(self.squares(self.heavy[0]), key=lambda s: s.cost, default=None)
        found = [j for j in self.heavy if self.profile.unit(j, self.inside) and self.plan.divisor(j) >= SHORTEST]
        if not found:
            return None
        outs = sorted((r for r in self.scope if self.plan.size(r) > 1), key=lambda r: -self.plan.size(r))
        sides = [(r, next((k for k in (4, 5, 3, 2) if self.plan.size(r) % k == 0), 1)) for r in outs[:2]]
        return Square(float("inf"), found[0], tuple(sides))

    def squares(self, j: UOp) -> list[Square]:
        """Every square with lanes along j, of which some operand lies along it."""
        turned = [a for a in self.inside if a.step(j) not in (0, 1)]
        lies = any(a.step(j) == 1 for a in self.inside) and all(self.can_be_turned(a) for a in turned)
        if not lies or self.plan.divisor(j) < SHORTEST:
            return []
        shared = [r for r in self.scope if self.plan.size(r) > 1 and any(r not in a.steps for a in self.inside)]
        outs = sorted(shared, key=lambda r: -self.plan.size(r))[:2]
        sides = [[k for k in range(1, MOST_SIDE + 1) if self.plan.size(r) % k == 0] for r in outs]
        fitting = [ks for ks in product(*sides) if prod(ks) + min(ks, default=1) + 1 < self.target.n_registers]
        pairs = [tuple(zip(outs, ks, strict=True)) for ks in fitting]
        return [Square(self.price(j, p, turned), j, p, tuple(turned)) for p in pairs]

    def can_be_turned(self, a: Access) -> bool:
        """Whether PACK may turn it, and all that one thread reads of it stays in the second cache."""
        alone = len(a.uop.src) == 1 and None not in a.steps.values() and self.wide[a.uop] is None
        return alone and self.bytes_of(a) <= self.target.l2_bytes // 2 and self.packable(a)

    def bytes_of(self, a: Access) -> int:
        """Of what is read in one iteration of the loops that all operands move along."""
        shared = [x for x in self.scope if all(x in b.steps for b in self.inside)]
        return prod(self.plan.extent(x) for x in a.steps if x not in shared) * a.uop.dtype.itemsize

    def price(self, j: UOp, sides: tuple[tuple[UOp, int], ...], turned: list[Access]) -> float:
        """Cycles of the whole kernel with such squares, on one thread; each thread turns all of what it shares."""
        lanes = self.chooser.fitting_lanes(self.plan.size(j) or self.plan.divisor(j))
        steps = -(-self.plan.extent(j) // lanes)
        vectors = [(a, prod(k for r, k in sides if r in a.steps)) for a in self.inside]
        n_sums, loads = prod(k for _, k in sides), sum(n for _, n in vectors)
        far = sum(n for a, n in vectors if a not in turned and self.bytes_of(a) > self.target.l1_bytes)
        step = max(max(n_sums, loads) / self.at_a_time(lanes), FROM_L2 * far, LATENCY) + 0.1 * loads
        step += MASKING * bool(self.plan.extent(j) % lanes)
        n = prod(self.plan.extent(r) for r in self.scope) / n_sums
        copied = [a for a in turned if not self.plan.is_frozen(a.uop)]  # what is frozen is packed once
        copying = sum(self.turning(a, j) * prod(self.plan.extent(x) for x in a.steps) / lanes for a in copied)
        total = n * (steps * step + LANES_ADDED * n_sums + DRAINING) + copying * self.target.n_threads
        return total + self.coming(self.inside)

    def turning(self, a: Access, j: UOp) -> float:
        """Cycles to copy a vector along j: in squares, picked from a few whole vectors, or element by element."""
        along = max((self.plan.size(x) for x in a.steps if a.step(x) == 1), default=0)
        if along >= LEAST_TO_TURN:
            return self.turned(along)
        return 2 * along if a.step(j) == along <= WIDEST_STEP else GATHERED

    def commit_square(self, s: Square) -> None:
        """Vectors, the square, threads, then what is packed, or stays in cache, or is asked for."""
        act, plan = self.chooser.act, self.plan
        if not self.chooser.split_vector(s.j, "GROUP_REDUCE", "lanes along the sum, as memory lies", ()):
            return
        for r, k in s.sides:
            if k > 1:
                act("SPLIT", plan.axis_of(r), (k, "UPCAST", False), "dot products that share operands")
        outs = [r for r, _ in s.sides]
        batches = [x for x in self.scope if s.turned and all(x in a.steps for a in self.inside)]
        self.chooser.threads_over([*batches, *outs[:1]])  # of what there is most of each thread reads its own part
        if not s.turned:
            self.block_dots(s.j, outs)
        for x in batches:
            self.cut(x, 1, "what is turned, one at a time")
        for a in s.turned:
            act("PACK", plan.loads.index(a.uop), None, "turned, to lie along the sum")
        for i, u in enumerate(plan.loads):
            if self.target.streams and buffer_bytes(u) > self.target.l3_bytes:
                act("PREFETCH", i, DOTS_AHEAD_BYTES, "rows that stream from far away")

    def block_dots(self, j: UOp, outs: list[UOp]) -> None:
        """The inner output axis in blocks whose operand rows stay in the second cache, outermost."""
        if len(outs) < 2:
            return
        inner = max(self.plan.axis_of(r, "LOOP") for r in outs[:2])
        p = self.plan.axes[inner]
        row_bytes = self.plan.extent(j) * self.profile.itemsize * p.stride
        most = self.target.l2_bytes // 2 // row_bytes
        k = next((k for k in range(min(most, p.size), 3, -1) if p.size % k == 0), 0)
        if k and k < p.size:
            self.chooser.act("SPLIT", inner, (p.size // k, "LOOP", True), f"{k} tiles stay in cache")

"""Predict the time of a kernel on a processor from the rates of its target, and name the term that limits it.

What it is for: `monolect explain --why`, and the comparison with measured times in the tests. A roofline model: the
terms of arithmetic add up, so do those of transfers, and the longer sum is the time. Arithmetic overlaps with
transfers, because processors prefetch.
What it is not: an input of the heuristic, which compares plans of one kernel, not times of several; a simulation of
caches. Each buffer is transferred once, however often the loops visit it.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from monolect.base.target import Target
from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import Action, LoopPlan
from monolect.optimize.cost import is_operation, operations
from monolect.optimize.cpu.dot_products import Dots
from monolect.optimize.cpu.heuristic import Chooser
from monolect.optimize.cpu.tile_cost import RegisterTile
from monolect.optimize.tuning import BOUNDED_SHARE, LINE_BYTES, SCALARS_PER_CYCLE


class Term(NamedTuple):
    """One part of a predicted time: its `name`, such as "compute" or "DRAM", its `seconds`, and `why`, a text that
    explains it. `is_transfer`: memory is moved; otherwise the part is arithmetic.
    """

    name: str
    seconds: float
    why: str
    is_transfer: bool = False


class Prediction(NamedTuple):
    """The predicted time of a kernel as its parts `terms`; there are none if the target has workgroups."""

    terms: tuple[Term, ...]

    def sum_of(self, is_transfer: bool) -> float:
        """Return the total seconds of the transfer terms if `is_transfer`, else of the arithmetic terms."""
        return sum(t.seconds for t in self.terms if t.is_transfer == is_transfer)

    @property
    def seconds(self) -> float:
        """The predicted time in seconds: the longer of arithmetic and transfers, which overlap."""
        return max(self.sum_of(False), self.sum_of(True))

    @property
    def limit(self) -> Term:
        """The longest term among the arithmetic terms or among the transfer terms, whichever take longer in total."""
        longer = self.sum_of(True) > self.sum_of(False)
        return max((t for t in self.terms if t.is_transfer == longer), key=lambda t: t.seconds)


def predict(ready: UOp, actions: tuple[Action, ...], target: Target) -> Prediction:
    """Return the predicted time of a kernel after `actions`. `ready`: its SINK, with no actions chosen yet."""
    if target.workgroups:
        return Prediction(())
    plan, acted = LoopPlan(ready, target), LoopPlan(ready, target)
    for action in actions:
        acted.act(action)
    model = _Model(Chooser(plan), acted)
    return Prediction((*model.arithmetic(), *model.transfers()))


class _Model:
    """The facts about one kernel that its predicted time depends on. `chooser`: has its plan without actions; `acted`:
    its plan with the chosen actions.
    """

    def __init__(self, chooser: Chooser, acted: LoopPlan):
        self.chooser, self.plan, self.acted = chooser, chooser.plan, acted
        self.target, self.profile = chooser.plan.target, chooser.profile
        self.contracted = chooser.contracted
        self.n_threads = prod(p.size for p in acted.axes if p.type == "THREAD")
        self.tile = self._tile()

    def _tile(self) -> RegisterTile | None:
        """Return the register tile that the heuristic chooses for the kernel, or None if it chooses none."""
        if self.plan.is_given or self.chooser.strategy().name != "tile":
            return None
        product = Dots(self.chooser, self.contracted)
        tile = product.best()
        return tile if product.better_square(tile) is None else None

    def seconds(self, cycles: float) -> float:
        """Return the seconds that `cycles` of work take if the kernel's threads divide them evenly."""
        return cycles / self.n_threads / self.target.clock_hz

    # ---- arithmetic --------------------------------------------------------------------------------------------------
    def arithmetic(self) -> list[Term]:
        """Return the arithmetic terms of the predicted time. For a kernel with a register tile these are the parts of
        the tile's estimated cost.

        Misses of the L2 and L3 caches are left out, because `transfers` counts each buffer once.
        """
        threads = f"{self.n_threads} of {self.target.n_threads} threads"
        if self.tile is None or self.tile.terms is None:
            return [Term("compute", self.seconds(self.cycles()), f"operations on vectors, {threads}")]
        x = self.tile.terms
        parts = (
            (
                "compute",
                x.tiles * (x.steps + x.start),
                f"multiply-adds of register tiles with their L1 loads, {threads}",
            ),
            ("stores", x.tiles * x.stores, "results and partial sums"),
            ("packing", x.packing, "panels copied into the order in which the tile reads them"),
        )
        return [Term(name, self.seconds(n * x.factor), why) for name, n, why in parts if n]

    def cycles(self) -> float:
        """Return the cycles of all operations on one thread. A vector of operations takes one cycle; SCALARS_PER_CYCLE
        scalar operations start in a cycle.

        The multiplication and addition of a sum of products count as one operation. In contractions, the target's
        `multiply_adds` of them start in a cycle, and loads of operands count 0; elsewhere two loads start in a cycle.
        """
        total = 0.0
        part = BOUNDED_SHARE if any(op == "BOUND" for op, _, _ in self.acted.actions) else 1
        vectors = {p.root for p in self.acted.axes if p.type in ("UPCAST", "GROUP_REDUCE")}
        products = {u.src[0] for u in self.plan.reduces if u.src[0].op == "MUL"}
        for u in filter(is_operation, self.plan.order):
            around = ranges(u) | frozenset(u.src[1:]) if u.op == "REDUCE" else ranges(u)
            reused = not around.isdisjoint(self.contracted)
            if u in products or (reused and u.op == "LOAD"):
                continue
            n: float = prod(map(self.plan.extent, around)) * operations(u, self.target.native)
            if u.op == "LOAD":
                n /= 2
            elif reused and u.op == "REDUCE":
                n /= self.target.multiply_adds
            if reused:
                n *= part
            total += n / (self.target.lanes(u.dtype.itemsize) if around & vectors else SCALARS_PER_CYCLE)
        return total

    # ---- transfers ---------------------------------------------------------------------------------------------------
    def transfers(self) -> list[Term]:
        """Return the transfer terms of the predicted time: operands of a matrix unit from L2, and all buffers from L3
        or DRAM.
        """
        target, out = self.target, []
        if (n := self.unit_bytes()) > 0:
            why = f"{n} bytes of operands of the matrix unit"
            out.append(Term("L2", self.seconds(n / LINE_BYTES * target.l1_miss_cycles), why, True))
        touched: dict[UOp, int] = {}
        for u in (*self.plan.loads, *self.plan.stores):
            if (b := memory_of(u.src[0])).op == "PARAM":
                touched[b] = max(touched.get(b, 0), self.chooser.touched_bytes(u))
        n_bytes = sum(touched.values())
        if n_bytes > target.l3_bytes:
            if all(op != "NONTEMPORAL" for op, _, _ in self.acted.actions):
                n_bytes += sum(touched.get(b, 0) for b in {memory_of(u.src[0]) for u in self.plan.stores})
            why = f"{n_bytes} bytes, with those that stores read first"
            out.append(Term("DRAM", n_bytes / target.dram_bytes_per_second, why, True))
        elif n_bytes > target.l2_bytes * self.n_threads:
            cycles = n_bytes / LINE_BYTES * target.l2_miss_cycles
            out.append(Term("L3", self.seconds(cycles), f"{n_bytes} bytes", True))
        return out

    def unit_bytes(self) -> int:
        """Return the bytes that a matrix unit with tile registers loads from packed blocks: both operands once for each
        step of a tile. 0 without such a unit.
        """
        t = self.tile
        if t is None or t.unit is None or not t.unit.n_tiles:
            return 0
        n = self.plan.extent(t.c) * prod(self.plan.extent(r) for r in (*self.contracted, *self.product_rows(t)))
        wide = t.lanes * t.vectors
        return n * (t.unit.a.itemsize * t.rows + t.unit.b.itemsize * wide) // (t.rows * wide)

    def product_rows(self, tile: RegisterTile) -> list[UOp]:
        """Return the output RANGEs around the contraction, except `tile.c`, along which `tile` has its vector lanes."""
        scope = frozenset().union(*(self.profile.scope(j) for j in self.contracted))
        return [r for r in self.plan.outputs if r in scope and r is not tile.c]


__all__ = ["Prediction", "Term", "predict"]

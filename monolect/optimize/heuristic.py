"""Hand-written choice of actions for CPUs: which loop becomes the vector, which tile stays in registers, which threads.

The order of the decisions: the vector axis (contiguous where it is stored, else where it is reduced), a register tile
for reductions that reuse what they read, unrolling for independent accumulators, then threads on an outer loop. Every
choice goes through `Plan.act`, so it is legal or not made. Each carries a reason for DEBUG=3.

Source: the schedules measured for AVX-512 matrix products, row kernels and convolutions; sizes come from the target.
"""

from __future__ import annotations

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp
from monolect.optimize.action import Plan
from monolect.optimize.cost import Profile

THREAD_WORK = 1 << 16  # elements below which waking threads costs more than it saves
SHORTEST_VECTOR = 3  # elements for which a vector pays
MANY_OPS = 40  # values in a kernel above which unrolling the vector only spills


class Chooser:
    """The decisions for one kernel; `reasons` runs beside `plan.actions`."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.profile = Profile(plan)
        self.reasons: list[str] = []
        self.lanes = plan.target.lanes(max(2, min(8, self.profile.itemsize)))
        self.vector: set[UOp] = set()

    def act(self, op: str, axis: int, arg: object, why: str) -> bool:
        try:
            self.plan.act((op, axis, arg))
        except ActionError:
            return False
        self.reasons.append(why)
        return True

    def run(self) -> list[str]:
        if self.lanes > 1:
            heavy = [j for j in self.plan.reduced if self.profile.reuses(j)]
            if heavy:
                self.tile(heavy)
            else:
                self.vectorize_output()
                self.vectorize_reductions()
        self.threads()
        return self.reasons

    # ---- vectors -----------------------------------------------------------------------------------------------------
    def vectorize_output(self) -> None:
        """The output axis along which stores are contiguous becomes the vector."""
        p = self.profile
        for r in reversed(self.plan.outputs):
            mine = [a for a in p.stores if r in a.steps]
            if not mine or not all(a.step(r) == 1 for a in mine) or r in self.plan.sequential:
                continue
            loads = [a for a in p.loads if r in a.steps]
            rough = [a for a in loads if a.step(r) not in (0, 1, -1)]
            if rough and self.transpose(r, rough):
                return
            if len(rough) * 2 > len(loads):
                continue
            if self.plan.size(r) >= SHORTEST_VECTOR and self.split_vector(r, "UPCAST", "contiguous in the output"):
                return

    def transpose(self, r: UOp, rough: list) -> bool:
        """What is stored along r is read along another output axis: a square of both, turned in registers."""
        plan = self.plan
        for c in plan.outputs:
            if c is r or c in plan.sequential or any(a.step(c) != 1 for a in rough) or plan.reduced:
                continue
            n = min(plan.size(r), plan.size(c))
            if n < SHORTEST_VECTOR or not self.split_block(r, "contiguous in the output"):
                continue
            self.split_block(c, "contiguous in what is read")
            return True
        return False

    def split_block(self, r: UOp, why: str) -> bool:
        """Split r into (rest, one side of a square)."""
        n = self.plan.size(r)
        k = n if n < self.lanes else self.fitting_lanes(n)
        axis = self.plan.axis_of(r)
        if n % k and not self.act("PADTO", axis, k, "a masked vector holds the tail"):
            return False
        return self.act("SPLIT", axis, (k, "UPCAST", False), f"a side of {k}: {why}")

    def split_vector(self, r: UOp, target: str, why: str, vectors: tuple[int, ...] = (4, 2)) -> bool:
        """Split r into (rest, vectors, lanes)."""
        n = self.plan.size(r)
        if not n:
            return False
        lanes = self.fitting_lanes(n)
        axis = self.plan.axis_of(r)
        if n % lanes and not self.act("PADTO", axis, lanes, "a masked vector holds the tail"):
            return False
        n = self.plan.axes[axis].size
        if not self.act("SPLIT", axis, (lanes, target, False), f"vector of {lanes}: {why}"):
            return False
        self.vector.add(r)
        if self.profile.n_ops <= MANY_OPS or len(vectors) == 1:
            for k in vectors:
                if k > 1 and n // lanes % k == 0 and n // lanes >= k:
                    self.act("SPLIT", axis, (k, target, False), f"{k} vectors in flight")
                    break
        return True

    def fitting_lanes(self, n: int) -> int:
        """A full vector, or a narrower one that divides a short axis exactly."""
        lanes = self.lanes
        while lanes > 4 and (lanes // 2 >= n or n % lanes and n % (lanes // 2) == 0 and n <= 4 * lanes):
            lanes //= 2
        return lanes

    def vectorize_reductions(self) -> None:
        """A reduction whose output is not blocked keeps one partial result per lane."""
        for j in self.plan.reduced:
            if self.vector & self.profile.scope(j):
                continue
            inside = self.profile.inside(j)
            if self.profile.unit(j, inside) and self.plan.size(j) >= 4 and not self.nested(j):
                self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction")

    def nested(self, j: UOp) -> bool:
        """True when another reduction runs inside the loop j."""
        from_inside = [u for u in self.plan.reduces if j not in u.src[1:]]
        return any(j in ranges(u) for u in from_inside)

    # ---- register tiles ----------------------------------------------------------------------------------------------
    def tile(self, heavy: list[UOp]) -> None:
        """A matrix product or the like: a tile of vectors x rows in registers."""
        p, plan = self.profile, self.plan
        scope = frozenset().union(*(p.scope(j) for j in heavy))
        inside = [a for j in heavy for a in p.inside(j)]
        for c in reversed([r for r in plan.outputs if r in scope]):
            along = [a for a in (*inside, *p.stores) if c in a.steps]
            if along and p.unit(c, along) and plan.size(c) >= SHORTEST_VECTOR:
                return self.tile_vectors(c, scope, inside)
        for j in heavy:
            if p.unit(j, inside) and plan.size(j) >= SHORTEST_VECTOR:
                return self.tile_dots(j, scope, inside)
        self.vectorize_output()

    def tile_vectors(self, c: UOp, scope: frozenset[UOp], inside: list) -> None:
        """Lanes along the output axis c; rows along an axis whose iterations share the vectors read."""
        vectors = [a for a in inside if a.step(c) == 1]
        rows = [
            r
            for r in self.plan.outputs
            if r in scope and r is not c and all(r not in a.steps for a in vectors) and self.plan.size(r) > 1
        ]
        rows.sort(key=lambda r: -self.plan.size(r))
        lanes = self.fitting_lanes(self.plan.size(c))
        per_row = -(-self.plan.size(c) // lanes)
        more = self.vector_axis(c, scope, vectors, rows[:1]) if per_row == 1 else None
        n_vec, n_row = self.best_tile(
            per_row if more is None else self.plan.size(more), self.plan.size(rows[0]) if rows else 1
        )
        if not self.split_vector(c, "UPCAST", "contiguous in an operand and the output", () if more else (n_vec,)):
            return
        if more is not None and n_vec > 1:
            self.act("SPLIT", self.plan.axis_of(more), (n_vec, "UPCAST", False), "more vectors in flight")
        if n_row > 1:
            self.act("SPLIT", self.plan.axis_of(rows[0]), (n_row, "UPCAST", False), "rows that share the vectors")
        if len(self.plan.reduced) == 1:
            self.block(c, self.plan.reduced[0])

    def vector_axis(self, c: UOp, scope: frozenset[UOp], vectors: list, rows: list[UOp]) -> UOp | None:
        """Another output axis along which further vectors are read, when c itself is one vector long."""
        axes = [r for r in self.plan.outputs if r in scope and r is not c and r not in rows]
        axes = [r for r in axes if any(r in a.steps for a in vectors) and self.plan.size(r) > 1]
        return axes[-1] if axes else None

    def best_tile(self, n_vectors: int, n_rows: int) -> tuple[int, int]:
        """(vectors, rows) of the tile with the cheapest loads per multiply-add; vectors come from the second cache,
        rows from the first. Everything stays in registers.
        """
        registers = self.plan.target.n_registers
        tiles = [
            (v, r)
            for v in range(1, 8)
            for r in range(1, 9)
            if n_vectors % v == 0 and n_rows % r == 0 and v * r + v + 1 < registers
        ]
        return min(tiles, key=lambda t: ((2 * t[0] + t[1]) / (t[0] * t[1]), t[0]))

    def block(self, c: UOp, j: UOp) -> None:
        """Cut the reduction so that the operand read in vectors, one block of it, stays in the second cache."""
        n = self.plan.size(j)
        most = self.plan.target.l2_bytes // 2 // max(1, self.plan.size(c) * self.profile.itemsize)
        if n > max(64, most):
            k = next((k for k in range(max(64, most), 31, -1) if n % k == 0), 0)
            if k:
                why = f"blocks of {k}: {k} x {self.plan.size(c)} elements stay in cache"
                self.act("SPLIT", self.plan.axis_of(j), (n // k, "LOOP", True), why)
        axis = self.plan.axis_of(j, "REDUCE")
        if self.plan.axes[axis].size % 4 == 0:
            self.act("SPLIT", axis, (4, "UNROLL", False), "fewer loop steps")

    def tile_dots(self, j: UOp, scope: frozenset[UOp], inside: list) -> None:
        """Both operands contiguous along the reduction: vectors along it, a small square of dot products."""
        outs = [r for r in self.plan.outputs if r in scope and self.plan.size(r) > 1]
        outs.sort(key=lambda r: -self.plan.size(r))
        if not self.split_vector(j, "GROUP_REDUCE", "both operands are contiguous along the reduction", ()):
            return
        for r in outs[:2]:
            k = best_divisor(self.plan.size(r), (4, 5, 3, 2))
            if k > 1:
                self.act("SPLIT", self.plan.axis_of(r), (k, "UPCAST", False), "dot products that share operands")
        self.block_dots(j, outs)

    def block_dots(self, j: UOp, outs: list[UOp]) -> None:
        """The inner output axis in blocks whose operand rows stay in the second cache, outermost."""
        if len(outs) < 2:
            return
        inner = max(self.plan.axis_of(r, "LOOP") for r in outs[:2])
        p = self.plan.axes[inner]
        row_bytes = self.plan.size(j) * self.profile.itemsize * p.stride
        most = self.plan.target.l2_bytes // 2 // row_bytes
        k = next((k for k in range(min(most, p.size), 3, -1) if p.size % k == 0), 0)
        if k and k < p.size and self.act("SPLIT", inner, (p.size // k, "LOOP", True), f"{k} tiles stay in cache"):
            first = min(self.plan.axis_of(r, "LOOP") for r in outs[:2])
            self.act("SWAP", first, inner, "the cached block outermost")

    # ---- threads -----------------------------------------------------------------------------------------------------
    def threads(self) -> None:
        """The first output loop long enough is shared out between the threads."""
        n = self.plan.target.n_threads
        if n < 2 or self.profile.work() * max(1, self.profile.n_ops // 8) < THREAD_WORK:
            return
        loops = [i for i, p in enumerate(self.plan.axes) if p.type == "LOOP" and p.size >= n]
        loops.sort(key=lambda i: (self.plan.axes[i].size < 2 * n and bool(self.plan.axes[i].size % n), i))
        for i in loops:
            if self.act("SPLIT", i, (n, "THREAD", True), f"{self.profile.work()} elements for {n} threads"):
                return


def best_divisor(n: int, candidates: tuple[int, ...]) -> int:
    """The first candidate that divides n, else 1."""
    return next((k for k in candidates if n % k == 0), 1)


def choose(plan: Plan) -> list[str]:
    """Act on `plan`; the reasons, one an action."""
    return Chooser(plan).run()

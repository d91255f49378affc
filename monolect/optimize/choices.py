"""Keep the plan of a kernel while its actions are chosen, with a reason for each action.

What it is for: the heuristics for processors and for devices with workgroups perform their actions through `Choices`,
which also has the choices that both share: vector lanes along an axis, and threads over an outer loop.
What it is not: a heuristic (`optimize.cpu`, `optimize.gpu`).
"""

from __future__ import annotations

from collections.abc import Iterable

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp
from monolect.optimize.actions.peel import ends_of_gates, sections_of_gates
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.cost import Profile, StridedAccess
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.tuning import (
    MAX_OPS_TO_INTERLEAVE,
    MAX_PADDING_SHARE,
    MIN_ITERATIONS_TO_PEEL,
    MIN_THREAD_CYCLES,
    MIN_VECTOR_LENGTH,
    VECTOR_COUNTS,
)


class Choices:
    """Perform actions on the plan of one kernel and record the reason of each: `reasons[i]` is the text for
    `plan.actions[i]`.
    """

    def __init__(self, plan: LoopPlan):
        self.plan = plan
        self.profile = Profile(plan)
        self.reasons: list[str] = []
        self.lanes = plan.target.lanes(max(2, min(8, self.profile.itemsize)))
        self.vector: set[UOp] = set()
        # (load of rows that stream in parallel, prefetch distance in bytes)
        self.streamed_loads: list[tuple[StridedAccess, int]] = []

    def act(self, op: str, axis: int, arg: object, why: str) -> bool:
        """Perform the action (`op`, `axis`, `arg`) on the plan and record its reason `why`; return False if the action
        is illegal.
        """
        try:
            self.plan.act((op, axis, arg))
        except ActionError:
            return False
        self.reasons.append(why)
        return True

    def split_vector(self, r: UOp, target: str, why: str, vectors: tuple[int, ...] = VECTOR_COUNTS) -> bool:
        """Split the RANGE `r` into (remaining loop, vectors, lanes); return False if r is too short or the split is
        illegal.

        `target`: the axis type of the lanes and vectors, UPCAST or GROUP_REDUCE. `why`: the reason to record.
        `vectors`: candidate numbers of vectors that are computed at a time, best first; the first that divides the
        remaining loop is taken. Where no whole number of vectors covers the axis, it is padded first.
        """
        n = self.plan.divisor(r)
        if n < MIN_VECTOR_LENGTH and not self.plan.size(r) and self.plan.extent(r) >= self.lanes:
            self.act("PADTO", self.plan.axis_of(r), self.lanes, "a masked vector holds the end")
            n = self.plan.divisor(r)
        if n < MIN_VECTOR_LENGTH:
            return False
        lanes = self.fitting_lanes(n)
        axis = self.plan.axis_of(r)
        multiple = lanes * (
            self.padded_accumulator_count(r, -(-n // lanes), vectors) if target == "GROUP_REDUCE" else 1
        )
        if n % multiple and not self.act("PADTO", axis, multiple, "a masked vector holds the tail"):
            return False
        n = self.plan.axes[axis].size or n
        if not self.act("SPLIT", axis, (lanes, target, False), f"vector of {lanes}: {why}"):
            return False
        self.vector.add(r)
        rest = self.plan.axes[axis]
        gates_decided = ends_of_gates(self.plan, rest) or sections_of_gates(self.plan, rest)
        if not self.plan.reduced and rest.size >= MIN_ITERATIONS_TO_PEEL and gates_decided:
            return True  # one vector at a time: peeling removes the masks of most
        if self.profile.n_ops <= MAX_OPS_TO_INTERLEAVE or len(vectors) == 1:
            for k in vectors:
                if k > 1 and n // lanes % k == 0 and n // lanes >= k:
                    self.act("SPLIT", axis, (k, target, False), f"{k} vectors in flight")
                    break
        return True

    def padded_accumulator_count(self, j: UOp, n: int, vectors: tuple[int, ...]) -> int:
        """Return the first of the accumulator counts `vectors` for which padding the reduction RANGE j from `n` vectors
        to a multiple of the count adds little work.

        It is 1 if there is none, if rows can be interleaved instead, or if the kernel has too many operations.
        """
        least = 2 * self.plan.target.n_threads
        rows = any(r in self.profile.scope(j) and self.plan.size(r) >= least for r in self.plan.outputs)
        if rows or self.profile.n_ops > MAX_OPS_TO_INTERLEAVE:
            return 1
        return next((k for k in vectors if n >= 2 * k and -n % k * MAX_PADDING_SHARE <= n), 1)

    def fitting_lanes(self, n: int) -> int:
        """Return the number of vector lanes for an axis of n elements: the full vector length, or, for a short axis, a
        shorter vector that holds all n elements or divides n.
        """
        lanes = self.lanes
        while lanes > 4 and (lanes // 2 >= n or n % lanes and n % (lanes // 2) == 0 and n <= 4 * lanes):
            lanes //= 2
        return lanes

    def contains_reduction(self, j: UOp) -> bool:
        """Whether another reduction runs inside the reduction RANGE j."""
        from_inside = [u for u in self.plan.reduces if j not in u.src[1:]]
        return any(j in ranges(u) for u in from_inside)

    def threads_over(self, outputs: list[UOp], uneven: Iterable[UOp] = ()) -> None:
        """Divide one loop of the axes `outputs` among all threads (SPLIT to THREAD). Nothing is done if no loop is long
        enough, or if the kernel has too little work.

        The first loop that divides into equal work is taken, else the first that is long enough. Axes in `uneven` have
        more work in later iterations; threads take their iterations round-robin.
        """
        n = self.plan.target.n_threads
        if n < 2 or self.profile.operations() < MIN_THREAD_CYCLES * self.lanes:
            return
        loops = [
            (i, p)
            for i, p in enumerate(self.plan.axes)
            if p.type == "LOOP" and p.has_iterations_for(n) and p.root in outputs
        ]
        loops.sort(key=lambda ip: (self.is_uneven(ip[1], n), ip[0]))
        for i, p in loops:
            top = p.root not in uneven
            if self.act("SPLIT", i, (n, "THREAD", top), f"{self.profile.work()} elements for {n} threads"):
                return

    def is_uneven(self, p: AxisPart, n: int) -> bool:
        """Whether `n` threads that divide the loop `p` get unequal work. False for loops of at least 2 * n iterations.

        Work is unequal if some threads have one iteration more, or if the last tile is moved back to end with the axis
        and recomputes elements.
        """
        return p.size < 2 * n and bool(p.size % n or not p.size or p.size * p.stride > self.plan.size(p.root))


__all__ = ["Choices"]

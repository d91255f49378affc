"""Collect the facts about a kernel that the heuristic decides on: its accesses along each loop, and its work.

A Profile has, for each memory access, its stride in elements along each original RANGE (None where the index is not
linear in it), and how the reductions reuse their operands.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from monolect.base.settings import switched
from monolect.ir.bounds import ranges
from monolect.ir.ops import DECOMPOSED, ParamArg
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp, node, shape_source
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.tuning import MAX_GATHER_STRIDE, SLOW_OP_CYCLES
from monolect.rules.decompose import decompose
from monolect.rules.formula import UNLIKELY
from monolect.rules.loops.carry import ROUNDED, rounded_sum


class StridedAccess(NamedTuple):
    """One LOAD, STORE or ATOMICADD, `uop`, with its strides. `is_store`: it is no LOAD.

    `steps`: {RANGE that the access depends on: its stride in elements along it, or None if the address is not linear in
    it}. `repeated`: the RANGEs with stride None along which consecutive iterations access only a few different
    addresses (as r // n or r % n).
    """

    uop: UOp
    steps: dict[UOp, int | None]
    is_store: bool
    repeated: frozenset[UOp] = frozenset()

    def step(self, r: UOp) -> int | None:
        """Stride of the access along the RANGE r, in elements per iteration: 0 if it does not depend on r, None if its
        address is not linear in r.
        """
        return self.steps.get(r, 0)

    def is_nearly_contiguous(self, r: UOp) -> bool:
        """Whether consecutive iterations of the RANGE r access the same element or elements at most MAX_GATHER_STRIDE
        apart.
        """
        step = self.step(r)
        return r in self.repeated if step is None else abs(step) <= MAX_GATHER_STRIDE


class Profile:
    """The accesses and the amount of work of one kernel, before actions.

    `accesses`: all LOADs, STOREs and ATOMICADDs with an index; `loads`, `stores`: the reading and the writing ones.
    `itemsize`: bytes of the widest value in the innermost loop. `n_ops`: number of operations in the kernel's code.
    """

    def __init__(self, plan: LoopPlan):
        self.plan = plan
        memory = [u for u in plan.order if u.op in ("LOAD", "STORE", "ATOMICADD")]
        self.accesses = [self._with_row_strides(_access(u)) for u in memory if u.src[0].op == "INDEX"]
        self.loads = [a for a in self.accesses if not a.is_store]
        self.stores = [a for a in self.accesses if a.is_store]
        values = [u for u in plan.order if u.dtype.kind not in "vxb" and u.op not in ("PARAM", "BUFFER", "AFTER")]
        depth = max([len(ranges(u)) for u in values], default=0)
        sums = [s.src[1] for u in plan.order if (s := rounded_sum(u)) is not None]
        carried = {x for u in sums for x in (u, *u.src)}  # carried sums have wider dtypes than the lanes
        # values of the innermost loop
        vectors = [u for u in values if len(ranges(u)) == depth and u not in carried and u.arg != ROUNDED]
        self.itemsize = max([u.dtype.itemsize for u in vectors], default=4)
        self.n_ops = sum(map(is_operation, plan.order))

    def _with_row_strides(self, a: StridedAccess) -> StridedAccess:
        """Return the access `a`; if it accesses a scratch buffer, with a stride of the buffer's size along the loops
        around the buffer.

        Such a loop may become lanes of a tile, each of which has its own row of the buffer.
        """
        b = memory_of(a.uop.src[0])
        if b not in self.plan.scratch.fills:
            return a
        n = prod(b.shape)
        return a._replace(steps={**dict.fromkeys(self.plan.scratch.around(b), n), **a.steps})

    def work(self) -> int:
        """Number of elements that the kernel's largest loop nest visits: the product of the numbers of iterations of
        its loops.
        """
        best = 1
        for u in self.plan.order:
            if u.op in ("END", "REDUCE"):
                n = prod(u.src[0].src[0].shape) if u.src[0].op == "STORE" else 1
                for r in (*ranges(u), *u.src[1:]):
                    n *= self.plan.extent(r)
                best = max(best, n)
        return best

    def operations(self) -> int:
        """Number of scalar operations that the whole kernel executes; a slow operation counts as several. Vectors of
        operations take about one cycle each.
        """
        native, total = self.plan.target.native, 0
        times: dict[frozenset[UOp], int] = {}
        for u in filter(is_operation, self.plan.order):
            rs = ranges(u) | frozenset(u.src[1:]) if u.op == "REDUCE" else ranges(u)
            if rs not in times:
                times[rs] = prod(map(self.plan.extent, rs))
            total += operations(u, native) * times[rs]
        return total

    def scope(self, j: UOp) -> frozenset[UOp]:
        """The output RANGEs around the reductions over the RANGE j."""
        out: frozenset[UOp] = frozenset()
        for u in self.plan.reduces:
            if j in u.src[1:]:
                out |= ranges(u) & frozenset(self.plan.outputs)
        return out

    def inside(self, j: UOp) -> list[StridedAccess]:
        """The loads that move along the reduction RANGE j: the operands of the reductions over j."""
        return [a for a in self.loads if j in a.steps]

    def reuses(self, j: UOp) -> bool:
        """Whether the reduction over the RANGE j is a contraction: for each operand there is an output RANGE around
        along which it does not move, so that it is reused.
        """
        scope = self.scope(j)
        return bool(scope) and all(not scope <= a.steps.keys() for a in self.inside(j)) and bool(self.inside(j))

    def is_contiguous(self, r: UOp, accesses: list[StridedAccess]) -> bool:
        """Whether each of `accesses` has stride 0 or 1 along the RANGE r, and at least one has stride 1."""
        steps = [a.step(r) for a in accesses]
        return all(s in (0, 1) for s in steps) and 1 in steps


def is_operation(u: UOp) -> bool:
    """Whether the node `u` counts as an operation of a kernel: any node but CONST, RANGE, PARAM, INDEX and index
    arithmetic.
    """
    return u.op not in ("CONST", "RANGE", "INDEX", "PARAM") and u.dtype.kind != "x"


def operations(u: UOp, native: frozenset[str]) -> int:
    """Approximate cycles of the operation `u`: 1, a measured number for slow operations, or the number of operations by
    which a target replaces an operation that it lacks.

    `native`: the operations that the target has. Operations on paths that are rarely taken do not count.
    """
    if u.op in SLOW_OP_CYCLES:
        return SLOW_OP_CYCLES[u.op]
    if u.op not in DECOMPOSED or u.op in native:
        return 1
    scalar = shape_source(())
    like = [node("PARAM", (scalar,), ParamArg(k, s.dtype)) if s.op != "CONST" else s for k, s in enumerate(u.src)]
    return _decomposed(u.op, tuple(like), native)


@lru_cache(maxsize=256)
def _decomposed(op: str, src: tuple[UOp, ...], native: frozenset[str]) -> int:
    """Return the number of operations that replace an operation `op` with the sources `src` on a target that has the
    operations `native`. Memoized.
    """
    if (out := decompose(node(op, src), native)) is None:
        return 1
    n, seen, stack = 0, set(src), [out]
    while stack:
        u = stack.pop()
        if u not in seen and u.op != "CONST":
            seen.add(u)
            n += operations(u, native)
            stack += u.src if u.tag != UNLIKELY else (u.src[0], u.src[2])
    return n


switched.append(_decomposed.cache_clear)


def _access(u: UOp) -> StridedAccess:
    """Return the LOAD, STORE or ATOMICADD `u` with its strides."""
    steps: dict[UOp, int | None] = {}
    repeated: dict[UOp, bool] = {}
    if len(u.src[0].src) > 1:
        for x, c in linear(u.src[0].src[1])[1]:
            if x.op == "RANGE":
                steps[x] = c if steps.get(x, 0) is not None else None
            else:
                steps.update(dict.fromkeys(ranges(x)))
                slow = _slow_ranges(x, c)
                repeated |= {r: r in slow and repeated.get(r, True) for r in ranges(x)}
    for s in u.src[2:]:
        for r in ranges(s):
            steps.setdefault(r, 0)
    return StridedAccess(u, steps, u.op != "LOAD", frozenset(r for r, good in repeated.items() if good))


def _slow_ranges(x: UOp, c: int) -> frozenset[UOp]:
    """Return the RANGEs r along which consecutive iterations of the index term c * x have only a few different values.

    x = (r + ..) // n changes every n iterations; x = (r + ..) % n has n values.
    """
    if x.op not in ("IDIV", "MOD") or x.src[1].op != "CONST" or (n := x.src[1].arg[0]) < 1:
        return frozenset()
    few = [
        r for r, k in linear(x.src[0])[1] if r.op == "RANGE" and (x.op == "MOD" or abs(c * k) <= MAX_GATHER_STRIDE * n)
    ]
    return frozenset(few) if x.op == "IDIV" or n <= MAX_GATHER_STRIDE else frozenset()


__all__ = ["Profile", "StridedAccess", "is_operation", "operations"]

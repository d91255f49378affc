"""What a kernel reads and writes along each loop: the facts the heuristic decides on.

A Profile holds, for each memory access, its step in elements along each original RANGE (None where the index is not
linear in it), and how the reductions reuse what they read.
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
from monolect.optimize.actions.plan import Plan
from monolect.rules.decompose import decompose
from monolect.rules.formula import UNLIKELY
from monolect.rules.loops.carry import ROUNDED, rounded_sum

WIDEST_STEP = 4  # between elements that a target reads as whole vectors and picks from
# cycles that a vector takes beside other work; memory is the second cache
SLOW = {"LOAD": 2, "STORE": 2, "DIV": 5, "RECIP": 5, "SQRT": 6}


class Access(NamedTuple):
    """One LOAD or STORE: `steps` maps each range it depends on to elements per iteration, None if irregular. Of the
    irregular ones `repeated` read a place several times before they move on.
    """

    uop: UOp
    steps: dict[UOp, int | None]
    is_store: bool
    repeated: frozenset[UOp] = frozenset()

    def step(self, r: UOp) -> int | None:
        return self.steps.get(r, 0)

    def is_near(self, r: UOp) -> bool:
        """Whether neighbouring iterations of r read one place, or elements few places apart."""
        step = self.step(r)
        return r in self.repeated if step is None else abs(step) <= WIDEST_STEP


class Profile:
    """The accesses and work of one kernel."""

    def __init__(self, plan: Plan):
        self.plan = plan
        memory = [u for u in plan.order if u.op in ("LOAD", "STORE", "ATOMICADD")]
        self.accesses = [self._in_rows(_access(u)) for u in memory if u.src[0].op == "INDEX"]
        self.loads = [a for a in self.accesses if not a.is_store]
        self.stores = [a for a in self.accesses if a.is_store]
        values = [u for u in plan.order if u.dtype.kind not in "vxb" and u.op not in ("PARAM", "BUFFER", "AFTER")]
        depth = max([len(ranges(u)) for u in values], default=0)
        sums = [s.src[1] for u in plan.order if (s := rounded_sum(u)) is not None]
        carried = {x for u in sums for x in (u, *u.src)}  # with more bits than lanes need
        vectors = [
            u for u in values if len(ranges(u)) == depth and u not in carried and u.arg != ROUNDED
        ]  # of the innermost loop
        self.itemsize = max([u.dtype.itemsize for u in vectors], default=4)
        self.n_ops = sum(map(counts, plan.order))

    def _in_rows(self, a: Access) -> Access:
        """A stage's buffer has a row for each iteration of the loops around, as far as they become shape."""
        b = memory_of(a.uop.src[0])
        if b not in self.plan.stages.fills:
            return a
        n = prod(b.shape)
        return a._replace(steps={**dict.fromkeys(self.plan.stages.around(b), n), **a.steps})

    def work(self) -> int:
        """Elements visited by the largest loop nest."""
        best = 1
        for u in self.plan.order:
            if u.op in ("END", "REDUCE"):
                n = prod(u.src[0].src[0].shape) if u.src[0].op == "STORE" else 1
                for r in (*ranges(u), *u.src[1:]):
                    n *= self.plan.extent(r)
                best = max(best, n)
        return best

    def operations(self) -> int:
        """Operations on elements, of all loops: a vector takes about a cycle for each of its own."""
        native, total = self.plan.target.native, 0
        times: dict[frozenset[UOp], int] = {}
        for u in filter(counts, self.plan.order):
            rs = ranges(u) | frozenset(u.src[1:]) if u.op == "REDUCE" else ranges(u)
            if rs not in times:
                times[rs] = prod(map(self.plan.extent, rs))
            total += operations(u, native) * times[rs]
        return total

    def scope(self, j: UOp) -> frozenset[UOp]:
        """The output ranges around the reductions over j."""
        out: frozenset[UOp] = frozenset()
        for u in self.plan.reduces:
            if j in u.src[1:]:
                out |= ranges(u) & frozenset(self.plan.outputs)
        return out

    def inside(self, j: UOp) -> list[Access]:
        """The loads in the bodies of reductions over j that depend on j."""
        return [a for a in self.loads if j in a.steps]

    def reuses(self, j: UOp) -> bool:
        """True when some load inside the reduction does not depend on all of the output ranges around it."""
        scope = self.scope(j)
        return bool(scope) and all(not scope <= a.steps.keys() for a in self.inside(j)) and bool(self.inside(j))

    def unit(self, r: UOp, accesses: list[Access]) -> bool:
        """True when each access moves by 0 or 1 element along r, and at least one by 1."""
        steps = [a.step(r) for a in accesses]
        return all(s in (0, 1) for s in steps) and 1 in steps


def counts(u: UOp) -> bool:
    """Whether `u` is an operation of a kernel, not part of an address."""
    return u.op not in ("CONST", "RANGE", "INDEX", "PARAM") and u.dtype.kind != "x"


def operations(u: UOp, native: frozenset[str]) -> int:
    """How many operations of a cycle each `u` becomes on a target, about, without those that are seldom needed."""
    if u.op in SLOW:
        return SLOW[u.op]
    if u.op not in DECOMPOSED or u.op in native:
        return 1
    scalar = shape_source(())
    like = [node("PARAM", (scalar,), ParamArg(k, s.dtype)) if s.op != "CONST" else s for k, s in enumerate(u.src)]
    return _decomposed(u.op, tuple(like), native)


@lru_cache(maxsize=256)
def _decomposed(op: str, src: tuple[UOp, ...], native: frozenset[str]) -> int:
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


def _access(u: UOp) -> Access:
    steps: dict[UOp, int | None] = {}
    repeated: dict[UOp, bool] = {}
    if len(u.src[0].src) > 1:
        for x, c in linear(u.src[0].src[1])[1]:
            if x.op == "RANGE":
                steps[x] = c if steps.get(x, 0) is not None else None
            else:
                steps.update(dict.fromkeys(ranges(x)))
                slow = _slowed(x, c)
                repeated |= {r: r in slow and repeated.get(r, True) for r in ranges(x)}
    for s in u.src[2:]:
        for r in ranges(s):
            steps.setdefault(r, 0)
    return Access(u, steps, u.op != "LOAD", frozenset(r for r, good in repeated.items() if good))


def _slowed(x: UOp, c: int) -> frozenset[UOp]:
    """The ranges r of which neighbours take a term c * x to few places: x = (r + ..) // n moves on by a few
    elements every n iterations, x = (r + ..) % n has n values.
    """
    if x.op not in ("IDIV", "MOD") or x.src[1].op != "CONST" or (n := x.src[1].arg[0]) < 1:
        return frozenset()
    few = [r for r, k in linear(x.src[0])[1] if r.op == "RANGE" and (x.op == "MOD" or abs(c * k) <= WIDEST_STEP * n)]
    return frozenset(few) if x.op == "IDIV" or n <= WIDEST_STEP else frozenset()

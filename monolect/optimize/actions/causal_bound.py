"""BOUND: loops over what a mask hides from every row of a tile end before it. The proof, and the bounds.

A masked softmax has a stage `s[k] = where(k < limit, score, hidden)`, of which the limit grows with the loops around,
a maximum over s, a stage `e[k] = exp(s[k] - maximum)`, and sums of which each term has a factor e[k]. Behind the limit
e is zero, and a term of zero times anything finite adds nothing; the maximum is one of at least one visible score.
So no loop over k need go further than the largest limit of the rows that run together, rounded up to whole steps.
Where rows are cut into blocks of keys, all of a block may be hidden: one step is made then, which finds the maximum
-inf, and zeros below a maximum that is made finite.

What it is not: exact where a visible score is as low as `hidden`, or where what is hidden is not finite (see
docs/semantics.md). Invariant: what a loop reads of a stage, the loop that fills it has written.
"""

from __future__ import annotations

from math import inf, lcm
from typing import TYPE_CHECKING, NamedTuple

from monolect.ir.bounds import min_max
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import conjuncts, linear, negate, smaller
from monolect.ir.uop import UOp, build, idx

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part, Plan

HIDDEN = -1e30  # a score this low is no score: exp of its distance to any other is 0


class Limit(NamedTuple):
    """`k < constant + sum(step * r)`, k a loop of a masked softmax; `readers[k]`: the loops that read what k fills.
    `lowest`: the least value of the limit, 0 and less where all may be hidden.
    """

    constant: int
    steps: dict[UOp, int]
    readers: dict[UOp, tuple[UOp, ...]]
    lowest: int


def visible(plan: Plan) -> Limit | None:
    """The limit up to which the loops of a masked softmax have anything to do, or None."""
    for scores, end in plan.stages.fills.items():
        found = _limit(end)
        if found is None or not set(found[1]) <= set(plan.outputs) - plan.stages.own:
            continue
        lowest = idx(found[0])
        for r, step in found[1].items():
            lowest = lowest + r * step
        least = min_max(lowest)[0]
        readers = _readers(plan, scores, end, may_hide_all=least < 1)
        if readers is not None:
            return Limit(*found, readers, least)
    return None


def _limit(end: UOp) -> tuple[int, dict[UOp, int]] | None:
    """(constant, steps) of the limit of a stage of masked scores."""
    value, own = end.src[0].src[1], end.src[1:]
    if value.op != "WHERE" or len(own) != 1:
        return None
    condition, shown, hidden = value.src
    if shown.op == "CONST":
        condition, shown, hidden = negate(condition), hidden, shown
    if hidden.op != "CONST" or not hidden.arg[0] <= HIDDEN * 0.999:
        return None
    for c in conjuncts(condition):
        a, b = (_as_index(x) for x in c.src) if c.op == "CMPLT" else (None, None)
        if a is not None and b is not None:
            constant, terms = linear(a + b * -1)
            steps = dict(terms)
            if steps.pop(own[0], 0) == 1 and all(x.op == "RANGE" for x in steps):
                return -constant, {x: -n for x, n in steps.items()}
    return None


def _as_index(u: UOp) -> UOp | None:
    """Integer arithmetic on loop counters as index arithmetic, where the integers hold every value."""
    if u.dtype.kind == "x":
        return u
    if u.op == "CAST" and u.src[0].dtype.kind == "x":
        lo, hi = min_max(u.src[0])
        return u.src[0] if u.dtype.is_int and u.dtype.min <= lo and hi <= u.dtype.max else None
    if u.op == "CONST" and u.dtype.is_int:
        return idx(u.value)
    if u.op == "ADD" and u.dtype.is_int:
        a, b = (_as_index(x) for x in u.src)
        if a is not None and b is not None and u.dtype.min <= min_max(a + b)[0] and min_max(a + b)[1] <= u.dtype.max:
            return a + b
    return None


def _readers(plan: Plan, scores: UOp, end: UOp, may_hide_all: bool) -> dict[UOp, tuple[UOp, ...]] | None:
    """For the loop that fills the scores, and the one that fills the exponentials, the loops that read them; None
    where something else reads either, or where what is wholly hidden would not be zeros.
    """
    k = end.src[1]
    if may_hide_all and not any(s.op == "CONST" and s.arg[0] == -inf for s in end.src[0].src[1].src[1:]):
        return None
    of_scores: list[UOp] = []
    out: dict[UOp, tuple[UOp, ...]] = {}
    users = plan.stages.users
    for load in plan.stages.loads(scores):
        for u in users[load]:
            if u.op == "REDUCE" and u.arg[0] == "MAX" and u.src[1:] == (load.src[0].src[1],):
                of_scores.append(u.src[1])
                continue
            stage = _exponentials(plan, load, scores, may_hide_all)
            if stage is None or users[load] != [u]:
                return None
            own = plan.stages.fills[stage].src[1]
            sums = _sums(plan, stage)
            if sums is None:
                return None
            of_scores.append(own)
            out[own] = sums
    return {**out, k: tuple(of_scores)} if out else None


def _exponentials(plan: Plan, load: UOp, scores: UOp, is_finite: bool) -> UOp | None:
    """The stage exp(scores - their maximum) that reads `load`, the maximum made finite where it must be."""
    for b, end in plan.stages.fills.items():
        x = end.src[0].src[1]
        if len(end.src) != 2 or load.src[0].src[1] is not end.src[1] or x.op not in ("EXP2", "EXP"):
            continue
        x = x.src[0]
        if x.op == "MUL" and x.src[1].op == "CONST" and x.src[1].arg[0] > 0:
            x = x.src[0]
        if x.op != "SUB" or x.src[0] is not load:
            continue
        m = x.src[1]
        if m.op == "MAX" and m.src[1].op == "CONST" and m.src[1].arg[0] > -inf:
            m = m.src[0]
        elif is_finite:
            continue
        if m.op == "REDUCE" and m.arg[0] == "MAX" and m.src[0].op == "LOAD" and memory_of(m.src[0].src[0]) is scores:
            return b
    return None


def _sums(plan: Plan, stage: UOp) -> tuple[UOp, ...] | None:
    """The loops of the sums of which each term has a factor out of `stage`."""
    out: list[UOp] = []
    for load in plan.stages.loads(stage):
        at = load.src[0].src[1]
        pending = [load]
        while pending:
            for u in plan.stages.users[pending.pop()]:
                if u.op == "REDUCE" and u.arg[0] == "ADD" and at in u.src[1:]:
                    out.append(at)
                elif u.op == "MUL":
                    pending.append(u)
                else:
                    return None
    return tuple(dict.fromkeys(out))


# ---- bounds ----------------------------------------------------------------------------------------------------------
class Bounds:
    """How far the loops of a plan run that BOUND ends early."""

    def __init__(self, plan: Plan):
        self.plan, self.limit = plan, plan.bounded
        self.steps: dict[UOp, int] = {}  # to what the limit is rounded up, for each loop
        if self.limit is not None:
            for r in dict.fromkeys((*(x for rs in self.limit.readers.values() for x in rs), *self.limit.readers)):
                self._step(r)

    def _step(self, r: UOp) -> int:
        """A loop fills what its readers read: its steps are multiples of theirs."""
        if r not in self.steps:
            assert self.limit is not None
            outer = self._outer(r)
            own = outer.stride if outer is not None else max(p.stride * p.size for p in self._parts(r))
            self.steps[r] = lcm(own, *(self._step(x) for x in self.limit.readers.get(r, ())))
        return self.steps[r]

    def _parts(self, r: UOp) -> list[Part]:
        return [p for p in self.plan.axes if p.root is r]

    def _outer(self, r: UOp) -> Part | None:
        """The loop around all other parts of r, if it is one that may end early."""
        p = max(self._parts(r), key=lambda p: (p.stride * p.size, p.stride))
        clipped = any(q.clipped for q in self._parts(r))
        return p if p.type in ("LOOP", "REDUCE") and not clipped and not p.is_block else None

    def bound(self, p: Part, made: dict[int, UOp]) -> UOp | None:
        """Iterations of the loop p, of which the loops around have the RANGEs `made`; None: all of them."""
        if p.root not in self.steps or self._outer(p.root) is not p:
            return None
        assert self.limit is not None
        last: UOp = idx(self.limit.constant)
        for r, step in self.limit.steps.items():
            for q in self._parts(r):
                if id(q) in made and q.type != "UPCAST":
                    last = last + made[id(q)] * (q.stride * step)
                elif step > 0:
                    last = last + (q.size - 1) * q.stride * step
        if self.limit.lowest < 1:
            last = build("MAX", last, idx(1))
        whole = self.steps[p.root]
        n = (last + (whole - 1)) // whole * (whole // p.stride)
        return smaller(p.size, n)


__all__ = ["Bounds", "Limit", "visible"]

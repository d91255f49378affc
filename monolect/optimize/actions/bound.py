"""BOUND: end the loops of a masked softmax before iterations that the mask hides from every row of a tile.

This module recognizes such a softmax, proves that the loops may end, and computes their bounds.

A masked softmax has a scratch buffer `s[k] = where(k < limit, score, hidden)`, whose limit grows with the loops around.
It has a maximum over s, a scratch buffer `e[k] = exp(s[k] - maximum)`, and sums whose terms each have a factor e[k].
From the limit on, e is zero, and zero times a finite number adds nothing; the maximum is over at least one visible
score. So no loop over k needs to exceed the largest limit of the rows of one tile, rounded up to whole steps. Where
rows are cut into blocks of keys, a block may be hidden completely. One step is made then, which finds the maximum -inf,
and zeros below a maximum that is made finite.

What it is not: exact where a visible score is as low as `hidden`, or where a hidden value is not finite (see
docs/semantics.md). Invariant: a loop reads only elements of a scratch buffer that the buffer's own loop has written.
"""

from __future__ import annotations

from math import inf, lcm
from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import min_max
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.named_rules import Row
from monolect.ir.rewrite.normal import conjuncts, linear, negate, smaller
from monolect.ir.uop import UOp, build, idx
from monolect.optimize.actions.kind import ActionKind
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import Limit, LoopNest

HIDDEN = -1e30  # a score; exp of its distance to any visible score is 0


class Bound(ActionKind):
    """Action BOUND: end the loops of a masked softmax where the mask hides all later iterations. No search tries it."""

    op = "BOUND"
    forms = (
        ('("BOUND", axis, None)', "end the loops over `axis` and its readers where a mask hides the rest of all rows"),
    )  # fmt: skip
    rows = (Row("BOUND", "loops end where a mask hides the rest"),)
    may_follow_mask_peel = True

    def perform(self, plan: LoopNest, subject: int, arg: Any) -> None:
        bound(plan, subject)


def bound(plan: LoopNest, axis: int) -> None:
    """Note in `plan.bounded` the mask limit at which the loops of a masked softmax end.

    `axis`: the index in `plan.axes` of a loop that fills the scores or the exponentials. Raises ActionError if it is
    none.
    """
    found = mask_limit(plan)
    loops = {*found.readers, *(r for rs in found.readers.values() for r in rs)} if found is not None else set()
    if found is None or plan.axes[axis].root not in found.readers or not all(map(plan.size, (*loops, *found.steps))):
        raise ActionError("BOUND", expected="the loop of a masked softmax", found=plan.axes[axis].type)
    plan.bounded = found


def mask_limit(plan: LoopNest) -> Limit | None:
    """Return the limit from which on the mask of a softmax hides all keys, with the loops that it bounds, or None if
    the kernel has no masked softmax whose loops may end early.
    """
    for scores, end in plan.scratch.fills.items():
        found = _limit(end)
        if found is None or not set(found[1]) <= set(plan.outputs) - plan.scratch.own:
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
    """Return (constant, {RANGE r around: its step}) if `end`, an END, fills a scratch buffer with masked scores, else
    None.

    The mask hides the scores from iteration `constant + sum(step * r)` of the END's own loop on.
    """
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
    """Return `u`, integer arithmetic on loop counters, rebuilt in the index dtype, so that it can be compared exactly.
    None for other nodes, and where the integer dtype of `u` might overflow.
    """
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


def _readers(plan: LoopNest, scores: UOp, end: UOp, may_hide_all: bool) -> dict[UOp, tuple[UOp, ...]] | None:
    """Return {RANGE that fills a scratch buffer: the RANGEs of the loops that read the buffer}, for the buffer of the
    scores and for that of the exponentials.

    None if any other node reads one of the two buffers, or if a row whose scores are all hidden would not become zeros.
    `scores`: the BUFFER of the scores; `end`: the END that fills it. `may_hide_all`: the mask may hide a whole row.
    """
    k = end.src[1]
    if may_hide_all and not any(s.op == "CONST" and s.arg[0] == -inf for s in end.src[0].src[1].src[1:]):
        return None
    of_scores: list[UOp] = []
    out: dict[UOp, tuple[UOp, ...]] = {}
    users = plan.scratch.users
    for load in plan.scratch.loads(scores):
        for u in users[load]:
            if u.op == "REDUCE" and u.arg[0] == "MAX" and u.src[1:] == (load.src[0].src[1],):
                of_scores.append(u.src[1])
                continue
            exps = _exponentials(plan, load, scores, may_hide_all)
            if exps is None or users[load] != [u]:
                return None
            own = plan.scratch.fills[exps].src[1]
            sums = _sums(plan, exps)
            if sums is None:
                return None
            of_scores.append(own)
            out[own] = sums
    return {**out, k: tuple(of_scores)} if out else None


def _exponentials(plan: LoopNest, load: UOp, scores: UOp, must_be_finite: bool) -> UOp | None:
    """Return the scratch BUFFER that is filled with exp(`load` - maximum of the scores), or None.

    `load`: a LOAD of a score. `scores`: the BUFFER of the scores. If `must_be_finite`, the kernel must replace a
    maximum of -inf by a finite number, or the result is None.
    """
    for b, end in plan.scratch.fills.items():
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
        elif must_be_finite:
            continue
        if m.op == "REDUCE" and m.arg[0] == "MAX" and m.src[0].op == "LOAD" and memory_of(m.src[0].src[0]) is scores:
            return b
    return None


def _sums(plan: LoopNest, exps: UOp) -> tuple[UOp, ...] | None:
    """Return the RANGEs of the sums whose terms each have a factor from the scratch buffer `exps` of exponentials; None
    if the buffer is read for anything else.
    """
    out: list[UOp] = []
    for load in plan.scratch.loads(exps):
        at = load.src[0].src[1]
        pending = [load]
        while pending:
            for u in plan.scratch.users[pending.pop()]:
                if u.op == "REDUCE" and u.arg[0] == "ADD" and at in u.src[1:]:
                    out.append(at)
                elif u.op == "MUL":
                    pending.append(u)
                else:
                    return None
    return tuple(dict.fromkeys(out))


# ---- bounds ----------------------------------------------------------------------------------------------------------
class Bounds:
    """The numbers of iterations of the loops that BOUND ends early (`plan.bounded`)."""

    def __init__(self, plan: LoopNest):
        self.plan, self.limit = plan, plan.bounded
        self.steps: dict[UOp, int] = {}  # the multiple to which the limit is rounded up, for each loop
        if self.limit is not None:
            for r in dict.fromkeys((*(x for rs in self.limit.readers.values() for x in rs), *self.limit.readers)):
                self._step(r)

    def _step(self, r: UOp) -> int:
        """Return the granularity, in iterations of the RANGE r, to which the mask limit is rounded up for r's loops.

        It is a multiple of the granularity of every loop that reads the buffer that r fills, so that r fills all
        elements that these loops read.
        """
        if r not in self.steps:
            assert self.limit is not None
            outer = self._outer(r)
            own = outer.stride if outer is not None else max(p.stride * p.size for p in self._parts(r))
            self.steps[r] = lcm(own, *(self._step(x) for x in self.limit.readers.get(r, ())))
        return self.steps[r]

    def _parts(self, r: UOp) -> list[AxisPart]:
        """Return the parts of the RANGE r."""
        return [p for p in self.plan.axes if p.root is r]

    def _outer(self, r: UOp) -> AxisPart | None:
        """Return the outermost part of the RANGE r if it is a loop that may end early (no block loop, no thread), else
        None.
        """
        p = max(self._parts(r), key=lambda p: (p.stride * p.size, p.stride))
        clipped = any(q.clipped for q in self._parts(r))
        return p if p.type in ("LOOP", "REDUCE") and not clipped and not p.is_block else None

    def bound(self, p: AxisPart, made: dict[int, UOp]) -> UOp | None:
        """Return the number of iterations of the part p as an index expression, or None if BOUND does not end p early.

        `made`: {id of an AxisPart around p: its new RANGE}.
        """
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


__all__ = ["Bound", "Bounds", "mask_limit"]

"""Running sums whose neighbouring iterations are lanes: one SCAN of a shaped value, and its last lane carried on.

What it is for: `expand`, where a range that an accumulator is carried through became shape. What it is not: a choice.

Before: n = op(LOAD(AFTER(acc, start, r0, lane)), x(r0, lane)), STORE(acc, n), LOAD(AFTER(acc, that))
After:  s = SCAN(x(r0, [0..15])), b = LOAD(AFTER(acc, start, r0)), AFTER(op(b, s), STORE(acc, op(b, s[15])))
Of a sum that is rounded (`rules.loops.carry`) only what is carried on has more bits than its terms.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.base.dtype import DType
from monolect.ir.uop import UOp, build, node, shape_source
from monolect.rules.loops.carry import rounded_sum


class Step(NamedTuple):
    """One step of a running sum: what the accumulator held, what is added, by which lanes, in which type."""

    before: UOp
    term: UOp
    lane: UOp
    dtype: DType


class Scans:
    """The running sums of a kernel, by the node of their sum, that are carried through a range of `place`."""

    def __init__(self, order: list[UOp], place: dict[UOp, int]):
        self.place = place
        self.steps: dict[UOp, Step] = {}
        lanes: dict[UOp, UOp] = {}
        for u in order:
            if u.op == "LOAD" and u.src[0].op == "AFTER" and u.src[0].src[0].op == "BUFFER":
                for r in u.src[0].src[2:]:
                    if r in place:
                        lanes[u] = r
            elif u.op == "STORE":
                for before in [s for s in u.src[1].src if s in lanes]:
                    (term,) = [s for s in u.src[1].src if s is not before]
                    self.steps[u.src[1]] = Step(before, term, lanes[before], term.dtype)
        for u in order:
            if (store := rounded_sum(u)) is not None and (s := self.steps.get(store.src[1])) is not None:
                is_cast = s.term.op == "CAST" and s.term.src[0].dtype is u.dtype  # else it was folded into the term
                self.steps[store.src[1]] = s._replace(term=s.term.src[0] if is_cast else s.term, dtype=u.dtype)

    def lanes(self) -> set[UOp]:
        """The ranges that became lanes of a SCAN."""
        return {s.lane for s in self.steps.values()}

    def expanded(self, u: UOp, src: tuple[UOp, ...], new: dict[UOp, UOp]) -> UOp | None:
        """What stands for `u`, whose sources are now `src`, if it is a sum, its store, or what reads it."""
        store = rounded_sum(u)
        if store is not None and store.src[1] in self.steps:
            before = build("CAST", new[self.steps[store.src[1]].before], arg=u.dtype)
            return node("AFTER", (build(store.src[1].op, before, self._scan(store.src[1], new)), new[store]))
        if u in self.steps:
            before = new[self.steps[u].before]
            return build(u.op, before, build("CAST", self._scan(u, new), arg=before.dtype))
        if u.op == "STORE" and u.src[1] in self.steps:
            return node("STORE", (src[0], self._last(u.src[1], new)))
        if u.op == "LOAD" and u.src[0].op == "AFTER" and len(u.src[0].src) == 2:
            store = u.src[0].src[1]
            if store.op == "STORE" and store.src[1] in self.steps:
                return node("AFTER", (new[store.src[1]], new[store]))
        return None

    def _scan(self, total: UOp, new: dict[UOp, UOp]) -> UOp:
        _, term, lane, dtype = self.steps[total]
        wide = widen(build("CAST", new[term], arg=dtype), self.place[lane], lane.src[0].value)
        return node("SCAN", (wide,), (total.op, len(wide.shape) - self.place[lane]))

    def _last(self, total: UOp, new: dict[UOp, UOp]) -> UOp:
        """What the next iteration starts from, in the shape of the accumulator."""
        s, before = self._scan(total, new), new[self.steps[total].before]
        axis = s.arg[1]
        first = [0] * len(s.shape)
        first[axis] = s.shape[axis] - 1
        end = build("SHRINK", s, shape_source(first), shape_source((*s.shape[:axis], 1, *s.shape[axis + 1 :])))
        rank = len(before.shape)
        shape = ((1,) * rank + end.shape)[len(end.shape) :]  # rows that all add the same have one among them
        end = build("CAST", build("RESHAPE", end, shape_source(shape)), arg=before.dtype)
        return build(total.op, before, end)


def widen(body: UOp, place: int, n: int) -> UOp:
    """`body` with size n on the axis at `place`, counted from the last, also where it does not depend on it."""
    rank = max(len(body.shape), place)
    shape = (1,) * (rank - len(body.shape)) + body.shape
    if shape[rank - place] == n:
        return body
    wide = (*shape[: rank - place], n, *shape[rank - place + 1 :])
    return build("EXPAND", build("RESHAPE", body, shape_source(shape)), shape_source(wide))

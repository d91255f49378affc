"""Lower running sums whose adjacent iterations are lanes: one SCAN of a shaped value, and a carry of its last lane.

What it is for: `expand` uses it when a range that carries an accumulator becomes shape. What it is not: it makes no
choices.

Before: n = op(LOAD(AFTER(acc, start, r0, lane)), x(r0, lane)), STORE(acc, n), LOAD(AFTER(acc, that))
After:  s = SCAN(x(r0, [0..15])), b = LOAD(AFTER(acc, start, r0)), AFTER(op(b, s), STORE(acc, op(b, s[15])))
If the accumulator has more bits than the results (`rules.loops.carry`), the SCAN of a sum has those of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from monolect.base.dtype import DType
from monolect.ir.uop import UOp, build, node, shape_source
from monolect.rules.loops.carry import rounded_sum


class ScanStep(NamedTuple):
    """One step of a running sum: the accumulator's previous value, the term added, the lane range, and the dtype of the
    sum.
    """

    previous: UOp
    term: UOp
    lane: UOp
    dtype: DType


class Scans:
    """Finds a kernel's running sums over ranges that become axes, and rewrites each to a SCAN along that axis.

    `axis_of`: the axis of each such range, counted from the last. `steps`: the ScanStep of each sum's node.
    """

    def __init__(self, order: Sequence[UOp], axis_of: dict[UOp, int]):
        self.axis_of = axis_of
        self.steps: dict[UOp, ScanStep] = {}
        lanes: dict[UOp, UOp] = {}
        for u in order:
            if u.op == "LOAD" and u.src[0].op == "AFTER" and u.src[0].src[0].op == "BUFFER":
                for r in u.src[0].src[2:]:
                    if r in axis_of:
                        lanes[u] = r
            elif u.op == "STORE":
                for previous in [s for s in u.src[1].src if s in lanes]:
                    (term,) = [s for s in u.src[1].src if s is not previous]
                    self.steps[u.src[1]] = ScanStep(previous, term, lanes[previous], term.dtype)
        for u in order:
            if (store := rounded_sum(u)) is not None and (s := self.steps.get(store.src[1])) is not None:
                # otherwise the cast was folded into the term
                is_cast = s.term.op == "CAST" and s.term.src[0].dtype is u.dtype
                self.steps[store.src[1]] = s._replace(term=s.term.src[0] if is_cast else s.term, dtype=u.dtype)

    def lanes(self) -> set[UOp]:
        """Return the ranges that became lanes of a SCAN."""
        return {s.lane for s in self.steps.values()}

    def expanded(self, u: UOp, src: tuple[UOp, ...], new: dict[UOp, UOp]) -> UOp | None:
        """Return the replacement of `u`, with sources rewritten to `src`, if it is a running sum, its store or its
        load; else None.

        `new`: the expanded nodes so far.
        """
        store = rounded_sum(u)
        if store is not None and store.src[1] in self.steps:
            previous = build("CAST", new[self.steps[store.src[1]].previous], arg=u.dtype)
            return node("AFTER", (build(store.src[1].op, previous, self._scan(store.src[1], new)), new[store]))
        if u in self.steps:
            previous = new[self.steps[u].previous]
            return build(u.op, previous, build("CAST", self._scan(u, new), arg=previous.dtype))
        if u.op == "STORE" and u.src[1] in self.steps:
            return node("STORE", (src[0], self._last(u.src[1], new)))
        if u.op == "LOAD" and u.src[0].op == "AFTER" and len(u.src[0].src) == 2:
            store = u.src[0].src[1]
            if store.op == "STORE" and store.src[1] in self.steps:
                return node("AFTER", (new[store.src[1]], new[store]))
        return None

    def _scan(self, total: UOp, new: dict[UOp, UOp]) -> UOp:
        """Return the SCAN of the terms of the sum `total` along its lanes; `new`: the expanded nodes so far."""
        _, term, lane, dtype = self.steps[total]
        wide = widen(build("CAST", new[term], arg=dtype), self.axis_of[lane], lane.src[0].value)
        return node("SCAN", (wide,), (total.op, len(wide.shape) - self.axis_of[lane]))

    def _last(self, total: UOp, new: dict[UOp, UOp]) -> UOp:
        """Return the sum `total` after the last lane, in the shape of the accumulator, as the next iteration starts
        from it.

        `new`: the expanded nodes so far.
        """
        s, previous = self._scan(total, new), new[self.steps[total].previous]
        axis = s.arg[1]
        first = [0] * len(s.shape)
        first[axis] = s.shape[axis] - 1
        end = build("SHRINK", s, shape_source(first), shape_source((*s.shape[:axis], 1, *s.shape[axis + 1 :])))
        rank = len(previous.shape)
        shape = ((1,) * rank + end.shape)[len(end.shape) :]  # rows with equal sums share one accumulator
        end = build("CAST", build("RESHAPE", end, shape_source(shape)), arg=previous.dtype)
        return build(total.op, previous, end)


def widen(body: UOp, axis: int, n: int) -> UOp:
    """Return `body` with size n on `axis`, counted from the last: broadcast if this axis is missing or has size 1."""
    rank = max(len(body.shape), axis)
    shape = (1,) * (rank - len(body.shape)) + body.shape
    if shape[rank - axis] == n:
        return body
    wide = (*shape[: rank - axis], n, *shape[rank - axis + 1 :])
    return build("EXPAND", build("RESHAPE", body, shape_source(shape)), shape_source(wide))


__all__ = ["ScanStep", "Scans", "widen"]

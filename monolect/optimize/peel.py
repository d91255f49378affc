"""PEEL: the first and the last iterations of a loop are loops of their own, so that what only borders need is decided
while compiling: the gates of a padded tensor, the masks of a tail. Where tensors are joined, so are the iterations up
to each seam.

Every END that closes the loop becomes one for each section, in the loops around it; the loops inside are made anew for
each. The tail of a padded axis is whole iterations before its last, which ask no more whether they are inside. Where
the axis is shared out (threads, blocks), its first and last iterations belong to the first and last share: the loops of
the others are empty there.

The sections are given by their lengths: (first, last), or (first, second, .., last). What is left of the loop is one
section more, before the last.

Before: END(STORE(.., LOAD(INDEX(A, r0 + -1), 0, 0 < r0)), r0:64)                       PEEL(0, (1, 0))
After:  SINK(STORE(.., 0), END(STORE(.., LOAD(INDEX(A, r1))), r1:63))
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import min_max, ranges, replace_ranges, unused_ranges
from monolect.ir.normal import conjuncts, limits
from monolect.ir.uop import UOp, build, idx, node, toposort

if TYPE_CHECKING:
    from monolect.optimize.action import Part, Plan

MOST_COPIES = 9  # of a kernel's body: two peeled loops
BETWEEN_SEAMS = 8  # iterations on average, so that most of them ask nothing
FEW_ENDS = sorted(((f, n) for f in range(5) for n in range(5) if f + n), key=sum)  # iterations that may stand apart


def check_peel(plan: Plan, p: Part, ends: Any) -> tuple[int, ...]:
    """`ends`, (first, .., last), if they may stand apart. Raises ActionError."""
    if plan.workgroup:
        raise ActionError("PEEL", expected="a target without workgroups", found=plan.target.name)
    if any(u.op in ("AFTER", "BUFFER") for u in plan.order):
        raise ActionError("PEEL", expected="a kernel without memory of its own", found="stages, or a scan")
    if p.type != "LOOP" or p.is_block or p.root in plan.reduced or not p.size:
        raise ActionError("PEEL", expected="an output loop of constant size, no block", found=p.type)
    if plan.turn_of(p) is not None:
        raise ActionError("PEEL", expected="a loop that threads share out in pieces", found="in turns")
    if any(q.root is p.root and q.stride > p.stride and q.type != "THREAD" and not q.is_block for q in plan.axes):
        raise ActionError("PEEL", expected="the outer part of an axis", found="an inner one")
    good = isinstance(ends, tuple) and len(ends) >= 2 and all(isinstance(n, int) and n >= 0 for n in ends)
    if not good or not 0 < sum(ends) < p.size:
        raise ActionError("PEEL", expected=f"(first, last), of {p.size} iterations some and not all", found=ends)
    if copies(plan) * (1 + sum(n > 0 for n in ends)) > MOST_COPIES:
        raise ActionError("PEEL", expected=f"at most {MOST_COPIES} copies of the kernel", found="more")
    return ends


def copies(plan: Plan) -> int:
    """How often the body of the kernel stands in its code."""
    out = 1
    for ends in plan.peeled.values():
        out *= 1 + sum(n > 0 for n in ends)
    return out


def border(plan: Plan, p: Part) -> tuple[int, ...] | None:
    """The fewest ends (first, last) of the loop p without which all gates along its axis are decided, or sections in
    which they are, or at least its tail; None where that is of no use.
    """
    return ends_of_gates(plan, p) or sections_of_gates(plan, p) or ((0, 1) if p.root in plan.padded else None)


def _gates(plan: Plan, r: UOp) -> set[UOp]:
    return {c for u in (*plan.loads, *plan.stores) for g in u.src[2:] for c in conjuncts(g) if r in ranges(c)}


def sections_of_gates(plan: Plan, p: Part) -> tuple[int, ...] | None:
    """Lengths of sections of the loop p in which all gates along its axis are decided; those iterations that have a
    seam of joined tensors inside are sections of their own. None where a gate asks for more than the axis, and where
    seams are many.
    """
    r, gates = p.root, _gates(plan, p.root)
    if any(q.root is r and q.stride > p.stride for q in plan.axes):
        return None  # shared out: where a section begins in a share is not known
    known = [limit for c in gates if (limit := limits([c]).get(r)) is not None]
    if len(known) < len(gates):
        return None
    seams = {x for lo, hi in known for x in (lo, hi + 1)}
    inside = {x for x in seams if 0 < x < plan.size(r)}
    padded, total = r in plan.padded, -(-plan.size(r) // p.stride)
    cuts = sorted({x // p.stride for x in inside} | {-(-x // p.stride) for x in inside} - {0, total})
    cuts = [x for x in cuts if 0 < x < total - padded]
    if not cuts or total < BETWEEN_SEAMS * len(cuts):
        return None
    return (*(b - a for a, b in zip((0, *cuts), cuts, strict=False)), int(padded))


def ends_of_gates(plan: Plan, p: Part) -> tuple[int, int] | None:
    """The fewest ends of the loop p without which all gates along its axis are decided, if there are gates."""
    r, end, gates = p.root, p.size * p.stride, _gates(plan, p.root)
    if not gates or any(q.root is r and q.stride > p.stride for q in plan.axes):
        return None
    for first, last in FEW_ENDS:
        low, high = first * p.stride, min(end - last * p.stride, plan.size(r))
        if low < high and last >= (r in plan.padded):
            inside = node("RANGE", (idx(high - low),), (-1, "LOOP")) + low
            if all(_is_decided(c, r, inside) for c in gates):
                return first, last
    return None


def _is_decided(condition: UOp, r: UOp, inside: UOp) -> bool:
    low, high = min_max(replace_ranges(condition, {r: inside}))
    return bool(low == high)


class Peeler:
    """The peeled loops of a plan. `made`: the RANGE of each part; `known`: what is so in all but the last, partial
    iteration of a padded axis, its guard and the place that its loads are kept to.
    """

    def __init__(self, plan: Plan, made: dict[Part, UOp], known: dict[UOp, dict[UOp, UOp]]):
        self.plan, self.made, self.known = plan, made, known

    def run(self, sink: UOp) -> UOp:
        """`sink` with these loops in sections, the outermost first."""
        self.ids = unused_ranges(toposort(sink))
        parts = sorted((p for p in self.plan.peeled if p in self.made), key=lambda p: self.made[p].arg[0])
        return node("SINK", tuple(self._peeled(list(sink.src), parts, {})), sink.arg)

    def _peeled(self, ends: list[UOp], parts: list[Part], new: dict[UOp, UOp]) -> list[UOp]:
        """`ends`, in which loops of the plan are what `new` says, in sections of `parts`."""
        if not parts:
            return ends
        p, *others = parts
        r = new.get(self.made[p], self.made[p])
        mine = [e for e in ends if e.op == "END" and r in e.src]
        out = self._peeled([e for e in ends if e not in mine], others, new)
        for start, size, whole in self._sections(p, new):
            inner = {x: None for e in mine for x in e.src[1:] if x.arg[0] > r.arg[0] and x.arg[1] == "LOOP"}
            loops = {r: size, **{x: x.src[0] for x in sorted(inner, key=_place)}}
            fresh = {x: node("RANGE", (n,), (next(self.ids), "LOOP")) for x, n in loops.items() if n is not idx(1)}
            mapping = fresh | {r: fresh.get(r, idx(0)) + start}
            both = {x: replace_ranges(new.get(x, x), mapping) for x in self.made.values()}
            known = self.known.get(p.root, {}) if whole else {}
            facts = {replace_ranges(x, new): replace_ranges(y, both) for x, y in known.items()}
            section = [_closed(e, mapping | facts, {r: None, **fresh}) for e in mine]
            out += self._peeled(section, others, both)
        return out

    def _sections(self, p: Part, new: dict[UOp, UOp]) -> list[tuple[UOp, UOp, bool]]:
        """(start, iterations, whether all of a padded axis is inside) of the loops that p becomes."""
        plan, (*lengths, last) = self.plan, self.plan.peeled[p]
        size = replace_ranges(self.made[p].src[0], new)
        outer = [q for q in plan.axes if q.root is p.root and q.stride > p.stride]
        total = max([p.size, *(q.size * q.stride // p.stride for q in outer)])
        if any(q.clipped for q in (p, *outer)) or p.root in plan.padded:
            total = min(total, -(-plan.size(p.root) // p.stride))
        base = idx(0)
        for q in outer:
            base = base + replace_ranges(self.made[q], new) * (q.stride // p.stride) if q in self.made else base
        found: list[tuple[UOp, UOp, bool]] = []
        start = idx(0)
        for cut in (*accumulate(lengths), total - last):
            end = _within(idx(cut) + base * -1, start, size)
            found.append((start, end + start * -1, (total - last) * p.stride <= plan.size(p.root)))
            start = end
        found.append((start, size + start * -1, False))
        return [s for s in found if s[1] is not idx(0)]


def _place(r: UOp) -> int:
    return r.arg[0]


def _within(x: UOp, low: UOp, high: UOp) -> UOp:
    """`x`, or the nearer of `low` and `high`."""
    return build("MAX", build("MAX", x, low) * -1, high * -1) * -1


def _closed(end: UOp, mapping: dict[UOp, UOp], fresh: dict[UOp, UOp | None]) -> UOp:
    """`end` in one section, with its loops there."""
    body = replace_ranges(end.src[0], mapping)
    loops = [x for x in (fresh.get(r, r) for r in end.src[1:]) if x is not None]
    return node("END", (body, *sorted(loops, key=_place))) if loops else body

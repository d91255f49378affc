"""PEEL: the first and the last iterations of a loop are loops of their own, so that what only borders need is decided
while compiling: the gates of a padded tensor, the masks of a tail. Where tensors are joined, so are the iterations up
to each seam. Where a mask compares the loop with those around it (a triangle), so are those before, at and behind its
edge, which moves with them.

Every END that closes the loop becomes one for each section, in the loops around it; the loops inside are made anew for
each. The tail of a padded axis is whole iterations before its last, which ask no more whether they are inside. Where
the axis is shared out (threads, blocks), a section belongs to the shares that it lies in: the loops of the others are
empty there. What a condition is in a section is told from where the section lies in the axis.

The sections are given by their lengths: (first, last), or (first, second, .., last). What is left of the loop is one
section more, before the last. ("mask", last) is three sections before the last.

Before: END(STORE(.., LOAD(INDEX(A, r0 + -1), 0, 0 < r0)), r0:64)                       PEEL(0, (1, 0))
After:  SINK(STORE(.., 0), END(STORE(.., LOAD(INDEX(A, r1))), r1:63))
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from monolect.base.errors import ActionError
from monolect.ir.bounds import min_max, ranges, replace_ranges, unused_ranges
from monolect.ir.rewrite.normal import FALSE, TRUE, conjuncts, from_linear, limits, linear, smaller, told_apart
from monolect.ir.uop import UOp, build, idx, node, toposort

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part, Plan

Ends = tuple[Any, ...]  # lengths of sections, or ("mask", last)

MOST_COPIES = 9  # of a kernel's body: two peeled loops
BETWEEN_SEAMS = 8  # iterations on average, so that most of them ask nothing
FEW_ENDS = sorted(((f, n) for f in range(5) for n in range(5) if f + n), key=sum)  # iterations that may stand apart


def check_peel(plan: Plan, p: Part, ends: Any) -> Ends:
    """`ends`, (first, .., last), if they may stand apart. Raises ActionError."""
    if plan.workgroup:
        raise ActionError("PEEL", expected="a target without workgroups", found=plan.target.name)
    if any(u.op in ("AFTER", "BUFFER") for u in plan.order):
        raise ActionError("PEEL", expected="a kernel without memory of its own", found="stages, or a scan")
    if p.type != "LOOP" or p.is_block or p.root in plan.reduced or not p.size:
        raise ActionError("PEEL", expected="an output loop of constant size, no block", found=p.type)
    if p.turn is not None:
        raise ActionError("PEEL", expected="a loop that threads share out in pieces", found="in turns")
    if any(q.root is p.root and q.stride > p.stride and q.type != "THREAD" and not q.is_block for q in plan.axes):
        raise ActionError("PEEL", expected="the outer part of an axis", found="an inner one")
    at_mask = isinstance(ends, tuple) and len(ends) == 2 and ends[0] == "mask"
    lengths = ends[1:] if at_mask else ends
    good = isinstance(ends, tuple) and len(ends) >= 2 and all(isinstance(n, int) and n >= 0 for n in lengths)
    total = iterations(plan, p)
    if not good or not 0 < sum(lengths) + at_mask < total:
        raise ActionError("PEEL", expected=f"(first, last), of {total} iterations some and not all", found=ends)
    if at_mask and edge_of(plan, p) is None:
        raise ActionError("PEEL at a mask", expected="one edge, that moves with the loops around", found=repr(p.root))
    if copies(plan) * _sections_of(ends) > MOST_COPIES:
        raise ActionError("PEEL", expected=f"at most {MOST_COPIES} copies of the kernel", found="more")
    return ends


def copies(plan: Plan) -> int:
    """How often the body of the kernel stands in its code."""
    out = 1
    for ends in plan.peeled.values():
        out *= _sections_of(ends)
    return out


def _sections_of(ends: Ends) -> int:
    first, *others = ends
    return 3 + (others[-1] > 0) if first == "mask" else 1 + sum(n > 0 for n in ends)


def border(plan: Plan, p: Part) -> Ends | None:
    """The fewest ends (first, last) of the loop p without which all gates along its axis are decided, or sections in
    which they are or in which the edge of a mask is, or at least its tail; None where that is of no use.
    """
    found = ends_of_gates(plan, p) or sections_of_gates(plan, p)
    tail = int(p.root in plan.padded)
    if found is None and iterations(plan, p) >= BETWEEN_SEAMS and edge_of(plan, p) is not None:
        return "mask", tail
    return found or ((0, 1) if tail else None)


def _gates(plan: Plan, r: UOp) -> set[UOp]:
    return {c for u in (*plan.loads, *plan.stores) for g in u.src[2:] for c in conjuncts(g) if r in ranges(c)}


def sections_of_gates(plan: Plan, p: Part) -> tuple[int, ...] | None:
    """Lengths of sections of the loop p in which all gates along its axis are decided; those iterations that have a
    seam of joined tensors inside are sections of their own. None where a gate asks for more than the axis, and where
    seams are many.
    """
    r, gates = p.root, _gates(plan, p.root)
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
    r, gates = p.root, _gates(plan, p.root)
    if not gates:
        return None
    for first, last in FEW_ENDS:
        if last >= (r in plan.padded):
            known = _decided(plan, p, first, iterations(plan, p) - last)
            if all(c in known for c in gates):
                return first, last
    return None


def iterations(plan: Plan, p: Part) -> int:
    """Those of the loop p in all shares of its axis together."""
    outer = [q for q in plan.axes if q.root is p.root and q.stride > p.stride]
    total = max([p.size, *(q.size * q.stride // p.stride for q in outer)])
    if any(q.clipped for q in (p, *outer)) or p.root in plan.padded:
        total = min(total, -(-plan.size(p.root) // p.stride))
    return total


def _decided(plan: Plan, p: Part, start: int, stop: int) -> dict[UOp, UOp]:
    """What the conditions on the axis of the loop p are in all of its iterations from start to stop."""
    r, low, high = p.root, start * p.stride, stop * p.stride
    if not low < high <= plan.size(r):
        return {}
    inside = node("RANGE", (idx(high - low),), (-1, "LOOP")) + low
    found = {c: min_max(replace_ranges(c, {r: inside})) for c in plan.order if _compares(c, r)}
    return {c: TRUE if a else FALSE for c, (a, b) in found.items() if bool(a) == bool(b)}


def _compares(c: UOp, r: UOp) -> bool:
    return c.op in ("CMPLT", "CMPNE") and c.src[0].dtype.kind == "x" and r in ranges(c)


# ---- the edge of a mask ----------------------------------------------------------------------------------------------
class Edge(NamedTuple):
    """The element of an axis from which on a condition is no longer what it is `before`."""

    condition: UOp
    place: UOp
    before: bool


def edge_of(plan: Plan, p: Part) -> Edge | None:
    """The edge of the only mask that compares the loop p with loops around it."""
    r, at = p.root, plan.axes.index(p)
    slanted = [c for c in plan.order if _compares(c, r) and len(ranges(c)) > 1]
    if len(slanted) != 1 or slanted[0].op != "CMPLT":
        return None
    (c,) = slanted
    k, terms = linear(c.src[0] + c.src[1] * -1)  # less than 0
    steps = dict(terms)
    others = [q for q in plan.axes if q.root in ranges(c) and q.root is not r]
    around = all(q.type == "THREAD" or q.is_block or (q.type == "LOOP" and plan.axes.index(q) < at) for q in others)
    if abs(steps.get(r, 0)) != 1 or not around or not steps.keys() <= {*plan.outputs}:
        return None
    rest = from_linear(k, {x: n for x, n in terms if x is not r})
    return Edge(c, rest * -1, True) if steps[r] > 0 else Edge(c, rest + 1, False)


# ---- the loops -------------------------------------------------------------------------------------------------------
Section = tuple[UOp, UOp, dict[UOp, UOp]]  # start, iterations, what is known of the kernel's nodes


class Peeler:
    """The peeled loops of a plan. `made`: the RANGE of each part; `exprs`: what each axis is in terms of those;
    `known`: what is so in all but the last, partial iteration of a padded axis, its guard and the place that its loads
    are kept to.
    """

    def __init__(self, plan: Plan, made: dict[Part, UOp], exprs: dict[UOp, UOp], known: dict[UOp, dict[UOp, UOp]]):
        self.plan, self.made, self.exprs, self.known = plan, made, exprs, known

    def run(self, ends: Iterable[UOp], taken: Iterable[UOp] = ()) -> tuple[UOp, ...]:
        """`ends` with these loops in sections, the outermost first. No new loop has the number of one of `taken`."""
        self.ids = unused_ranges([*toposort(*ends), *taken])
        parts = sorted((p for p in self.plan.peeled if p in self.made), key=lambda p: self.made[p].arg[0])
        return tuple(self._peeled(list(ends), parts, {}))

    def _peeled(self, ends: list[UOp], parts: list[Part], new: dict[UOp, UOp]) -> list[UOp]:
        """`ends`, in which loops of the plan are what `new` says, in sections of `parts`."""
        if not parts:
            return ends
        p, *others = parts
        r = new.get(self.made[p], self.made[p])
        mine = [e for e in ends if e.op == "END" and r in e.src]
        out = self._peeled([e for e in ends if e not in mine], others, new)
        for start, size, known in self._sections(p, new):
            inner = {x: None for e in mine for x in e.src[1:] if x.arg[0] > r.arg[0] and x.arg[1] == "LOOP"}
            loops = {r: size, **{x: x.src[0] for x in sorted(inner, key=_place)}}
            fresh = {x: node("RANGE", (n,), (next(self.ids), "LOOP")) for x, n in loops.items() if n is not idx(1)}
            mapping = fresh | {r: fresh.get(r, idx(0)) + start}
            both = {x: replace_ranges(new.get(x, x), mapping) for x in self.made.values()}
            facts = {replace_ranges(x, new): replace_ranges(y, both) for x, y in known.items()}
            section = [_closed(e, mapping | facts, {r: None, **fresh}, () if r in fresh else (start,)) for e in mine]
            out += self._peeled(section, others, both)
        return out

    def _sections(self, p: Part, new: dict[UOp, UOp]) -> list[Section]:
        """The loops that p becomes."""
        plan, last = self.plan, self.plan.peeled[p][-1]
        size = replace_ranges(self.made[p].src[0], new)
        outer = [q for q in plan.axes if q.root is p.root and q.stride > p.stride]
        total = iterations(plan, p)
        base = idx(0)
        for q in outer:
            base = base + replace_ranges(self.made[q], new) * (q.stride // p.stride) if q in self.made else base
        whole = self.known.get(p.root, {}) if (total - last) * p.stride <= plan.size(p.root) else {}
        found: list[Section] = []
        start = idx(0)
        for cut, known in self._cuts(p, new, total - last):
            end = _within(cut + base * -1, start, size)
            found.append((start, end + start * -1, whole | known))
            start = end
        found.append((start, size + start * -1, self._facts(_decided(plan, p, total - last, total))))
        return [s for s in found if s[1] is not idx(0)]

    def _cuts(self, p: Part, new: dict[UOp, UOp], stop: int) -> list[tuple[UOp, dict[UOp, UOp]]]:
        """(the iteration where it ends, what is known) of each section but the last."""
        plan, (*lengths, _) = self.plan, self.plan.peeled[p]
        if lengths[0] != "mask":
            cuts = [*accumulate(lengths), stop]
            known = [_decided(plan, p, a, b) for a, b in zip((0, *cuts), cuts, strict=False)]
            return [(idx(cut), self._facts(c)) for cut, c in zip(cuts, known, strict=True)]
        edge = edge_of(plan, p)
        assert edge is not None
        place = replace_ranges(replace_ranges(edge.place, self.exprs), new)
        before, behind = (TRUE, FALSE) if edge.before else (FALSE, TRUE)
        places = (build("IDIV", place + k, idx(p.stride)) for k in (0, p.stride - 1))
        at, after = (_within(x, idx(0), idx(stop)) for x in places)
        decided = self._facts(_decided(plan, p, 0, stop))
        sections = (at, before), (after, None), (idx(stop), behind)
        return [(cut, decided | (self._facts({edge.condition: x}) if x is not None else {})) for cut, x in sections]

    def _facts(self, known: dict[UOp, UOp]) -> dict[UOp, UOp]:
        """What is known, of the nodes that the kernel has now."""
        now = {replace_ranges(c, self.exprs): x for c, x in known.items()}
        return {c: x for c, x in now.items() if c.op != "CONST"}


def _place(r: UOp) -> int:
    return r.arg[0]


def _within(x: UOp, low: UOp, high: UOp) -> UOp:
    """`x`, or the nearer of `low` and `high`."""
    return smaller(build("MAX", x, low), high)


def _closed(end: UOp, mapping: dict[UOp, UOp], fresh: dict[UOp, UOp | None], single: tuple[UOp, ...]) -> UOp:
    """`end` in one section, with its loops there. What a section of a `single` iteration adds to memory is an addition
    of its own, also where another section adds the same.
    """
    body = replace_ranges(end.src[0], mapping)
    body = told_apart(body, single) if body.op == "ATOMICADD" else body
    loops = [x for x in (fresh.get(r, r) for r in end.src[1:]) if x is not None]
    return build("END", body, *sorted(loops, key=_place)) if loops else body

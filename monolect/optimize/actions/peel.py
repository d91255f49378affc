"""PEEL: make the first and last iterations of a loop separate loops, so that border conditions are constants.

The gates of a padded tensor and the masks of a remainder are then constants in most iterations. At a concatenation, the
iterations up to each boundary are separate, too. Where a mask compares the loop with the loops around it (a triangle),
the iterations before, at and behind the mask's edge, which moves with those loops, are separate loops.

Every END that closes the loop becomes one END for each section, in the loops around it; the loops inside are copied for
each section. The remainder of a padded axis is its last iteration; the whole iterations before need no bounds check.
Where the axis is shared out (threads, blocks), a section belongs to the shares that contain it: its loops are empty in
the others. The position of a section in the axis decides the conditions in it.

The sections are given by their lengths: (first, last), or (first, second, .., last). The rest of the loop is one
section more, before the last. ("mask", last) is three sections before the last.

Before: END(STORE(.., LOAD(INDEX(A, r0 + -1), 0, 0 < r0)), r0:64)                       PEEL(0, (1, 0))
After:  SINK(STORE(.., 0), END(STORE(.., LOAD(INDEX(A, r1))), r1:63))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from monolect.base.errors import ActionError
from monolect.ir.bounds import min_max, ranges, replace_ranges, unused_ranges
from monolect.ir.rewrite.named_rules import Row
from monolect.ir.rewrite.normal import FALSE, TRUE, conjuncts, from_linear, limits, linear, smaller, with_dependencies
from monolect.ir.uop import UOp, build, idx, node, toposort
from monolect.optimize.actions.kind import ActionKind, Move, Moves, axes_with
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import Ends, LoopNest

MAX_BODY_COPIES = 9  # copies of a kernel's body; enough for two peeled loops of three sections
MIN_ITERATIONS_PER_BOUNDARY = 8  # iterations per section on average; loops with more boundaries are not peeled
# the (first, last) iterations that may be peeled, fewest first
PEEL_COUNTS = sorted(((f, n) for f in range(5) for n in range(5) if f + n), key=sum)


class Peel(ActionKind):
    """Action PEEL: cut the iterations of a loop into sections (such as first, middle and last), each with its
    own loop.
    """

    op = "PEEL"
    forms = (
        ('("PEEL", axis, (first, last))',
         "peel the first and last iterations of a loop; lengths of more sections may follow the first"),
        ('("PEEL", axis, ("mask", last))',
         "peel the iterations before, at and behind the edge of a mask that moves with the loops around, and the last "
         "ones"),
    )  # fmt: skip
    rows = (Row("PEEL", "the first and last iterations of a loop are peeled off"),)
    may_follow_mask_peel = True

    def perform(self, plan: LoopNest, subject: int, arg: Any) -> None:
        plan.peeled[plan.axes[subject]] = check_peel(plan, plan.axes[subject], arg)

    @property
    def moves(self) -> Moves:
        return {self.op: peels}


def check_peel(plan: LoopNest, p: AxisPart, ends: Any) -> Ends:
    """Return `ends` if the loop p may be peeled so. Raises ActionError otherwise.

    `ends`: the numbers of iterations of the sections, (first, .., last), where the rest of the loop is a section before
    the last; or ("mask", last).
    """
    if plan.workgroup:
        raise ActionError("PEEL", expected="a target without workgroups", found=plan.target.name)
    if any(u.op in ("AFTER", "BUFFER") for u in plan.order):
        raise ActionError("PEEL", expected="a kernel without memory of its own", found="scratch values, or a scan")
    if p.type != "LOOP" or p.is_block or p.root in plan.reduced or not p.size:
        raise ActionError("PEEL", expected="an output loop of constant size, no block", found=p.type)
    if p.round_robin_with is not None:
        raise ActionError("PEEL", expected="a loop that threads share out in pieces", found="round-robin")
    if any(q.root is p.root and q.stride > p.stride and q.type != "THREAD" and not q.is_block for q in plan.axes):
        raise ActionError("PEEL", expected="the outer part of an axis", found="an inner one")
    at_mask = isinstance(ends, tuple) and len(ends) == 2 and ends[0] == "mask"
    lengths = ends[1:] if at_mask else ends
    good = isinstance(ends, tuple) and len(ends) >= 2 and all(isinstance(n, int) and n >= 0 for n in lengths)
    total = iterations(plan, p)
    if not good or not 0 < sum(lengths) + at_mask < total:
        raise ActionError("PEEL", expected=f"(first, last) that peel some, not all, of {total} iterations", found=ends)
    if at_mask and edge_of(plan, p) is None:
        raise ActionError("PEEL at a mask", expected="one edge, that moves with the loops around", found=repr(p.root))
    if body_copies(plan) * _sections_of(ends) > MAX_BODY_COPIES:
        raise ActionError("PEEL", expected=f"at most {MAX_BODY_COPIES} copies of the kernel", found="more")
    return ends


def body_copies(plan: LoopNest) -> int:
    """Number of copies of the kernel's body in its code after all PEELs of the plan: the product of their numbers of
    sections.
    """
    out = 1
    for ends in plan.peeled.values():
        out *= _sections_of(ends)
    return out


def _sections_of(ends: Ends) -> int:
    """Return the number of sections that PEEL with the argument `ends` makes."""
    first, *others = ends
    return 3 + (others[-1] > 0) if first == "mask" else 1 + sum(n > 0 for n in ends)


def peel_lengths(plan: LoopNest, p: AxisPart) -> Ends | None:
    """Return the argument of the PEEL that helps the loop p most, or None if no PEEL helps.

    In order of preference: the fewest first and last iterations, or sections between concat boundaries, outside of
    which all gates along the axis are constant; ("mask", last) around the edge of a mask; (0, 1) for the remainder of a
    padded axis.
    """
    found = ends_of_gates(plan, p) or sections_of_gates(plan, p)
    tail = int(p.root in plan.padded)
    if found is None and iterations(plan, p) >= MIN_ITERATIONS_PER_BOUNDARY and edge_of(plan, p) is not None:
        return "mask", tail
    return found or ((0, 1) if tail else None)


def _gates(plan: LoopNest, r: UOp) -> set[UOp]:
    """Return the conditions, in the gates of the plan's loads and stores, that depend on the RANGE r."""
    return {c for u in (*plan.loads, *plan.stores) for g in u.src[2:] for c in conjuncts(g) if r in ranges(c)}


def sections_of_gates(plan: LoopNest, p: AxisPart) -> tuple[int, ...] | None:
    """Return the argument (first, second, .., last) of a PEEL of the loop p after which all gates along its axis are
    constant, except in sections of one iteration that contain a concat boundary.

    Each number is the length of a section; the rest of the loop is a section before the last. None where a gate depends
    on another axis too, where no gate changes, or where there are too many boundaries.
    """
    r, gates = p.root, _gates(plan, p.root)
    known = [limit for c in gates if (limit := limits([c]).get(r)) is not None]
    if len(known) < len(gates):
        return None
    boundaries = {x for lo, hi in known for x in (lo, hi + 1)}
    inside = {x for x in boundaries if 0 < x < plan.size(r)}
    padded, total = r in plan.padded, -(-plan.size(r) // p.stride)
    cuts = sorted({x // p.stride for x in inside} | {-(-x // p.stride) for x in inside} - {0, total})
    cuts = [x for x in cuts if 0 < x < total - padded]
    if not cuts or total < MIN_ITERATIONS_PER_BOUNDARY * len(cuts):
        return None
    return (*(b - a for a, b in zip((0, *cuts), cuts, strict=False)), int(padded))


def ends_of_gates(plan: LoopNest, p: AxisPart) -> tuple[int, int] | None:
    """Return (first, last): the fewest first and last iterations of the loop p to peel so that all gates along its axis
    are constant in the iterations between.

    None if no gate depends on the axis, or if no (first, last) of PEEL_COUNTS is enough.
    """
    r, gates = p.root, _gates(plan, p.root)
    if not gates:
        return None
    for first, last in PEEL_COUNTS:
        if last >= (r in plan.padded):
            known = _decided(plan, p, first, iterations(plan, p) - last)
            if all(c in known for c in gates):
                return first, last
    return None


def iterations(plan: LoopNest, p: AxisPart) -> int:
    """Total number of iterations of the part p over all iterations of the outer parts of its axis (threads, blocks),
    without those beyond the end of the axis.
    """
    outer = [q for q in plan.axes if q.root is p.root and q.stride > p.stride]
    total = max([p.size, *(q.size * q.stride // p.stride for q in outer)])
    if any(q.clipped for q in (p, *outer)) or p.root in plan.padded:
        total = min(total, -(-plan.size(p.root) // p.stride))
    return total


def _decided(plan: LoopNest, p: AxisPart, start: int, stop: int) -> dict[UOp, UOp]:
    """Return {comparison: TRUE or FALSE} of the kernel's comparisons of the axis of the part p that are constant in
    iterations `start` to `stop` (exclusive) of p.
    """
    r, low, high = p.root, start * p.stride, stop * p.stride
    if not low < high <= plan.size(r):
        return {}
    inside = node("RANGE", (idx(high - low),), (-1, "LOOP")) + low
    found = {c: min_max(replace_ranges(c, {r: inside})) for c in plan.order if _compares(c, r)}
    return {c: TRUE if a else FALSE for c, (a, b) in found.items() if bool(a) == bool(b)}


def _compares(c: UOp, r: UOp) -> bool:
    """Whether `c` is a comparison of index expressions, of which one depends on the RANGE r."""
    return c.op in ("CMPLT", "CMPNE") and c.src[0].dtype.kind == "x" and r in ranges(c)


def peels(plan: LoopNest) -> Iterator[Move]:
    """Yield PEELs of the first and last iterations of loops that a gate depends on, and of the iterations around the
    edge of a mask.
    """
    gates = [u.src[2] for u in (*plan.loads, *plan.stores) if len(u.src) == 3]
    gated = {*plan.padded, *(r for g in gates for r in ranges(g))}
    for i, _ in axes_with(plan, "LOOP"):
        if plan.axes[i].root in gated:
            yield from ((("PEEL", i, ends),) for ends in ((0, 1), (1, 0), (1, 1)))
        if edge_of(plan, plan.axes[i]) is not None:
            yield (("PEEL", i, ("mask", int(plan.axes[i].root in plan.padded))),)


# ---- the edge of a mask ----------------------------------------------------------------------------------------------
class Edge(NamedTuple):
    """The position on an axis, an index expression, at which the value of `condition` changes. `before`: the
    condition's value at smaller positions.
    """

    condition: UOp
    position: UOp
    before: bool


def edge_of(plan: LoopNest, p: AxisPart) -> Edge | None:
    """Return the edge of the mask that compares the part p with loops around it (such as a causal mask). None if the
    kernel has no such comparison or several.
    """
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
    """Rewrite the loops of a plan that PEEL cuts into sections, one loop for each section.

    `made`: {part of an axis: its new RANGE}. `exprs`: {RANGE of the original kernel: its expression in the new RANGEs}.
    `known`: {padded RANGE of the original kernel: {node: its simpler form}}, which holds in all iterations but the
    last, partial one: the guard is TRUE, and the clamped index is the index.
    """

    def __init__(
        self, plan: LoopNest, made: dict[AxisPart, UOp], exprs: dict[UOp, UOp], known: dict[UOp, dict[UOp, UOp]]
    ):
        self.plan, self.made, self.exprs, self.known = plan, made, exprs, known

    def run(self, ends: Iterable[UOp], taken: Iterable[UOp] = ()) -> tuple[UOp, ...]:
        """Return the effects `ends` of a kernel (ENDs and STOREs) with each peeled loop replaced by one loop for each
        section, the outermost peeled loop first.

        New RANGEs get numbers that are not those of a RANGE in `ends` or `taken`.
        """
        self.ids = unused_ranges([*toposort(*ends), *taken])
        parts = sorted((p for p in self.plan.peeled if p in self.made), key=lambda p: self.made[p].arg[0])
        return tuple(self._peeled(list(ends), parts, {}))

    def _peeled(self, ends: list[UOp], parts: list[AxisPart], new: dict[UOp, UOp]) -> list[UOp]:
        """Return the effects `ends` after the loops of `parts`, outermost first, are cut into sections.

        `new`: {RANGE of the plan: the expression that replaces it in the current section}.
        """
        if not parts:
            return ends
        p, *others = parts
        r = new.get(self.made[p], self.made[p])
        mine = [e for e in ends if e.op == "END" and r in e.src]
        out = self._peeled([e for e in ends if e not in mine], others, new)
        for start, size, known in self._sections(p, new):
            inner = {x: None for e in mine for x in e.src[1:] if x.arg[0] > r.arg[0] and x.arg[1] == "LOOP"}
            loops = {r: size, **{x: x.src[0] for x in sorted(inner, key=_loop_number)}}
            fresh = {x: node("RANGE", (n,), (next(self.ids), "LOOP")) for x, n in loops.items() if n is not idx(1)}
            mapping = fresh | {r: fresh.get(r, idx(0)) + start}
            both = {x: replace_ranges(new.get(x, x), mapping) for x in self.made.values()}
            facts = {replace_ranges(x, new): replace_ranges(y, both) for x, y in known.items()}
            section = [
                _close_section(e, mapping | facts, {r: None, **fresh}, () if r in fresh else (start,)) for e in mine
            ]
            out += self._peeled(section, others, both)
        return out

    def _sections(self, p: AxisPart, new: dict[UOp, UOp]) -> list[Section]:
        """Return (first iteration, number of iterations, {node: its simpler form in the section}) of each section of
        the part p, the nonempty ones only. `new`: {RANGE of the plan: its replacement}.
        """
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

    def _cuts(self, p: AxisPart, new: dict[UOp, UOp], stop: int) -> list[tuple[UOp, dict[UOp, UOp]]]:
        """Return (first iteration after the section, {node: its simpler form in the section}) of each section of the
        part p but the last.

        `stop`: the first iteration of the last section. `new`: {RANGE of the plan: its replacement}.
        """
        plan, (*lengths, _) = self.plan, self.plan.peeled[p]
        if lengths[0] != "mask":
            cuts = [*accumulate(lengths), stop]
            known = [_decided(plan, p, a, b) for a, b in zip((0, *cuts), cuts, strict=False)]
            return [(idx(cut), self._facts(c)) for cut, c in zip(cuts, known, strict=True)]
        edge = edge_of(plan, p)
        assert edge is not None
        position = replace_ranges(replace_ranges(edge.position, self.exprs), new)
        before, behind = (TRUE, FALSE) if edge.before else (FALSE, TRUE)
        ends_of_edge = (build("IDIV", position + k, idx(p.stride)) for k in (0, p.stride - 1))
        at, after = (_within(x, idx(0), idx(stop)) for x in ends_of_edge)
        decided = self._facts(_decided(plan, p, 0, stop))
        sections = (at, before), (after, None), (idx(stop), behind)
        return [(cut, decided | (self._facts({edge.condition: x}) if x is not None else {})) for cut, x in sections]

    def _facts(self, known: dict[UOp, UOp]) -> dict[UOp, UOp]:
        """Return `known`, {condition over the original RANGEs: its value}, as {condition over the new RANGEs: its
        value}; conditions that become constants are left out.
        """
        now = {replace_ranges(c, self.exprs): x for c, x in known.items()}
        return {c: x for c, x in now.items() if c.op != "CONST"}


def _loop_number(r: UOp) -> int:
    """Return the number of the RANGE r, by which loops are ordered."""
    return r.arg[0]


def _within(x: UOp, low: UOp, high: UOp) -> UOp:
    """Clamp `x` to the interval from `low` to `high`."""
    return smaller(build("MAX", x, low), high)


def _close_section(end: UOp, mapping: dict[UOp, UOp], fresh: dict[UOp, UOp | None], single: tuple[UOp, ...]) -> UOp:
    """Return the effect `end`, an END, for one section of a peeled loop; only its body if no loop is left.

    `mapping`: {node of the body: its replacement in the section}. `fresh`: {old RANGE: the section's RANGE, or None if
    the section has one iteration}. `single`: (first iteration,) for a section of one iteration, else (); as a
    dependency it keeps an ATOMICADD distinct from equal additions in other sections.
    """
    body = replace_ranges(end.src[0], mapping)
    body = with_dependencies(body, single) if body.op == "ATOMICADD" else body
    loops = [x for x in (fresh.get(r, r) for r in end.src[1:]) if x is not None]
    return build("END", body, *sorted(loops, key=_loop_number)) if loops else body


__all__ = [
    "Edge",
    "Ends",
    "Peel",
    "Peeler",
    "peels",
    "body_copies",
    "check_peel",
    "edge_of",
    "ends_of_gates",
    "iterations",
    "peel_lengths",
    "sections_of_gates",
]

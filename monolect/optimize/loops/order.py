"""Check orders of loops.

If a reduction or store depends on only some of the output loops, these must be the outermost ones. Loops that carry an
accumulator stay innermost, and loops that must run in order keep their order.
"""

from __future__ import annotations

from monolect.ir.bounds import ranges
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest


def sequential_pairs(plan: LoopNest, order: list[AxisPart]) -> list[tuple[AxisPart, AxisPart]]:
    """Return, for the parts whose axes must run in order, the pairs (k-th of them in `plan.axes`, k-th of them in
    `order`). Other parts are not counted. `order` is a permutation of `plan.axes`.

    A pair of two different parts means that `order` would reorder sequential loops, which is illegal.
    """
    now, then = ([p for p in ps if p.root in plan.sequential] for ps in (plan.axes, order))
    return list(zip(now, then, strict=True))


def nests(plan: LoopNest, order: list[AxisPart]) -> bool:
    """Whether the loops of the plan may be nested in `order`, a permutation of parts, outermost first.

    Each reduction or store must depend on the outermost loops of its nest: no loop that it does not depend on may be
    outside of a loop that it depends on. Loops that carry an accumulator must be innermost.
    """
    apart = ("UPCAST", "THREAD", "GLOBAL", "LOCAL")  # axis types that are no loops
    inner = [p for p in order if p.root in plan.outputs and p.type not in apart]
    loops = [p.root for p in sorted(inner, key=lambda p: (not p.is_block, p.created if p.is_block else 0))]
    sets = [plan.scratch.loops(u) for u in plan.order if u.op == "END"]
    sets += [ranges(u) & frozenset(plan.outputs) for u in plan.reduces]
    for i, r in enumerate(loops):
        if r in plan.carried and any(q not in plan.carried for q in loops[i:]):
            return False
        around = {q for q in loops[:i] if any(q in s and r in s for s in sets)}
        if any(r in s and not around <= s for s in sets):
            return False
    return True


__all__ = ["nests", "sequential_pairs"]

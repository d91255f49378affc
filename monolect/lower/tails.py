"""Which loops of reductions do their last step first, apart from the others: those in which only there something is
outside of what is reduced.

A vector of lanes over the end of an axis is masked; in a loop all of its vectors are. The steps before the last ask
nothing, and the last one knows which of its lanes are inside. So it is with the gate of a tensor padded at its end.
Reductions over the same loop stay in one: all of them start so, or none does.

What it is not: PEEL, which does this to loops over outputs, as an action; nor the loops, which `reduce` makes.
"""

from __future__ import annotations

from collections.abc import Iterable

from monolect.ir.bounds import min_max, ranges, replace_ranges
from monolect.ir.normal import FALSE, TRUE
from monolect.ir.uop import UOp, idx, node, toposort

MOST_OPS = 100  # values in a step that may stand in the code twice

Loops = tuple[frozenset[UOp], tuple[UOp, ...]]
Facts = dict[UOp, UOp]

OWN = frozenset(("REDUCE", "END", "AFTER", "STORE", "BUFFER"))  # loops and memory of a step's own


def loops_of(u: UOp) -> Loops:
    """What reductions that share a loop have in common."""
    return ranges(u), u.src[1:]


def step_of(u: UOp, loops: Iterable[UOp]) -> list[UOp]:
    """What each step of a reduction computes anew: the values inside that depend on its loops."""
    loops = frozenset(loops)
    inside = toposort(u.src[0], stop=lambda v: loops.isdisjoint(ranges(v)))
    return [v for v in inside if not loops.isdisjoint(ranges(v))]


def tails(order: list[UOp]) -> dict[Loops, Facts]:
    """For each loop whose last step stands apart: which conditions are known in all the others."""
    out: dict[Loops, Facts] = {}
    refused: set[Loops] = set()
    for u in order:
        if u.op == "REDUCE" and len(u.src) > 1:
            facts = _facts(u)
            if facts is None:
                refused.add(loops_of(u))
            else:
                out.setdefault(loops_of(u), {}).update(facts)
    return {key: facts for key, facts in out.items() if facts and key not in refused}


def without_last(r: UOp) -> UOp:
    """The loop without its last step."""
    n = r.src[0].value - 1
    return node("RANGE", (idx(n),), r.arg) if n > 1 else idx(0)


def _facts(u: UOp) -> Facts | None:
    """The conditions on the loop that are the same in all steps but the last; None where that cannot stand apart."""
    loops = [r for r in u.src[1:] if r.arg[1] != "UNROLL"]
    if len(loops) != 1 or loops[0].src[0].op != "CONST" or loops[0].src[0].value < 2:
        return None
    (r,) = loops
    inside = step_of(u, loops)
    if len(inside) > MOST_OPS or any(v.op in OWN for v in inside):
        return None
    out: Facts = {}
    for c in inside:
        if c.op in ("CMPLT", "CMPNE") and c.src[0].dtype.kind == "x":
            low, high = min_max(replace_ranges(c, {r: without_last(r)}))
            if bool(low) == bool(high):
                out[c] = TRUE if low else FALSE
    return out

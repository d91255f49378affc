"""Check orders of loops, and which loops may be shared out among threads or cut into blocks of a reduction.

A reduction or store that depends on only some of the output loops needs these loops outermost. Loops that carry an
accumulator stay innermost, and sequential loops keep their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import AxisPart, LoopPlan


def sequential_pairs(plan: LoopPlan, order: list[AxisPart]) -> list[tuple[AxisPart, AxisPart]]:
    """Pair the parts of sequential axes in the plan's order with those in `order`: they differ where `order` reorders
    them.
    """
    now, then = ([p for p in ps if p.root in plan.sequential] for ps in (plan.axes, order))
    return list(zip(now, then, strict=True))


def nests(plan: LoopPlan, order: list[AxisPart]) -> bool:
    """Whether `order` is a legal nest: the output loops of each reduction and store form a prefix, scans are
    innermost.
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


def check_thread(plan: LoopPlan, p: AxisPart, k: int) -> None:
    """Raise ActionError unless all loops and stores of the kernel are inside the loop `p` that k threads share."""
    if any(q.type == "THREAD" for q in plan.axes):
        raise ActionError("SPLIT to THREAD", expected="at most one THREAD axis", found="a second")
    if k > 4 * plan.target.n_threads:
        raise ActionError("SPLIT to THREAD", expected=f"at most {4 * plan.target.n_threads}", found=k)
    for u in plan.order:
        is_reduction = u.op == "REDUCE" and len(u.src) > 1
        around = p.root in u.src or p.root in ranges(u)
        if (u.op == "END" and not around and u not in plan.scratch.fills.values()) or (is_reduction and not around):
            raise ActionError("SPLIT to THREAD", expected="an axis that encloses every loop", found=repr(u))
    writes = (u for u in plan.order if u.op in ("STORE", "ATOMICADD") and u.src[0].op == "INDEX")
    writes = (u for u in writes if memory_of(u.src[0]) not in plan.scratch.fills)
    if p.root in plan.scratch.own or any(p.root not in ranges(u) for u in writes):
        raise ActionError("SPLIT to THREAD", expected="an axis that encloses every store", found="a store outside")


def check_blocked(plan: LoopPlan, p: AxisPart, k: int, top: bool) -> None:
    """Raise ActionError unless the reduction `p` may be cut into blocks: it must be the kernel's only one,
    and a sum.
    """
    what = "SPLIT of a reduction to LOOP"
    if not top:
        raise ActionError(what, expected="the outer part", found=(k, top))
    others = [q for q in plan.axes if q.type == "LOOP" and q.root in plan.reduced]
    if len(others) > 1 or any(q.root is not p.root for q in others):
        raise ActionError(what, expected="one blocked reduction, with groups of blocks", found="another")
    stores = [u for u in plan.order if u.op in ("STORE", "ATOMICADD")]
    if len(plan.reduces) != 1 or len(stores) != 1 or stores[0].op != "STORE" or plan.reduces[0].arg[0] != "ADD":
        raise ActionError(what, expected="one sum and one store", found=len(stores))
    if ranges(plan.reduces[0]) != ranges(stores[0]):
        raise ActionError(what, expected="a reduction in the innermost output loop", found="outside")


__all__ = ["check_blocked", "check_thread", "nests", "sequential_pairs"]

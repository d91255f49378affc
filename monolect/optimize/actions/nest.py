"""Which orders of loops are legal, and which loops may be threads or blocks of a reduction.

Inner reductions and shorter stores need their own loops outermost; loops that carry something stay innermost, and loops
that run in order stay in order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part, Plan


def sequence(plan: Plan, order: list[Part]) -> list[tuple[Part, Part]]:
    """The parts of sequential axes, now and in `order`."""
    now, then = ([p for p in ps if p.root in plan.sequential] for ps in (plan.axes, order))
    return list(zip(now, then, strict=True))


def nests(plan: Plan, order: list[Part]) -> bool:
    """Inner reductions and shorter stores need their loops to be a prefix of the nest; scans stay innermost."""
    apart = ("UPCAST", "THREAD", "GLOBAL", "LOCAL")  # no loops
    inner = [p for p in order if p.root in plan.outputs and p.type not in apart]
    loops = [p.root for p in sorted(inner, key=lambda p: (not p.is_block, p.made if p.is_block else 0))]
    sets = [plan.stages.loops(u) for u in plan.order if u.op == "END"]
    sets += [ranges(u) & frozenset(plan.outputs) for u in plan.reduces]
    for i, r in enumerate(loops):
        if r in plan.carried and any(q not in plan.carried for q in loops[i:]):
            return False
        around = {q for q in loops[:i] if any(q in s and r in s for s in sets)}
        if any(r in s and not around <= s for s in sets):
            return False
    return True


def check_thread(plan: Plan, p: Part, k: int) -> None:
    """All that the kernel does must stand inside the loop that is shared out. Raises ActionError."""
    if any(q.type == "THREAD" for q in plan.axes):
        raise ActionError("SPLIT to THREAD", expected="at most one THREAD axis", found="a second")
    if k > 4 * plan.target.n_threads:
        raise ActionError("SPLIT to THREAD", expected=f"at most {4 * plan.target.n_threads}", found=k)
    for u in plan.order:
        is_reduction = u.op == "REDUCE" and len(u.src) > 1
        around = p.root in u.src or p.root in ranges(u)
        if (u.op == "END" and not around and u not in plan.stages.fills.values()) or (is_reduction and not around):
            raise ActionError("SPLIT to THREAD", expected="an axis that encloses every loop", found=repr(u))
    writes = (u for u in plan.order if u.op in ("STORE", "ATOMICADD") and u.src[0].op == "INDEX")
    writes = (u for u in writes if memory_of(u.src[0]) not in plan.stages.fills)
    if p.root in plan.stages.own or any(p.root not in ranges(u) for u in writes):
        raise ActionError("SPLIT to THREAD", expected="an axis that encloses every store", found="a store outside")


def check_blocked(plan: Plan, p: Part, k: int, top: bool) -> None:
    """A reduction cut into blocks adds up in memory (`sums`): it must be the kernel's only one, and a sum."""
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

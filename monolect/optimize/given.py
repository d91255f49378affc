"""Keep the axes of kernels that a user wrote by hand with axis types, SPECIALs or BARRIERs.

Purpose: the user's loops stay unchanged. No actions are chosen for such a kernel; its RANGEs and their order are kept.
A THREAD range becomes the index of a thread. An axis type that would change the result is refused by the rules for
actions. `ir.check.custom_kernels` distinguishes these kernels, and checks them against the target.

Before: END(STORE(..r0*4 + r1..), r0:2 GLOBAL, r1:4 LOCAL)
After:  the same, and KernelInfo(actions=())
Invariant: a kernel that the scheduler writes, with LOOP and REDUCE ranges only, is not one of these.
"""

from __future__ import annotations

from monolect.base.errors import VerifyError
from monolect.ir.check.custom_kernels import CHOSEN, LAUNCHED, THREAD
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, rebuild, toposort
from monolect.optimize.actions.plan import LoopPlan


def kept_axes(plan: LoopPlan) -> tuple[tuple[UOp, ...], int]:
    """Return (effects of the kernel's SINK with the user's axes unchanged, number of threads), for a kernel whose axis
    types a user fixed.

    Raises VerifyError or ActionError for an axis type that its RANGE cannot have.
    """
    for r in plan.order:
        if r.op == "RANGE" and r.arg[1] in LAUNCHED and r in plan.carried:
            raise _error(r, "iterations that run at the same time", "a LOOP, which carries an accumulator", r.arg)
    trial = plan.copy()
    for r in [p.root for p in plan.axes]:
        if r.arg[1] not in (*CHOSEN, *LAUNCHED):
            trial.split_as_given(trial.axis_of(r), r.arg[1])
    threads = {u: plan.size(u) for u in plan.order if u.op == "SPECIAL" and u.arg == THREAD}
    _check_threads(plan, threads)
    of_thread = {u: plan.size(u) for u in plan.order if u.op == "RANGE" and u.arg[1] == "THREAD"}
    sizes = {*threads.values(), *of_thread.values()}
    if len(sizes) > 1:
        raise _error(plan.sink, "several numbers of threads", "one", sorted(sizes))
    src = _without_thread_ranges(plan, of_thread) if of_thread else plan.sink.src
    return src, max(sizes, default=1)


def _check_threads(plan: LoopPlan, threads: dict[UOp, int]) -> None:
    """Raise VerifyError unless every write to a PARAM depends on the index of its thread, and the number of threads is
    in range.

    `threads`: {SPECIAL node that is the index of a thread: number of threads}.
    """
    for u in plan.order if threads else ():
        if u.op in ("STORE", "ATOMICADD") and memory_of(u.src[0]).op == "PARAM":
            if threads.keys().isdisjoint(toposort(u.src[0])):
                raise _error(u, "a write that each thread makes", f"an index that depends on {THREAD}", repr(u.src[0]))
    for u, n in threads.items():
        if not 1 <= n <= 4 * plan.target.n_threads:
            raise _error(u, "threads", f"1..{4 * plan.target.n_threads}, a constant", repr(u.src[0]))


def _without_thread_ranges(plan: LoopPlan, ranges_: dict[UOp, int]) -> tuple[UOp, ...]:
    """Return the effects of the kernel with each THREAD RANGE replaced by a SPECIAL: the index that the launch passes
    to a thread.

    `ranges_`: {THREAD RANGE: number of threads}.
    """
    new: dict[UOp, UOp] = {r: node("SPECIAL", r.src, THREAD) for r in ranges_}
    for u in plan.order:
        if u in new:
            continue
        src = tuple([new[s] for s in u.src])
        if u.op in ("END", "AFTER"):
            left = tuple([v for s, v in zip(u.src, src, strict=True) if s not in ranges_])
            new[u] = node(u.op, left, u.arg) if len(left) > 1 else left[0]
        else:
            new[u] = rebuild(u, src)
    return new[plan.sink].src


def _error(u: UOp, what: str, expected: object, found: object) -> VerifyError:
    """Return a VerifyError about the node `u`: what is wrong, what was expected, what was found."""
    return VerifyError(what, op=u.op, expected=expected, found=found)


__all__ = ["kept_axes"]

"""SPLIT: split an axis into two loops; the new part may be a block, a thread, lanes, a vector, or steps written out.

A SPLIT to LOOP with `top` makes a block loop: a loop around all others but threads, of several the first made
outermost. Its iterations are cache blocks; a PACK copies memory in the innermost block loop that its load depends on. A
sum may have two block loops: over groups of blocks, and over the blocks of a group.

Before: END(STORE(..r0..), r0:64)                        SPLIT(0, (16, "UPCAST", False))
After:  END(STORE(..r0*16 + r1..), r0:4 LOOP, r1:16 UPCAST)
Source: the OptOps table of the specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.named_rules import Row
from monolect.optimize.actions.kind import ActionKind, Move, Moves, axes_with
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import Action, LoopNest
from monolect.optimize.loops.order import nests
from monolect.optimize.loops.partial_sums import check_sums

# target axis type -> (the types it may be split from, the sides it may be taken from)
SPLIT_RULES: dict[str, tuple[tuple[str, ...], tuple[bool, ...]]] = {
    "LOOP": (("LOOP", "REDUCE"), (False, True)),
    "REDUCE": (("REDUCE",), (False, True)),
    "GLOBAL": (("LOOP",), (False, True)),
    "LOCAL": (("LOOP", "GLOBAL"), (False,)),
    "THREAD": (("LOOP", "GLOBAL"), (True, False)),
    "GROUP_REDUCE": (("REDUCE",), (False, True)),
    "UPCAST": (("LOOP", "LOCAL", "GLOBAL"), (False,)),
    "UNROLL": (("REDUCE", "GROUP_REDUCE"), (False,)),
}
MAX_SHAPED_ELEMENTS = 2048  # elements; a split that makes a shaped value larger is refused
# rows of a register tile to try, in addition to the target's vector lengths
UPCAST_ROW_COUNTS = (2, 3, 4, 5, 6, 7, 8, 12, 14)
UNROLL_FACTORS = (2, 3, 4, 5, 7, 8, 9)  # iterations of a reduction to unroll
BLOCK_LENGTHS = (1, 4, 16, 32, 64, 128, 256, 512)  # iterations in one block
LANE_COUNTS = (2, 4, 8, 16, 32, 64, 128, 256)  # lanes of a workgroup along one axis
STEP_LENGTHS = (4, 8, 16, 32, 64)  # iterations of a reduction that are copied at once
MAX_PADDING_FACTOR = 1.125  # factor by which padding may lengthen an axis
# new axis type -> kind of move, where the two differ
_MOVE_KINDS = {"LOOP": "BLOCK", "GLOBAL": "WORKGROUP", "LOCAL": "WORKGROUP", "REDUCE": "STEP"}


class Split(ActionKind):
    """Action SPLIT: cut an axis of n iterations into two parts, outer and inner, with n/k and k iterations. The part
    with k iterations has axis type `target`; if `top`, it is the outer one.
    """

    op = "SPLIT"
    forms = (
        ('("SPLIT", axis, (k, target, top))',
         "split an axis of n iterations into (n/k, k), or (k, n/k) if top; the new part has axis type `target`; "
         "threads take iterations round-robin if not top, or if the size is symbolic"),
    )  # fmt: skip
    rows = (
        Row("SPLIT_LOOP", "a loop becomes two, one inside the other, or blocks around all others"),
        Row("SPLIT_REDUCE", "the loop of a reduction becomes two, or steps through blocks of a workgroup's memory"),
        Row("SPLIT_GLOBAL", "iterations become workgroups"),
        Row("SPLIT_LOCAL", "iterations become lanes of a workgroup"),
        Row("SPLIT_THREAD", "iterations are shared out to threads"),
        Row("SPLIT_GROUP_REDUCE", "a reduction has a partial result for each lane"),
        Row("SPLIT_UPCAST", "iterations become elements of a vector or a tile"),
        Row("SPLIT_UNROLL", "several steps of a reduction are written out in one step of its loop"),
    )

    def row_name(self, action: Action) -> str:
        _, _, arg = action
        return f"SPLIT_{arg[1]}" if isinstance(arg, tuple) and len(arg) > 1 else self.op

    def move_kind(self, action: Action) -> str:
        return _MOVE_KINDS.get(action[2][1], action[2][1])

    def perform(self, plan: LoopNest, subject: int, arg: Any) -> None:
        split(plan, subject, *arg)

    @property
    def moves(self) -> Moves:
        return {
            "UPCAST": upcasts,
            "UNROLL": unrolls,
            "GROUP_REDUCE": partial_sums,
            "THREAD": threads,
            "BLOCK": blocks,
            "WORKGROUP": workgroups,
            "STEP": steps,
        }


# ---- legality and effect ---------------------------------------------------------------------------------------------
def split(plan: LoopNest, axis: int, k: int, target: str, top: bool = False) -> None:
    """Perform SPLIT: cut `plan.axes[axis]` into two parts. Raises ActionError where that is illegal.

    One part has `k` iterations and axis type `target`; it is the inner part, or the outer one if `top`. The other part
    keeps the axis type and gets the remaining factor.
    """
    p = plan.axes[axis]
    if target not in SPLIT_RULES:
        raise ActionError("SPLIT target", expected=", ".join(SPLIT_RULES), found=target)
    sources, sides = SPLIT_RULES[target]
    if p.type not in sources:
        raise ActionError(f"SPLIT to {target}", expected=f"an axis of type {' or '.join(sources)}", found=p.type)
    if top not in sides:
        side = "the outer part" if sides[0] else "the inner part"
        raise ActionError(f"SPLIT to {target}", expected=side, found=top)
    if (target in ("GLOBAL", "LOCAL") and not plan.target.workgroups) or (target == "THREAD" and plan.workgroup):
        kind = "without" if target == "THREAD" else "with"
        raise ActionError(f"SPLIT to {target}", expected=f"a target {kind} workgroups", found=plan.target.name)
    round_robin = target == "THREAD" and not (top and p.size)  # each thread takes every k-th iteration
    known = p.size or (k if round_robin else 0 if top else plan.divisor(p.root) // p.stride)
    if not isinstance(k, int) or not 1 <= k <= known or (not p.size and known % k):
        expected = f"1..{p.size}" if p.size else f"a divisor of {known}, which divides the symbolic size"
        raise ActionError("SPLIT factor", expected=expected, found=k)
    if any(q.clipped and q.root is p.root and q.stride <= p.stride for q in plan.axes):
        raise ActionError("SPLIT of a clipped axis", expected="the inner parts of it", found=p.type)
    if p.round_robin_with is not None:
        raise ActionError("SPLIT of an axis that threads take round-robin", expected="any other axis", found=p.type)
    if round_robin and any(q.root is p.root and q.stride > p.stride for q in plan.axes):
        raise ActionError("round-robin SPLIT", expected="the outermost part of an axis", found="an inner part")
    if p.size % k and not round_robin and not (top and target in ("THREAD", "LOOP") and p.type in ("LOOP", "REDUCE")):
        raise ActionError("SPLIT factor", expected=f"a divisor of {p.size} (PADTO first)", found=k)
    if p.size % k and any(q.root is p.root and q.stride > p.stride for q in plan.axes):
        raise ActionError("SPLIT factor", expected=f"a divisor of {p.size}, this being an inner part", found=k)
    apart = _may_scan(plan, p) if target == "UPCAST" else p.root in plan.atomic and target != "THREAD"
    in_order = p.root in plan.sequential and not apart
    if target in ("THREAD", "UPCAST", "LOCAL", "GLOBAL") and (in_order or p.root in plan.reduced):
        found = "a scan" if p.root in plan.sequential else "blocks of a reduction"
        raise ActionError(f"SPLIT to {target}", expected="an axis whose iterations are independent", found=found)
    around = [q for q in plan.axes if q.root is p.root and q.stride > p.stride and not q.is_block]
    if target == "LOOP" and top and p.root in plan.sequential and around:  # blocks are around all other loops
        raise ActionError("SPLIT into blocks", expected="the outer part of a scan", found="an inner part")
    if target in ("UPCAST", "LOCAL") and p.root in plan.private_local:
        raise ActionError(
            f"SPLIT to {target}", expected="an axis outside of local memory", found="a private table per iteration"
        )
    if target == "GROUP_REDUCE" and plan.unit is not None:
        raise ActionError("SPLIT to GROUP_REDUCE", expected="lanes that add separately", found=plan.unit.name)
    if target == "THREAD":
        _check_thread(plan, p, k)
    if target == "LOOP" and p.type == "REDUCE":
        _check_blocked(plan, p, k, top)
    if target in plan.shapes and plan.has_vectors:
        raise ActionError(f"SPLIT to {target}", expected="a kernel of scalars", found="one written with vectors")
    if target in plan.shapes and (n := plan.shaped_elements(p.root) * k) > MAX_SHAPED_ELEMENTS:
        raise ActionError("SPLIT makes values too large", expected=f"<= {MAX_SHAPED_ELEMENTS}", found=n)
    made, shaped = plan.next_created, target not in ("LOOP", "REDUCE")
    if round_robin:
        new = [
            AxisPart(p.root, k, p.stride, target, created=made),
            AxisPart(p.root, -(-p.size // k), p.stride * k, p.type),
        ]
        new[1].round_robin_with = new[0]
    elif top:
        inner = -(-p.size // k)
        outer = AxisPart(p.root, k, p.stride * inner, target, created=made)
        rest = AxisPart(p.root, inner, p.stride, p.type, clipped=bool(p.size % k))
        new = [outer, rest]
    else:
        new = [
            AxisPart(p.root, p.size // k, p.stride * k, p.type, created=p.created * (p.type != "LOOP")),
            AxisPart(p.root, k, p.stride, target, created=made * shaped),
        ]
    order = [*plan.axes[:axis], *new, *plan.axes[axis + 1 :]]
    if plan.workgroup:
        plan.workgroup.check_split(target, p.root, order, plan.locals)
    if top and target == "LOOP" and not nests(plan, order):
        raise ActionError("SPLIT into blocks", expected="every reduction's own loops outermost", found="another order")
    check_sums(plan, axes=order)
    plan.axes = order


def split_as_given(plan: LoopNest, axis: int, target: str) -> None:
    """Make the whole part `plan.axes[axis]` one of axis type `target`, as a user fixed it. Raises ActionError where
    SPLIT would, and for a symbolic size.
    """
    n = plan.axes[axis].size
    if not n:
        raise ActionError(f"a {target} range", expected="a constant number of iterations", found="a symbolic one")
    split(plan, axis, n, target, SPLIT_RULES[target][1][0])


def _may_scan(plan: LoopNest, p: AxisPart) -> bool:
    """Whether consecutive iterations of the part p of a scan may be vector lanes: the scan carries only running sums,
    products or maxima, which one SCAN of a vector computes.
    """
    lanes = any(q.root is p.root and q.type == "UPCAST" for q in plan.axes)
    return p.root in plan.running and p.stride == 1 and not lanes


def _check_thread(plan: LoopNest, p: AxisPart, k: int) -> None:
    """Raise ActionError if `k` threads may not divide the loop `p`: there are threads already, k is too large, or a
    loop or store of the kernel is outside of `p`.
    """
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


def _check_blocked(plan: LoopNest, p: AxisPart, k: int, top: bool) -> None:
    """Raise ActionError unless SPLIT may cut the reduction `p` into block loops of `k` blocks.

    The kernel must have one sum, one store in the same loops, no other blocked reduction; the blocks must be the outer
    part (`top`).
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


# ---- moves -----------------------------------------------------------------------------------------------------------
def _vectors(plan: LoopNest) -> tuple[int, ...]:
    """Numbers of vector lanes that a search tries: the lanes of a 4-byte element, half as many and twice as many."""
    lanes = plan.target.lanes(4)
    return tuple(k for k in (lanes // 2, lanes, lanes * 2) if k > 1)


def _shaped(plan: LoopNest, source: str, target: str, sizes: Iterable[int]) -> Iterator[Move]:
    """Yield the moves that SPLIT a part of axis type `source` into a loop and a part of type `target`, for each number
    of iterations in `sizes`. Where it does not divide an unsplit axis, the move pads the axis first.
    """
    for i, n in axes_with(plan, source):
        whole = plan.axes[i].root not in plan.padded and sum(q.root is plan.axes[i].root for q in plan.axes) == 1
        for k in sorted({*sizes}):
            split = ("SPLIT", i, (k, target, False))
            if n % k == 0:
                yield (split,)
            elif whole and -(-n // k) * k <= MAX_PADDING_FACTOR * n:
                yield (("PADTO", i, k), split)


def upcasts(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs of loops to UPCAST: vector lanes, or rows of a tile that share operands."""
    return _shaped(plan, "LOOP", "UPCAST", (*UPCAST_ROW_COUNTS, *_vectors(plan)))


def unrolls(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs of reductions to UNROLL: iterations as straight-line code."""
    return _shaped(plan, "REDUCE", "UNROLL", UNROLL_FACTORS)


def partial_sums(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs of reductions to GROUP_REDUCE: lanes that each keep a partial result, which are combined
    at the end.
    """
    lanes = LANE_COUNTS if plan.target.workgroups else ()
    return _shaped(plan, "REDUCE", "GROUP_REDUCE", (2, 4, 8, *_vectors(plan), *lanes))


def threads(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs that divide one loop among all threads."""
    n = plan.target.n_threads
    return (((("SPLIT", i, (n, "THREAD", True)),)) for i, size in axes_with(plan, "LOOP") if 1 < n <= size)


def blocks(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs that make a block loop around all other loops, so that the operands of a block stay in a cache."""
    for i, n in axes_with(plan, "LOOP", "REDUCE"):
        for k in BLOCK_LENGTHS:
            if k < n and not plan.axes[i].is_block:
                yield (("SPLIT", i, (-(-n // k), "LOOP", True)),)


def workgroups(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs of loops to GLOBAL (workgroups) and to LOCAL (lanes of a workgroup); none on targets without
    workgroups.
    """
    if plan.target.workgroups:
        for i, n in axes_with(plan, "LOOP"):
            yield (("SPLIT", i, (n, "GLOBAL", True)),)
        for i, n in axes_with(plan, "LOOP", "GLOBAL"):
            yield from ((("SPLIT", i, (k, "LOCAL", False)),) for k in LANE_COUNTS if n % k == 0)


def steps(plan: LoopNest) -> Iterator[Move]:
    """Yield SPLITs of a reduction into steps, in each of which the lanes of a workgroup copy the operands to local
    memory; none on targets without workgroups.
    """
    if plan.target.workgroups:
        for i, n in axes_with(plan, "REDUCE"):
            yield from ((("SPLIT", i, (n // k, "REDUCE", True)),) for k in STEP_LENGTHS if n % k == 0 and n > k)


__all__ = [
    "SPLIT_RULES",
    "Split",
    "blocks",
    "partial_sums",
    "split",
    "split_as_given",
    "steps",
    "threads",
    "unrolls",
    "upcasts",
    "workgroups",
]

"""PACK: copy the block of memory that a load reads to local memory first.

`optimize.blocks` lays out the blocks and writes the copies. PACK depends on every loop, so only final actions follow.

Source: the OptOps table of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.base.errors import ActionError
from monolect.ir.rewrite.named_rules import Row
from monolect.optimize.actions.kind import ActionKind, Move, Moves
from monolect.optimize.blocks.choice import block_of
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.loops.partial_sums import are_sums_local, block_of_sum


class Pack(ActionKind):
    """Action PACK: copy the block of memory that a LOAD reads to local memory first.

    With several buffers, the next step's block is copied to one buffer while another is read.
    """

    op = "PACK"
    forms = (
        ('("PACK", load, None)', "copy the block of memory that LOAD number `load` reads to local memory first"),
        ('("PACK", load, 2)',
         "double buffer: read the next step's block while this one is used; more buffers where the target copies boxes "
         "of memory asynchronously"),
    )  # fmt: skip
    rows = (Row("PACK", "the block of memory that a load reads is first copied to local memory"),)
    subject = "load"
    is_final, is_loop_change = True, False

    def perform(self, plan: LoopNest, subject: int, arg: int | None) -> None:
        pack(plan, subject, arg or 1)

    @property
    def moves(self) -> Moves:
        return {self.op: packs}


def pack(plan: LoopNest, load: int, n_buffers: int) -> None:
    """Note in `plan.packs` that the block of memory that `plan.loads[load]` reads is copied to local memory first.
    Raises ActionError where that is illegal.

    `n_buffers`: 1, or the number of buffers that are filled and read in rotation.
    """
    found = plan.loads
    if not isinstance(load, int) or not 0 <= load < len(found):
        raise ActionError("PACK: no such load", expected=f"0..{len(found) - 1}", found=load)
    u = found[load]
    if not plan.locals:
        raise ActionError("PACK after NOLOCALS", expected="local memory", found="none")
    if u in plan.packs or u in plan.flags:
        raise ActionError("PACK", expected="a load without PACK or PREFETCH", found="one that has it already")
    if block_of_sum(plan) is not None and are_sums_local(plan) and u in plan.epilogue:
        raise ActionError("PACK", expected="a load that the sum uses", found="a load of its epilogue")
    made = block_of(plan, u, n_buffers)
    if plan.workgroup:
        others = [block_of(plan, x, n) for x, n in plan.packs.items()]
        plan.workgroup.check_blocks(plan.axes, sum(b.local_bytes for b in (made, *others)))
    plan.packs[u] = n_buffers


def packs(plan: LoopNest) -> Iterator[Move]:
    """Yield a PACK of each load; on targets with workgroups also PACKs into two or more buffers, which are filled one
    step ahead.
    """
    buffer_counts = (None, 2, *((3, 4) if plan.target.bulk_copies else ())) if plan.target.workgroups else (None,)
    return ((("PACK", i, n),) for i in range(len(plan.loads)) for n in buffer_counts)


__all__ = ["Pack", "packs"]

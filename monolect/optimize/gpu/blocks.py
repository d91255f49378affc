"""Which kind of block a PACK copies to: of a thread, of a workgroup, or for a unit that reads it, in core matrices or
in panels.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from monolect.base.errors import ActionError
from monolect.ir.bounds import unused_slots
from monolect.ir.uop import UOp
from monolect.optimize.actions.pack import Block
from monolect.optimize.gpu.core_matrices import CoresBlock, reads_memory
from monolect.optimize.gpu.shared import SharedBlock
from monolect.optimize.gpu.tma_boxes import BoxBlock

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part, Plan


def block_of(plan: Plan, u: UOp, turns: int = 1) -> Block:
    """The block of the load `u`, in the local memory of a thread or of a workgroup; `turns`: blocks used in turns."""
    if plan.workgroup and reads_memory(plan, u):
        return _of_unit(plan, u, turns)
    if plan.workgroup:
        return SharedBlock(plan, u, turns)
    if turns != 1:
        raise ActionError("PACK of blocks in turns", expected="a target with workgroups", found=plan.target.name)
    return Block(plan, u)


def _of_unit(plan: Plan, u: UOp, turns: int) -> Block:
    """For a unit that reads local memory: by boxes where blocks are in turns and boxes fit, else by all lanes."""
    if plan.target.bulk_copies and turns > 1:
        try:
            return BoxBlock(plan, u, turns)
        except ActionError:
            if turns > CoresBlock.most_turns:
                raise
    return CoresBlock(plan, u, turns)


def shared_loads(plan: Plan, made: dict[Part, UOp]) -> dict[UOp, UOp]:
    """The loads that read a workgroup's block, in place of those that read memory. `made`: the RANGE of each part."""
    ids = count(len(plan.axes))
    slots = unused_slots(plan.order)
    return {u: block_of(plan, u, turns).packed(made, ids, slots) for u, turns in plan.packs.items()}

"""Choose the layout of a block that PACK fills: for a thread, for a workgroup, as core matrices, or as TMA panels."""

from __future__ import annotations

from itertools import count

from monolect.base.errors import ActionError
from monolect.ir.bounds import unused_slots
from monolect.ir.uop import UOp
from monolect.optimize.blocks.core_matrices import CoresBlock, unit_reads_local
from monolect.optimize.blocks.packed import PackedBlock
from monolect.optimize.blocks.shared import SharedBlock
from monolect.optimize.blocks.tma_boxes import BoxBlock
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest


def block_of(plan: LoopNest, u: UOp, n_buffers: int = 1) -> PackedBlock:
    """Return the layout of the packed block (`PackedBlock` or a subclass) into which PACK copies the memory that the
    LOAD `u` reads.

    `n_buffers`: 1, or the number of copies of the block in local memory that are filled and read in rotation. Raises
    ActionError where PACK is illegal, and for several buffers on a target without workgroups.
    """
    if plan.workgroup and unit_reads_local(plan, u):
        return _block_of_unit(plan, u, n_buffers)
    if plan.workgroup:
        return SharedBlock(plan, u, n_buffers)
    if n_buffers != 1:
        raise ActionError("PACK to several buffers", expected="a target with workgroups", found=plan.target.name)
    return PackedBlock(plan, u)


def _block_of_unit(plan: LoopNest, u: UOp, n_buffers: int) -> PackedBlock:
    """Return the block of an operand `u` that a matrix unit reads from local memory.

    It is a `BoxBlock`, which TMA copies, if there are several buffers and TMA boxes fit, else a `CoresBlock`, which the
    lanes copy. `n_buffers`: as in `block_of`.
    """
    if plan.target.bulk_copies and n_buffers > 1:
        try:
            return BoxBlock(plan, u, n_buffers)
        except ActionError:
            if n_buffers > CoresBlock.max_buffers:
                raise
    return CoresBlock(plan, u, n_buffers)


def shared_loads(plan: LoopNest, made: dict[AxisPart, UOp]) -> dict[UOp, UOp]:
    """Return {LOAD of the kernel: the LOAD from its packed block that replaces it}, for each load in `plan.packs`. For
    targets with workgroups, whose blocks are in a workgroup's local memory. `made`: {part of an axis: its new RANGE}.
    """
    ids = count(len(plan.axes))
    slots = unused_slots(plan.order)
    return {u: block_of(plan, u, n_buffers).packed(made, ids, slots) for u, n_buffers in plan.packs.items()}


__all__ = ["block_of", "shared_loads"]

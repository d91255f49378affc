"""Decide where the partial sums of a reduction that is cut into blocks are kept: in the output or in local memory.

The output buffer holds them if the output is the sum itself, has its dtype, and has the layout of the tiles. Otherwise
local memory does: the sum is rounded to 16 bits, has an epilogue, is transposed, or its blocks are short.

Each block rounds the partial sum once, so many blocks are cut once more, into groups. The sums of a group are kept in
local memory and added to the output at the end of the group. With n blocks, a result has about 2 * sqrt(n) roundings.
"""

from __future__ import annotations

from copy import copy
from math import prod
from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.rewrite.normal import linear
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.tuning import MIN_BLOCKS_TO_GROUP, MIN_GROUPING_GAIN, SHORT_BLOCK_STEPS


def blocks_of_sum(plan: LoopNest) -> list[AxisPart]:
    """Return the block loops of the reduction that is cut into blocks: the loop over groups of blocks first, if any."""
    found = [p for p in plan.axes if p.is_block and p.root in plan.reduced and p.size > 1]
    return sorted(found, key=lambda p: p.created)


def block_of_sum(plan: LoopNest) -> AxisPart | None:
    """Return the innermost block loop of the reduction that is cut into blocks, or None if no reduction is."""
    return next(reversed(blocks_of_sum(plan)), None)


def loops_in_block(plan: LoopNest) -> list[AxisPart]:
    """Return the parts of output axes inside the innermost block loop of the sum: all but threads and block loops
    around it.
    """
    block = block_of_sum(plan)
    outputs = (p for p in plan.axes if p.root not in plan.reduced and p.type != "THREAD")
    return [p for p in outputs if block is None or not p.is_block or p.created > block.created]


def partial_sum_bytes(plan: LoopNest) -> int:
    """Bytes of local memory for the partial sums of one iteration of the loops around; 0 for axes of symbolic size."""
    return prod(p.size for p in loops_in_block(plan)) * plan.reduces[0].dtype.itemsize


def are_sums_local(plan: LoopNest) -> bool:
    """Whether the partial sums are kept in local memory: they fit there, and the blocks of the sum are divided into
    groups (`has_groups`) or the output is unsuitable (`needs_local_accumulator`).

    Always False on a target with workgroups and after NOLOCALS.
    """
    if plan.workgroup or not plan.locals or not (has_groups(plan) or needs_local_accumulator(plan)):
        return False
    return 0 < partial_sum_bytes(plan) <= plan.target.local_bytes


def group_count(n: int) -> int:
    """Return the number of groups for `n` blocks, close to sqrt(n).

    1 where blocks are few or no divisor is close.
    """
    best = min((k for k in range(2, n) if n % k == 0), key=lambda k: max(k, n // k), default=n)
    return best if MIN_BLOCKS_TO_GROUP <= n >= MIN_GROUPING_GAIN * max(best, n // best) else 1


def has_groups(plan: LoopNest) -> bool:
    """Whether the blocks of the sum are divided into groups."""
    return len(blocks_of_sum(plan)) > 1


def has_accumulator(plan: LoopNest) -> bool:
    """Whether the output or local memory can hold the partial sums; with groups, both must."""
    if not (blocks := blocks_of_sum(plan)):
        return True
    accumulators = are_sums_local(plan), is_result_wide_enough(plan)
    return all(accumulators) if len(blocks) > 1 else any(accumulators)


def needs_local_accumulator(plan: LoopNest) -> bool:
    """Whether partial sums must be kept in local memory instead of the output buffer.

    The sum feeds an epilogue, or its layout differs from the output's, or the reduction blocks are too short.
    """
    return plan.stores[0].src[1] is not plan.reduces[0] or is_layout_transposed(plan) or are_blocks_short(plan)


def is_layout_transposed(plan: LoopNest) -> bool:
    """Whether the lanes of the kernel's only sum are not contiguous in its output."""
    if len(plan.stores) > 1 or len(plan.reduces) > 1 or (lane := plan.lane(plan.stores[0])) is None:
        return False
    return dict(linear(plan.stores[0].src[0].src[1])[1]).get(lane) != 1


def are_blocks_short(plan: LoopNest) -> bool:
    """Whether blocks are so short that the sums of a tile are loaded and stored about as often as the operands.

    In the output such rows may share L1 cache sets with each other, and cache lines with other threads.
    """
    block = block_of_sum(plan)
    rows = {p.root for p in plan.axes if p.type == "UPCAST" and p.root not in plan.reduced}
    n = prod(p.size for p in blocks_of_sum(plan))
    return block is not None and len(rows) > 1 and plan.extent(block.root) <= SHORT_BLOCK_STEPS * n


def is_result_wide_enough(plan: LoopNest) -> bool:
    """Whether the output has the dtype of the sum, so that it can hold partial sums."""
    return plan.stores[0].src[1].dtype is plan.reduces[0].dtype


def check_sums(plan: LoopNest, **changes: Any) -> None:
    """Raise ActionError unless, after `changes`, some memory can hold the partial sums of blocks of a reduction."""
    then = copy(plan)
    vars(then).update(changes)
    if not has_accumulator(then):
        expected = f"an output, or {plan.target.local_bytes} bytes of local memory, that can hold partial sums"
        raise ActionError("a reduction in blocks", expected=expected, found=f"{partial_sum_bytes(then)} bytes")


__all__ = [
    "are_blocks_short",
    "are_sums_local",
    "block_of_sum",
    "blocks_of_sum",
    "check_sums",
    "group_count",
    "has_accumulator",
    "has_groups",
    "loops_in_block",
    "is_layout_transposed",
    "is_result_wide_enough",
    "needs_local_accumulator",
    "partial_sum_bytes",
]

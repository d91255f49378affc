"""Decide where the partial sums of a reduction that is cut into blocks are kept: in the output or in local memory.

The output buffer holds the partial sums if the kernel stores the sum itself, in the sum's dtype and with vectors of
sums contiguous. Otherwise local memory holds them: the stored sum is rounded to 16 bits, has an epilogue, is
transposed, or its blocks are short.

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
    """Return the block loops of the reduction that SPLIT cut into blocks, outermost first: one, or two if the blocks
    are divided into groups (the loop over groups first). Empty if no reduction is cut.
    """
    found = [p for p in plan.axes if p.is_block and p.root in plan.reduced and p.size > 1]
    return sorted(found, key=lambda p: p.created)


def block_of_sum(plan: LoopNest) -> AxisPart | None:
    """Return the innermost block loop of the reduction that SPLIT cut into blocks, or None if no reduction is cut."""
    return next(reversed(blocks_of_sum(plan)), None)


def loops_in_block(plan: LoopNest) -> list[AxisPart]:
    """Return the parts of output axes whose loops run inside the innermost block loop of the blocked reduction: all but
    threads and the block loops around it.
    """
    block = block_of_sum(plan)
    outputs = (p for p in plan.axes if p.root not in plan.reduced and p.type != "THREAD")
    return [p for p in outputs if block is None or not p.is_block or p.created > block.created]


def partial_sum_bytes(plan: LoopNest) -> int:
    """Bytes of local memory that the partial sums of the blocked reduction need at a time: one sum for each iteration
    of `loops_in_block`. 0 if a loop has a symbolic size.
    """
    return prod(p.size for p in loops_in_block(plan)) * plan.reduces[0].dtype.itemsize


def are_sums_local(plan: LoopNest) -> bool:
    """Whether the partial sums of the blocked reduction are kept in local memory instead of the output.

    They are if they fit and either the blocks are divided into groups (`has_groups`) or the output buffer is unsuitable
    (`needs_local_accumulator`). Always False on a target with workgroups and after the action NOLOCALS.
    """
    if plan.workgroup or not plan.locals or not (has_groups(plan) or needs_local_accumulator(plan)):
        return False
    return 0 < partial_sum_bytes(plan) <= plan.target.local_bytes


def group_count(n: int) -> int:
    """Return the number of groups into which to divide `n` blocks of a reduction: a divisor of n close to sqrt(n).

    It is 1 (no groups) where blocks are few or no divisor is close.
    """
    best = min((k for k in range(2, n) if n % k == 0), key=lambda k: max(k, n // k), default=n)
    return best if MIN_BLOCKS_TO_GROUP <= n >= MIN_GROUPING_GAIN * max(best, n // best) else 1


def has_groups(plan: LoopNest) -> bool:
    """Whether the blocks of the blocked reduction are divided into groups, by a second block loop."""
    return len(blocks_of_sum(plan)) > 1


def has_accumulator(plan: LoopNest) -> bool:
    """Whether the output or local memory can hold the partial sums of the blocked reduction; with groups of blocks,
    both must. True if no reduction is cut into blocks.
    """
    if not (blocks := blocks_of_sum(plan)):
        return True
    accumulators = are_sums_local(plan), is_result_wide_enough(plan)
    return all(accumulators) if len(blocks) > 1 else any(accumulators)


def needs_local_accumulator(plan: LoopNest) -> bool:
    """Whether the output buffer is unsuitable for the partial sums of the blocked reduction, so that local memory must
    hold them.

    It is unsuitable if the kernel stores a function of the sum (an epilogue), if vectors of sums are not contiguous in
    the output, or if the blocks are too short (`are_blocks_short`).
    """
    return plan.stores[0].src[1] is not plan.reduces[0] or is_layout_transposed(plan) or are_blocks_short(plan)


def is_layout_transposed(plan: LoopNest) -> bool:
    """Whether the vector lanes of the kernel's only sum are not contiguous in its output. False with several sums or
    stores, or without a vector axis.
    """
    if len(plan.stores) > 1 or len(plan.reduces) > 1 or (lane := plan.lane(plan.stores[0])) is None:
        return False
    return dict(linear(plan.stores[0].src[0].src[1])[1]).get(lane) != 1


def are_blocks_short(plan: LoopNest) -> bool:
    """Whether the blocks of the reduction have at most SHORT_BLOCK_STEPS iterations, in a tile of several rows.

    Partial sums are then loaded and stored about as often as operands. In the output buffer, such rows may share L1
    cache sets with each other, and cache lines with other threads.
    """
    block = block_of_sum(plan)
    rows = {p.root for p in plan.axes if p.type == "UPCAST" and p.root not in plan.reduced}
    n = prod(p.size for p in blocks_of_sum(plan))
    return block is not None and len(rows) > 1 and plan.extent(block.root) <= SHORT_BLOCK_STEPS * n


def is_result_wide_enough(plan: LoopNest) -> bool:
    """Whether the output has the dtype of the kernel's sum, so that it can hold partial sums without a rounding."""
    return plan.stores[0].src[1].dtype is plan.reduces[0].dtype


def check_sums(plan: LoopNest, **changes: Any) -> None:
    """Raise ActionError if no memory can hold the partial sums of a reduction in blocks, once the attributes of `plan`
    have the values `changes` (such as `axes`). The plan itself is not changed.
    """
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

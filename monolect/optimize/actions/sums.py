"""Store the partial sums of a reduction that is cut into blocks, in the output buffer or in local memory.

Each block adds to the output buffer if the output is the sum itself, has its dtype, and has the layout of the tiles.
Otherwise the partial sums are kept in local memory, inside of the block loop: the sum is rounded to 16 bits, has an
epilogue, or is transposed. The block's loops add to them, and loops after the last block read each sum once, finish and
store it.

Before: END(STORE(INDEX(OUT, i), f(REDUCE(ADD, x, j))), i)                        j in blocks b
After:  END(STORE(INDEX(OUT, i'), f(LOAD(INDEX(AFTER(LOCAL, END(STORE(INDEX(LOCAL, i),
            ADD(LOAD(INDEX(LOCAL, i), 0, 0 < b), REDUCE(ADD, x, j))), b, i)), i')))), i')
A block's partial sum is read AFTER the sum of the next block, so that registers hold only that sum until then.

Each block rounds the partial sum once, so many blocks are cut once more, into groups. The sums of a group are kept in
local memory and added to the output at the end of the group. With n blocks, a result has about 2 * sqrt(n) roundings.
Invariant: loops around b are around both loop nests; sums are stored in the order in which both visit them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from monolect.ir.bounds import unused_ranges, unused_slots
from monolect.ir.ops import BufferArg
from monolect.ir.rewrite.normal import less, linear
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute, toposort

if TYPE_CHECKING:
    from monolect.optimize.actions.peel import Peeler
    from monolect.optimize.actions.plan import AxisPart, LoopPlan

MIN_BLOCKS_TO_GROUP = 64  # blocks; with fewer, their roundings do not justify a second buffer for sums
MIN_GROUPING_GAIN = 4  # factor by which groups must reduce the number of roundings
SHORT_BLOCK_STEPS = 32  # reduction steps; up to this block length, tiles of several rows accumulate in local memory


def blocks_of_sum(plan: LoopPlan) -> list[AxisPart]:
    """Return the block loops of the reduction that is cut into blocks: the loop over groups of blocks first, if any."""
    found = [p for p in plan.axes if p.is_block and p.root in plan.reduced and p.size > 1]
    return sorted(found, key=lambda p: p.created)


def block_of_sum(plan: LoopPlan) -> AxisPart | None:
    """Return the innermost block loop of the reduction that is cut into blocks, or None if no reduction is."""
    return next(reversed(blocks_of_sum(plan)), None)


def inside(plan: LoopPlan) -> list[AxisPart]:
    """Return the output loops inside the block loop of the sum: all but threads and block loops around it."""
    block = block_of_sum(plan)
    outputs = (p for p in plan.axes if p.root not in plan.reduced and p.type != "THREAD")
    return [p for p in outputs if block is None or not p.is_block or p.created > block.created]


def partial_sum_bytes(plan: LoopPlan) -> int:
    """Bytes of local memory for the partial sums of one iteration of the loops around; 0 for axes of symbolic size."""
    return prod(p.size for p in inside(plan)) * plan.reduces[0].dtype.itemsize


def are_sums_local(plan: LoopPlan) -> bool:
    """Whether the partial sums are kept in local memory: blocks are grouped or the output should not hold them, and
    they fit.
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


def has_groups(plan: LoopPlan) -> bool:
    """Whether the blocks of the sum are divided into groups."""
    return len(blocks_of_sum(plan)) > 1


def has_accumulator(plan: LoopPlan) -> bool:
    """Whether the output or local memory can hold the partial sums; with groups, both must."""
    if not (blocks := blocks_of_sum(plan)):
        return True
    accumulators = are_sums_local(plan), is_result_wide_enough(plan)
    return all(accumulators) if len(blocks) > 1 else any(accumulators)


def needs_local_accumulator(plan: LoopPlan) -> bool:
    """Whether partial sums must be kept in local memory instead of the output buffer.

    The sum feeds an epilogue, or its layout differs from the output's, or the reduction blocks are too short.
    """
    return plan.stores[0].src[1] is not plan.reduces[0] or is_layout_transposed(plan) or are_blocks_short(plan)


def is_layout_transposed(plan: LoopPlan) -> bool:
    """Whether the lanes of the kernel's only sum are not contiguous in its output."""
    if len(plan.stores) > 1 or len(plan.reduces) > 1 or (lane := plan.lane(plan.stores[0])) is None:
        return False
    return dict(linear(plan.stores[0].src[0].src[1])[1]).get(lane) != 1


def are_blocks_short(plan: LoopPlan) -> bool:
    """Whether blocks are so short that the sums of a tile are loaded and stored about as often as the operands.

    In the output such rows may share L1 cache sets with each other, and cache lines with other threads.
    """
    block = block_of_sum(plan)
    rows = {p.root for p in plan.axes if p.type == "UPCAST" and p.root not in plan.reduced}
    n = prod(p.size for p in blocks_of_sum(plan))
    return block is not None and len(rows) > 1 and plan.extent(block.root) <= SHORT_BLOCK_STEPS * n


def is_result_wide_enough(plan: LoopPlan) -> bool:
    """Whether the output has the dtype of the sum, so that it can hold partial sums."""
    return plan.stores[0].src[1].dtype is plan.reduces[0].dtype


def accumulate_locally(
    plan: LoopPlan, store: UOp, total: UOp, made: list[tuple[AxisPart, UOp]], block: UOp, peeler: Peeler
) -> tuple[UOp, dict[UOp, UOp]]:
    """Accumulate the sum `total` over all blocks in local memory; return (the load of a finished sum, the new loops).

    The new loops run after the blocks and perform `store`; each is returned under the old loop that it repeats.
    """
    parts = inside(plan)
    mine = [(p, r) for p, r in made if p in parts]
    order = toposort(store)
    ids = unused_ranges(order)
    slot = next(unused_slots(order))
    loops_after: dict[UOp, UOp] = {}
    index, step = idx(0), 1
    for p, r in reversed(mine):
        index, step = index + r * step, step * p.size
    for _, r in mine:  # outermost first, as bounds of inner loops may depend on outer loops
        loops_after[r] = node("RANGE", tuple(substitute(s, loops_after) for s in r.src), (next(ids), r.arg[1]))
    memory = node("BUFFER", (shape_source((step,)),), BufferArg(slot, total.dtype, None, "LOCAL"))
    target = node("INDEX", (memory, index))
    if are_blocks_short(plan):  # zero first, so that the load needs no gate, which would mask it
        around = (r for p, r in made if p.type == "THREAD" or (p.is_block and p not in parts and r is not block))
        known = node("AFTER", (memory, total, _zero_fill(memory, index, [r for _, r in mine], tuple(around), ids)))
        old = node("LOAD", (node("INDEX", (known, index)),))
    else:
        known = node("AFTER", (memory, total))
        old = node("LOAD", (node("INDEX", (known, index)), const(0, total.dtype), less(idx(0), block)))
    end = node("END", (node("STORE", (target, build("ADD", old, total))), block, *loops_after))
    filled = node("AFTER", (memory, *peeler.run((end,), loops_after.values())))
    return node("LOAD", (node("INDEX", (filled, substitute(index, loops_after))),)), loops_after


def _zero_fill(memory: UOp, index: UOp, loops: list[UOp], around: tuple[UOp, ...], ids: Iterator[int]) -> UOp:
    """Return the END of loops like `loops` that fill `memory` with zeros, once in each iteration of the loops
    around.
    """
    new: dict[UOp, UOp] = {}
    for r in loops:
        new[r] = node("RANGE", tuple(substitute(s, new) for s in r.src), (next(ids), r.arg[1]))
    fresh = node("AFTER", (memory, *around)) if around else memory
    store = node("STORE", (node("INDEX", (fresh, substitute(index, new))), const(0, memory.dtype)))
    return node("END", (store, *new.values()))


__all__ = [
    "accumulate_locally",
    "are_blocks_short",
    "are_sums_local",
    "block_of_sum",
    "blocks_of_sum",
    "group_count",
    "has_accumulator",
    "has_groups",
    "inside",
    "is_layout_transposed",
    "is_result_wide_enough",
    "needs_local_accumulator",
    "partial_sum_bytes",
]

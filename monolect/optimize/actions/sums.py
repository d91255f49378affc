"""Sums in blocks: where what a block leaves waits for the next one.

A reduction cut into blocks adds up in the place of its result, where that is the sum itself, and lies as the tiles do.
Otherwise, in what is rounded to 16 bits, finished by other operations or turned around, sums stand in local memory, at
the level of the block: its loops fill them as those of a stage do, then loops of their own read each once, finish and
store it.

Before: END(STORE(INDEX(OUT, i), f(REDUCE(ADD, x, j))), i)                        j in blocks b
After:  END(STORE(INDEX(OUT, i'), f(LOAD(INDEX(AFTER(LOCAL, END(STORE(INDEX(LOCAL, i),
            ADD(LOAD(INDEX(LOCAL, i), 0, 0 < b), REDUCE(ADD, x, j))), b, i)), i')))), i')
What a block left is read AFTER the sum of the next: until then registers hold that alone.

Each block is a rounding of all that came before it, so many blocks are cut once more, into groups: the sums of a group
stand in local memory, and are added to the result at its end. Of n blocks, each result sees twice the root of n.
Invariant: loops around b are around both; sums lie in the order in which both visit them.
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
    from monolect.optimize.actions.plan import Part, Plan

MANY_BLOCKS = 64  # roundings of a result that are worth a second place for sums
GAIN = 4  # times fewer of them in groups
SHORT_BLOCK = 32  # steps of a sum, of a few rows that stream


def blocks_of_sum(plan: Plan) -> list[Part]:
    """The blocks of the reduction that is cut, behind the groups of them if there are any."""
    found = [p for p in plan.axes if p.is_block and p.root in plan.reduced and p.size > 1]
    return sorted(found, key=lambda p: p.made)


def block_of_sum(plan: Plan) -> Part | None:
    """The blocks of the reduction that is cut."""
    return next(reversed(blocks_of_sum(plan)), None)


def inside(plan: Plan) -> list[Part]:
    """The loops over results around which the blocks of the sum stand: all but those of threads and earlier blocks."""
    block = block_of_sum(plan)
    outputs = (p for p in plan.axes if p.root not in plan.reduced and p.type != "THREAD")
    return [p for p in outputs if block is None or not p.is_block or p.made > block.made]


def bytes_of_sums(plan: Plan) -> int:
    """Local memory that the sums of one iteration of the loops around take; 0 for axes of symbolic size."""
    return prod(p.size for p in inside(plan)) * plan.reduces[0].dtype.itemsize


def are_local(plan: Plan) -> bool:
    """Whether the sums stand in local memory: they had better, and it holds them."""
    if plan.workgroup or not plan.locals or not (in_groups(plan) or had_better_wait(plan)):
        return False
    return 0 < bytes_of_sums(plan) <= plan.target.local_bytes


def groups(n: int) -> int:
    """How many groups `n` blocks make, about as many as one has blocks; 1 where they are few, or no divisor is near."""
    best = min((k for k in range(2, n) if n % k == 0), key=lambda k: max(k, n // k), default=n)
    return best if MANY_BLOCKS <= n >= GAIN * max(best, n // best) else 1


def in_groups(plan: Plan) -> bool:
    """Whether there are groups of blocks."""
    return len(blocks_of_sum(plan)) > 1


def have_place(plan: Plan) -> bool:
    """Whether there is a place for what blocks leave, and for what groups do."""
    if not (blocks := blocks_of_sum(plan)):
        return True
    places = are_local(plan), are_in_result(plan)
    return all(places) if len(blocks) > 1 else any(places)


def had_better_wait(plan: Plan) -> bool:
    """Whether the result is no place for sums: they are to be finished, or each block would turn them around to get
    them there, and back, or blocks are short.
    """
    return plan.stores[0].src[1] is not plan.reduces[0] or are_turned(plan) or are_moved_often(plan)


def are_turned(plan: Plan) -> bool:
    """Whether the lanes of the kernel's only sum are no neighbours in its result."""
    if len(plan.stores) > 1 or len(plan.reduces) > 1 or (lane := plan.lane(plan.stores[0])) is None:
        return False
    return dict(linear(plan.stores[0].src[0].src[1])[1]).get(lane) != 1


def are_moved_often(plan: Plan) -> bool:
    """Whether blocks are so short that the sums of a tile of rows are loaded and stored about as often as what is read
    for them. In the result such rows may share sets of the first cache with each other, and lines with other threads.
    """
    block = block_of_sum(plan)
    rows = {p.root for p in plan.axes if p.type == "UPCAST" and p.root not in plan.reduced}
    n = prod(p.size for p in blocks_of_sum(plan))
    return block is not None and len(rows) > 1 and plan.extent(block.root) <= SHORT_BLOCK * n


def are_in_result(plan: Plan) -> bool:
    """Whether the sums may stand in the place of the result."""
    return plan.stores[0].src[1].dtype is plan.reduces[0].dtype


def waiting(
    plan: Plan, store: UOp, total: UOp, made: list[tuple[Part, UOp]], block: UOp, peeler: Peeler
) -> tuple[UOp, dict[UOp, UOp]]:
    """What all blocks make of `total`, in loops of its own after them, for what is made of it to `store`; and those
    loops, by those that they repeat.
    """
    parts = inside(plan)
    mine = [(p, r) for p, r in made if p in parts]
    order = toposort(store)
    ids = unused_ranges(order)
    slot = next(unused_slots(order))
    again: dict[UOp, UOp] = {}
    place, step = idx(0), 1
    for p, r in reversed(mine):
        place, step = place + r * step, step * p.size
    for _, r in mine:  # outermost first: bounds of inner loops may depend on them
        again[r] = node("RANGE", tuple(substitute(s, again) for s in r.src), (next(ids), r.arg[1]))
    memory = node("BUFFER", (shape_source((step,)),), BufferArg(slot, total.dtype, None, "LOCAL"))
    target = node("INDEX", (memory, place))
    if are_moved_often(plan):  # what is not gated is not masked
        around = (r for p, r in made if p.type == "THREAD" or (p.is_block and p not in parts and r is not block))
        known = node("AFTER", (memory, total, _zeroed(memory, place, [r for _, r in mine], tuple(around), ids)))
        old = node("LOAD", (node("INDEX", (known, place)),))
    else:
        known = node("AFTER", (memory, total))
        old = node("LOAD", (node("INDEX", (known, place)), const(0, total.dtype), less(idx(0), block)))
    end = node("END", (node("STORE", (target, build("ADD", old, total))), block, *again))
    filled = node("AFTER", (memory, *peeler.run((end,), again.values())))
    return node("LOAD", (node("INDEX", (filled, substitute(place, again))),)), again


def _zeroed(memory: UOp, place: UOp, loops: list[UOp], around: tuple[UOp, ...], ids: Iterator[int]) -> UOp:
    """The loops that fill `memory` with zeros, all places of `loops`, once in each iteration of those around."""
    new: dict[UOp, UOp] = {}
    for r in loops:
        new[r] = node("RANGE", tuple(substitute(s, new) for s in r.src), (next(ids), r.arg[1]))
    anew = node("AFTER", (memory, *around)) if around else memory
    store = node("STORE", (node("INDEX", (anew, substitute(place, new))), const(0, memory.dtype)))
    return node("END", (store, *new.values()))

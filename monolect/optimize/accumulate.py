"""Rewrite the store of a blocked reduction so that the partial sums of its blocks are kept in local memory.

`optimize.loops.partial_sums` decides whether partial sums are kept so. In each block, the loops inside the block add to
the partial sums in local memory. Loops after the last block read each sum once, apply the epilogue and store the
result.

Before: END(STORE(INDEX(OUT, i), f(REDUCE(ADD, x, j))), i)                        j in blocks b
After:  END(STORE(INDEX(OUT, i'), f(LOAD(INDEX(AFTER(LOCAL, END(STORE(INDEX(LOCAL, i),
            ADD(LOAD(INDEX(LOCAL, i), 0, 0 < b), REDUCE(ADD, x, j))), b, i)), i')))), i')
The old partial sum is read AFTER the sum of the current block is known, so that registers hold only one sum until then.
If blocks are short, loops fill LOCAL with zeros first, and the load has no gate.
Invariant: loops around b enclose both loop nests; LOCAL has the sums in the order in which both nests visit them.
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.ir.bounds import unused_ranges, unused_slots
from monolect.ir.ops import BufferArg
from monolect.ir.rewrite.normal import less
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute, toposort
from monolect.optimize.actions.peel import Peeler
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.loops.partial_sums import are_blocks_short, loops_in_block


def accumulate_locally(
    plan: LoopNest, store: UOp, total: UOp, made: list[tuple[AxisPart, UOp]], block: UOp, peeler: Peeler
) -> tuple[UOp, dict[UOp, UOp]]:
    """Accumulate the sum `total` of a blocked reduction over all blocks in a LOCAL buffer; return (the LOAD of a
    finished sum, {RANGE inside the blocks: its copy after the last block}).

    `store`, the kernel's STORE of the sum, is to run in the copied loops, after the last block; the caller rewrites it
    with the two results. `made`: (part of an axis, its new RANGE) pairs. `block`: the RANGE of the block loop.
    `peeler`: cuts the copied loops where PEEL cut the original ones.
    """
    parts = loops_in_block(plan)
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
    """Return an END that fills the BUFFER `memory` with zeros, in copies of the RANGEs `loops`, once in each iteration
    of the RANGEs `around`.

    `index`: the index of an element of `memory` in terms of `loops`. `ids`: free numbers of RANGEs.
    """
    new: dict[UOp, UOp] = {}
    for r in loops:
        new[r] = node("RANGE", tuple(substitute(s, new) for s in r.src), (next(ids), r.arg[1]))
    fresh = node("AFTER", (memory, *around)) if around else memory
    store = node("STORE", (node("INDEX", (fresh, substitute(index, new))), const(0, memory.dtype)))
    return node("END", (store, *new.values()))


__all__ = ["accumulate_locally"]

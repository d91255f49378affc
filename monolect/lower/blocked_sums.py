"""Add long float32 sums in blocks, each with its own accumulator (blocked summation).

An accumulator rounds once for each value that is added to it. In one accumulator of a million values, the errors of a
million roundings add up; with a thousand blocks of a thousand values, those of two thousand. So each block of a long
sum has an accumulator that starts at zero and is added to the outer accumulator when the block ends. That costs one
addition and one loop end per block.

Reductions over the same loop stay in one loop: all of them are blocked, or none is. The accumulators of a tile of a
contraction fill the registers, so while a block runs, the outer accumulators are spilled. Blocks of tiles are therefore
longer: the load, addition and store of each accumulator take 1/200 of the time of 512 steps (1/100 of that of 256,
which is measurable in products of 512).

What it is not: it does not make accumulators (`reduce`), split sums over threads (`split_reductions`), or keep partial
sums in memory (`optimize.loops.partial_sums`).

Before: REDUCE(ADD, x(r), r)                               r: 0..1023
After:  REDUCE(ADD, REDUCE(ADD, x(r' * 128 + r"), r"), r') r': 0..7, r": 0..127
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isqrt, prod

from monolect.base.dtype import dtypes
from monolect.ir.bounds import min_max, replace_ranges, unused_ranges
from monolect.ir.rewrite.normal import smaller
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild
from monolect.lower.peel_last import LOOP_AND_MEMORY_OPS, Loops, loops_of, step_of

MIN_PART = 128  # values; a block of a sum with few lanes has at least as many
MAX_CHAIN = 2 * MIN_PART  # values; sums of at most this length are not blocked
LONG_PART = 512  # values; a block of a tile's sums has at least as many
MAX_SHORT_PART_LANES = 128  # float32 lanes (eight registers of 512 bits); outer accumulators of more lanes are spilled
MAX_LANES = 512  # float32 lanes (all registers); sums of more lanes are not blocked
# ops of loop bodies that are not blocked: loops, memory, and ops that lanes execute together
_REFUSED = LOOP_AND_MEMORY_OPS | {"BARRIER", "WMMA"}


def fold_sums(sink: UOp) -> UOp:
    """Pass: add the long float32 sums of a kernel in blocks."""
    order = nodes_of(sink)
    if not (found := _foldable_loops(order)):
        return sink
    ids = unused_ranges(order)
    # (outer loops, inner loops, substitution) by loop and level
    parts: dict[tuple[Loops, int], tuple[list[UOp], list[UOp], dict[UOp, UOp]]] = {}
    level: dict[UOp, int] = {}  # reductions that a value depends on, nested
    new: dict[UOp, UOp] = {}
    for u in order:
        level[u] = max((level[s] for s in u.src), default=0)
        new[u] = rebuild(u, tuple(new[s] for s in u.src))
        if u.op == "REDUCE" and len(u.src) > 1:
            level[u] += 1
            if loops_of(u) in found:
                closed = sorted((r for r in u.src[1:] if r.arg[1] != "UNROLL"), key=lambda r: r.arg[0])
                key = loops_of(u), level[u]
                if key not in parts:
                    copies = prod(r.src[0].value for r in u.src[1:] if r.arg[1] == "UNROLL")
                    parts[key] = split(closed, _min_part(u) // copies, ids)
                new[u] = _in_parts(u, new[u], *parts[key])
    return new[sink]


def _in_parts(u: UOp, v: UOp, over: list[UOp], within: list[UOp], substitution: dict[UOp, UOp]) -> UOp:
    """Return the REDUCE `u` as a REDUCE over the blocks `over` of a REDUCE over the loops `within` a block.

    `v` is `u` with rewritten sources, and `substitution` replaces its loops. `v` is returned unchanged if `over` is
    empty, that is, if there is one block.
    """
    if not over:
        return v
    unrolled = (r for r in v.src[1:] if r.arg[1] == "UNROLL")
    part = node("REDUCE", (replace_ranges(v.src[0], substitution), *within, *unrolled), v.arg)
    out = node("REDUCE", (part, *over), v.arg, v.tag)
    part.origin = out.origin = u.origin
    return out


def _foldable_loops(order: Sequence[UOp]) -> frozenset[Loops]:
    """Return the key (`loops_of`) of each loop in the nodes `order` whose reductions are done in blocks."""
    long: set[Loops] = set()
    refused: set[Loops] = set()
    for u in order:
        if u.op == "REDUCE" and len(u.src) > 1:
            if not _is_foldable(u):
                refused.add(loops_of(u))
            elif u.arg[0] == "ADD" and u.dtype == dtypes.float32:
                long.add(loops_of(u))
    return frozenset(long - refused)


def _is_foldable(u: UOp) -> bool:
    """Whether the REDUCE `u` may be done in blocks: it is long, has few accumulators, and no op of `_REFUSED`
    is in its loop body.
    """
    loops = u.src[1:]
    if prod(map(_max_iterations, loops)) <= MAX_CHAIN:
        return False
    return prod(u.shape) <= MAX_LANES and not any(v.op in _REFUSED for v in step_of(u, loops))


def _min_part(u: UOp) -> int:
    """Return the minimum number of values of a block of the sum `u`."""
    return MIN_PART if prod(u.shape) <= MAX_SHORT_PART_LANES else LONG_PART


def split(loops: list[UOp], least: int, ids: Iterator[int]) -> tuple[list[UOp], list[UOp], dict[UOp, UOp]]:
    """Split `loops`, outermost first, into loops over blocks and loops within a block of about sqrt(iterations) steps,
    or `least` if that is more.

    Return (outer loops, inner loops, the replacement of each split or renumbered loop; empty if no loop had to be
    split). `ids` numbers new RANGEs.
    """
    wanted = max(least, isqrt(prod(map(_max_iterations, loops))), 1)
    over, done = list(loops), 1
    within: list[UOp] = []
    while over and over[-1].src[0].op == "CONST" and done * over[-1].src[0].value < 2 * wanted:
        within.insert(0, over.pop())
        done *= within[0].src[0].value
    substitution: dict[UOp, UOp] = {}
    if not over or (within and 2 * done >= wanted):
        return over, within, substitution
    r = over.pop()
    n, steps = r.src[0], -(-wanted // done)
    if n.op == "CONST":
        steps = _nearest_divisor(n.value, steps)
    outside = node("RANGE", (build("IDIV", n + (steps - 1), idx(steps)),), r.arg)
    whole = n.op == "CONST" and n.value % steps == 0
    bound = idx(steps) if whole else smaller(outside * -steps + n, steps)
    inside = node("RANGE", (bound,), (next(ids), r.arg[1]))
    substitution[r] = outside * steps + inside
    for x in within:  # loops nest in the order of their numbers, so inner loops get new ones
        substitution[x] = node("RANGE", x.src, (next(ids), x.arg[1]))
    return [*over, outside], [inside, *(substitution[x] for x in within)], substitution


def _max_iterations(r: UOp) -> int:
    """Return the maximum number of iterations of the loop `r`, which may be symbolic or bounded by a mask."""
    return min_max(r.src[0])[1]


def _nearest_divisor(n: int, wanted: int) -> int:
    """Return the divisor of n that is nearest to `wanted`, within a factor of 2, or else `wanted`."""
    near = [d for d in range(max(wanted // 2, 2), 2 * wanted + 1) if n % d == 0]
    return min(near, key=lambda d: max(d, wanted) / min(d, wanted), default=wanted)


__all__ = ["fold_sums", "split"]

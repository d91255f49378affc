"""Which sums in float32 are added part by part, and the loops that do it.

An accumulator is off by a rounding for each value it has taken: of a million values by a million roundings, of the sums
of a thousand parts by two thousand. So a long chain goes to an accumulator of its own that starts at zero in each part,
and is added to the other one when the part ends: one addition, and one end of a loop, for `PART` values.

Reductions over the same loop stay in one: all of them are added so, or none is. Tiles of products fill the registers
with accumulators: while a part runs, those of the whole sum wait in memory. So their parts are longer: beside 512 steps
a load, an addition and a store of each accumulator are 1/200 (of 256 steps 1/100, which shows in products of 512).

What it is not: the accumulators, which `reduce` makes; sums over many cores (`split_reductions`); blocks that are
added in memory (`optimize.sums`).

Before: r (0..1023)
After:  r' (0..7) over r" (0..127), r = r' * 128 + r"
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod

from monolect.base.dtype import dtypes
from monolect.ir.bounds import min_max
from monolect.ir.normal import smaller
from monolect.ir.uop import UOp, build, idx, node
from monolect.lower.tails import OWN, Loops, loops_of, step_of

PART = 128  # values that one accumulator takes, at the least
LONGEST = 2 * PART  # chains that are left as they are
LONG_PART = 512  # the same of tiles
FEW_LANES = 128  # in float32, eight registers of 512 bits: as many again fit beside them
MOST_LANES = 512  # of a tile, all registers there are
_OWN = OWN | {"BARRIER", "WMMA"}  # nor what lanes do together


def folded(order: list[UOp]) -> frozenset[Loops]:
    """The loops whose reductions are added part by part."""
    long: set[Loops] = set()
    refused: set[Loops] = set()
    for u in order:
        if u.op == "REDUCE" and len(u.src) > 1:
            if not _may(u):
                refused.add(loops_of(u))
            elif u.arg[0] == "ADD" and u.dtype == dtypes.float32:
                long.add(loops_of(u))
    return frozenset(long - refused)


def _may(u: UOp) -> bool:
    """A long chain, few accumulators, and in a step no loop or memory of its own."""
    loops = u.src[1:]
    if prod(map(_most, loops)) <= LONGEST:
        return False
    return prod(u.shape) <= MOST_LANES and not any(v.op in _OWN for v in step_of(u, loops))


def part_of(u: UOp) -> int:
    """How many values a part of the sum `u` has, at the least."""
    return PART if prod(u.shape) <= FEW_LANES else LONG_PART


def split(loops: list[UOp], least: int, ids: Iterator[int]) -> tuple[list[UOp], list[UOp], dict[UOp, UOp]]:
    """The loops over parts, those within one, and what stands for `loops`, which come outermost first. A part has
    `least` steps or about as many.
    """
    want = max(least, isqrt(prod(map(_most, loops))), 1)
    over, done = list(loops), 1
    within: list[UOp] = []
    while over and over[-1].src[0].op == "CONST" and done * over[-1].src[0].value < 2 * want:
        within.insert(0, over.pop())
        done *= within[0].src[0].value
    places: dict[UOp, UOp] = {}
    if not over or (within and 2 * done >= want):
        return over, within, places
    r = over.pop()
    n, steps = r.src[0], -(-want // done)
    if n.op == "CONST":
        steps = _part(n.value, steps)
    outside = node("RANGE", (build("IDIV", n + (steps - 1), idx(steps)),), r.arg)
    whole = n.op == "CONST" and n.value % steps == 0
    bound = idx(steps) if whole else smaller(outside * -steps + n, steps)
    inside = node("RANGE", (bound,), (next(ids), r.arg[1]))
    places[r] = outside * steps + inside
    for x in within:  # loops nest in the order of their numbers
        places[x] = node("RANGE", x.src, (next(ids), x.arg[1]))
    return [*over, outside], [inside, *(places[x] for x in within)], places


def _most(r: UOp) -> int:
    """The most iterations of a loop: where a mask hides the rest, and of symbolic size, it may have fewer."""
    return min_max(r.src[0])[1]


def _part(n: int, want: int) -> int:
    """The steps of a part: what divides n, when it is about as many as wanted."""
    near = [d for d in range(max(want // 2, 2), 2 * want + 1) if n % d == 0]
    return min(near, key=lambda d: max(d, want) / min(d, want), default=want)

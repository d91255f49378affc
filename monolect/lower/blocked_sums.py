"""Add long sums in float32 part by part.

An accumulator is off by one rounding for each value it takes: after a million values by a million roundings, after the
sums of a thousand parts by two thousand. So each part of a long sum has an accumulator of its own that starts at zero
and is added to the other one when the part ends: one addition, and one end of a loop, for `PART` values.

Reductions over the same loop stay in one loop: all of them have parts, or none has. The accumulators of a tile of
products fill the registers: while a part runs, those of the whole sum are spilled. So parts of tiles are longer: the
load, addition and store of each accumulator take 1/200 of 512 steps (1/100 of 256, which shows in products of 512).

What it is not: the accumulators, which `reduce` makes; sums over many cores (`split_reductions`); blocks that are
added in memory (`optimize.actions.sums`).

Before: REDUCE(ADD, x(r), r)                               r: 0..1023
After:  REDUCE(ADD, REDUCE(ADD, x(r' * 128 + r"), r"), r') r': 0..7, r": 0..127
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod

from monolect.base.dtype import dtypes
from monolect.ir.bounds import min_max, replace_ranges, unused_ranges
from monolect.ir.rewrite.normal import smaller
from monolect.ir.uop import UOp, build, idx, node, rebuild, toposort
from monolect.lower.peel_last import OWN, Loops, loops_of, step_of

PART = 128  # values that one accumulator takes, at the least
LONGEST = 2 * PART  # chains that are left as they are
LONG_PART = 512  # the same of tiles
FEW_LANES = 128  # in float32, eight registers of 512 bits: as many again fit beside them
MOST_LANES = 512  # of a tile, all registers there are
_OWN = OWN | {"BARRIER", "WMMA"}  # nor what lanes do together


def fold_sums(sink: UOp) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    if not (found := _folded(order)):
        return sink
    ids = unused_ranges(order)
    parts: dict[tuple[Loops, int], tuple[list[UOp], list[UOp], dict[UOp, UOp]]] = {}  # by loop and level
    level: dict[UOp, int] = {}  # how many reductions a value waits for
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
                    parts[key] = split(closed, _part_of(u) // copies, ids)
                new[u] = _in_parts(u, new[u], *parts[key])
    return new[sink]


def _in_parts(u: UOp, v: UOp, over: list[UOp], within: list[UOp], places: dict[UOp, UOp]) -> UOp:
    """The reduction `u`, which is now `v`, as one over parts of one within each; `v` where it is one part."""
    if not over:
        return v
    unrolled = (r for r in v.src[1:] if r.arg[1] == "UNROLL")
    part = node("REDUCE", (replace_ranges(v.src[0], places), *within, *unrolled), v.arg)
    out = node("REDUCE", (part, *over), v.arg, v.tag)
    part.origin = out.origin = u.origin
    return out


def _folded(order: list[UOp]) -> frozenset[Loops]:
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


def _part_of(u: UOp) -> int:
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

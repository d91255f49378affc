"""Sums by class become a table in local memory.

`binned`: the sum over all j of [place(j) == i] * f(j), i being an output loop, is the table of all sums by place. One
loop over j fills it, so a scattered sum by one-hot masks takes n + m steps, not n * m.

Before: REDUCE(ADD, WHERE(CMPEQ(place(r1000), r0), f(r1000), 0), r1000)
After:  LOAD(INDEX(AFTER(table, END(STORE(INDEX(table, place(r)), ADD(LOAD(INDEX(table, place(r))), f(r))), r)), r0))

Sums over earlier elements of the same class are carried through a loop.

What it is for: `tallies`, the sum over j <= i (or j < i) of [k(j) == k(i)] * f(j), i being an output loop as long as j and
the class k a small integer. The table has a place for each class; iteration i adds f(i) to the place of k(i). With f = 1
that is the rank of an element within its class, which is what a pass of a radix sort must know.

Before: REDUCE(ADD, WHERE(AND(CMPLT(r1000 - r0, 0), CMPEQ(k(r1000), k(r0))), 1, 0), r1000)
After:  AFTER(n, STORE(INDEX(table, k(r0)), n)) - 1 with n = LOAD(INDEX(table, k(r0))) + 1; zeros before the loop r0
"""

from __future__ import annotations

from itertools import count
from math import prod

from monolect.base.dtype import dtypes
from monolect.base.target import Target
from monolect.ir.bounds import min_max, ranges, replace_ranges
from monolect.ir.ops import BufferArg
from monolect.ir.rewrite.normal import TRUE, linear, within
from monolect.ir.uop import UOp, build, idx, node, shape_source
from monolect.rules.loops.carry import carried_type

FIRST_TABLE_RANGE = 2000  # numbers of the loops that clear a table: inside those around it
FEW_LOOPS = 16  # numbers of the loops that clear and fill one table
TABLES = 4  # tables of places for which a thread's local memory has room
MOST_CLASSES = 4096  # the table should stay in the first cache


def tallies(
    op: str, j: UOp, limit: UOp, value: UOp, conds: list[UOp], alt: UOp, outer: list[UOp], slots: count
) -> UOp | None:
    """The reduction of `value` over j < limit where `conds` hold, if one of them is an equality of classes; else None.

    `limit` is i or i + 1, `alt` the neutral value, `outer` the loops around i.
    """
    k, terms = linear(limit)
    if k not in (0, 1) or len(terms) != 1 or terms[0][1] != 1 or terms[0][0].op != "RANGE":
        return None
    i = terms[0][0]
    same = [(c, x) for c in conds if (x := _class(c, i, j)) is not None]
    if not same or i.src != j.src or i in outer or (k == 0 and not (op == "ADD" and alt.dtype.is_int)):
        return None
    equal, place = same[0]
    lo, hi = min_max(place)
    rest = [c for c in conds if c is not equal]
    if hi - lo >= MOST_CLASSES or any(i in ranges(x) for x in (value, *rest)):
        return None
    term = value
    for c in rest:
        term = build("WHERE", c, term, alt)
    term = replace_ranges(term, {j: i})
    n = hi - lo + 1
    table = node("BUFFER", (shape_source((n,)),), BufferArg(next(slots), alt.dtype, None, "LOCAL"))
    z = node("RANGE", (idx(n),), (FIRST_TABLE_RANGE + table.arg.slot, "LOOP"))
    cleared = node("AFTER", (table, *outer)) if outer else table
    start = node("END", (node("STORE", (node("INDEX", (cleared, z)), alt)), z))
    at = build("CAST", place, arg=dtypes.index) + -lo
    before = node("LOAD", (node("INDEX", (node("AFTER", (table, start, i)), at)),))
    total = build(op, before, term)
    out = node("AFTER", (total, node("STORE", (node("INDEX", (table, at)), total))))
    return out if k == 1 else build("SUB", out, term)


def binned(
    op: str, i: UOp, j: UOp, place: UOp, value: UOp, conds: list[UOp], alt: UOp, target: Target, slots: count
) -> UOp | None:
    """The reduction of `value` over all j where `place` is i and `conds` hold. `alt` is the neutral value. None where
    the table would take more than a part of the local memory.
    """
    given = (place, value, *conds)
    others = sorted(frozenset().union(*(ranges(x) for x in given)) - {i, j}, key=lambda r: r.arg[0])
    sizes = [r.src[0] for r in (i, *others)]
    if any(n.op != "CONST" for n in sizes) or any(i in ranges(x) for x in given):
        return None
    n, wide = prod(s.value for s in sizes), carried_type(op, alt.dtype, target)
    if n * wide.itemsize > target.local_bytes // TABLES:
        return None
    table = node("BUFFER", (shape_source((n,)),), BufferArg(next(slots), wide, None, "LOCAL"))
    neutral = build("CAST", alt, arg=wide)
    first = FIRST_TABLE_RANGE + FEW_LOOPS * table.arg.slot
    z = node("RANGE", (idx(n),), (first, "LOOP"))
    start = node("END", (node("STORE", (node("INDEX", (table, z)), neutral)), z))
    own = {r: node("RANGE", r.src, (first + k, "LOOP")) for k, r in enumerate((*others, j), 1)}
    inside = within(place, 0, i.src[0])
    for c in conds:
        inside = build("AND", inside, c)
    at, term, inside = (replace_ranges(x, own) for x in (_row_major(place, others), value, inside))
    before = node("LOAD", (node("INDEX", (node("AFTER", (table, start, own[j])), at)), neutral, inside))
    total = build(op, before, build("CAST", term, arg=wide))
    filled = node("END", (node("STORE", (node("INDEX", (table, at)), total, inside)), *own.values()))
    out = node("LOAD", (node("INDEX", (node("AFTER", (table, filled)), _row_major(i, others))),))
    return build("CAST", out, arg=alt.dtype)


def _row_major(first: UOp, others: list[UOp]) -> UOp:
    """The number of an element of the table: `first` and the other loops as the axes of a block."""
    at = first
    for r in others:
        at = at * r.src[0].value + r
    return at


def _class(c: UOp, i: UOp, j: UOp) -> UOp | None:
    """k(i) when the condition `c` is k(j) == k(i)."""
    if c.op == "CMPNE" and c.src[1] is TRUE and c.src[0].op == "CMPNE":
        c = c.src[0]
    elif c.op != "CMPEQ":
        return None
    for x, y in (c.src, c.src[::-1]):
        if x.dtype.is_int and i not in ranges(x) and j not in ranges(y) and replace_ranges(x, {j: i}) is y:
            return y
    return None

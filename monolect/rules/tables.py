"""Sums over earlier elements of the same class become a table in local memory, carried through a loop.

What it is for: `tallies`, the sum over j <= i (or j < i) of [k(j) == k(i)] * f(j), i being an output loop as long as j and
the class k a small integer. The table has a place for each class; iteration i adds f(i) to the place of k(i). With f = 1
that is the rank of an element within its class, which is what a pass of a radix sort must know.

Before: REDUCE(ADD, WHERE(AND(CMPLT(r1000 - r0, 0), CMPEQ(k(r1000), k(r0))), 1, 0), r1000)
After:  AFTER(n, STORE(INDEX(table, k(r0)), n)) - 1 with n = LOAD(INDEX(table, k(r0))) + 1; zeros before the loop r0
"""

from __future__ import annotations

from itertools import count

from monolect.base.dtype import dtypes
from monolect.ir.bounds import min_max, ranges, replace_ranges
from monolect.ir.normal import TRUE, linear
from monolect.ir.ops import BufferArg
from monolect.ir.uop import UOp, build, idx, node, shape_source

FIRST_TABLE_RANGE = 2000  # numbers of the loops that clear a table: inside those around it
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

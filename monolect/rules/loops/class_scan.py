"""Compute sums per class by a table in local memory: sums by index, and running sums per class.

`binned`: the sum over all j of [index(j) == i] * f(j), where i is an output loop, is element i of a table. One loop
over j fills the table, so a sum by one-hot masks takes n + m steps instead of n * m.

Before: REDUCE(ADD, WHERE(CMPEQ(index(r1000), r0), f(r1000), 0), r1000)
After:  LOAD(INDEX(AFTER(table, END(STORE(INDEX(table, index(r)), ADD(LOAD(INDEX(table, index(r))), f(r))), r)), r0))

`tallies`: the sum over j <= i (or j < i) of [k(j) == k(i)] * f(j), where i is an output loop as long as j and the class
k is a small integer. The table has an element per class; iteration i adds f(i) to element k(i). With f = 1 the sum is
the rank of an element within its class, which a pass of a radix sort needs.

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

FIRST_TABLE_RANGE = 2000  # number of the first loop that clears a table; it is nested in all others
MAX_LOOPS = 16  # loops that clear and fill one table, at most
TABLES = 4  # tables that must fit a thread's local memory together
MAX_CLASSES = 4096  # classes; the table of more would exceed the L1 cache


def tallies(
    op: str, j: UOp, limit: UOp, value: UOp, conds: list[UOp], alt: UOp, outer: list[UOp], slots: count
) -> UOp | None:
    """Return the running `op` per class that equals the reduction of `value` over j < limit under `conds`, or None.

    One of `conds` must be an equality of classes. `limit` is i or i + 1, `alt` the neutral value, `outer` the loops
    around i. `slots` numbers the table's buffer.
    """
    k, terms = linear(limit)
    if k not in (0, 1) or len(terms) != 1 or terms[0][1] != 1 or terms[0][0].op != "RANGE":
        return None
    i = terms[0][0]
    same = [(c, x) for c in conds if (x := _class(c, i, j)) is not None]
    if not same or i.src != j.src or i in outer or (k == 0 and not (op == "ADD" and alt.dtype.is_int)):
        return None
    equal, class_index = same[0]
    lo, hi = min_max(class_index)
    rest = [c for c in conds if c is not equal]
    if hi - lo >= MAX_CLASSES or any(i in ranges(x) for x in (value, *rest)):
        return None
    term = value
    for c in rest:
        term = build("WHERE", c, term, alt)
    term = replace_ranges(term, {j: i})
    n = hi - lo + 1
    table = node("BUFFER", (shape_source((n,)),), BufferArg(next(slots), alt.dtype, None, "LOCAL"))
    z = node("RANGE", (idx(n),), (FIRST_TABLE_RANGE + MAX_LOOPS * table.arg.slot, "LOOP"))
    cleared = node("AFTER", (table, *outer)) if outer else table
    start = node("END", (node("STORE", (node("INDEX", (cleared, z)), alt)), z))
    at = build("CAST", class_index, arg=dtypes.index) + -lo
    before = node("LOAD", (node("INDEX", (node("AFTER", (table, start, i)), at)),))
    total = build(op, before, term)
    out = node("AFTER", (total, node("STORE", (node("INDEX", (table, at)), total))))
    return out if k == 1 else build("SUB", out, term)


def binned(
    op: str, i: UOp, j: UOp, class_index: UOp, value: UOp, conds: list[UOp], alt: UOp, target: Target, slots: count
) -> UOp | None:
    """Return the reduction by `op` of `value` over all j with `class_index` == i under `conds`, from a table.

    `alt` is the neutral value, and `slots` numbers the table's buffer. Return None if the table would take too much of
    the local memory, if its size is symbolic, or if one of the inputs depends on i.
    """
    inputs = (class_index, value, *conds)
    others = sorted(frozenset().union(*(ranges(x) for x in inputs)) - {i, j}, key=lambda r: r.arg[0])
    sizes = [r.src[0] for r in (i, *others)]
    if any(n.op != "CONST" for n in sizes) or any(i in ranges(x) for x in inputs):
        return None
    n, wide = prod(s.value for s in sizes), carried_type(op, alt.dtype, target)
    if n * wide.itemsize > target.local_bytes // TABLES:
        return None
    table = node("BUFFER", (shape_source((n,)),), BufferArg(next(slots), wide, None, "LOCAL"))
    neutral = build("CAST", alt, arg=wide)
    first = FIRST_TABLE_RANGE + MAX_LOOPS * table.arg.slot
    z = node("RANGE", (idx(n),), (first, "LOOP"))
    start = node("END", (node("STORE", (node("INDEX", (table, z)), neutral)), z))
    own = {r: node("RANGE", r.src, (first + k, "LOOP")) for k, r in enumerate((*others, j), 1)}
    inside = within(class_index, 0, i.src[0])
    for c in conds:
        inside = build("AND", inside, c)
    at, term, inside = (replace_ranges(x, own) for x in (_row_major(class_index, others), value, inside))
    before = node("LOAD", (node("INDEX", (node("AFTER", (table, start, own[j])), at)), neutral, inside))
    total = build(op, before, build("CAST", term, arg=wide))
    filled = node("END", (node("STORE", (node("INDEX", (table, at)), total, inside)), *own.values()))
    out = node("LOAD", (node("INDEX", (node("AFTER", (table, filled)), _row_major(i, others))),))
    return build("CAST", out, arg=alt.dtype)


def _row_major(first: UOp, others: list[UOp]) -> UOp:
    """Return the index of a table element, whose axes are `first` and the loops `others`."""
    at = first
    for r in others:
        at = at * r.src[0].value + r
    return at


def _class(c: UOp, i: UOp, j: UOp) -> UOp | None:
    """Return k(i) if the condition `c` is k(j) == k(i), else None."""
    if c.op == "CMPNE" and c.src[1] is TRUE and c.src[0].op == "CMPNE":
        c = c.src[0]
    elif c.op != "CMPEQ":
        return None
    for x, y in (c.src, c.src[::-1]):
        if x.dtype.is_int and i not in ranges(x) and j not in ranges(y) and replace_ranges(x, {j: i}) is y:
            return y
    return None


__all__ = ["binned", "tallies"]

"""Compute the interval of values that a node can have, and the RANGEs (loops) that it depends on.

Both are computed once per node, without recursion, and cached on the node. Intervals are inclusive. A float that is
not a constant gets the range of its dtype, because no compiler decision depends on a float's value.

Source: `min_max` of the specification's table of derived properties.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from monolect.base.dtype import dtypes
from monolect.ir.ops import INVALID
from monolect.ir.uop import UOp, idx, rebuild, toposort

Interval = tuple[Any, Any]


def min_max(u: UOp) -> Interval:
    """Return (lower, upper): the inclusive bounds of all values that the elements of node `u` can have."""
    m = u._min_max
    if m is not None:
        return m
    stack = [u]
    while stack:
        v = stack[-1]
        if v._min_max is None and v.op in _FROM_SOURCES:
            pending = [s for s in v.src if s._min_max is None]
            if pending:
                stack.extend(pending)
                continue
        if v._min_max is None:
            v._min_max = _interval(v)
        stack.pop()
    return u._min_max


def size_max(size: Any) -> int:
    """Return the largest value that `size`, one size of a shape (int or UOp), can have for any values of its
    Variables.
    """
    return size if size.__class__ is int else min_max(size)[1]


def at_most(a: Any, b: Any) -> bool:
    """Whether the size `a` (int or UOp) is proven to be at most the size `b`, for all values of the Variables in
    both. False if the intervals do not prove it.
    """
    if a.__class__ is int and b.__class__ is int:
        return bool(a <= b)
    return a is b or min_max(idx(b) + idx(a) * -1)[0] >= 0


def bounds_text(size: Any) -> str:
    """Return `size`, one size of a shape, as text for error messages: a number, or "low..high" for a symbolic size."""
    return str(size) if size.__class__ is int else "{}..{}".format(*min_max(size))


def _add(u: UOp, a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _mul(u: UOp, a: Interval, b: Interval) -> Interval:
    p = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(p), max(p)


def _idiv(u: UOp, a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        return _dtype_range(u)
    q = (a[0] // b[0], a[0] // b[1], a[1] // b[0], a[1] // b[1])
    return min(q), max(q)


def _sub(u: UOp, a: Interval, b: Interval) -> Interval:
    return _dtype_range(u) if u.dtype is dtypes.bool else (a[0] - b[1], a[1] - b[0])


def _mod(u: UOp, a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return _dtype_range(u)
    if b[0] == b[1] and a[0] // b[0] == a[1] // b[0]:
        return a[0] % b[0], a[1] % b[0]
    return 0, (min(b[1] - 1, a[1]) if a[0] >= 0 else b[1] - 1)


def _cmplt(u: UOp, a: Interval, b: Interval) -> Interval:
    return (True, True) if a[1] < b[0] else (False, False) if a[0] >= b[1] else (False, True)


def _cmpne(u: UOp, a: Interval, b: Interval) -> Interval:
    if a[1] < b[0] or b[1] < a[0]:
        return True, True
    return (False, False) if a[0] == a[1] == b[0] == b[1] else (False, True)


def _and(u: UOp, a: Interval, b: Interval) -> Interval:
    if u.dtype is dtypes.bool:
        return a[0] and b[0], a[1] and b[1]
    return (0, min(top)) if (top := [hi for lo, hi in (a, b) if lo >= 0]) else _dtype_range(u)


def _or(u: UOp, a: Interval, b: Interval) -> Interval:
    return (a[0] or b[0], a[1] or b[1]) if u.dtype is dtypes.bool else _dtype_range(u)


def _max(u: UOp, a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), max(a[1], b[1])


def _where(u: UOp, c: Interval, a: Interval, b: Interval) -> Interval:
    if u.src[0].op == "CMPLT" and set(u.src[1:]) == set(u.src[0].src) and not u.dtype.is_float:
        pick = min if u.src[1] is u.src[0].src[0] else max  # the WHERE is min(a, b) or max(a, b) of two integers
        return pick(a[0], b[0]), pick(a[1], b[1])
    if u.src[1].op == "CONST" and u.src[1].arg[0] is INVALID:
        return b
    if u.src[2].op == "CONST" and u.src[2].arg[0] is INVALID:
        return a
    return min(a[0], b[0]), max(a[1], b[1])


def _shr(u: UOp, a: Interval, b: Interval) -> Interval:
    if b[0] == b[1] and 0 <= b[0] < u.dtype.bits:
        return a[0] >> b[0], a[1] >> b[0]
    return _dtype_range(u)


def _same(u: UOp, a: Interval, *rest: Interval) -> Interval:
    return a


def _cast(u: UOp, a: Interval) -> Interval:
    if u.src[0].dtype.is_float or u.dtype.is_float:
        return _dtype_range(u)
    a = (int(a[0]), int(a[1]))
    d = u.dtype
    return a if d.is_int and d.min <= a[0] and a[1] <= d.max else _dtype_range(u)  # the value may wrap


def _hull(u: UOp, *all_: Interval) -> Interval:
    return (min(a[0] for a in all_), max(a[1] for a in all_)) if all_ else (0, 0)


# AFTER has no row: the writes that it waits for may leave any value in src[0], even if src[0] was a constant.
_FROM_SOURCES: dict[str, Any] = {
    "ADD": _add,
    "SUB": _sub,
    "MUL": _mul,
    "MAX": _max,
    "IDIV": _idiv,
    "MOD": _mod,
    "CMPLT": _cmplt,
    "CMPNE": _cmpne,
    "AND": _and,
    "OR": _or,
    "WHERE": _where,
    "SHR": _shr,
    "CAST": _cast,
    "STACK": _hull,
    "LOAD": _same,
    "INDEX": _same,
    "RESHAPE": _same,
    "EXPAND": _same,
    "PERMUTE": _same,
    "FLIP": _same,
    "SHRINK": _same,
    "CONTIGUOUS": _same,
    "DETACH": _same,
    "RANGE": None,
    "SPECIAL": None,
    "IOTA": None,
}
_WRAPS = frozenset(("ADD", "SUB", "MUL", "SHR", "IDIV", "MOD", "MAX", "WHERE"))


def _dtype_range(u: UOp) -> Interval:
    return u.dtype.min, u.dtype.max


def _interval(u: UOp) -> Interval:
    op = u.op
    if op == "CONST":
        return _dtype_range(u) if u.arg[0] is INVALID else (u.arg[0], u.arg[0])
    if op == "PARAM":
        return (u.arg.min, u.arg.max) if u.arg.min is not None else _dtype_range(u)
    rule = _FROM_SOURCES.get(op, False)
    if rule is None:
        return 0, max(0, u.src[0]._min_max[1] - 1)
    if rule is False or u.dtype.is_float or u.dtype.kind == "v":
        return _dtype_range(u)
    out: Interval = rule(u, *(s._min_max for s in u.src))
    return _dtype_range(u) if op in _WRAPS and _exceeds_dtype(out, u) else out


def _exceeds_dtype(interval: Interval, u: UOp) -> bool:
    """Whether `interval`, (lower, upper), exceeds the value range of the integer dtype of `u`.
    False if the dtype is not an integer dtype.
    """
    d = u.dtype
    return d.is_int and (interval[0] < d.min or interval[1] > d.max)


def may_wrap(u: UOp) -> bool:
    """Whether the operation of node `u` itself may overflow its integer dtype; then its result is not that of exact
    arithmetic.
    This can be an integer ADD, SUB, MUL, SHR, IDIV, MOD, MAX or WHERE; False for any other node.
    """
    return u.op in _WRAPS and _exceeds_dtype(_FROM_SOURCES[u.op](u, *(min_max(s) for s in u.src)), u)


_EMPTY: frozenset[UOp] = frozenset()


def ranges(u: UOp) -> frozenset[UOp]:
    """Return the free RANGEs of `u`: the loops that its value depends on and that no REDUCE, END or WMMA in its graph
    closes.
    """
    known: frozenset[UOp] | None = u._ranges
    if known is not None:
        return known
    stack = [u]
    while stack:
        v = stack[-1]
        if v._ranges is None:
            pending = [s for s in v.src if s._ranges is None]
            if pending:
                stack.extend(pending)
                continue
            v._ranges = _free_ranges(v)
        stack.pop()
    return u._ranges


def _free_ranges(u: UOp) -> frozenset[UOp]:
    """Return the free RANGEs of `u`: the loops that its value depends on and that no REDUCE, END or WMMA in its graph
    closes.

    The free RANGEs of the sources of `u` must be cached already.
    """
    if u.op == "RANGE":
        return u.src[0]._ranges | {u}
    if u.op == "REDUCE" or u.op == "END":
        closed = u.src[1:]
        out = u.src[0]._ranges
        if not closed:
            return out
        for r in closed:
            out = out | r.src[0]._ranges
        return out - frozenset(closed)
    out = _EMPTY
    for s in u.src:
        free = s._ranges
        if free is not out and free:
            out = free if not out else (out if free <= out else out | free)
    if u.op == "WMMA":
        return out - {r for r in u.src[3:] if r.op == "RANGE" and r.arg[1] == "CONTRACT"}
    return out


def unused_ranges(order: Iterable[UOp]) -> count[int]:
    """Return an iterator of consecutive ids for new RANGEs, greater than the ids of all RANGEs among the nodes
    `order`.
    """
    return count(1 + max((u.arg[0] for u in order if u.op == "RANGE"), default=0))


def unused_slots(order: Iterable[UOp], op: str = "BUFFER") -> count[int]:
    """Return an iterator of consecutive slots for new nodes of op `op` ("BUFFER" or "PARAM").

    The slots are greater than those of all nodes of that op among the nodes `order`.
    """
    return count(1 + max((u.arg.slot for u in order if u.op == op), default=-1))


def replace_ranges(root: UOp, mapping: dict[UOp, UOp]) -> UOp:
    """Return the graph `root` with each RANGE that is a key of `mapping` replaced by its value, where the RANGE is
    free.

    A RANGE that a REDUCE or END closes is not replaced below that REDUCE or END. Subgraphs without a free RANGE that is
    a key are not visited. Keys that are other nodes are replaced too, in the part of the graph that is visited.
    """
    keys = frozenset(r for r in mapping if r.op == "RANGE")
    new = dict(mapping)
    for u in toposort(root, stop=lambda u: u in mapping or keys.isdisjoint(ranges(u))):
        if u not in new:
            new[u] = u if keys.isdisjoint(ranges(u)) else rebuild(u, tuple(new[s] for s in u.src))
    return new[root]


__all__ = [
    "Interval",
    "at_most",
    "bounds_text",
    "may_wrap",
    "min_max",
    "ranges",
    "replace_ranges",
    "size_max",
    "unused_ranges",
    "unused_slots",
]

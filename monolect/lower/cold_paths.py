"""What few elements need is computed only if one of them does: in a loop that is entered at most once.

What it is for: WHERE(p, a, b) that a rule marked (`rules.formula.seldom`), where a thread may go its own way. What only
`a` needs goes into a loop of one step or none, by whether p holds in any lane; marked ones with one p share the loop.
What it is not: a choice of what is seldom, nor a branch for each element.

Before: WHERE(p, f(x), b) seldom
After:  LOAD(AFTER(y, s, END(STORE(y, WHERE(p, f(LOAD(AFTER(v, STORE(v, x), r))), LOAD(AFTER(y, s, r)))), r))),
        where s = STORE(y, b)
Invariant: r counts to 1 where p holds in any lane, else to 0.
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.base.dtype import dtypes
from monolect.base.target import Target
from monolect.ir.bounds import ranges, unused_ranges, unused_slots
from monolect.ir.ops import ELEMENTWISE, BufferArg
from monolect.ir.uop import UOp, build, node, shape_source, substitute, toposort
from monolect.rules.formula import SELDOM

_MOVES = ELEMENTWISE | {"BITCAST"}


def seldom(sink: UOp, target: Target) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    if target.workgroups or not any(u.tag == SELDOM for u in order):
        return sink
    slots, ids = unused_slots(order), unused_ranges(order)
    level: dict[UOp, int] = {}  # how many marked ones a value waits for: those of one loop wait for none of it
    groups: dict[tuple[int, UOp, frozenset[UOp]], list[UOp]] = {}
    users: dict[UOp, list[UOp]] = {}
    for u in order:
        level[u] = max((level[s] for s in u.src), default=0)
        if u.tag == SELDOM:
            groups.setdefault((level[u], u.src[0], ranges(u)), []).append(u)
            level[u] += 1
        for s in u.src:
            users.setdefault(s, []).append(u)
    for key in sorted(groups, key=lambda k: -k[0]):  # what replaces one of them holds those it waits for as they are
        sink = substitute(sink, _once(groups[key], order, users, slots, next(ids)))
    return sink


def _once(marked: list[UOp], order: list[UOp], users: dict[UOp, list[UOp]], slots: Iterator[int], number: int) -> dict:
    """What stands for each of `marked`: the values that one loop leaves."""
    p, outer = marked[0].src[0], sorted(ranges(marked[0]), key=lambda r: r.arg[0])
    any_lane = node("REDUCE", (p,), ("MAX", tuple(range(len(p.shape))))) if p.shape else p
    steps = build("CAST", build("RESHAPE", any_lane, shape_source(())), arg=dtypes.index)
    r = node("RANGE", (steps,), (number, "LOOP"), SELDOM)

    def kept(value: UOp, shape: tuple) -> tuple[UOp, UOp, UOp]:
        """(a register, the STORE of `value` to it before the loop, what it holds in the loop)."""
        b = node("BUFFER", (shape_source(shape),), BufferArg(next(slots), value.dtype, None, "REG"))
        start = node("STORE", (node("AFTER", (b, *outer)) if outer else b, value))
        return b, start, node("LOAD", (node("AFTER", (b, start, r)),))

    inside = _alone(marked, order, users)
    given = {s for u in inside for s in u.src if s not in inside and s.op != "CONST"}
    moved = {s: kept(s, s.shape)[-1] for s in order if s in given}
    for u in order:
        if u in inside:
            moved[u] = node(u.op, tuple(moved.get(s, s) for s in u.src), u.arg, u.tag)
    out = {}
    for u in marked:
        b, start, before = kept(u.src[2], u.shape)
        after = node("WHERE", (p, moved.get(u.src[1], u.src[1]), before))
        end = node("END", (node("STORE", (b, after)), r))
        out[u] = node("LOAD", (node("AFTER", (b, start, end)),))
    return out


def _alone(marked: list[UOp], order: list[UOp], users: dict[UOp, list[UOp]]) -> set[UOp]:
    """What only the first choice of each of `marked` needs."""
    needed = set(toposort(*(u.src[1] for u in marked)))
    inside: set[UOp] = set()
    for u in reversed(order):
        if u in needed and u.op in _MOVES and u.tag != SELDOM:
            if all(v in inside or (v in marked and u not in (v.src[0], v.src[2])) for v in users[u]):
                inside.add(u)
    return inside

"""Compute the rare branch of a marked WHERE only when some lane needs it, in a loop of 0 or 1 iterations.

What it is for: WHERE(p, a, b) that a rule marked (`rules.formula.unlikely`), on targets whose threads can branch.
The elementwise operations that only `a` needs go into a loop of one iteration if p is true in any lane, else of none.
Marked WHEREs with the same p share the loop.
What it is not: it does not decide what is unlikely, and does not branch per lane.

Before: WHERE(p, f(x), b), marked UNLIKELY
After:  LOAD(AFTER(y, s, END(STORE(y, WHERE(p, f(LOAD(AFTER(v, STORE(v, x), r))), LOAD(AFTER(y, s, r)))), r))),
        where s = STORE(y, b)
Invariant: r has 1 iteration if p is true in any lane, else 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from monolect.base.dtype import dtypes
from monolect.base.target import Target
from monolect.ir.bounds import ranges, unused_ranges, unused_slots
from monolect.ir.ops import ELEMENTWISE, BufferArg
from monolect.ir.uop import UOp, build, node, nodes_of, shape_source, substitute, toposort
from monolect.rules.formula import UNLIKELY

_MOVABLE = ELEMENTWISE | {"BITCAST"}


def branch_cold_paths(sink: UOp, target: Target) -> UOp:
    """Pass: compute the first value `a` of each WHERE(p, a, b) that is marked UNLIKELY in a loop of 0 or 1 iterations.

    Kernels for targets with workgroups are returned unchanged.
    """
    order = nodes_of(sink)
    if target.workgroups or not any(u.tag == UNLIKELY for u in order):
        return sink
    slots, ids = unused_slots(order), unused_ranges(order)
    # marked WHEREs that a value depends on, nested; those in one loop must not depend on each other
    level: dict[UOp, int] = {}
    groups: dict[tuple[int, UOp, frozenset[UOp]], list[UOp]] = {}
    users: dict[UOp, list[UOp]] = {}
    for u in order:
        level[u] = max((level[s] for s in u.src), default=0)
        if u.tag == UNLIKELY:
            groups.setdefault((level[u], u.src[0], ranges(u)), []).append(u)
            level[u] += 1
        for s in u.src:
            users.setdefault(s, []).append(u)
    # innermost last: a replacement contains the WHEREs it depends on unchanged
    for key in sorted(groups, key=lambda k: -k[0]):
        sink = substitute(sink, _branch(groups[key], order, users, slots, next(ids)))
    return sink


def _branch(
    marked: list[UOp], order: Sequence[UOp], users: dict[UOp, list[UOp]], slots: Iterator[int], number: int
) -> dict:
    """Return the replacement of each WHERE in `marked`: the LOAD of a REG buffer that one loop, shared by all, may
    overwrite.

    `number` is the id of that loop, and `slots` numbers the buffers. `order` has the kernel's nodes, and `users` maps
    each node to the nodes that have it as a source.
    """
    p, outer = marked[0].src[0], sorted(ranges(marked[0]), key=lambda r: r.arg[0])
    any_lane = node("REDUCE", (p,), ("MAX", tuple(range(len(p.shape))))) if p.shape else p
    steps = build("CAST", build("RESHAPE", any_lane, shape_source(())), arg=dtypes.index)
    r = node("RANGE", (steps,), (number, "LOOP"), UNLIKELY)

    def in_register(value: UOp, shape: tuple) -> tuple[UOp, UOp, UOp]:
        """Return (new REG buffer of `shape`, STORE of `value` to the buffer, LOAD from the buffer).

        The STORE runs before the loop of the rare branch, the LOAD inside of this loop.
        """
        b = node("BUFFER", (shape_source(shape),), BufferArg(next(slots), value.dtype, None, "REG"))
        start = node("STORE", (node("AFTER", (b, *outer)) if outer else b, value))
        return b, start, node("LOAD", (node("AFTER", (b, start, r)),))

    exclusive = _exclusive_operands(marked, order, users)
    inputs = {s for u in exclusive for s in u.src if s not in exclusive and s.op != "CONST"}
    inside_loop = {s: in_register(s, s.shape)[-1] for s in order if s in inputs}
    for u in order:
        if u in exclusive:
            inside_loop[u] = node(u.op, tuple(inside_loop.get(s, s) for s in u.src), u.arg, u.tag)
    out = {}
    for u in marked:
        b, start, initial = in_register(u.src[2], u.shape)
        after = node("WHERE", (p, inside_loop.get(u.src[1], u.src[1]), initial))
        end = node("END", (node("STORE", (b, after)), r))
        out[u] = node("LOAD", (node("AFTER", (b, start, end)),))
    return out


def _exclusive_operands(marked: list[UOp], order: Sequence[UOp], users: dict[UOp, list[UOp]]) -> set[UOp]:
    """Return the elementwise nodes that only the first values of the WHEREs in `marked` depend on.

    `order` and `users`: as in `_branch`.
    """
    needed = set(toposort(*(u.src[1] for u in marked)))
    exclusive: set[UOp] = set()
    for u in reversed(order):
        if u in needed and u.op in _MOVABLE and u.tag != UNLIKELY:
            if all(v in exclusive or (v in marked and u not in (v.src[0], v.src[2])) for v in users[u]):
                exclusive.add(u)
    return exclusive


__all__ = ["branch_cold_paths"]

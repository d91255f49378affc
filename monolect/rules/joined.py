"""What is joined is stored piece by piece along a short axis, and read at once where whole rows of one tensor are joined.

`stack` of n values is one store in a loop of n that picks among them: every iteration would compute all. Where each
iteration of a loop has a value of its own, it gets a store of its own instead, in the loops that remain; also where the
values are made of what was picked, as sums of joined sums are.

Where every element of a row comes from one of two places in the same memory (`roll` of rows), the place is picked once
a row, and no element is read by a mask.

What it is not: for joined tensors of several elements along the axis, whose loop is one over elements too; nor where
what else the kernel does needs that loop around the others.

Before: END(STORE(INDEX(PARAM0, r0*128 + r1), WHERE(r0 < 1, a, b)), r0:2, r1:128)
After:  END(STORE(INDEX(PARAM0, r1), a), r1:128), END(STORE(INDEX(PARAM0, r1 + 128), b), r1:128)
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.ir.bounds import ranges, replace_ranges
from monolect.ir.normal import conjuncts, linear, negate
from monolect.ir.uop import UOp, build, idx, node, rebuild, toposort

MOST_PIECES = 64
WORTH_IT = 48  # nodes in all pieces from which on stores of elements that are no neighbours cost less


def stored_apart(sink: UOp) -> UOp:
    """See the module docstring."""
    k = 0
    while k < len(sink.src):
        before, end, after = sink.src[:k], sink.src[k], sink.src[k + 1 :]
        for pieces in _apart(end):
            apart = node("SINK", (*before, *pieces, *after), sink.arg)
            if _nest(apart):
                sink = apart
                break
        else:
            k += 1
    return sink


def _nest(sink: UOp) -> bool:
    """Does one order of the loops suit all that the kernel does? Of two around one thing, one is around all the other is."""
    sets: dict[UOp, set[UOp]] = {}  # for each loop what stands in it
    inside = [
        (u, frozenset(u.src[1:]) if u.op == "END" else ranges(u)) for u in toposort(sink) if u.op in ("END", "REDUCE")
    ]
    for u, loops in inside:
        for r in loops:
            sets.setdefault(r, set()).add(u)
    pairs = {(a, b) for _, loops in inside for a in loops for b in loops if a is not b}
    return all(sets[a] <= sets[b] or sets[b] <= sets[a] for a, b in pairs)


def _apart(end: UOp) -> Iterator[list[UOp]]:
    """For each loop of an END that only picks: the stores of its iterations."""
    if end.op != "END" or end.src[0].op != "STORE" or len(end.src) < 3:
        return
    store, loops = end.src[0], end.src[1:]
    if store.src[0].op != "INDEX":
        return
    body = toposort(store)
    if any(u.op in ("REDUCE", "AFTER") for u in body):
        return
    picks = [ranges(c) for c in {u.src[0] for u in body if u.op == "WHERE"}]
    for r in loops:
        n = r.src[0].value if r.src[0].op == "CONST" else MOST_PIECES + 1
        near = dict(linear(store.src[0].src[1])[1]).get(r) == 1
        if n <= MOST_PIECES and picks.count(frozenset((r,))) == n - 1 and not (near and len(body) < WORTH_IT):
            rest = tuple(x for x in loops if x is not r)
            yield [node("END", (replace_ranges(store, {r: idx(k)}), *rest), end.arg) for k in range(n)]


def read_at_once(sink: UOp) -> UOp:
    """Choices between two reads of one memory as one read, where neighbours in memory are on one side of the seam.

    Before: WHERE(r0 < 5, LOAD(INDEX(p, r0*8 + r1 + 40), 0, r0 < 5), LOAD(INDEX(p, r0*8 + r1 - 40), 0, 4 < r0))
    After:  LOAD(INDEX(p, r0*8 + r1 - 40 + WHERE(r0 < 5, 80, 0)))
    """
    order = toposort(sink)
    if not any(_is_choice(u) for u in order):
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = (_read_at_once(v) or v) if _is_choice(v) else v
    return new[sink]


def _is_choice(u: UOp) -> bool:
    """Whether the place of an element, not a value, says which of two loads it is."""
    if u.op != "WHERE" or u.src[0].op != "CMPLT" or u.src[0].src[0].dtype.kind != "x":
        return False
    return all(x.op == "LOAD" and x.arg is None for x in u.src[1:])


def _read_at_once(u: UOp) -> UOp | None:
    c, a, b = u.src
    memory, *places = a.src[0].src
    if len(places) != 1 or b.src[0].op != "INDEX" or b.src[0].src[0] is not memory or a.src[1:2] != b.src[1:2]:
        return None
    apart, terms = linear(places[0] + b.src[0].src[1] * -1)
    rest = [set(conjuncts(x.src[2])) - {side} if len(x.src) > 2 else set() for x, side in ((a, c), (b, negate(c)))]
    steps = dict(linear(b.src[0].src[1])[1])
    if terms or rest[0] != rest[1] or any(abs(steps.get(r, 1)) == 1 for r in ranges(c)):
        return None
    index = node("INDEX", (memory, b.src[0].src[1] + build("WHERE", c, idx(apart), idx(0))))
    if not rest[0]:
        return node("LOAD", (index,))
    gate, *more = (g for g in conjuncts(a.src[2]) if g in rest[0])
    for g in more:
        gate = build("AND", gate, g)
    return node("LOAD", (index, a.src[1], gate))


__all__ = ["read_at_once", "stored_apart"]

"""What is joined along a short axis is stored piece by piece: the loop over the pieces, which only picks, goes away.

`stack` of n values is one store in a loop of n that picks among them: every iteration would compute all. Where each
iteration of a loop has a value of its own, it gets a store of its own instead, in the loops that remain.

What it is not: for joined tensors of several elements along the axis, whose loop is one over elements too.

Before: END(STORE(INDEX(PARAM0, r0*128 + r1), WHERE(r0 < 1, a, b)), r0:2, r1:128)
After:  END(STORE(INDEX(PARAM0, r1), a), r1:128), END(STORE(INDEX(PARAM0, r1 + 128), b), r1:128)
"""

from __future__ import annotations

from monolect.ir.bounds import ranges, replace_ranges
from monolect.ir.normal import linear
from monolect.ir.uop import UOp, idx, node, toposort

MOST_PIECES = 64
WORTH_IT = 40  # nodes in all pieces from which on stores of elements that are no neighbours cost less


def stored_apart(sink: UOp) -> UOp:
    """See the module docstring."""
    ends = sink.src
    while (parts := tuple(p for e in ends for p in _apart(e))) != ends:
        ends = parts
    return sink if ends is sink.src else node("SINK", ends, sink.arg)


def _apart(end: UOp) -> list[UOp]:
    """The stores of an END for each iteration of a loop that only picks; the END itself where there is none."""
    if end.op != "END" or end.src[0].op != "STORE" or len(end.src) < 3:
        return [end]
    store, loops = end.src[0], end.src[1:]
    if store.src[1].op != "WHERE" or store.src[0].op != "INDEX":
        return [end]
    body = toposort(store)
    if any(u.op in ("REDUCE", "AFTER") for u in body):
        return [end]
    picks = [ranges(c) for c in {u.src[0] for u in body if u.op == "WHERE"}]
    for r in loops:
        n = r.src[0].value if r.src[0].op == "CONST" else MOST_PIECES + 1
        near = dict(linear(store.src[0].src[1])[1]).get(r) == 1
        if n <= MOST_PIECES and picks.count(frozenset((r,))) == n - 1 and not (near and len(body) < WORTH_IT):
            rest = tuple(x for x in loops if x is not r)
            return [node("END", (replace_ranges(store, {r: idx(k)}), *rest), end.arg) for k in range(n)]
    return [end]


__all__ = ["stored_apart"]

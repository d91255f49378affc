"""Peel the last iteration of a reduction loop whose conditions can fail only there (remainder peeling).

A vector at the end of an axis is masked, and a tensor padded at its end is gated; in a loop, every iteration would test
this. After peeling, the other iterations need no test, and the last one knows which of its lanes are inside. The
accumulator starts with the peeled iteration. Reductions over the same loop stay in one loop: all of them are peeled, or
none is.

What it is not: it is not the action PEEL, which peels loops over outputs, and it does not make loops (`reduce`).

Before: REDUCE(ADD, WHERE(r < 9, x(r), 0), r)   r: 0..9
After:  ADD(REDUCE(ADD, x(r), r), 0)            r: 0..8, tagged `PEELED`
Invariant: a node tagged PEELED is `op(rest, last)`; if iterations are left, `rest` is a REDUCE with that tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from monolect.ir.bounds import min_max, ranges, replace_ranges
from monolect.ir.ops import MOVEMENT
from monolect.ir.rewrite.normal import FALSE, TRUE
from monolect.ir.uop import UOp, broadcast_to, idx, node, nodes_of, rebuild, toposort

MAX_OPS = 100  # values of an iteration; longer loop bodies are not duplicated
PEELED = "peeled"  # tag of `op(rest, last)`, and of `rest`

Loops = tuple[frozenset[UOp], tuple[UOp, ...]]  # key of a loop: its outer RANGEs, the reduced RANGEs
Facts = dict[UOp, UOp]  # condition -> TRUE or FALSE

# a loop body that contains loops or memory is not peeled
LOOP_AND_MEMORY_OPS = frozenset(("REDUCE", "END", "AFTER", "STORE", "BUFFER"))


def loops_of(u: UOp) -> Loops:
    """Return the key of the loop of the REDUCE `u`: (outer RANGEs, reduced RANGEs). REDUCEs of one key share a loop."""
    return ranges(u), u.src[1:]


def step_of(u: UOp, loops: Iterable[UOp]) -> list[UOp]:
    """Return the nodes of the body of the REDUCE `u` that depend on `loops`, so that each iteration computes them."""
    loops = frozenset(loops)
    inside = toposort(u.src[0], stop=lambda v: loops.isdisjoint(ranges(v)))
    return [v for v in inside if not loops.isdisjoint(ranges(v))]


def peel_last(sink: UOp) -> UOp:
    """Pass: peel the last iteration of the reduction loops where that removes conditions."""
    order = nodes_of(sink)
    if not (found := _peelable_loops(order)):
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        is_reduction = u.op == "REDUCE" and len(u.src) > 1
        new[u] = v if not is_reduction or (facts := found.get(loops_of(u))) is None else _peeled(u, v, facts)
    return new[sink]


def _peeled(u: UOp, v: UOp, facts: Facts) -> UOp:
    """Return op(REDUCE over all iterations but the last, the last iteration) for the reduction `u`.

    `v` is `u` with rewritten sources; `facts` are the conditions with known values in all iterations but the last.
    """
    op, body = v.arg[0], v.src[0]
    (r,) = (r for r in v.src[1:] if r.arg[1] != "UNROLL")
    unrolled = tuple(x for x in v.src[1:] if x is not r)
    last, others = replace_ranges(body, {r: r.src[0] + -1}), _where_known(body, facts | {r: _without_last(r)})
    loops = tuple(
        without for x in v.src[1:] for without in (_without_last(x) if x is r else x,) if without.op == "RANGE"
    )
    rest = node("REDUCE", (others, *loops), v.arg, PEELED) if loops else others
    last = node("REDUCE", (last, *unrolled), v.arg) if unrolled else last
    out = node(op, (rest, last), None, PEELED)
    rest.origin = out.origin = u.origin
    return out


def _where_known(body: UOp, new: Facts) -> UOp:
    """Return `body` with each key of `new` replaced by its value: conditions by constants, a RANGE by a shorter one.

    A constant is one scalar for all lanes, so values that depend on it may lose axes; a broadcast restores those.
    """
    new, loops = dict(new), frozenset(r for r in new if r.op == "RANGE")
    for u in toposort(body, stop=lambda u: u in new or loops.isdisjoint(ranges(u))):
        if u not in new and loops.isdisjoint(ranges(u)):
            new[u] = u
        elif u not in new:
            src = [new[s] for s in u.src]
            if u.op in MOVEMENT:
                src[0] = broadcast_to(src[0], u.src[0].shape)
            new[u] = rebuild(u, tuple(src))
    return broadcast_to(new[body], body.shape)


def _peelable_loops(order: Sequence[UOp]) -> dict[Loops, Facts]:
    """Return, for each loop in `order` whose last iteration is peeled, the conditions known in all other iterations."""
    out: dict[Loops, Facts] = {}
    refused: set[Loops] = set()
    for u in order:
        if u.op == "REDUCE" and len(u.src) > 1:
            facts = _facts(u)
            if facts is None:
                refused.add(loops_of(u))
            else:
                out.setdefault(loops_of(u), {}).update(facts)
    return {key: facts for key, facts in out.items() if facts and key not in refused}


def _without_last(r: UOp) -> UOp:
    """Return a RANGE like `r` with one iteration less, or the constant 0 if one iteration is left."""
    n = r.src[0].value - 1
    return node("RANGE", (idx(n),), r.arg) if n > 1 else idx(0)


def _facts(u: UOp) -> Facts | None:
    """Return the value (TRUE or FALSE) of each condition that is constant in all iterations of `u` but the last.

    Return None if the last iteration of the reduction `u` cannot be peeled.
    """
    loops = [r for r in u.src[1:] if r.arg[1] != "UNROLL"]
    if len(loops) != 1 or loops[0].src[0].op != "CONST" or loops[0].src[0].value < 2:
        return None
    (r,) = loops
    inside = step_of(u, loops)
    if len(inside) > MAX_OPS or any(v.op in LOOP_AND_MEMORY_OPS for v in inside):
        return None
    out: Facts = {}
    for c in inside:
        if c.op in ("CMPLT", "CMPNE") and c.src[0].dtype.kind == "x":
            low, high = min_max(replace_ranges(c, {r: _without_last(r)}))
            if bool(low) == bool(high):
                out[c] = TRUE if low else FALSE
    return out


__all__ = ["LOOP_AND_MEMORY_OPS", "Loops", "PEELED", "loops_of", "peel_last", "step_of"]

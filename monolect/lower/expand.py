"""UPCAST and GROUP_REDUCE ranges become shape: values turn into small blocks, such as (6, 4, 16), and stay so.

Each such range is replaced by its constants 0..k-1 along an axis of its own. Output ranges take axes in loop order, so
the innermost is the last axis, the vector lane. A reduction's GROUP_REDUCE ranges keep a partial result per lane, on
the last axes, and one REDUCE over axes joins them after the loop. (UNROLL ranges are `reduce`'s: they add into one
accumulator.)

A vector access is one instruction only where the last axis is contiguous in memory. Where another axis is, the access
goes along that one, and a PERMUTE turns the value: this is how blocks are transposed in registers.

Before: SINK(END(STORE(INDEX(PARAM0, r0*4 + u), LOAD(INDEX(PARAM1, r0*4 + u))), r0, u:UPCAST 4))
After:  SINK(END(STORE(INDEX(PARAM0, r0*4 + [0,1,2,3]), LOAD(INDEX(PARAM1, r0*4 + [0,1,2,3]))), r0))
Invariant: no UPCAST range is left; a value is never split into scalars.
"""

from __future__ import annotations

from monolect.ir.bounds import ranges
from monolect.ir.normal import linear
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, substitute_all, toposort
from monolect.lower.scan import Scans, widen

SHAPED = ("UPCAST", "GROUP_REDUCE")


def expand(sink: UOp) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    place = _places(order)
    if not place:
        return sink
    new: dict[UOp, UOp] = {r: _constants(r, p) for r, p in place.items()}
    running = Scans(order, place)
    new |= _widened_accumulators(order, place, running.lanes())
    for u in order:
        if u in new:
            continue
        src = tuple(new[s] for s in u.src)
        if u.op == "REDUCE" and len(u.src) > 1:
            new[u] = _reduce(u, src[0], place)
        elif (out := running.expanded(u, src, new)) is not None:
            new[u] = out
        elif u.op == "END":
            open_ = tuple(r for r in u.src[1:] if r not in place)
            new[u] = node("END", (src[0], *open_)) if open_ else src[0]
        elif u.op == "AFTER":
            new[u] = node("AFTER", (src[0], *(s for o, s in zip(u.src[1:], src[1:], strict=True) if o not in place)))
        elif u.op in ("LOAD", "STORE") and (turned := _turned(u, place)):
            new[u] = _along(u, src, place, new, turned)
        else:
            new[u] = rebuild(u, src)
    return new[sink]


def _places(order: list[UOp]) -> dict[UOp, int]:
    """For each range that becomes shape, its axis counted from the last (1). Ranges that meet in a value differ."""
    place: dict[UOp, int] = {}
    depth: dict[UOp, int] = {}  # output range -> lanes of reductions inside of it
    shaped = [u for u in order if u.op == "RANGE" and u.arg[1] in SHAPED]
    for u in order:
        if u.op == "REDUCE":
            groups = sorted((r for r in u.src[1:] if r.arg[1] in SHAPED), key=lambda r: -r.arg[0])
            inner = max((depth.get(r, 0) for r in groups), default=0)  # a reduction inside has the last axes
            place.update({r: max(place.get(r, 0), inner + k + 1) for k, r in enumerate(groups)})
            last = max((place[r] for r in groups), default=0)
            for r in ranges(u):
                depth[r] = max(depth.get(r, 0), last)
    meet = _meeting([r for r in shaped if r.arg[1] == "UPCAST"], order)
    for r in sorted(meet, key=lambda r: -r.arg[0]):
        inner = max((place[x] for x in meet[r] if x in place), default=0)
        place[r] = max(inner, depth.get(r, 0)) + 1
    return place


def _meeting(shaped: list[UOp], order: list[UOp]) -> dict[UOp, set[UOp]]:
    """For each of `shaped` those that it meets in a value: they need axes of their own, others may share its axis."""
    meet: dict[UOp, set[UOp]] = {r: set() for r in shaped}
    known: set[frozenset[UOp]] = set()
    for u in order:
        free = ranges(u)
        if free not in known:
            known.add(free)
            here = [r for r in free if r in meet]
            for r in here:
                meet[r].update(x for x in here if x is not r)
    return meet


def _widened_accumulators(order: list[UOp], place: dict[UOp, int], scanned: set[UOp]) -> dict[UOp, UOp]:
    """The accumulators of scans, one lane for each of the output's, but for the ranges they are carried through."""
    lanes: dict[UOp, set[UOp]] = {}
    for u in order:
        if u.op == "STORE":
            b = u.src[0]
            while b.op == "AFTER":
                b = b.src[0]
            if b.op == "BUFFER":
                lanes.setdefault(b, set()).update(r for r in ranges(u) if r in place and r not in scanned)
    out = {}
    for b, rs in lanes.items():
        if rs:
            shape = [1] * max(place[r] for r in rs)
            for r in rs:
                shape[-place[r]] = r.src[0].value
            out[b] = node("BUFFER", (shape_source(shape),), b.arg)
    return out


def _constants(r: UOp, place: int) -> UOp:
    n = r.src[0].value
    flat = node("STACK", tuple(idx(i) for i in range(n)))
    return build("RESHAPE", flat, shape_source((n, *(1,) * (place - 1))))


def _turned(u: UOp, place: dict[UOp, int]) -> tuple[UOp, UOp] | None:
    """(the lane range, the range to access along instead) of an access that is contiguous along another axis only."""
    if u.src[0].op != "INDEX" or len(u.src[0].src) != 2:
        return None
    steps: dict[UOp, int] = {}
    for x, c in linear(u.src[0].src[1])[1]:
        if x in place:
            steps[x] = c
        elif not ranges(x).isdisjoint(place):
            return None
    lane = next((r for r in steps if place[r] == 1), None)
    side = next((r for r, c in steps.items() if c == 1), None)
    if lane is None or side is None or steps[lane] in (1, -1):
        return None
    conditions = toposort(*(u.src[1:] if u.op == "LOAD" else u.src[2:]))
    return None if any(x.op == "LOAD" for x in conditions) else (lane, side)


def _along(u: UOp, src: tuple[UOp, ...], place: dict[UOp, int], new: dict[UOp, UOp], turned: tuple[UOp, UOp]) -> UOp:
    """The access with the lane range and the other one in each other's place, and a PERMUTE that undoes it."""
    lane, side = turned
    swapped = {**place, lane: place[side], side: place[lane]}
    mapping = {r: _constants(r, p) for r, p in swapped.items()}
    mapping |= {x: new[x] for x, _ in linear(u.src[0].src[1])[1] if x not in place}
    mapping |= {u.src[0].src[0]: src[0].src[0]}
    if u.op == "LOAD":
        out = node("LOAD", substitute_all(u.src, mapping), u.arg)
        return build("PERMUTE", out, arg=_exchange(len(out.shape), swapped[lane]))
    target, *gate = substitute_all((u.src[0], *u.src[2:]), mapping)
    value = src[1]
    if value.shape:
        rank = max(len(value.shape), place[side])
        value = build("RESHAPE", value, shape_source((1,) * (rank - len(value.shape)) + value.shape))
        value = build("PERMUTE", value, arg=_exchange(rank, place[side]))
    return node("STORE", (target, value, *gate), u.arg)


def _exchange(rank: int, place: int) -> tuple[int, ...]:
    """The order of axes that exchanges the last with the one at `place`, counted from the last."""
    order = list(range(rank))
    order[-1], order[-place] = order[-place], order[-1]
    return tuple(order)


def _reduce(u: UOp, body: UOp, place: dict[UOp, int]) -> UOp:
    loops = tuple(r for r in u.src[1:] if r not in place)
    shaped = [r for r in u.src[1:] if r in place]
    for r in shaped:
        body = widen(body, place[r], r.src[0].value)
    out = node("REDUCE", (body, *loops), (u.arg[0], ())) if loops else body
    if not shaped:
        return out
    rank = len(out.shape)
    out = build("REDUCE", out, arg=(u.arg[0], tuple(sorted(rank - place[r] for r in shaped))))
    return build("RESHAPE", out, shape_source(())) if all(n == 1 for n in out.shape) else out

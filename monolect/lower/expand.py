"""UPCAST and GROUP_REDUCE ranges become shape: values turn into small blocks, such as (6, 4, 16), and stay so.

Each such range is replaced by its constants 0..k-1 along an axis of its own. Output ranges take axes in loop order, so
the innermost is the last axis, the vector lane. A reduction's GROUP_REDUCE ranges keep a partial result per lane, on
the last axes, and one REDUCE over axes joins them after the loop. CONTRACT ranges are the last axes of a product's
operands, and one REDUCE joins them in each iteration: what a matrix unit does at once. (UNROLL ranges are `reduce`'s:
they add into one accumulator.)

A vector access is one instruction only where the last axis is contiguous in memory. Where another axis is, the access
goes along that one, and a PERMUTE turns the value: this is how blocks are transposed in registers. Where two axes lie
in memory as one, the access is that of one long axis.

Before: SINK(END(STORE(INDEX(PARAM0, r0*4 + u), LOAD(INDEX(PARAM1, r0*4 + u))), r0, u:UPCAST 4))
After:  SINK(END(STORE(INDEX(PARAM0, r0*4 + [0,1,2,3]), LOAD(INDEX(PARAM1, r0*4 + [0,1,2,3]))), r0))
Invariant: no UPCAST range is left; a value is never split into scalars.
"""

from __future__ import annotations

from math import prod

from monolect.base.dtype import dtypes
from monolect.base.matrix_units import BY_NAME, runs
from monolect.ir.bounds import ranges
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, substitute_all, toposort
from monolect.lower.scan import Scans, widen

NEAR = 4  # elements between lanes that are picked from whole vectors
SHAPED = ("UPCAST", "GROUP_REDUCE", "CONTRACT")


def expand(sink: UOp) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    place = _places(order)
    if not place:
        return sink
    new: dict[UOp, UOp] = {r: _constants(r, p) for r, p in place.items()}
    running = Scans(order, place)
    new |= _widened_accumulators(order, place, running.lanes())
    inside = _inside(place)
    for u in order:
        if u in new:
            continue
        if inside and not ranges(u).isdisjoint(_contracted(inside)) and (u.op == "INDEX" or u.dtype.kind in "xb"):
            continue  # part of an operand
        if u.op == "LOAD" and not ranges(u).isdisjoint(_contracted(inside)):
            new[u] = _operand(u, inside, new)
            continue
        if u.op == "STORE" and (square := _square_of_words(u, place)):
            new[u] = _turned_words(u, *square, new)
            continue
        if u.op == "WMMA":
            new[u] = _multiplied(u, place, new)
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
    for r in sorted((r for r in shaped if r.arg[1] == "CONTRACT"), key=lambda r: -r.arg[0]):
        place[r] = len(place) + 1
    for u in order:
        if u.op == "REDUCE":
            groups = sorted((r for r in u.src[1:] if r.arg[1] == "GROUP_REDUCE"), key=lambda r: -r.arg[0])
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
    if u.op == "LOAD" and steps[lane] == side.src[0].value <= NEAR:
        return None  # lanes are picked from whole vectors
    conditions = toposort(*(u.src[1:] if u.op == "LOAD" else u.src[2:]))
    return None if any(x.op == "LOAD" for x in conditions) else (lane, side)


def _inside(place: dict[UOp, int]) -> dict[UOp, int]:
    """The places inside a product for a matrix unit: the axes that it contracts stand last."""
    n = len(_contracted(place))
    return {r: p + (n if r.arg[1] == "UPCAST" else 0) for r, p in place.items()} if n else {}


def _operand(u: UOp, inside: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """A load of an operand of a matrix unit. What lies in memory as one is loaded as one axis, then taken apart."""
    steps = dict(linear(u.src[0].src[1])[1])
    last = [r for r in steps if r in inside and (r.arg[1] == "CONTRACT" or inside[r] == len(_contracted(inside)) + 1)]
    last.sort(key=lambda r: steps[r])  # as they lie in memory, the nearest first
    sizes = [r.src[0].value for r in last]
    if len(u.src) > 1 or [steps[r] for r in last] != [prod(sizes[:i]) for i in range(len(last))]:
        return _loaded(u, inside, new)
    n = prod(sizes)
    flat = node("STACK", tuple(idx(i) for i in range(n)))
    mapping = _memory(u, new) | {r: _constants(r, p - len(last) + 1) for r, p in inside.items()}
    mapping |= dict.fromkeys(last, idx(0))
    view, index = substitute_all(u.src[0].src, mapping)
    out = node("LOAD", (node("INDEX", (view, index + flat)),), u.arg)
    lead = out.shape[:-1]
    out = build("RESHAPE", out, shape_source((*lead, *reversed(sizes))))
    order = sorted(last, key=lambda r: -inside[r])
    return build("PERMUTE", out, arg=(*range(len(lead)), *(len(lead) + last[::-1].index(r) for r in order)))


def _loaded(u: UOp, inside: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """The same, each range on the axis of its own."""
    mapping = _memory(u, new) | {r: _constants(r, p) for r, p in inside.items()}
    return node("LOAD", substitute_all(u.src, mapping), u.arg)


def _memory(u: UOp, new: dict[UOp, UOp]) -> dict[UOp, UOp]:
    return {x: new[x] for x in toposort(*u.src) if x.op in ("AFTER", "PARAM", "BUFFER")}


def _multiplied(u: UOp, place: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """A WMMA over ranges: what a lane holds of an operand are its last axes, of the sum too."""
    closed = [r for r in u.src[3:] if r.arg[1] == "CONTRACT"]
    n, kept = len(_contracted(place)), [r for r in ranges(u) if r in place]
    own = [sum(not run.is_lane for run in runs(words)) for words in BY_NAME[u.arg[0]].maps]
    sides = (closed[: own[0]], closed[own[0] :])
    operands = [_held(x, side, _inside(place), new) if n else new[x] for x, side in zip(u.src, sides, strict=False)]
    shape = [1] * max(place[r] for r in kept)
    for r in kept:
        shape[-place[r]] = r.src[0].value
    nothing = build("RESHAPE", u.src[2], shape_source((1,) * len(shape)))
    return node("WMMA", (*operands, build("EXPAND", nothing, shape_source(shape))), (u.arg[0], n, *u.arg[2:]))


def _held(load: UOp, own: list[UOp], inside: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """What a lane holds of an operand: an element for each place of the ranges `own`, also of those that it does not
    move along, where an operand is expanded or repeated along the steps.
    """
    if own and ranges(load).issuperset(own):
        return new[load]
    v, n = _loaded(load, inside, new), len(_contracted(inside))
    v = build("RESHAPE", v, shape_source((*(1,) * (n - len(v.shape)), *v.shape)))
    held = [1] * n
    for r in own:
        held[-inside[r]] = r.src[0].value
    return build("EXPAND", v, shape_source((*v.shape[:-n], *held)))


def _contracted(inside: dict[UOp, int]) -> list[UOp]:
    return [r for r in inside if r.arg[1] == "CONTRACT"]


def _square_of_words(u: UOp, place: dict[UOp, int]) -> tuple[UOp, UOp, UOp] | None:
    """(row, column, part) of a copy of words of 32 bits, in parts, that are rows in memory and columns when stored."""
    if len(u.src) != 2 or u.src[1].op != "LOAD" or any(x.op == "LOAD" for x in toposort(*u.src[1].src[1:])):
        return None
    if any(x.op != "INDEX" or len(x.src) != 2 for x in (u.src[0], u.src[1].src[0])):
        return None
    read, written = (dict(linear(x.src[1])[1]) for x in (u.src[1].src[0], u.src[0]))
    shaped = [r for r in read if r in place and r in written]
    part = next((r for r in shaped if read[r] == written[r] == 1), None)
    if part is None or len(shaped) != 3 or not ranges(u).isdisjoint(place.keys() - set(shaped)):
        return None
    n = part.src[0].value
    column = next((r for r in shaped if read[r] == n), None)
    row = next((r for r in shaped if written[r] == n and r is not column), None)
    return (row, column, part) if row is not None and column is not None and n * u.src[1].dtype.bits == 32 else None


def _turned_words(u: UOp, row: UOp, column: UOp, part: UOp, new: dict[UOp, UOp]) -> UOp:
    """The copy as vectors of words, which a PERMUTE turns."""
    d = u.src[1].dtype

    def place(view: UOp, side: UOp, lane: UOp) -> UOp:
        n = lane.src[0].value * part.src[0].value
        mapping = {r: new[r] for r in toposort(view) if r in new and r.op != "INDEX" and r.dtype.kind != "x"}
        mapping |= {r: new[r] for r in ranges(view)} | {lane: idx(0), part: idx(0), side: _constants(side, 2)}
        base, index = substitute_all(view.src, mapping)
        return node("INDEX", (base, index + node("STACK", tuple(idx(i) for i in range(n)))))

    view, *outside = u.src[1].src
    n, k = column.src[0].value, part.src[0].value
    mapping = {r: new[r] for r in ranges(u) if r not in (row, column, part)} | {row: _constants(row, 2)}
    mapping[column] = node("STACK", tuple(idx(i // k) for i in range(n * k)))
    mapping[part] = node("STACK", tuple(idx(i % k) for i in range(n * k)))
    load = node("LOAD", (place(view, row, column), *substitute_all(tuple(outside), mapping)), u.src[1].arg)
    words = build("BITCAST", load, arg=dtypes.uint32)
    value = build("BITCAST", build("PERMUTE", words, arg=(1, 0)), arg=d)
    return node("STORE", (place(u.src[0], column, row), value))


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
    value = src[1]
    is_whole = place[side] == len(value.shape) and prod(value.shape) == lane.src[0].value * side.src[0].value
    if _lie_as_one(u, lane, side) and len(u.src) == 2 and is_whole:
        return _interleaved(u, value, lane, side, new)
    target, *gate = substitute_all((u.src[0], *u.src[2:]), mapping)
    if value.shape:
        rank = max(len(value.shape), place[side])
        value = build("RESHAPE", value, shape_source((1,) * (rank - len(value.shape)) + value.shape))
        value = build("PERMUTE", value, arg=_exchange(rank, place[side]))
    return node("STORE", (target, value, *gate), u.arg)


def _lie_as_one(u: UOp, lane: UOp, side: UOp) -> bool:
    """Whether an access along `side` continues along the lanes, and there is no other axis."""
    terms = dict(linear(u.src[0].src[1])[1])
    return terms[lane] == side.src[0].value and sum(r.arg[1] in SHAPED for r in terms if r.op == "RANGE") == 2


def _interleaved(u: UOp, value: UOp, lane: UOp, side: UOp, new: dict[UOp, UOp]) -> UOp:
    """The STORE of rows, lane after lane, as that of one vector."""
    n = lane.src[0].value * side.src[0].value
    flat = node("STACK", tuple(idx(i) for i in range(n)))
    view = u.src[0].src[0]
    index = substitute_all(
        (u.src[0].src[1],), {r: new[r] for r in ranges(u.src[0]) if r in new} | {lane: idx(0), side: idx(0)}
    )[0]
    rank = len(value.shape)
    value = build("RESHAPE", build("PERMUTE", value, arg=_exchange(rank, rank)), shape_source((n,)))
    return node("STORE", (node("INDEX", (new[view], index + flat)), value))


def _exchange(rank: int, place: int) -> tuple[int, ...]:
    """The order of axes that exchanges the last with the one at `place`, counted from the last."""
    order = list(range(rank))
    order[-1], order[-place] = order[-place], order[-1]
    return tuple(order)


def _reduce(u: UOp, body: UOp, place: dict[UOp, int]) -> UOp:
    loops = tuple(r for r in u.src[1:] if r not in place)
    shaped = [r for r in u.src[1:] if r in place]
    if any(r.arg[1] == "CONTRACT" for r in shaped):
        n, rank = len(shaped), len(body.shape)
        body = build("REDUCE", body, arg=("ADD", tuple(range(rank - n, rank))))
        body, shaped = build("RESHAPE", body, shape_source(body.shape[:-n])), []
    for r in shaped:
        body = widen(body, place[r], r.src[0].value)
    out = node("REDUCE", (body, *loops), (u.arg[0], ())) if loops else body
    if not shaped:
        return out
    rank = len(out.shape)
    out = build("REDUCE", out, arg=(u.arg[0], tuple(sorted(rank - place[r] for r in shaped))))
    return build("RESHAPE", out, shape_source(())) if all(n == 1 for n in out.shape) else out

"""Turn UPCAST and GROUP_REDUCE ranges into shape: values become small blocks, such as (6, 4, 16).

Each such range is replaced by the constants 0..k-1 along its own axis. Output ranges get axes in loop order, so the
innermost is the last axis, the vector lane. GROUP_REDUCE ranges of a reduction keep a partial result per lane on the
last axes; one REDUCE over axes combines them after the loop. CONTRACT ranges are the last axes of a product's operands;
one REDUCE per iteration combines them, as a matrix unit does in one instruction. (UNROLL ranges are lowered by
`reduce`: they add to one accumulator.)

A vector access is one instruction only if the last axis is contiguous in memory. If another axis is contiguous, the
access runs along that axis and a PERMUTE transposes the value in registers. If two axes are contiguous together, the
access is one long vector.

Before: SINK(END(STORE(INDEX(PARAM0, r0*4 + u), LOAD(INDEX(PARAM1, r0*4 + u))), r0, u:UPCAST 4))
After:  SINK(END(STORE(INDEX(PARAM0, r0*4 + [0,1,2,3]), LOAD(INDEX(PARAM1, r0*4 + [0,1,2,3]))), r0))
Invariant: no UPCAST range is left; a value is never split into scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from monolect.base.dtype import dtypes
from monolect.base.matrix_units import BY_NAME, runs
from monolect.ir.bounds import ranges
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild, shape_source, substitute_all, toposort
from monolect.lower.scan import Scans, widen

MAX_SHUFFLE_STRIDE = 4  # elements; lanes at most this far apart are shuffled from contiguous vectors
SHAPED = ("UPCAST", "GROUP_REDUCE", "CONTRACT")  # types of the ranges that become axes of values


def expand(sink: UOp) -> UOp:
    """Pass: turn the UPCAST, GROUP_REDUCE and CONTRACT ranges of a kernel into axes of values."""
    order = nodes_of(sink)
    axis_of = _assign_axes(order)
    if not axis_of:
        return sink
    new: dict[UOp, UOp] = {r: _constants(r, p) for r, p in axis_of.items()}
    scans = Scans(order, axis_of)
    new |= _widened_accumulators(order, axis_of, scans.lanes())
    inside = _axes_in_product(axis_of)
    for u in order:
        if u in new:
            continue
        if inside and not ranges(u).isdisjoint(_contracted(inside)) and (u.op == "INDEX" or u.dtype.kind in "xb"):
            continue  # only needed inside of an operand, which is built as a whole
        if u.op == "LOAD" and not ranges(u).isdisjoint(_contracted(inside)):
            new[u] = _operand(u, inside, new)
            continue
        if u.op == "STORE" and (transpose := _word_transpose(u, axis_of)):
            new[u] = _transposed_words(u, *transpose, new)
            continue
        if u.op == "WMMA":
            new[u] = _wmma(u, axis_of, new)
            continue
        src = tuple(new[s] for s in u.src)
        if u.op == "REDUCE" and len(u.src) > 1:
            new[u] = _reduce(u, src[0], axis_of)
        elif (out := scans.expanded(u, src, new)) is not None:
            new[u] = out
        elif u.op == "END":
            open_ = tuple(r for r in u.src[1:] if r not in axis_of)
            new[u] = node("END", (src[0], *open_)) if open_ else src[0]
        elif u.op == "AFTER":
            new[u] = node("AFTER", (src[0], *(s for o, s in zip(u.src[1:], src[1:], strict=True) if o not in axis_of)))
        elif u.op in ("LOAD", "STORE") and (strided := _strided_axes(u, axis_of)):
            new[u] = _transposed_access(u, src, axis_of, new, strided)
        else:
            new[u] = rebuild(u, src)
    return new[sink]


def _assign_axes(order: Sequence[UOp]) -> dict[UOp, int]:
    """Return the axis, counted from the last (1), of each RANGE in `order` that becomes an axis of values (`SHAPED`).

    Two ranges that one value depends on get different axes.
    """
    axis_of: dict[UOp, int] = {}
    shaped = [u for u in order if u.op == "RANGE" and u.arg[1] in SHAPED]
    for r in sorted((r for r in shaped if r.arg[1] == "CONTRACT"), key=lambda r: -r.arg[0]):
        axis_of[r] = len(axis_of) + 1
    reduced: dict[UOp, None] = {}  # GROUP_REDUCE ranges, those of inner reductions first: they get the last axes
    for u in order:
        if u.op == "REDUCE":
            groups = sorted((r for r in u.src[1:] if r.arg[1] == "GROUP_REDUCE"), key=lambda r: -r.arg[0])
            reduced.update(dict.fromkeys(groups))
    outputs = sorted((r for r in shaped if r.arg[1] == "UPCAST"), key=lambda r: -r.arg[0])
    co_occurring = _co_occurring([*reduced, *outputs], order)
    for r in (*reduced, *outputs):
        axis_of[r] = max((axis_of[x] for x in co_occurring[r] if x in axis_of), default=0) + 1
    return axis_of


def _co_occurring(shaped: list[UOp], order: Sequence[UOp]) -> dict[UOp, set[UOp]]:
    """Return, for each range of `shaped`, the others that one value in `order` depends on or is reduced over together
    with it.
    """
    co_occurring: dict[UOp, set[UOp]] = {r: set() for r in shaped}
    known: set[frozenset[UOp]] = set()
    for u in order:
        free = ranges(u).union(u.src[1:]) if u.op == "REDUCE" else ranges(u)
        if free not in known:
            known.add(free)
            here = [r for r in free if r in co_occurring]
            for r in here:
                co_occurring[r].update(x for x in here if x is not r)
    return co_occurring


def _widened_accumulators(order: Sequence[UOp], axis_of: dict[UOp, int], scanned: set[UOp]) -> dict[UOp, UOp]:
    """Return, for each REG buffer that is stored as a whole, a BUFFER with axes for the ranges of its STOREs.

    `axis_of`: the axis of each range that becomes one. Ranges in `scanned` get no axis: a SCAN combines their
    iterations. `order`: the nodes of the kernel.
    """
    lanes: dict[UOp, set[UOp]] = {}
    for u in order:
        if u.op == "STORE":
            b = u.src[0]
            while b.op == "AFTER":
                b = b.src[0]
            if b.op == "BUFFER":
                lanes.setdefault(b, set()).update(r for r in ranges(u) if r in axis_of and r not in scanned)
    out = {}
    for b, rs in lanes.items():
        if rs:
            shape = [1] * max(axis_of[r] for r in rs)
            for r in rs:
                shape[-axis_of[r]] = r.src[0].value
            out[b] = node("BUFFER", (shape_source(shape),), b.arg)
    return out


def _constants(r: UOp, axis: int) -> UOp:
    """Return the constants 0..n-1, which replace the range `r` of n iterations, along `axis`, counted from the last."""
    n = r.src[0].value
    flat = node("STACK", tuple(idx(i) for i in range(n)))
    return build("RESHAPE", flat, shape_source((n, *(1,) * (axis - 1))))


def _strided_axes(u: UOp, axis_of: dict[UOp, int]) -> tuple[UOp, UOp] | None:
    """Return (range of the last axis, contiguous range) if the LOAD or STORE `u` is contiguous along another axis.

    Return None for other accesses, and for accesses that need no transpose. `axis_of` is from `_assign_axes`.
    """
    if u.src[0].op != "INDEX" or len(u.src[0].src) != 2:
        return None
    steps: dict[UOp, int] = {}
    for x, c in linear(u.src[0].src[1])[1]:
        if x in axis_of:
            steps[x] = c
        elif not ranges(x).isdisjoint(axis_of):
            return None
    lane = next((r for r in steps if axis_of[r] == 1), None)
    contiguous = next((r for r, c in steps.items() if c == 1), None)
    if lane is None or contiguous is None or steps[lane] in (1, -1):
        return None
    if u.op == "LOAD" and steps[lane] == contiguous.src[0].value <= MAX_SHUFFLE_STRIDE:
        return None  # lanes are shuffled from contiguous vectors
    conditions = toposort(*(u.src[1:] if u.op == "LOAD" else u.src[2:]))
    return None if any(x.op == "LOAD" for x in conditions) else (lane, contiguous)


def _axes_in_product(axis_of: dict[UOp, int]) -> dict[UOp, int]:
    """Return the axis of each range in the operands of a matrix unit, where the CONTRACT ranges are the last axes.

    The result is empty if there are no CONTRACT ranges.
    """
    n = len(_contracted(axis_of))
    return {r: p + (n if r.arg[1] == "UPCAST" else 0) for r, p in axis_of.items()} if n else {}


def _operand(u: UOp, inside: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """Return the LOAD `u` of a matrix unit's operand, with the axis `inside[r]` for each range r.

    Ranges that are contiguous together are loaded as one axis, which is then split and permuted. `new`: the expanded
    nodes so far.
    """
    steps = dict(linear(u.src[0].src[1])[1])
    last = [r for r in steps if r in inside and (r.arg[1] == "CONTRACT" or inside[r] == len(_contracted(inside)) + 1)]
    last.sort(key=lambda r: steps[r])  # in memory order, innermost first
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
    """Return the LOAD `u` of a matrix unit's operand, with the range r as constants along the axis `inside[r]`.

    `new`: the expanded nodes so far.
    """
    mapping = _memory(u, new) | {r: _constants(r, p) for r, p in inside.items()}
    return node("LOAD", substitute_all(u.src, mapping), u.arg)


def _memory(u: UOp, new: dict[UOp, UOp]) -> dict[UOp, UOp]:
    """Return the part of `new` that replaces the AFTERs, PARAMs and BUFFERs that `u` depends on."""
    return {x: new[x] for x in toposort(*u.src) if x.op in ("AFTER", "PARAM", "BUFFER")}


def _wmma(u: UOp, axis_of: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """Return the WMMA `u` over ranges as a WMMA of values with axes.

    The elements that a lane holds are the last axes of the operands and of the sum. `axis_of`: the axis of each range;
    `new`: the expanded nodes so far.
    """
    closed = [r for r in u.src[3:] if r.arg[1] == "CONTRACT"]
    n, kept = len(_contracted(axis_of)), [r for r in ranges(u) if r in axis_of]
    own = [sum(not run.is_lane for run in runs(words)) for words in BY_NAME[u.arg[0]].maps]
    sides = (closed[: own[0]], closed[own[0] :])
    operands = [
        _expanded_operand(x, side, _axes_in_product(axis_of), new) if n else new[x]
        for x, side in zip(u.src, sides, strict=False)
    ]
    shape = [1] * max(axis_of[r] for r in kept)
    for r in kept:
        shape[-axis_of[r]] = r.src[0].value
    nothing = build("RESHAPE", u.src[2], shape_source((1,) * len(shape)))
    return node("WMMA", (*operands, build("EXPAND", nothing, shape_source(shape))), (u.arg[0], n, *u.arg[2:]))


def _expanded_operand(load: UOp, own: list[UOp], inside: dict[UOp, int], new: dict[UOp, UOp]) -> UOp:
    """Return the operand `load` of a WMMA with the axis `inside[r]` for each range r of `own`.

    The operand is broadcast along those of `own` that it does not depend on. `new`: the expanded nodes so far.
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
    """Return the CONTRACT ranges among the keys of `inside`."""
    return [r for r in inside if r.arg[1] == "CONTRACT"]


def _word_transpose(u: UOp, axis_of: dict[UOp, int]) -> tuple[UOp, UOp, UOp] | None:
    """Return the ranges (row, column, part) if the STORE `u` transposes a matrix of 32-bit words, else None.

    A word consists of the several contiguous narrow elements along `part`, for example two float16. `axis_of` has the
    ranges that become axes.
    """
    if len(u.src) != 2 or u.src[1].op != "LOAD" or any(x.op == "LOAD" for x in toposort(*u.src[1].src[1:])):
        return None
    if any(x.op != "INDEX" or len(x.src) != 2 for x in (u.src[0], u.src[1].src[0])):
        return None
    read, written = (dict(linear(x.src[1])[1]) for x in (u.src[1].src[0], u.src[0]))
    shaped = [r for r in read if r in axis_of and r in written]
    part = next((r for r in shaped if read[r] == written[r] == 1), None)
    if part is None or len(shaped) != 3 or not ranges(u).isdisjoint(axis_of.keys() - set(shaped)):
        return None
    n = part.src[0].value
    column = next((r for r in shaped if read[r] == n), None)
    row = next((r for r in shaped if written[r] == n and r is not column), None)
    return (row, column, part) if row is not None and column is not None and n * u.src[1].dtype.bits == 32 else None


def _transposed_words(u: UOp, row: UOp, column: UOp, part: UOp, new: dict[UOp, UOp]) -> UOp:
    """Return the STORE `u` of a LOAD as one LOAD of rows of 32-bit words, a PERMUTE that transposes the words, and one
    STORE of rows.

    The loaded matrix has a row for each value of the range `row` and a column of words for each value of `column`. The
    range `part` is over the narrow elements of a word.
    """
    d = u.src[1].dtype

    def vector_access(view: UOp, row_range: UOp, lane: UOp) -> UOp:
        """Return the INDEX `view` expanded to a matrix of elements, with a row for each value of `row_range`.

        A row has the contiguous elements of the words along `lane`; `part`, of the caller, is the range within a word.
        """
        n = lane.src[0].value * part.src[0].value
        mapping = {r: new[r] for r in toposort(view) if r in new and r.op != "INDEX" and r.dtype.kind != "x"}
        mapping |= {r: new[r] for r in ranges(view)} | {lane: idx(0), part: idx(0), row_range: _constants(row_range, 2)}
        base, index = substitute_all(view.src, mapping)
        return node("INDEX", (base, index + node("STACK", tuple(idx(i) for i in range(n)))))

    view, *outside = u.src[1].src
    n, k = column.src[0].value, part.src[0].value
    mapping = {r: new[r] for r in ranges(u) if r not in (row, column, part)} | {row: _constants(row, 2)}
    mapping[column] = node("STACK", tuple(idx(i // k) for i in range(n * k)))
    mapping[part] = node("STACK", tuple(idx(i % k) for i in range(n * k)))
    load = node("LOAD", (vector_access(view, row, column), *substitute_all(tuple(outside), mapping)), u.src[1].arg)
    words = build("BITCAST", load, arg=dtypes.uint32)
    value = build("BITCAST", build("PERMUTE", words, arg=(1, 0)), arg=d)
    return node("STORE", (vector_access(u.src[0], column, row), value))


def _transposed_access(
    u: UOp, src: tuple[UOp, ...], axis_of: dict[UOp, int], new: dict[UOp, UOp], strided: tuple[UOp, UOp]
) -> UOp:
    """Return the LOAD or STORE `u` as an access along its contiguous axis, and a PERMUTE of the value in registers.

    `strided` is (lane range, contiguous range); the access exchanges their axes, those of `axis_of`. `src`: the
    expanded sources of `u`; `new`: the expanded nodes so far.
    """
    lane, contiguous = strided
    swapped = {**axis_of, lane: axis_of[contiguous], contiguous: axis_of[lane]}
    mapping = {r: _constants(r, p) for r, p in swapped.items()}
    mapping |= {x: new[x] for x, _ in linear(u.src[0].src[1])[1] if x not in axis_of}
    mapping |= {u.src[0].src[0]: src[0].src[0]}
    if u.op == "LOAD":
        out = node("LOAD", substitute_all(u.src, mapping), u.arg)
        return build("PERMUTE", out, arg=_exchange(len(out.shape), swapped[lane]))
    value = src[1]
    is_whole = (
        axis_of[contiguous] == len(value.shape) and prod(value.shape) == lane.src[0].value * contiguous.src[0].value
    )
    if _is_one_vector(u, lane, contiguous) and len(u.src) == 2 and is_whole:
        return _interleaved(u, value, lane, contiguous, new)
    target, *gate = substitute_all((u.src[0], *u.src[2:]), mapping)
    if value.shape:
        rank = max(len(value.shape), axis_of[contiguous])
        value = build("RESHAPE", value, shape_source((1,) * (rank - len(value.shape)) + value.shape))
        value = build("PERMUTE", value, arg=_exchange(rank, axis_of[contiguous]))
    return node("STORE", (target, value, *gate), u.arg)


def _is_one_vector(u: UOp, lane: UOp, contiguous: UOp) -> bool:
    """Whether the LOAD or STORE `u` accesses one contiguous block of memory: a row along `contiguous` for each lane.

    False if the index of `u` depends on ranges other than `lane` and `contiguous` that become axes.
    """
    terms = dict(linear(u.src[0].src[1])[1])
    return terms[lane] == contiguous.src[0].value and sum(r.arg[1] in SHAPED for r in terms if r.op == "RANGE") == 2


def _interleaved(u: UOp, value: UOp, lane: UOp, contiguous: UOp, new: dict[UOp, UOp]) -> UOp:
    """Return the STORE `u` of `value` as a STORE of one flat vector: the rows of `value` are interleaved in memory.

    Memory has the elements along `contiguous` of lane 0, then those of lane 1, and so on. `new`: the expanded nodes so
    far.
    """
    n = lane.src[0].value * contiguous.src[0].value
    flat = node("STACK", tuple(idx(i) for i in range(n)))
    view = u.src[0].src[0]
    index = substitute_all(
        (u.src[0].src[1],), {r: new[r] for r in ranges(u.src[0]) if r in new} | {lane: idx(0), contiguous: idx(0)}
    )[0]
    rank = len(value.shape)
    value = build("RESHAPE", build("PERMUTE", value, arg=_exchange(rank, rank)), shape_source((n,)))
    return node("STORE", (node("INDEX", (new[view], index + flat)), value))


def _exchange(rank: int, axis: int) -> tuple[int, ...]:
    """Return the permutation of `rank` axes that exchanges the last with `axis`, counted from the last."""
    order = list(range(rank))
    order[-1], order[-axis] = order[-axis], order[-1]
    return tuple(order)


def _reduce(u: UOp, body: UOp, axis_of: dict[UOp, int]) -> UOp:
    """Return the REDUCE `u` of `body`: over its loops, then over the axes `axis_of` of its other ranges.

    The axes of CONTRACT ranges are reduced first, in each iteration of the loops.
    """
    loops = tuple(r for r in u.src[1:] if r not in axis_of)
    shaped = [r for r in u.src[1:] if r in axis_of]
    if any(r.arg[1] == "CONTRACT" for r in shaped):
        n, rank = len(shaped), len(body.shape)
        body = build("REDUCE", body, arg=("ADD", tuple(range(rank - n, rank))))
        body, shaped = build("RESHAPE", body, shape_source(body.shape[:-n])), []
    for r in shaped:
        body = widen(body, axis_of[r], r.src[0].value)
    out = node("REDUCE", (body, *loops), (u.arg[0], ())) if loops else body
    if not shaped:
        return out
    rank = len(out.shape)
    out = build("REDUCE", out, arg=(u.arg[0], tuple(sorted(rank - axis_of[r] for r in shaped))))
    return build("RESHAPE", out, shape_source(())) if all(n == 1 for n in out.shape) else out


__all__ = ["expand"]

"""Lower concatenation: one store per piece instead of a select inside the loop, or one load with an offset per row.

`stack` of n values is one store in a loop of n iterations, each of which would compute all values and select one. If
each iteration of a loop has its own value, each gets its own store in the remaining loops. This also applies if the
values are computed from selected values, as in sums of concatenated sums. Concatenations of many pieces of several
elements get a store per piece too, since otherwise every element would test for every piece. Long pieces get separate
innermost loops, so that memory is written contiguously.

If every element of a row comes from one of two rows of the same memory (`roll` of rows), the row is selected once by an
offset, and no element is loaded under a mask.

What it is not: it leaves concatenations of a few tensors of several elements, whose loops the optimizer
splits at the boundaries (action PEEL), and kernels in which another store needs the loop around its own loops.

Before: END(STORE(INDEX(PARAM0, r0*128 + r1), WHERE(r0 < 1, a, b)), r0:2, r1:128)
After:  END(STORE(INDEX(PARAM0, r1), a), r1:128), END(STORE(INDEX(PARAM0, r1 + 128), b), r1:128)
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.ir.bounds import Interval, ranges, replace_ranges, unused_ranges
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.rewrite.normal import conjuncts, limits, linear, negate
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild, toposort

ROWS = Family(
    "joined", __name__,
    Row("store_each_step", "a loop that only selects one value per iteration becomes a store per iteration"),
    Row("store_each_piece", "a loop that only selects among many pieces becomes a loop and a store per piece"),
    Row("loop_each_piece", "the loop over contiguous elements is a separate innermost loop of each piece"),
    Row("read_rows_at_once", "(m[a] if p else m[b]) is m[b + (a - b if p else 0)], if p is constant along rows"),
)  # fmt: skip

MAX_PIECES = 64  # iterations; a longer loop is not replaced by a store per iteration
# boundaries of a loop; from here on each piece of several elements is stored separately, since cutting the loop at all
# boundaries would make as many loops
MIN_BOUNDARIES = 8
MIN_RUN = 64  # contiguous elements; from here on each piece has its own innermost loop
MAX_NODES = 8192  # nodes of all pieces; code generation for more takes over a second
MIN_NODES_STRIDED = 48  # nodes of the store; from here on separate stores pay although they are strided

Holds = dict[UOp, Interval | None]  # for each condition, the first and the last iteration in which it is true


def stored_apart(sink: UOp, own_loops: bool = True) -> UOp:
    """Pass: replace loops of `sink` that only select among values by separate stores.

    `own_loops`: whether stores may get new loops. If not, as where lanes divide the same loops of all stores, only
    pieces that keep the remaining loops are stored separately.
    """
    k = 0
    while k < len(sink.src):
        before, end, after = sink.src[:k], sink.src[k], sink.src[k + 1 :]
        for name, pieces in _split_stores(end, sink, own_loops):
            split = node(
                "SINK", (*before, *(_with_own_inner_loops(pieces, sink) if own_loops else pieces), *after), sink.arg
            )
            if _is_nest(split):
                sink = split
                fired(name, end, node("SINK", tuple(pieces)))
                break
        else:
            k += 1
    return sink


def _is_nest(sink: UOp) -> bool:
    """Whether all effects and reductions of the kernel can be nested in the order of their loops' numbers.

    Of two loops that share a body, the one with the lower number must enclose everything that the other encloses.
    """
    sets: dict[UOp, set[UOp]] = {}  # for each loop, the nodes inside of it
    inside = [
        (u, frozenset(u.src[1:]) if u.op == "END" else ranges(u)) for u in nodes_of(sink) if u.op in ("END", "REDUCE")
    ]
    for u, loops in inside:
        for r in loops:
            sets.setdefault(r, set()).add(u)
    pairs = {(a, b) for _, loops in inside for a in loops for b in loops if a.arg[0] < b.arg[0]}
    return all(sets[b] <= sets[a] for a, b in pairs)


def _split_stores(end: UOp, sink: UOp, own_loops: bool) -> Iterator[tuple[str, list[UOp]]]:
    """Yield (rule name, separate stores that replace `end`) for each loop that can be split in such stores.

    Such a loop selects among values by the conditions of WHEREs. If each iteration selects its own value, each gets a
    store without the loop. Pieces of several iterations get stores in new loops, and are yielded only with `own_loops`.
    Nothing is yielded unless `end` is the END of one indexed STORE without reductions.
    """
    if end.op != "END" or end.src[0].op != "STORE":
        return
    store, loops = end.src[0], end.src[1:]
    if store.src[0].op != "INDEX":
        return
    body = toposort(store)
    if any(u.op in ("REDUCE", "AFTER") for u in body):
        return
    conditions = {u.src[0] for u in body if u.op == "WHERE"}
    picks = [ranges(c) for c in conditions]
    for r in loops:
        n = r.src[0].value if r.src[0].op == "CONST" else MAX_PIECES + 1
        near = dict(linear(store.src[0].src[1])[1]).get(r) == 1
        single = len(loops) > 1 and n <= MAX_PIECES and picks.count(frozenset((r,))) == n - 1
        if single and not (near and len(body) < MIN_NODES_STRIDED) and is_on("store_each_step"):
            rest = tuple(x for x in loops if x is not r)
            holds = _holds(conditions, r)
            pieces = [node("END", (_piece(store, r, k, idx(k), holds), *rest), end.arg) for k in range(n)]
            yield "store_each_step", pieces
        elif (
            own_loops and len(boundaries := _boundaries(conditions, r)) >= MIN_BOUNDARIES and is_on("store_each_piece")
        ):
            pieces = _pieces(end, r, boundaries, sink, _holds(conditions, r))
            if sum(len(toposort(p)) for p in pieces) <= MAX_NODES:
                yield "store_each_piece", pieces


def _with_own_inner_loops(pieces: list[UOp], sink: UOp) -> list[UOp]:
    """Return `pieces` with a separate innermost loop each, if that loop is contiguous and long enough.

    If all pieces shared an innermost loop, each iteration would write to as many separate rows as there are pieces.
    """
    numbers, out = unused_ranges(toposort(sink, *pieces)), []
    for end in pieces:
        *around, last = end.src[1:] if end.op == "END" else (None,)
        if around and last is not None and last.src[0].op == "CONST" and last.src[0].value >= MIN_RUN:
            if dict(linear(end.src[0].src[0].src[1])[1]).get(last) == 1:
                own = node("RANGE", last.src, (next(numbers), last.arg[1]))
                if is_on("loop_each_piece"):
                    split = node("END", (replace_ranges(end.src[0], {last: own}), *around, own), end.arg)
                    end = fired("loop_each_piece", end, split)
        out.append(end)
    return out


def _boundaries(conditions: set[UOp], r: UOp) -> list[int]:
    """Return the iterations of the loop r in which a new piece begins by one of `conditions`, in order.

    The result is empty if a condition depends on r other than as r < constant.
    """
    mine = [c for c in conditions if r in ranges(c)]
    if any(c.op != "CMPLT" or c.src[0] is not r or c.src[1].op != "CONST" for c in mine):
        return []
    return sorted({c.src[1].value for c in mine})


def _pieces(end: UOp, r: UOp, boundaries: list[int], sink: UOp, holds: Holds) -> list[UOp]:
    """Return, for each piece between `boundaries` of the loop r, a store of the piece (the END of its loops) instead of
    `end`.

    Pieces of equal size share new loops from r inward; loops shared by all sizes would have to enclose those of r.
    Pieces of one size keep the old loop numbers if these are free. `holds`: as `_holds` returns it.
    """
    store, loops, numbers = end.src[0], end.src[1:], unused_ranges(nodes_of(sink))
    inside = [x for x in loops if x.arg[0] >= r.arg[0]]
    is_free = all(x not in u.src for u in sink.src if u is not end for x in inside)
    sizes: dict[int, dict[UOp, UOp]] = {}
    out = []
    for start, stop in zip([0, *boundaries], [*boundaries, r.src[0].value], strict=True):
        if (n := stop - start) not in sizes:
            keeps = is_free and not sizes
            sizes[n] = {
                x: node("RANGE", (idx(n),) if x is r else x.src, x.arg if keeps else (next(numbers), x.arg[1]))
                for x in inside
            }
        own = sizes[n]
        x = own[r] if n > 1 else idx(0)
        rest = [own.get(y, y) for y in loops if y is not r or n > 1]
        piece = replace_ranges(
            _piece(store, r, start, x + idx(start), holds), {y: own[y] for y in inside if y is not r}
        )
        out.append(node("END", (piece, *rest), end.arg) if rest else piece)
    return out


def _holds(conditions: set[UOp], r: UOp) -> Holds:
    """Return, for each of `conditions`, the first and the last iteration of r in which it is true.

    The value is None for a condition that does not compare r alone with a constant.
    """
    return {c: limits((c,)).get(r) for c in conditions}


def _piece(store: UOp, r: UOp, start: int, index: UOp, holds: Holds) -> UOp:
    """Return the store at r = `index`, in the piece that begins at `start`.

    WHEREs whose conditions are known there (`holds`) are replaced by the selected value, without visiting the other
    value: there may be as many nested WHEREs as pieces.
    """
    new = {r: index}
    stack = [store]
    while stack:
        u = stack[-1]
        src = [_picked(s, start, holds) for s in u.src]
        if u in new or r not in ranges(u):
            new.setdefault(stack.pop(), u)
        elif pending := [s for s in src if s not in new]:
            stack.extend(reversed(pending))
        else:
            new[stack.pop()] = rebuild(u, tuple([new[s] for s in src]))
    return new[store]


def _picked(u: UOp, k: int, holds: Holds) -> UOp:
    """Return the value that WHEREs with known conditions (`holds`) select in iteration k."""
    while u.op == "WHERE" and (when := holds[u.src[0]]) is not None:
        u = u.src[1] if when[0] <= k <= when[1] else u.src[2]
    return u


def read_at_once(sink: UOp) -> UOp:
    """Pass: replace a selection between two loads of one memory by one load with a selected offset.

    That is done if the condition depends on no loop along which elements are contiguous, so that it is the same for all
    elements of a vector.

    Before: WHERE(r0 < 5, LOAD(INDEX(p, r0*8 + r1 + 40), 0, r0 < 5), LOAD(INDEX(p, r0*8 + r1 - 40), 0, 4 < r0))
    After:  LOAD(INDEX(p, r0*8 + r1 - 40 + WHERE(r0 < 5, 80, 0)))
    """
    order = nodes_of(sink)
    if not any(_is_choice(u) for u in order):
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        once = _read_at_once(v) if _is_choice(v) and is_on("read_rows_at_once") else None
        new[u] = v if once is None else fired("read_rows_at_once", v, once)
    return new[sink]


def _is_choice(u: UOp) -> bool:
    """Whether `u` is a WHERE of two LOADs without a LoadArg, whose condition is a CMPLT of index values."""
    if u.op != "WHERE" or u.src[0].op != "CMPLT" or u.src[0].src[0].dtype.kind != "x":
        return False
    return all(x.op == "LOAD" and x.arg is None for x in u.src[1:])


def _read_at_once(u: UOp) -> UOp | None:
    """Return the selection `u` between two loads as one load with a selected offset, or None."""
    c, a, b = u.src
    memory, *indices = a.src[0].src
    if len(indices) != 1 or b.src[0].op != "INDEX" or b.src[0].src[0] is not memory or a.src[1:2] != b.src[1:2]:
        return None
    distance, terms = linear(indices[0] + b.src[0].src[1] * -1)
    rest = [set(conjuncts(x.src[2])) - {side} if len(x.src) > 2 else set() for x, side in ((a, c), (b, negate(c)))]
    steps = dict(linear(b.src[0].src[1])[1])
    if terms or rest[0] != rest[1] or any(abs(steps.get(r, 1)) == 1 for r in ranges(c)):
        return None
    index = node("INDEX", (memory, b.src[0].src[1] + build("WHERE", c, idx(distance), idx(0))))
    if not rest[0]:
        return node("LOAD", (index,))
    gate, *more = (g for g in conjuncts(a.src[2]) if g in rest[0])
    for g in more:
        gate = build("AND", gate, g)
    return node("LOAD", (index, a.src[1], gate))


__all__ = ["read_at_once", "stored_apart"]

"""What is joined is stored piece by piece along a short axis, or if there are many pieces, and read at once where whole
rows of one tensor are joined.

`stack` of n values is one store in a loop of n that picks among them: every iteration would compute all. Where each
iteration of a loop has a value of its own, it gets a store of its own instead, in the loops that remain; also where the
values are made of what was picked, as sums of joined sums are. So do many pieces of several elements, of which else every
element would ask for each. Long pieces have an innermost loop each, so that memory is walked through place by place.

Where every element of a row comes from one of two places in the same memory (`roll` of rows), the place is picked once
a row, and no element is read by a mask.

What it is not: for a few joined tensors of several elements along the axis, whose loop is cut at the seams later; nor
where what else the kernel does needs that loop around the others.

Before: END(STORE(INDEX(PARAM0, r0*128 + r1), WHERE(r0 < 1, a, b)), r0:2, r1:128)
After:  END(STORE(INDEX(PARAM0, r1), a), r1:128), END(STORE(INDEX(PARAM0, r1 + 128), b), r1:128)
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.ir.bounds import Interval, ranges, replace_ranges, unused_ranges
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.rewrite.normal import conjuncts, limits, linear, negate
from monolect.ir.uop import UOp, build, idx, node, rebuild, toposort

ROWS = Family(
    "joined", __name__,
    Row("store_each_step", "a loop that only picks among its iterations' values is a store for each of them"),
    Row("store_each_piece", "a loop that only picks among many pieces is a loop and a store for each of them"),
    Row("loop_each_piece", "the loop over neighbours in memory is the innermost of each piece, not one for all"),
    Row("read_rows_at_once", "(m[a] if p else m[b]) is m[b + (a - b if p else 0)], p being the same along rows"),
)  # fmt: skip

MOST_PIECES = 64
MANY_SEAMS = 8  # from which on pieces of several elements are stored apart: more sections than a loop is cut into
LONG_RUN = 64  # neighbours in memory from which on the loop over them is each piece's own
MOST_NODES = 8192  # in all of these: code generation takes a second
WORTH_IT = 48  # nodes in all pieces from which on stores of elements that are no neighbours cost less

Holds = dict[UOp, Interval | None]  # of conditions: the first and the last iteration in which they hold


def stored_apart(sink: UOp, own_loops: bool = True) -> UOp:
    """See the module docstring. Without `own_loops`, as where lanes share out the loops of all stores alike, only pieces
    that remain in those loops are stored apart.
    """
    k = 0
    while k < len(sink.src):
        before, end, after = sink.src[:k], sink.src[k], sink.src[k + 1 :]
        for name, pieces in _apart(end, sink, own_loops):
            apart = node("SINK", (*before, *(_runs(pieces, sink) if own_loops else pieces), *after), sink.arg)
            if _nest(apart):
                sink = apart
                fired(name, end, node("SINK", tuple(pieces)))
                break
        else:
            k += 1
    return sink


def _nest(sink: UOp) -> bool:
    """Do all that the kernel does nest by the numbers of its loops? Of two around one thing, the first is around all that
    the second is.
    """
    sets: dict[UOp, set[UOp]] = {}  # for each loop what stands in it
    inside = [
        (u, frozenset(u.src[1:]) if u.op == "END" else ranges(u)) for u in toposort(sink) if u.op in ("END", "REDUCE")
    ]
    for u, loops in inside:
        for r in loops:
            sets.setdefault(r, set()).add(u)
    pairs = {(a, b) for _, loops in inside for a in loops for b in loops if a.arg[0] < b.arg[0]}
    return all(sets[b] <= sets[a] for a, b in pairs)


def _apart(end: UOp, sink: UOp, own_loops: bool) -> Iterator[tuple[str, list[UOp]]]:
    """For each loop of an END that only picks: the rule, and the stores of its iterations, or of its pieces."""
    if end.op != "END" or end.src[0].op != "STORE":
        return
    store, loops = end.src[0], end.src[1:]
    if store.src[0].op != "INDEX":
        return
    body = toposort(store)
    if any(u.op in ("REDUCE", "AFTER") for u in body):
        return
    asked = {u.src[0] for u in body if u.op == "WHERE"}
    picks = [ranges(c) for c in asked]
    for r in loops:
        n = r.src[0].value if r.src[0].op == "CONST" else MOST_PIECES + 1
        near = dict(linear(store.src[0].src[1])[1]).get(r) == 1
        single = len(loops) > 1 and n <= MOST_PIECES and picks.count(frozenset((r,))) == n - 1
        if single and not (near and len(body) < WORTH_IT) and is_on("store_each_step"):
            rest = tuple(x for x in loops if x is not r)
            holds = _holds(asked, r)
            pieces = [node("END", (_piece(store, r, k, idx(k), holds), *rest), end.arg) for k in range(n)]
            yield "store_each_step", pieces
        elif own_loops and len(seams := _seams(asked, r)) >= MANY_SEAMS and is_on("store_each_piece"):
            pieces = _pieces(end, r, seams, sink, _holds(asked, r))
            if sum(len(toposort(p)) for p in pieces) <= MOST_NODES:
                yield "store_each_piece", pieces


def _runs(pieces: list[UOp], sink: UOp) -> list[UOp]:
    """The pieces with an innermost loop each, where that is long enough: one shared by all would walk through as many
    places of memory at once.
    """
    numbers, out = unused_ranges(toposort(sink, *pieces)), []
    for end in pieces:
        *around, last = end.src[1:] if end.op == "END" else (None,)
        if around and last is not None and last.src[0].op == "CONST" and last.src[0].value >= LONG_RUN:
            if dict(linear(end.src[0].src[0].src[1])[1]).get(last) == 1:
                own = node("RANGE", last.src, (next(numbers), last.arg[1]))
                if is_on("loop_each_piece"):
                    apart = node("END", (replace_ranges(end.src[0], {last: own}), *around, own), end.arg)
                    end = fired("loop_each_piece", end, apart)
        out.append(end)
    return out


def _seams(asked: set[UOp], r: UOp) -> list[int]:
    """The iterations of the loop r in which another piece begins, if that is all that is asked of r."""
    mine = [c for c in asked if r in ranges(c)]
    if any(c.op != "CMPLT" or c.src[0] is not r or c.src[1].op != "CONST" for c in mine):
        return []
    return sorted({c.src[1].value for c in mine})


def _pieces(end: UOp, r: UOp, seams: list[int], sink: UOp, holds: Holds) -> list[UOp]:
    """A store for each piece; those of each size have loops of their own from r on, for loops inside that all share would
    have to be around those of r. One size takes the numbers of these if they are free.
    """
    store, loops, numbers = end.src[0], end.src[1:], unused_ranges(toposort(sink))
    inside = [x for x in loops if x.arg[0] >= r.arg[0]]
    is_free = all(x not in u.src for u in sink.src if u is not end for x in inside)
    sizes: dict[int, dict[UOp, UOp]] = {}
    out = []
    for start, stop in zip([0, *seams], [*seams, r.src[0].value], strict=True):
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


def _holds(asked: set[UOp], r: UOp) -> Holds:
    """From which iteration of r to which each condition holds; None where that is not all it asks."""
    return {c: limits((c,)).get(r) for c in asked}


def _piece(store: UOp, r: UOp, start: int, place: UOp, holds: Holds) -> UOp:
    """The store at r = `place`, in the piece that begins at `start`. Of a choice whose condition `holds` from one r to
    another only what is picked is looked at: there may be as many choices, each in the one before, as pieces.
    """
    new = {r: place}
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
    """What choices pick in iteration k."""
    while u.op == "WHERE" and (when := holds[u.src[0]]) is not None:
        u = u.src[1] if when[0] <= k <= when[1] else u.src[2]
    return u


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
        once = _read_at_once(v) if _is_choice(v) and is_on("read_rows_at_once") else None
        new[u] = v if once is None else fired("read_rows_at_once", v, once)
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

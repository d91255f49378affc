"""Many additions to few places are done in parts, each into a table of its own; then the tables are added up.

Additions that may meet run in order, one at a time. Parts are an axis of independent iterations, as in
`split_reductions`; their number depends on shapes alone, so results are the same for any number of threads. It pays
where the tables together are a small part of what is added: histograms, gradients of small tables.

What it does not do: split what rows or columns already share out, which have an axis beside the places.

Before: AFTER(x, ATOMICADD(INDEX(x f32[100], place i64[65536]), value))
After:  tables = AFTER(zeros[1600], ATOMICADD(INDEX(zeros, part * 100 + place[16, 4096]), value[16, 4096], inside));
        AFTER(x, STORE(x, x + REDUCE(ADD, tables[16, 100]) over axis 0))
Invariant: shapes, dtypes and, up to the order of float additions, values stay.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast
from monolect.base.dtype import dtypes
from monolect.ir.rewrite.normal import count, within
from monolect.ir.uop import UOp, build, node, rebuild, toposort
from monolect.schedule.provenance import renewed
from monolect.schedule.ranges import overwrites

PARTS = (16, 8, 4, 2)  # tables
LEAST_ADDITIONS = 1 << 15  # that pay for two more kernels
SHARE = 4  # as many additions as there are places in all tables: these are filled with zeros, and read again


def split_scatters(roots: list[UOp]) -> list[UOp]:
    """See the module docstring. Partial assigns own their targets by now."""
    order = toposort(*roots)
    if not any(_parts(u) for u in order):
        return roots
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = _in_parts(v, n) if (n := _parts(v)) else v
        new[u].origin = new[u].origin or u.origin
    return renewed(roots, new)


def _parts(u: UOp) -> int:
    """How many tables are worth it; 0 for what is no such addition, and where none is."""
    if u.op != "AFTER" or len(u.src) != 2 or u.src[1].op != "ATOMICADD" or _value_before(u.src[0]) is None:
        return 0
    view, value, *gate = u.src[1].src
    if view.op != "INDEX" or len(view.src) != 2 or len(view.src[0].shape) != 1 or _base(view.src[0]) is not u.src[0]:
        return 0
    place = view.src[1]
    if any(n.__class__ is not int for x in (place, u) for n in x.shape):
        return 0
    if any(x.shape != place.shape for x in (value, *gate)) or _has_owner(place):
        return 0
    n, places = count(place.shape), count(u.shape)
    return next((p for p in PARTS if n >= LEAST_ADDITIONS and n >= SHARE * p * places), 0)


def _base(u: UOp) -> UOp:
    return u.src[0] if u.op == "RESHAPE" else u


def _has_owner(place: UOp) -> bool:
    """Whether an axis tells places apart: there are rows already."""
    return any(u.op == "IOTA" for u in toposort(place))


def _value_before(base: UOp) -> UOp | None:
    """What a target held, if that has a name."""
    if base.op == "CONTIGUOUS":
        return base.src[0]
    if base.op == "AFTER":
        return base.src[1].src[1] if overwrites(base) else None
    return base if base.op in ("BUFFER", "PARAM") else None


def _in_parts(u: UOp, parts: int) -> UOp:
    base, (view, value, *gate) = u.src[0], u.src[1].src
    places, n = count(base.shape), count(value.shape)
    m = -(-n // parts)

    def cut(x: UOp, fill: int | bool) -> UOp:
        return graph.reshape(graph.pad(graph.reshape(x, (n,)), (0,), (parts * m,), fill), (parts, m))

    zeros = node("CONTIGUOUS", (graph.full((parts * places,), 0, u.dtype),), None, u.serial)  # the tag: nobody else's
    place = cut(cast(view.src[1], dtypes.index), places)  # what fills the last part is outside
    inside = within(place, 0, places)
    for g in gate:
        inside = build("AND", inside, cut(g, False))
    mine = build("INDEX", zeros, build("ADD", graph.iota(parts, dtypes.index, 0, 2) * places, place))
    tables = build("AFTER", zeros, build("ATOMICADD", mine, cut(value, 0), inside))
    total = graph.reduce(graph.reshape(tables, (parts, places)), "ADD", (0,), keep=False)
    before = _value_before(base)
    assert before is not None
    after = build("ADD", before, graph.reshape(total, base.shape))
    if base.op == "CONTIGUOUS":
        return build("CONTIGUOUS", after)
    memory = base.src[0] if base.op == "AFTER" else base
    return build("AFTER", memory, build("STORE", memory, after))

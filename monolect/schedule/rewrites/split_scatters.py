"""Split many additions to few elements into parts, each into a separate table, and sum the tables.

Additions that may hit the same element run sequentially. The parts are an axis of independent iterations, as in
`split_reductions`. Their number depends on shapes alone, so results are the same for any number of threads. Splitting
pays if all tables together are small compared with the number of additions: histograms, gradients of small tables.

What it is not: it does not split additions whose index depends on a row or column, which are parallel already.

Before: AFTER(x, ATOMICADD(INDEX(x f32[100], index i64[65536]), value))
After:  tables = AFTER(zeros[1600], ATOMICADD(INDEX(zeros, part * 100 + index[16, 4096]), value[16, 4096], inside));
        AFTER(x, STORE(x, x + REDUCE(ADD, tables[16, 100]) over axis 0))
Invariant: shapes, dtypes and, up to the order of float additions, values stay.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast
from monolect.base.dtype import dtypes
from monolect.ir.rewrite.normal import count, within
from monolect.ir.uop import UOp, build, node, rebuild, toposort
from monolect.schedule.provenance import replace_roots
from monolect.schedule.ranges import overwrites

PARTS = (16, 8, 4, 2)  # numbers of tables; the first that pays is taken
MIN_ADDITIONS = 1 << 15  # additions; fewer do not pay for two more kernels
MIN_ADDITIONS_PER_ELEMENT = 4  # additions per table element; fewer do not pay for filling and reading the tables


def split_scatters(roots: list[UOp]) -> list[UOp]:
    """Pass: let the large ATOMICADDs below `roots` add to several tables, which are summed, where that pays.

    `own_targets` must have run before.
    """
    order = toposort(*roots)
    if not any(_parts(u) for u in order):
        return roots
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = _in_parts(v, n) if (n := _parts(v)) else v
        new[u].origin = new[u].origin or u.origin
    return replace_roots(roots, new)


def _parts(u: UOp) -> int:
    """Return the number of tables into which the additions of the AFTER `u` are split, or 0.

    It is 0 if `u` is no ATOMICADD to an INDEX of a vector by one tensor of constant shape, or if tables do not pay.
    """
    if u.op != "AFTER" or len(u.src) != 2 or u.src[1].op != "ATOMICADD" or _initial_value(u.src[0]) is None:
        return 0
    view, value, *gate = u.src[1].src
    if view.op != "INDEX" or len(view.src) != 2 or len(view.src[0].shape) != 1 or _base(view.src[0]) is not u.src[0]:
        return 0
    index = view.src[1]
    if any(n.__class__ is not int for x in (index, u) for n in x.shape):
        return 0
    if any(x.shape != index.shape for x in (value, *gate)) or _has_position(index):
        return 0
    n, n_elements = count(index.shape), count(u.shape)
    return next((p for p in PARTS if n >= MIN_ADDITIONS and n >= MIN_ADDITIONS_PER_ELEMENT * p * n_elements), 0)


def _base(u: UOp) -> UOp:
    """Return `u`, or its source if `u` is a RESHAPE."""
    return u.src[0] if u.op == "RESHAPE" else u


def _has_position(index: UOp) -> bool:
    """Whether the index contains an IOTA: then additions in different rows or columns are independent already."""
    return any(u.op == "IOTA" for u in toposort(index))


def _initial_value(base: UOp) -> UOp | None:
    """Return the value that a target holds before the additions, or None if no node has that value."""
    if base.op == "CONTIGUOUS":
        return base.src[0]
    if base.op == "AFTER":
        return base.src[1].src[1] if overwrites(base) else None
    return base if base.op in ("BUFFER", "PARAM") else None


def _in_parts(u: UOp, parts: int) -> UOp:
    """Return the AFTER `u` as additions to `parts` tables, whose sum is added to the initial value of the target."""
    base, (view, value, *gate) = u.src[0], u.src[1].src
    n_elements, n = count(base.shape), count(value.shape)
    m = -(-n // parts)

    def cut(x: UOp, fill: int | bool) -> UOp:
        return graph.reshape(graph.pad(graph.reshape(x, (n,)), (0,), (parts * m,), fill), (parts, m))

    # the tag keeps this buffer distinct from others
    zeros = node("CONTIGUOUS", (graph.full((parts * n_elements,), 0, u.dtype),), None, u.serial)
    index = cut(cast(view.src[1], dtypes.index), n_elements)  # the last part is padded with an index outside
    inside = within(index, 0, n_elements)
    for g in gate:
        inside = build("AND", inside, cut(g, False))
    mine = build("INDEX", zeros, build("ADD", graph.iota(parts, dtypes.index, 0, 2) * n_elements, index))
    tables = build("AFTER", zeros, build("ATOMICADD", mine, cut(value, 0), inside))
    total = graph.reduce(graph.reshape(tables, (parts, n_elements)), "ADD", (0,), keep=False)
    initial = _initial_value(base)
    assert initial is not None
    after = build("ADD", initial, graph.reshape(total, base.shape))
    if base.op == "CONTIGUOUS":
        return build("CONTIGUOUS", after)
    memory = base.src[0] if base.op == "AFTER" else base
    return build("AFTER", memory, build("STORE", memory, after))


__all__ = ["split_scatters"]

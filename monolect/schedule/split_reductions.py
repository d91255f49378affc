"""A long reduction to few values is cut into parts, each reduced on its own; a second kernel joins their results.

The parts are an axis of independent iterations: threads, vectors and streams find a loop to share out, where a sum of
everything has none. Their number depends on shapes alone, so results are the same for any number of threads. A
reduction is long when what is read for it, also by reductions that are fused into it, is worth another kernel.

What it does not do: cut products of matrices and the like, whose tiles share their operands.

Before: REDUCE(ADD, x f32[1048576]) over axis 0
After:  REDUCE(ADD, CONTIGUOUS(REDUCE(ADD, RESHAPE(x, (64, 16384))) over axis 1)) over axis 0
Invariant: shapes, dtypes and, up to the order of float additions, values stay.
"""

from __future__ import annotations

from monolect.ir.normal import count
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp, build, node, rebuild, shape_source, toposort
from monolect.schedule.materialize import costs, is_forced, reuses, values

PARTS = 64  # iterations a reduction to one value is given; fewer for several values
FEW_OUTPUTS = 8  # from here on the outputs themselves are enough iterations
LEAST_WORK = 1 << 18  # elements read, weighted by what is computed of each, that pay for another kernel
MOST_PARTS = 4  # times as many as wanted, rather than a tail
VECTORS = 64  # elements of the last axis that are read together: parts of it are multiples


def split_reductions(roots: list[UOp]) -> list[UOp]:
    """See the module docstring."""
    long = _long(roots)
    if not long:
        return roots
    new: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = _in_parts(v) if u in long else v
    return [new[r] for r in roots]


def _long(roots: list[UOp]) -> set[UOp]:
    """The reductions with few outputs and much to read."""
    order = values(roots)
    if not any(u.op == "REDUCE" for u in order):
        return set()
    cost = costs(order, {u for u in order if is_forced(u)} | set(roots))
    work: dict[UOp, int] = {}  # elements visited for a value, as far as nothing below it is stored
    out: set[UOp] = set()
    for u in order:
        if any(n.__class__ is not int for n in u.shape):
            continue
        n = count(u.shape)
        work[u] = max([n, *(work.get(s, 0) for s in u.src)]) if not is_forced(u) else n
        if u.op == "REDUCE" and 0 < n < FEW_OUTPUTS and work[u] * max(1, cost[u.src[0]].ops // 4) >= LEAST_WORK:
            if not reuses(u, cost):
                out.add(u)
                work[u] = n
    return out


def _in_parts(u: UOp) -> UOp:
    """The reduction in two steps; tails that fit no part are reduced on their own and joined last."""
    op = u.arg[0]
    x, axes = _merged(u.src[0], u.arg[1])
    wanted = PARTS >> (count(u.shape) - 1).bit_length()
    cut: list[int] = []  # the new shape: each reduced axis as (parts, rest)
    inner: list[int] = []
    tails: list[UOp] = []
    for a, n in enumerate(x.shape):
        if a not in axes:
            cut.append(n)
            continue
        k, rest = _parts(n, wanted, VECTORS if a == len(x.shape) - 1 else 1)
        if rest:
            tails.append(_joined(op, _slice(x, a, n - rest, n), axes, u))
            x, n = _slice(x, a, 0, n - rest), n - rest
        inner.append(len(cut) + 1)
        cut += [k, n // k]
        wanted = -(-wanted // k)
    parts = _joined(op, build("RESHAPE", x, shape_source(cut)), tuple(inner), u)
    out = _joined(op, node("CONTIGUOUS", (parts,)), tuple(a - 1 for a in inner), u)
    for tail in tails:
        out = build(op, build("RESHAPE", out, shape_source(tail.shape)), tail)
    return build("RESHAPE", out, shape_source(u.shape))


def _merged(x: UOp, axes: tuple[int, ...]) -> tuple[UOp, tuple[int, ...]]:
    """`x` with neighbouring reduced axes as one, where everything it is computed from lies in memory like itself."""
    if not all(s.shape == x.shape or count(s.shape) == 1 for s in _leaves(x)):
        return x, axes
    shape: list[int] = []
    out: list[int] = []
    for a, n in enumerate(x.shape):
        if a in axes and a - 1 in axes:
            shape[-1] *= n
        else:
            shape.append(n)
            out += [len(shape) - 1] if a in axes else []
    return build("RESHAPE", x, shape_source(shape)), tuple(out)


def _leaves(x: UOp) -> list[UOp]:
    """What the elementwise part of `x` reads: tensors, and views of them."""
    return [u for u in toposort(x, stop=lambda u: u.op not in ELEMENTWISE) if u.op not in ELEMENTWISE]


def _parts(n: int, wanted: int, unit: int) -> tuple[int, int]:
    """(how many parts an axis of n is cut into, what is left over). Parts are multiples of `unit`: evenly many where a
    divisor is near, else with a tail when that is short, else single elements.
    """
    if n <= MOST_PARTS * wanted:
        return (n if wanted > 1 else 1), 0
    k = next((k for k in range(wanted, MOST_PARTS * wanted + 1) if n % (k * unit) == 0), 0)
    if k:
        return k, 0
    return (wanted, n % (wanted * unit)) if n >= PARTS * wanted * unit else (n, 0)


def _slice(x: UOp, axis: int, start: int, stop: int) -> UOp:
    offset, size = [0] * len(x.shape), list(x.shape)
    offset[axis], size[axis] = start, stop - start
    return build("SHRINK", x, shape_source(offset), shape_source(size))


def _joined(op: str, x: UOp, axes: tuple[int, ...], of: UOp) -> UOp:
    out = build("REDUCE", x, arg=(op, axes))
    out.origin = out.origin or of.origin
    return out

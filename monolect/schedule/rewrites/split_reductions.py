"""A long reduction to few values is cut into parts, each reduced on its own; a second kernel joins their results.

The parts are an axis of independent iterations: threads, vectors and streams find a loop to share out, where a sum of
everything has none. Their number depends on shapes alone, so results are the same for any number of threads. A
reduction is long when what is read for it, also by reductions that are fused into it, is worth another kernel. So is a
sum of columns for its error: added one by one, the variance of 2**20 rows of float32 is off by 4e-4, in parts by 1e-6.

What it does not do: cut products of matrices and the like, whose tiles share their operands.

Before: REDUCE(ADD, x f32[1048576]) over axis 0
After:  REDUCE(ADD, CONTIGUOUS(REDUCE(ADD, RESHAPE(x, (64, 16384))) over axis 1)) over axis 0
Invariant: shapes, dtypes and, up to the order of float additions, values stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from monolect.ir.ops import ELEMENTWISE, MOVEMENT
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, node, rebuild, shape_source, toposort
from monolect.schedule.materialize import costs, is_forced, reuses, values
from monolect.schedule.provenance import renewed

PARTS = 64  # iterations a reduction to one value is given; fewer for several values
FEW_OUTPUTS = 8  # from here on the outputs themselves are enough iterations
LEAST_WORK = 1 << 16  # elements read, weighted by what is computed of each, that pay for another kernel: 5 us
STEPS = 1 << 12  # rows added one by one in float32: each addition may lose half a place of the sum so far
MANY_STEPS = 1 << 16  # of fewer the columns of two passes, as of a variance, are better read again from cache
MOST_PARTS = 4  # times as many as wanted, rather than a tail
VECTORS = 64  # elements of the last axis that are read together: parts of it are multiples
VECTOR = 16  # of the parts of shorter ones, where no divisor is near


def split_reductions(roots: list[UOp]) -> list[UOp]:
    """See the module docstring."""
    long = _long(roots)
    if not long:
        return roots
    order = toposort(*roots)
    readers = Counter(s for u in order for s in u.src)
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = _in_parts(v, readers[u.src[0]] > 1) if u in long else v
    return renewed(roots, new)


def _long(roots: list[UOp]) -> set[UOp]:
    """The reductions with few outputs and much to read, and those with many rows to add."""
    order = values(roots)
    if not any(u.op == "REDUCE" for u in order):
        return set()
    cost = costs(order, {u for u in order if is_forced(u)} | set(roots))
    work: dict[UOp, int] = {}  # elements visited for a value, as far as nothing below it is stored
    out: set[UOp] = set()
    for u in order:
        shape = u.src[0].shape if u.op == "REDUCE" else u.shape
        if u.op in ("PARAM", "BUFFER") or is_forced(u) or any(n.__class__ is not int or n == 0 for n in shape):
            continue  # what is read of it counts; of symbolic size; of nothing
        n = count(shape)
        below = [work[s] for s in u.src if s in work and count(s.shape) >= n]  # not what is the same in all parts
        work[u] = max([0 if u.op in MOVEMENT else n, *below])
        if u.op != "REDUCE" or reuses(u, cost):
            continue
        is_much = work[u] * max(1, cost[u.src[0]].ops // 4) >= LEAST_WORK
        if (0 < count(u.shape) < FEW_OUTPUTS and is_much) or _steps(u) >= MANY_STEPS:
            out.add(u)
            work[u] = 0
    return out


def _steps(u: UOp) -> int:
    """Rows that a sum of columns adds one by one in float32; 0 of another sum, whose lanes have sums of their own."""
    x, (op, axes) = u.src[0], u.arg
    if op != "ADD" or not u.dtype.is_float or u.dtype.bits > 32 or len(x.shape) - 1 in axes or not count(u.shape):
        return 0
    return count(x.shape) // count(u.shape)


def _in_parts(u: UOp, shared: bool) -> UOp:
    """The reduction in two steps; tails that fit no part are reduced on their own and joined last. `shared`: others
    read what is reduced, too.
    """
    op = u.arg[0]
    x, axes = _merged(u.src[0], u.arg[1])
    wanted = max(PARTS >> (count(u.shape) - 1).bit_length(), _steps(u) // STEPS)
    cut: list[int] = []  # the new shape: each reduced axis as (parts, rest)
    inner: list[int] = []
    tails: list[UOp] = []
    for a, n in enumerate(x.shape):
        if a not in axes:
            cut.append(n)
            continue
        k, rest = _parts(n, wanted, VECTORS if a == len(x.shape) - 1 else 1, alone=len(axes) == 1)
        if rest:
            tails.append(_joined(op, _slice(x, a, n - rest, n, shared), axes, u))
            x, n = _slice(x, a, 0, n - rest, shared), n - rest
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
    if len(shape) == len(x.shape):
        return x, axes
    return _moved(x, lambda u: build("RESHAPE", u, shape_source(shape))), tuple(out)


def _leaves(x: UOp) -> list[UOp]:
    """What the elementwise part of `x` reads: tensors, and views of them."""
    return [u for u in toposort(x, stop=lambda u: u.op not in ELEMENTWISE) if u.op not in ELEMENTWISE]


def _parts(n: int, wanted: int, unit: int, alone: bool) -> tuple[int, int]:
    """(how many parts an axis of n is cut into, what is left over). Parts are multiples of `unit`: evenly many where a
    divisor is near, else with a tail when that is short. Else they are single elements, if there are other axes to
    reduce in each, or fewer and shorter ones with a short tail.
    """
    if n <= MOST_PARTS * wanted or wanted == 1:
        return (n if wanted > 1 else 1), 0
    k = next((k for k in range(wanted, MOST_PARTS * wanted + 1) if n % (k * unit) == 0), 0)
    if k:
        return k, 0
    while alone and n < PARTS * wanted * unit and (unit > VECTOR or wanted > 2):
        unit, wanted = (unit // 2, wanted) if unit > VECTOR else (unit, wanted // 2)
    return (wanted, n % (wanted * unit)) if alone or n >= PARTS * wanted * unit else (n, 0)


def _slice(x: UOp, axis: int, start: int, stop: int, shared: bool) -> UOp:
    """A part of x. Where nobody else reads x it is that of what x is computed from: no reader of a part stores x."""
    offset, size = [0] * len(x.shape), list(x.shape)
    offset[axis], size[axis] = start, stop - start

    def part(u: UOp) -> UOp:
        return build("SHRINK", u, shape_source(offset), shape_source(size))

    return part(x) if shared else _moved(x, part)


def _moved(x: UOp, move: Callable[[UOp], UOp]) -> UOp:
    """`move` of x, done to what the elementwise part of x reads, where that has its shape or is one value."""
    leaves = _leaves(x)
    if any(u.shape != x.shape and count(u.shape) > 1 for u in leaves):
        return move(x)
    new = {u: move(u) if u.shape == x.shape else build("RESHAPE", u, shape_source(())) for u in leaves}
    for u in toposort(x, stop=new.__contains__):
        if u not in new:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return new[x]


def _joined(op: str, x: UOp, axes: tuple[int, ...], of: UOp) -> UOp:
    out = build("REDUCE", x, arg=(op, axes))
    out.origin = out.origin or of.origin
    return out

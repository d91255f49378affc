"""Cut a long reduction to few values into parts that are reduced separately; a second kernel combines their results.

The parts are an axis of independent iterations for threads, vectors and streams; a full reduction has none. The number
of parts depends on shapes alone, so results are the same for any number of threads. A reduction is cut if the elements
read for it, also by reductions fused into it, are worth another kernel. Long column sums are cut for accuracy: added
sequentially, the variance of 2**20 rows of float32 is off by 4e-4, in parts by 1e-6.

What it is not: it does not cut contractions, whose tiles share their operands.

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
from monolect.schedule.provenance import replace_roots

PARTS = 64  # parts of a reduction to one value; a reduction to several values gets fewer
FEW_OUTPUTS = 8  # results; from here on they are enough parallel iterations
MIN_WORK = 1 << 16  # elements read, weighted by ops per element; below it, another kernel (5 us) does not pay
# rows that one part adds sequentially in float32; each addition may lose half an ulp of the sum so far
ROWS_PER_PART = 1 << 12
# rows; column sums of fewer rows are not cut, since a second pass, as of a variance, reads them from cache
MIN_SEQUENTIAL_ROWS = 1 << 16
MAX_PARTS_RATIO = 4  # times the wanted number of parts, at most, to avoid a tail
VECTORS = 64  # elements; parts of a long last axis are multiples of this
VECTOR = 16  # elements; parts of a short last axis are multiples of this if no divisor is near


def split_reductions(roots: list[UOp]) -> list[UOp]:
    """Pass: cut the long reductions below `roots` into parts."""
    long = _long_reductions(roots)
    if not long:
        return roots
    order = toposort(*roots)
    readers = Counter(s for u in order for s in u.src)
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        new[u] = _in_parts(v, readers[u.src[0]] > 1) if u in long else v
    return replace_roots(roots, new)


def _long_reductions(roots: list[UOp]) -> set[UOp]:
    """Return the reductions to few values that read many elements, and the column sums of many rows."""
    order = values(roots)
    if not any(u.op == "REDUCE" for u in order):
        return set()
    cost = costs(order, {u for u in order if is_forced(u)} | set(roots))
    work: dict[UOp, int] = {}  # elements visited for a value, up to the stored values below it
    out: set[UOp] = set()
    for u in order:
        shape = u.src[0].shape if u.op == "REDUCE" else u.shape
        if u.op in ("PARAM", "BUFFER") or is_forced(u) or any(n.__class__ is not int or n == 0 for n in shape):
            continue  # a stored value, a symbolic size, or no elements
        n = count(shape)
        # operands that are smaller are the same in all parts
        below = [work[s] for s in u.src if s in work and count(s.shape) >= n]
        work[u] = max([0 if u.op in MOVEMENT else n, *below])
        if u.op != "REDUCE" or reuses(u, cost):
            continue
        is_much = work[u] * max(1, cost[u.src[0]].ops // 4) >= MIN_WORK
        if (0 < count(u.shape) < FEW_OUTPUTS and is_much) or _sequential_rows(u) >= MIN_SEQUENTIAL_ROWS:
            out.add(u)
            work[u] = 0
    return out


def _sequential_rows(u: UOp) -> int:
    """Return the number of rows that a float column sum adds sequentially; 0 for other reductions, whose lanes add in
    parallel.
    """
    x, (op, axes) = u.src[0], u.arg
    if op != "ADD" or not u.dtype.is_float or u.dtype.bits > 32 or len(x.shape) - 1 in axes or not count(u.shape):
        return 0
    return count(x.shape) // count(u.shape)


def _in_parts(u: UOp, shared: bool) -> UOp:
    """Return the reduction `u` in two steps. Tails that fit no part are reduced separately and combined last.

    `shared`: whether the reduced value has other users.
    """
    op = u.arg[0]
    x, axes = _merge_axes(u.src[0], u.arg[1])
    wanted = max(PARTS >> (count(u.shape) - 1).bit_length(), _sequential_rows(u) // ROWS_PER_PART)
    cut: list[int] = []  # the new shape, with each reduced axis as (parts, elements of a part)
    inner: list[int] = []
    tails: list[UOp] = []
    for a, n in enumerate(x.shape):
        if a not in axes:
            cut.append(n)
            continue
        k, rest = _parts(n, wanted, VECTORS if a == len(x.shape) - 1 else 1, alone=len(axes) == 1)
        if rest:
            tails.append(_reduced(op, _slice(x, a, n - rest, n, shared), axes, u))
            x, n = _slice(x, a, 0, n - rest, shared), n - rest
        inner.append(len(cut) + 1)
        cut += [k, n // k]
        wanted = -(-wanted // k)
    parts = _reduced(op, build("RESHAPE", x, shape_source(cut)), tuple(inner), u)
    out = _reduced(op, node("CONTIGUOUS", (parts,)), tuple(a - 1 for a in inner), u)
    for tail in tails:
        out = build(op, build("RESHAPE", out, shape_source(tail.shape)), tail)
    return build("RESHAPE", out, shape_source(u.shape))


def _merge_axes(x: UOp, axes: tuple[int, ...]) -> tuple[UOp, tuple[int, ...]]:
    """Merge adjacent reduced axes of `x` if all its operands have the same shape as `x`; return `x` and its reduced
    axes.
    """
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
    return _move_leaves(x, lambda u: build("RESHAPE", u, shape_source(shape))), tuple(out)


def _leaves(x: UOp) -> list[UOp]:
    """Return the tensors and views that the elementwise part of `x` reads."""
    return [u for u in toposort(x, stop=lambda u: u.op not in ELEMENTWISE) if u.op not in ELEMENTWISE]


def _parts(n: int, wanted: int, unit: int, alone: bool) -> tuple[int, int]:
    """Return (k, rest): cut an axis of size n into about `wanted` parts, k of equal size, with `rest` elements left
    over.

    The parts have equal sizes, a multiple of `unit`, if a divisor is near. Otherwise there is a short tail, with fewer
    or shorter parts if needed. If other axes are reduced too (not `alone`), each element may be a part.
    """
    if n <= MAX_PARTS_RATIO * wanted or wanted == 1:
        return (n if wanted > 1 else 1), 0
    k = next((k for k in range(wanted, MAX_PARTS_RATIO * wanted + 1) if n % (k * unit) == 0), 0)
    if k:
        return k, 0
    while alone and n < PARTS * wanted * unit and (unit > VECTOR or wanted > 2):
        unit, wanted = (unit // 2, wanted) if unit > VECTOR else (unit, wanted // 2)
    return (wanted, n % (wanted * unit)) if alone or n >= PARTS * wanted * unit else (n, 0)


def _slice(x: UOp, axis: int, start: int, stop: int, shared: bool) -> UOp:
    """Return elements start to stop of `x` along `axis`.

    If `x` has no other users, its operands are sliced instead, so that `x` itself need not be stored.
    """
    offset, size = [0] * len(x.shape), list(x.shape)
    offset[axis], size[axis] = start, stop - start

    def part(u: UOp) -> UOp:
        return build("SHRINK", u, shape_source(offset), shape_source(size))

    return part(x) if shared else _move_leaves(x, part)


def _move_leaves(x: UOp, move: Callable[[UOp], UOp]) -> UOp:
    """Apply `move` to the leaves of `x` instead of to `x`, if each leaf has the shape of `x` or one element."""
    leaves = _leaves(x)
    if any(u.shape != x.shape and count(u.shape) > 1 for u in leaves):
        return move(x)
    new = {u: move(u) if u.shape == x.shape else build("RESHAPE", u, shape_source(())) for u in leaves}
    for u in toposort(x, stop=new.__contains__):
        if u not in new:
            new[u] = rebuild(u, tuple(new[s] for s in u.src))
    return new[x]


def _reduced(op: str, x: UOp, axes: tuple[int, ...], of: UOp) -> UOp:
    """Return the reduction of `x` over `axes`, with the origin of the node `of`."""
    out = build("REDUCE", x, arg=(op, axes))
    out.origin = out.origin or of.origin
    return out


__all__ = ["split_reductions"]

"""Short builders for tensor graphs: views, masks, sums and elementwise operations on UOps.

What it is for: the tensor methods and the gradient rows write graphs with the same few words.
What it is not: it promotes no dtypes and checks no arguments but parts of symbolic size; that is done where the user's
call is known.
Invariant: every function returns a node in normal form and reads no settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from monolect.base.dtype import DType, accumulator, dtypes
from monolect.base.errors import ShapeError
from monolect.ir.bounds import at_most, bounds_text, size_max
from monolect.ir.check.prove import is_inside, polynomial
from monolect.ir.rewrite.normal import TRUE, count, negate, within
from monolect.ir.uop import UOp, build, const, idx, shape_source

Size = Any  # an int, or an index UOp when it is symbolic
MOST_CHOICES = 64  # number of parts that one chain of WHERE picks from


def check_parts(what: str, offsets: Iterable[Size], sizes: Iterable[Size], totals: Iterable[Size]) -> None:
    """Raise ShapeError where symbolic sizes do not prove that a part lies in its whole; numbers the op checks."""
    for o, n, total in zip(offsets, sizes, totals, strict=False):
        if o.__class__ is n.__class__ is total.__class__ is int or (o.__class__ is int and o == 0 and n is total):
            continue
        if not (at_most(0, o) and at_most(0, n) and _fits(o + n, total)):
            expected = f"offset and size of at least 0, and together at most {bounds_text(total)}, for every value"
            found = f"offset {bounds_text(o)}, size {bounds_text(n)}, together {bounds_text(o + n)}"
            raise ShapeError(f"{what} may leave it: bounds of a Variable do not fit", expected=expected, found=found)


def _fits(end: Size, total: Size) -> bool:
    """Whether `end` is at most `total`: by what bounds say, or by proof, as of remainders of a symbolic size."""
    return at_most(end, total) or is_inside(idx(end), idx(total) + 1, solver=False)


# ---- views -----------------------------------------------------------------------------------------------------------
def reshape(u: UOp, shape: Sequence[Size]) -> UOp:
    """`u` in row-major order as `shape`. Raises ShapeError for symbolic sizes of another product."""
    if u.shape == shape:
        return u
    if any(n.__class__ is UOp for n in (*u.shape, *shape)):
        _check_count(count(u.shape), count(tuple(shape)))
    return build("RESHAPE", u, shape_source(shape))


def _check_count(old: Size, new: Size) -> None:
    if old is not new and polynomial(idx(old)) != polynomial(idx(new)):
        raise ShapeError("reshape changes the number of elements", expected=bounds_text(old), found=bounds_text(new))


def expand(u: UOp, shape: Sequence[Size]) -> UOp:
    """The size-1 axes of `u` repeated to `shape` (same rank)."""
    return build("EXPAND", u, shape_source(shape))


def broadcast_to(u: UOp, shape: tuple) -> UOp:
    """`u` repeated to `shape`, right-aligned."""
    if u.shape == shape:
        return u
    return expand(reshape(u, (1,) * (len(shape) - len(u.shape)) + u.shape), shape)


def permute(u: UOp, order: Iterable[int]) -> UOp:
    """Axis k of the result is axis `order[k]` of `u`."""
    return build("PERMUTE", u, arg=tuple(order))


def flip(u: UOp, axes: Iterable[int]) -> UOp:
    """`u` reversed along `axes`."""
    axes = frozenset(axes)
    return build("FLIP", u, arg=tuple(i in axes for i in range(len(u.shape))))


def shrink(u: UOp, offsets: Sequence[Size], sizes: Sequence[Size]) -> UOp:
    """`sizes` elements of each axis of `u` from `offsets`."""
    check_parts("a part of an axis", offsets, sizes, u.shape)
    return build("SHRINK", u, shape_source(offsets), shape_source(sizes))


def shrink_axis(u: UOp, axis: int, offset: Size, size: Size) -> UOp:
    """`size` elements of one axis of `u` from `offset`."""
    offsets: list[Size] = [0] * len(u.shape)
    offsets[axis] = offset
    return shrink(u, offsets, (*u.shape[:axis], size, *u.shape[axis + 1 :]))


def leading(u: UOp, shape: tuple) -> UOp:
    """The first elements of `u` along each axis, as many as `shape` says."""
    return u if u.shape == shape else shrink(u, (0,) * len(shape), shape)


def pad_invalid(u: UOp, offsets: Sequence[Size], shape: Sequence[Size]) -> UOp:
    """`u` at `offsets` in a result of `shape`; the elements around it must not be used."""
    check_parts("a padded axis", offsets, u.shape, shape)
    return build("PAD", u, shape_source(offsets), shape_source(shape))


def pad(u: UOp, offsets: Sequence[Size], shape: tuple, fill: Any = 0) -> UOp:
    """`u` at `offsets` in a result of `shape` that is `fill` around it."""
    mask = None
    for axis, (o, n, total) in enumerate(zip(offsets, u.shape, shape, strict=True)):
        m = inside(o, n, total, axis, len(shape))
        if m is not TRUE:
            mask = m if mask is None else build("AND", mask, m)
    return u if mask is None else build("WHERE", mask, pad_invalid(u, offsets, shape), const(fill, u.dtype))


def as_long_as_may_be(u: UOp, fill: Any, axes: Iterable[int]) -> UOp:
    """`u` with those of `axes` that have a symbolic size at the largest of it, `fill` behind what there is."""
    axes = frozenset(axes)
    shape = tuple(size_max(n) if i in axes else n for i, n in enumerate(u.shape))
    return u if shape == u.shape else pad(u, (0,) * len(shape), shape, fill)


def size(n: Size, dtype: DType) -> UOp:
    """A size as a number."""
    return const(n, dtype) if n.__class__ is int else cast(n, dtype)


def on_axis(u: UOp, axis: int, rank: int) -> UOp:
    """The vector `u` laid along `axis` of `rank` axes."""
    return reshape(u, (1,) * axis + u.shape + (1,) * (rank - 1 - axis))


def iota(n: Size, dtype: DType = dtypes.index, axis: int = 0, rank: int = 1) -> UOp:
    """0, 1, ..., n-1 along `axis` of `rank` axes."""
    return on_axis(build("IOTA", idx(n), arg=dtype), axis, rank)


def inside(offset: Size, size: Size, total: Size, axis: int, rank: int) -> UOp:
    """Where offset <= i < offset + size along `axis`, whose size is `total`; TRUE when that is everywhere."""
    i = iota(total, dtypes.index, axis, rank)
    starts = offset.__class__ is int and offset == 0
    end = offset + size
    ends = end is total or (end.__class__ is int and end == total)
    if starts and ends:
        return TRUE
    below = build("CMPLT", i, idx(end))
    if starts:
        return below
    above = negate(build("CMPLT", i, idx(offset)))
    return above if ends else within(i, offset, end)


# ---- numbers ---------------------------------------------------------------------------------------------------------
_numbers: dict[tuple, UOp] = {}


def number(value: Any, dtype: DType) -> UOp:
    """A CONST; rounding a number to its dtype costs more than a node, so the usual ones are remembered."""
    if value == 0 or value != value:
        return const(value, dtype)  # 0.0 and -0.0 are equal but not the same
    key = (value, value.__class__, dtype)
    u = _numbers.get(key)
    if u is None:
        u = const(value, dtype)
        if len(_numbers) < 4096:
            _numbers[key] = u
    return u


# ---- arithmetic ------------------------------------------------------------------------------------------------------
def e(op: str, a: Any, b: Any) -> UOp:
    """The elementwise `op` of two operands, one of which may be a number: a CONST of the other's dtype."""
    if a.__class__ is not UOp:
        a = number(a, b.dtype)
    elif b.__class__ is not UOp:
        b = number(b, a.dtype)
    return build(op, a, b)


def multiply_add(a: UOp, b: Any, c: Any) -> UOp:
    """`a * b + c`, rounded once where the target has the instruction; a number becomes a CONST of the dtype of `a`."""
    b, c = (x if x.__class__ is UOp else number(x, a.dtype) for x in (b, c))
    return build("MULACC", a, b, c)


def where(c: UOp, a: Any, b: Any) -> UOp:
    """`a` where `c`, else `b`; at least one of both is a UOp."""
    like = a.dtype if a.__class__ is UOp else b.dtype
    a = a if a.__class__ is UOp else number(a, like)
    return build("WHERE", c, a, b if b.__class__ is UOp else number(b, like))


def cast(u: UOp, dtype: DType) -> UOp:
    """`u` converted to `dtype`."""
    return u if u.dtype is dtype else build("CAST", u, arg=dtype)


def full(shape: tuple, value: Any, dtype: DType) -> UOp:
    """`value` everywhere in `shape`."""
    return broadcast_to(const(value, dtype), shape)


# ---- reductions ------------------------------------------------------------------------------------------------------
def reduce(u: UOp, op: str, axes: Iterable[int], keep: bool = True) -> UOp:
    """REDUCE `u` along `axes`, which stay with size 1 or are dropped. Halves add up in float32."""
    axes = tuple(sorted(axes))
    wide = accumulator(u.dtype) if op != "MAX" else u.dtype
    out = cast(build("REDUCE", cast(u, wide), arg=(op, axes)), u.dtype)
    return out if keep else reshape(out, tuple(n for i, n in enumerate(u.shape) if i not in axes))


def sum_to(u: UOp, shape: tuple) -> UOp:
    """`u` added up to `shape`: the opposite of broadcasting `shape` to the shape of `u`."""
    if u.shape == shape:
        return u
    extra = len(u.shape) - len(shape)
    axes = [i for i, n in enumerate(u.shape) if i < extra or not _same(n, shape[i - extra])]
    return reshape(reduce(u, "ADD", axes), shape)


def _same(a: Size, b: Size) -> bool:
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


# ---- joining ---------------------------------------------------------------------------------------------------------
def joined(us: Sequence[UOp], axis: int) -> UOp:
    """`us`, which differ in their sizes along `axis` alone, one after another: WHERE picks the part of an element.

    Parts of one element are stored one by one (`rules.loops.concat`), loops over few others are cut at the seams. More
    than MOST_CHOICES parts are joined in groups first: a kernel too small for all of them then stores a group, not all.
    """
    if len(us) > MOST_CHOICES:
        n = -(-len(us) // -(-len(us) // MOST_CHOICES))
        return joined([joined(us[k : k + n], axis) for k in range(0, len(us), n)], axis)
    first = us[0].shape
    ends: list[Size] = []
    end: Size = 0
    for u in us:
        end = end + u.shape[axis]
        ends.append(end)
    shape, rank = (*first[:axis], end, *first[axis + 1 :]), len(first)
    i = iota(end, axis=axis, rank=rank)
    parts = [
        pad_invalid(u, (0,) * axis + (o,) + (0,) * (rank - axis - 1), shape)
        for u, o in zip(us, [0, *ends[:-1]], strict=True)
    ]
    out = parts[-1]
    for part, stop in zip(reversed(parts[:-1]), reversed(ends[:-1]), strict=True):
        out = build("WHERE", build("CMPLT", i, idx(stop)), part, out)
    return out

"""Build tensor graphs with short functions: views, masks, sums and elementwise operations on UOps.

What it is for: the tensor methods and the gradient rows build graphs with the same functions.
What it is not: it promotes no dtypes, and checks no arguments except parts of symbolic size. The callers do this,
because they know the user's call.
Invariant: every function returns a node in normal form and reads no settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from monolect.autograd import storage
from monolect.autograd.sharding import to_index, use, whole_along, whole_to_reshape, whole_to_resize, whole_together
from monolect.base.dtype import DType, accumulator, dtypes
from monolect.base.errors import ShapeError
from monolect.ir.bounds import at_most, bounds_text, size_max
from monolect.ir.rewrite.normal import TRUE, count
from monolect.ir.rewrite.padding import pad_mask
from monolect.ir.uop import UOp, broadcast_to, build, const, idx, iota, shape_source

Size = Any  # an int, or an index UOp when it is symbolic
MOST_CHOICES = 64  # parts in one chain of WHEREs; more parts are concatenated in groups


def check_parts(what: str, offsets: Iterable[Size], sizes: Iterable[Size], totals: Iterable[Size]) -> None:
    """Check that the part [offset, offset + size) of each axis is inside the axis for all values of the Variables.

    `totals`: the sizes of the axes. Raises ShapeError if not, whose message calls the parts `what`. Axes with only
    constant sizes are skipped: the op checks them.
    """
    for o, n, total in zip(offsets, sizes, totals, strict=False):
        if o.__class__ is n.__class__ is total.__class__ is int or (o.__class__ is int and o == 0 and n is total):
            continue
        if not (at_most(0, o) and at_most(0, n) and _fits(o + n, total)):
            expected = f"offset and size of at least 0, and together at most {bounds_text(total)}, for every value"
            found = f"offset {bounds_text(o)}, size {bounds_text(n)}, together {bounds_text(o + n)}"
            raise ShapeError(f"{what} may leave it: bounds of a Variable do not fit", expected=expected, found=found)


def _fits(end: Size, total: Size) -> bool:
    """Whether end <= total is known from bounds, or proven (for example for a remainder of a symbolic size)."""
    if at_most(end, total):
        return True
    from monolect.ir.check.prove import is_inside  # imported only for symbolic sizes

    return is_inside(idx(end), idx(total) + 1, solver=False)


# ---- views -----------------------------------------------------------------------------------------------------------
def reshape(u: UOp, shape: Sequence[Size]) -> UOp:
    """Return the elements of `u` in row-major order as `shape`.

    Raises ShapeError if sizes are symbolic and the numbers of elements are not equal for all values.
    """
    if u.shape == shape:
        return u
    if use.found:
        u = whole_to_reshape(u, tuple(shape))
    if UOp in map(type, u.shape) or UOp in map(type, shape):
        _check_count(count(u.shape), count(tuple(shape)))
    return build("RESHAPE", u, shape_source(shape))


def _check_count(old: Size, new: Size) -> None:
    """Raise ShapeError unless the symbolic numbers of elements `old` and `new` are equal for all values."""
    if old is new:
        return
    from monolect.ir.check.prove import polynomial  # imported only for symbolic sizes

    if polynomial(idx(old)) != polynomial(idx(new)):
        raise ShapeError("reshape changes the number of elements", expected=bounds_text(old), found=bounds_text(new))


def expand(u: UOp, shape: Sequence[Size]) -> UOp:
    """Return `u` with its axes of size 1 repeated to the sizes of `shape`, which has the rank of `u`."""
    return build("EXPAND", u, shape_source(shape))


def permute(u: UOp, order: Iterable[int]) -> UOp:
    """Return `u` with its axes permuted: axis k of the result is axis `order[k]` of `u`."""
    return build("PERMUTE", u, arg=tuple(order))


def index(u: UOp, *indices: UOp) -> UOp:
    """Return `u` indexed along its first axes by `indices`.

    If `u` is divided along one of these axes over several devices, it is first copied whole to each device.
    """
    return build("INDEX", *(to_index(u, indices) if use.found else (u, *indices)))


def wholes(*us: UOp) -> tuple[UOp, ...]:
    """Return `us`; if some of them are on several devices, all are first copied whole to each of these.

    Writes at computed indices need such operands.
    """
    return whole_together(us) if use.found else us


def flip(u: UOp, axes: Iterable[int]) -> UOp:
    """Return `u` reversed along `axes`."""
    axes = frozenset(axes)
    if use.found:
        u = whole_along(u, axes)
    return build("FLIP", u, arg=tuple(i in axes for i in range(len(u.shape))))


def shrink(u: UOp, offsets: Sequence[Size], sizes: Sequence[Size]) -> UOp:
    """Return `sizes` elements of each axis of `u`, starting at `offsets`.

    Raises ShapeError if a symbolic part may leave its axis.
    """
    check_parts("a part of an axis", offsets, sizes, u.shape)
    if use.found:
        u = whole_to_resize(u, sizes)
    return build("SHRINK", u, shape_source(offsets), shape_source(sizes))


def shrink_axis(u: UOp, axis: int, offset: Size, size: Size) -> UOp:
    """Return `size` elements of one axis of `u`, starting at `offset`, and all of the other axes."""
    offsets: list[Size] = [0] * len(u.shape)
    offsets[axis] = offset
    return shrink(u, offsets, (*u.shape[:axis], size, *u.shape[axis + 1 :]))


def leading(u: UOp, shape: tuple) -> UOp:
    """Return the leading block of `u` that has the shape `shape`."""
    return u if u.shape == shape else shrink(u, (0,) * len(shape), shape)


def pad_invalid(u: UOp, offsets: Sequence[Size], shape: Sequence[Size]) -> UOp:
    """Return `u` at `offsets` in a result of `shape` whose other elements are invalid: the caller must mask them.

    Raises ShapeError if `u` may leave the result for a value of a symbolic size.
    """
    check_parts("a padded axis", offsets, u.shape, shape)
    if use.found:
        u = whole_to_resize(u, shape)
    return build("PAD", u, shape_source(offsets), shape_source(shape))


def pad(u: UOp, offsets: Sequence[Size], shape: tuple, fill: Any = 0) -> UOp:
    """Return `u` at `offsets` in a result of `shape` whose other elements are `fill`."""
    mask = pad_mask(offsets, u.shape, shape)
    return u if mask is TRUE else build("WHERE", mask, pad_invalid(u, offsets, shape), number(fill, u.dtype))


def padded_to_max(u: UOp, fill: Any, axes: Iterable[int]) -> UOp:
    """Return `u` with each symbolic size of `axes` replaced by its maximum; elements behind the end are `fill`."""
    axes = frozenset(axes)
    shape = tuple(size_max(n) if i in axes else n for i, n in enumerate(u.shape))
    return u if shape == u.shape else pad(u, (0,) * len(shape), shape, fill)


def size(n: Size, dtype: DType) -> UOp:
    """Return the size `n`, an int or an index node, as a node of shape () and `dtype`."""
    return const(n, dtype) if n.__class__ is int else cast(n, dtype)


def on_axis(u: UOp, axis: int, rank: int) -> UOp:
    """Return the vector `u`, shape (n,), reshaped to `rank` axes: size n along `axis`, 1 on the others."""
    return reshape(u, (1,) * axis + u.shape + (1,) * (rank - 1 - axis))


# ---- numbers ---------------------------------------------------------------------------------------------------------
_numbers: dict[tuple, UOp] = {}


def number(value: Any, dtype: DType) -> UOp:
    """Return `value` as a CONST of `dtype`. CONSTs are memoized, as rounding to the dtype takes longer than a node."""
    if dtype.kind == "s":
        return full((), value, dtype)
    if value == 0 or value != value:
        return const(value, dtype)  # not memoized: 0.0 and -0.0 would be the same key
    key = (value, value.__class__, dtype)
    u = _numbers.get(key)
    if u is None:
        u = const(value, dtype)
        if len(_numbers) < 4096:
            _numbers[key] = u
    return u


# ---- arithmetic ------------------------------------------------------------------------------------------------------
def e(op: str, a: Any, b: Any) -> UOp:
    """Return the elementwise `op` of two operands; one of them may be a number, which gets the dtype of the other."""
    if a.__class__ is not UOp:
        a = number(a, b.dtype)
    elif b.__class__ is not UOp:
        b = number(b, a.dtype)
    return build(op, a, b)


def multiply_add(a: UOp, b: Any, c: Any) -> UOp:
    """Return a * b + c, rounded once if the target has the instruction; numbers get the dtype of `a`."""
    b, c = (x if x.__class__ is UOp else number(x, a.dtype) for x in (b, c))
    return build("MULACC", a, b, c)


def where(c: UOp, a: Any, b: Any) -> UOp:
    """Return `a` where `c` is true, else `b`; one of both may be a number."""
    like = a.dtype if a.__class__ is UOp else b.dtype
    a = a if a.__class__ is UOp else number(a, like)
    return build("WHERE", c, a, b if b.__class__ is UOp else number(b, like))


def cast(u: UOp, dtype: DType) -> UOp:
    """Return `u` converted to `dtype`. A storage dtype has no CAST: its formula decodes or encodes bytes."""
    if u.dtype is dtype:
        return u
    if u.dtype.kind == "s":
        return cast(storage.decoded(u), dtype)
    return storage.encoded(u, dtype) if dtype.kind == "s" else build("CAST", u, arg=dtype)


def full(shape: tuple, value: Any, dtype: DType) -> UOp:
    """Return a node of the shape `shape` whose elements are all `value`, converted to `dtype`."""
    if dtype.kind == "s":
        d = dtypes.float64 if isinstance(value, float) else dtypes.int64
        return broadcast_to(storage.encoded(const(value, d), dtype), shape)
    return broadcast_to(const(value, dtype), shape)


# ---- reductions ------------------------------------------------------------------------------------------------------
def reduce(u: UOp, op: str, axes: Iterable[int], keep: bool = True) -> UOp:
    """Return the REDUCE of `u` by `op` along `axes`, which keep size 1 or are dropped (not `keep`).

    Sums and products of floats below 32 bits accumulate in float32.
    """
    axes = tuple(sorted(axes))
    wide = accumulator(u.dtype) if op != "MAX" else u.dtype
    out = cast(build("REDUCE", cast(u, wide), arg=(op, axes)), u.dtype)
    return out if keep else reshape(out, tuple(n for i, n in enumerate(u.shape) if i not in axes))


def sum_to(u: UOp, shape: tuple) -> UOp:
    """Return `u` summed to `shape`, which broadcasts to the shape of `u`: along the axes that this would add or
    repeat. It is the gradient of a broadcast.
    """
    if u.shape == shape:
        return u
    extra = len(u.shape) - len(shape)
    axes = [i for i, n in enumerate(u.shape) if i < extra or not _same(n, shape[i - extra])]
    return reshape(reduce(u, "ADD", axes), shape)


def _same(a: Size, b: Size) -> bool:
    return a is b or (a.__class__ is int and b.__class__ is int and a == b)


# ---- joining ---------------------------------------------------------------------------------------------------------
def joined(us: Sequence[UOp], axis: int) -> UOp:
    """Return the concatenation of `us` along `axis`, as a chain of WHEREs that select the part of each element.

    The parts have equal sizes along the other axes. Later passes store each part separately, or split loops at the
    boundaries (`rules.loops.concat`). More than MOST_CHOICES parts are concatenated in groups first, so that a kernel
    that is too large can be split into one for each group.
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


__all__ = [
    "broadcast_to",
    "cast",
    "check_parts",
    "e",
    "expand",
    "flip",
    "full",
    "index",
    "iota",
    "joined",
    "leading",
    "multiply_add",
    "number",
    "on_axis",
    "pad",
    "pad_invalid",
    "padded_to_max",
    "permute",
    "reduce",
    "reshape",
    "shrink",
    "shrink_axis",
    "size",
    "sum_to",
    "where",
    "wholes",
]

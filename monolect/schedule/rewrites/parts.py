"""Cut parts out of values that several devices exchange, so that only the elements of the part move.

Before: SHRINK(CONTIGUOUS(the pieces of all devices, joined))   all pieces move to the device that needs a part
After:  SHRINK(LOAD(piece 2 to the device))                     one piece moves

A part of a concatenation of pieces is taken from the pieces that it overlaps, and a part of a copy is cut before it is
copied. A part is taken below views, padding and elementwise ops where such a value is below them; above all others it
is a SHRINK. So the movement of parts between devices is written as for one device: `x.roll(k).shard(devices)` moves to
each device the elements that it needs from its neighbour.

Invariant: the result of `cut` has the elements of the SHRINK; an element that is invalid there may have any value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

from monolect.autograd import graph
from monolect.ir.bounds import min_max
from monolect.ir.collective import allreduced
from monolect.ir.layout import Layout, box
from monolect.ir.ops import ELEMENTWISE, LoadArg
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, broadcast_to, build, idx, iota, rebuild, shape_source

MOST_OPS = 100  # ops between a part and the value that moves; a part of a longer computation is taken above it

_THROUGH = ELEMENTWISE | {"PAD", "STACK", "EXPAND", "PERMUTE", "RESHAPE"}  # a part is also taken below these

_pieces: WeakKeyDictionary[UOp, tuple[int, tuple[UOp, ...]]] = WeakKeyDictionary()  # (axis, values) of joined values
_sums: WeakKeyDictionary[UOp, tuple[str, tuple[UOp, ...]]] = WeakKeyDictionary()  # (op, values) of combined values
_heights: WeakKeyDictionary[UOp, int] = WeakKeyDictionary()  # results of `_height`
# Functions (axis, start, size) -> the part of a value, or None, of values whose parts another module makes.
makers: WeakKeyDictionary[UOp, Callable[[int, int, int], UOp | None]] = WeakKeyDictionary()


def same_span(a: tuple[Any, Any], b: tuple[Any, Any]) -> bool:
    """Whether two pairs of offset and size are equal; symbolic ones are if they are the same nodes."""
    return all(x is y or (x.__class__ is int and y.__class__ is int and x == y) for x, y in zip(a, b, strict=True))


def is_widened(u: UOp) -> bool:
    """Whether `u` is a CAST to a wider dtype: what moves or is stored is the narrow value below it."""
    return u.op == "CAST" and u.src[0].dtype.itemsize < u.dtype.itemsize


def part(v: UOp, layout: Layout, i: int, n: int) -> UOp:
    """Return the part of `v` that device `i` of `n` has in `layout`."""
    return shrunk(v, box(v.shape, layout, i, n))


def shrunk(v: UOp, spans: Sequence[tuple[Any, Any]]) -> UOp:
    """Return the part of `v` with the given (offset, size) along each axis."""
    for a, (start, size) in enumerate(spans):
        v = cut(v, a, start, size)
    return v


def cut(v: UOp, axis: int, start: Any, size: Any) -> UOp:
    """Return `size` elements of `v` along `axis` from `start`. A size is an int or an index node.

    The part is taken below views that repeat elements, so that a copy of it moves each element once.
    """
    return _Cut().of(v, axis, start, size)


def _span_below(v: UOp, axis: int, start: Any, size: Any) -> tuple[int, Any, Any] | None:
    """Return (axis, start, size) of the elements of the source of the RESHAPE `v` that are elements `start` to
    `start + size` of `v` along `axis`; None if they are no such part.
    """
    whole, below, before = v.shape[axis], v.src[0].shape, prod(v.shape[:axis])
    for a, n in enumerate(below):
        if prod(below[:a]) is not before and prod(below[:a]) != before:
            continue
        if n is whole or (n.__class__ is int and n == whole):
            return a, start, size
        if any(x.__class__ is not int for x in (n, whole, start, size)) or n < 2:
            continue
        if n % whole == 0 and any(prod(v.shape[axis:k]) == n for k in range(axis, len(v.shape) + 1)):
            return a, start * (n // whole), size * (n // whole)
        if whole % n == 0 and any(prod(below[a:k]) == whole for k in range(a, len(below) + 1)):
            m = whole // n
            return (a, start // m, size // m) if start % m == 0 and size % m == 0 else None
    return None


class _Cut:
    """Take a part of a value, and of each value below it once for each part that is needed."""

    def __init__(self) -> None:
        self.done: dict[tuple[UOp, int, Any, Any], UOp] = {}

    def of(self, v: UOp, axis: int, start: Any, size: Any) -> UOp:
        """Return `size` elements of `v` along `axis` from `start`."""
        if same_span((start, size), (0, v.shape[axis])):
            return v
        key = (v, axis, start, size)
        if key not in self.done:
            self.done[key] = self._taken(v, axis, start, size)
        return self.done[key]

    def _taken(self, v: UOp, axis: int, start: Any, size: Any) -> UOp:
        """Return the part, below `v` if it is a view or a value that moves is there."""
        shape = (*v.shape[:axis], size, *v.shape[axis + 1 :])
        if v.op == "EXPAND":
            below = v.src[0] if v.src[0].shape[axis] != v.shape[axis] else self.of(v.src[0], axis, start, size)
            return build("EXPAND", below, shape_source(shape))
        if v.op == "PERMUTE":
            return build("PERMUTE", self.of(v.src[0], v.arg[axis], start, size), arg=v.arg)
        if is_widened(v):
            return rebuild(v, (self.of(v.src[0], axis, start, size),))
        if v.op == "RESHAPE" and (span := _span_below(v, axis, start, size)) is not None:
            return build("RESHAPE", self.of(v.src[0], *span), shape_source(shape))
        if start.__class__ is int and size.__class__ is int and size:
            if v.op == "IOTA":
                return build("ADD", iota(size, v.dtype), build("CAST", idx(start), arg=v.dtype))
            if 0 < _height(v) <= MOST_OPS and (found := self._below(v, axis, start, size)) is not None:
                return found
        offsets = [0] * len(v.shape)
        offsets[axis] = start
        return build("SHRINK", v, shape_source(offsets), shape_source(shape))

    def _below(self, v: UOp, axis: int, start: int, size: int) -> UOp | None:
        """Return the part, computed from parts of the sources of `v` or of the pieces it is joined of; None if it is
        not known how.
        """
        if v in makers:
            return makers[v](axis, start, size)
        if v in _pieces:
            return self._of_pieces(*_pieces[v], axis, start, size)
        total = v.src[0] if is_copy(v) else v
        if total in _sums and (is_copy(v) or v.op == "AFTER"):  # the device that needs the part combines it
            op, partial = _sums[total]
            return combined(op, [self.of(p, axis, start, size) for p in partial], str(device_of(v)))
        if is_copy(v):
            return copy(self.of(v.src[0], axis, start, size), v.arg.device)
        if v.op == "PAD":
            return self._of_pad(v, axis, start, size)
        if v.op == "STACK" and axis == 0:
            is_even = all(s.shape == v.shape[1:] for s in v.src)
            return build("STACK", *v.src[start : start + size]) if is_even else None
        if v.op not in ELEMENTWISE and v.op != "STACK":
            return None
        src = []
        for s in v.src:
            a = axis - (len(v.shape) - len(s.shape))
            src.append(self.of(s, a, start, size) if a >= 0 and s.shape[a] != 1 else s)
        if v.op == "WHERE" and (chosen := _decided(src[0])) is not None:
            shape = (*v.shape[:axis], size, *v.shape[axis + 1 :])
            return broadcast_to(src[1] if chosen else src[2], shape)
        return rebuild(v, tuple(src))

    def _of_pieces(self, along: int, pieces: tuple[UOp, ...], axis: int, start: int, size: int) -> UOp:
        """Return the part of a concatenation along the axis `along`, from the pieces that it overlaps."""
        if along != axis:
            return joined([self.of(p, axis, start, size) for p in pieces], along)
        found, at = [], 0
        for p in pieces:
            n = p.shape[axis]
            first, end = max(start, at), min(start + size, at + n)
            if first < end:
                found.append(self.of(p, axis, first - at, end - first))
            at += n
        return joined(found, axis)

    def _of_pad(self, v: UOp, axis: int, start: int, size: int) -> UOp | None:
        """Return the part of a PAD: a PAD of the part of its source that overlaps, or zeros if none does."""
        source, offsets, shape = v.src[0], [*v.src[1].sizes], [*v.src[2].sizes]
        at, n = offsets[axis], source.shape[axis]
        if at.__class__ is not int or n.__class__ is not int:
            return None
        first, end = max(start, at), min(start + size, at + n)
        shape[axis] = size
        if first >= end:
            return graph.full(tuple(shape), 0, v.dtype)
        offsets[axis] = first - start
        below = self.of(source, axis, first - at, end - first)
        if all(same_span((0, m), (o, n)) for o, m, n in zip(offsets, below.shape, shape, strict=True)):
            return below
        return build("PAD", below, shape_source(offsets), shape_source(shape))


def _height(v: UOp) -> int:
    """Return 0 if no value that moves and no IOTA is below `v` through `_THROUGH`, else the number of ops on the
    longest way down. A part of an IOTA decides comparisons, such as those of a concatenation.
    """
    stack = [v]
    while stack:
        u = stack[-1]
        is_end = u in makers or u in _pieces or u in _sums or is_copy(u) or u.op == "IOTA"
        if u in _heights:
            stack.pop()
        elif is_end or u.op not in _THROUGH:
            _heights[u] = 1 if is_end else 0
        elif pending := [s for s in u.src if s not in _heights]:
            stack += pending
        else:
            _heights[u] = 1 + max(map(_heights.__getitem__, u.src)) if any(map(_heights.__getitem__, u.src)) else 0
    return _heights[v]


def _decided(condition: UOp) -> bool | None:
    """Return the one value of all elements of a condition, or None."""
    low, high = min_max(condition)
    return bool(low) if low == high else None


def is_copy(u: UOp) -> bool:
    """Whether `u` is a copy to one device."""
    return u.op == "LOAD" and len(u.src) == 1 and u.arg is not None and u.arg.device.__class__ is str


def copy(v: UOp, name: str) -> UOp:
    """Return `v` on the device `name`. The copy is below views that repeat or reorder elements, and below a CAST to a
    wider dtype; a copy of what came from there is what it came from.
    """
    if device_of(v) == name:
        return v
    if is_copy(v) and device_of(v.src[0]) == name:
        return v.src[0]
    if v.op in ("EXPAND", "RESHAPE", "PERMUTE") or is_widened(v):
        return rebuild(v, (copy(v.src[0], name), *v.src[1:]))
    return build("LOAD", v, arg=LoadArg(name, "GLOBAL"))


def combined(op: str, partial: Sequence[UOp], name: str) -> UOp:
    """Return the partial results, combined by `op` in order on the device `name`."""
    first, *others = [copy(p, name) for p in partial]
    for p in others:
        first = build(op, first, p)
    if first not in partial:
        _sums[first] = op, tuple(partial)
    return first


def combined_by_all(op: str, partial: Sequence[UOp], names: Sequence[str]) -> list[UOp]:
    """Return on each of the processes `names` the partial results, one for each, combined by `op`: an allreduce. A part
    of it that is cut is combined by the process that needs it (reduce_scatter).
    """
    totals = allreduced(op, partial, names)
    for total in totals:
        _sums[total] = op, tuple(partial)
    return totals


def joined(values: Sequence[UOp], axis: int) -> UOp:
    """Return the concatenation of values along `axis`, in memory of its own. Views that repeat or reorder elements are
    applied to the concatenation.
    """
    first = values[0]
    if len(values) == 1:
        return first
    if any(v.shape != first.shape for v in values):
        return _of_pieces(graph.joined([v for v in values if v.shape[axis] != 0], axis), axis, values)
    shape = (*first.shape[:axis], first.shape[axis] * len(values), *first.shape[axis + 1 :])
    if all(v.op == first.op and v.arg == first.arg and v.src and v.src[0].shape == first.src[0].shape for v in values):
        found = longer_view(first, axis, shape[axis], lambda at: joined([v.src[0] for v in values], at))
        if found is not None:
            return found
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1)]
    stacked = build("PERMUTE", build("STACK", *values), arg=tuple(order))
    return _of_pieces(build("RESHAPE", stacked, shape_source(shape)), axis, values)


def longer_view(v: UOp, axis: int, size: Any, longer: Callable[[int], UOp]) -> UOp | None:
    """Return `v`, a view that repeats or reorders elements or a CAST to a wider dtype, with `size` elements along
    `axis`; None for another node.

    `longer(at)`: the source of `v` with more elements along its axis `at`, which `axis` of the view is.
    """
    shape = shape_source((*v.shape[:axis], size, *v.shape[axis + 1 :]))
    if v.op == "EXPAND" and v.src[0].shape[axis] == v.shape[axis]:
        return build("EXPAND", longer(axis), shape)
    if is_widened(v):
        return rebuild(v, (longer(axis),))
    if v.op == "PERMUTE":
        return build("PERMUTE", longer(v.arg[axis]), arg=v.arg)
    if v.op == "RESHAPE" and (at := _same_axis(v, axis)) is not None:
        return build("RESHAPE", longer(at), shape)
    return None


def _of_pieces(u: UOp, axis: int, pieces: Sequence[UOp]) -> UOp:
    """Return `u` in memory of its own, marked as the concatenation of `pieces` along `axis`."""
    u = build("CONTIGUOUS", u)
    if all(p.shape[axis].__class__ is int for p in pieces):
        _pieces[u] = axis, tuple(pieces)
    return u


def _same_axis(v: UOp, axis: int) -> int | None:
    """Return the axis of the source of a RESHAPE that `axis` is, or None."""
    before, below = prod(v.shape[:axis]), v.src[0].shape
    return next((a for a in range(len(below)) if prod(below[:a]) == before and below[a] == v.shape[axis]), None)


__all__ = [
    "combined",
    "combined_by_all",
    "copy",
    "cut",
    "is_copy",
    "is_widened",
    "joined",
    "longer_view",
    "makers",
    "part",
    "same_span",
    "shrunk",
]

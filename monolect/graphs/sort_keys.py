"""Numbers as integers in the order in which PyTorch sorts them, alone or packed with their positions.

What it is for: the position of an extreme, and sorting, which know integers alone.
What it is not: methods of Tensor. Invariants: `key(a) < key(b)` exactly where a sorts before b, and the keys are equal
where neither does: 0.0 and -0.0 are equal, and every nan equals every other and comes after infinity.
Source: IEEE 754 numbers as sign and magnitude; Herf, "Radix Tricks", 2001.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.graphs.gather_scatter import gather_rows
from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE, MOVEMENT
from monolect.ir.rewrite.normal import count, negate, smaller
from monolect.ir.uop import UOp, build, const, idx, shape_source, toposort
from monolect.schedule.materialize import WEIGHTS

LONG = 1 << 12  # elements of a row that pay for a search by blocks
MOST_AGAIN = 4  # operations that are rather done twice than an element has a key of 64 bits
SHORT = 64  # fewer are not worth lanes of their own

SIGNED: dict[int, DType] = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
_UNSIGNED: dict[int, DType] = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def bits(u: UOp) -> UOp:
    """The bits of a number as a signed integer."""
    return build("BITCAST", u, arg=SIGNED[u.dtype.bits])


def key(u: UOp) -> UOp:
    """`u` as a signed integer of as many bits (int8 for bool) in the order of its values."""
    d = u.dtype
    if d is dtypes.bool:
        return cast(u, dtypes.int8)
    raw = bits(u)
    i = raw.dtype
    if d.is_unsigned:
        return e("XOR", raw, i.min)
    if not d.is_float:
        return raw
    k = where(e("CMPNE", raw, i.min), _turned(raw), 0)  # -0.0 is 0.0
    return where(build("CMPNE", u, u), i.max, k)


def value(k: UOp, d: DType) -> UOp:
    """The value of dtype `d` whose key is `k`; 0.0 for both zeros, one nan for all."""
    if d is dtypes.bool:
        return cast(k, d)
    raw = _turned(k) if d.is_float else e("XOR", k, k.dtype.min) if d.is_unsigned else k
    return build("BITCAST", raw, arg=d)


def _turned(raw: UOp) -> UOp:
    """The bits of floats as integers in order, and back: the magnitude of what is negative is turned round."""
    return build("XOR", raw, e("AND", e("SHR", raw, raw.dtype.bits - 1), raw.dtype.max))


def unsigned(k: UOp, descending: bool = False) -> UOp:
    """A key as an unsigned integer of the same order, or of the opposite; its own inverse on unsigned ones."""
    d = k.dtype
    other = (SIGNED if d.is_unsigned else _UNSIGNED)[d.bits]
    return build("BITCAST", e("XOR", k, ~(1 << d.bits - 1) if descending else 1 << d.bits - 1), arg=other)


def arg_extreme(u: UOp, axis: int) -> UOp:
    """The first position of the maximum along `axis`, which stays with size 1; int64. nan is the largest.

    Rows are looked at twice, for the maximum and for its first place; of a long one the second look is at one block.
    Looked at once is what fits 32 bits with its place, what takes long to compute, and short rows, whose lanes are
    other rows.
    """
    n = u.shape[axis]
    is_last = axis == len(u.shape) - 1
    if n.__class__ is int and n >= LONG and is_last and count(u.shape).__class__ is int:
        return _place_by_blocks(u)
    fits = u.dtype.bits + _place_bits(n)
    if fits > 64 or (fits > 32 and not (is_last and size_max(n) < SHORT) and _is_near(u)):
        return _place_of_maximum(u, axis)
    return _place_by_key(u, axis)


def to_extreme(axis: int, keepdim: bool, sign: Callable[[UOp], UOp]) -> Callable[..., tuple[UOp]]:
    """The derivative of the maximum of sign(x) along `axis`: all of it goes to the first place that has the maximum."""

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        place = arg_extreme(sign(x), axis)
        here = build("CMPEQ", iota(x.shape[axis], dtypes.int64, axis, len(x.shape)), place)
        return (where(here, g if keepdim else graph.reshape(g, place.shape), 0.0),)

    return derivative


def _is_near(u: UOp) -> bool:
    """Whether few operations lead from what is stored, or read at places, to `u`."""
    order = toposort(u, stop=lambda v: v.op not in ELEMENTWISE and v.op not in MOVEMENT)
    return sum(WEIGHTS.get(v.op, 1) for v in order if v.op in ELEMENTWISE and v.dtype.kind != "x") <= MOST_AGAIN


def _place_bits(n: Any) -> int:
    """Bits of a position among n."""
    return max(1, (size_max(n) - 1).bit_length())


def _last(n: Any) -> UOp:
    return n + -1 if n.__class__ is UOp else const(n - 1, dtypes.index)


def _place_of_maximum(u: UOp, axis: int) -> UOp:
    """`arg_extreme` in two reductions: the maximum, and the first place that has it, or is nan."""
    n = u.shape[axis]
    d = dtypes.int32 if size_max(n) <= dtypes.int32.max else dtypes.int64
    is_top = negate(build("CMPNE", u, graph.reduce(u, "MAX", (axis,))))
    if u.dtype.is_float:
        is_top = build("OR", is_top, build("CMPNE", u, u))
    back = build("SUB", cast(_last(n), d), iota(n, d, axis, len(u.shape)))
    found = graph.reduce(where(is_top, back, 0), "MAX", (axis,))  # a place inside, whatever is found
    return build("SUB", cast(_last(n), dtypes.int64), cast(found, dtypes.int64))


def _place_by_key(u: UOp, axis: int) -> UOp:
    """`arg_extreme` in one reduction, over (key, position from the end) in one integer."""
    n, k = u.shape[axis], key(u)
    many = _place_bits(n)
    wide = dtypes.int32 if k.dtype.bits + many <= 32 else dtypes.int64
    back = build("SUB", _last(n), iota(n, dtypes.index, axis, len(u.shape)))
    both = build("OR", e("SHL", cast(k, wide), many), cast(back, wide))
    found = e("AND", graph.reduce(both, "MAX", (axis,)), (1 << many) - 1)
    return build("SUB", cast(_last(n), dtypes.int64), cast(found, dtypes.int64))


def _place_by_blocks(u: UOp) -> UOp:
    """`arg_extreme` along the last axis: the first block that has the maximum, then the place in that block.

    Maxima cost a quarter of keys with positions; those of the blocks are no memory if they are looked at once. The last
    block begins where it ends with the row: what it shares with the one before is smaller than its maximum, or that
    one would have been the first.
    """
    n, rows = u.shape[-1], count(u.shape[:-1])
    block = 1 << ((64 * n).bit_length() - 1) // 2
    blocks = -(-n // block)
    flat = graph.reshape(u, (rows, n))
    starts = iota(blocks, dtypes.index, 0, 2) * block
    starts = smaller(starts, idx(n - block)) if blocks * block > n else starts
    places = graph.reshape(build("ADD", starts, iota(block, dtypes.index, 1, 2)), (1, blocks * block))
    whole = gather_rows(flat, build("EXPAND", places, shape_source((rows, blocks * block))))
    tops = graph.reduce(graph.reshape(whole, (rows, blocks, block)), "MAX", (2,), keep=False)
    first = _place_by_key if u.dtype.bits + _place_bits(blocks) <= 64 else _place_of_maximum
    start = smaller(cast(first(tops, 1), dtypes.index) * block, idx(n - block))
    start = build("MAX", start, idx(0))  # known to be inside: the block is read in vectors
    places = e("ADD", start, iota(block, dtypes.index, 1, 2))
    inside = arg_extreme(gather_rows(flat, places), 1)
    return graph.reshape(e("ADD", cast(start, dtypes.int64), inside), (*u.shape[:-1], 1))

"""Convert numbers to integer keys in PyTorch's sort order, and find the index of a maximum by keys.

What it is for: argmax and sorting, which compare integers only.
What it is not: it has no methods of Tensor.
Invariants: `key(a) < key(b)` exactly if a sorts before b, and the keys are equal if neither does. 0.0 and -0.0 have
equal keys. All nans have one key, which is above that of infinity.
Source: IEEE 754 numbers as sign and magnitude; Herf, "Radix Tricks", 2001.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import DTypeError
from monolect.graphs.gather_scatter import gather_rows
from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE, MOVEMENT
from monolect.ir.rewrite.normal import count, negate, smaller
from monolect.ir.uop import UOp, build, const, idx, shape_source, toposort
from monolect.schedule.materialize import WEIGHTS

LONG_ROW = 1 << 12  # elements; rows of at least this length are searched by blocks
MAX_RECOMPUTED_OPS = 4  # operations; up to it, computing an element twice is cheaper than a 64-bit key
SHORT_ROW = 64  # elements; shorter rows are not vectorized along the row

SIGNED: dict[int, DType] = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}
_UNSIGNED: dict[int, DType] = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def bits(u: UOp) -> UOp:
    """Return the bits of a number as a signed integer of the same width. Raises DTypeError for a storage dtype."""
    if u.dtype.kind == "s":
        raise DTypeError("an order of a storage dtype", expected="a cast to float32", found=u.dtype.name)
    return build("BITCAST", u, arg=SIGNED[u.dtype.bits])


def key(u: UOp) -> UOp:
    """Return `u` as a signed integer of the same width (int8 for bool) in the order of its values."""
    d = u.dtype
    if d is dtypes.bool:
        return cast(u, dtypes.int8)
    raw = bits(u)
    i = raw.dtype
    if d.is_unsigned:
        return e("XOR", raw, i.min)
    if not d.is_float:
        return raw
    k = where(e("CMPNE", raw, i.min), _flip_magnitude(raw), 0)  # -0.0 has the key of 0.0
    return where(build("CMPNE", u, u), i.max, k)


def value(k: UOp, d: DType) -> UOp:
    """Return the value of dtype `d` whose key is `k`: 0.0 for both zeros, one nan for all nans."""
    if d is dtypes.bool:
        return cast(k, d)
    raw = _flip_magnitude(k) if d.is_float else e("XOR", k, k.dtype.min) if d.is_unsigned else k
    return build("BITCAST", raw, arg=d)


def _flip_magnitude(raw: UOp) -> UOp:
    """Return the bits `raw` of floats as signed integers in the order of the floats, by inverting the magnitude bits of
    negative numbers. The function is its own inverse.
    """
    return build("XOR", raw, e("AND", e("SHR", raw, raw.dtype.bits - 1), raw.dtype.max))


def unsigned(k: UOp, descending: bool = False) -> UOp:
    """Return the signed key `k` as an unsigned key in the same order, or with `descending` in the opposite one. Applied
    to an unsigned key, return the signed key.
    """
    d = k.dtype
    other = (SIGNED if d.is_unsigned else _UNSIGNED)[d.bits]
    return build("BITCAST", e("XOR", k, ~(1 << d.bits - 1) if descending else 1 << d.bits - 1), arg=other)


def first_maximum(u: UOp, axis: int) -> UOp:
    """Return the int64 index of the first maximum along `axis`, which keeps size 1. nan is the largest.

    Most rows are read twice: for the maximum, and for its first index. In a long row the second read is of one block. A
    row is read once if an element packs with its index into 32 bits, if its elements are expensive to compute, or if it
    is short, as then the vector lanes are different rows.
    """
    n = u.shape[axis]
    is_last = axis == len(u.shape) - 1
    if n.__class__ is int and n >= LONG_ROW and is_last and count(u.shape).__class__ is int:
        return _first_by_blocks(u)
    fits = u.dtype.bits + _index_bits(n)
    if fits > 64 or (fits > 32 and not (is_last and size_max(n) < SHORT_ROW) and _is_cheap_to_recompute(u)):
        return _first_by_two_reductions(u, axis)
    return _first_by_key(u, axis)


def maximum_gradient(axis: int, keepdim: bool, sign: Callable[[UOp], UOp]) -> Callable[..., tuple[UOp]]:
    """Return the derivative, for `closed_form`, of the maximum of sign(x) along `axis`: the whole gradient goes to the
    first maximum. `keepdim`: whether the maximum has kept the axis with size 1. `sign` maps the node x to the node
    whose maximum is sought: x itself, or the negated x for a minimum.
    """

    def derivative(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
        """Return `g` at the first maximum of each row of `x`, else 0."""
        index = first_maximum(sign(x), axis)
        here = build("CMPEQ", iota(x.shape[axis], dtypes.int64, axis, len(x.shape)), index)
        return (where(here, g if keepdim else graph.reshape(g, index.shape), 0.0),)

    return derivative


def _is_cheap_to_recompute(u: UOp) -> bool:
    """Whether at most MAX_RECOMPUTED_OPS operations lead from stored or gathered values to `u`."""
    order = toposort(u, stop=lambda v: v.op not in ELEMENTWISE and v.op not in MOVEMENT)
    return sum(WEIGHTS.get(v.op, 1) for v in order if v.op in ELEMENTWISE and v.dtype.kind != "x") <= MAX_RECOMPUTED_OPS


def _index_bits(n: Any) -> int:
    """Return the number of bits that an index below n needs."""
    return max(1, (size_max(n) - 1).bit_length())


def _last(n: Any) -> UOp:
    """Return n - 1 as an index node; `n` is an int or a symbolic size."""
    return n + -1 if n.__class__ is UOp else const(n - 1, dtypes.index)


def _first_by_two_reductions(u: UOp, axis: int) -> UOp:
    """Return `first_maximum` along `axis` by two reductions: the maximum, and the first index whose element equals it
    or is nan.
    """
    n = u.shape[axis]
    d = dtypes.int32 if size_max(n) <= dtypes.int32.max else dtypes.int64
    is_top = negate(build("CMPNE", u, graph.reduce(u, "MAX", (axis,))))
    if u.dtype.is_float:
        is_top = build("OR", is_top, build("CMPNE", u, u))
    back = build("SUB", cast(_last(n), d), iota(n, d, axis, len(u.shape)))
    # 0 if nothing is found, so that the index is inside the row.
    found = graph.reduce(where(is_top, back, 0), "MAX", (axis,))
    return build("SUB", cast(_last(n), dtypes.int64), cast(found, dtypes.int64))


def _first_by_key(u: UOp, axis: int) -> UOp:
    """Return `first_maximum` along `axis` by one reduction over integers that pack a key with the index counted from
    the end.
    """
    n, k = u.shape[axis], key(u)
    index_bits = _index_bits(n)
    wide = dtypes.int32 if k.dtype.bits + index_bits <= 32 else dtypes.int64
    back = build("SUB", _last(n), iota(n, dtypes.index, axis, len(u.shape)))
    both = build("OR", e("SHL", cast(k, wide), index_bits), cast(back, wide))
    found = e("AND", graph.reduce(both, "MAX", (axis,)), (1 << index_bits) - 1)
    return build("SUB", cast(_last(n), dtypes.int64), cast(found, dtypes.int64))


def _first_by_blocks(u: UOp) -> UOp:
    """Return `first_maximum` along the last axis: the first block that has the maximum, then the index in that block.

    A maximum costs a quarter of the maximum of keys that are packed with their indices (`_first_by_key`). The maxima of
    the blocks are not stored, as one reduction reads them. The last block ends with the row and may overlap the block
    before it. Elements in the overlap are below the maximum of the last block if that block is chosen, since otherwise
    the earlier block would be.
    """
    n, rows = u.shape[-1], count(u.shape[:-1])
    block = 1 << ((64 * n).bit_length() - 1) // 2
    blocks = -(-n // block)
    flat = graph.reshape(u, (rows, n))
    starts = iota(blocks, dtypes.index, 0, 2) * block
    starts = smaller(starts, idx(n - block)) if blocks * block > n else starts
    indices = graph.reshape(build("ADD", starts, iota(block, dtypes.index, 1, 2)), (1, blocks * block))
    blocked = gather_rows(flat, build("EXPAND", indices, shape_source((rows, blocks * block))))
    tops = graph.reduce(graph.reshape(blocked, (rows, blocks, block)), "MAX", (2,), keep=False)
    first = _first_by_key if u.dtype.bits + _index_bits(blocks) <= 64 else _first_by_two_reductions
    start = smaller(cast(first(tops, 1), dtypes.index) * block, idx(n - block))
    start = build("MAX", start, idx(0))  # a provable bound, so that the block is read in vectors
    indices = e("ADD", start, iota(block, dtypes.index, 1, 2))
    inside = first_maximum(gather_rows(flat, indices), 1)
    return graph.reshape(e("ADD", cast(start, dtypes.int64), inside), (*u.shape[:-1], 1))


__all__ = ["LONG_ROW", "SHORT_ROW", "bits", "first_maximum", "key", "maximum_gradient", "unsigned", "value"]

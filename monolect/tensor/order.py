"""Numbers as integers in the order in which PyTorch sorts them, alone or packed with their positions.

What it is for: the position of an extreme in one reduction, and sorting, which know integers alone.
What it is not: methods of Tensor. Invariants: `key(a) < key(b)` exactly where a sorts before b, and the keys are equal
where neither does: 0.0 and -0.0 are equal, and every nan equals every other and comes after infinity.
Source: IEEE 754 numbers as sign and magnitude; Herf, "Radix Tricks", 2001.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import size_max
from monolect.ir.normal import count, negate, smaller
from monolect.ir.uop import UOp, build, const, idx
from monolect.tensor.rows import gather_rows

LONG = 1 << 11  # elements of a row that pay for a second look at one block of it

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

    One reduction, over (key, position from the end) in one integer; two for keys that leave no room for the position.
    A long row is searched block by block first.
    """
    n = u.shape[axis]
    if n.__class__ is int and n >= LONG and axis == len(u.shape) - 1 and count(u.shape).__class__ is int:
        return _arg_of_blocks(u)
    last = n + -1 if n.__class__ is UOp else const(n - 1, dtypes.index)
    k, many = key(u), max(1, (size_max(n) - 1).bit_length())
    wide = next((d for d in (dtypes.int32, dtypes.int64) if k.dtype.bits + many <= d.bits), None)
    back = build("SUB", last, iota(n, dtypes.index, axis, len(u.shape)))
    if wide is not None:
        both = build("OR", e("SHL", cast(k, wide), many), cast(back, wide))
        found = e("AND", graph.reduce(both, "MAX", (axis,)), (1 << many) - 1)
    else:
        is_top = negate(build("CMPNE", k, graph.reduce(k, "MAX", (axis,))))
        found = graph.reduce(where(is_top, cast(back, dtypes.int64), -1), "MAX", (axis,))
    return build("SUB", cast(last, dtypes.int64), cast(found, dtypes.int64))


def _arg_of_blocks(u: UOp) -> UOp:
    """The same along the last axis: the first block that has the maximum, then the place in that block.

    Maxima cost a quarter of keys with positions. The last block begins where it ends with the row: what it shares with
    the one before is smaller than its maximum, or that one would have been the first.
    """
    n, rows = u.shape[-1], count(u.shape[:-1])
    block = 1 << ((64 * n).bit_length() - 1) // 2
    blocks = -(-n // block)
    flat = graph.reshape(u, (rows, n))
    whole = flat if blocks * block == n else graph.pad(flat, (0, 0), (rows, blocks * block), u.dtype.min)
    tops = graph.reduce(graph.reshape(whole, (rows, blocks, block)), "MAX", (2,), keep=False)
    start = smaller(cast(arg_extreme(tops, 1), dtypes.index) * block, idx(n - block))
    start = build("MAX", start, idx(0))  # known to be inside: the block is read in vectors
    places = e("ADD", start, iota(block, dtypes.index, 1, 2))
    inside = arg_extreme(gather_rows(flat, places), 1)
    return graph.reshape(e("ADD", cast(start, dtypes.int64), inside), (*u.shape[:-1], 1))

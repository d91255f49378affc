"""Find the element of a given rank in each row, without sorting the row.

How: the key of the element is found two bits at a time, the highest bits first. Each round counts how many keys of the
row are below each of three thresholds. All rounds are reductions over a row that stays in cache. For each element a
round costs a load and three vector comparisons, where a pass of a sort moves each element on its own.

What it is not: it does not order equal elements; of these the first is found. Invariant: ranks are inside the row.
Source: Knuth, "Sorting and Searching", 5.3.3, of selection by digits of the keys.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.graphs import sort_keys as order
from monolect.graphs.bitonic_sort import n_steps, uses_network
from monolect.ir.uop import UOp, build, const

DIGIT_BITS = 2  # bits of the key that one round finds, by counting at three thresholds
ROW_MULTIPLE = 64  # elements; rows are padded to a multiple of it, so that no vector of a round is masked
MIN_ROW = 32  # elements; in shorter rows comparing all pairs is faster, as each round waits for the one before
MAX_NETWORK_STEPS = 48  # steps of a sorting network; up to it, the network is faster than the rounds
MAX_RANKS = 1  # ranks sought in a row; more make a sort as fast, as each rank reads the row once a round


def is_cheaper_than_sorting(x: UOp, m: int) -> bool:
    """Whether `index_of_rank` for m ranks in each row of `x`, shape (r, n), is faster than sorting the rows."""
    n = x.shape[1]
    is_long = n_steps(n) > MAX_NETWORK_STEPS if uses_network(x, True) else n >= MIN_ROW
    return is_long and m <= MAX_RANKS


def index_of_rank(x: UOp, at: UOp) -> UOp:
    """Return int32 indices of shape (r, m): element [i, j] is the index in row i of `x`, shape (r, n), of the element
    at position at[i, j] of the sorted row. Of equal elements the first is found.
    """
    (r, n), m = x.shape, at.shape[1]
    k = order.key(x)
    keys = cast(k, dtypes.int64 if k.dtype.bits == 64 else dtypes.int32)
    padded_size = -(-n // ROW_MULTIPLE) * ROW_MULTIPLE
    # The padding is below no threshold.
    keys = build("CONTIGUOUS", graph.pad(keys, (0, 0), (r, padded_size), keys.dtype.max))
    keys = graph.reshape(keys, (r, 1, padded_size))
    found = _key_of_rank(keys, graph.reshape(cast(at, dtypes.int32), (r, m, 1)), bits_of(x.dtype))
    # Distance from the end; negative for padding.
    back = e("SUB", const(n - 1, dtypes.int32), iota(padded_size, dtypes.int32, 2, 3))
    last = graph.reduce(where(build("CMPEQ", keys, found), back, dtypes.int32.min), "MAX", (2,), keep=False)
    return e("SUB", const(n - 1, dtypes.int32), last)


def bits_of(d: DType) -> int:
    """Return the number of bits in which keys of dtype `d` can differ."""
    return 1 if d is dtypes.bool else d.bits


def _key_of_rank(keys: UOp, ranks: UOp, bits: int) -> UOp:
    """Return the key that each of `ranks`, shape (r, m, 1), has in a row of `keys`, (r, 1, n): the largest
    number of `bits` bits (signed, except a bool) that has at most as many keys below it as the rank.
    """
    found = const(0 if bits == 1 else -(1 << bits - 1), keys.dtype)
    for low in range(max(0, bits - DIGIT_BITS), -1, -DIGIT_BITS):
        digit = None
        for i in range(1, 1 << min(DIGIT_BITS, bits)):
            below = build("CMPLT", keys, e("ADD", found, i << low))
            is_reached = build("CMPLE", graph.reduce(cast(below, dtypes.int32), "ADD", (2,)), ranks)
            digit = cast(is_reached, keys.dtype) if digit is None else build("ADD", digit, cast(is_reached, keys.dtype))
        assert digit is not None
        found = build("ADD", found, e("SHL", digit, low))
    return found


__all__ = ["bits_of", "index_of_rank", "is_cheaper_than_sorting"]

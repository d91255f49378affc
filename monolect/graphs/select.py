"""Elements of rows by their rank, on nodes: which element would be k-th if the row were sorted, without sorting it.

How: the key of the element is found two bits at a time, the highest first, by counting how many keys of its row are
below each of three thresholds; all rounds are reductions over a row that stays in cache. Per element a round costs a
load and three comparisons of a vector, where a pass of a sort moves each element on its own.

What it is not: the order of equal elements: of these the first is taken. Invariant: ranks are inside of the row.
Source: Knuth, "Sorting and Searching", 5.3.3, of selection by digits of the keys.
"""

from __future__ import annotations

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import DType, dtypes
from monolect.graphs import sort_keys as order
from monolect.graphs.bitonic_sort import is_in_network, n_steps
from monolect.ir.uop import UOp, build, const

DIGIT_BITS = 2  # a round reads a row once and counts at three thresholds
VECTORS = 64  # elements that rows are filled up to, so that no vector of a round has a mask
LEAST_ROW = 32  # elements: in shorter rows what rounds have to wait for each other costs more than to compare all pairs
MOST_STEPS = 48  # of a network that sorts the rows: more cost what the rounds do
MOST_RANKS = 1  # of several each would read the row once a round: two and more cost what a sort does


def is_cheaper_than_sorting(x: UOp, m: int) -> bool:
    """Whether m elements of each row of `x` are found faster without sorting it."""
    n = x.shape[1]
    is_long = n_steps(n) > MOST_STEPS if is_in_network(x, True) else n >= LEAST_ROW
    return is_long and m <= MOST_RANKS


def place_of_rank(x: UOp, at: UOp) -> UOp:
    """Where in row i of `x`, shape (r, n), the elements stand of which at[i, j] others come before; int32, (r, m)."""
    (r, n), m = x.shape, at.shape[1]
    k = order.key(x)
    keys = cast(k, dtypes.int64 if k.dtype.bits == 64 else dtypes.int32)
    whole = -(-n // VECTORS) * VECTORS
    keys = build("CONTIGUOUS", graph.pad(keys, (0, 0), (r, whole), keys.dtype.max))  # below no threshold
    keys = graph.reshape(keys, (r, 1, whole))
    found = _key_of_rank(keys, graph.reshape(cast(at, dtypes.int32), (r, m, 1)), bits_of(x.dtype))
    back = e("SUB", const(n - 1, dtypes.int32), iota(whole, dtypes.int32, 2, 3))  # of what was padded negative
    last = graph.reduce(where(build("CMPEQ", keys, found), back, dtypes.int32.min), "MAX", (2,), keep=False)
    return e("SUB", const(n - 1, dtypes.int32), last)


def bits_of(d: DType) -> int:
    """Bits in which keys of elements of dtype `d` differ."""
    return 1 if d is dtypes.bool else d.bits


def _key_of_rank(keys: UOp, ranks: UOp, bits: int) -> UOp:
    """The largest number of so many bits below which are no more than `ranks` keys, shape (r, m, 1)."""
    found = const(0 if bits == 1 else -(1 << bits - 1), keys.dtype)
    for low in range(max(0, bits - DIGIT_BITS), -1, -DIGIT_BITS):
        digit = None
        for i in range(1, 1 << min(DIGIT_BITS, bits)):
            below = build("CMPLT", keys, e("ADD", found, i << low))
            few = build("CMPLE", graph.reduce(cast(below, dtypes.int32), "ADD", (2,)), ranks)
            digit = cast(few, keys.dtype) if digit is None else build("ADD", digit, cast(few, keys.dtype))
        assert digit is not None
        found = build("ADD", found, e("SHL", digit, low))
    return found

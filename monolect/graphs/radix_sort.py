"""Build a stable sort of rows in linear time, and the first k elements of a sorted row without sorting all of it.

How: rows of up to some thousand elements are sorted by a bitonic network, if the target has vectors (`bitonic_sort`).
Longer rows are radix-sorted, the least significant digit first. Each key is packed with its index into one unsigned
word. The elements of a row with one value of the digit are a class. A histogram of each chunk of a row and its running
sum give the offset at which each class begins. The rank within a class is a sum over earlier elements, which
`rules.loops.class_scan` turns into a count in local memory. One store moves each word. Short rows without vectors are
sorted by counting the elements before each element. The k largest elements are extracted one by one, in a long row from
the blocks with the largest maxima. If k is large, the candidates from such blocks are sorted.

What it is not: it knows no Tensor. Invariants: the order is that of `sort_keys.key`; equal elements keep their order.
Source: Knuth, "Sorting and Searching", 5.2.5; Zagha and Blelloch, "Radix sort for vector multiprocessors", 1991.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import dtypes
from monolect.graphs import sort_keys as order
from monolect.graphs.bitonic_sort import n_steps, sort_by_network, uses_network
from monolect.graphs.gather_scatter import empty, gather_rows, scatter_rows, store_flat
from monolect.graphs.scans import scan
from monolect.ir.uop import UOp, build, const

DIGIT_BITS = 8  # bits that one pass sorts by; with more, the data of all classes does not fit into L1
PASS_COST, PASS_COST_PER_ELEMENT = 7000, 58  # cost of a pass over a row; comparing two keys of at most 16 bits costs 1
INDEX_BITS = 16  # bits for the index next to the key; rows sorted by counting are shorter than 2**16
CHUNK, MAX_CHUNKS = 1 << 14, 64  # elements of a chunk, which one thread moves; largest number of chunks of a row
MAX_ROUNDS = 64  # largest k that is extracted one by one; for a larger k, candidates or rows are sorted
PACKING_ROUNDS = 3  # extraction rounds that cost as much as packing keys with indices, or as finding block maxima
NETWORK_STEPS = 3  # steps of a network that cost as much as one extraction round
SMALL_INPUT = 1 << 14  # elements of all rows; up to it, blocks do not pay for their extra kernels
MIN_BLOCK_GAIN = 4  # candidates from blocks are sorted if they are at most 1/MIN_BLOCK_GAIN of the row, else the row is


class Sorted(NamedTuple):
    """Sorted rows of shape (r, n): the values, and the integer index of each value in its unsorted row."""

    values: UOp
    indices: UOp


def sort_rows(x: UOp, descending: bool = False) -> Sorted:
    """Sort the rows of `x`, shape (r, n), ascending unless `descending`.

    Equal elements keep their order; nan is the largest.
    """
    n = x.shape[1]
    if not uses_network(x, False):
        return _sort_by_keys(x, descending)
    values = sort_by_network(x, descending, False, n)
    if uses_network(x, True):
        return Sorted(values, sort_by_network(x, descending, True, n))
    # Sorting indices needs two words, and its code would be too long.
    return Sorted(values, _sort_by_keys(x, descending).indices)


def _sort_by_keys(x: UOp, descending: bool) -> Sorted:
    """Sort the rows of `x`, shape (r, n), by counting or by radix sort of their keys.

    The order is ascending unless `descending`; equal elements keep their order.
    """
    key = order.unsigned(order.key(x), descending)
    if is_cheaper_to_count(x.shape[1], key.dtype.bits):
        return _sort_by_counting(x, key)
    at = iota(x.shape[1], dtypes.int32, 1, 2)
    if key.dtype.bits < 64:
        return _sort_words(x, key, at, descending)
    low = _indices_of(_sort_by_bits(_pack(e("AND", key, 0xFFFFFFFF), at), 32, 64), 32)
    high = e("SHR", gather_rows(key, low), 32)
    indices = _indices_of(_sort_by_bits(_pack(high, low), 32, 64), 32)
    return Sorted(gather_rows(x, indices), indices)


def is_cheaper_to_count(n: int, bits: int) -> bool:
    """Whether comparing all pairs of n keys of `bits` bits is cheaper than a radix sort of them."""
    compare = max(1, bits // 16)  # a vector holds fewer wide keys, and 64-bit keys leave no room for an index
    return n * n * compare <= -(-bits // DIGIT_BITS) * (PASS_COST + PASS_COST_PER_ELEMENT * n)


def _sort_words(x: UOp, key: UOp, at: UOp, descending: bool) -> Sorted:
    """Sort the rows of `x` by their unsigned keys `key` of at most 32 bits: pack each key with its index `at` into a
    word, sort the words and unpack them.

    The lowest bit of a word is 1 for -0.0. `descending`: the keys were made for that order.
    """
    d = key.dtype
    words = _pack(key, at, _is_negative_zero(x) if x.dtype.is_float else None)
    room = words.dtype.bits - d.bits
    words = _sort_by_bits(words, room, room + (1 if x.dtype is dtypes.bool else d.bits))
    v = order.value(order.unsigned(cast(e("SHR", words, room), d), descending), x.dtype)
    if x.dtype.is_float:
        v = where(e("CMPNE", e("AND", words, 1), 0), -0.0, v)
    return Sorted(v, _indices_of(words, room))


def _is_negative_zero(x: UOp) -> UOp:
    """Return a bool node: true where a float is -0.0."""
    raw = order.bits(x)
    return e("CMPEQ", raw, raw.dtype.min)


def _pack(key: UOp, index: UOp, flag: UOp | None = None) -> UOp:
    """Pack (key, index, flag) into one uint32 or uint64 word, from the highest bits to bit 0, and store the words.

    `key`: the unsigned key of each element, below 2**32 also in 64 bits. `index`: the index of each element in its row,
    shape (1, n) or (r, n). `flag`: a bool node for bit 0, or None for 0.
    """
    fits = min(key.dtype.bits, 32) + index.shape[1].bit_length() + 1 <= 32
    d = dtypes.uint32 if fits else dtypes.uint64
    word = build("OR", e("SHL", cast(key, d), d.bits - min(key.dtype.bits, 32)), e("SHL", cast(index, d), 1))
    return build("CONTIGUOUS", word if flag is None else build("OR", word, cast(flag, d)))


def _indices_of(words: UOp, room: int) -> UOp:
    """Return the int32 indices in words made by `_pack`, whose keys begin at bit `room`: bits 1 to `room` - 1."""
    return cast(e("SHR", e("AND", words, (1 << room) - 1), 1), dtypes.int32)


# ---- by counting -----------------------------------------------------------------------------------------------------
def _sort_by_counting(x: UOp, key: UOp) -> Sorted:
    """Sort the rows of `x` by their unsigned keys `key`, shape (r, n): the rank of an element is the number of elements
    that are sorted before it.

    If one word holds a key and its index, words are distinct, and one comparison orders two elements.
    """
    r, n = x.shape
    index = graph.expand(iota(n, dtypes.int32, 1, 2), (r, n))
    wide = next((d for d in (dtypes.uint32, dtypes.uint64) if key.dtype.bits + INDEX_BITS <= d.bits), None)
    if wide is not None:
        key = build("OR", e("SHL", cast(key, wide), INDEX_BITS), cast(index, wide))
    key = build("CONTIGUOUS", key)
    mine, other = graph.reshape(key, (r, n, 1)), graph.reshape(key, (r, 1, n))
    before = build("CMPLT", other, mine)
    if wide is None:
        earlier = build("CMPLT", iota(n, dtypes.index, 2, 3), iota(n, dtypes.index, 1, 3))
        before = build("OR", before, build("AND", build("CMPEQ", other, mine), earlier))
    rank = graph.reduce(cast(before, dtypes.int32), "ADD", (2,), keep=False)
    return Sorted(scatter_rows(x, rank), scatter_rows(index, rank))


# ---- by digits -------------------------------------------------------------------------------------------------------
def _sort_by_bits(words: UOp, low: int, high: int) -> UOp:
    """Return the rows of `words` radix-sorted by bits low..high-1."""
    r, n = words.shape
    chunks = 1 if r >= MAX_CHUNKS else max(1, min(MAX_CHUNKS, n // CHUNK))
    m = -(-n // chunks)
    padded = graph.pad(words, (0, 0), (r, chunks * m), words.dtype.max)  # padding sorts last and stays last
    parts = graph.reshape(padded, (r, chunks, m))
    for shift in range(low, high, DIGIT_BITS):
        parts = _radix_pass(parts, shift, 1 << min(DIGIT_BITS, high - shift))
    return graph.shrink(graph.reshape(parts, (r, chunks * m)), (0, 0), (r, n))


def _radix_pass(words: UOp, shift: int, classes: int) -> UOp:
    """Sort words of shape (rows, chunks, m) by the digit that begins at bit `shift` and has `classes` values.

    This is one stable pass over each row; `m` is the number of words of a chunk.
    """
    r, chunks, m = words.shape
    digit = cast(e("AND", e("SHR", words, shift), classes - 1), dtypes.int32)
    chunk = iota(r, dtypes.index, 0, 3) * chunks + iota(chunks, dtypes.index, 1, 3)
    class_index = chunk * classes + cast(digit, dtypes.index)
    index = build(
        "ADD", build("INDEX", _class_starts(class_index, r, chunks, classes), class_index), _rank_in_class(digit)
    )
    at = iota(r, dtypes.index, 0, 3) * (chunks * m) + cast(index, dtypes.index)
    return store_flat(empty(words.shape, words.dtype), at, words)


def _class_starts(class_index: UOp, r: int, chunks: int, classes: int) -> UOp:
    """Return int32 offsets of shape (r * chunks * classes,): where each class of each chunk begins in its sorted row.

    Such an offset is the number of elements of lower classes plus those of the class in earlier chunks. `class_index`:
    the number (row * chunks + chunk) * classes + class of each element.
    """
    zeros = build("CONTIGUOUS", graph.full((r * chunks * classes,), 0, dtypes.int32))
    ones = graph.full(class_index.shape, 1, dtypes.int32)
    counts = build("AFTER", zeros, build("ATOMICADD", build("INDEX", zeros, class_index), ones))
    counts = graph.permute(graph.reshape(counts, (r, chunks, classes)), (0, 2, 1))
    counts = graph.reshape(counts, (r, classes * chunks))
    starts = build("CONTIGUOUS", build("SUB", scan(counts, "ADD"), counts))
    starts = graph.permute(graph.reshape(starts, (r, classes, chunks)), (0, 2, 1))
    return graph.reshape(build("CONTIGUOUS", starts), (r * chunks * classes,))


def _rank_in_class(digit: UOp) -> UOp:
    """Return for each element the number of earlier elements along the last axis with the same digit, int32."""
    *lead, m = digit.shape
    rank = len(lead) + 2
    mine, other = graph.reshape(digit, (*lead, m, 1)), graph.reshape(digit, (*lead, 1, m))
    earlier = build("CMPLT", iota(m, dtypes.index, rank - 1, rank), iota(m, dtypes.index, rank - 2, rank))
    alike = build("AND", earlier, build("CMPEQ", other, mine))
    one = where(alike, const(1, dtypes.int32), 0)
    return graph.reshape(build("REDUCE", one, arg=("ADD", (rank - 1,))), digit.shape)


# ---- the first few ---------------------------------------------------------------------------------------------------
def top_rows(x: UOp, k: int, largest: bool = True) -> Sorted:
    """Return at least the first k sorted elements of each row of `x`, shape (r, n), descending if `largest`, else
    ascending.

    The caller slices the result to k. Rows that had to be sorted are returned whole, all n elements: a slice here would
    merge with the slice of the caller, and the gradient of sorted rows would then not be found.
    """
    if uses_network(x, True) and n_steps(x.shape[1]) <= NETWORK_STEPS * k:
        first = sort_by_network(x, largest, True, k)
        return Sorted(gather_rows(x, first), first)
    key = order.key(x) if largest else build("NOT", order.key(x))
    indices = _top_indices(key, k)
    if indices is None:
        return sort_rows(x, largest)
    return Sorted(gather_rows(x, indices), indices)


def _top_indices(key: UOp, k: int) -> UOp | None:
    """Return the indices of the k largest elements of each row of `key`, shape (r, n), or None if sorting the row is
    cheaper.

    Of equal keys the first comes first.
    """
    r, n = key.shape
    block = 1 << (isqrt(n // max(1, k)).bit_length() - 1 if n > k else 0)
    blocks = -(-n // block)
    rounds = k <= MAX_ROUNDS and key.dtype.bits <= 32
    if rounds and (r * n <= SMALL_INPUT or k * n <= 2 * (PACKING_ROUNDS + k) * (k * block + blocks)):
        return _extract_maxima(key, iota(n, dtypes.int32, 1, 2), k)
    if not rounds and MIN_BLOCK_GAIN * (k * block + blocks) > n:
        return None
    padded = graph.pad(key, (0, 0), (r, blocks * block), key.dtype.min)
    by_block = graph.reshape(padded, (r, blocks, block))
    best = build("CONTIGUOUS", graph.reduce(by_block, "MAX", (2,), keep=False))
    chosen = _top_indices(best, k)
    if chosen is None:
        chosen = cast(graph.shrink(sort_rows(best, True).indices, (0, 0), (r, k)), dtypes.int32)
    chosen = build("CONTIGUOUS", chosen)
    if not rounds:
        chosen = sort_rows(chosen).values  # ascending, so that of equal candidates the first in the row is taken
    at = build("ADD", e("MUL", graph.reshape(chosen, (r, k, 1)), block), iota(block, dtypes.int32, 2, 3))
    at = build("CONTIGUOUS", graph.reshape(at, (r, k * block)))
    row = iota(r, dtypes.index, 0, 2) * blocks + cast(chosen, dtypes.index)
    candidates = build("INDEX", graph.reshape(by_block, (r * blocks, block)), row)
    candidates = graph.reshape(candidates, (r, k * block))
    if rounds:
        return _extract_maxima(candidates, at, k)
    first = top_rows(build("CONTIGUOUS", candidates), k).indices
    return gather_rows(at, graph.leading(first, (r, k)))


def _extract_maxima(key: UOp, index: UOp, k: int) -> UOp:
    """Return the elements of `index` at the k largest elements of each row of `key`, shape (r, n) -> (r, k), int32.

    `key`: signed integers of at most 32 bits. `index`: an int32 number for each element of `key`, shape (1, n) or
    (r, n), rising along a row. Of equal keys the first comes first. It takes k reductions; each finds
    the maximum of the remaining keys.
    """
    back = e("SUB", const(dtypes.int32.max, dtypes.int32), index)
    words = build("CONTIGUOUS", build("OR", e("SHL", cast(key, dtypes.int64), 32), cast(back, dtypes.int64)))
    found = [graph.reduce(words, "MAX", (1,), keep=False)]
    while len(found) < k:
        left = where(build("CMPLT", words, graph.reshape(found[-1], (words.shape[0], 1))), words, dtypes.int64.min)
        found.append(graph.reduce(left, "MAX", (1,), keep=False))
    both = graph.permute(build("STACK", *found), (1, 0))
    return e("SUB", const(dtypes.int32.max, dtypes.int32), cast(e("AND", both, 0xFFFFFFFF), dtypes.int32))


__all__ = ["Sorted", "is_cheaper_to_count", "sort_rows", "top_rows"]

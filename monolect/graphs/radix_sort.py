"""Rows sorted, on nodes: a stable sort in linear time, and the first few of its result without sorting all.

How: rows of up to some thousand elements are sorted by a network of comparisons, where a target has vectors
(`network`). Longer ones are sorted by the digits of their keys, the least significant first, each key packed with its
place into one unsigned word. A histogram of each chunk of a row and its running sum say where each class begins; the
rank within a class is a sum over earlier elements, which `rules.loops.class_scan` makes a count in local memory; one
store moves the word. In short rows, without vectors, the elements before each element are counted. The largest few are
taken one by one, in a long row from the blocks whose own largest elements come first; more of them are sorted, from
such blocks.

What it is not: it knows no Tensor. Invariants: the order is that of `order.key`; equal elements keep theirs.
Source: Knuth, "Sorting and Searching", 5.2.5; Zagha and Blelloch, "Radix sort for vector multiprocessors", 1991.
"""

from __future__ import annotations

from math import isqrt
from typing import NamedTuple

from monolect.autograd import graph
from monolect.autograd.graph import cast, e, iota, where
from monolect.base.dtype import dtypes
from monolect.graphs import sort_keys as order
from monolect.graphs.bitonic_sort import is_in_network, n_steps, sort_in_network
from monolect.graphs.gather_scatter import empty, gather_rows, scatter_rows, stored
from monolect.graphs.scans import scan
from monolect.ir.uop import UOp, build, const

DIGIT_BITS = 8  # what a pass reads and writes per class stays in the first cache
PASS, PASS_PER_ELEMENT = 7000, 58  # of moving a row by one digit; to compare two narrow keys costs 1
PLACE_BITS = 16  # beside a key of so short a row
CHUNK, MOST_CHUNKS = 1 << 14, 64  # elements of a chunk, which one thread moves
ROUNDS = 64  # in which the largest elements are taken one by one, from a row or from its blocks
PACKED = 3  # rounds that cost as much as to pack keys with places, or to find the maxima of blocks
STEPS = 3  # of a network that cost as much as to take one of the largest elements
FEW_WORDS = 1 << 14  # of all rows, too few for the kernels that blocks need
FEW = 4  # of more elements only those of blocks are sorted where they are less than 1/FEW of the row


class Sorted(NamedTuple):
    """Rows in order, shape (r, n): the values, and as integers where each was."""

    values: UOp
    places: UOp


def sort_rows(x: UOp, descending: bool = False) -> Sorted:
    """The rows of `x`, shape (r, n), sorted; equal elements as they came, nan as the largest."""
    n = x.shape[1]
    if not is_in_network(x, False):
        return _sort_by_keys(x, descending)
    values = sort_in_network(x, descending, False, n)
    if is_in_network(x, True):
        return Sorted(values, sort_in_network(x, descending, True, n))
    return Sorted(values, _sort_by_keys(x, descending).places)  # of more words, and longer code


def _sort_by_keys(x: UOp, descending: bool) -> Sorted:
    k = order.unsigned(order.key(x), descending)
    if is_counted(x.shape[1], k.dtype.bits):
        return _count(x, k)
    at = iota(x.shape[1], dtypes.int32, 1, 2)
    if k.dtype.bits < 64:
        return _sort_words(x, k, at, descending)
    low = _places(_move_all(_pack(e("AND", k, 0xFFFFFFFF), at), 32, 64), 32)
    high = e("SHR", gather_rows(k, low), 32)
    places = _places(_move_all(_pack(high, low), 32, 64), 32)
    return Sorted(gather_rows(x, places), places)


def is_counted(n: int, bits: int) -> bool:
    """Whether it is cheaper to compare all pairs of n keys than to move them digit by digit."""
    compare = max(1, bits // 16)  # a vector holds fewer wide words, and keys of 64 bits leave no room for places
    return n * n * compare <= -(-bits // DIGIT_BITS) * (PASS + PASS_PER_ELEMENT * n)


def _sort_words(x: UOp, k: UOp, at: UOp, descending: bool) -> Sorted:
    """Keys of at most 32 bits: what comes out is unpacked. The lowest bit tells -0.0 from 0.0."""
    d = k.dtype
    words = _pack(k, at, _is_negative_zero(x) if x.dtype.is_float else None)
    room = words.dtype.bits - d.bits
    words = _move_all(words, room, room + (1 if x.dtype is dtypes.bool else d.bits))
    v = order.value(order.unsigned(cast(e("SHR", words, room), d), descending), x.dtype)
    if x.dtype.is_float:
        v = where(e("CMPNE", e("AND", words, 1), 0), -0.0, v)
    return Sorted(v, _places(words, room))


def _is_negative_zero(x: UOp) -> UOp:
    raw = order.bits(x)
    return e("CMPEQ", raw, raw.dtype.min)


def _pack(k: UOp, place: UOp, flag: UOp | None = None) -> UOp:
    """(key, place, flag) as one word, the key in its upper half or more."""
    fits = min(k.dtype.bits, 32) + place.shape[1].bit_length() + 1 <= 32
    d = dtypes.uint32 if fits else dtypes.uint64
    word = build("OR", e("SHL", cast(k, d), d.bits - min(k.dtype.bits, 32)), e("SHL", cast(place, d), 1))
    return build("CONTIGUOUS", word if flag is None else build("OR", word, cast(flag, d)))


def _places(words: UOp, room: int) -> UOp:
    return cast(e("SHR", e("AND", words, (1 << room) - 1), 1), dtypes.int32)


# ---- by counting -----------------------------------------------------------------------------------------------------
def _count(x: UOp, k: UOp) -> Sorted:
    """Each element goes where as many elements are before it. Keys with their places, where one word holds both, are
    distinct: one comparison tells which of two comes first.
    """
    r, n = x.shape
    place = graph.expand(iota(n, dtypes.int32, 1, 2), (r, n))
    wide = next((d for d in (dtypes.uint32, dtypes.uint64) if k.dtype.bits + PLACE_BITS <= d.bits), None)
    if wide is not None:
        k = build("OR", e("SHL", cast(k, wide), PLACE_BITS), cast(place, wide))
    k = build("CONTIGUOUS", k)
    mine, other = graph.reshape(k, (r, n, 1)), graph.reshape(k, (r, 1, n))
    before = build("CMPLT", other, mine)
    if wide is None:
        earlier = build("CMPLT", iota(n, dtypes.index, 2, 3), iota(n, dtypes.index, 1, 3))
        before = build("OR", before, build("AND", build("CMPEQ", other, mine), earlier))
    rank = graph.reduce(cast(before, dtypes.int32), "ADD", (2,), keep=False)
    return Sorted(scatter_rows(x, rank), scatter_rows(place, rank))


# ---- by digits -------------------------------------------------------------------------------------------------------
def _move_all(words: UOp, low: int, high: int) -> UOp:
    """The rows of `words` sorted by bits low..high-1."""
    r, n = words.shape
    chunks = 1 if r >= MOST_CHUNKS else max(1, min(MOST_CHUNKS, n // CHUNK))
    m = -(-n // chunks)
    padded = graph.pad(words, (0, 0), (r, chunks * m), words.dtype.max)  # what is added comes last and stays there
    parts = graph.reshape(padded, (r, chunks, m))
    for shift in range(low, high, DIGIT_BITS):
        parts = _move(parts, shift, 1 << min(DIGIT_BITS, high - shift))
    return graph.shrink(graph.reshape(parts, (r, chunks * m)), (0, 0), (r, n))


def _move(words: UOp, shift: int, classes: int) -> UOp:
    """One pass over words of shape (rows, chunks, m): each row sorted by one digit, stably."""
    r, chunks, m = words.shape
    digit = cast(e("AND", e("SHR", words, shift), classes - 1), dtypes.int32)
    chunk = iota(r, dtypes.index, 0, 3) * chunks + iota(chunks, dtypes.index, 1, 3)
    in_table = chunk * classes + cast(digit, dtypes.index)
    place = build("ADD", build("INDEX", _starts(in_table, r, chunks, classes), in_table), _rank_in_class(digit))
    at = iota(r, dtypes.index, 0, 3) * (chunks * m) + cast(place, dtypes.index)
    return stored(empty(words.shape, words.dtype), at, words)


def _starts(in_table: UOp, r: int, chunks: int, classes: int) -> UOp:
    """Where in its row the elements of each (row, chunk, class) begin: how many are of a lower class, or of an earlier
    chunk.
    """
    zeros = build("CONTIGUOUS", graph.full((r * chunks * classes,), 0, dtypes.int32))
    ones = graph.full(in_table.shape, 1, dtypes.int32)
    many = build("AFTER", zeros, build("ATOMICADD", build("INDEX", zeros, in_table), ones))
    many = graph.permute(graph.reshape(many, (r, chunks, classes)), (0, 2, 1))
    many = graph.reshape(many, (r, classes * chunks))
    starts = build("CONTIGUOUS", build("SUB", scan(many, "ADD"), many))
    starts = graph.permute(graph.reshape(starts, (r, classes, chunks)), (0, 2, 1))
    return graph.reshape(build("CONTIGUOUS", starts), (r * chunks * classes,))


def _rank_in_class(digit: UOp) -> UOp:
    """How many earlier elements along the last axis have the same digit."""
    *lead, m = digit.shape
    rank = len(lead) + 2
    mine, other = graph.reshape(digit, (*lead, m, 1)), graph.reshape(digit, (*lead, 1, m))
    earlier = build("CMPLT", iota(m, dtypes.index, rank - 1, rank), iota(m, dtypes.index, rank - 2, rank))
    alike = build("AND", earlier, build("CMPEQ", other, mine))
    one = where(alike, const(1, dtypes.int32), 0)
    return graph.reshape(build("REDUCE", one, arg=("ADD", (rank - 1,))), digit.shape)


# ---- the first few ---------------------------------------------------------------------------------------------------
def top_rows(x: UOp, k: int, largest: bool = True) -> Sorted:
    """The first k or more of each row of `x`, shape (r, n), in descending order if `largest`, else in ascending order.

    Rows that had to be sorted are returned whole: a part of them would be merged with the caller's parts of that, and
    whoever knows the gradient of sorted rows would not be met on the way back.
    """
    if is_in_network(x, True) and n_steps(x.shape[1]) <= STEPS * k:
        first = sort_in_network(x, largest, True, k)
        return Sorted(gather_rows(x, first), first)
    key = order.key(x) if largest else build("NOT", order.key(x))
    places = _top_places(key, k)
    if places is None:
        return sort_rows(x, largest)
    return Sorted(gather_rows(x, places), places)


def _top_places(key: UOp, k: int) -> UOp | None:
    """Where the k largest keys of each row are, the first of equal ones first; None where sorting all is cheaper."""
    r, n = key.shape
    block = 1 << (isqrt(n // max(1, k)).bit_length() - 1 if n > k else 0)
    blocks = -(-n // block)
    rounds = k <= ROUNDS and key.dtype.bits <= 32
    if rounds and (r * n <= FEW_WORDS or k * n <= 2 * (PACKED + k) * (k * block + blocks)):
        return _extract(key, iota(n, dtypes.int32, 1, 2), k)
    if not rounds and FEW * (k * block + blocks) > n:
        return None
    padded = graph.pad(key, (0, 0), (r, blocks * block), key.dtype.min)
    cut = graph.reshape(padded, (r, blocks, block))
    best = build("CONTIGUOUS", graph.reduce(cut, "MAX", (2,), keep=False))
    chosen = _top_places(best, k)
    if chosen is None:
        chosen = cast(graph.shrink(sort_rows(best, True).places, (0, 0), (r, k)), dtypes.int32)
    chosen = build("CONTIGUOUS", chosen)
    if not rounds:
        chosen = sort_rows(chosen).values  # candidates in the order of the row
    at = build("ADD", e("MUL", graph.reshape(chosen, (r, k, 1)), block), iota(block, dtypes.int32, 2, 3))
    at = build("CONTIGUOUS", graph.reshape(at, (r, k * block)))
    row = iota(r, dtypes.index, 0, 2) * blocks + cast(chosen, dtypes.index)
    candidates = build("INDEX", graph.reshape(cut, (r * blocks, block)), row)
    candidates = graph.reshape(candidates, (r, k * block))
    if rounds:
        return _extract(candidates, at, k)
    first = top_rows(build("CONTIGUOUS", candidates), k).places
    return gather_rows(at, graph.leading(first, (r, k)))


def _extract(key: UOp, place: UOp, k: int) -> UOp:
    """The places of the k largest keys, the first of equal ones first: the maximum of what is left, k times over."""
    back = e("SUB", const(dtypes.int32.max, dtypes.int32), place)
    words = build("CONTIGUOUS", build("OR", e("SHL", cast(key, dtypes.int64), 32), cast(back, dtypes.int64)))
    found = [graph.reduce(words, "MAX", (1,), keep=False)]
    while len(found) < k:
        left = where(build("CMPLT", words, graph.reshape(found[-1], (words.shape[0], 1))), words, dtypes.int64.min)
        found.append(graph.reduce(left, "MAX", (1,), keep=False))
    both = graph.permute(build("STACK", *found), (1, 0))
    return e("SUB", const(dtypes.int32.max, dtypes.int32), cast(e("AND", both, 0xFFFFFFFF), dtypes.int32))

"""Rows sorted by a network of comparisons on whole vectors, as a kernel of the dialect.

How: a block of a row is a value of rows of lanes that stays in registers. Batcher's bitonic network sorts it: what is
compared are whole vectors, an element with the one whose number differs in one bit, or in all bits up to one, so that
of two the smaller always comes first. Between vectors that is a minimum and a maximum; between the lanes of one a move
of lanes more, and a choice. Numbers are given to elements so that few steps are of the second kind: while a block is
sorted, neighbours are in neighbouring vectors, and one transpose puts them side by side at the end. Longer rows are
blocks in local memory, merged pairwise in passes over all of them; what is behind the last block is in no pair, as it
would stay where it is.

Floats are compared as integers in their order (`order.key`). Zeros of both signs are equal and keep their order: their
keys are their places, in the room that all but one nan leave. Places are sorted in one word with their keys, or beside.

What it is not: the choice when (`radix`). Invariants: as of `radix`; no comparison depends on a value, so a row of a
length takes the same time whatever it holds.
Source: Batcher, "Sorting networks and their applications", 1968; Knuth, "Sorting and Searching", 5.3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from monolect.autograd.graph import cast, e, reshape, where
from monolect.backend.registry import Device
from monolect.base.dtype import DType, dtypes
from monolect.base.settings import switched
from monolect.base.target import Target
from monolect.graphs import sort_keys as order
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg
from monolect.ir.placement import device as place_device
from monolect.ir.uop import UOp, build, const, idx, new_buffer, node, shape_source

LONGEST = 1 << 16  # elements of a row whose places fit beside the signs of zeros
MOST_BLOCKS = 32  # of a row: each doubling adds passes to the code, some 0.03 s of compiling; 0.4 s in all
STEP_ROWS = 4  # vectors of each of two blocks that are compared at once

Words = tuple[UOp, ...]  # of each element; it comes first whose first is less, or of equal ones the next


class Block(NamedTuple):
    """A value of `rows` vectors of `lanes`; both are powers of two."""

    rows: int
    lanes: int

    @property
    def size(self) -> int:
        return self.rows * self.lanes

    @property
    def bits(self) -> int:
        """Of the number of an element."""
        return self.size.bit_length() - 1


class Sorting(NamedTuple):
    """What is sorted: rows of `n` elements of a dtype, for the first of their values or of their places."""

    rows: int
    n: int
    dtype: DType
    descending: bool
    for_places: bool
    first: int

    @property
    def words(self) -> tuple[DType, ...]:
        """The dtypes of the words of an element."""
        bits = 8 if self.dtype is dtypes.bool else self.dtype.bits
        if not self.for_places:
            return (dtypes.int64 if bits == 64 else dtypes.int32,)
        return (dtypes.int64, dtypes.int32) if bits == 64 else (dtypes.int64 if bits == 32 else dtypes.int32,)

    @property
    def result(self) -> DType:
        return dtypes.int64 if self.for_places else self.dtype


def block_of(n: int, lanes: int, rows: int) -> Block:
    """The block for rows of n elements, of vectors of at most so many lanes, and at most so many of those."""
    bits = max(2, (n - 1).bit_length())
    lanes = min(lanes, 1 << bits // 2)
    return Block(min(rows, (1 << bits) // lanes), lanes)


def is_in_network(x: UOp, for_places: bool) -> bool:
    """Whether a network sorts the rows of `x`, shape (r, n), sooner than anything else: where there are vectors, and
    its code is not too long.
    """
    target = Device[place_device(x) or Device.default].target
    r, n = x.shape
    if not target.vector_bytes or target.workgroups or not r or not 1 < n <= LONGEST:
        return False
    return n <= MOST_BLOCKS * _block(_sorting(x, False, for_places, n), target).size


def n_steps(n: int) -> int:
    """The steps of a network for rows of n elements, each over all of them."""
    bits = (n - 1).bit_length()
    return bits * (bits + 1) // 2


def sort_in_network(x: UOp, descending: bool, for_places: bool, first: int) -> UOp:
    """The rows of `x`, shape (r, n), sorted, or as int64 where each element was: the first of each. Rows that are a
    view of memory in another shape are sorted there, and the result has that shape, seen as rows.
    """
    device = place_device(x) or Device.default
    target = Device[device].target
    s = _sorting(x, descending, for_places, first)
    memory = x.src[0] if x.op == "RESHAPE" else x
    shape = (
        memory.shape if first == s.n else (*memory.shape[:-1], first) if memory.shape[-1] == s.n else (s.rows, first)
    )
    out = new_buffer(shape, s.result, device)
    call = node("CALL", (kernel(s, _block(s, target), device), out, memory))
    return reshape(build("AFTER", out, call), (s.rows, first))


def _sorting(x: UOp, descending: bool, for_places: bool, first: int) -> Sorting:
    r, n = x.shape
    return Sorting(r, n, x.dtype, descending, for_places, first)


def _block(s: Sorting, target: Target) -> Block:
    return block_of(s.n, target.lanes(s.words[0].itemsize), target.n_registers // 2 // len(s.words))


# ---- steps -----------------------------------------------------------------------------------------------------------
def _picked(words: Words, rows: Sequence[int], lanes: Sequence[int] | None = None) -> Words:
    """The vectors `rows` of a block, and of each the lanes `lanes`."""
    at = (shape_source(rows),) if lanes is None else (shape_source(rows), shape_source(lanes))
    return tuple(node("INDEX", (w, *at)) for w in words)


def _ordered(a: Words, b: Words) -> tuple[Words, Words]:
    """(the smaller, the larger) of each pair."""
    swap = build("CMPLT", b[0], a[0])
    if len(a) > 1:
        swap = build("OR", swap, build("AND", build("CMPEQ", b[0], a[0]), build("CMPLT", b[1], a[1])))
    return _chosen(swap, b, a), _chosen(swap, a, b)


def _chosen(condition: UOp, a: Words, b: Words) -> Words:
    return tuple(build("WHERE", condition, x, y) for x, y in zip(a, b, strict=True))


def _compared(words: Words, row_bits: int, lane_bits: int, top: tuple[str, int]) -> Words:
    """Each element and the one whose vector and lane differ in all of these bits, in order: the smaller where the bit
    `top`, ("row" or "lane", which), is 0.
    """
    n, lanes = words[0].shape
    turned = [k ^ lane_bits for k in range(lanes)] if lane_bits else None
    upper = node("STACK", tuple(const(bool(k & top[1]), dtypes.bool) for k in range(lanes)))
    if not row_bits:
        low, high = _ordered(words, _picked(words, range(n), turned))
        return _chosen(upper, high, low)
    split = top[1] if top[0] == "row" else 1 << row_bits.bit_length() - 1
    first = [k for k in range(n) if not k & split]
    second = [k ^ row_bits for k in first]
    low, high = _ordered(_picked(words, first), _picked(words, second, turned))
    if top[0] == "lane":
        low, high = _chosen(upper, high, low), _chosen(upper, low, high)
    if turned is not None:
        high = _picked(high, range(len(first)), turned)
    both = tuple(
        build("RESHAPE", build("STACK", a, b), shape_source((n, lanes))) for a, b in zip(low, high, strict=True)
    )
    place = [*first, *second]
    return _picked(both, sorted(range(n), key=place.__getitem__))


def _step(words: Words, bits: int, top: int, shift: int, first: str) -> Words:
    """`_compared` by bits of numbers, of which the lowest `shift` count what `first` says, "row" or "lane"."""
    low, high = bits & (1 << shift) - 1, bits >> shift
    at = (first, top) if top < 1 << shift else ("lane" if first == "row" else "row", top >> shift)
    return _compared(words, *((low, high) if first == "row" else (high, low)), at)


def _sorted(words: Words, block: Block) -> Words:
    """A block in order, as its elements lie in memory: shape (lanes, rows)."""
    shift = block.rows.bit_length() - 1
    for k in range(block.bits):
        words = _step(words, (2 << k) - 1, 1 << k, shift, "row")
        for j in range(k - 1, -1, -1):
            words = _step(words, 1 << j, 1 << j, shift, "row")
    return tuple(build("PERMUTE", w, arg=(1, 0)) for w in words)


def _merged(words: Words, block: Block) -> Words:
    """A block, all of which belongs between its neighbours and is in order but for the last steps, in order."""
    for j in range(block.bits - 1, -1, -1):
        words = _step(words, 1 << j, 1 << j, block.lanes.bit_length() - 1, "lane")
    return words


# ---- words -----------------------------------------------------------------------------------------------------------
def _words_of(s: Sorting, x: UOp, place: UOp) -> Words:
    """The words of elements, of which `place` is the place in their row."""
    k = order.key(x)
    if s.for_places:
        k = build("NOT", k) if s.descending else k
        if len(s.words) > 1:
            return (k, cast(place, dtypes.int32))
        (d,) = s.words
        return (build("OR", e("SHL", cast(k, d), d.bits // 2), cast(place, d)),)
    (d,) = s.words
    k = cast(k, d)
    if s.dtype.is_float:
        at = cast(e("SUB", const(LONGEST - 1, dtypes.index), place) if s.descending else place, d)
        sign = cast(build("CMPLT", order.bits(x), const(0, order.bits(x).dtype)), d)
        moved = where(e("CMPLT", const(0, d), k), e("ADD", k, 2 * LONGEST), k)
        k = where(e("CMPEQ", k, 0), build("OR", e("SHL", at, 1), sign), moved)
        k = where(build("CMPNE", x, x), d.max, k)
    return (build("NOT", k) if s.descending else k,)


def _result_of(s: Sorting, words: Words) -> UOp:
    """The value of an element, or its place."""
    if s.for_places:
        d = words[-1].dtype
        return cast(words[1] if len(words) > 1 else e("AND", words[0], (1 << d.bits // 2) - 1), dtypes.int64)
    k = build("NOT", words[0]) if s.descending else words[0]
    key = dtypes.int8 if s.dtype is dtypes.bool else order.SIGNED[s.dtype.bits]
    if not s.dtype.is_float:
        return order.value(cast(k, key), s.dtype)
    is_zero = build("AND", e("CMPLT", const(-1, k.dtype), k), e("CMPLT", k, 2 * LONGEST))
    sign = e("CMPNE", e("AND", k, 1), 0)
    back = where(e("CMPLT", const(0, k.dtype), k), e("SUB", k, 2 * LONGEST), k)
    back = where(e("CMPEQ", k, k.dtype.max), key.max, back)
    return where(is_zero, where(sign, -0.0, const(0.0, s.dtype)), order.value(cast(back, key), s.dtype))


# ---- kernels ---------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=32)  # a kernel is some thousand nodes
def kernel(s: Sorting, block: Block, device: str) -> UOp:
    """The SINK that stores the sorted rows of PARAM 1 to PARAM 0."""
    return _Builder(s, block, device).sink()


switched.append(kernel.cache_clear)


class _Builder:
    """The passes of one kernel, each over the memory that the one before it left."""

    def __init__(self, s: Sorting, block: Block, device: str):
        self.s, self.block, self.n_blocks = s, block, -(-s.n // block.size)
        self.out = node("PARAM", (shape_source((s.rows * s.first,)),), ParamArg(0, s.result, device, "GLOBAL"))
        self.x = node("PARAM", (shape_source((s.rows * s.n,)),), ParamArg(1, s.dtype, device, "GLOBAL"))
        self.n_loops = 0
        self.row = self._loop(s.rows)
        space = (shape_source((self.n_blocks * block.size,)),)
        self.memory = tuple(node("BUFFER", space, BufferArg(k, d, None, "LOCAL")) for k, d in enumerate(s.words))

    def sink(self) -> UOp:
        loop = self._loop(self.n_blocks)
        words = _sorted(self._read(loop), self.block)
        if self.n_blocks > 1:
            self._write([(loop * self.block.size + _flat(*words[0].shape), words)], (loop,))
            half = 1
            while half < self.n_blocks:
                self._compare_blocks(half, turned=True)
                for near in _halves(half):
                    self._compare_blocks(near, turned=False)
                half *= 2
                is_last = half >= self.n_blocks
                loop = self._loop(-(-self.s.first // self.block.size) if is_last else self.n_blocks)
                place = loop * self.block.size + _flat(*self.block)
                words = _merged(self._load(place), self.block)
                if not is_last:
                    self._write([(place, words)], (loop,))
        at = loop * self.block.size + _flat(*words[0].shape)
        gate = () if self.s.first % self.block.size == 0 else (build("CMPLT", at, idx(self.s.first)),)
        store = node("STORE", (self._at(self.out, at, self.s.first), _result_of(self.s, words), *gate))
        loops = [r for r in (self.row, loop) if r.op == "RANGE"]
        return node("SINK", (node("END", (store, *loops)) if loops else store,), KernelInfo())

    @property
    def _is_whole(self) -> bool:
        return self.n_blocks * self.block.size == self.s.n

    def _loop(self, n: int) -> UOp:
        if n == 1:
            return idx(0)
        self.n_loops += 1
        return node("RANGE", (idx(n),), (self.n_loops - 1, "LOOP"))

    def _at(self, p: UOp, place: UOp, row: int) -> UOp:
        return node("INDEX", (p, self.row * row + place))

    def _read(self, loop: UOp) -> Words:
        """The words of a block of the row; behind its end those that come last."""
        place = loop * self.block.size + _flat(*self.block)
        if self._is_whole:
            return _words_of(self.s, node("LOAD", (self._at(self.x, place, self.s.n),)), place)
        inside = build("CMPLT", place, idx(self.s.n))
        x = node(
            "LOAD",
            (
                self._at(self.x, place, self.s.n),
                const(False if self.s.dtype is dtypes.bool else 0, self.s.dtype),
                inside,
            ),
        )
        words = _words_of(self.s, x, place)
        return tuple(where(inside, w, w.dtype.max) for w in words)

    def _load(self, place: UOp) -> Words:
        return tuple(node("LOAD", (node("INDEX", (m, place)),)) for m in self.memory)

    def _write(self, what: list[tuple[UOp, Words]], loops: tuple[UOp, ...]) -> None:
        """One pass: words stored at their places, in loops."""
        closed = tuple(r for r in loops if r.op == "RANGE")
        new = []
        for k, m in enumerate(self.memory):
            stores = [node("STORE", (node("INDEX", (m, place)), words[k])) for place, words in what]
            new.append(node("AFTER", (m, *(node("END", (x, *closed)) if closed else x for x in stores))))
        self.memory = tuple(new)

    def _compare_blocks(self, half: int, turned: bool) -> None:
        """The pairs of blocks `half` apart, or `turned`, the first of 2 * half with the last, backwards, and so on."""
        size = self.block.size
        whole, rest = divmod(self.n_blocks, 2 * half)
        first = max(0, 2 * half - rest) if turned else 0  # of the pairs of what is left that are there
        parts = [(0, whole, 0, half), (whole, 1, first, max(0, rest - half))]
        rows = min(STEP_ROWS, self.block.rows)
        steps = self.block.rows // rows
        for start, many, p, pairs in parts:
            if not many or not pairs:
                continue
            outer, step = self._loop(many), self._loop(pairs * steps)
            flat, n = _flat(rows, self.block.lanes), rows * self.block.lanes
            group = (outer + start) * (2 * half * size)
            low = group + p * size + step * n
            high = group + (2 * half - p) * size - n + step * -n if turned else low + half * size
            a, b = self._load(low + flat), self._load(high + flat)
            ways = (range(rows - 1, -1, -1), range(self.block.lanes - 1, -1, -1))
            less, more = _ordered(a, _picked(b, *ways) if turned else b)
            more = _picked(more, *ways) if turned else more
            self._write([(low + flat, less), (high + flat, more)], (outer, step))


def _halves(n: int) -> list[int]:
    """n/2, n/4, ... 1."""
    return [n >> k for k in range(1, n.bit_length())]


def _flat(rows: int, lanes: int) -> UOp:
    """The places of a block's elements as they lie in memory."""
    flat = node("STACK", tuple(idx(k) for k in range(rows * lanes)))
    return build("RESHAPE", flat, shape_source((rows, lanes)))

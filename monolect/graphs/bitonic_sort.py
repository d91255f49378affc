"""Build a kernel that sorts rows by a bitonic network of compare-exchange steps on whole vectors.

How: a block of a row is a value of `rows` vectors of `lanes`, held in registers. Batcher's bitonic network sorts the
block. Each step compares every element with the element whose number differs in one bit, or in all bits up to one, and
puts the smaller first. If the two elements are in different vectors, a step is one minimum and one maximum. If they are
in different lanes, a step also needs a shuffle and a select. Elements are numbered so that few steps are of the second
kind: while a block is sorted, adjacent elements are in adjacent vectors, and one transpose makes them contiguous at the
end. Longer rows are several blocks in local memory, which passes over all blocks merge pairwise. Blocks that
are missing up to a power of two take part in no comparison, because their padding would not move.

Floats are compared as integers in their order (`sort_keys.key`). Zeros of both signs are equal and keep their order:
their keys are their indices, in the range of integers that all NaNs but one leave free. Indices are sorted in one word
with their keys, or in a second word.

What it is not: it does not decide when a network is used (`radix_sort` does). Invariants: those of `radix_sort`. No
comparison depends on a value, so the time depends on the length of a row only.
Source: Batcher, "Sorting networks and their applications", 1968; Knuth, "Sorting and Searching", 5.3.4.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from monolect.autograd.graph import cast, e, reshape, where
from monolect.backend.registry import Device, target_of
from monolect.base.dtype import DType, dtypes
from monolect.base.settings import switched
from monolect.base.target import Target
from monolect.graphs import sort_keys as order
from monolect.ir.ops import BufferArg, KernelInfo, ParamArg
from monolect.ir.placement import device as device_of
from monolect.ir.uop import UOp, build, const, idx, new_buffer, node, shape_source

MAX_ROW = 1 << 16  # elements; longer rows are not sorted by a network, as an index must fit into 16 bits of a word
MAX_BLOCKS = 32  # blocks of a row; each doubling adds passes and about 0.03 s of compile time, 0.4 s in total
STEP_ROWS = 4  # vectors of each of two blocks that one iteration compares

Words = tuple[UOp, ...]  # integer words of each element, compared lexicographically


class Block(NamedTuple):
    """Shape of a block, the part of a row that the kernel sorts in registers at once.

    It is `rows` vectors of `lanes` elements; both numbers are powers of two.
    """

    rows: int
    lanes: int

    @property
    def size(self) -> int:
        return self.rows * self.lanes

    @property
    def bits(self) -> int:
        """log2(size): bits of the number of an element in its block."""
        return self.size.bit_length() - 1


sortings: weakref.WeakKeyDictionary[UOp, Sorting] = weakref.WeakKeyDictionary()  # what the kernel of a sort was made of


class Sorting(NamedTuple):
    """Parameters of a sort, from which `kernel` builds the kernel, and by which built kernels are memoized.

    It sorts `rows` rows of `n` elements of `dtype`, and stores the `first` elements of each sorted row. `for_indices`:
    the result is the index of each element instead of its value.
    """

    rows: int
    n: int
    dtype: DType
    descending: bool
    for_indices: bool
    first: int

    @property
    def words(self) -> tuple[DType, ...]:
        """Dtypes of the integer words that represent an element: one word, or (key, index)."""
        bits = 8 if self.dtype is dtypes.bool else self.dtype.bits
        if not self.for_indices:
            return (dtypes.int64 if bits == 64 else dtypes.int32,)
        return (dtypes.int64, dtypes.int32) if bits == 64 else (dtypes.int64 if bits == 32 else dtypes.int32,)

    @property
    def result(self) -> DType:
        return dtypes.int64 if self.for_indices else self.dtype


def block_of(n: int, lanes: int, rows: int) -> Block:
    """Return the shape of the blocks of a row of n elements that the network sorts in registers.

    A block has at most `rows` vectors of at most `lanes` elements.
    """
    bits = max(2, (n - 1).bit_length())
    lanes = min(lanes, 1 << bits // 2)
    return Block(min(rows, (1 << bits) // lanes), lanes)


def uses_network(x: UOp, for_indices: bool) -> bool:
    """Whether a network is the fastest way to sort the rows of `x`, shape (r, n).

    That is so if the target has vectors and no workgroups, and the row has few enough blocks for short code.
    `for_indices`: the sort is to return indices instead of values, which may need two words for each element.
    """
    target = target_of(device_of(x))
    r, n = x.shape
    if not target.vector_bytes or target.workgroups or not r or not 1 < n <= MAX_ROW:
        return False
    return n <= MAX_BLOCKS * _block(_sorting(x, False, for_indices, n), target).size


def n_steps(n: int) -> int:
    """Return the number of steps of a network for rows of n elements; each step reads all elements."""
    bits = (n - 1).bit_length()
    return bits * (bits + 1) // 2


def sort_by_network(x: UOp, descending: bool, for_indices: bool, first: int) -> UOp:
    """Return the `first` sorted elements of each row of `x`, shape (r, n) -> (r, first).

    With `for_indices` the result is the int64 index of each of them in its row. If `x` is a RESHAPE of a buffer, the
    kernel reads that buffer directly. The order is ascending unless `descending`.
    """
    device = device_of(x) or Device.default
    target = target_of(device)
    sorting = _sorting(x, descending, for_indices, first)
    memory = x.src[0] if x.op == "RESHAPE" else x
    shape = (
        memory.shape
        if first == sorting.n
        else (*memory.shape[:-1], first)
        if memory.shape[-1] == sorting.n
        else (sorting.rows, first)
    )
    out = new_buffer(shape, sorting.result, device)
    sink = kernel(sorting, _block(sorting, target), device)
    sortings[sink] = sorting
    call = node("CALL", (sink, out, memory))
    return reshape(build("AFTER", out, call), (sorting.rows, first))


def _sorting(x: UOp, descending: bool, for_indices: bool, first: int) -> Sorting:
    r, n = x.shape
    return Sorting(r, n, x.dtype, descending, for_indices, first)


def _block(sorting: Sorting, target: Target) -> Block:
    return block_of(sorting.n, target.lanes(sorting.words[0].itemsize), target.n_registers // 2 // len(sorting.words))


# ---- steps -----------------------------------------------------------------------------------------------------------
def _select(words: Words, rows: Sequence[int], lanes: Sequence[int] | None = None) -> Words:
    """Return the vectors `rows` of a block, in that order, and of these only the `lanes` if given.

    `words`: the integer words of the block's elements, each of shape (vectors, lanes).
    """
    at = (shape_source(rows),) if lanes is None else (shape_source(rows), shape_source(lanes))
    return tuple(node("INDEX", (w, *at)) for w in words)


def _min_max(a: Words, b: Words) -> tuple[Words, Words]:
    """Return (smaller, larger) of each pair of an element of `a` and the element of `b` at the same index.

    Both results are integer words as `a` and `b`; the first word decides, then the second.
    """
    swap = build("CMPLT", b[0], a[0])
    if len(a) > 1:
        swap = build("OR", swap, build("AND", build("CMPEQ", b[0], a[0]), build("CMPLT", b[1], a[1])))
    return _where(swap, b, a), _where(swap, a, b)


def _where(condition: UOp, a: Words, b: Words) -> Words:
    """Return each word of `a` where the condition is true, else the word of `b`."""
    return tuple(build("WHERE", condition, x, y) for x, y in zip(a, b, strict=True))


def _compare_exchange(words: Words, row_bits: int, lane_bits: int, top: tuple[str, int]) -> Words:
    """Order each pair of elements whose vector differs in `row_bits` and whose lane differs in `lane_bits`.

    `words`: the integer words of the elements, shape (vectors, lanes). `top` is ("row" or "lane", mask of one bit): the
    element whose row or lane has a 0 in that bit receives the smaller one.
    """
    n, lanes = words[0].shape
    mirrored = [k ^ lane_bits for k in range(lanes)] if lane_bits else None
    upper = node("STACK", tuple(const(bool(k & top[1]), dtypes.bool) for k in range(lanes)))
    if not row_bits:
        low, high = _min_max(words, _select(words, range(n), mirrored))
        return _where(upper, high, low)
    split = top[1] if top[0] == "row" else 1 << row_bits.bit_length() - 1
    first = [k for k in range(n) if not k & split]
    second = [k ^ row_bits for k in first]
    low, high = _min_max(_select(words, first), _select(words, second, mirrored))
    if top[0] == "lane":
        low, high = _where(upper, high, low), _where(upper, low, high)
    if mirrored is not None:
        high = _select(high, range(len(first)), mirrored)
    both = tuple(
        build("RESHAPE", build("STACK", a, b), shape_source((n, lanes))) for a, b in zip(low, high, strict=True)
    )
    index = [*first, *second]
    return _select(both, sorted(range(n), key=index.__getitem__))


def _step(words: Words, bits: int, top: int, shift: int, first: str) -> Words:
    """Order each pair of elements whose numbers differ in `bits`: the one with a 0 in bit `top` receives the smaller.

    `words`: the integer words of the elements, shape (vectors, lanes). `bits` and `top` are masks. The lowest `shift`
    bits of a number are the row if `first` is "row", else the lane; the higher bits are the other.
    """
    low, high = bits & (1 << shift) - 1, bits >> shift
    at = (first, top) if top < 1 << shift else ("lane" if first == "row" else "row", top >> shift)
    return _compare_exchange(words, *((low, high) if first == "row" else (high, low)), at)


def _sort_block(words: Words, block: Block) -> Words:
    """Sort one block; `words` are the integer words of its elements, shape (rows, lanes).

    The result, of shape (lanes, rows), is sorted in row-major order.
    """
    shift = block.rows.bit_length() - 1
    for k in range(block.bits):
        words = _step(words, (2 << k) - 1, 1 << k, shift, "row")
        for j in range(k - 1, -1, -1):
            words = _step(words, 1 << j, 1 << j, shift, "row")
    return tuple(build("PERMUTE", w, arg=(1, 0)) for w in words)


def _merge_block(words: Words, block: Block) -> Words:
    """Run the last steps of a merge, which compare elements of one block only, and return the sorted block.

    Before, every element must already be in the block in which it ends. `words`: the integer words of the elements,
    shape (rows, lanes).
    """
    for j in range(block.bits - 1, -1, -1):
        words = _step(words, 1 << j, 1 << j, block.lanes.bit_length() - 1, "lane")
    return words


# ---- words -----------------------------------------------------------------------------------------------------------
def _words_of(sorting: Sorting, x: UOp, index: UOp) -> Words:
    """Return the integer words by which `sorting` compares the elements `x`, whose indices in the row are `index`.

    They are one word for each element, or (key, index) for 64-bit elements if `sorting` is for indices.
    """
    k = order.key(x)
    if sorting.for_indices:
        k = build("NOT", k) if sorting.descending else k
        if len(sorting.words) > 1:
            return (k, cast(index, dtypes.int32))
        (d,) = sorting.words
        return (build("OR", e("SHL", cast(k, d), d.bits // 2), cast(index, d)),)
    (d,) = sorting.words
    k = cast(k, d)
    if sorting.dtype.is_float:
        at = cast(e("SUB", const(MAX_ROW - 1, dtypes.index), index) if sorting.descending else index, d)
        sign = cast(build("CMPLT", order.bits(x), const(0, order.bits(x).dtype)), d)
        shifted = where(e("CMPLT", const(0, d), k), e("ADD", k, 2 * MAX_ROW), k)
        k = where(e("CMPEQ", k, 0), build("OR", e("SHL", at, 1), sign), shifted)
        k = where(build("CMPNE", x, x), d.max, k)
    return (build("NOT", k) if sorting.descending else k,)


def _result_of(sorting: Sorting, words: Words) -> UOp:
    """Return the value of each element, or its int64 index if `sorting` is for indices, from its integer words."""
    if sorting.for_indices:
        d = words[-1].dtype
        return cast(words[1] if len(words) > 1 else e("AND", words[0], (1 << d.bits // 2) - 1), dtypes.int64)
    k = build("NOT", words[0]) if sorting.descending else words[0]
    key = dtypes.int8 if sorting.dtype is dtypes.bool else order.SIGNED[sorting.dtype.bits]
    if not sorting.dtype.is_float:
        return order.value(cast(k, key), sorting.dtype)
    is_zero = build("AND", e("CMPLT", const(-1, k.dtype), k), e("CMPLT", k, 2 * MAX_ROW))
    sign = e("CMPNE", e("AND", k, 1), 0)
    back = where(e("CMPLT", const(0, k.dtype), k), e("SUB", k, 2 * MAX_ROW), k)
    back = where(e("CMPEQ", k, k.dtype.max), key.max, back)
    return where(is_zero, where(sign, -0.0, const(0.0, sorting.dtype)), order.value(cast(back, key), sorting.dtype))


# ---- kernels ---------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=32)  # a kernel has some thousand nodes, so few are cached
def kernel(sorting: Sorting, block: Block, device: str) -> UOp:
    """Return the SINK of a kernel for `device` that stores the sorted rows of PARAM 1 to PARAM 0.

    `sorting`: sizes, dtype and order of the rows. `block`: the shape in which the kernel sorts parts of a row.
    """
    return _KernelBuilder(sorting, block, device).sink()


switched.append(kernel.cache_clear)


class _KernelBuilder:
    """Build the passes of one sorting kernel; each pass reads the local memory that the pass before it wrote.

    `kernel` makes a builder for one Sorting, Block and device, and calls `sink` once.
    """

    def __init__(self, sorting: Sorting, block: Block, device: str):
        self.sorting, self.block, self.n_blocks = sorting, block, -(-sorting.n // block.size)
        self.out = node(
            "PARAM", (shape_source((sorting.rows * sorting.first,)),), ParamArg(0, sorting.result, device, "GLOBAL")
        )
        self.x = node(
            "PARAM", (shape_source((sorting.rows * sorting.n,)),), ParamArg(1, sorting.dtype, device, "GLOBAL")
        )
        self.n_loops = 0
        self.row = self._loop(sorting.rows)
        space = (shape_source((self.n_blocks * block.size,)),)
        self.memory = tuple(node("BUFFER", space, BufferArg(k, d, None, "LOCAL")) for k, d in enumerate(sorting.words))

    def sink(self) -> UOp:
        """Build all passes and return the SINK of the kernel: sort each block, merge pairs of blocks, store rows."""
        loop = self._loop(self.n_blocks)
        words = _sort_block(self._read(loop), self.block)
        if self.n_blocks > 1:
            self._write([(loop * self.block.size + _flat_indices(*words[0].shape), words)], (loop,))
            half = 1
            while half < self.n_blocks:
                self._compare_blocks(half, mirrored=True)
                for near in _halves(half):
                    self._compare_blocks(near, mirrored=False)
                half *= 2
                is_last = half >= self.n_blocks
                loop = self._loop(-(-self.sorting.first // self.block.size) if is_last else self.n_blocks)
                index = loop * self.block.size + _flat_indices(*self.block)
                words = _merge_block(self._load(index), self.block)
                if not is_last:
                    self._write([(index, words)], (loop,))
        at = loop * self.block.size + _flat_indices(*words[0].shape)
        gate = () if self.sorting.first % self.block.size == 0 else (build("CMPLT", at, idx(self.sorting.first)),)
        store = node("STORE", (self._at(self.out, at, self.sorting.first), _result_of(self.sorting, words), *gate))
        loops = [r for r in (self.row, loop) if r.op == "RANGE"]
        return node("SINK", (node("END", (store, *loops)) if loops else store,), KernelInfo())

    @property
    def _has_full_blocks(self) -> bool:
        return self.n_blocks * self.block.size == self.sorting.n

    def _loop(self, n: int) -> UOp:
        """Return a new RANGE of n iterations, or the constant 0 if n is 1."""
        if n == 1:
            return idx(0)
        self.n_loops += 1
        return node("RANGE", (idx(n),), (self.n_loops - 1, "LOOP"))

    def _at(self, p: UOp, index: UOp, row: int) -> UOp:
        """Return the INDEX of element `index` of the current row in the PARAM `p`, whose rows have `row` elements."""
        return node("INDEX", (p, self.row * row + index))

    def _read(self, loop: UOp) -> Words:
        """Load block number `loop` of the row as words; padding elements get the largest word, which sorts last."""
        index = loop * self.block.size + _flat_indices(*self.block)
        if self._has_full_blocks:
            return _words_of(self.sorting, node("LOAD", (self._at(self.x, index, self.sorting.n),)), index)
        inside = build("CMPLT", index, idx(self.sorting.n))
        x = node(
            "LOAD",
            (
                self._at(self.x, index, self.sorting.n),
                const(False if self.sorting.dtype is dtypes.bool else 0, self.sorting.dtype),
                inside,
            ),
        )
        words = _words_of(self.sorting, x, index)
        return tuple(where(inside, w, w.dtype.max) for w in words)

    def _load(self, index: UOp) -> Words:
        """Load the words of the elements at the offsets `index` in a row from local memory, in the shape of `index`."""
        return tuple(node("LOAD", (node("INDEX", (m, index)),)) for m in self.memory)

    def _write(self, what: list[tuple[UOp, Words]], loops: tuple[UOp, ...]) -> None:
        """Store each pair (offsets in a row, words) of `what` to local memory, and close `loops`: the end of one pass.

        `self.memory` becomes the memory AFTER these stores, which the next pass reads.
        """
        closed = tuple(r for r in loops if r.op == "RANGE")
        new = []
        for k, m in enumerate(self.memory):
            stores = [node("STORE", (node("INDEX", (m, index)), words[k])) for index, words in what]
            new.append(node("AFTER", (m, *(node("END", (x, *closed)) if closed else x for x in stores))))
        self.memory = tuple(new)

    def _compare_blocks(self, half: int, mirrored: bool) -> None:
        """Compare and exchange the elements of pairs of blocks that are `half` blocks apart.

        `mirrored`: in each group of 2 * half blocks the first block is paired with the last one, whose elements are
        taken in reverse order, the second block with the last but one, and so on.
        """
        size = self.block.size
        n_full, rest = divmod(self.n_blocks, 2 * half)
        first = max(0, 2 * half - rest) if mirrored else 0  # first pair of the incomplete group whose both blocks exist
        parts = [(0, n_full, 0, half), (n_full, 1, first, max(0, rest - half))]
        rows = min(STEP_ROWS, self.block.rows)
        steps = self.block.rows // rows
        for start, n_groups, p, pairs in parts:
            if not n_groups or not pairs:
                continue
            outer, step = self._loop(n_groups), self._loop(pairs * steps)
            flat, n = _flat_indices(rows, self.block.lanes), rows * self.block.lanes
            group = (outer + start) * (2 * half * size)
            low = group + p * size + step * n
            high = group + (2 * half - p) * size - n + step * -n if mirrored else low + half * size
            a, b = self._load(low + flat), self._load(high + flat)
            ways = (range(rows - 1, -1, -1), range(self.block.lanes - 1, -1, -1))
            low_words, high_words = _min_max(a, _select(b, *ways) if mirrored else b)
            high_words = _select(high_words, *ways) if mirrored else high_words
            self._write([(low + flat, low_words), (high + flat, high_words)], (outer, step))


def _halves(n: int) -> list[int]:
    """Return n/2, n/4, ... 1."""
    return [n >> k for k in range(1, n.bit_length())]


def _flat_indices(rows: int, lanes: int) -> UOp:
    """Return the offsets 0, 1, ... of a block's elements in memory order, shape (rows, lanes)."""
    flat = node("STACK", tuple(idx(k) for k in range(rows * lanes)))
    return build("RESHAPE", flat, shape_source((rows, lanes)))


__all__ = ["Block", "Sorting", "block_of", "kernel", "n_steps", "sort_by_network", "uses_network"]

"""Split loops over concatenated rows at the concat boundary, so that no load is selected by a mask.

Attention over a cache to which new keys are concatenated reads `where(k < n, cache[k], new[k - n])` in every loop over
keys, and a mask on every load prevents prefetching. If the loops of a kernel with scratch values have such a boundary,
each becomes two: a REDUCE combines the results of both, and a scratch value is split in two. A piece of one row needs
no loop, and its value no memory.

What it is not: it leaves kernels without scratch values, whose sums are faster in one piece.

Before: LOCAL[k:257] = dot(q, where(k < 256, cache[k], new)); MAX over k:257 of LOCAL[k]; ...
After:  s = dot(q, new); LOCAL[k:256] = dot(q, cache[k]); max(MAX over k:256 of LOCAL[k], s); ...
Invariant: every element of a scratch value is computed once, by the same operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from monolect.ir.bounds import ranges, replace_ranges, unused_ranges, unused_slots
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild, shape_source

ROWS = Family(
    "seams", __name__,
    Row("loop_each_side", "a loop over concatenated rows, in a kernel with rows in local memory, is split at the concat boundary"),
)  # fmt: skip

MIN_PIECE = 4  # rows; a shorter piece fills no vector, so its rows are split off one by one


def split_seams(sink: UOp) -> UOp:
    """Pass: split the loops of a kernel at all concat boundaries."""
    while (found := _split(sink)) is not None:
        sink = found
    return sink


def _split(sink: UOp) -> UOp | None:
    """Return the kernel split at one concat boundary, or None if there is none."""
    order = nodes_of(sink)
    for r, at in dict.fromkeys(s for u in order if (s := _boundary(u)) is not None):
        boundary = ConcatBoundary(order, r, at)
        if boundary.is_closed() and is_on("loop_each_side"):
            return fired("loop_each_side", sink, boundary.split(sink))
    return None


def _boundary(u: UOp) -> tuple[UOp, int] | None:
    """Return (loop r, first iteration of its second piece) if `u` is a WHERE of two loads with condition r < constant.

    Return None for other nodes. If a piece has fewer than MIN_PIECE iterations, the returned boundary separates only
    the first or the last iteration of the loop; `split_seams` repeats until the piece is split into single rows.
    """
    if u.op != "WHERE" or u.src[0].op != "CMPLT" or any(_read(x) is None for x in u.src[1:]):
        return None
    r, limit = u.src[0].src
    if r.op != "RANGE" or limit.op != "CONST" or r.src[0].op != "CONST" or (n := r.src[0].value) < 3:
        return None
    at = limit.value
    if not 0 < at < n:
        return None
    return r, 1 if at < MIN_PIECE else n - 1 if n - at < MIN_PIECE else at


def _read(u: UOp) -> UOp | None:
    """Return the PARAM that the LOAD `u`, perhaps inside CASTs, reads; else None."""
    while u.op == "CAST":
        u = u.src[0]
    return u.src[0].src[0] if u.op == "LOAD" and u.src[0].op == "INDEX" and u.src[0].src[0].op == "PARAM" else None


def _scratch_buffer(u: UOp) -> UOp | None:
    """Return the LOCAL buffer if `u` is AFTER(LOCAL, END(STORE(INDEX(LOCAL, r), value), r)) with one loop r, else
    None.
    """
    if u.op != "AFTER" or len(u.src) != 2 or u.src[0].op != "BUFFER" or u.src[1].op != "END" or len(u.src[1].src) != 2:
        return None
    store, r = u.src[1].src
    is_scratch = store.op == "STORE" and len(store.src) == 2 and store.src[0].op == "INDEX"
    return u.src[0] if is_scratch and store.src[0].src == (u.src[0], r) else None


class Piece:
    """The iterations `start` to `start + size` of the split loops, and the kernel's nodes in these iterations.

    The longer piece `keeps` the numbers of loops and buffers.
    """

    def __init__(self, start: int, size: int, of: int):
        self.start, self.size, self.keeps = start, size, 2 * size > of or (2 * size == of and start == 0)
        self.loops: dict[UOp, UOp] = {}  # loop of the kernel -> loop of the piece; empty for a single iteration
        self.values: dict[UOp, UOp] = {}  # nodes that depend on the loops -> nodes of the piece
        self.scratch: dict[UOp, UOp] = {}  # buffer of the kernel -> AFTER that fills the buffer of the piece

    def value(self, u: UOp, new: dict[UOp, UOp]) -> UOp:
        """Return `u` in this piece, or `new[u]` if `u` depends on none of the split loops."""
        here = self.values.get(u)
        return new[u] if here is None else here

    def make_loops(self, loops: set[UOp], ids: Iterator[int]) -> None:
        """Map each of `loops` to its index in this piece: `start` plus a RANGE, or `start` alone for one iteration.

        The RANGEs have new numbers from `ids`, unless the piece keeps the numbers of the kernel's loops.
        """
        for r in sorted(loops, key=lambda r: int(r.arg[0])):
            if self.size > 1:
                arg = r.arg if self.keeps else (next(ids), r.arg[1])
                self.loops[r] = node("RANGE", (idx(self.size),), arg)
            self.values[r] = self.loops.get(r, idx(0)) + self.start


class ConcatBoundary:
    """The boundary before iteration `at` of the loop `first`, at which the loops of a kernel are to be split.

    The boundary applies to `first` and to all loops that fill or read the same LOCAL buffers. `order` has the kernel's
    nodes, sources first.
    """

    def __init__(self, order: Sequence[UOp], first: UOp, at: int):
        self.order, self.size = order, first.src[0].value
        self.pieces = Piece(0, at, self.size), Piece(at, self.size - at, self.size)
        self.ids, self.slots = unused_ranges(order), unused_slots(order)
        self.scratch = {b: u for u in order if (b := _scratch_buffer(u)) is not None}
        self.loads = [
            u for u in order if u.op == "LOAD" and u.src[0].op == "INDEX" and _scratch_buffer(u.src[0].src[0])
        ]
        self.loops = {first}  # the loops that have the boundary
        self.memory: set[UOp] = set()  # buffers of the scratch values that have the boundary
        n = 0
        while n != (n := len(self.loops) + len(self.memory)):
            for b, u in self.scratch.items():
                reads = [x.src[0].src[1] for x in self.loads if x.src[0].src[0] is u]
                if u.src[1].src[1] in self.loops or any(r in self.loops for r in reads):
                    self.memory.add(b)
                    self.loops.update((u.src[1].src[1], *reads))

    def is_closed(self) -> bool:
        """Whether the loops that have the boundary can be split, and fill at least one scratch value.

        They must have one constant size, and only fill scratch values or reduce. No node may depend on two of them.
        """
        if not self.memory or any(r.op != "RANGE" or r.src[0].op != "CONST" for r in self.loops):
            return False
        if any(r.src[0].value != self.size for r in self.loops):
            return False
        own = {self.scratch[b].src[1] for b in self.memory}
        ends = (u for u in self.order if u.op == "END" and not self.loops.isdisjoint(u.src[1:]))
        return all(u in own for u in ends) and all(len(ranges(u) & self.loops) < 2 for u in self.order)

    def split(self, sink: UOp) -> UOp:
        """Return the kernel with each loop that has the boundary split in two."""
        for p in self.pieces:
            p.make_loops(self.loops, self.ids)
        new: dict[UOp, UOp] = {}  # replacements of nodes that depend on none of the loops
        for u in self.order:
            if u in self.memory or u in self.loops:
                continue
            if u.op == "AFTER" and u.src[0] in self.memory:
                for p in self.pieces:
                    self.add_scratch_value(u, p, new)
            elif not ranges(u).isdisjoint(self.loops):
                for p in self.pieces:
                    self.add_node(u, p, new)
            elif u.op == "REDUCE" and not self.loops.isdisjoint(u.src[1:]):
                new[u] = reduce(lambda a, b: build(u.arg[0], a, b), [self.reduced(u, p, new) for p in self.pieces])
            elif (
                u.op != "END" or u.src[1] not in self.loops
            ):  # the ENDs of split scratch values are rebuilt by `add_scratch_value`
                new[u] = rebuild(u, tuple(new[s] for s in u.src))
        return new[sink]

    def add_scratch_value(self, u: UOp, piece: Piece, new: dict[UOp, UOp]) -> None:
        """Add the scratch value `u` to `piece`: its value, and a LOCAL buffer if it has several elements there.

        `new` has the nodes that depend on no split loop.
        """
        store, r = u.src[1].src
        piece.values[u] = value = piece.value(store.src[1], new)
        if piece.size > 1:
            arg = u.src[0].arg if piece.keeps else u.src[0].arg._replace(slot=next(self.slots))
            memory = node("BUFFER", (shape_source((piece.size,)),), arg)
            own = piece.loops[r]
            end = node("END", (node("STORE", (node("INDEX", (memory, own)), value)), own))
            piece.scratch[u.src[0]] = node("AFTER", (memory, end))

    def add_node(self, u: UOp, piece: Piece, new: dict[UOp, UOp]) -> None:
        """Add the node `u`, which depends on the split loops, to the values of `piece`.

        A piece that does not keep the loop numbers gets fresh RANGEs for the loops of reductions inside. `new` has the
        nodes that depend on no split loop.
        """
        if u.op == "STORE" or _memory_of(u) in self.memory:
            return
        if u.op == "LOAD" and _memory_of(u.src[0]) in self.memory:
            scratch_value, r = u.src[0].src
            kept = piece.scratch.get(scratch_value.src[0])
            piece.values[u] = (
                piece.values[scratch_value] if kept is None else node("LOAD", (node("INDEX", (kept, piece.loops[r])),))
            )
            return
        src = tuple(piece.value(s, new) for s in u.src)
        is_other = u.op == "REDUCE" and len(u.src) > 1 and not piece.keeps
        piece.values[u] = self.with_fresh_ranges(u, src[0], u.src[1:]) if is_other else rebuild(u, src)

    def reduced(self, u: UOp, piece: Piece, new: dict[UOp, UOp]) -> UOp:
        """Return the REDUCE `u` over one of the split loops, restricted to the iterations of `piece`.

        `new` has the nodes that depend on no split loop.
        """
        body = piece.value(u.src[0], new)
        own = tuple(piece.loops[r] for r in u.src[1:] if r in piece.loops)
        others = tuple(r for r in u.src[1:] if r not in self.loops)
        if others and not piece.keeps:
            return self.with_fresh_ranges(u, body, others, own)
        return node("REDUCE", (body, *others, *own), u.arg) if others or own else body

    def with_fresh_ranges(self, u: UOp, body: UOp, loops: tuple[UOp, ...], more: tuple[UOp, ...] = ()) -> UOp:
        """Return the REDUCE `u` of `body` with `loops` replaced by new RANGEs, and over the ranges `more` too."""
        own = {r: node("RANGE", r.src, (next(self.ids), r.arg[1])) for r in loops}
        return build("REDUCE", replace_ranges(body, own), *own.values(), *more, arg=u.arg)


def _memory_of(u: UOp) -> UOp | None:
    """Return the BUFFER that the INDEX `u` accesses, also through an AFTER; None for a PARAM or another node."""
    if u.op != "INDEX":
        return None
    view = u.src[0].src[0] if u.src[0].op == "AFTER" else u.src[0]
    return view if view.op == "BUFFER" else None


__all__ = ["ConcatBoundary", "Piece", "split_seams"]

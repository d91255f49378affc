"""Loops over rows that are joined to others: each piece has a loop of its own, and no row is picked by a mask.

Attention over a cache to whose keys new ones are joined reads `where(k < n, cache[k], new[k - n])` in every loop over
keys, and a mask on every load keeps what comes next from being fetched. Where the loops of a kernel with stages have
such a seam, each of them becomes two: a REDUCE joins what both give, a stage is one for each piece. A single row needs
no loop, and its value no memory.

What it is not: for kernels without stages, whose sums are better in one piece.

Before: LOCAL[k:257] = dot(q, where(k < 256, cache[k], new)); MAX over k:257 of LOCAL[k]; ...
After:  s = dot(q, new); LOCAL[k:256] = dot(q, cache[k]); max(MAX over k:256 of LOCAL[k], s); ...
Invariant: every element of what was a stage is computed once, by the same operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

from monolect.ir.bounds import ranges, replace_ranges, unused_ranges, unused_slots
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, toposort

ROWS = Family(
    "seams", __name__,
    Row("loop_each_side", "a loop over joined rows, in a kernel with rows in local memory, is one for each side of the seam"),
)  # fmt: skip

FEW_ROWS = 4  # of a piece up to here stand apart one by one: they fill no vector


def split_seams(sink: UOp) -> UOp:
    """See the module docstring."""
    while (found := _split(sink)) is not None:
        sink = found
    return sink


def _split(sink: UOp) -> UOp | None:
    """The kernel with one seam less."""
    order = toposort(sink)
    for r, at in dict.fromkeys(s for u in order if (s := _seam(u)) is not None):
        seam = Seam(order, r, at)
        if seam.is_closed() and is_on("loop_each_side"):
            return fired("loop_each_side", sink, seam.split(sink))
    return None


def _seam(u: UOp) -> tuple[UOp, int] | None:
    """(the loop, the iteration in which the next piece begins) of a choice between rows in memory."""
    if u.op != "WHERE" or u.src[0].op != "CMPLT" or any(_read(x) is None for x in u.src[1:]):
        return None
    r, limit = u.src[0].src
    if r.op != "RANGE" or limit.op != "CONST" or r.src[0].op != "CONST" or (n := r.src[0].value) < 3:
        return None
    at = limit.value
    if not 0 < at < n:
        return None
    return r, 1 if at < FEW_ROWS else n - 1 if n - at < FEW_ROWS else at


def _read(u: UOp) -> UOp | None:
    """The PARAM that is read, and perhaps converted."""
    while u.op == "CAST":
        u = u.src[0]
    return u.src[0].src[0] if u.op == "LOAD" and u.src[0].op == "INDEX" and u.src[0].src[0].op == "PARAM" else None


def _stage_of(u: UOp) -> UOp | None:
    """The LOCAL buffer, for AFTER(LOCAL, END(STORE(INDEX(LOCAL, r), value), r)) with one loop r."""
    if u.op != "AFTER" or len(u.src) != 2 or u.src[0].op != "BUFFER" or u.src[1].op != "END" or len(u.src[1].src) != 2:
        return None
    store, r = u.src[1].src
    is_stage = store.op == "STORE" and len(store.src) == 2 and store.src[0].op == "INDEX"
    return u.src[0] if is_stage and store.src[0].src == (u.src[0], r) else None


class Piece:
    """The iterations `start` to `start + size` of loops: what a node of the kernel is in them. The longer piece
    `keeps` the numbers of loops and buffers.
    """

    def __init__(self, start: int, size: int, of: int):
        self.start, self.size, self.keeps = start, size, 2 * size > of or (2 * size == of and start == 0)
        self.loops: dict[UOp, UOp] = {}  # for each loop, that of the piece; empty for a single iteration
        self.values: dict[UOp, UOp] = {}  # of what depends on the loops
        self.stages: dict[UOp, UOp] = {}  # for each buffer, that of the piece after what fills it

    def value(self, u: UOp, new: dict[UOp, UOp]) -> UOp:
        """What `u` is here; what depends on no loop is what it is in `new`."""
        here = self.values.get(u)
        return new[u] if here is None else here

    def of(self, loops: set[UOp], ids: Iterator[int]) -> None:
        """Make the loops."""
        for r in sorted(loops, key=lambda r: int(r.arg[0])):
            if self.size > 1:
                arg = r.arg if self.keeps else (next(ids), r.arg[1])
                self.loops[r] = node("RANGE", (idx(self.size),), arg)
            self.values[r] = self.loops.get(r, idx(0)) + self.start


class Seam:
    """A seam of the loop `first` before iteration `at`, and all loops and stages of the kernel `order` that share it."""

    def __init__(self, order: list[UOp], first: UOp, at: int):
        self.order, self.size = order, first.src[0].value
        self.pieces = Piece(0, at, self.size), Piece(at, self.size - at, self.size)
        self.ids, self.slots = unused_ranges(order), unused_slots(order)
        self.stages = {b: u for u in order if (b := _stage_of(u)) is not None}
        self.loads = [u for u in order if u.op == "LOAD" and u.src[0].op == "INDEX" and _stage_of(u.src[0].src[0])]
        self.loops = {first}  # that have the seam
        self.memory: set[UOp] = set()  # of the stages that have it
        n = 0
        while n != (n := len(self.loops) + len(self.memory)):
            for b, u in self.stages.items():
                reads = [x.src[0].src[1] for x in self.loads if x.src[0].src[0] is u]
                if u.src[1].src[1] in self.loops or any(r in self.loops for r in reads):
                    self.memory.add(b)
                    self.loops.update((u.src[1].src[1], *reads))

    def is_closed(self) -> bool:
        """Whether nothing but stages and reductions has these loops, one at a time."""
        if not self.memory or any(r.op != "RANGE" or r.src[0].op != "CONST" for r in self.loops):
            return False
        if any(r.src[0].value != self.size for r in self.loops):
            return False
        own = {self.stages[b].src[1] for b in self.memory}
        ends = (u for u in self.order if u.op == "END" and not self.loops.isdisjoint(u.src[1:]))
        return all(u in own for u in ends) and all(len(ranges(u) & self.loops) < 2 for u in self.order)

    def split(self, sink: UOp) -> UOp:
        """The kernel with two loops instead of each."""
        for p in self.pieces:
            p.of(self.loops, self.ids)
        new: dict[UOp, UOp] = {}  # of what depends on none of the loops
        for u in self.order:
            if u in self.memory or u in self.loops:
                continue
            if u.op == "AFTER" and u.src[0] in self.memory:
                for p in self.pieces:
                    self.fill(u, p, new)
            elif not ranges(u).isdisjoint(self.loops):
                for p in self.pieces:
                    self.inside(u, p, new)
            elif u.op == "REDUCE" and not self.loops.isdisjoint(u.src[1:]):
                new[u] = reduce(lambda a, b: build(u.arg[0], a, b), [self.reduced(u, p, new) for p in self.pieces])
            elif u.op != "END" or u.src[1] not in self.loops:  # fills a stage
                new[u] = rebuild(u, tuple(new[s] for s in u.src))
        return new[sink]

    def fill(self, u: UOp, p: Piece, new: dict[UOp, UOp]) -> None:
        """The stage `u` in a piece."""
        store, r = u.src[1].src
        p.values[u] = value = p.value(store.src[1], new)
        if p.size > 1:
            arg = u.src[0].arg if p.keeps else u.src[0].arg._replace(slot=next(self.slots))
            memory = node("BUFFER", (shape_source((p.size,)),), arg)
            own = p.loops[r]
            end = node("END", (node("STORE", (node("INDEX", (memory, own)), value)), own))
            p.stages[u.src[0]] = node("AFTER", (memory, end))

    def inside(self, u: UOp, p: Piece, new: dict[UOp, UOp]) -> None:
        """`u`, which depends on the loops, in a piece; its reductions in loops of their own, but for one piece."""
        if u.op == "STORE" or _memory_of(u) in self.memory:
            return
        if u.op == "LOAD" and _memory_of(u.src[0]) in self.memory:
            stage, r = u.src[0].src
            kept = p.stages.get(stage.src[0])
            p.values[u] = p.values[stage] if kept is None else node("LOAD", (node("INDEX", (kept, p.loops[r])),))
            return
        src = tuple(p.value(s, new) for s in u.src)
        is_other = u.op == "REDUCE" and len(u.src) > 1 and not p.keeps
        p.values[u] = self.in_loops_of_its_own(u, src[0], u.src[1:]) if is_other else rebuild(u, src)

    def reduced(self, u: UOp, p: Piece, new: dict[UOp, UOp]) -> UOp:
        """What the REDUCE `u` over one of the loops gives for a piece."""
        body = p.value(u.src[0], new)
        own = tuple(p.loops[r] for r in u.src[1:] if r in p.loops)
        others = tuple(r for r in u.src[1:] if r not in self.loops)
        if others and not p.keeps:
            return self.in_loops_of_its_own(u, body, others, own)
        return node("REDUCE", (body, *others, *own), u.arg) if others or own else body

    def in_loops_of_its_own(self, u: UOp, body: UOp, loops: tuple[UOp, ...], more: tuple[UOp, ...] = ()) -> UOp:
        own = {r: node("RANGE", r.src, (next(self.ids), r.arg[1])) for r in loops}
        return build("REDUCE", replace_ranges(body, own), *own.values(), *more, arg=u.arg)


def _memory_of(u: UOp) -> UOp | None:
    """The LOCAL buffer of an INDEX into a stage, from inside or outside of it."""
    if u.op != "INDEX":
        return None
    view = u.src[0].src[0] if u.src[0].op == "AFTER" else u.src[0]
    return view if view.op == "BUFFER" else None

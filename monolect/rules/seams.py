"""Loops over rows to which one more is joined: the one stands apart, and no row is picked by a mask.

Attention over a cache to whose keys the new one is joined reads `where(k < n, cache[k], new)` in every loop over keys,
and a mask on every load keeps what comes next from being fetched. Where the loops of a kernel with stages have such a
seam next to their first or last iteration, each of them ends there: a REDUCE joins what is left with the term of the
one row, and a stage keeps the others, while the one row's value needs no memory.

What it is not: for seams further inside, which would need a second stage; nor for kernels without stages, whose sums
are better in one piece.

Before: LOCAL[k:257] = dot(q, where(k < 256, cache[k], new)); MAX over k:257 of LOCAL[k]; ...
After:  s = dot(q, new); LOCAL[k:256] = dot(q, cache[k]); max(MAX over k:256 of LOCAL[k], s); ...
Invariant: every element of what was a stage is computed once, by the same operations.
"""

from __future__ import annotations

from monolect.ir.bounds import ranges, replace_ranges, unused_ranges
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, toposort


def split_seams(sink: UOp) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    found = next((s for u in order if (s := _seam(u)) is not None), None)
    if found is None:
        return sink
    seam = Seam(order, *found)
    return seam.split(sink) if seam.is_closed() else sink


def _seam(u: UOp) -> tuple[UOp, bool] | None:
    """(the loop, whether its last iteration stands apart and not its first) of a choice between rows in memory."""
    if u.op != "WHERE" or u.src[0].op != "CMPLT" or any(_read(x) is None for x in u.src[1:]):
        return None
    r, limit = u.src[0].src
    if r.op != "RANGE" or limit.op != "CONST" or r.src[0].op != "CONST" or (n := r.src[0].value) < 3:
        return None
    return (r, limit.value == n - 1) if limit.value in (1, n - 1) else None


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


class Seam:
    """A seam of the loop `first`, and all loops and stages of the kernel `order` that share it."""

    def __init__(self, order: list[UOp], first: UOp, is_last: bool):
        self.order, self.size, self.is_last = order, first.src[0].value, is_last
        self.ids = unused_ranges(order)
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
        """The kernel with loops that end at the seam."""
        rest = idx(self.size - 1)
        short = {r: node("RANGE", (rest,), r.arg) for r in self.loops}
        new: dict[UOp, UOp] = {}  # of what depends on none of the loops
        many: dict[UOp, UOp] = {r: s if self.is_last else s + 1 for r, s in short.items()}  # in the loops that are left
        one: dict[UOp, UOp] = {r: rest if self.is_last else idx(0) for r in self.loops}  # in the iteration apart
        for u in self.order:
            if u in self.memory:
                new[u] = node("BUFFER", (shape_source((self.size - 1,)),), u.arg)
            elif u in one:
                continue
            elif not ranges(u).isdisjoint(self.loops):
                memory = _memory_of(u)
                if memory in self.memory:
                    (r,) = ranges(u) & self.loops
                    many[u] = node("INDEX", (new[u.src[0]], short[r]))
                    one[u] = u
                    continue
                many[u] = rebuild(u, tuple(many.get(s) or new[s] for s in u.src))
                if u.op == "STORE":  # fills a stage
                    continue
                is_kept = u.op == "LOAD" and _memory_of(u.src[0]) in self.memory
                one[u] = one[self._value(u)] if is_kept else self._apart(u, new, one)
            elif u.op == "REDUCE" and (mine := [r for r in u.src[1:] if r in self.loops]):
                others = tuple(r for r in u.src[1:] if r not in mine)
                body = u.src[0]
                terms = node("REDUCE", (many.get(body) or new[body], *others, *(short[r] for r in mine)), u.arg)
                last = one.get(body) or new[body]
                last = self._reduced(u, last, others) if others else last
                new[u] = build(u.arg[0], terms, last)
            else:
                src = (short.get(s) or many.get(s) or new[s] for s in u.src)
                new[u] = rebuild(u, tuple(src))
        return new[sink]

    def _value(self, load: UOp) -> UOp:
        """What a stage that `load` reads keeps."""
        return self.stages[load.src[0].src[0].src[0]].src[1].src[0].src[1]

    def _apart(self, u: UOp, new: dict[UOp, UOp], one: dict[UOp, UOp]) -> UOp:
        """`u` in the iteration apart, its reductions in loops of their own."""
        src = tuple(one.get(s) or new[s] for s in u.src)
        return self._reduced(u, src[0], u.src[1:]) if u.op == "REDUCE" and len(u.src) > 1 else rebuild(u, src)

    def _reduced(self, u: UOp, body: UOp, loops: tuple[UOp, ...]) -> UOp:
        own = {r: node("RANGE", r.src, (next(self.ids), r.arg[1])) for r in loops}
        return build("REDUCE", replace_ranges(body, own), *own.values(), arg=u.arg)


def _memory_of(u: UOp) -> UOp | None:
    """The LOCAL buffer of an INDEX into a stage, from inside or outside of it."""
    if u.op != "INDEX":
        return None
    view = u.src[0].src[0] if u.src[0].op == "AFTER" else u.src[0]
    return view if view.op == "BUFFER" else None

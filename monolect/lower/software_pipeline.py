"""Copies to local memory that are loaded one step of their loop ahead of their use.

What a pipelined LOAD reads goes to registers before the loop, for its first step, and in each step, for the next one,
right after the BARRIER behind which the lanes read what this step has stored. So memory is waited for at the end of a
step, while the lanes have multiplied. In the last step the last block is read once more, and not used.

What an "async" one reads goes to the other block of local memory at once, without registers: the lanes have met, so
none still reads what that block held. A language waits for such copies before a BARRIER.

A TMACOPY goes by itself too, to one of several blocks in turns: all but the last of them are asked for before the loop,
and each step asks for what comes so many steps later, if there is such a step. The BARRIER waits for that of the step.

What it is not: the blocks, which the optimizer makes (PACK), nor a choice.

Before: r; BARRIER(STORE(LOCAL[r % 2 * n + ..], LOAD(A[r], pipelined))); .. LOCAL[r % 2 * n + ..]
After:  STORE(REG, LOAD(A[0])); r; BARRIER(STORE(LOCAL[r % 2 * n + ..], REG)); STORE(REG, LOAD(A[min(r + 1, last)])); ..
   or:  STORE(LOCAL[..], LOAD(A[0])); r; BARRIER(); STORE(LOCAL[(r + 1) % 2 * n + ..], LOAD(A[min(r + 1, last)])); ..
Invariant: no pipelined LOAD is left; between two BARRIERs no lane stores where another reads.
"""

from __future__ import annotations

from itertools import count

from monolect.ir.bounds import ranges, unused_slots
from monolect.ir.ops import BufferArg
from monolect.ir.rewrite.normal import less, smaller
from monolect.ir.uop import UOp, idx, node, rebuild, shape_source, substitute, toposort


def ahead(sink: UOp) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    if not any(is_pipelined(u) or u.op == "TMACOPY" for u in order):
        return sink
    slots = unused_slots(order)
    new: dict[UOp, UOp] = {}
    issued: dict[UOp, list[UOp]] = {}  # by BARRIER, what is stored for the next step
    for u in order:
        src = tuple(new[s] for s in u.src)
        if u.op == "BARRIER" and any(_is_step(s) for s in u.src):
            steps = [_step(s, slots) if _is_step(s) else None for s in u.src]
            before = [n for s, x in zip(steps, src, strict=True) for n in (s.before if s else (x,))]
            new[u] = node("BARRIER", tuple(dict.fromkeys(before)))
            issued[new[u]] = [s.issue(new[u]) for s in steps if s]
        elif u.op == "AFTER" and src[-1] in issued:
            new[u] = node("AFTER", (*src, *issued[src[-1]]))
        else:
            new[u] = rebuild(u, src)
    return new[sink]


def _step(u: UOp, slots: count) -> Step:
    if u.op == "TMACOPY":
        return _Box(u)
    return _Copy(u) if u.src[1].op == "LOAD" and _pipelined(u.src[1]) == "async" else _Step(u, next(slots))


class Step:
    """One copy, in each step of `loop`. `before`: what a BARRIER waits for."""

    before: tuple[UOp, ...]

    def __init__(self, u: UOp):
        (self.loop,) = (r for r in ranges(u))

    def _next(self, value: UOp) -> UOp:
        """The same in the next step, or in the last."""
        last = self.loop.src[0].value - 1
        return substitute(value, {self.loop: smaller(self.loop + 1, last)})

    def issue(self, barrier: UOp) -> UOp:
        """The load for the next step, once all lanes have met."""
        raise NotImplementedError


class _Step(Step):
    """By way of registers, in `slot`."""

    def __init__(self, u: UOp, slot: int):
        super().__init__(u)
        self.value = _plain(u.src[1])
        self.memory = node("BUFFER", (shape_source(self.value.shape),), BufferArg(slot, self.value.dtype, None, "REG"))
        first = node("STORE", (self.memory, substitute(self.value, {self.loop: idx(0)})))
        loaded = node("LOAD", (node("AFTER", (self.memory, first, self.loop)),))
        self.before = (node("STORE", (u.src[0], loaded, *u.src[2:])),)

    def issue(self, barrier: UOp) -> UOp:
        return node("STORE", (node("AFTER", (self.memory, barrier)), self._next(self.value)))


class _Box(Step):
    """The copy of a box, `TmaCopyArg.n_buffers` blocks round-robin."""

    def __init__(self, u: UOp):
        super().__init__(u)
        self.copy, self.ahead = u, u.arg.n_buffers - 1
        n = min(self.ahead, self.loop.src[0].value)
        self.before = (*(substitute(u, {self.loop: idx(i)}) for i in range(n)), self.loop)

    def issue(self, barrier: UOp) -> UOp:
        place, source, turn, _, *at = self.copy.src
        index, turn, *at = (substitute(x, {self.loop: self.loop + self.ahead}) for x in (place.src[1], turn, *at))
        to = node("INDEX", (node("AFTER", (place.src[0], barrier)), index))
        gate = less(self.loop, self.loop.src[0].value - self.ahead)
        return node("TMACOPY", (to, source, turn, gate, *at), self.copy.arg)


class _Copy(Step):
    """To the block of the next step itself."""

    def __init__(self, u: UOp):
        super().__init__(u)
        self.store = u
        self.before = (substitute(u, {self.loop: idx(0)}), self.loop)

    def issue(self, barrier: UOp) -> UOp:
        memory, index = self.store.src[0].src
        # not the last step again: its block is read. Of two steps, the step itself is the number of the block.
        following = self.loop + 1 if self.loop.src[0].value > 2 else self.loop * -1 + 1
        place = node("INDEX", (node("AFTER", (memory, barrier)), substitute(index, {self.loop: following})))
        return node("STORE", (place, self._next(self.store.src[1])))


def _is_step(u: UOp) -> bool:
    return u.op == "TMACOPY" or _copied(u) is not None


def is_pipelined(u: UOp) -> bool:
    """Whether `u` is a LOAD that runs one loop iteration ahead of its use."""
    return _pipelined(u) is not None


def _pipelined(u: UOp) -> str | None:
    """How: "registers" or "async"."""
    return u.arg.pipelined if u.op == "LOAD" and u.arg is not None else None


def _copied(u: UOp) -> UOp | None:
    """The pipelined LOAD of which the STORE `u` stores what it read, whole or turned."""
    value = u.src[1] if u.op == "STORE" else None
    while value is not None and value.op in ("PERMUTE", "RESHAPE", "BITCAST"):
        value = value.src[0]
    return value if value is not None and is_pipelined(value) else None


def _plain(value: UOp) -> UOp:
    """The same without the flag."""
    return (
        rebuild(value, (_plain(value.src[0]), *value.src[1:])) if not is_pipelined(value) else node("LOAD", value.src)
    )

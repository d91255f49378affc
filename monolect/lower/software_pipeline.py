"""Software-pipeline copies to local memory: issue the load of the next iteration before the current one computes.

A LOAD pipelined through "registers" is issued before the loop for the first iteration. Each iteration then issues the
load of the next one right after the BARRIER that lets lanes read the current block. So the wait for memory is at the
end of an iteration, after the lanes have multiplied. The last iteration loads the last block again and does not use it.

An "async" LOAD writes the other block of local memory directly, without registers: after the BARRIER no lane reads the
old content of that block. The generated code waits for such copies before a BARRIER.

A TMACOPY is asynchronous too, and uses n blocks round-robin. The first n - 1 are requested before the loop. Each
iteration requests the block of the iteration n - 1 later, if there is one. The BARRIER waits for the current block.

What it is not: it does not make the blocks (the action PACK does) and makes no choices.

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
from monolect.ir.uop import UOp, idx, node, nodes_of, rebuild, shape_source, substitute


def ahead(sink: UOp) -> UOp:
    """Pass: expand pipelined LOADs and TMACOPYs into copies issued one or more iterations ahead."""
    order = nodes_of(sink)
    if not any(is_pipelined(u) or u.op == "TMACOPY" for u in order):
        return sink
    slots = unused_slots(order)
    new: dict[UOp, UOp] = {}
    issued: dict[UOp, list[UOp]] = {}  # by BARRIER, the copies issued behind it for later iterations
    for u in order:
        src = tuple(new[s] for s in u.src)
        if u.op == "BARRIER" and any(_is_pipelined_copy(s) for s in u.src):
            steps = [_pipelined_copy(s, slots) if _is_pipelined_copy(s) else None for s in u.src]
            before = [n for s, x in zip(steps, src, strict=True) for n in (s.before if s else (x,))]
            new[u] = node("BARRIER", tuple(dict.fromkeys(before)))
            issued[new[u]] = [s.issue(new[u]) for s in steps if s]
        elif u.op == "AFTER" and src[-1] in issued:
            new[u] = node("AFTER", (*src, *issued[src[-1]]))
        else:
            new[u] = rebuild(u, src)
    return new[sink]


def _pipelined_copy(u: UOp, slots: count) -> PipelinedCopy:
    """Return the PipelinedCopy of the STORE or TMACOPY `u`; `slots` yields unused numbers of buffers."""
    if u.op == "TMACOPY":
        return _TmaCopy(u)
    return _AsyncCopy(u) if u.src[1].op == "LOAD" and _pipelined(u.src[1]) == "async" else _RegisterCopy(u, next(slots))


class PipelinedCopy:
    """A copy to local memory in each iteration of `loop`, issued one or more iterations ahead.

    `before`: the nodes that the BARRIER before the use of the copied block waits for.
    """

    before: tuple[UOp, ...]

    def __init__(self, u: UOp):
        (self.loop,) = (r for r in ranges(u))

    def _next(self, value: UOp) -> UOp:
        """Return `value` as the next iteration computes it; in the last iteration, `value` itself."""
        last = self.loop.src[0].value - 1
        return substitute(value, {self.loop: smaller(self.loop + 1, last)})

    def issue(self, barrier: UOp) -> UOp:
        """Return the copy for a later iteration, issued after `barrier`."""
        raise NotImplementedError


class _RegisterCopy(PipelinedCopy):
    """A copy whose value is loaded to the REG buffer `slot` one iteration before it is stored to local memory."""

    def __init__(self, u: UOp, slot: int):
        super().__init__(u)
        self.value = _without_flag(u.src[1])
        self.memory = node("BUFFER", (shape_source(self.value.shape),), BufferArg(slot, self.value.dtype, None, "REG"))
        first = node("STORE", (self.memory, substitute(self.value, {self.loop: idx(0)})))
        loaded = node("LOAD", (node("AFTER", (self.memory, first, self.loop)),))
        self.before = (node("STORE", (u.src[0], loaded, *u.src[2:])),)

    def issue(self, barrier: UOp) -> UOp:
        return node("STORE", (node("AFTER", (self.memory, barrier)), self._next(self.value)))


class _TmaCopy(PipelinedCopy):
    """A TMACOPY to `TmaCopyArg.n_buffers` blocks of local memory, which are used round-robin."""

    def __init__(self, u: UOp):
        super().__init__(u)
        self.copy, self.ahead = u, u.arg.n_buffers - 1
        n = min(self.ahead, self.loop.src[0].value)
        self.before = (*(substitute(u, {self.loop: idx(i)}) for i in range(n)), self.loop)

    def issue(self, barrier: UOp) -> UOp:
        target, source, turn, _, *at = self.copy.src
        index, turn, *at = (substitute(x, {self.loop: self.loop + self.ahead}) for x in (target.src[1], turn, *at))
        target = node("INDEX", (node("AFTER", (target.src[0], barrier)), index))
        gate = less(self.loop, self.loop.src[0].value - self.ahead)
        return node("TMACOPY", (target, source, turn, gate, *at), self.copy.arg)


class _AsyncCopy(PipelinedCopy):
    """An asynchronous copy from global memory to the block of local memory that the next iteration reads."""

    def __init__(self, u: UOp):
        super().__init__(u)
        self.store = u
        self.before = (substitute(u, {self.loop: idx(0)}), self.loop)

    def issue(self, barrier: UOp) -> UOp:
        memory, index = self.store.src[0].src
        # the last iteration must not load its own block, which is being read; with two iterations, the iteration is the
        # block number
        following = self.loop + 1 if self.loop.src[0].value > 2 else self.loop * -1 + 1
        target = node("INDEX", (node("AFTER", (memory, barrier)), substitute(index, {self.loop: following})))
        return node("STORE", (target, self._next(self.store.src[1])))


def _is_pipelined_copy(u: UOp) -> bool:
    """Whether `u` is a TMACOPY or stores a pipelined LOAD."""
    return u.op == "TMACOPY" or _pipelined_load(u) is not None


def is_pipelined(u: UOp) -> bool:
    """Whether `u` is a LOAD that runs one loop iteration ahead of its use."""
    return _pipelined(u) is not None


def _pipelined(u: UOp) -> str | None:
    """Return how the LOAD `u` is pipelined, "registers" or "async", or None."""
    return u.arg.pipelined if u.op == "LOAD" and u.arg is not None else None


def _pipelined_load(u: UOp) -> UOp | None:
    """Return the pipelined LOAD that the STORE `u` stores, perhaps through PERMUTE, RESHAPE or BITCAST; else None."""
    value = u.src[1] if u.op == "STORE" else None
    while value is not None and value.op in ("PERMUTE", "RESHAPE", "BITCAST"):
        value = value.src[0]
    return value if value is not None and is_pipelined(value) else None


def _without_flag(value: UOp) -> UOp:
    """Return `value`, a pipelined LOAD (perhaps inside PERMUTE, RESHAPE or BITCAST), with a plain LOAD instead."""
    return (
        rebuild(value, (_without_flag(value.src[0]), *value.src[1:]))
        if not is_pipelined(value)
        else node("LOAD", value.src)
    )


__all__ = ["PipelinedCopy", "ahead", "is_pipelined"]

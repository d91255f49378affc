"""Describe scratch values: values that a kernel stores to local memory for its later loops, once per outer iteration.

A scratch value is AFTER(LOCAL, END(STORE(INDEX(LOCAL, i), value), loops)). Its own loops, those that its END closes,
index the buffer. The loops around it, those the value depends on, do not. So the buffer holds the values of one
iteration of the loops around, and the next iteration overwrites it.

When a loop around becomes an axis of a vector or tile, its iterations run at once as lanes: `optimize.scratch_rows`
gives each lane its own row of the buffer.
Invariant: the loops of a scratch value index only its buffer and the operands of its value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, toposort


def is_local(u: UOp) -> bool:
    """Whether the node `u` is a BUFFER in local memory."""
    return u.op == "BUFFER" and u.arg.addrspace == "LOCAL"


def is_scratch(u: UOp) -> bool:
    """Whether `u` is a scratch value: AFTER(LOCAL, END(STORE(INDEX(LOCAL, ...), ...), ...)), a LOCAL BUFFER that one
    loop nest fills before it is read.
    """
    if u.op != "AFTER" or len(u.src) != 2 or not is_local(u.src[0]) or u.src[1].op != "END":
        return False
    store = u.src[1].src[0]
    return store.op == "STORE" and store.src[0].op == "INDEX" and store.src[0].src[0] is u.src[0]


class ScratchBuffers:
    """The scratch buffers of a kernel, whose nodes are `order`: LOCAL BUFFERs that one loop nest fills and later loops
    read.

    `fills`: {BUFFER: the END that fills it}, in execution order. `own`: the RANGEs that those ENDs close.
    """

    def __init__(self, order: Sequence[UOp]):
        self.order = order
        self.fills = {u.src[0]: u.src[1] for u in order if is_scratch(u)}
        self.own = frozenset(r for e in self.fills.values() for r in e.src[1:])  # the loops that fill scratch buffers

    @cached_property
    def members(self) -> dict[UOp, UOp]:
        """{node of the kernel: the first END, in topological order, whose loop nest contains the node}. Nodes below an
        AFTER belong to an earlier END.
        """
        out: dict[UOp, UOp] = {}
        ends = [u for u in self.order if u.op == "END"]
        for e in ends:
            for u in toposort(e, stop=lambda u: u.op == "AFTER"):
                out.setdefault(u, e)
        return out

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """{node of the kernel: the nodes that have it as a source}."""
        out: dict[UOp, list[UOp]] = {}
        for u in self.order:
            for s in dict.fromkeys(u.src):
                out.setdefault(s, []).append(u)
        return out

    def reads(self, u: UOp) -> bool:
        """Whether the LOAD or STORE `u` accesses a scratch buffer."""
        return memory_of(u.src[0]) in self.fills

    def loads(self, buffer: UOp) -> list[UOp]:
        """Return the LOADs that read the scratch buffer `buffer`."""
        return [u for u in self.order if u.op == "LOAD" and memory_of(u.src[0]) is buffer]

    def nest(self, u: UOp) -> frozenset[UOp]:
        """Return all RANGEs of the loop nest that contains the node `u`: those that its END (see `members`) closes, and
        those around that END. Empty if no END contains `u`.
        """
        e = self.members.get(u)
        return frozenset() if e is None else ranges(e.src[0])

    def loops(self, end: UOp) -> frozenset[UOp]:
        """Return the RANGEs that `end` closes; if `end` fills a scratch buffer, also the RANGEs around it, which must
        enclose the closed ones.
        """
        return frozenset(end.src[1:]) | (ranges(end) if end in self.fills.values() else frozenset())

    def around(self, buffer: UOp) -> frozenset[UOp]:
        """Return the RANGEs around the END that fills the scratch buffer `buffer`: the buffer is filled once in each of
        their iterations.
        """
        return ranges(self.fills[buffer])


__all__ = ["ScratchBuffers", "is_local", "is_scratch"]

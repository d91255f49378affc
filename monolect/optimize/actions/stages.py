"""Stages: what a kernel stores to local memory for its later loops, once in each iteration of the loops around.

A stage is AFTER(LOCAL, END(STORE(INDEX(LOCAL, i), value), loops)): its own loops, those its END closes, index the
buffer; the loops around it, those the value depends on, do not. So the buffer holds what one iteration of the loops
around needs, and is filled anew in the next one.

When a loop around becomes shape, its lanes are alive at once: `Rows` gives each a row of its own in the buffer.
Invariant: a stage's own loops index nothing but its own buffer and what is read for it.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from monolect.ir.bounds import ranges
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, idx, node, shape_source, toposort

if TYPE_CHECKING:
    from monolect.optimize.actions.plan import Part, Plan


def is_local(u: UOp) -> bool:
    """True for a LOCAL BUFFER."""
    return u.op == "BUFFER" and u.arg.addrspace == "LOCAL"


def is_stage(u: UOp) -> bool:
    """True for AFTER(LOCAL, END(STORE(INDEX(LOCAL, ...), ...), ...)): memory written once before it is read."""
    if u.op != "AFTER" or len(u.src) != 2 or not is_local(u.src[0]) or u.src[1].op != "END":
        return False
    store = u.src[1].src[0]
    return store.op == "STORE" and store.src[0].op == "INDEX" and store.src[0].src[0] is u.src[0]


class Stages:
    """The stages of a kernel: `fills[buffer]` is the END that fills it, in the order they run."""

    def __init__(self, order: list[UOp]):
        self.order = order
        self.fills = {u.src[0]: u.src[1] for u in order if is_stage(u)}
        self.own = frozenset(r for e in self.fills.values() for r in e.src[1:])  # the loops that END in a stage

    @cached_property
    def members(self) -> dict[UOp, UOp]:
        """For each node the END it is computed for, the first that needs it."""
        out: dict[UOp, UOp] = {}
        ends = [u for u in self.order if u.op == "END"]
        for e in ends:
            for u in toposort(e, stop=lambda u: u.op == "AFTER"):
                out.setdefault(u, e)
        return out

    @cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """The nodes that have each node among their sources."""
        out: dict[UOp, list[UOp]] = {}
        for u in self.order:
            for s in dict.fromkeys(u.src):
                out.setdefault(s, []).append(u)
        return out

    def reads(self, u: UOp) -> bool:
        """Whether the LOAD or STORE `u` goes to a stage's buffer."""
        return memory_of(u.src[0]) in self.fills

    def loads(self, buffer: UOp) -> list[UOp]:
        """The loads from a stage's buffer."""
        return [u for u in self.order if u.op == "LOAD" and memory_of(u.src[0]) is buffer]

    def nest(self, u: UOp) -> frozenset[UOp]:
        """The output loops around `u`: all loops of the END that it is computed for."""
        e = self.members.get(u)
        return frozenset() if e is None else ranges(e.src[0])

    def loops(self, end: UOp) -> frozenset[UOp]:
        """The loops that an END closes, and for a stage those around it too: they must be further out."""
        return frozenset(end.src[1:]) | (ranges(end) if end in self.fills.values() else frozenset())

    def around(self, buffer: UOp) -> frozenset[UOp]:
        """The loops around the stage that fills `buffer`."""
        return ranges(self.fills[buffer])


class Rows:
    """The rows of each buffer of a plan: one for each lane of the loops around that became shape."""

    def __init__(self, plan: Plan, made: dict[Part, UOp]):
        self.plan, self.made = plan, made
        self.new = {b: self._widened(b) for b in plan.stages.fills}

    def row_length(self, b: UOp) -> int:
        """Elements from one row to the next: whole vectors, and no multiple of what shares cache sets."""
        lanes = self.plan.target.lanes(b.dtype.itemsize)
        n = -(-prod(b.shape) // lanes) * lanes
        return n + lanes if n * b.dtype.itemsize % 512 == 0 else n

    def _parts(self, b: UOp) -> list[Part]:
        around = self.plan.stages.around(b)
        return [p for p in self.plan.axes if p.type == "UPCAST" and p.root in around and p in self.made]

    def _widened(self, b: UOp) -> UOp:
        n = prod(p.size for p in self._parts(b))
        return node("BUFFER", (shape_source((n * self.row_length(b),)),), b.arg) if n > 1 else b

    def offset(self, b: UOp) -> UOp:
        """What is added to each index into `b`."""
        out, step = idx(0), self.row_length(b)
        for p in self._parts(b):
            out, step = out + self.made[p] * step, step * p.size
        return out

"""Axes of a workgroup device: GLOBAL and LOCAL ranges become indices of the launch, lanes share sums in local memory.

What it is for: targets with workgroups. GLOBAL ranges become SPECIAL gidx0.., LOCAL and WARP ranges lidx0.., number 0
being the innermost loop, whose lanes run side by side. Axes beyond the third of a kind are merged into the last. A
REDUCE over GROUP_REDUCE ranges is split: each lane reduces its part into a slot of LOCAL memory, and after a BARRIER
all lanes read and reduce the slots.
What it is not: a choice of axes, which the optimizer makes, nor for targets without workgroups, where the lanes of
GROUP_REDUCE are shape (`expand`).

Before: SINK(END(STORE(INDEX(PARAM0, r0), REDUCE(x(r0, r1, r2), r1:8 REDUCE, r2:4 GROUP_REDUCE)), r0:16 GLOBAL))
After:  SINK(STORE(INDEX(PARAM0, gidx0), REDUCE(LOAD(INDEX(AFTER(LOCAL[4], BARRIER(STORE(INDEX(LOCAL[4], lidx0),
        REDUCE(x(gidx0, r1, lidx0), r1:8 REDUCE)))), r3)), r3:4 REDUCE), CMPLT(lidx0, 1)))
Invariant: all lanes of a workgroup meet the same BARRIERs; a store that is in no loop of an axis is made by its lane 0.
Source: the axis types of the specification.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from math import prod

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.bounds import min_max, ranges
from monolect.ir.normal import TRUE, less
from monolect.ir.ops import BufferArg
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, toposort

LANES = frozenset(("LOCAL", "WARP", "GROUP_REDUCE"))
MOST_DIMENSIONS = 3  # of a launch, and of a workgroup


def device_axes(sink: UOp, target: Target) -> UOp:
    """See the module docstring. Raises ActionError when a workgroup would have too many lanes or too much memory."""
    order = toposort(sink)
    if not target.workgroups or not any(u.op == "RANGE" and (u.arg[1] in LANES or u.arg[1] == "GLOBAL") for u in order):
        return sink
    return _Workgroups(sink, order, target).run()


def _launched(loops: list[UOp], name: str) -> dict[UOp, UOp]:
    """For each range, outermost first, its value as an expression of SPECIALs."""
    out: dict[UOp, UOp] = {}
    inner = loops[::-1]
    for k in range(min(len(inner), MOST_DIMENSIONS)):
        mine = inner[k:] if k == MOST_DIMENSIONS - 1 else inner[k : k + 1]
        whole = node("SPECIAL", (_product(r.src[0] for r in mine),), f"{name}{k}")
        for r in mine[:-1]:
            out[r] = whole % r.src[0]
            whole = whole // r.src[0]
        out[mine[-1]] = whole
    return out


def _product(sizes: Iterable[UOp]) -> UOp:
    total = idx(1)
    for n in sizes:
        total = total * n
    return total


class _Workgroups:
    """One kernel. `values` maps its device ranges to what replaces them, `lanes` are those of a workgroup."""

    def __init__(self, sink: UOp, order: list[UOp], target: Target):
        self.sink, self.order, self.target = sink, order, target
        loops = sorted((u for u in order if u.op == "RANGE"), key=lambda r: r.arg[0])
        self.lanes = [r for r in loops if r.arg[1] in LANES]
        self.values = _launched([r for r in loops if r.arg[1] == "GLOBAL"], "gidx") | _launched(self.lanes, "lidx")
        self.n_lanes = prod(min_max(r.src[0])[1] for r in self.lanes)
        if target.max_local and self.n_lanes > target.max_local:
            raise ActionError("too many lanes in a workgroup", expected=f"<= {target.max_local}", found=self.n_lanes)
        self.slots = count(1 + max((u.arg.slot for u in order if u.op == "BUFFER"), default=-1))
        self.ids = count(1 + max(r.arg[0] for r in loops))
        self.again: dict[UOp, UOp] = {}  # GROUP_REDUCE range -> the loop over the slots
        self.local_bytes = 0

    def run(self) -> UOp:
        gates = self._gates()
        new: dict[UOp, UOp] = dict(self.values)
        for u in self.order:
            if u in new:
                continue
            src = tuple(new[s] for s in u.src)
            if u.op == "REDUCE" and any(r in self.values for r in u.src[1:]):
                new[u] = self._shared(u, src[0])
            elif u.op in ("END", "AFTER"):
                left = tuple(v for s, v in zip(u.src, src, strict=True) if s not in self.values)
                new[u] = node(u.op, left) if len(left) > 1 else left[0]
            elif gates.get(u, TRUE) is not TRUE:
                gate = build("AND", src[2], gates[u]) if len(src) > 2 else gates[u]
                new[u] = node(u.op, (src[0], src[1], gate), u.arg)
            else:
                new[u] = rebuild(u, src)
        return new[self.sink]

    def _gates(self) -> dict[UOp, UOp]:
        """For each store to global memory, the condition that lane 0 of each axis whose loop it is not in makes it."""
        stores = [u for u in self.order if u.op in ("STORE", "ATOMICADD")]
        own: dict[UOp, set[UOp]] = {u: set() for u in stores if _is_global(u)}
        for u in self.order:
            if u.op == "END":
                stack = [u.src[0]]
                while stack:
                    e = stack.pop()
                    if e in own:
                        own[e].update(u.src[1:])
                    elif e.op in ("END", "GROUP"):
                        stack.extend(e.src)
        out = {}
        for u, mine in own.items():
            gate = TRUE
            for r, value in self.values.items():
                if r not in mine:
                    gate = build("AND", gate, less(value, 1))
            out[u] = gate
        return out

    def _shared(self, u: UOp, body: UOp) -> UOp:
        """A REDUCE over lanes: partial results in local memory, and the REDUCE of those."""
        kept = tuple(r for r in u.src[1:] if r not in self.values)
        partial = node("REDUCE", (body, *kept), u.arg) if kept else body
        shaped = sorted((r for r in ranges(u) if r.arg[1] == "UPCAST"), key=lambda r: r.arg[0])
        own = {r: self.values[r] for r in self.lanes} | {r: r for r in shaped}
        others = {r: self._slot_loop(r) for r in u.src[1:] if r in self.values}
        memory = self._memory(u, shaped)
        loops = sorted((r for r in ranges(partial) if r.arg[1] != "UPCAST"), key=lambda r: r.arg[0])
        # in a loop, slots are written again only when all lanes have read them
        place = node("AFTER", (memory, node("BARRIER", tuple(loops)))) if loops else memory
        written = node("STORE", (node("INDEX", (place, _flat(own))), partial))
        ready = node("AFTER", (memory, node("BARRIER", (written,))))
        part = node("LOAD", (node("INDEX", (ready, _flat(own | others))),))
        out = node("REDUCE", (part, *others.values()), u.arg)
        out.origin = u.origin
        return out

    def _slot_loop(self, r: UOp) -> UOp:
        if r not in self.again:
            self.again[r] = node("RANGE", r.src, (next(self.ids), "REDUCE"))
        return self.again[r]

    def _memory(self, u: UOp, shaped: list[UOp]) -> UOp:
        """A slot for each lane and element that the optimizer made shape."""
        n = self.n_lanes * prod(min_max(r.src[0])[1] for r in shaped)
        self.local_bytes += n * u.dtype.itemsize
        if self.local_bytes > self.target.local_bytes:
            raise ActionError("too much local memory", expected=f"<= {self.target.local_bytes}", found=self.local_bytes)
        return node("BUFFER", (shape_source((n,)),), BufferArg(next(self.slots), u.dtype, None, "LOCAL"))


def _flat(values: dict[UOp, UOp]) -> UOp:
    """The number of the slot with these values of ranges."""
    at = idx(0)
    for r, v in values.items():
        at = at * min_max(r.src[0])[1] + v
    return at


def _is_global(e: UOp) -> bool:
    """Whether an effect is on memory that outlives the kernel."""
    view = e.src[0]
    while view.src and view.op not in ("PARAM", "BUFFER"):
        view = view.src[0]
    return view.op == "PARAM" or view.arg.addrspace == "GLOBAL"

"""List the axes of a kernel, and the facts that decide which actions on them are legal.

Output axes come first, in loop order, then reduction axes. Parts of type UPCAST or UNROLL, and without workgroups
GROUP_REDUCE, are "shaped": axes of a value (a vector or tile), not loops. An outer part of type LOOP that SPLIT made
with `top` is a block loop: it encloses all loops but threads. Of several block loops the first made is outermost.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Self

from monolect.base.dtype import dtypes
from monolect.base.settings import settings
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import min_max, ranges
from monolect.ir.check.custom_kernels import check_target, has_axes
from monolect.ir.digest import digests
from monolect.ir.ops import KernelInfo, LoadArg
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, nodes_of, toposort
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.scratch import ScratchBuffers
from monolect.optimize.loops.sequence import (
    atomic_ranges,
    carried_ranges,
    private_local_ranges,
    running_ranges,
    scan_depths,
    sequential_ranges,
)
from monolect.optimize.loops.workgroup import Workgroup

Action = tuple[str, Any, Any]  # (op, number of an axis, load or store, argument)
Ends = tuple[Any, ...]  # lengths of the sections of a peeled loop, or ("mask", last)


class Limit(NamedTuple):
    """The limit `constant + sum(step * r)` of a masked softmax: the mask hides all keys k at or above it.

    `steps`: {loop r around the softmax: its step}. `readers`: {loop that fills a scratch buffer: the loops that read
    that buffer}, for the buffers of the scores and of the exponentials. `lowest`: the smallest value of the limit; 0 or
    less if the mask may hide all scores of a row.
    """

    constant: int
    steps: dict[UOp, int]
    readers: dict[UOp, tuple[UOp, ...]]
    lowest: int


class LoopNest:
    """The axes of the kernel `sink` after the actions performed so far, and the facts that decide which actions are
    legal.

    `axes` lists the parts of the axes. The subclass `LoopPlan` (`optimize.actions.plan`) has the method that performs
    actions.
    """

    def __init__(self, sink: UOp, target: Target):
        self.sink, self.target = sink, target
        self.order = nodes_of(sink)
        self.is_given = has_axes(self.order)  # a user fixed the axis types: no action is legal
        if self.is_given:
            check_target(self.order, target)
        self.reduces = [u for u in self.order if u.op == "REDUCE" and len(u.src) > 1]
        self.scratch = ScratchBuffers(self.order)
        ends = [u for u in self.order if u.op == "END"]
        outs = {r: None for u in sorted(ends, key=lambda e: -len(e.src)) for r in u.src[1:]}
        self.sequential, self.carried = sequential_ranges(self.order), carried_ranges(self.order)
        self.private_local = private_local_ranges(self.order)
        self.atomic = atomic_ranges(self.order, target.atomics) if target.workgroups else frozenset()
        self.running = running_ranges(self.order) if self.sequential else frozenset()
        # loops of the smallest nest inside r
        nest = {r: min(len(self.scratch.loops(u)) for u in ends if r in u.src) for r in outs}
        depth = scan_depths(self.order) if self.sequential else {}
        self.outputs = sorted(outs, key=lambda r: (nest[r], r in self.carried, depth.get(r, 0), r.arg[0]))
        self.reduced = sorted({r: None for u in self.reduces for r in u.src[1:]}, key=lambda r: r.arg[0])
        self.padded: dict[UOp, int] = {}  # padded axes, and the multiple each is padded to
        self.actions: list[Action] = []
        self.unit: MatrixUnit | None = None
        self.sides: tuple[UOp, ...] = ()  # for a matrix unit of a warp: the axes of its rows and columns
        self.peeled: dict[AxisPart, Ends] = {}  # peeled loops, and the lengths of their sections
        self.packs: dict[UOp, int] = {}  # packed loads, and the number of buffers of each
        self.frozen = frozenset(sink.arg.frozen if isinstance(sink.arg, KernelInfo) else ())
        self.bounded: Limit | None = None  # where loops over a mask's hidden iterations end
        # the new arg of a LOAD or STORE, or ("rows", n) to prefetch
        self.flags: dict[UOp, LoadArg | str | tuple[str, int]] = {}
        self.locals = True
        # vectors written by the user or a sorting network
        self.has_vectors = any(u.shape and _is_vector(u) for u in self.order)
        self.workgroup = Workgroup(self.order, self.reduces, target) if target.workgroups else None
        self.axes: list[AxisPart] = [AxisPart(r, self.size(r), 1, "LOOP") for r in self.outputs]
        self.axes += [AxisPart(r, self.size(r), 1, "REDUCE") for r in self.reduced]

    @property
    def units(self) -> list[MatrixUnit]:
        """The matrix units of the target that TC may choose. Units of a warp that take float32 operands round them, so
        they are left out unless the setting TF32 is on.
        """
        return [u for u in self.target.units if settings.TF32 or u.a is not dtypes.float32 or not u.threads]

    @property
    def next_created(self) -> int:
        """The value of `AxisPart.created` for the part that the next action makes. Values are 64 apart, as one action
        may make several parts.
        """
        return 64 * (len(self.actions) + 1)

    def copy(self) -> Self:
        """Return a copy of the plan on which actions can be tried without a change of this plan."""
        out = copy(self)
        out.axes, out.actions = list(self.axes), list(self.actions)
        out.padded, out.packs, out.flags = dict(self.padded), dict(self.packs), dict(self.flags)
        out.peeled = dict(self.peeled)
        return out

    @staticmethod
    def size(r: UOp) -> int:
        """Number of iterations of the RANGE r; 0 if it is symbolic."""
        return r.src[0].value if r.src[0].op == "CONST" else 0

    def divisor(self, r: UOp) -> int:
        """Return a number that is known to divide the number of iterations of the RANGE r: its size if that is
        constant; else the constant factor of the symbolic size, or the multiple to which the axis is padded. At least
        1.
        """
        n = r.src[0].src[1] if r.src[0].op == "MUL" else r.src[0]
        return max(n.value if n.op == "CONST" else 1, self.padded.get(r, 1) if not self.size(r) else 1)

    def extent(self, r: UOp) -> int:
        """Return the number of iterations of the RANGE r, or an estimate of it for a symbolic size: a quarter of the
        maximum, or the minimum if that is larger.
        """
        if n := self.size(r):
            return n
        low, high = min_max(r.src[0])
        return max(1, low, high // 4)

    def axis_of(self, root: UOp, type_: str | None = None) -> int:
        """Return the index in `axes` of the first part of the RANGE `root`; if `type_` is given, of the first part of
        that axis type.
        """
        return next(i for i, p in enumerate(self.axes) if p.root is root and type_ in (None, p.type))

    @property
    def factors(self) -> list[UOp]:
        """The two LOADs whose products the kernel's only sum adds up, without casts. Only for plans with a matrix unit
        of a warp.
        """
        return [x.src[0] if x.op == "CAST" else x for x in self.reduces[0].src[0].src]

    @cached_property
    def loads(self) -> list[UOp]:
        """The LOADs with an index, in an order that is the same in every process. Actions number loads by this
        order.
        """
        return self._in_stable_order(
            [u for u in self.order if u.op == "LOAD" and u.src[0].op == "INDEX" and len(u.src[0].src) > 1]
        )

    @cached_property
    def stores(self) -> list[UOp]:
        """The STOREs and ATOMICADDs with an index, in an order that is the same in every process. Actions number stores
        by this order.
        """
        found = [u for u in self.order if u.op in ("STORE", "ATOMICADD") and u.src[0].op == "INDEX"]
        return self._in_stable_order(found)

    def _in_stable_order(self, accesses: list[UOp]) -> list[UOp]:
        """Return the LOADs or STOREs `accesses`, sorted by PARAM slot, then by their digests, which are the same in
        every process.
        """
        slots = {u: u.src[0].src[0].arg.slot if u.src[0].src[0].op == "PARAM" else -1 for u in accesses}
        if len({*slots.values()}) == len(slots):
            return sorted(slots, key=slots.__getitem__)  # without digests, as those of the whole kernel take long
        names = digests(self.sink)
        return sorted(slots, key=lambda u: (slots[u], names[u]))

    @property
    def shapes(self) -> tuple[str, ...]:
        """The axis types whose parts are "shaped": axes of a value (a vector or tile) instead of loops. These are
        UPCAST and UNROLL, and GROUP_REDUCE on targets without workgroups; with workgroups, GROUP_REDUCE parts are lanes
        of the workgroup.
        """
        return ("UPCAST", "UNROLL") if self.workgroup else ("UPCAST", "UNROLL", "GROUP_REDUCE")

    def shaped_elements(self, root: UOp) -> int:
        """Number of elements of the largest vector or tile computed inside the loop of the RANGE `root`: the product of
        the sizes of the parts in its loop nest that are axes of a value (types `shapes`).
        """
        shaped = [p for p in self.axes if p.type in self.shapes]
        nests = {ranges(u.src[0]) for u in self.order if u.op in ("END", "REDUCE")}
        return max((prod(p.size for p in shaped if p.root in rs) for rs in nests if root in rs), default=1)

    def lane(self, u: UOp) -> UOp | None:
        """Return the RANGE whose elements are the vector lanes of the node `u`, or None if `u` is not vectorized. Among
        the UPCAST parts of the loops around `u`, the part created first makes the lanes.
        """
        nest = self.scratch.nest(u) if self.scratch.fills else None
        shaped = (p for p in self.axes if p.type == "UPCAST" and (nest is None or p.root in nest))
        return next((p.root for p in sorted(shaped, key=lambda p: p.created)), None)

    def is_frozen(self, u: UOp) -> bool:
        """Whether the LOAD `u` reads a PARAM that has the same contents at every run, such as a weight."""
        memory = memory_of(u.src[0])
        return memory.op == "PARAM" and memory.arg.slot in self.frozen

    @property
    def epilogue(self) -> list[UOp]:
        """The nodes from the kernel's store down to its only sum: the elementwise work on the sum and the sum itself,
        without the sum's sources.
        """
        return toposort(self.stores[0], stop=lambda u: u is self.reduces[0])


def _is_vector(u: UOp) -> bool:
    """Whether the node `u`, which has a shape, is a vector of values or indices, rather than memory or the shape of a
    memory.
    """
    return u.op not in ("PARAM", "BUFFER", "AFTER") and (u.op != "STACK" or u.dtype is not dtypes.index)


__all__ = ["Action", "Ends", "Limit", "LoopNest"]

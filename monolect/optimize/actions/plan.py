"""Define the optimizer's actions: legal transformations of the loops of a kernel, as data.

A LoopPlan lists the axes of one kernel: output axes in loop order, then reduction axes. An action is (op, axis, arg):
  ("SPLIT", axis, (k, target, top))  split an axis of n iterations into (n/k, k), or (k, n/k) if top; the new part has
                                     axis type `target`; threads take iterations round-robin if not top, or if the
                                     size is symbolic
  ("PADTO", axis, m)                 grow the axis, or its outer loop, to the next multiple of m, guarded by masks
  ("SWAP", axis, other)              interchange two axes of one kind
  ("PEEL", axis, (first, last))      peel the first and last iterations of a loop; lengths of more sections may follow
                                     the first
  ("PEEL", axis, ("mask", last))     peel the iterations before, at and behind the edge of a mask that moves with the
                                     loops around, and the last ones
  ("PACK", load, None)               copy the block of memory that LOAD number `load` reads to local memory first
  ("PACK", load, 2)                  double buffer: read the next step's block while this one is used; more buffers
                                     where the target copies boxes of memory asynchronously
  ("BOUND", axis, None)              end the loops over `axis` and its readers where a mask hides the rest from all rows
  ("NONTEMPORAL", store, None)       make STORE number `store` bypass the caches
  ("PREFETCH", load, n)              LOAD number `load` prefetches the line n bytes after its address
  ("PREFETCH", load, "next")         ... its share of the next block, where blocks are packed once
  ("PREFETCH", load, ("rows", n))    ... the row that the index tensor names n iterations later
  ("NOLOCALS", None, None)           use no local memory and no workgroup dimensions
  ("TC", axis, unit)                 make steps of a reduction one step of the target's matrix unit of that name
  ("TC", axis, (unit, rows, columns))  likewise for a unit that a warp shares, with parts of the axes rows and columns
A SPLIT to LOOP from the top makes blocks: loops around all others but threads, the first made outermost. They are the
cache blocks; a PACK copies at the innermost block loop that its load depends on. A sum may have two block loops:
groups, and blocks. PACK, NONTEMPORAL and PREFETCH depend on every loop, so only they may follow each other.
`LoopPlan.act` performs an action or raises ActionError with the reason. `apply.apply_plan` turns a plan into IR.

Parts of type UPCAST or UNROLL, and without workgroups GROUP_REDUCE, become shape: axes of a value, not loops.

Invariant: no legal sequence changes the kernel's result, beyond the order of float additions.
Source: the OptOps table of the specification.
"""

from __future__ import annotations

from copy import copy
from functools import cached_property
from math import prod
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import ActionError
from monolect.base.settings import settings
from monolect.base.target import MatrixUnit, Target
from monolect.ir.bounds import min_max, ranges
from monolect.ir.check.custom_kernels import check_target, has_axes
from monolect.ir.digest import digests
from monolect.ir.ops import KernelInfo, LoadArg
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.named_rules import Family, Row, is_on
from monolect.ir.uop import UOp, toposort
from monolect.optimize.actions.causal_bound import Limit, mask_limit
from monolect.optimize.actions.matrix_unit import check
from monolect.optimize.actions.nest import check_blocked, check_thread, nests, sequential_pairs
from monolect.optimize.actions.peel import Ends, check_peel
from monolect.optimize.actions.sequence import (
    atomic_ranges,
    carried_ranges,
    private_local_ranges,
    running_ranges,
    scan_depths,
    sequential_ranges,
)
from monolect.optimize.actions.stages import ScratchBuffers
from monolect.optimize.actions.stream import check_nontemporal, check_prefetch
from monolect.optimize.actions.sums import are_sums_local, block_of_sum, has_accumulator, partial_sum_bytes
from monolect.optimize.actions.workgroup import Workgroup
from monolect.optimize.gpu.blocks import block_of
from monolect.optimize.gpu.warp import in_warp

Action = tuple[str, Any, Any]

# target axis type -> (the types it may be split from, the sides it may be taken from)
SPLIT_RULES: dict[str, tuple[tuple[str, ...], tuple[bool, ...]]] = {
    "LOOP": (("LOOP", "REDUCE"), (False, True)),
    "REDUCE": (("REDUCE",), (False, True)),
    "GLOBAL": (("LOOP",), (False, True)),
    "LOCAL": (("LOOP", "GLOBAL"), (False,)),
    "THREAD": (("LOOP", "GLOBAL"), (True, False)),
    "GROUP_REDUCE": (("REDUCE",), (False, True)),
    "UPCAST": (("LOOP", "LOCAL", "GLOBAL"), (False,)),
    "UNROLL": (("REDUCE", "GROUP_REDUCE"), (False,)),
}
ACTIONS = Family(
    "actions", __name__,
    Row("SPLIT_LOOP", "a loop becomes two, one inside the other, or blocks around all others"),
    Row("SPLIT_REDUCE", "the loop of a reduction becomes two, or steps through blocks of a workgroup's memory"),
    Row("SPLIT_GLOBAL", "iterations become workgroups"),
    Row("SPLIT_LOCAL", "iterations become lanes of a workgroup"),
    Row("SPLIT_THREAD", "iterations are shared out to threads"),
    Row("SPLIT_GROUP_REDUCE", "a reduction has a partial result for each lane"),
    Row("SPLIT_UPCAST", "iterations become elements of a vector or a tile"),
    Row("SPLIT_UNROLL", "several steps of a reduction are written out in one step of its loop"),
    Row("PADTO", "an axis grows to a multiple, guarded by masks"),
    Row("SWAP", "two loops of the nest are exchanged"),
    Row("PEEL", "the first and last iterations of a loop are peeled off"),
    Row("PACK", "the block of memory that a load reads is first copied to local memory"),
    Row("BOUND", "loops end where a mask hides the rest"),
    Row("NONTEMPORAL", "a store bypasses the caches"),
    Row("PREFETCH", "a load prefetches memory ahead of its address"),
    Row("NOLOCALS", "no local memory, no workgroup dimensions"),
    Row("TC", "steps of a sum become steps of a matrix unit"),
)  # fmt: skip
MAX_SHAPED_ELEMENTS = 2048  # elements; a split that makes a shaped value larger is refused


def row_name(action: Action) -> str:
    """Return the name of an action in ACTIONS: its op, followed by the axis type for a SPLIT."""
    op, _, arg = action
    return f"{op}_{arg[1]}" if op == "SPLIT" and isinstance(arg, tuple) and len(arg) > 1 else op


def allowed(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return `actions` up to the first that DISABLE names; later actions depend on it."""
    first = next((k for k, a in enumerate(actions) if not is_on(row_name(a))), len(actions))
    return actions[:first]


class AxisPart:
    """One loop of a split axis: `size` iterations, each worth `stride` elements of the axis. Size 0 is symbolic."""

    def __init__(self, root: UOp, size: int, stride: int, type: str, clipped: bool = False, created: int = 0):
        self.root, self.size, self.stride, self.type = root, size, stride, type
        self.clipped = clipped  # the last outer iteration runs fewer iterations: the bound depends on the outer part
        self.created = created  # order of creation: the first UPCAST is the vector lane; block loops nest in it
        self.round_robin_with: AxisPart | None = None  # the threads that take the iterations round-robin

    def has_iterations_for(self, n: int) -> bool:
        """Whether the loop has at least n iterations; True for a symbolic size."""
        return self.size >= n or not self.size

    @property
    def is_block(self) -> bool:
        """True for a loop that SPLIT took from the top: it encloses the other loops."""
        return self.type == "LOOP" and self.created > 0

    @property
    def is_step(self) -> bool:
        """True for a reduction loop that SPLIT took from the top: a step through blocks of a workgroup's memory."""
        return self.type == "REDUCE" and self.created > 0


class LoopPlan:
    """The axes of a kernel, the actions performed so far, and the facts that decide which actions are legal."""

    def __init__(self, sink: UOp, target: Target):
        self.sink, self.target = sink, target
        self.order = toposort(sink)
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
        self.workgroup = Workgroup(self) if target.workgroups else None
        self.axes: list[AxisPart] = [AxisPart(r, self.size(r), 1, "LOOP") for r in self.outputs]
        self.axes += [AxisPart(r, self.size(r), 1, "REDUCE") for r in self.reduced]

    @property
    def units(self) -> list[MatrixUnit]:
        """The matrix units of the target that may be chosen; those that round float32 only if TF32 allows it."""
        return [u for u in self.target.units if settings.TF32 or u.a is not dtypes.float32 or not u.threads]

    @property
    def next_created(self) -> int:
        """The value of `created` for the next part; one action may make several parts."""
        return 64 * (len(self.actions) + 1)

    def copy(self) -> LoopPlan:
        """Return a plan to try actions on; they do not affect this plan."""
        out = copy(self)
        out.axes, out.actions = list(self.axes), list(self.actions)
        out.padded, out.packs, out.flags = dict(self.padded), dict(self.packs), dict(self.flags)
        out.peeled = dict(self.peeled)
        return out

    @staticmethod
    def size(r: UOp) -> int:
        """The constant size of a range, 0 when it is symbolic."""
        return r.src[0].value if r.src[0].op == "CONST" else 0

    def divisor(self, r: UOp) -> int:
        """Return a known divisor of the number of iterations of a range: for a constant range, its size."""
        n = r.src[0].src[1] if r.src[0].op == "MUL" else r.src[0]
        return max(n.value if n.op == "CONST" else 1, self.padded.get(r, 1) if not self.size(r) else 1)

    def extent(self, r: UOp) -> int:
        """Return the number of iterations to estimate with.

        For a symbolic range it is a quarter of the maximum, or the minimum if that is larger.
        """
        if n := self.size(r):
            return n
        low, high = min_max(r.src[0])
        return max(1, low, high // 4)

    def axis_of(self, root: UOp, type_: str | None = None) -> int:
        """Return the index of the first axis that belongs to `root`, and has that type if one is given."""
        return next(i for i, p in enumerate(self.axes) if p.root is root and type_ in (None, p.type))

    @property
    def factors(self) -> list[UOp]:
        """The two loads whose products the kernel's only sum adds up, for a matrix unit of a warp."""
        return [x.src[0] if x.op == "CAST" else x for x in self.reduces[0].src[0].src]

    @cached_property
    def loads(self) -> list[UOp]:
        """The loads at an index, in an order that is the same in every process."""
        return self._in_stable_order(
            [u for u in self.order if u.op == "LOAD" and u.src[0].op == "INDEX" and len(u.src[0].src) > 1]
        )

    @cached_property
    def stores(self) -> list[UOp]:
        """The stores at an index, in an order that is the same in every process."""
        found = [u for u in self.order if u.op in ("STORE", "ATOMICADD") and u.src[0].op == "INDEX"]
        return self._in_stable_order(found)

    def _in_stable_order(self, found: list[UOp]) -> list[UOp]:
        """Sort accesses by slot, then by their digests, which are the same in every process."""
        names = digests(self.sink)
        return sorted(
            found, key=lambda u: (u.src[0].src[0].arg.slot if u.src[0].src[0].op == "PARAM" else -1, names[u])
        )

    @property
    def shapes(self) -> tuple[str, ...]:
        """The axis types that become shape. With workgroups, GROUP_REDUCE axes are lanes of the workgroup instead."""
        return ("UPCAST", "UNROLL") if self.workgroup else ("UPCAST", "UNROLL", "GROUP_REDUCE")

    def shaped_elements(self, root: UOp) -> int:
        """Number of elements of the largest shaped value inside the loop `root`."""
        shaped = [p for p in self.axes if p.type in self.shapes]
        nests = {ranges(u.src[0]) for u in self.order if u.op in ("END", "REDUCE")}
        return max((prod(p.size for p in shaped if p.root in rs) for rs in nests if root in rs), default=1)

    def lane(self, u: UOp) -> UOp | None:
        """The RANGE whose first UPCAST part is the vector lane where `u` is computed."""
        nest = self.scratch.nest(u) if self.scratch.fills else None
        shaped = (p for p in self.axes if p.type == "UPCAST" and (nest is None or p.root in nest))
        return next((p.root for p in sorted(shaped, key=lambda p: p.created)), None)

    def is_frozen(self, u: UOp) -> bool:
        """Whether the load `u` reads memory that has the same contents at every run."""
        memory = memory_of(u.src[0])
        return memory.op == "PARAM" and memory.arg.slot in self.frozen

    def act(self, action: Action) -> None:
        """Perform `action`. Raises ActionError naming the rule it breaks; the plan is then unchanged."""
        op, axis, arg = action
        if not is_on(name := row_name(action)):
            raise ActionError(f"{name} is switched off", expected="DISABLE without it", found=settings.DISABLE)
        if self.is_given:
            raise ActionError(
                f"{op} of a kernel whose axis types a user fixed", expected="LOOP and REDUCE ranges", found=op
            )
        if op == "NOLOCALS":
            self._without_locals()
        elif op == "TC":
            self._contract(axis, arg)
        elif op == "PACK":
            self._pack(axis, arg or 1)
        elif op in ("NONTEMPORAL", "PREFETCH"):
            made = check_nontemporal(self, axis) if op == "NONTEMPORAL" else check_prefetch(self, axis, arg)
            self.flags[made[0]] = made[1]
        elif op not in ("SPLIT", "PADTO", "SWAP", "PEEL", "BOUND"):
            expected = "SPLIT, PADTO, SWAP, PEEL, BOUND, PACK, NONTEMPORAL, PREFETCH, NOLOCALS or TC"
            raise ActionError("unknown action", expected=expected, found=op)
        elif self.packs or self.flags:
            raise ActionError(f"{op} after PACK, NONTEMPORAL or PREFETCH", expected="only one of those", found=op)
        elif not isinstance(axis, int) or not 0 <= axis < len(self.axes):
            raise ActionError(f"{op}: no such axis", expected=f"0..{len(self.axes) - 1}", found=axis)
        elif op != "SWAP" and any(p.root is self.axes[axis].root for p in self.peeled):
            raise ActionError(f"{op} of a peeled axis", expected="SWAP, or another axis", found=op)
        elif op in ("SPLIT", "PADTO", "SWAP") and any("mask" in ends for ends in self.peeled.values()):
            raise ActionError(f"{op} after PEEL at a mask", expected="no further change of the loops", found=op)
        elif op == "SPLIT":
            self._split(axis, *arg)
        elif op == "PEEL":
            self.peeled[self.axes[axis]] = check_peel(self, self.axes[axis], arg)
        elif op == "BOUND":
            self._bound(axis)
        elif op == "PADTO":
            self._pad(axis, arg)
        else:
            self._swap(axis, arg)
        self.actions.append(action)

    # ---- the actions -------------------------------------------------------------------------------------------------
    def _split(self, axis: int, k: int, target: str, top: bool = False) -> None:
        p = self.axes[axis]
        if target not in SPLIT_RULES:
            raise ActionError("SPLIT target", expected=", ".join(SPLIT_RULES), found=target)
        sources, sides = SPLIT_RULES[target]
        if p.type not in sources:
            raise ActionError(f"SPLIT to {target}", expected=f"an axis of type {' or '.join(sources)}", found=p.type)
        if top not in sides:
            side = "the outer part" if sides[0] else "the inner part"
            raise ActionError(f"SPLIT to {target}", expected=side, found=top)
        if (target in ("GLOBAL", "LOCAL") and not self.target.workgroups) or (target == "THREAD" and self.workgroup):
            kind = "without" if target == "THREAD" else "with"
            raise ActionError(f"SPLIT to {target}", expected=f"a target {kind} workgroups", found=self.target.name)
        round_robin = target == "THREAD" and not (top and p.size)  # each thread takes every k-th iteration
        known = p.size or (k if round_robin else 0 if top else self.divisor(p.root) // p.stride)
        if not isinstance(k, int) or not 1 <= k <= known or (not p.size and known % k):
            expected = f"1..{p.size}" if p.size else f"a divisor of {known}, which divides the symbolic size"
            raise ActionError("SPLIT factor", expected=expected, found=k)
        if any(q.clipped and q.root is p.root and q.stride <= p.stride for q in self.axes):
            raise ActionError("SPLIT of a clipped axis", expected="the inner parts of it", found=p.type)
        if p.round_robin_with is not None:
            raise ActionError("SPLIT of an axis that threads take round-robin", expected="any other axis", found=p.type)
        if round_robin and any(q.root is p.root and q.stride > p.stride for q in self.axes):
            raise ActionError("round-robin SPLIT", expected="the outermost part of an axis", found="an inner part")
        if (
            p.size % k
            and not round_robin
            and not (top and target in ("THREAD", "LOOP") and p.type in ("LOOP", "REDUCE"))
        ):
            raise ActionError("SPLIT factor", expected=f"a divisor of {p.size} (PADTO first)", found=k)
        if p.size % k and any(q.root is p.root and q.stride > p.stride for q in self.axes):
            raise ActionError("SPLIT factor", expected=f"a divisor of {p.size}, this being an inner part", found=k)
        apart = self._may_scan(p) if target == "UPCAST" else p.root in self.atomic and target != "THREAD"
        in_order = p.root in self.sequential and not apart
        if target in ("THREAD", "UPCAST", "LOCAL", "GLOBAL") and (in_order or p.root in self.reduced):
            found = "a scan" if p.root in self.sequential else "blocks of a reduction"
            raise ActionError(f"SPLIT to {target}", expected="an axis whose iterations are independent", found=found)
        around = [q for q in self.axes if q.root is p.root and q.stride > p.stride and not q.is_block]
        if target == "LOOP" and top and p.root in self.sequential and around:  # blocks are around all other loops
            raise ActionError("SPLIT into blocks", expected="the outer part of a scan", found="an inner part")
        if target in ("UPCAST", "LOCAL") and p.root in self.private_local:
            raise ActionError(
                f"SPLIT to {target}", expected="an axis outside of local memory", found="a private table per iteration"
            )
        if target == "GROUP_REDUCE" and self.unit is not None:
            raise ActionError("SPLIT to GROUP_REDUCE", expected="lanes that add separately", found=self.unit.name)
        if target == "THREAD":
            check_thread(self, p, k)
        if target == "LOOP" and p.type == "REDUCE":
            check_blocked(self, p, k, top)
        if target in self.shapes and self.has_vectors:
            raise ActionError(f"SPLIT to {target}", expected="a kernel of scalars", found="one written with vectors")
        if target in self.shapes and (n := self.shaped_elements(p.root) * k) > MAX_SHAPED_ELEMENTS:
            raise ActionError("SPLIT makes values too large", expected=f"<= {MAX_SHAPED_ELEMENTS}", found=n)
        made, shaped = self.next_created, target not in ("LOOP", "REDUCE")
        if round_robin:
            new = [
                AxisPart(p.root, k, p.stride, target, created=made),
                AxisPart(p.root, -(-p.size // k), p.stride * k, p.type),
            ]
            new[1].round_robin_with = new[0]
        elif top:
            inner = -(-p.size // k)
            outer = AxisPart(p.root, k, p.stride * inner, target, created=made)
            rest = AxisPart(p.root, inner, p.stride, p.type, clipped=bool(p.size % k))
            new = [outer, rest]
        else:
            new = [
                AxisPart(p.root, p.size // k, p.stride * k, p.type, created=p.created * (p.type != "LOOP")),
                AxisPart(p.root, k, p.stride, target, created=made * shaped),
            ]
        order = [*self.axes[:axis], *new, *self.axes[axis + 1 :]]
        if self.workgroup:
            self.workgroup.check_split(self, target, p.root, order)
        if top and target == "LOOP" and not nests(self, order):
            raise ActionError(
                "SPLIT into blocks", expected="every reduction's own loops outermost", found="another order"
            )
        self._check_sums(axes=order)
        self.axes = order

    def split_as_given(self, axis: int, target: str) -> None:
        """Make a whole axis one of type `target`, as a user wrote it. Raises ActionError where a SPLIT would."""
        n = self.axes[axis].size
        if not n:
            raise ActionError(f"a {target} range", expected="a constant number of iterations", found="a symbolic one")
        self._split(axis, n, target, SPLIT_RULES[target][1][0])

    def _may_scan(self, p: AxisPart) -> bool:
        """Whether consecutive iterations of a scan may be lanes: their results are a SCAN of a shaped value."""
        lanes = any(q.root is p.root and q.type == "UPCAST" for q in self.axes)
        return p.root in self.running and p.stride == 1 and not lanes

    def _check_sums(self, **changes: Any) -> None:
        """Raise ActionError unless, after `changes`, some memory can hold the partial sums of blocks of a reduction."""
        then = copy(self)
        vars(then).update(changes)
        if not has_accumulator(then):
            expected = f"an output, or {self.target.local_bytes} bytes of local memory, that can hold partial sums"
            raise ActionError("a reduction in blocks", expected=expected, found=f"{partial_sum_bytes(then)} bytes")

    def _pad(self, axis: int, m: int) -> None:
        p = self.axes[axis]
        parts = [q for q in self.axes if q.root is p.root]
        if p.root in self.padded:
            raise ActionError("PADTO", expected="an axis that was not padded before", found=p.type)
        if len(parts) > 1 and not self._may_grow(p, parts):
            expected = "a whole axis, or the outer loop of one of constant size whose parts are all of one size"
            raise ActionError("PADTO after SPLIT", expected=expected, found=p.type)
        if not isinstance(m, int) or m < 2:
            raise ActionError("PADTO", expected="a multiple of at least 2", found=m)
        if not p.size and (self.workgroup or p.root in self.sequential):
            raise ActionError("PADTO", expected="an axis of constant size", found="a symbolic one")
        if p.root in self.sequential - self.running:
            raise ActionError("PADTO", expected="an axis whose iterations are independent", found="a scan")
        grown = AxisPart(p.root, -(-p.size // m) * m, p.stride, p.type, p.clipped, p.created)
        order = [*self.axes[:axis], grown, *self.axes[axis + 1 :]]
        self._check_sums(axes=order)
        self.padded[p.root], self.axes = m * p.stride, order

    @staticmethod
    def _may_grow(p: AxisPart, parts: list[AxisPart]) -> bool:
        """Whether additional iterations of `p` are all beyond the end of its axis."""
        outermost = all(q.stride < p.stride for q in parts if q is not p)
        return (
            outermost
            and p.type in ("LOOP", "REDUCE")
            and not p.created
            and bool(p.size)
            and not any(q.clipped or q.round_robin_with is not None for q in parts)
        )

    def _swap(self, a: int, b: int) -> None:
        if not isinstance(b, int) or not 0 <= b < len(self.axes):
            raise ActionError("SWAP: no such axis", expected=f"0..{len(self.axes) - 1}", found=b)
        pa, pb = self.axes[a], self.axes[b]
        if (pa.root in self.reduced) != (pb.root in self.reduced) or "THREAD" in (pa.type, pb.type):
            raise ActionError("SWAP", expected="two output axes or two reduction axes", found=(pa.type, pb.type))
        if pa.is_block or pb.is_block:
            raise ActionError("SWAP", expected="loops inside the blocks, which nest in the order made", found="a block")
        order = list(self.axes)
        order[a], order[b] = order[b], order[a]
        clipped = [(i, p) for i, p in enumerate(order) if p.clipped]
        if any(q.root is p.root and q.stride > p.stride for i, p in clipped for q in order[i:]):
            raise ActionError("SWAP", expected="a clipped part inside its outer part", found="the reverse")
        if any(p is not q for p, q in sequential_pairs(self, order)):
            raise ActionError("SWAP", expected="an axis whose iterations are independent", found="a scan")
        if not nests(self, order):
            raise ActionError("SWAP", expected="every reduction's own loops outermost", found="another order")
        self.axes = order

    def _bound(self, axis: int) -> None:
        found = mask_limit(self)
        loops = {*found.readers, *(r for rs in found.readers.values() for r in rs)} if found is not None else set()
        if (
            found is None
            or self.axes[axis].root not in found.readers
            or not all(map(self.size, (*loops, *found.steps)))
        ):
            raise ActionError("BOUND", expected="the loop of a masked softmax", found=self.axes[axis].type)
        self.bounded = found

    def _pack(self, load: int, n_buffers: int) -> None:
        found = self.loads
        if not isinstance(load, int) or not 0 <= load < len(found):
            raise ActionError("PACK: no such load", expected=f"0..{len(found) - 1}", found=load)
        u = found[load]
        if not self.locals:
            raise ActionError("PACK after NOLOCALS", expected="local memory", found="none")
        if u in self.packs or u in self.flags:
            raise ActionError("PACK", expected="a load without PACK or PREFETCH", found="one that has it already")
        if block_of_sum(self) is not None and are_sums_local(self) and u in self._epilogue:
            raise ActionError("PACK", expected="a load that the sum uses", found="a load of its epilogue")
        made = block_of(self, u, n_buffers)
        if self.workgroup:
            self.workgroup.check_blocks(self.axes, [made, *(block_of(self, x, n) for x, n in self.packs.items())])
        self.packs[u] = n_buffers

    @property
    def _epilogue(self) -> list[UOp]:
        """The nodes of the kernel's store that are not below its only sum."""
        return toposort(self.stores[0], stop=lambda u: u is self.reduces[0])

    def _contract(self, axis: int, arg: Any) -> None:
        name = arg[0] if isinstance(arg, tuple) else arg
        unit = next((m for m in self.target.units if m.name == name), None)
        names = ", ".join(m.name for m in self.target.units) or "no unit"
        if unit is None:
            raise ActionError(f"TC on {self.target.name}", expected=f"one of {names}", found=name)
        p = self.axes[axis] if isinstance(axis, int) and 0 <= axis < len(self.axes) else None
        if p is None or p.type != "REDUCE" or p.size % unit.k or self.unit or len(self.reduces) != 1 or self.packs:
            expected = f"the kernel's only sum, a multiple of {unit.k} steps, once"
            raise ActionError("TC", expected=expected, found=p.size if p else axis)
        if p.clipped:
            raise ActionError("TC", expected="blocks of one size", found="a smaller last block")
        if unit.threads:
            sides = arg[1:] if isinstance(arg, tuple) else ()
            axes = in_warp(self, unit, axis, *sides)
            self.sides = tuple(self.axes[i].root for i in sides)
            self.axes, self.unit = axes, unit
            return
        shaped = sorted((q for q in self.axes if q.type == "UPCAST"), key=lambda q: q.created)
        check(unit, self.reduces[0], self.lane(self.reduces[0]), p.root)
        rows = prod(q.size for q in shaped if q.root is not shaped[0].root)
        if shaped[0].size != unit.n or rows % unit.m or any(q.type in ("UNROLL", "GROUP_REDUCE") for q in self.axes):
            raise ActionError("TC", expected=f"{unit.n} lanes, a multiple of {unit.m} rows", found=shaped[0].size)
        depth = [(unit.k // unit.pair, unit.pair), (unit.pair, 1)]
        parts = [AxisPart(p.root, n, p.stride * stride, "CONTRACT") for n, stride in depth if n > 1]
        self.axes[axis : axis + 1] = [AxisPart(p.root, p.size // unit.k, p.stride * unit.k, "REDUCE"), *parts]
        self.unit = unit

    def _without_locals(self) -> None:
        if self.packs or any(p.type in ("LOCAL", "GROUP_REDUCE") and self.workgroup for p in self.axes):
            raise ActionError("NOLOCALS", expected="no local memory in use yet", found="lanes, or a packed load")
        self._check_sums(locals=False)
        self.locals = False


def _is_vector(u: UOp) -> bool:
    """Whether a node with a shape is a value or a vector of indices, rather than memory or a memory's shape."""
    return u.op not in ("PARAM", "BUFFER", "AFTER") and (u.op != "STACK" or u.dtype is not dtypes.index)


__all__ = ["ACTIONS", "Action", "AxisPart", "LoopPlan", "SPLIT_RULES", "allowed", "row_name"]

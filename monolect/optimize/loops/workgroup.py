"""Check actions on a target with workgroups: the axes that lanes and workgroups may share, and the device's limits.

Workgroups run in any order, and so do the lanes of one between two BARRIERs. So an axis may be shared out if no
iteration reads memory that another writes. A kernel that contains a LOCAL buffer before any action (a table or
scratch values) has one lane per workgroup, as all lanes would share the buffer. Lanes, workgroups and local memory are
counted as the pass `lower.gpu.device_axes` counts them.

Invariant: that pass accepts a kernel that is legal here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.bounds import ranges
from monolect.ir.lanes import MOST_SLOTS, fitted, in_warp, shared_lanes
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.scratch import is_local

LANES = ("LOCAL", "GROUP_REDUCE")


class Workgroup:
    """Facts about one kernel on a target with workgroups, and checks that an action exceeds no limit of the target.

    `order`: the nodes of the kernel. `reduces`: its REDUCEs over RANGEs. Methods that depend on the parts of the axes
    take them as the argument `axes`.
    """

    def __init__(self, order: Sequence[UOp], reduces: list[UOp], target: Target):
        self.order, self.reduces, self.target = order, reduces, target

    # ---- the kernel --------------------------------------------------------------------------------------------------
    @cached_property
    def has_local_buffer(self) -> bool:
        """Whether the kernel contains a LOCAL buffer before any action: scratch values or a table."""
        return any(is_local(u) for u in self.order)

    @cached_property
    def fills(self) -> frozenset[UOp]:
        """The RANGEs of loops that end with a store to a BUFFER (local memory or registers) of the kernel: each
        workgroup runs all of their iterations.
        """
        ends = [u for u in self.order if u.op == "END" and u.src[0].op == "STORE"]
        return frozenset(r for u in ends if memory_of(u.src[0].src[0]).op == "BUFFER" for r in u.src[1:])

    @cached_property
    def reads_back(self) -> bool:
        """Whether the kernel reads or rewrites an element that it writes, other than at the same index. Then lanes and
        workgroups must not divide loops freely.
        """
        writes = [u for u in self.order if u.op in ("STORE", "ATOMICADD")]
        written = {m: u.src[0] for u in writes if (m := memory_of(u.src[0])).op == "PARAM"}
        accesses = (u for u in self.order if u.op in ("LOAD", "STORE", "ATOMICADD"))
        return any(written.get(memory_of(u.src[0]), u.src[0]) is not u.src[0] for u in accesses)

    def encloses(self, r: UOp) -> bool:
        """Whether every loop and every store to a PARAM is inside of the loop of the RANGE r."""
        loops = [u for u in self.order if u.op == "END" or (u.op == "REDUCE" and len(u.src) > 1)]
        writes = [u for u in self.order if u.op in ("STORE", "ATOMICADD") and memory_of(u.src[0]).op == "PARAM"]
        return all(r in u.src or r in ranges(u) for u in loops) and all(r in ranges(u) for u in writes)

    @cached_property
    def nests(self) -> frozenset[frozenset[UOp]]:
        """The sets of RANGEs that the kernel's nodes depend on: one set for each distinct loop nest."""
        return frozenset(ranges(u) for u in self.order)

    # ---- the axes ----------------------------------------------------------------------------------------------------
    def dims(self, axes: list[AxisPart]) -> list[list[AxisPart]]:
        """Return the dimensions of a workgroup, fastest-varying first, for a plan whose parts are `axes`. Each
        dimension is a list of LOCAL or GROUP_REDUCE parts whose iterations are the same lanes, in different loop nests.
        """
        lanes = sorted((p for p in axes if p.type in LANES), key=lambda p: p.created)
        nests = {frozenset(p for p in lanes if p.root in rs) for rs in self.nests}
        return shared_lanes([(p, p.size) for p in lanes], nests)

    def n_lanes(self, axes: list[AxisPart]) -> int:
        """Number of lanes (work-items) of a workgroup, for a plan whose parts are `axes`."""
        return prod(mine[0].size for mine in self.dims(axes))

    def slot_bytes(self, axes: list[AxisPart]) -> int:
        """Bytes of local memory through which the lanes of a workgroup combine their partial results (GROUP_REDUCE),
        for a plan whose parts are `axes`.
        """
        lanes, total, dims = self.n_lanes(axes), 0, self.dims(axes)
        sizes = [mine[0].size for mine in dims]
        for u in self.reduces:
            joined = [
                k for k, mine in enumerate(dims) if any(p.type == "GROUP_REDUCE" and p.root in u.src for p in mine)
            ]
            n = prod(sizes[k] for k in joined)
            if self.target.shuffles:
                n //= prod(1 << len(bits) for bits in in_warp(sizes, joined, self.target.warp).values())
            if n > 1:
                shaped = prod(p.size for p in axes if p.type == "UPCAST" and p.root in ranges(u))
                total += lanes * shaped * u.dtype.itemsize * (2 if n > MOST_SLOTS else 1)
        return total

    # ---- checks ------------------------------------------------------------------------------------------------------
    def check_split(self, target: str, root: UOp, axes: list[AxisPart], has_locals: bool) -> None:
        """Raise ActionError if a SPLIT of the RANGE `root` to the axis type `target` is illegal on the target.

        `axes`: the parts after the split. `has_locals`: False after the action NOLOCALS.
        """
        what = f"SPLIT to {target}"
        if target in ("GLOBAL", "LOCAL"):
            if root in self.fills:
                raise ActionError(what, expected="an axis around local memory", found="the loop that fills it")
            if self.reads_back and not self.encloses(root):
                raise ActionError(what, expected="an axis that encloses every loop", found="memory that is read again")
        if target in LANES:
            if self.has_local_buffer or not has_locals:
                found = "memory of its own" if self.has_local_buffer else "NOLOCALS"
                raise ActionError(what, expected="a kernel without local memory yet", found=found)
            if target == "GROUP_REDUCE" and self.reads_back:
                raise ActionError(what, expected="memory that is read or written", found="memory that is read again")
            self._check_lanes(what, axes)
        if target == "GLOBAL":
            self._check_grid(axes)
        if target in ("LOCAL", "GROUP_REDUCE", "UPCAST"):
            self._check_bytes(what, self.slot_bytes(axes))

    def _check_lanes(self, what: str, axes: list[AxisPart]) -> None:
        """Raise ActionError if the parts `axes` make more lanes in a workgroup, or in one of its dimensions, than the
        target allows. `what`: the action, for the error's text.
        """
        dims = [mine[0].size for mine in self.dims(axes)]
        if self.target.max_local and prod(dims) > self.target.max_local:
            raise ActionError(f"{what}: too many lanes", expected=f"<= {self.target.max_local}", found=prod(dims))
        if self.target.max_block:
            fitted(dims, self.target.max_block, "lidx")

    def _check_grid(self, axes: list[AxisPart]) -> None:
        """Raise ActionError if the GLOBAL parts of `axes` (workgroups) exceed the dimensions of the target's grid."""
        groups = [p.size for p in sorted(axes, key=lambda p: p.created) if p.type == "GLOBAL"]
        if self.target.max_grid:
            fitted(groups, self.target.max_grid)

    def _check_bytes(self, what: str, n: int) -> None:
        """Raise ActionError if `n` bytes exceed the local memory of a workgroup. `what`: the action, for the error's
        text.
        """
        if n > self.target.local_bytes:
            raise ActionError(f"{what}: local memory is too large", expected=f"<= {self.target.local_bytes}", found=n)

    def check_blocks(self, axes: list[AxisPart], n_bytes: int) -> None:
        """Raise ActionError if packed blocks of `n_bytes`, plus the local memory through which lanes combine partial
        results, exceed the local memory of a workgroup. `axes`: the parts of the plan.
        """
        self._check_bytes("PACK", self.slot_bytes(axes) + n_bytes)


__all__ = ["Workgroup"]

"""Choose the actions for targets with workgroups: the loops that become workgroups, and those that become their lanes.

Accesses are coalesced: the axis along which stores are contiguous makes the first lanes, with several elements each
where those are one aligned access. Where reductions have few outputs, or are contiguous in memory, the lanes of a
workgroup share each reduction, and then the loop that uses its result. A transpose goes through local memory, in
squares. All other loops become workgroups. `tiles` chooses for sums of products that reuse their operands.

Source: the rules of coalesced access; sizes come from the target.
"""

from __future__ import annotations

from math import prod

from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp
from monolect.optimize.choices import Choices
from monolect.optimize.cost import StridedAccess
from monolect.optimize.gpu.tiles import WorkgroupTiles
from monolect.optimize.tuning import (
    GRID_ROW_GROUPS,
    MAX_LANES,
    MIN_COLUMN_LANES,
    MIN_TERMS_PER_LANE,
    SQUARE_LANE_ROWS,
    SQUARE_SIDE,
    SYMBOLIC_EXTENT,
)


class Groups:
    """Choose the workgroups and lanes of one kernel on a target with workgroups, and perform the actions through
    `chooser.act`.
    """

    def __init__(self, chooser: Choices):
        self.chooser, self.plan, self.profile = chooser, chooser.plan, chooser.profile
        self.target = chooser.plan.target
        self.act, self.size, self.axis_of = chooser.act, chooser.plan.size, chooser.plan.axis_of
        self.most = min(MAX_LANES, self.target.max_local or MAX_LANES)
        in_order = self.plan.sequential - self.plan.atomic
        self.free = [r for r in self.plan.outputs if r not in in_order and self.size(r) > 1]

    def run(self) -> None:
        """Choose and perform all actions of the kernel."""
        workgroup = self.plan.workgroup
        assert workgroup is not None
        if not workgroup.has_local_buffer:
            contracted = [j for j in self.plan.reduced if self.profile.reuses(j)]
            if (
                not (contracted and WorkgroupTiles(self.chooser, contracted).run())
                and not self.shared_reductions()
                and not self.squares()
            ):
                self.lanes(self.fastest())
        self.workgroups()

    def n_lanes(self) -> int:
        """Number of lanes that a workgroup has after the actions so far."""
        assert self.plan.workgroup is not None
        return self.plan.workgroup.n_lanes(self.plan.axes)

    # ---- lanes -------------------------------------------------------------------------------------------------------
    def fastest(self) -> UOp | None:
        """Return the output axis along which most stores are contiguous; contiguous loads decide between equals. None
        if no axis may run in any order.
        """
        accesses = [*self.profile.stores * len(self.profile.accesses), *self.profile.loads]
        scores = {r: sum(a.step(r) == 1 for a in accesses) for r in self.free}
        return max(reversed(self.free), key=lambda r: scores[r], default=None)

    def lanes(self, c: UOp | None, most: int = 0) -> None:
        """Make lanes of a workgroup along the RANGE c, then along other output axes, until the workgroup has `most`
        lanes.

        c is None: do nothing. `most` is 0: as many lanes as a workgroup may have.
        """
        if c is None:
            return
        self.lanes_along(c, most or self.most)
        for r in reversed(self.free):
            room = (most or self.most) // self.n_lanes()
            if r is not c and room > 1 and (k := largest_divisor(self.size(r), room)) > 1:
                self.act("SPLIT", self.axis_of(r), (k, "LOCAL", False), "lanes that c leaves room for")

    def lanes_along(self, c: UOp, most: int) -> None:
        """Split the RANGE c into vectors (UPCAST) and at most `most` lanes (LOCAL). Where no good number of lanes
        divides a long axis, pad the axis first.
        """
        n, v = self.size(c), self.vector(c)
        left = n // v
        k = left if left <= most else largest_divisor(left, most)
        if k < left and k % self.target.warp and k < 4 * self.target.warp:
            k = most if left > 4 * most else min(most, self.target.warp)
            if left % k and not self.act("PADTO", self.axis_of(c), k * v, "whole workgroups, the last one masked"):
                return
        elif self.target.max_grid and left // k > self.target.max_grid[0]:
            self.act("PADTO", self.axis_of(c), GRID_ROW_GROUPS * k * v, "a grid of two dimensions")
        if v > 1:
            self.act("SPLIT", self.axis_of(c), (v, "UPCAST", False), f"{v} elements are one access")
        if k > 1:
            self.act("SPLIT", self.axis_of(c), (k, "LOCAL", False), "neighbouring lanes, neighbouring elements")

    def vector(self, c: UOp) -> int:
        """Number of elements along the RANGE c that one lane should take: as many as every access can read or write as
        one aligned vector. 1 if that would leave too few lanes for the device.
        """
        v = self.chooser.lanes
        mine = [a for a in self.profile.accesses if c in a.steps]
        if any(a.step(c) not in (0, 1) for a in mine):
            return 1
        while v > 1 and (self.size(c) % v or any(not aligned(a, c, v) for a in mine)):
            v //= 2
        elements = prod(self.size(r) or SYMBOLIC_EXTENT for r in self.free)
        return v if elements // v >= self.target.n_units * self.target.warp else 1

    # ---- reductions shared by lanes ----------------------------------------------------------------------------------
    def shared_reductions(self) -> bool:
        """Let several lanes of a workgroup divide each reduction that has contiguous operands or few outputs.

        Return False if no reduction was divided, so that each lane computes whole results.
        """
        done = False
        ready: set[UOp] = set()  # reductions whose loop has lanes already
        for j in sorted(
            self.plan.reduced, key=lambda j: (not self.profile.is_contiguous(j, self.profile.inside(j)), -self.size(j))
        ):
            scope = [r for r in self.free if r in self.profile.scope(j)]
            inside, n_out = self.profile.inside(j), prod(self.size(r) for r in scope)
            mine = {u for u in self.plan.reduces if j in u.src[1:]}
            if self.size(j) < 2 * MIN_TERMS_PER_LANE or self.chooser.contains_reduction(j) or mine & ready:
                continue
            ready |= mine
            column = next((r for r in reversed(scope) if self.profile.is_contiguous(r, inside)), None)
            if column is not None and not self.profile.is_contiguous(j, inside):
                done = self.columns(j, column, n_out) or done
            elif self.size(j) >= self.target.warp or n_out < self.target.n_units * self.target.warp:
                done = self.rows(j, scope, n_out) or done
        return done

    def columns(self, j: UOp, c: UOp, n_out: int) -> bool:
        """Make lanes along the output RANGE c, and let several lanes divide the reduction over the RANGE j of each
        output where outputs are few.

        `n_out`: number of outputs. Return False, and do nothing, if there are enough outputs for all lanes of the
        device, or if c has lanes already.
        """
        wanted = self.target.n_units * self.most
        if n_out >= wanted or any(p.root is c and p.type == "LOCAL" for p in self.plan.axes):
            return False
        each = n_out // self.target.n_units
        self.lanes_along(c, max(MIN_COLUMN_LANES, min(2 * self.target.warp, 1 << each.bit_length() - 1 if each else 0)))
        room = min(self.most // max(1, self.n_lanes()), -(-wanted // n_out), self.size(j) // MIN_TERMS_PER_LANE)
        if (k := largest_divisor(self.size(j), room)) > 1:
            self.act("SPLIT", self.axis_of(j), (k, "GROUP_REDUCE", True), f"{k} lanes share each column")
        return True

    def rows(self, j: UOp, scope: list[UOp], n_out: int) -> bool:
        """Let the lanes of a workgroup, or some of them, divide the reduction over the RANGE j of each result. Return
        False if that is illegal.

        `scope`: the output axes around the reduction. `n_out`: number of its results. Loops that use the result get the
        same lanes.
        """
        n = self.size(j)
        k = 1 << max(1, min(self.most, max(n // MIN_TERMS_PER_LANE, min(n // 2, self.target.warp))).bit_length() - 1)
        if n % k and not self.act("PADTO", self.axis_of(j), k, "whole steps of all lanes"):
            return False
        if not self.act("SPLIT", self.axis_of(j), (k, "GROUP_REDUCE", False), f"{k} lanes share a result"):
            return False
        rest = self.plan.axes[self.axis_of(j, "REDUCE")].size
        if rest % MIN_TERMS_PER_LANE == 0:
            self.act(
                "SPLIT",
                self.axis_of(j, "REDUCE"),
                (MIN_TERMS_PER_LANE, "UNROLL", False),
                f"{MIN_TERMS_PER_LANE} loads in flight",
            )
        for c in self.free:  # the loops that use the result get the same lanes
            if c not in scope and not any(p.root is c and p.type == "LOCAL" for p in self.plan.axes):
                v = self.vector(c) if self.size(c) % (k * self.chooser.lanes) == 0 else 1
                if self.size(c) % k == 0 or self.act("PADTO", self.axis_of(c), k, "whole steps of all lanes"):
                    if v > 1:
                        self.act("SPLIT", self.axis_of(c), (v, "UPCAST", False), f"{v} elements are one access")
                    self.act("SPLIT", self.axis_of(c), (k, "LOCAL", False), "the lanes that shared the reduction")
        for r in reversed(scope):
            room = min(self.most // self.n_lanes(), n_out // self.target.n_units)
            if room > 1 and not any(p.root is r and p.type == "LOCAL" for p in self.plan.axes):
                if (m := largest_divisor(self.size(r), room)) > 1:
                    self.act("SPLIT", self.axis_of(r), (m, "LOCAL", False), f"{m} short rows in a workgroup")
        return True

    # ---- squares -----------------------------------------------------------------------------------------------------
    def squares(self) -> bool:
        """If the kernel is a transpose, copy square blocks through local memory, so that loads and stores are both
        coalesced.

        Return False if the kernel is no transpose, or if its axes are too short.
        """
        c = self.fastest()
        if c is None or self.plan.reduced or self.size(c) < SQUARE_SIDE or self.most < SQUARE_SIDE:
            return False
        strided = [a for a in self.profile.loads if a.step(c) not in (0, 1, None)]
        along = [r for r in self.free if r is not c and strided and all(a.step(r) == 1 for a in strided)]
        if not along or self.size(along[0]) < SQUARE_SIDE:
            return False
        for r in (c, along[0]):
            if self.size(r) % SQUARE_SIDE and not self.act(
                "PADTO", self.axis_of(r), SQUARE_SIDE, "whole squares, masked"
            ):
                return False
        self.act("SPLIT", self.axis_of(c), (SQUARE_SIDE, "LOCAL", False), "contiguous in the output")
        d = self.axis_of(along[0])
        each = SQUARE_SIDE // min(SQUARE_LANE_ROWS, self.most // SQUARE_SIDE)
        self.act("SPLIT", d, (SQUARE_SIDE // each, "LOCAL", False), "contiguous in what is read")
        self.act("SPLIT", d, (each, "UPCAST", False), "elements of the square for each lane")
        self.workgroups()
        for a in strided:
            self.act("PACK", self.plan.loads.index(a.uop), None, "transposed in local memory")
        return True

    # ---- workgroups --------------------------------------------------------------------------------------------------
    def workgroups(self) -> None:
        """Make workgroups (GLOBAL) of all remaining loops that are around every reduction, the axis with the first
        lanes first.
        """
        if self.plan.packs:
            return
        around = [self.profile.scope(j) for j in self.plan.reduced]
        made = {p.root: p.created for p in reversed(self.plan.axes) if p.type == "LOCAL"}
        for r in sorted(reversed(self.free), key=lambda r: made.get(r, 1 << 20)):
            if all(r in scope for scope in around):
                for i in [i for i, p in enumerate(self.plan.axes) if p.root is r and p.type == "LOOP" and p.size > 1]:
                    self.act("SPLIT", i, (self.plan.axes[i].size, "GLOBAL", True), "one workgroup each")


def largest_divisor(n: int, most: int) -> int:
    """Return the largest divisor of n that is at most `most`; 1 if there is no larger one."""
    return next((k for k in range(min(n, most), 1, -1) if n % k == 0), 1)


def aligned(a: StridedAccess, c: UOp, v: int) -> bool:
    """Whether v consecutive elements along the RANGE c can be one aligned access: all other strides of the access `a`
    and its constant offset are multiples of v.

    True if the access does not move along c. Whether it is contiguous along c is not checked.
    """
    if a.step(c) == 0:
        return True
    k, terms = linear(a.uop.src[0].src[1])
    return k % v == 0 and all(s % v == 0 for x, s in terms if x is not c)


__all__ = ["Groups", "aligned", "largest_divisor"]

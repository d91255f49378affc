"""Hand-written choice of actions for CPUs: which loop becomes the vector, which tile stays in registers, which threads.

The order of the decisions: the vector axis (contiguous where it is stored, else where it is reduced), a register tile
for reductions that reuse what they read, unrolling for independent accumulators, then threads on an outer loop. Every
choice goes through `Plan.act`, so it is legal or not made. Each carries a reason for DEBUG=3.

Source: the schedules measured for AVX-512 matrix products, row kernels and convolutions; sizes come from the target.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp
from monolect.optimize.actions.peel import border, ends_of_gates, sections_of_gates
from monolect.optimize.actions.plan import Part, Plan
from monolect.optimize.actions.stream import MOST_ROWS, PAGE_BYTES, buffer_bytes, named_by, vector_of
from monolect.optimize.actions.sums import groups
from monolect.optimize.cost import WIDEST_STEP, Access, Profile, counts, operations
from monolect.optimize.cpu.contraction import ROW_AHEAD_BYTES
from monolect.optimize.cpu.dot_products import Dots
from monolect.optimize.cpu.staged import Staged
from monolect.optimize.cpu.tile_cost import L1_WAY_BYTES, QUICK_ROWS, ROWS_AT_ONCE, STREAMED_VECTORS, rows_at_once
from monolect.optimize.gpu.groups import Groups

SHORTEST_VECTOR = 3  # elements for which a vector pays
FAR_BYTES = 1024  # between rows from which on the next row is no neighbour in cache
AHEAD_BYTES = 4096  # how far ahead a stream is asked for
LONG_ROW_BYTES = 64 << 10  # of rows that are worth a stream each: sixteen pages
ROWS_THAT_SHARE = 4  # a vector that multiplies each of them: as many sums as one step of a sum waits for
NEAR_SHARE = 4  # of the last cache: what is no more comes as fast as it is added up
LEAST_ROW = 4  # elements whose sum is a vector
SCANS_AT_ONCE = (4, 5, 3, 7, 2)  # rows of running sums, the best first
MOST_TAPS = 16  # of reductions that are unrolled whole
MANY_VECTORS = (8, 7, 13, 12, 11, 10, 9, 6, 5, 4, 3, 2)  # of sums, at most half of the registers
FEW_OPS = 6  # values in a kernel that leave the other half free
FILLS_MORE = 1.5  # times the lanes, for which it pays to add up those of each sum at its end
LEAST_TO_PEEL = 4  # iterations of a loop, of which then all but one mask nothing
MOST_OPS_TO_PEEL = 400  # values in a kernel that may stand in its code twice or thrice
FEW_OPS_TO_PEEL = 100  # values in a kernel that may stand there nine times
EMPTY_SHARE = 16  # of the vectors of a sum: no more are empty, for more of them in flight
OPS_PER_PICK = 32  # operations of a term for each operand that a vector gathers: lanes times less than one by one
MANY_OPS = 40  # values in a kernel above which unrolling the vector only spills


class Chooser:
    """The decisions for one kernel; `reasons` runs beside `plan.actions`."""

    THREAD_WORK = 1 << 16  # multiply-adds below which waking threads costs more than it saves
    THREAD_CYCLES = 1 << 13  # the same of other kernels, about 2 us: handing over half of one takes 0.4 to 0.8

    def __init__(self, plan: Plan):
        self.plan = plan
        self.profile = Profile(plan)
        self.reasons: list[str] = []
        self.lanes = plan.target.lanes(max(2, min(8, self.profile.itemsize)))
        self.vector: set[UOp] = set()
        self.side_by_side: list[
            tuple[Access, int]
        ] = []  # loads of rows that stream so, how far ahead they are asked for

    def act(self, op: str, axis: int, arg: object, why: str) -> bool:
        try:
            self.plan.act((op, axis, arg))
        except ActionError:
            return False
        self.reasons.append(why)
        return True

    def run(self) -> list[str]:
        if self.plan.workgroup:
            Groups(self).run()
            return self.reasons
        if self.plan.has_vectors:  # what is left are threads
            self.threads()
            return self.reasons
        heavy = [j for j in self.plan.reduced if self.profile.reuses(j)]
        if self.lanes > 1 and self.plan.stages.fills:
            Staged(self).run()
        elif self.lanes > 1:
            if heavy:
                self.tile(heavy)
            else:
                self.vectorize_output()
                self.vectorize_reductions()
        if not any(p.type == "THREAD" for p in self.plan.axes):
            self.threads()
        if not heavy:
            self.peel()
            self.far_memory()
        return self.reasons

    # ---- vectors -----------------------------------------------------------------------------------------------------
    def vectorize_output(self) -> None:
        """The output axis along which stores are contiguous becomes the vector."""
        p = self.profile
        if self.interleave():
            return
        for r in reversed(self.plan.outputs):
            mine = [a for a in p.stores if r in a.steps]
            if not any(a.step(r) == 1 for a in mine) or r in self.plan.sequential - self.plan.running:
                continue
            loads = [a for a in p.loads if r in a.steps]
            rough = [a for a in (*loads, *mine) if a.step(r) not in (0, 1, -1)]
            if rough and self.transpose(r, rough):
                return
            if any(a.step(r) != 1 for a in mine) or self.is_lonely(r) or self.sum_beside(r) is not None:
                continue
            if any(not self.vector.isdisjoint(a.steps) for a in mine):
                continue  # of stores in loops of their own each has its vector
            often = self.most_read(loads)
            if sum(not a.is_near(r) for a in often) * 2 > len(often):
                continue
            if self.split_vector(r, "UPCAST", "contiguous in the output", self.in_flight(r)):
                self.stream_rows(r)
                self.rows_of_scan(r)
                self.unroll_windows()
                self.in_turns(r)
                if self.plan.reduced:
                    return

    def rows_of_scan(self, r: UOp) -> None:
        """Rows of a running sum side by side: a step of one waits for the step before it, those of others do not. Where
        they come from memory they are one stream together, which several at once would cut.
        """
        plan = self.plan
        rows = [c for c in plan.outputs if c not in plan.sequential]
        if r in plan.running and rows and not self.is_far(self.profile.stores):
            n = plan.size(rows[-1])
            k = next((k for k in SCANS_AT_ONCE if n % k == 0 and n >= k * plan.target.n_threads), 1)
            if k > 1:
                self.act("SPLIT", plan.axis_of(rows[-1]), (k, "UPCAST", False), f"{k} rows wait for none of each other")

    def most_read(self, loads: list[Access]) -> list[Access]:
        """Those that each step of the longest sums reads anew; all where none is summed."""
        steps = [prod(self.plan.extent(j) for j in self.plan.reduced if j in a.steps) for a in loads]
        return [a for a, n in zip(loads, steps, strict=True) if n == max(steps)]

    def interleave(self) -> bool:
        """What is joined along a short last axis: vectors of each piece, shuffled into one another when they are
        stored.
        """
        plan, p = self.plan, self.profile
        short = [c for c in plan.outputs if 1 < plan.size(c) <= WIDEST_STEP and c not in plan.sequential]
        for c in short if not plan.reduced else ():
            if any(a.step(c) != 1 for a in p.stores) or any(c in a.steps for a in p.loads):
                continue
            for r in plan.outputs:
                along = r not in plan.sequential and all(a.step(r) == plan.size(c) for a in p.stores)
                along = along and p.unit(r, p.loads)
                if along and self.split_vector(r, "UPCAST", "contiguous in each piece", ()):
                    return self.act("SPLIT", plan.axis_of(c), (plan.size(c), "UPCAST", False), "pieces side by side")
        return False

    def in_flight(self, r: UOp) -> tuple[int, ...]:
        """Numbers of vectors, the best first: of sums over near rows many, so that memory is read as it lies; of rows
        that stream side by side few.
        """
        if self.rows_at_once(r):
            return (STREAMED_VECTORS,) if self.asks() else (4, 3, 2)
        near = [j for j in self.plan.reduced if self.rows(r, j) and not self.far_rows(r, j)]
        small = len(near) == len(self.plan.reduced) and self.profile.n_ops <= FEW_OPS
        return MANY_VECTORS if small and any(self.plan.size(j) > MOST_TAPS for j in near) else (4, 2)

    def rows(self, r: UOp, j: UOp) -> list:
        """The loads inside the reduction over j that go along r."""
        return [a for a in self.profile.inside(j) if r in a.steps]

    def far_rows(self, r: UOp, j: UOp) -> bool:
        """Whether rows that the reduction over j reads are no neighbours in cache."""
        return any(abs(a.step(j) or 0) * self.profile.itemsize >= FAR_BYTES for a in self.rows(r, j))

    def unroll_windows(self) -> None:
        """Short reductions whole, the innermost first: the gates of most taps are then known."""
        taps = 1
        for j in reversed(self.plan.reduced):
            if self.is_own_row(j):
                continue
            n = taps * self.plan.size(j)
            axis = self.plan.axis_of(j)
            if 1 < n <= MOST_TAPS and self.plan.axes[axis].size == self.plan.size(j) and not self.nested(j):
                if self.act("SPLIT", axis, (n // taps, "UNROLL", False), "few steps"):
                    taps = n

    def is_own_row(self, j: UOp) -> bool:
        """Whether all lanes need one and the same sum over j, of what lies in a row: it is a vector of its own, where
        whole it would be one value after the other (softmax of 10000x16 362 to 62 us, of 10000x4 97 to 34).
        """
        shared = self.vector.isdisjoint(self.profile.scope(j))
        return shared and self.plan.extent(j) >= LEAST_ROW and self.profile.unit(j, self.profile.inside(j))

    def transpose(self, r: UOp, rough: list) -> bool:
        """What is stored along r is read, or stored too, along another axis: a square of both, turned in registers."""
        plan = self.plan
        for c in plan.outputs:
            if c is r or c in plan.sequential or any(a.step(c) != 1 for a in rough) or plan.reduced:
                continue
            n = min(plan.size(r), plan.size(c))
            if n < SHORTEST_VECTOR or not self.split_block(r, "contiguous in the output"):
                continue
            self.split_block(c, "contiguous in what is read")
            return True
        return False

    def split_block(self, r: UOp, why: str) -> bool:
        """Split r into (rest, one side of a square)."""
        n = self.plan.size(r)
        k = n if n < self.lanes else self.fitting_lanes(n)
        axis = self.plan.axis_of(r)
        if n % k and not self.act("PADTO", axis, k, "a masked vector holds the tail"):
            return False
        return self.act("SPLIT", axis, (k, "UPCAST", False), f"a side of {k}: {why}")

    def rows_at_once(self, r: UOp) -> int:
        """How many rows of a matrix that are summed into one stream side by side: no more than their sets of the first
        cache hold. 0 where they are few, or near.
        """
        if len(self.plan.reduced) != 1:
            return 0
        j, target = self.plan.reduced[0], self.plan.target
        n, item = self.plan.size(j), self.profile.itemsize
        if n < 8 * ROWS_AT_ONCE or not self.far_rows(r, j) or self.profile.work() * item <= target.l2_bytes:
            return 0
        most = rows_at_once(target, [(a.step(j) or 0) * item for a in self.rows(r, j)])
        most = most if self.asks() else min(most, QUICK_ROWS)
        rows = next((k for k in range(most, 4 * most + 1) if n % k == 0), 0)
        return rows if rows < n else 0

    def asks(self) -> bool:
        """Whether rows that stream side by side are asked for before they are read."""
        return self.plan.target.multiply_adds == 1

    def stream_rows(self, r: UOp) -> None:
        """Rows of a matrix summed into one: the sum outermost in blocks, so that a few rows stream side by side."""
        if rows := self.rows_at_once(r):
            j = self.plan.reduced[0]
            self.side_by_side = [(a, ROW_AHEAD_BYTES) for a in self.rows(r, j) if self.asks()]
            self.split_blocks(j, self.plan.size(j) // rows, f"{rows} rows at once")
            if rows % 4 == 0:
                self.act("SPLIT", self.plan.axis_of(j, "REDUCE"), (4, "UNROLL", False), "fewer loop steps")

    def split_blocks(self, j: UOp, n: int, why: str) -> None:
        """`n` blocks of the sum over j, in groups where they are many and there is a place for the sums of one."""
        i, many = self.plan.axis_of(j), groups(n) if self.plan.size(j) % n == 0 else 1
        trial = self.plan.copy()
        try:
            trial.act(("SPLIT", i, (many, "LOOP", True)))
            trial.act(("SPLIT", i + 1, (n // many, "LOOP", True)))
        except ActionError:
            many = 1
        if many > 1:
            self.act("SPLIT", i, (many, "LOOP", True), f"groups of {n // many} blocks: each sum sees fewer roundings")
            i, n = i + 1, n // many
        self.act("SPLIT", i, (n, "LOOP", True), why)

    def split_vector(self, r: UOp, target: str, why: str, vectors: tuple[int, ...] = (4, 2)) -> bool:
        """Split r into (rest, vectors, lanes)."""
        n = self.plan.divisor(r)
        if n < SHORTEST_VECTOR and not self.plan.size(r) and self.plan.extent(r) >= self.lanes:
            self.act("PADTO", self.plan.axis_of(r), self.lanes, "a masked vector holds the end")
            n = self.plan.divisor(r)
        if n < SHORTEST_VECTOR:
            return False
        lanes = self.fitting_lanes(n)
        axis = self.plan.axis_of(r)
        multiple = lanes * (self.at_once(r, -(-n // lanes), vectors) if target == "GROUP_REDUCE" else 1)
        if n % multiple and not self.act("PADTO", axis, multiple, "a masked vector holds the tail"):
            return False
        n = self.plan.axes[axis].size or n
        if not self.act("SPLIT", axis, (lanes, target, False), f"vector of {lanes}: {why}"):
            return False
        self.vector.add(r)
        rest = self.plan.axes[axis]
        gates_decided = ends_of_gates(self.plan, rest) or sections_of_gates(self.plan, rest)
        if not self.plan.reduced and rest.size >= LEAST_TO_PEEL and gates_decided:
            return True  # a vector at a time: most of them stand between the borders
        if self.profile.n_ops <= MANY_OPS or len(vectors) == 1:
            for k in vectors:
                if k > 1 and n // lanes % k == 0 and n // lanes >= k:
                    self.act("SPLIT", axis, (k, target, False), f"{k} vectors in flight")
                    break
        return True

    def at_once(self, j: UOp, n: int, vectors: tuple[int, ...]) -> int:
        """How many of n vectors of a sum over j are in flight where none of its rows beside may be. Those behind its
        end are masked in the last step alone (`lower.peel_last`).
        """
        least = 2 * self.plan.target.n_threads
        rows = any(r in self.profile.scope(j) and self.plan.size(r) >= least for r in self.plan.outputs)
        if rows or self.profile.n_ops > MANY_OPS:
            return 1
        return next((k for k in vectors if n >= 2 * k and -n % k * EMPTY_SHARE <= n), 1)

    def fitting_lanes(self, n: int) -> int:
        """A full vector, or a narrower one that divides a short axis exactly."""
        lanes = self.lanes
        while lanes > 4 and (lanes // 2 >= n or n % lanes and n % (lanes // 2) == 0 and n <= 4 * lanes):
            lanes //= 2
        return lanes

    def vectorize_reductions(self) -> None:
        """A reduction whose output is not blocked keeps one partial result per lane."""
        for j in self.plan.reduced:
            if self.vector & self.profile.scope(j):
                continue
            inside = self.profile.inside(j)
            if self.plan.extent(j) < LEAST_ROW or self.nested(j):
                continue
            if windows := [r for r in self.plan.outputs if self.sum_beside(r) is j]:
                self.sums_of_windows(j, windows[-1])
            elif self.profile.unit(j, inside):
                if rows := self.rows_of_dots(j):
                    self.stream_dots(j, *rows)
                elif row := self.rows_that_share(j, inside):
                    self.share_vector(j, row)
                elif self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction"):
                    self.streams(j)
            elif (c := self.columns(j, inside)) is not None:
                if self.split_vector(j, "GROUP_REDUCE", "few columns, each picked from whole vectors"):
                    self.act(
                        "SPLIT", self.plan.axis_of(c), (self.plan.size(c), "UPCAST", False), "columns side by side"
                    )
            elif self.is_dear(j, inside):
                self.split_vector(j, "GROUP_REDUCE", "so much work that operands are picked one by one", ())

    def is_dear(self, j: UOp, inside: list[Access]) -> bool:
        """Whether the terms of a sum, of which some lie apart along j, cost far more than to gather those."""
        apart = sum(a.step(j) not in (0, 1) for a in inside)
        native, terms = self.plan.target.native, [u for u in self.plan.order if counts(u) and j in ranges(u)]
        return sum(operations(u, native) for u in terms) >= OPS_PER_PICK * apart

    def sum_beside(self, r: UOp) -> UOp | None:
        """The reduction along which memory lies as it does along r, and which fills more lanes than the few places of
        a window that r goes along. Elements some places apart are picked from whole vectors.
        """
        p = self.profile
        for j in self.plan.reduced:
            inside, lanes = p.inside(j), self.fitting_lanes(self.plan.size(j))
            picked = self.plan.size(j) % lanes == 0 and all(a.is_near(j) for a in inside)
            lies = 0 < self.plan.size(r) and r in p.scope(j) and any(a.step(r) == 1 and a.step(j) for a in inside)
            if lies and (picked or p.unit(j, inside)) and self.filled(j) >= FILLS_MORE * self.filled(r):
                return None if self.nested(j) else j
        return None

    def filled(self, r: UOp) -> float:
        """How many lanes a vector along r fills, on average."""
        n = self.plan.size(r)
        return n / -(-n // self.fitting_lanes(n)) if n else 0.0

    def sums_of_windows(self, j: UOp, r: UOp) -> None:
        """A vector of each row for all places of a window: what does not move with those is loaded once."""
        if not self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction", ()):
            return
        sums, inside = 1, self.profile.inside(j)
        for q in reversed(self.plan.outputs[: self.plan.outputs.index(r) + 1]):
            sums *= self.plan.size(q)
            if all(q in a.steps for a in inside) or not 1 < sums <= self.plan.target.n_registers // 2:
                return
            self.act("SPLIT", self.plan.axis_of(q), (self.plan.size(q), "UPCAST", False), "sums that share operands")

    def columns(self, j: UOp, inside: list[Access]) -> UOp | None:
        """The output axis of few columns that lie side by side in each row that the reduction over j reads."""
        for c in self.plan.outputs:
            n = self.plan.size(c)
            rows = [a for a in inside if a.step(j) == n and a.step(c) == 1]
            if 1 < n <= WIDEST_STEP and rows and c not in self.plan.sequential:
                return c if all(a in rows or a.step(j) in (0, 1) for a in inside) else None
        return None

    def rows_of_dots(self, j: UOp) -> tuple[Access, UOp, int] | None:
        """Long rows of a matrix that one vector is multiplied by, the loop over them, how many stream side by side.

        From memory, in whole vectors. Shorter ones, one after the other, are one stream; beside two multiply-adds a
        cycle long ones were, too.
        """
        plan, target = self.plan, self.plan.target
        inside, outs = self.profile.inside(j), [r for r in plan.outputs if plan.size(r) > 1]
        if target.multiply_adds > 1 or not target.streams or len(plan.reduced) > 1 or len(inside) != 2 or not outs:
            return None
        r = outs[-1]
        n, moving = plan.size(r), [a for a in inside if a.step(r)]
        if len(moving) != 1 or buffer_bytes(moving[0].uop) <= target.l3_bytes:
            return None
        row_bytes = moving[0].uop.dtype.itemsize * (moving[0].step(r) or 0)
        most = rows_at_once(target, [L1_WAY_BYTES])
        k = next((k for k in range(min(most, n // target.n_threads), 3, -1) if n % k == 0), 0)
        whole = plan.divisor(j) % self.lanes == 0
        return (moving[0], r, k) if k and whole and row_bytes > PAGE_BYTES else None

    def stream_dots(self, j: UOp, a: Access, r: UOp, rows: int) -> None:
        """One vector of each of `rows` rows at a time, asked for where the next rows have it, if those are near."""
        if self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction", ()):
            self.act("SPLIT", self.plan.axis_of(r), (rows, "UPCAST", False), f"{rows} rows at once")
            n_bytes = rows * (a.step(r) or 0) * a.uop.dtype.itemsize
            near = n_bytes <= self.plan.target.l2_bytes // 4
            self.side_by_side.append((a, n_bytes if near else ROW_AHEAD_BYTES))

    def rows_that_share(self, j: UOp, inside: list[Access]) -> UOp | None:
        """The loop over rows of a matrix in cache that are multiplied by one vector, if there are enough of them."""
        plan, itemsize = self.plan, max((a.uop.dtype.itemsize for a in inside), default=0)
        near = self.profile.work() * itemsize <= plan.target.l3_bytes and self.profile.n_ops <= MANY_OPS
        rows = [r for r in plan.outputs if r in self.profile.scope(j) and plan.size(r) > 1]
        if not near or not rows or len(plan.reduced) > 1 or len(inside) < len(self.profile.loads):
            return None
        r, moving = rows[-1], [rows[-1] in a.steps for a in inside if a.step(j) == 1]
        return r if any(moving) and not all(moving) and self.rows_sharing(r) else None

    def rows_sharing(self, r: UOp) -> int:
        """How many rows along r share a vector; those behind the last of them may be few. 0: none."""
        n = self.plan.size(r)
        if n < ROWS_THAT_SHARE * self.plan.target.n_threads:
            return 0
        sizes = [k for k in (ROWS_THAT_SHARE, ROWS_THAT_SHARE - 1) if n % k == 0]
        return sizes[0] if sizes else ROWS_THAT_SHARE if -n % ROWS_THAT_SHARE * EMPTY_SHARE <= n else 0

    def share_vector(self, j: UOp, r: UOp) -> None:
        """A vector of each of some rows at once, for which one is loaded of what multiplies them: several vectors of
        a row would be as many sums, but load it for each.
        """
        if self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction", ()):
            k = self.rows_sharing(r)
            if self.plan.divisor(r) % k:
                self.act("PADTO", self.plan.axis_of(r), k, "rows beyond the end repeat the last")
            self.act("SPLIT", self.plan.axis_of(r), (k, "UPCAST", False), f"{k} rows share a vector")

    def is_far(self, accesses: list[Access]) -> bool:
        """Whether what is visited comes from memory."""
        n_bytes = self.profile.work() * max(a.uop.dtype.itemsize for a in accesses)
        return n_bytes > self.plan.target.l3_bytes // NEAR_SHARE

    def streams(self, j: UOp) -> None:
        """Two rows at once where long ones come from memory: more of it is under way. Others are one stream together,
        which several at once would cut, but for those in cache or in one page: up to four where each has but one
        vector in flight, for every step of a sum waits for the one before it.
        """
        plan, inside = self.plan, self.profile.inside(j)
        rows = [r for r in plan.outputs if r in self.profile.scope(j) and plan.size(r) >= 2 * plan.target.n_threads]
        if not rows or not inside or len(plan.reduced) > 1 or len(inside) < len(self.profile.loads):
            return
        r, row_bytes = rows[-1], plan.extent(j) * max(a.uop.dtype.itemsize for a in inside)
        if self.is_far(inside) and row_bytes * 4 > PAGE_BYTES:
            if row_bytes >= LONG_ROW_BYTES and all(a.step(r) for a in inside):
                self.act("SPLIT", plan.axis_of(r), (2, "UPCAST", False), "two streams")
        elif sum(p.root is j and p.type == "GROUP_REDUCE" for p in plan.axes) == 1:
            self.sums_in_flight(r, inside)

    def rows_beside(self, r: UOp) -> UOp | None:
        """The loop over rows of results of which some may be summed at once, where each is a vector along r."""
        plan = self.plan
        if len(plan.reduced) != 1 or not self.rows(r, plan.reduced[0]):
            return None
        scope = self.profile.scope(plan.reduced[0])
        rows = [q for q in plan.outputs if q is not r and q in scope]
        return rows[-1] if rows and plan.size(rows[-1]) >= 2 * plan.target.n_threads else None

    def in_turns(self, r: UOp) -> None:
        """Several rows of results at once, where one vector along r is all of a row."""
        q = self.rows_beside(r)
        if q is not None and [p.size for p in self.plan.axes if p.root is r][:-1] == [1]:
            self.sums_in_flight(q, self.profile.inside(self.plan.reduced[0]))

    def is_lonely(self, r: UOp) -> bool:
        """Whether r is the few columns of a sum without rows of results beside: its own rows are better vectors."""
        few = any(self.columns(j, self.profile.inside(j)) is r for j in self.plan.reduced)
        return few and self.rows_beside(r) is None

    def sums_in_flight(self, r: UOp, inside: list[Access]) -> None:
        """Up to four results along r at once: every step of a sum waits for the one before it."""
        n, threads = self.plan.size(r), self.plan.target.n_threads
        k = next((k for k in (4, 3, 2) if k * threads <= n and n % k == 0), 1)
        if k > 1 and self.profile.n_ops <= MANY_OPS and any(a.step(r) for a in inside):
            self.act("SPLIT", self.plan.axis_of(r), (k, "UPCAST", False), f"{k} sums in flight")

    def nested(self, j: UOp) -> bool:
        """True when another reduction runs inside the loop j."""
        from_inside = [u for u in self.plan.reduces if j not in u.src[1:]]
        return any(j in ranges(u) for u in from_inside)

    # ---- register tiles ----------------------------------------------------------------------------------------------
    def tile(self, heavy: list[UOp]) -> None:
        """A matrix product or the like: a tile in registers or dot products, whichever costs less, else as any other
        kernel.
        """
        if self.same_steps(heavy):
            return
        product = Dots(self, heavy)
        tile = product.best()
        if (square := product.instead_of(tile)) is not None:
            product.commit_square(square)
        elif tile is not None:
            product.commit(tile)
        else:
            self.vectorize_output()

    def same_steps(self, heavy: list[UOp]) -> bool:
        """Each step of a sum reads what is the same for a row of outputs, which then becomes the vectors."""
        inside = [a for j in heavy for a in self.profile.inside(j)]
        for r in reversed(self.plan.outputs):
            unit = all(a.step(r) == 1 for a in self.profile.stores)
            if unit and self.plan.extent(r) >= self.lanes and not any(r in a.steps for a in inside):
                return self.split_vector(r, "UPCAST", "what a step of the sum reads is the same for all", (4, 5, 3, 2))
        return False

    # ---- threads -----------------------------------------------------------------------------------------------------
    def threads(self) -> None:
        """The first output loop long enough is shared out between the threads."""
        self.threads_over(self.plan.outputs)

    def threads_over(self, outs: list[UOp], uneven: Iterable[UOp] = ()) -> None:
        """One of the loops `outs`, the first long enough, is shared out between the threads; one of those that are
        `uneven`, of which later iterations have more to do, in turns.
        """
        n = self.plan.target.n_threads
        if n < 2 or self.profile.operations() < self.THREAD_CYCLES * self.lanes:
            return
        loops = [(i, p) for i, p in enumerate(self.plan.axes) if p.type == "LOOP" and p.feeds(n) and p.root in outs]
        loops.sort(key=lambda ip: (self.is_uneven(ip[1], n), ip[0]))
        for i, p in loops:
            top = p.root not in uneven
            if self.act("SPLIT", i, (n, "THREAD", top), f"{self.profile.work()} elements for {n} threads"):
                return

    def is_uneven(self, p: Part, n: int) -> bool:
        """Whether `n` shares of few iterations differ: some have one more, or the last has blocks that begin earlier to
        end with the axis, and writes again what another thread does.
        """
        return p.size < 2 * n and bool(p.size % n or not p.size or p.size * p.stride > self.plan.size(p.root))

    # ---- borders -----------------------------------------------------------------------------------------------------
    def peel(self) -> None:
        """The ends of the innermost loop over what is padded stand apart: the iterations between mask nothing.

        Of a small kernel those of the loops around it do, too.
        """
        if not self.plan.target.vector_bytes or self.profile.n_ops > MOST_OPS_TO_PEEL:
            return
        for i, p in reversed([(i, p) for i, p in enumerate(self.plan.axes) if p.type == "LOOP" and not p.is_block]):
            if p.size >= LEAST_TO_PEEL and p.root in self.plan.outputs and (ends := border(self.plan, p)):
                who = "the ends ask where the border is" if len(ends) == 2 else "seams ask on which side they are"
                who = "the edge of the mask asks on which side it is" if ends[0] == "mask" else who
                done = self.act("PEEL", i, ends, f"only {who}")
                if done and self.profile.n_ops > FEW_OPS_TO_PEEL:
                    return

    # ---- memory far away ---------------------------------------------------------------------------------------------
    def far_memory(self) -> None:
        """What no cache holds until it is read is stored past them; what streams in meanwhile is asked for early."""
        plan, target = self.plan, self.plan.target
        for a, ahead in self.side_by_side if target.streams else ():
            if buffer_bytes(a.uop) > target.l3_bytes:
                self.act("PREFETCH", plan.loads.index(a.uop), ahead, "rows that stream from far away")
        self.rows_ahead()
        memory = {u.src[0].src[0]: self.touched(u) for u in (*plan.loads, *plan.stores)}
        written = {u.src[0].src[0]: self.touched(u) for u in plan.stores}
        if sum(memory.values()) < target.l3_bytes or sum(written.values()) * 3 < target.l3_bytes:
            return
        streams = [
            self.act("NONTEMPORAL", i, None, "outputs larger than the last cache") for i in range(len(plan.stores))
        ]
        for i, u in enumerate(plan.loads if any(streams) else ()):
            if buffer_bytes(u) > target.l2_bytes and (n := self.distance(u)):
                self.act("PREFETCH", i, n, "a stream from far away")

    def rows_ahead(self) -> None:
        """Rows that an index names come when they are asked for: as far ahead as a stream is. Of those of one vector
        many are under way at once anyway.
        """
        plan = self.plan
        for i, u in enumerate(plan.loads):
            p = vector_of(plan, u)
            row_bytes = plan.size(p.root) * u.dtype.itemsize if p is not None and named_by(u) else 0
            if row_bytes > plan.target.vector_bytes and buffer_bytes(u) > plan.target.l2_bytes:
                rows = min(-(-AHEAD_BYTES // row_bytes), MOST_ROWS)
                self.act("PREFETCH", i, ("rows", rows), "rows that an index names, from far away")

    def touched(self, u: UOp) -> int:
        """Bytes of memory that an access is to, no more than its loops visit."""
        visited = prod(self.plan.size(r) for r in ranges(u.src[0])) * u.src[0].dtype.itemsize
        return min(buffer_bytes(u), visited or buffer_bytes(u))

    def distance(self, u: UOp) -> int:
        """Bytes to ask for ahead of a load that walks along its vectors: a page, or the next row."""
        plan, p = self.plan, vector_of(self.plan, u)
        loops = [q for q in plan.axes if q.type == "LOOP" and q.root in ranges(u) and not q.is_block]
        found = any(x.op != "RANGE" for x, _ in linear(u.src[0].src[1])[1])  # rows at places that memory holds
        if p is None or found or p.root in plan.reduced or not loops or loops[-1].root is not p.root:
            return 0
        row_bytes = plan.size(p.root) * u.dtype.itemsize if plan.reduced else 0
        return max(AHEAD_BYTES, row_bytes if row_bytes <= plan.target.l2_bytes // 4 else 0)


def choose(plan: Plan) -> list[str]:
    """Act on `plan`; the reasons, one an action. Nothing is chosen where a user says what the axes are."""
    return [] if plan.is_given else Chooser(plan).run()

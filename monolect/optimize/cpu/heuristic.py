"""Choose a kernel's actions for CPUs by hand-written rules: vector axis, register tile, accumulators, threads, peeling.

The first of STRATEGIES that applies makes the decisions. A reduction that reuses its operands gets a register tile or
dot products (`tile_cost`, `dot_products`). Other kernels get a vector axis: the axis along which stores are contiguous,
else the axis along which a reduction reads contiguous memory; then several independent accumulators. Both get threads
on an outer loop, the others also peeling, and non-temporal stores with prefetches. Every decision goes through
`LoopPlan.act`, which refuses illegal actions. The result is data: `LoopPlan.actions`, with a reason for each, which
DEBUG=3 and `monolect explain` print.

Source: the schedules measured for AVX-512 matrix products, row kernels and convolutions; sizes come from the target.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp
from monolect.optimize.actions.peel import peel_lengths
from monolect.optimize.actions.plan import LoopPlan
from monolect.optimize.actions.prefetch import MAX_PREFETCH_ROWS
from monolect.optimize.choices import Choices
from monolect.optimize.cost import StridedAccess, is_operation, operations
from monolect.optimize.cpu.dot_products import Dots
from monolect.optimize.cpu.staged import Staged
from monolect.optimize.cpu.tile_cost import max_streamed_rows
from monolect.optimize.gpu.groups import Groups
from monolect.optimize.loops.accesses import buffer_bytes, index_loads, vector_of
from monolect.optimize.loops.partial_sums import group_count
from monolect.optimize.tuning import (
    ACCUMULATOR_COUNTS,
    FAR_ROW_BYTES,
    FEW_STREAMED_ROWS,
    INVARIANT_VECTOR_COUNTS,
    L3_FRACTION,
    MAX_GATHER_STRIDE,
    MAX_OPS_FOR_MANY_ACCUMULATORS,
    MAX_OPS_TO_INTERLEAVE,
    MAX_OPS_TO_PEEL,
    MAX_OPS_TO_PEEL_TWICE,
    MAX_PADDING_SHARE,
    MAX_STREAMED_ROWS,
    MAX_UNROLLED_TAPS,
    MIN_ITERATIONS_TO_PEEL,
    MIN_LANE_USE_GAIN,
    MIN_OPS_PER_GATHER,
    MIN_REDUCTION_LENGTH,
    MIN_STREAM_BLOCKS,
    MIN_STREAM_ROW_BYTES,
    MIN_VECTOR_LENGTH,
    PAGE_BYTES,
    ROW_COUNTS,
    ROW_PREFETCH_BYTES,
    ROWS_PER_SHARED_VECTOR,
    SCAN_ROW_COUNTS,
    STREAM_PREFETCH_BYTES,
    STREAMED_TILE_VECTORS,
    STREAMED_VECTOR_COUNTS,
    UNROLL_STEPS,
    VECTOR_COUNTS,
)


class Chooser(Choices):
    """Choose and perform the actions of one kernel, by the first strategy of STRATEGIES that applies to it."""

    def __init__(self, plan: LoopPlan):
        super().__init__(plan)
        self.contracted = [j for j in plan.reduced if self.profile.reuses(j)]

    def strategy(self) -> Strategy:
        """Return the first strategy of STRATEGIES that applies to this kernel."""
        return next(s for s in STRATEGIES if s.applies(self))

    def run(self) -> list[str]:
        """Choose and perform all actions of the kernel; return the list of their reasons, one text for each action."""
        self.strategy().choose(self)
        return self.reasons

    def has_no_vectors(self) -> bool:
        """Whether a vector register of the target holds only one element of the kernel, so that nothing can be
        vectorized.
        """
        return self.lanes == 1

    # ---- strategies --------------------------------------------------------------------------------------------------
    def choose_staged(self) -> None:
        """Strategy "stages": choose the actions of a kernel with scratch values (`Staged`), then threads."""
        Staged(self).run()
        self.finish()

    def choose_tile(self) -> None:
        """Strategy "tile": choose a register tile or dot products for a contraction, then threads."""
        self.tile_contraction(self.contracted)
        self.finish()

    def choose_vectors(self) -> None:
        """Strategy "vectors": choose vector lanes along an output axis, then along reductions, then threads."""
        self.vectorize_output()
        self.vectorize_reductions()
        self.finish()

    def finish(self) -> None:
        """Divide an outer loop among the threads if no loop is divided yet. In kernels without contractions, also PEEL
        loops, and choose prefetches and non-temporal stores.
        """
        if not any(p.type == "THREAD" for p in self.plan.axes):
            self.threads()
        if not self.contracted:
            self.peel_borders()
            self.bypass_caches()

    # ---- vectors -----------------------------------------------------------------------------------------------------
    def vectorize_output(self) -> None:
        """Make vector lanes along an output axis along which stores are contiguous, if most loads are contiguous along
        it too. A transpose or concatenation gets vectors along two axes.
        """
        p = self.profile
        if self.interleave_concatenated():
            return
        for r in reversed(self.plan.outputs):
            mine = [a for a in p.stores if r in a.steps]
            if not any(a.step(r) == 1 for a in mine) or r in self.plan.sequential - self.plan.running:
                continue
            loads = [a for a in p.loads if r in a.steps]
            strided = [a for a in (*loads, *mine) if a.step(r) not in (0, 1, -1)]
            if strided and self.transpose(r, strided):
                return
            if (
                any(a.step(r) != 1 for a in mine)
                or self.is_isolated_column_axis(r)
                or self.better_vector_reduction(r) is not None
            ):
                continue
            if any(not self.vector.isdisjoint(a.steps) for a in mine):
                continue  # stores in separate loops each have a vector axis
            innermost = self.innermost_loads(loads)
            if sum(not a.is_nearly_contiguous(r) for a in innermost) * 2 > len(innermost):
                continue
            if self.split_vector(r, "UPCAST", "contiguous in the output", self.accumulator_counts(r)):
                self.stream_rows(r)
                self.interleave_scan_rows(r)
                self.unroll_short_reductions()
                self.interleave_single_vector_rows(r)
                if self.plan.reduced:
                    return

    def interleave_scan_rows(self, r: UOp) -> None:
        """Compute several rows of a scan at once, as rows of a tile, so that the steps of one row do not wait for each
        other.

        `r`: the axis that is scanned. Rows of a kernel that exceeds the caches stay one after the other: together they
        are one stream from memory, which several rows at once would interrupt.
        """
        plan = self.plan
        rows = [c for c in plan.outputs if c not in plan.sequential]
        if r in plan.running and rows and not self.exceeds_cache(self.profile.stores):
            n = plan.size(rows[-1])
            k = next((k for k in SCAN_ROW_COUNTS if n % k == 0 and n >= k * plan.target.n_threads), 1)
            if k > 1:
                self.act("SPLIT", plan.axis_of(rows[-1]), (k, "UPCAST", False), f"{k} rows wait for none of each other")

    def innermost_loads(self, loads: list[StridedAccess]) -> list[StridedAccess]:
        """Return those of `loads` that are inside the largest reductions (executed most often); all of `loads` if the
        kernel has no reduction.
        """
        steps = [prod(self.plan.extent(j) for j in self.plan.reduced if j in a.steps) for a in loads]
        return [a for a, n in zip(loads, steps, strict=True) if n == max(steps)]

    def interleave_concatenated(self) -> bool:
        """Vectorize a concatenation along a short last axis: load a vector of each concatenated tensor and shuffle them
        before the store.

        Return False if the kernel is no such concatenation.
        """
        plan, p = self.plan, self.profile
        short = [c for c in plan.outputs if 1 < plan.size(c) <= MAX_GATHER_STRIDE and c not in plan.sequential]
        for c in short if not plan.reduced else ():
            if any(a.step(c) != 1 for a in p.stores) or any(c in a.steps for a in p.loads):
                continue
            for r in plan.outputs:
                along = r not in plan.sequential and all(a.step(r) == plan.size(c) for a in p.stores)
                along = along and p.is_contiguous(r, p.loads)
                if along and self.split_vector(r, "UPCAST", "contiguous in each piece", ()):
                    return self.act("SPLIT", plan.axis_of(c), (plan.size(c), "UPCAST", False), "pieces side by side")
        return False

    def accumulator_counts(self, r: UOp) -> tuple[int, ...]:
        """Return candidate numbers of vectors along the output RANGE r that are computed at a time, best first.

        Reductions over rows that are adjacent in memory have many candidates, so that memory is read in order. For rows
        that are streamed in parallel the numbers are small.
        """
        if self.streamed_row_count(r):
            return (STREAMED_TILE_VECTORS,) if self.needs_software_prefetch() else STREAMED_VECTOR_COUNTS
        cached = [j for j in self.plan.reduced if self.loads_along(r, j) and not self.has_far_rows(r, j)]
        small = len(cached) == len(self.plan.reduced) and self.profile.n_ops <= MAX_OPS_FOR_MANY_ACCUMULATORS
        return (
            ACCUMULATOR_COUNTS
            if small and any(self.plan.size(j) > MAX_UNROLLED_TAPS for j in cached)
            else VECTOR_COUNTS
        )

    def loads_along(self, r: UOp, j: UOp) -> list:
        """The loads in the terms of the reduction over the RANGE j that move along the output RANGE r."""
        return [a for a in self.profile.inside(j) if r in a.steps]

    def has_far_rows(self, r: UOp, j: UOp) -> bool:
        """Whether the reduction over the RANGE j reads rows (each along the RANGE r) whose starts are at least
        FAR_ROW_BYTES apart in memory.
        """
        return any(abs(a.step(j) or 0) * self.profile.itemsize >= FAR_ROW_BYTES for a in self.loads_along(r, j))

    def unroll_short_reductions(self) -> None:
        """Unroll short reductions completely (UNROLL), innermost first. In a convolution or pooling this decides at
        compile time most gates of the window's positions (taps).
        """
        taps = 1
        for j in reversed(self.plan.reduced):
            if self.is_lane_invariant_reduction(j):
                continue
            n = taps * self.plan.size(j)
            axis = self.plan.axis_of(j)
            if (
                1 < n <= MAX_UNROLLED_TAPS
                and self.plan.axes[axis].size == self.plan.size(j)
                and not self.contains_reduction(j)
            ):
                if self.act("SPLIT", axis, (n // taps, "UNROLL", False), "few steps"):
                    taps = n

    def is_lane_invariant_reduction(self, j: UOp) -> bool:
        """Whether the reduction over the RANGE j is the same for all vector lanes, and reads one contiguous row (as the
        maximum in a softmax).

        Such a reduction gets vector lanes along j; unrolled, its terms would be added one by one (softmax of 10000x16:
        362 to 62 us, of 10000x4: 97 to 34 us).
        """
        shared = self.vector.isdisjoint(self.profile.scope(j))
        return (
            shared
            and self.plan.extent(j) >= MIN_REDUCTION_LENGTH
            and self.profile.is_contiguous(j, self.profile.inside(j))
        )

    def transpose(self, r: UOp, strided: list) -> bool:
        """Vectorize a transpose: make vector lanes along the RANGE r and along another output axis, so that a square of
        both axes is transposed in registers.

        `strided`: the loads or stores that are not contiguous along r, and must be contiguous along the other axis.
        Return False if there is no such axis.
        """
        plan = self.plan
        for c in plan.outputs:
            if c is r or c in plan.sequential or any(a.step(c) != 1 for a in strided) or plan.reduced:
                continue
            n = min(plan.size(r), plan.size(c))
            if n < MIN_VECTOR_LENGTH or not self.split_square_side(r, "contiguous in the output"):
                continue
            self.split_square_side(c, "contiguous in what is read")
            return True
        return False

    def split_square_side(self, r: UOp, why: str) -> bool:
        """Split the RANGE r into (remaining loop, one side of the square that is transposed in registers), after
        padding where needed. Return False if that is illegal. `why`: the reason to record.
        """
        n = self.plan.size(r)
        k = n if n < self.lanes else self.fitting_lanes(n)
        axis = self.plan.axis_of(r)
        if n % k and not self.act("PADTO", axis, k, "a masked vector holds the tail"):
            return False
        return self.act("SPLIT", axis, (k, "UPCAST", False), f"a side of {k}: {why}")

    def streamed_row_count(self, r: UOp) -> int:
        """Number of rows that the kernel's only reduction should read from memory in parallel (stream); 0 if none.

        The reduction combines the rows of a matrix to one row; each row is contiguous along the RANGE r. The number is
        limited by the L1 cache sets of the rows and divides the number of rows. It is 0 if rows are few, near each
        other or cached.
        """
        if len(self.plan.reduced) != 1:
            return 0
        j, target = self.plan.reduced[0], self.plan.target
        n, item = self.plan.size(j), self.profile.itemsize
        if (
            n < MIN_STREAM_BLOCKS * MAX_STREAMED_ROWS
            or not self.has_far_rows(r, j)
            or self.profile.work() * item <= target.l2_bytes
        ):
            return 0
        most = max_streamed_rows(target, [(a.step(j) or 0) * item for a in self.loads_along(r, j)])
        most = most if self.needs_software_prefetch() else min(most, FEW_STREAMED_ROWS)
        rows = next((k for k in range(most, 4 * most + 1) if n % k == 0), 0)
        return rows if rows < n else 0

    def needs_software_prefetch(self) -> bool:
        """Whether rows that are streamed in parallel must be prefetched by instructions. That holds for cores that
        start one multiply-add a cycle; the hardware prefetchers of other cores follow the rows.
        """
        return self.plan.target.multiply_adds == 1

    def stream_rows(self, r: UOp) -> None:
        """If the kernel adds up the rows of a matrix (each along the RANGE r) and should stream them, make a block loop
        over the reduction the outermost loop, so that each of its iterations reads a few rows in parallel.
        """
        if rows := self.streamed_row_count(r):
            j = self.plan.reduced[0]
            self.streamed_loads = [
                (a, ROW_PREFETCH_BYTES) for a in self.loads_along(r, j) if self.needs_software_prefetch()
            ]
            self.split_sum_blocks(j, self.plan.size(j) // rows, f"{rows} rows at once")
            if rows % UNROLL_STEPS == 0:
                self.act("SPLIT", self.plan.axis_of(j, "REDUCE"), (UNROLL_STEPS, "UNROLL", False), "fewer loop steps")

    def split_sum_blocks(self, j: UOp, n: int, why: str) -> None:
        """Split the reduction over the RANGE j into `n` blocks (a block loop), and the blocks into groups (a second
        one) if they are many and that is legal. `why`: the reason to record.
        """
        i, many = self.plan.axis_of(j), group_count(n) if self.plan.size(j) % n == 0 else 1
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

    def vectorize_reductions(self) -> None:
        """Make vector lanes along reductions (GROUP_REDUCE: each lane has a partial result) whose outputs have no
        vector lanes.
        """
        for j in self.plan.reduced:
            if self.vector & self.profile.scope(j):
                continue
            inside = self.profile.inside(j)
            if self.plan.extent(j) < MIN_REDUCTION_LENGTH or self.contains_reduction(j):
                continue
            if windows := [r for r in self.plan.outputs if self.better_vector_reduction(r) is j]:
                self.vectorize_window_sums(j, windows[-1])
            elif self.profile.is_contiguous(j, inside):
                if rows := self.streamed_dot_rows(j):
                    self.stream_dot_rows(j, *rows)
                elif row := self.rows_sharing_vector(j, inside):
                    self.share_vector(j, row)
                elif self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction"):
                    self.interleave_rows(j)
            elif (c := self.few_columns(j, inside)) is not None:
                if self.split_vector(j, "GROUP_REDUCE", "few columns, each shuffled out of whole vectors"):
                    self.act(
                        "SPLIT", self.plan.axis_of(c), (self.plan.size(c), "UPCAST", False), "columns side by side"
                    )
            elif self.pays_to_gather(j, inside):
                self.split_vector(j, "GROUP_REDUCE", "enough arithmetic to pay for gathers", ())

    def pays_to_gather(self, j: UOp, inside: list[StridedAccess]) -> bool:
        """Whether the terms of the reduction over the RANGE j have enough arithmetic to pay for vectors along j whose
        strided operands are gathered.

        `inside`: the loads in these terms; those that are strided along j are gathered.
        """
        strided = sum(a.step(j) not in (0, 1) for a in inside)
        native, terms = self.plan.target.native, [u for u in self.plan.order if is_operation(u) and j in ranges(u)]
        return sum(operations(u, native) for u in terms) >= MIN_OPS_PER_GATHER * strided

    def better_vector_reduction(self, r: UOp) -> UOp | None:
        """Return the reduction along which vector lanes would be used better than along the output RANGE r, or None.

        Operands are contiguous along both, as in a window; r has few positions. Loads with a small stride along the
        reduction are picked from whole vectors.
        """
        p = self.profile
        for j in self.plan.reduced:
            inside, lanes = p.inside(j), self.fitting_lanes(self.plan.size(j))
            picked = self.plan.size(j) % lanes == 0 and all(a.is_nearly_contiguous(j) for a in inside)
            competes = 0 < self.plan.size(r) and r in p.scope(j) and any(a.step(r) == 1 and a.step(j) for a in inside)
            if (
                competes
                and (picked or p.is_contiguous(j, inside))
                and self.average_lanes_used(j) >= MIN_LANE_USE_GAIN * self.average_lanes_used(r)
            ):
                return None if self.contains_reduction(j) else j
        return None

    def average_lanes_used(self, r: UOp) -> float:
        """Average number of lanes that are used in the vectors along the RANGE r; 0 for a symbolic size."""
        n = self.plan.size(r)
        return n / -(-n // self.fitting_lanes(n)) if n else 0.0

    def vectorize_window_sums(self, j: UOp, r: UOp) -> None:
        """Make vector lanes along the reduction over the RANGE j, and compute the results of all positions along the
        output axis r at once, so that operands that these share are loaded once.
        """
        if not self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction", ()):
            return
        sums, inside = 1, self.profile.inside(j)
        for q in reversed(self.plan.outputs[: self.plan.outputs.index(r) + 1]):
            sums *= self.plan.size(q)
            if all(q in a.steps for a in inside) or not 1 < sums <= self.plan.target.n_registers // 2:
                return
            self.act("SPLIT", self.plan.axis_of(q), (self.plan.size(q), "UPCAST", False), "sums that share operands")

    def few_columns(self, j: UOp, inside: list[StridedAccess]) -> UOp | None:
        """Return the output axis of a few (2 to 4) columns that are interleaved in memory: some load moves along the
        reduction j by the number of columns, and along the columns by 1.

        None if there is no such axis, or if another load moves along j by more than one element. `inside`: the loads in
        the terms of the reduction over the RANGE j.
        """
        for c in self.plan.outputs:
            n = self.plan.size(c)
            rows = [a for a in inside if a.step(j) == n and a.step(c) == 1]
            if 1 < n <= MAX_GATHER_STRIDE and rows and c not in self.plan.sequential:
                return c if all(a in rows or a.step(j) in (0, 1) for a in inside) else None
        return None

    def streamed_dot_rows(self, j: UOp) -> tuple[StridedAccess, UOp, int] | None:
        """Return (the matrix load, the output RANGE of its rows, the number of rows to stream in parallel), if the
        reduction over j is a matrix-vector product limited by memory; else None.

        None also if rows are short, partly masked or cached: consecutive short rows are one stream already. On cores
        that start two multiply-adds a cycle, consecutive long rows are fast enough, too.
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
        most = max_streamed_rows(target, [target.l1_period_bytes])
        k = next((k for k in range(min(most, n // target.n_threads), 3, -1) if n % k == 0), 0)
        whole = plan.divisor(j) % self.lanes == 0
        return (moving[0], r, k) if k and whole and row_bytes > PAGE_BYTES else None

    def stream_dot_rows(self, j: UOp, a: StridedAccess, r: UOp, rows: int) -> None:
        """Compute the dot products along the reduction j of `rows` rows at once, reading one vector of each row at a
        time.

        `a`: the matrix load. `r`: the output RANGE of its rows. The load is noted in `streamed_loads`, to be
        prefetched: the same columns of the next rows if they are close in memory, else a fixed distance ahead in the
        same rows.
        """
        if self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction", ()):
            self.act("SPLIT", self.plan.axis_of(r), (rows, "UPCAST", False), f"{rows} rows at once")
            n_bytes = rows * (a.step(r) or 0) * a.uop.dtype.itemsize
            cached = n_bytes <= self.plan.target.l2_bytes // 4
            self.streamed_loads.append((a, n_bytes if cached else ROW_PREFETCH_BYTES))

    def rows_sharing_vector(self, j: UOp, inside: list[StridedAccess]) -> UOp | None:
        """Return the output RANGE of the rows of a cache-resident matrix that are multiplied by one vector along the
        reduction j; None if there is none or it has too few rows. `inside`: the loads in the terms of the reduction.
        """
        plan, itemsize = self.plan, max((a.uop.dtype.itemsize for a in inside), default=0)
        cached = self.profile.work() * itemsize <= plan.target.l3_bytes and self.profile.n_ops <= MAX_OPS_TO_INTERLEAVE
        rows = [r for r in plan.outputs if r in self.profile.scope(j) and plan.size(r) > 1]
        if not cached or not rows or len(plan.reduced) > 1 or len(inside) < len(self.profile.loads):
            return None
        r, moving = rows[-1], [rows[-1] in a.steps for a in inside if a.step(j) == 1]
        return r if any(moving) and not all(moving) and self.shared_vector_row_count(r) else None

    def shared_vector_row_count(self, r: UOp) -> int:
        """Number of rows along the RANGE r that are multiplied by one loaded vector at a time; 0 if r is short, or if
        padding to a multiple of the number would add much work.
        """
        n = self.plan.size(r)
        if n < ROWS_PER_SHARED_VECTOR * self.plan.target.n_threads:
            return 0
        sizes = [k for k in (ROWS_PER_SHARED_VECTOR, ROWS_PER_SHARED_VECTOR - 1) if n % k == 0]
        return (
            sizes[0] if sizes else ROWS_PER_SHARED_VECTOR if -n % ROWS_PER_SHARED_VECTOR * MAX_PADDING_SHARE <= n else 0
        )

    def share_vector(self, j: UOp, r: UOp) -> None:
        """Make vector lanes along the reduction j, and multiply several rows along the output RANGE r by each loaded
        vector, so that the vector operand is loaded once for all of them.
        """
        if self.split_vector(j, "GROUP_REDUCE", "contiguous in the reduction", ()):
            k = self.shared_vector_row_count(r)
            if self.plan.divisor(r) % k:
                self.act("PADTO", self.plan.axis_of(r), k, "rows beyond the end repeat the last")
            self.act("SPLIT", self.plan.axis_of(r), (k, "UPCAST", False), f"{k} rows share a vector")

    def exceeds_cache(self, accesses: list[StridedAccess]) -> bool:
        """Whether the elements that the kernel's largest loop nest visits exceed L3 / L3_FRACTION, the size that counts
        as cache-resident. Each element has the size of the widest dtype of `accesses`.
        """
        n_bytes = self.profile.work() * max(a.uop.dtype.itemsize for a in accesses)
        return n_bytes > self.plan.target.l3_bytes // L3_FRACTION

    def interleave_rows(self, j: UOp) -> None:
        """Compute several results of the reduction over the RANGE j at once, as rows of a tile, where that hides
        latency.

        Two long rows that come from memory are read in parallel. Shorter rows from memory stay one stream. Rows that
        are cache-resident, or so short that a page holds four, are reduced up to four at a time, if each has only one
        vector accumulator.
        """
        plan, inside = self.plan, self.profile.inside(j)
        rows = [r for r in plan.outputs if r in self.profile.scope(j) and plan.size(r) >= 2 * plan.target.n_threads]
        if not rows or not inside or len(plan.reduced) > 1 or len(inside) < len(self.profile.loads):
            return
        r, row_bytes = rows[-1], plan.extent(j) * max(a.uop.dtype.itemsize for a in inside)
        if self.exceeds_cache(inside) and row_bytes * 4 > PAGE_BYTES:
            if row_bytes >= MIN_STREAM_ROW_BYTES and all(a.step(r) for a in inside):
                self.act("SPLIT", plan.axis_of(r), (2, "UPCAST", False), "two streams")
        elif sum(p.root is j and p.type == "GROUP_REDUCE" for p in plan.axes) == 1:
            self.interleave_accumulators(r, inside)

    def independent_rows(self, r: UOp) -> UOp | None:
        """Return the output RANGE of rows that may be computed several at a time, where each row has vector lanes along
        r; None if there is none, or it has too few rows for the threads.
        """
        plan = self.plan
        if len(plan.reduced) != 1 or not self.loads_along(r, plan.reduced[0]):
            return None
        scope = self.profile.scope(plan.reduced[0])
        rows = [q for q in plan.outputs if q is not r and q in scope]
        return rows[-1] if rows and plan.size(rows[-1]) >= 2 * plan.target.n_threads else None

    def interleave_single_vector_rows(self, r: UOp) -> None:
        """Compute several output rows of a reduction at once, where one vector along the RANGE r covers a whole row."""
        q = self.independent_rows(r)
        if q is not None and [p.size for p in self.plan.axes if p.root is r][:-1] == [1]:
            self.interleave_accumulators(q, self.profile.inside(self.plan.reduced[0]))

    def is_isolated_column_axis(self, r: UOp) -> bool:
        """Whether r is the axis of a few columns that are interleaved in the rows that a reduction reads
        (`few_columns`), and the kernel has no other output rows to compute at once. Vector lanes along the reduction
        are faster then.
        """
        few = any(self.few_columns(j, self.profile.inside(j)) is r for j in self.plan.reduced)
        return few and self.independent_rows(r) is None

    def interleave_accumulators(self, r: UOp, inside: list[StridedAccess]) -> None:
        """Compute up to four results along the output RANGE r at once, as each step of a reduction waits for the
        previous one. `inside`: the loads in the terms of that reduction.
        """
        n, threads = self.plan.size(r), self.plan.target.n_threads
        k = next((k for k in ROW_COUNTS if k * threads <= n and n % k == 0), 1)
        if k > 1 and self.profile.n_ops <= MAX_OPS_TO_INTERLEAVE and any(a.step(r) for a in inside):
            self.act("SPLIT", self.plan.axis_of(r), (k, "UPCAST", False), f"{k} sums in flight")

    # ---- register tiles ----------------------------------------------------------------------------------------------
    def tile_contraction(self, contracted: list[UOp]) -> None:
        """Choose and perform the actions of the cheaper of a register tile and dot products for a contraction over the
        reduction RANGEs `contracted`.

        If neither is possible, vectorize the kernel like one without a contraction.
        """
        if self.vectorize_invariant_axis(contracted):
            return
        product = Dots(self, contracted)
        tile = product.best()
        if (square := product.better_square(tile)) is not None:
            product.commit_square(square)
        elif tile is not None:
            product.commit(tile)
        else:
            self.vectorize_output()

    def vectorize_invariant_axis(self, contracted: list[UOp]) -> bool:
        """Make vector lanes along an output axis that is contiguous in the stores and along which no operand of the
        reductions `contracted` moves: all lanes then compute the same sum. Return False if there is no such axis.
        """
        inside = [a for j in contracted for a in self.profile.inside(j)]
        for r in reversed(self.plan.outputs):
            unit = all(a.step(r) == 1 for a in self.profile.stores)
            if unit and self.plan.extent(r) >= self.lanes and not any(r in a.steps for a in inside):
                return self.split_vector(
                    r, "UPCAST", "each step of the sum reads the same for all lanes", INVARIANT_VECTOR_COUNTS
                )
        return False

    # ---- threads -----------------------------------------------------------------------------------------------------
    def threads(self) -> None:
        """Divide an output loop that is long enough among the threads, by the rules of `threads_over`."""
        self.threads_over(self.plan.outputs)

    # ---- borders -----------------------------------------------------------------------------------------------------
    def peel_borders(self) -> None:
        """PEEL the first and last iterations of the innermost loop that has gates or padding, so that the iterations
        between need no masks.

        In a small kernel the next loop around it is peeled, too.
        """
        if not self.plan.target.vector_bytes or self.profile.n_ops > MAX_OPS_TO_PEEL:
            return
        for i, p in reversed([(i, p) for i, p in enumerate(self.plan.axes) if p.type == "LOOP" and not p.is_block]):
            if (
                p.size >= MIN_ITERATIONS_TO_PEEL
                and p.root in self.plan.outputs
                and (ends := peel_lengths(self.plan, p))
            ):
                who = "the ends need the border's masks" if len(ends) == 2 else "concat boundaries need masks"
                who = "the edge of the mask needs the mask" if ends[0] == "mask" else who
                done = self.act("PEEL", i, ends, f"only {who}")
                if done and self.profile.n_ops > MAX_OPS_TO_PEEL_TWICE:
                    return

    # ---- memory beyond the caches ------------------------------------------------------------------------------------
    def bypass_caches(self) -> None:
        """Choose PREFETCHes of rows that are streamed or gathered, and NONTEMPORAL stores.

        Non-temporal stores, with prefetches of the contiguous loads, are chosen if the kernel touches at least as much
        memory as L3 has, and writes at least a third of that.
        """
        plan, target = self.plan, self.plan.target
        for a, ahead in self.streamed_loads if target.streams else ():
            if buffer_bytes(a.uop) > target.l3_bytes:
                self.act("PREFETCH", plan.loads.index(a.uop), ahead, "rows that stream from memory")
        self.prefetch_gathered_rows()
        memory = {u.src[0].src[0]: self.touched_bytes(u) for u in (*plan.loads, *plan.stores)}
        written = {u.src[0].src[0]: self.touched_bytes(u) for u in plan.stores}
        if sum(memory.values()) < target.l3_bytes or sum(written.values()) * 3 < target.l3_bytes:
            return
        streams = [
            self.act("NONTEMPORAL", i, None, "outputs larger than the last cache") for i in range(len(plan.stores))
        ]
        for i, u in enumerate(plan.loads if any(streams) else ()):
            if buffer_bytes(u) > target.l2_bytes and (n := self.prefetch_distance(u)):
                self.act("PREFETCH", i, n, "a stream from memory")

    def prefetch_gathered_rows(self) -> None:
        """Choose a PREFETCH of the rows that a gather loads later, as far ahead as a contiguous stream is prefetched.

        Rows of one vector need no prefetch: many of their loads are in flight at once anyway.
        """
        plan = self.plan
        for i, u in enumerate(plan.loads):
            p = vector_of(plan, u)
            row_bytes = plan.size(p.root) * u.dtype.itemsize if p is not None and index_loads(u) else 0
            if row_bytes > plan.target.vector_bytes and buffer_bytes(u) > plan.target.l2_bytes:
                rows = min(-(-STREAM_PREFETCH_BYTES // row_bytes), MAX_PREFETCH_ROWS)
                self.act("PREFETCH", i, ("rows", rows), "rows that an index names, from memory")

    def touched_bytes(self, u: UOp) -> int:
        """Upper bound of the bytes of memory that the LOAD or STORE `u` accesses: the size of its buffer, or of the
        elements that its loops visit if that is smaller.
        """
        visited = prod(self.plan.size(r) for r in ranges(u.src[0])) * u.src[0].dtype.itemsize
        return min(buffer_bytes(u), visited or buffer_bytes(u))

    def prefetch_distance(self, u: UOp) -> int:
        """Return how many bytes ahead of its address the LOAD `u` should prefetch: STREAM_PREFETCH_BYTES or the length
        of a row. 0 if `u` is no contiguous stream of vectors, as prefetching is useless then.
        """
        plan, p = self.plan, vector_of(self.plan, u)
        loops = [q for q in plan.axes if q.type == "LOOP" and q.root in ranges(u) and not q.is_block]
        found = any(x.op != "RANGE" for x, _ in linear(u.src[0].src[1])[1])  # the index is loaded from memory
        if p is None or found or p.root in plan.reduced or not loops or loops[-1].root is not p.root:
            return 0
        row_bytes = plan.size(p.root) * u.dtype.itemsize if plan.reduced else 0
        return max(STREAM_PREFETCH_BYTES, row_bytes if row_bytes <= plan.target.l2_bytes // 4 else 0)


class Strategy(NamedTuple):
    """One way to choose the actions of a kernel. `applies`: whether it is for a kernel; `choose`: performs the actions;
    `name`, `why`: its name and the reason to print for it.
    """

    name: str
    why: str
    applies: Callable[[Chooser], bool]
    choose: Callable[[Chooser], None]


STRATEGIES: tuple[Strategy, ...] = (  # in the order in which they are tried
    Strategy("workgroups", "the target has workgroups", lambda c: bool(c.plan.workgroup), lambda c: Groups(c).run()),
    Strategy("threads", "the kernel has vectors already", lambda c: c.plan.has_vectors, Chooser.threads),
    Strategy("loops", "the target has no vectors", Chooser.has_no_vectors, Chooser.finish),
    Strategy("stages", "values in scratch memory", lambda c: bool(c.plan.scratch.fills), Chooser.choose_staged),
    Strategy("tile", "a reduction reuses its operands", lambda c: bool(c.contracted), Chooser.choose_tile),
    Strategy("vectors", "no reduction reuses its operands", lambda c: True, Chooser.choose_vectors),
)


def choose(plan: LoopPlan) -> list[str]:
    """Perform on `plan` the actions that the heuristic chooses; return their reasons, one text for each action. None
    are chosen for a kernel whose axis types a user fixed.
    """
    return [] if plan.is_given else Chooser(plan).run()


__all__ = ["STRATEGIES", "Chooser", "Strategy", "choose"]

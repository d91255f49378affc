"""Choose which values are computed in which kernel, in one walk from the results back to the inputs.

The walk reaches each value after all its consumers, with their demands `(kernel, index, gate, loops)`. The value is
then computed inside the kernels that demand it (fusion, the default), or stored: as one more output of a kernel that
computes it anyway, or by its own kernel. Kernels that read one value at the same indices are merged when neither
depends on the other.

A kernel is an ordered chain of blocks of output ranges. A reduction is fused if its own ranges are a prefix of that
chain, so that it is computed exactly once per outer iteration. Softmax, layernorm and RMSnorm over rows become one
kernel for this reason. A value that would be recomputed many times is stored instead when a buffer costs less.

Invariant: those of `kernel_graph`; each value is visited after all its consumers.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from monolect.base.dtype import dtypes
from monolect.ir.bounds import ranges, size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.placement import device
from monolect.ir.rewrite.normal import TRUE, count, linear
from monolect.ir.uop import UOp, node
from monolect.schedule.kernel_graph import (
    MAX_KERNEL_VALUES,
    MAX_STORES,
    Demand,
    KernelGraph,
    RangeSet,
    Store,
    is_innermost,
    refined,
)
from monolect.schedule.materialize import costs, is_forced, is_join, operands_of, reuses, scanned_axis, values
from monolect.schedule.padded_storage import PaddedValue, padded_value
from monolect.schedule.ranges import (
    Index,
    broadcast_index,
    covers,
    effect_target,
    full_index,
    overwrites,
    ranges_of,
    size,
    sources,
    value_sources,
)
from monolect.schedule.scratch import (
    FIRST_RANGE,
    SMALL_WORK,
    ScratchValue,
    is_worth_scratch,
    main_source,
    moves_innermost_out,
    scratch_value,
)

HEAVY_OPS = 8  # weighted ops; above it, storing a value beats computing it again in a second kernel
# terms per element of a reduction; from this length on, storing the sum is cheaper than fusing it
MIN_REDUCTION_FOR_BUFFER = 512
EPILOGUE_OPS = 32  # weighted ops; an epilogue of a contraction up to this size is fused for free
# values; a reduction is fused only if the kernel has room for this many more, so that cuts fall on reductions
ROOM_TO_REDUCE = 60
REDUCE_SIZE = 12  # values that a reduction counts as, since it is a loop
MIN_SUMMED_ROWS = 128  # summed rows; a sum of fewer rows is fused like any other reduction
MIN_ROW_BYTES = 1 << 10  # bytes of a summed row; from this stride on, reading several rows per iteration is 4x faster
MIN_SUMMED_BYTES = 1 << 20  # bytes of all rows; a smaller sum stays in the cache, so its order does not matter
ENOUGH_PARALLEL = 8  # outer iterations; with fewer, a large kernel is not fused behind one reduction
# ops that keep a value a multiple of their operand
MULTIPLES = frozenset(("MUL", "RESHAPE", "EXPAND", "PERMUTE", "CONTIGUOUS_BACKWARD", "DETACH"))


class Partition(KernelGraph):
    """The walk over the graph and its result.

    `stored[v]` is (kernel, index) for each value with a buffer; `staged[v]` describes each value in local memory;
    `kernels` is the result, where merged kernels are None.
    """

    def __init__(self, roots: list[UOp], default_device: str, local_bytes: int = 0):
        super().__init__()
        self.roots = roots
        self.order = values(roots)
        self.forced = {u for u in self.order if is_forced(u)} | set(roots)
        self.cost = costs(self.order, self.forced)
        self.demands: dict[UOp, list[Demand]] = {}
        self.stored: dict[UOp, tuple[int, Index]] = {}
        # kernels that need the whole buffer of a value, because they have effects on it
        self.whole: dict[UOp, set[int]] = {}
        self.staged: dict[UOp, ScratchValue] = {}
        self.padded_values: dict[UOp, PaddedValue] = {}  # values stored in the interior of a padded buffer
        self.n_scratch_ranges = 0
        self.default_device = default_device
        self.local_bytes = local_bytes  # local memory of each thread; 0 if the target has none

    # ---- the walk ----------------------------------------------------------------------------------------------------
    def run(self) -> Partition:
        """Visit all values, consumers first, and return self."""
        for u in reversed(self.order):
            if u.origin is not None:
                for s in operands_of(u):  # operands that a Tensor method made internally belong to the same user call
                    s.origin = s.origin or u.origin
            self.visit(u)
        self._number_scratch_ranges()
        return self

    def _number_scratch_ranges(self) -> None:
        """Renumber the loops of scratch values per kernel, so that equal layers become equal kernels."""
        n: Counter[int] = Counter()
        for u, s in self.staged.items():
            k, index = self.find(s.kernel), list(s.index)
            for a in s.inner:
                index[a] = node("RANGE", index[a].src, (FIRST_RANGE + n[k], "LOOP"))
                n[k] += 1
            self.staged[u] = ScratchValue(k, tuple(index), s.inner)

    def visit(self, u: UOp) -> None:
        """Fuse the value `u`, store it, or keep it in local memory, and pass demands on to its operands."""
        demands = self._current(u)
        if u.op == "CONST" or u.op == "IOTA":
            if u in self.forced:
                # a constant is never loaded, so the store has no consumers
                self.store(u, [] if u.op == "CONST" else demands)
            return
        if u.op in ("PARAM", "BUFFER"):
            demands = self._join_siblings(u, demands)
            if u in self.forced:
                self.store(u, demands)
            return
        if u in self.forced:
            if u.op == "AFTER" and not overwrites(u):
                self.effects(u, demands)
            else:
                self.store(u, self._join_siblings(u, demands) if len(demands) > 1 else demands)
            return
        demands = self._join_siblings(u, demands)
        must = self._must_store(u, demands)
        if (must or is_worth_scratch(self, u, demands)) and (found := scratch_value(self, u, demands)) is not None:
            if all(main_source(u, d) is not None for d in demands):
                for d in demands:
                    # a factor of the terms is moved out of the sum; the value it multiplies becomes a scratch value
                    self.propagate(u, d)
            else:
                self.store_in_scratch(u, found)
        elif must:
            self.forced.add(u)
            if (padded := padded_value(self, u)) is not None:
                self.store_padding(padded, demands)
            else:
                self.store(u, demands)
        else:
            for d in demands:
                self.kernel(d.kernel).n_values += REDUCE_SIZE if u.op == "REDUCE" else 1
                self.propagate(u, d)

    def _current(self, u: UOp) -> list[Demand]:
        """Pop the demands for `u`, with numbers of merged kernels updated and duplicates removed."""
        seen: dict[tuple, Demand] = {}
        for d in self.demands.pop(u, ()):
            k = self.find(d.kernel)
            d = d if k == d.kernel else d._replace(kernel=k)
            key = (k, d.index, d.gate, d.red)
            if key not in seen or seen[key].out < d.out:
                seen[key] = d
        return list(seen.values())

    def propagate(self, u: UOp, d: Demand) -> None:
        """Add to `demands` the elements of the operands of `u` that the demand `d` for `u` reads."""
        wanted = sources(u, d.index, d.gate)
        out, red = d.out, d.red
        main = main_source(u, d)
        linear = d.linear and (main is not None or u.op in MULTIPLES)
        if u.op == "REDUCE":
            mine: RangeSet = frozenset().union(*(ranges(i) for i in d.index)) | ranges(d.gate)
            closed = tuple(i for a, i in enumerate(wanted[0][1]) if a in u.arg[1])
            out, red = out & mine, (*(r for r in red if r in mine), *closed)
            if (i := _scanned(u, d.index)) is not None:
                out = out - {i}
            linear = u.arg[0] == "ADD"
        for s, index, gate in wanted:
            if main is None or s is main:
                self.demands.setdefault(s, []).append(Demand(d.kernel, index, gate, out, red, linear))
            else:  # a factor that is constant along the sum leaves it
                outside = tuple(r for r in red if r in ranges_of(index))
                self.demands.setdefault(s, []).append(Demand(d.kernel, index, gate, out, outside))

    def store_in_scratch(self, u: UOp, found: ScratchValue) -> None:
        """Keep `u` in local memory between the loops of the one kernel that demands it."""
        self.staged[u] = found
        self.n_scratch_ranges += len(found.inner)
        k = self.kernel(found.kernel)
        outer = ranges_of(found.index) & k.all_ranges()
        blocks = k.refined(outer)
        assert blocks is not None
        k.blocks, k.staged = [b for b in blocks if b], True
        k.n_values += 1
        self.propagate(u, Demand(found.kernel, found.index, TRUE, ranges_of(found.index), ()))

    def store(self, u: UOp, demands: list[Demand]) -> None:
        """Give `u` a buffer: one more store of a kernel that computes it anyway, else a new kernel."""
        host = self._host(u, demands)
        consumers = {self.find(c) for c in self.whole.get(u, ())} | {d.kernel for d in demands}
        if host is None:
            index = full_index(u.shape)
            rs = frozenset(r for r in index if r.op == "RANGE")
            k = self.new_kernel([rs], [Store(u, index)], self._device(u), consumers)
            here = Demand(k, index, TRUE, rs, ())
        else:
            here, k, index = host, host.kernel, host.index
            self.kernel(k).stores.append(Store(u, index))
            self.run_after(k, consumers)
        self.stored[u] = (k, index)
        self.kernel(k).n_values += 1
        if u.op == "REDUCE":
            self.kernel(k).reuse |= reuses(u, self.cost) or self._sums_long_rows(u)
            self.kernel(k).scan = _scanned(u, index) or self.kernel(k).scan
        if u.op not in ("CONST", "IOTA", "BUFFER"):
            self.propagate(u, here)

    def store_padding(self, f: PaddedValue, demands: list[Demand]) -> None:
        """Add the kernel that stores the border of a padded buffer, and force its inner value to be stored."""
        borders = f.borders()
        blocks: list[RangeSet] = []
        for index in borders:
            loops = [i for x in index for i in ranges(x)]
            blocks += [frozenset((i,)) for i in loops if frozenset((i,)) not in blocks]
        consumers = {d.kernel for d in demands}
        stores = [Store(f.padded, index) for index in borders]
        self.stored[f.padded] = (self.new_kernel(blocks, stores, self._device(f.padded), consumers), ())
        self.padded_values[f.value] = f
        self.forced.add(f.value)
        self.whole.setdefault(f.value, set()).update(consumers)

    def _device(self, u: UOp) -> Any:
        """Return the device of `u`, or the default device if `u` has none, as a constant."""
        return device(u) or self.default_device

    def _host(self, u: UOp, demands: list[Demand]) -> Demand | None:
        """Return a demand whose kernel can also store `u`, after refining that kernel's blocks for the store; or None.

        At that demand each element is computed exactly once, and no other consumer of `u` runs before the kernel.
        """
        if u.op in ("PARAM", "CONST", "IOTA"):
            return None
        heavy = u.op == "REDUCE" and reuses(u, self.cost)
        for d in demands:
            k = self.kernel(d.kernel)
            rs = covers(d.index, u.shape)
            if rs is None or d.gate is not TRUE or not rs <= d.out or k.device != self._device(u):
                continue
            if len(k.stores) >= MAX_STORES or k.n_values > MAX_KERNEL_VALUES:
                continue
            if any(s.effect is not None for s in k.stores):
                continue
            if heavy and (rs != d.out or k.reuse or _is_long(u)) or self._sums_long_rows(u):
                continue
            if not self._enough_parallel(u, rs, d):
                continue
            if u.op == "REDUCE" and not self._fits_scan(u, d):
                continue
            if not self._is_worth_reordering(u) and moves_innermost_out(rs, k.blocks):
                continue  # the kernel's loops follow the memory order of its store and loads
            blocks = k.refined(rs, d.out)
            others = {self.find(c) for c in self.whole.get(u, ())}
            others |= {o.kernel for o in demands if o.kernel != d.kernel or o.index != d.index or o.gate is not TRUE}
            if blocks is None or not is_innermost(_scanned(u, d.index) or k.scan, blocks):
                continue
            if refined(blocks, rs) != blocks:
                continue  # a loop outside of `out`, such as the loop of a scan, would enclose the loops of this store
            if any(o == d.kernel or self.kernel(o).later >> d.kernel & 1 for o in others):
                continue
            k.blocks = [b for b in blocks if b]
            return d
        return None

    def _is_worth_reordering(self, u: UOp) -> bool:
        """Whether storing `u` in a kernel that demands it pays although the loops of that kernel must be reordered.

        It does not pay for an elementwise value without a fused reduction, nor for a CONTIGUOUS that depends on no
        contraction.
        """
        cost = self.cost[u]
        if u.op in ELEMENTWISE:
            return cost.reduces
        return u.op != "CONTIGUOUS" or cost.rows or cost.heavy

    def _enough_parallel(self, u: UOp, rs: RangeSet, d: Demand) -> bool:
        """Whether fusing `u` over the ranges `rs` leaves enough outer iterations for threads, or the work is small.

        Threads split a loop that encloses every store, so a reduction that a larger inner loop waits for limits them.
        """
        inner = size(d.out - rs)
        return inner == 1 or size(rs) >= ENOUGH_PARALLEL or size({*d.out, *d.red}) <= SMALL_WORK

    def effects(self, u: UOp, demands: list[Demand]) -> None:
        """Store a partial assign: one kernel per effect, run in order, on the buffer of the target."""
        consumers = {d.kernel for d in demands} | {self.find(c) for c in self.whole.get(u, ())}
        for e in reversed(u.src[1:]):
            index = full_index(e.src[0].shape)
            rs = frozenset(r for r in index if r.op == "RANGE")
            k = self.new_kernel([rs], [Store(u, index, e)], self._device(u), consumers)
            self.stored[u] = (k, index)
            here = Demand(k, index, TRUE, rs, ())
            self._effect_sources(u, e, here)
            consumers = {k}
        self.whole.setdefault(u.src[0], set()).update(consumers)

    def _effect_sources(self, u: UOp, e: UOp, d: Demand) -> None:
        """Demand the value, gate and index tensors that the effect `e` reads."""
        for v in e.src[1:]:
            self.demands.setdefault(v, []).append(d._replace(index=broadcast_index(d.index, v.shape)))
        for t, i, g in effect_target(e.src[0], u.src[0], d.index)[2]:
            self.demands.setdefault(t, []).append(d._replace(index=i, gate=g))

    # ---- decisions ---------------------------------------------------------------------------------------------------
    def _join_siblings(self, u: UOp, demands: list[Demand]) -> list[Demand]:
        """Merge kernels that demand `u` at the same indices; return the updated demands."""
        if len(demands) < 2 or self._is_mask(u):
            return demands
        groups: dict[tuple, int] = {}
        changed = False
        for d in demands:
            key = (d.index, d.gate)
            a, b = groups.setdefault(key, d.kernel), self.find(d.kernel)
            a = groups[key] = self.find(a)
            if a != b and (blocks := self.mergeable(a, b, bool(ranges_of(d.index)))) is not None:
                groups[key] = self.merge(a, b, blocks)
                changed = True
        if not changed:
            return demands
        self.demands[u] = demands
        return self._current(u)

    def _is_mask(self, u: UOp) -> bool:
        """Whether `u` is a bool or index that is computed from positions at no cost: sharing `u` would save no load."""
        return self.cost[u].leaf == self.cost[u].ops == 0 and (u.dtype is dtypes.bool or u.dtype.kind == "x")

    def _must_store(self, u: UOp, demands: list[Demand]) -> bool:
        """Whether `u` needs a buffer: fusing it would repeat too much work, or make a kernel too large."""
        if not demands:
            return False
        kernels = {d.kernel for d in demands}
        if u.op == "REDUCE":
            return not self._fusable_reduce(u, demands, kernels)
        ops = self.cost[u].ops
        if ops == 0 or u.op not in ELEMENTWISE:
            return False
        if u.op == "CAST" and (u.src[0].dtype.kind == "x" or u.src[0].dtype.itemsize < u.dtype.itemsize):
            return False  # an upcast is never stored: an index is free, and the narrower operand takes less memory
        if any(self.kernel(k).n_values > MAX_KERNEL_VALUES for k in kernels) and not self.cost[u].leaf == 0:
            return True
        if len(kernels) > 1 and (ops > HEAVY_OPS or self._ends_product(u)):
            return True
        if len({d.index for d in demands}) > 4:
            return True
        return any(self._wasteful(u, ops, d) for d in demands)

    def _ends_product(self, u: UOp) -> bool:
        """Whether `u` adds a contraction to another value of its size: storing the contraction saves one load."""
        full = [s for s in value_sources(u) if s.shape == u.shape and self.cost[s].leaf >= size_max(count(u.shape))]
        return u.op == "ADD" and len(full) == 2 and any(self.cost[s].product for s in full)

    def _wasteful(self, u: UOp, ops: int, d: Demand) -> bool:
        """Whether computing `u` for the demand `d` repeats enough work to pay for a buffer."""
        mine = frozenset().union(*(ranges(i) for i in d.index)) if d.index else frozenset()
        again = self._redundancy(d, mine)
        if again < 8:
            return False
        if self.kernel(d.kernel).staged and is_join(u):
            return False  # `rules.loops.concat_boundaries` splits its loops at the concat boundary
        if d.red and self.kernel(d.kernel).reuse:
            gates = ops == 1 and _is_padded(u) and all(map(_is_linear, d.index)) and padded_value(self, u) is None
            return ops >= 1 and not gates
        if not d.red and ops <= EPILOGUE_OPS and any(self.cost[s.node].heavy for s in self.kernel(d.kernel).stores):
            return False  # an epilogue of a contraction: storing it would fix the loop order of the tiles
        return ops > HEAVY_OPS and (again - 1) * ops * size(mine) > 1 << 18

    def _redundancy(self, d: Demand, mine: RangeSet) -> int:
        """Return how often each element of a value with ranges `mine` would be computed for the demand `d`.

        Loops inside of the innermost range of `mine` do not count. Loops of a block run in their order, unless a
        contraction's tiles reorder them.
        """
        k = self.kernel(d.kernel)
        levels = [b & d.out for b in k.blocks]
        if not any(self.cost[s.node].heavy for s in k.stores):
            levels = [frozenset((r,)) for b in levels for r in sorted(b, key=lambda r: r.arg[0])]
        again, pending = 1, 1
        for level in (*levels, *(frozenset((r,)) for r in sorted(d.red, key=lambda r: r.arg[0]))):
            if level & mine:
                again, pending = again * pending * size(level - mine), 1
            else:
                pending *= size(level)
        return again

    def _fusable_reduce(self, u: UOp, demands: list[Demand], kernels: set[int]) -> bool:
        """Whether the REDUCE `u` is computed once per outer iteration of its one consumer.

        If so, the blocks of the consumer's kernel are split for it.
        """
        if len(kernels) > 1 or len({(d.index, d.gate) for d in demands}) > 1:
            return False
        d = demands[0]
        k = self.kernel(d.kernel)
        if d.gate is not TRUE or k.n_values > MAX_KERNEL_VALUES - ROOM_TO_REDUCE:
            return False
        if any(s.effect is not None for s in k.stores) and scanned_axis(u) is None:
            return False
        if not self._fits_scan(u, d):
            return False
        mine = frozenset().union(*(ranges(i) for i in d.index)) if d.index else frozenset()
        if any(dd.red != d.red and not mine <= dd.out for dd in demands):
            return False
        if size(mine) > size_max(count(u.shape)):
            return False  # an index such as i // 2 would compute every sum several times
        heavy = reuses(u, self.cost)
        in_scratch = not d.out <= k.all_ranges()
        if heavy and (d.red or mine != d.out or (k.reuse and not in_scratch)):
            return False
        if (heavy and _is_long(u) or self._sums_long_rows(u)) and len(k.stores) > 1:
            return False
        inside = frozenset(d.red) & mine
        if inside and not (d.out <= mine and set(d.red[: len(inside)]) == inside):
            return False
        if not inside and d.red and k.reuse:
            return False
        if not self._enough_parallel(u, mine & d.out, d):
            return False
        around = k.all_ranges()
        # the loops of a scratch value are nested in all others
        chain = refined([*k.blocks, d.out - around], mine & d.out, d.out)
        blocks = [b & around for b in chain or ()]
        if chain is None or not is_innermost(_scanned(u, d.index) or k.scan, blocks):
            return False
        k.blocks = [b for b in blocks if b]
        k.reuse |= heavy or self._sums_long_rows(u)
        k.scan = _scanned(u, d.index) or k.scan
        return True

    def _sums_long_rows(self, u: UOp) -> bool:
        """Whether `u` sums many long rows, which are streamed from memory several rows at a time into the kernel's only
        store.

        Summing each column completely before the next one would not stream.
        """
        if u.op != "REDUCE" or u.arg[0] != "ADD" or reuses(u, self.cost) or scanned_axis(u) is not None:
            return False
        shape, n_bytes = [size_max(n) for n in u.src[0].shape], u.dtype.itemsize
        rows, row = prod(shape[a] for a in u.arg[1]), prod(shape[max(u.arg[1]) + 1 :])
        return rows >= MIN_SUMMED_ROWS and row * n_bytes >= MIN_ROW_BYTES and prod(shape) * n_bytes > MIN_SUMMED_BYTES

    def _fits_scan(self, u: UOp, d: Demand) -> bool:
        """Whether `u`, if it is a scan, can be carried through a loop of this kernel.

        The loop must be an output loop outside of reductions, and the same as the loop of the kernel's other scans.
        """
        if scanned_axis(u) is None:
            return True
        i = _scanned(u, d.index)
        return i is not None and i in d.out and not d.red and self.kernel(d.kernel).scan in (None, i)


def _is_long(u: UOp) -> bool:
    """Whether a buffer for the sum `u` is cheap compared with its terms: there are MIN_REDUCTION_FOR_BUFFER or more an
    element.
    """
    return size_max(count(u.src[0].shape)) >= MIN_REDUCTION_FOR_BUFFER * size_max(count(u.shape))


def _scanned(u: UOp, index: Index) -> UOp | None:
    """Return the RANGE of the loop that the scan `u` is carried through at `index`, or None."""
    axis = scanned_axis(u) if u.op == "REDUCE" else None
    return index[axis] if axis is not None and index[axis].op == "RANGE" else None


def _is_padded(u: UOp) -> bool:
    """Whether `u` is WHERE(condition, value, constant), as padding is. In packed tiles the gate of a load does the same
    for free.
    """
    return u.op == "WHERE" and u.src[2].op == "CONST"


def _is_linear(i: UOp) -> bool:
    """Whether the index `i` is a linear combination of RANGEs."""
    return all(x.op == "RANGE" for x, _ in linear(i)[1])


__all__ = ["Partition"]

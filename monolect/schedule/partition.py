"""Which values are computed in which kernel: one walk from the results back to the inputs.

Each value is reached after all its consumers, with the set of their demands `(kernel, index, gate, context)`. It is
then computed inside the kernels that want it (fusion, the default), or stored: as one more output of a kernel that
computes it anyway, or by a kernel of its own. Kernels that read one value at the same indices become one kernel when no
dependency runs between them.

A kernel is an ordered chain of blocks of output ranges. A reduction is fused where its own ranges are a prefix of that
chain, so that it is computed once per outer iteration and never again: softmax, layernorm and RMSnorm over rows are one
kernel for this reason. What would be computed many times over is stored instead when that costs less.

Invariant: kernels form a DAG: `later[k]` holds, as bits, the kernels that must run after k.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any, NamedTuple

from monolect.base.dtype import dtypes
from monolect.ir.bounds import ranges, size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.placement import device
from monolect.ir.rewrite.normal import TRUE, count, linear
from monolect.ir.uop import UOp, node
from monolect.schedule.materialize import Cost, below, costs, is_forced, is_join, reuses, scanned_axis
from monolect.schedule.padded_storage import Frame, frame
from monolect.schedule.ranges import (
    Index,
    broadcast_index,
    covers,
    effect_target,
    full_index,
    overwrites,
    sources,
    value_sources,
)
from monolect.schedule.scratch import (
    FIRST_RANGE,
    SMALL_WORK,
    Stage,
    is_wanted,
    main_source,
    ranges_of,
    size,
    stage,
    turns,
)
from monolect.schedule.traversal import walk

RangeSet = frozenset[UOp]

HEAVY_OPS = 8  # weighted ops above which storing beats computing again in a second kernel
LONG_SUM = 512  # products in a sum from which on a buffer for it costs less than several results wait for memory
EPILOGUE_OPS = 32  # weighted ops that do not count after the sum of a matrix product
LARGEST_KERNEL = 600  # values in a kernel: code generation time stays linear
ROOM_TO_REDUCE = 60  # values that a kernel must still have room for, so that it is cut at a sum, not among its terms
REDUCE_SIZE = 12  # a reduction is a loop of its own
MOST_STORES = 12
MANY_ROWS = 128  # that are added up: where memory has neighbours FAR_ROW_BYTES apart, and all are FAR_SUM_BYTES,
FAR_ROW_BYTES = 1 << 10  # to read some of them side by side is four times as fast
FAR_SUM_BYTES = 1 << 20
ENOUGH_PARALLEL = 8  # outer iterations below which a big kernel is not made to wait for one reduction
MULTIPLES = frozenset(("MUL", "RESHAPE", "EXPAND", "PERMUTE", "CONTIGUOUS_BACKWARD", "DETACH"))


class Demand(NamedTuple):
    """Someone wants element `index` of a value, inside the loops `out` (output ranges) and `red` (reductions)."""

    kernel: int
    index: Index  # type: ignore[assignment]  # hides the method of tuple
    gate: UOp
    out: RangeSet
    red: tuple[UOp, ...]
    linear: bool = False  # as a factor of each term of the sum over the last of `red`


class Store(NamedTuple):
    """A kernel writes the value `node` (or runs the effect `effect` of the AFTER `node`) at `index`."""

    node: UOp
    index: Index  # type: ignore[assignment]  # hides the method of tuple
    effect: UOp | None = None


class Kernel:
    """A kernel in the making."""

    __slots__ = ("blocks", "device", "later", "n_values", "reuse", "scan", "staged", "stores")

    def __init__(self, blocks: list[RangeSet], stores: list[Store], dev: Any):
        self.blocks, self.stores, self.device = [b for b in blocks if b], stores, dev
        self.later = 0
        self.n_values = 0
        self.reuse = False  # holds a matrix product or the like: its tiling is its own
        self.scan: UOp | None = None  # the loop that carries running sums: the innermost
        self.staged = False  # keeps values in local memory

    def all_ranges(self) -> RangeSet:
        return frozenset().union(*self.blocks) if self.blocks else frozenset()

    def refined(self, want: RangeSet, out: RangeSet | None = None) -> list[RangeSet] | None:
        """The blocks with `want` made a prefix of them, or None: see `refined`."""
        return refined(self.blocks, want, out)


def refined(blocks: list[RangeSet], want: RangeSet, out: RangeSet | None = None) -> list[RangeSet] | None:
    """`blocks` with `want` made a prefix of the chain (restricted to `out`), or None if the chain forbids it."""
    left = want
    done: list[RangeSet] = []
    for i, b in enumerate(blocks):
        if not left:
            break
        here = b if out is None else b & out
        if here <= left:
            left, done = left - here, [*done, b]
        elif left <= b:
            return [*done, left, b - left, *blocks[i + 1 :]]
        else:
            return None
    return blocks if not left else None


def is_innermost(scan: UOp | None, blocks: list[RangeSet]) -> bool:
    """Whether the loop that carries running sums is in the last of `blocks`: a sum starts anew in each iteration of all
    others, so none may stand in that loop.
    """
    kept = [b for b in blocks if b]
    return not any(scan in b for b in kept[:-1])


def is_nest(blocks: list[RangeSet], stores: list[Store]) -> bool:
    """Whether each of `blocks` is inside the same others in every store that has it: stores that share a loop share
    those around it. Stores over (i, j) and (i, k) share i. A third over (i, j, k) would have k inside of j, where the
    second has no j.
    """
    around: dict[RangeSet, RangeSet] = {}
    for s in stores:
        own, outer = ranges_of(s.index), frozenset[UOp]()
        for b in filter(own.intersection, blocks):
            if around.setdefault(b, outer) != outer:
                return False
            outer |= b
    return True


class Partition:
    """The walk. `stored[v]` is (kernel, index) for values with a buffer, `staged[v]` for values in local
    memory; `kernels` the result, dead ones None.
    """

    def __init__(self, roots: list[UOp], default_device: str, local_bytes: int = 0):
        self.roots = roots
        self.order = walk(roots)
        self.forced = {u for u in self.order if is_forced(u)} | set(roots)
        self.cost: dict[UOp, Cost] = costs(self.order, self.forced)
        self.demands: dict[UOp, list[Demand]] = {}
        self.kernels: list[Kernel | None] = []
        self.alias: list[int] = []  # union-find over kernel numbers
        self.stored: dict[UOp, tuple[int, Index]] = {}
        self.whole: dict[UOp, set[int]] = {}  # kernels that need a value's buffer as a whole (effects on it)
        self.staged: dict[UOp, Stage] = {}
        self.frames: dict[UOp, Frame] = {}  # values that are stored in the middle of what is around them
        self.n_stage_ranges = 0
        self.default_device = default_device
        self.local_bytes = local_bytes  # of each thread, 0 where the target has none

    # ---- kernels -----------------------------------------------------------------------------------------------------
    def find(self, k: int) -> int:
        while self.alias[k] != k:
            self.alias[k] = self.alias[self.alias[k]]
            k = self.alias[k]
        return k

    def kernel(self, k: int) -> Kernel:
        out = self.kernels[k]
        assert out is not None
        return out

    def new_kernel(self, blocks: list[RangeSet], stores: list[Store], dev: Any, consumers: set[int]) -> int:
        """One more kernel, which writes what `consumers` read; no other comes before it yet."""
        k = len(self.kernels)
        self.kernels.append(Kernel(blocks, stores, dev))
        self.alias.append(k)
        self.kernel(k).later = self._after(consumers)
        return k

    def _after(self, kernels: set[int]) -> int:
        """The kernels, and all that must run after them."""
        bits = 0
        for k in kernels:
            bits |= 1 << k | self.kernel(k).later
        return bits

    def run_after(self, k: int, consumers: set[int]) -> None:
        """Record that `consumers` read what kernel k writes."""
        mine, bits = self.kernel(k), self._after(consumers - {k})
        if bits & ~mine.later:
            mine.later |= bits
            for other in self.kernels:
                if other is not None and other.later >> k & 1:
                    other.later |= bits

    def merge(self, a: int, b: int, blocks: list[RangeSet]) -> int:
        """One kernel of two; b disappears."""
        ka, kb = self.kernel(a), self.kernel(b)
        ka.blocks, ka.stores = blocks, ka.stores + kb.stores
        ka.n_values += kb.n_values
        ka.reuse |= kb.reuse
        ka.scan = ka.scan or kb.scan
        self.kernels[b] = None
        self.alias[b] = a
        both = 1 << a | 1 << b
        ka.later = (ka.later | kb.later) & ~both
        for other in self.kernels:
            if other is not None and other is not ka and other.later & both:
                other.later = (other.later & ~(1 << b)) | 1 << a | ka.later
        return a

    def mergeable(self, a: int, b: int, along: bool) -> list[RangeSet] | None:
        """The blocks of the union of two kernels, or None when they must stay apart. What both read, if it does not
        move `along` their loops, is one number: it spares no loads, and loops of one that stand around other loops of
        the other are lost to its vectors.
        """
        ka, kb = self.kernel(a), self.kernel(b)
        if ka.device != kb.device or ka.reuse or kb.reuse or ka.later >> b & 1 or kb.later >> a & 1:
            return None
        if ka.scan is not kb.scan and ka.scan is not None and kb.scan is not None:
            return None
        if len(ka.stores) + len(kb.stores) > MOST_STORES or ka.n_values + kb.n_values > LARGEST_KERNEL:
            return None
        if any(s.effect is not None for s in ka.stores + kb.stores):
            return None
        ra, rb = ka.all_ranges(), kb.all_ranges()
        common = ra & rb
        if (not common and (ra or rb)) or (not along and ra != rb):
            return None
        ba = ka.refined(common)
        bb = kb.refined(common)
        if ba is None or bb is None:
            return None
        prefix: RangeSet = frozenset()
        for block in bb:  # repeat b's cuts of the common part in a
            prefix |= block
            if prefix <= common and (ba := refined(ba, prefix)) is None:
                return None
        assert ba is not None
        blocks = [*ba, *(b for b in bb if not b <= common)]
        fits = is_innermost(ka.scan or kb.scan, blocks) and is_nest(blocks, ka.stores + kb.stores)
        return blocks if fits else None

    # ---- the walk ----------------------------------------------------------------------------------------------------
    def run(self) -> Partition:
        for u in reversed(self.order):
            if u.origin is not None:
                for s in below(u):  # what a Tensor method made inside belongs to the same call
                    s.origin = s.origin or u.origin
            self.visit(u)
        self._number_stages()
        return self

    def _number_stages(self) -> None:
        """The loops of stages, which had numbers of their own, are numbered in each kernel by itself: those of equal
        layers are equal.
        """
        n: Counter[int] = Counter()
        for u, s in self.staged.items():
            k, index = self.find(s.kernel), list(s.index)
            for a in s.inner:
                index[a] = node("RANGE", index[a].src, (FIRST_RANGE + n[k], "LOOP"))
                n[k] += 1
            self.staged[u] = Stage(k, tuple(index), s.inner)

    def visit(self, u: UOp) -> None:
        demands = self._current(u)
        if u.op == "CONST" or u.op == "IOTA":
            if u in self.forced:
                self.store(u, [] if u.op == "CONST" else demands)  # nobody reads a constant from memory
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
        if (must or is_wanted(self, u, demands)) and (found := stage(self, u, demands)) is not None:
            if all(main_source(u, d) is not None for d in demands):
                for d in demands:
                    self.propagate(u, d)  # a factor of the sum's terms: it leaves the sum, what it multiplies is staged
            else:
                self.keep(u, found)
        elif must:
            self.forced.add(u)
            if (framed := frame(self, u)) is not None:
                self.store_frame(framed, demands)
            else:
                self.store(u, demands)
        else:
            for d in demands:
                self.kernel(d.kernel).n_values += REDUCE_SIZE if u.op == "REDUCE" else 1
                self.propagate(u, d)

    def _current(self, u: UOp) -> list[Demand]:
        seen: dict[tuple, Demand] = {}
        for d in self.demands.pop(u, ()):
            k = self.find(d.kernel)
            d = d if k == d.kernel else d._replace(kernel=k)
            key = (k, d.index, d.gate, d.red)
            if key not in seen or seen[key].out < d.out:
                seen[key] = d
        return list(seen.values())

    def propagate(self, u: UOp, d: Demand) -> None:
        """Pass the demand on to what `u` is computed from."""
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
            else:  # constant along the sum
                outside = tuple(r for r in red if r in ranges_of(index))
                self.demands.setdefault(s, []).append(Demand(d.kernel, index, gate, out, outside))

    def keep(self, u: UOp, found: Stage) -> None:
        """Keep `u` in local memory between the loops of the one kernel that wants it."""
        self.staged[u] = found
        self.n_stage_ranges += len(found.inner)
        k = self.kernel(found.kernel)
        outer = ranges_of(found.index) & k.all_ranges()
        blocks = k.refined(outer)
        assert blocks is not None
        k.blocks, k.staged = [b for b in blocks if b], True
        k.n_values += 1
        self.propagate(u, Demand(found.kernel, found.index, TRUE, ranges_of(found.index), ()))

    def store(self, u: UOp, demands: list[Demand]) -> None:
        """Give `u` a buffer: as one more store of a kernel that computes it anyway, else by a kernel of its own."""
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
            self.kernel(k).reuse |= reuses(u, self.cost) or self._sums_far_rows(u)
            self.kernel(k).scan = _scanned(u, index) or self.kernel(k).scan
        if u.op not in ("CONST", "IOTA", "BUFFER"):
            self.propagate(u, here)

    def store_frame(self, f: Frame, demands: list[Demand]) -> None:
        """Store what is around a value, which then has to be stored in the middle before anyone reads the whole."""
        borders = f.borders()
        blocks: list[RangeSet] = []
        for index in borders:
            loops = [i for x in index for i in ranges(x)]
            blocks += [frozenset((i,)) for i in loops if frozenset((i,)) not in blocks]
        consumers = {d.kernel for d in demands}
        stores = [Store(f.around, index) for index in borders]
        self.stored[f.around] = (self.new_kernel(blocks, stores, self._device(f.around), consumers), ())
        self.frames[f.value] = f
        self.forced.add(f.value)
        self.whole.setdefault(f.value, set()).update(consumers)

    def _device(self, u: UOp) -> Any:
        return device(u) or self.default_device

    def _host(self, u: UOp, demands: list[Demand]) -> Demand | None:
        """A demand at which `u` is computed once for each element, in a kernel none of its other consumers precede."""
        if u.op in ("PARAM", "CONST", "IOTA"):
            return None
        heavy = u.op == "REDUCE" and reuses(u, self.cost)
        for d in demands:
            k = self.kernel(d.kernel)
            rs = covers(d.index, u.shape)
            if rs is None or d.gate is not TRUE or not rs <= d.out or k.device != self._device(u):
                continue
            if len(k.stores) >= MOST_STORES or k.n_values > LARGEST_KERNEL:
                continue
            if any(s.effect is not None for s in k.stores):
                continue
            if heavy and (rs != d.out or k.reuse or _is_long(u)) or self._sums_far_rows(u):
                continue
            if not self._enough_parallel(u, rs, d):
                continue
            if u.op == "REDUCE" and not self._fits_scan(u, d):
                continue
            if not self._gains(u) and turns(rs, k.blocks):
                continue  # what reads it is stored, and read, as memory lies
            blocks = k.refined(rs, d.out)
            others = {self.find(c) for c in self.whole.get(u, ())}
            others |= {o.kernel for o in demands if o.kernel != d.kernel or o.index != d.index or o.gate is not TRUE}
            if blocks is None or not is_innermost(_scanned(u, d.index) or k.scan, blocks):
                continue
            if refined(blocks, rs) != blocks:
                continue  # a loop outside of `out`, such as that of a running sum, would be around the store's loops
            if any(o == d.kernel or self.kernel(o).later >> d.kernel & 1 for o in others):
                continue
            k.blocks = [b for b in blocks if b]
            return d
        return None

    def _gains(self, u: UOp) -> bool:
        """Whether another order of loops is worth it for `u` to have no kernel of its own: there is a sum to wait for,
        and none that a CONTIGUOUS keeps apart, but for rows between products.
        """
        cost = self.cost[u]
        if u.op in ELEMENTWISE:
            return cost.reduces
        return u.op != "CONTIGUOUS" or cost.rows or cost.heavy

    def _enough_parallel(self, u: UOp, rs: RangeSet, d: Demand) -> bool:
        """What a larger loop waits for, or stands beside, must leave enough outer iterations to run in parallel:
        threads share out a loop that encloses every store.
        """
        inner = size(d.out - rs)
        return inner == 1 or size(rs) >= ENOUGH_PARALLEL or size({*d.out, *d.red}) <= SMALL_WORK

    def effects(self, u: UOp, demands: list[Demand]) -> None:
        """A partial assign: one kernel an effect, run in order, on the buffer of the target."""
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
        for v in e.src[1:]:
            self.demands.setdefault(v, []).append(d._replace(index=broadcast_index(d.index, v.shape)))
        for t, i, g in effect_target(e.src[0], u.src[0], d.index)[2]:
            self.demands.setdefault(t, []).append(d._replace(index=i, gate=g))

    # ---- decisions ---------------------------------------------------------------------------------------------------
    def _join_siblings(self, u: UOp, demands: list[Demand]) -> list[Demand]:
        """Merge kernels that want `u` at the same indices."""
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
        """Whether `u` is made of places alone, at no cost: kernels that want it share nothing."""
        return self.cost[u].leaf == self.cost[u].ops == 0 and (u.dtype is dtypes.bool or u.dtype.kind == "x")

    def _must_store(self, u: UOp, demands: list[Demand]) -> bool:
        if not demands:
            return False
        kernels = {d.kernel for d in demands}
        if u.op == "REDUCE":
            return not self._fusable_reduce(u, demands, kernels)
        ops = self.cost[u].ops
        if ops == 0 or u.op not in ELEMENTWISE:
            return False
        if u.op == "CAST" and (u.src[0].dtype.kind == "x" or u.src[0].dtype.itemsize < u.dtype.itemsize):
            return False  # an index costs nothing; what it widens takes less memory, if it must be stored
        if any(self.kernel(k).n_values > LARGEST_KERNEL for k in kernels) and not self.cost[u].leaf == 0:
            return True
        if len(kernels) > 1 and (ops > HEAVY_OPS or self._ends_product(u)):
            return True
        if len({d.index for d in demands}) > 4:
            return True
        return any(self._wasteful(u, ops, d) for d in demands)

    def _ends_product(self, u: UOp) -> bool:
        """A product joined to another value of its size: storing the sum instead costs nothing, and one load less."""
        full = [s for s in value_sources(u) if s.shape == u.shape and self.cost[s].leaf >= size_max(count(u.shape))]
        return u.op == "ADD" and len(full) == 2 and any(self.cost[s].product for s in full)

    def _wasteful(self, u: UOp, ops: int, d: Demand) -> bool:
        """True when computing `u` at this place repeats enough work to pay for a buffer."""
        mine = frozenset().union(*(ranges(i) for i in d.index)) if d.index else frozenset()
        again = self._redundancy(d, mine)
        if again < 8:
            return False
        if self.kernel(d.kernel).staged and is_join(u):
            return False  # `rules.loops.concat_boundaries` cuts its loops at the seam
        if d.red and self.kernel(d.kernel).reuse:
            gates = ops == 1 and _is_frame(u) and all(map(_is_linear, d.index)) and frame(self, u) is None
            return ops >= 1 and not gates
        if not d.red and ops <= EPILOGUE_OPS and any(self.cost[s.node].heavy for s in self.kernel(d.kernel).stores):
            return False  # after a product; to store it would put a loop order on the tiles
        return ops > HEAVY_OPS and (again - 1) * ops * size(mine) > 1 << 18

    def _redundancy(self, d: Demand, mine: RangeSet) -> int:
        """How often the same element would be computed inside the loops of this demand: not in those further inside
        than its own. The loops of a block stand in their order, but where tiles of a product give them another.
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
        if len(kernels) > 1 or len({(d.index, d.gate) for d in demands}) > 1:
            return False
        d = demands[0]
        k = self.kernel(d.kernel)
        if d.gate is not TRUE or k.n_values > LARGEST_KERNEL - ROOM_TO_REDUCE:
            return False
        if any(s.effect is not None for s in k.stores) and scanned_axis(u) is None:
            return False
        if not self._fits_scan(u, d):
            return False
        mine = frozenset().union(*(ranges(i) for i in d.index)) if d.index else frozenset()
        if any(dd.red != d.red and not mine <= dd.out for dd in demands):
            return False
        if size(mine) > size_max(count(u.shape)):
            return False  # read as i // 2 or the like: every element would be summed several times
        heavy = reuses(u, self.cost)
        in_stage = not d.out <= k.all_ranges()
        if heavy and (d.red or mine != d.out or (k.reuse and not in_stage)):
            return False
        if (heavy and _is_long(u) or self._sums_far_rows(u)) and len(k.stores) > 1:
            return False
        inside = frozenset(d.red) & mine
        if inside and not (d.out <= mine and set(d.red[: len(inside)]) == inside):
            return False
        if not inside and d.red and k.reuse:
            return False
        if not self._enough_parallel(u, mine & d.out, d):
            return False
        around = k.all_ranges()
        chain = refined(
            [*k.blocks, d.out - around], mine & d.out, d.out
        )  # the loops of a stage are inside of all others
        blocks = [b & around for b in chain or ()]
        if chain is None or not is_innermost(_scanned(u, d.index) or k.scan, blocks):
            return False
        k.blocks = [b for b in blocks if b]
        k.reuse |= heavy or self._sums_far_rows(u)
        k.scan = _scanned(u, d.index) or k.scan
        return True

    def _sums_far_rows(self, u: UOp) -> bool:
        """Whether `u` adds up many long rows: a few of them at once, into the kernel's only store, stream from memory;
        every row of a column before the next column does not.
        """
        if u.op != "REDUCE" or u.arg[0] != "ADD" or reuses(u, self.cost) or scanned_axis(u) is not None:
            return False
        shape, n_bytes = [size_max(n) for n in u.src[0].shape], u.dtype.itemsize
        rows, row = prod(shape[a] for a in u.arg[1]), prod(shape[max(u.arg[1]) + 1 :])
        return rows >= MANY_ROWS and row * n_bytes >= FAR_ROW_BYTES and prod(shape) * n_bytes > FAR_SUM_BYTES

    def _fits_scan(self, u: UOp, d: Demand) -> bool:
        """Whether `u`, if it is a running sum, may be carried through a loop of this kernel: an output loop outside of
        reductions, and no other than that of the running sums it has.
        """
        if scanned_axis(u) is None:
            return True
        i = _scanned(u, d.index)
        return i is not None and i in d.out and not d.red and self.kernel(d.kernel).scan in (None, i)


def _is_long(u: UOp) -> bool:
    """Whether a buffer for the sum `u` costs little beside its products."""
    return size_max(count(u.src[0].shape)) >= LONG_SUM * size_max(count(u.shape))


def _scanned(u: UOp, index: Index) -> UOp | None:
    """The loop that the running sum `u` is carried through at `index`."""
    axis = scanned_axis(u) if u.op == "REDUCE" else None
    return index[axis] if axis is not None and index[axis].op == "RANGE" else None


def _is_frame(u: UOp) -> bool:
    """True for a constant around what was padded: the gate of a load decides that, in tiles while they are packed."""
    return u.op == "WHERE" and u.src[2].op == "CONST"


def _is_linear(i: UOp) -> bool:
    return all(x.op == "RANGE" for x, _ in linear(i)[1])


__all__ = ["Demand", "Kernel", "Partition", "Store", "refined"]

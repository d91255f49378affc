"""Implement PACK: copy the block of memory that a load reads inside a loop to local memory, in reading order.

A load's index must be linear in the loops. The copy runs in each iteration of the innermost block loop that the load
depends on; each part of a loop inside of it makes a dimension of the block. If the index depends on two loops only
through a weighted sum that has fewer values than the loops have pairs of iterations (the rows and taps of a
convolution), the two make one dimension: a window. Where contiguous runs of memory are short, a window may have up to
twice as many values as the load reads. The copy evaluates the load's gate, so that elements outside of a padded
tensor are zeros in the block and the tile reads without a gate.

The layout of the block depends on the load. A load that moves along the vector lanes gets the layout of a panel: lanes
innermost, then the other axes of the tile, then the reductions, then the loops, so that the innermost loop reads
consecutive vectors. Broadcast operands whose tile rows are contiguous in memory get the same layout. The block of any
other load keeps the order of memory, without the gaps; rows are padded.

Operands that the kernel casts to a wider dtype are cast during the copy: a float16 is converted once, not at each use.
A matrix unit reads the narrow dtype.

A block of memory that has the same contents at every run is packed once: one more PARAM holds all blocks in the order
of the loops around them, and a separate kernel that runs once copies them. With PREFETCH "next", each pass over a block
prefetches its share of the block that is read next.

Before: REDUCE(MUL(LOAD(INDEX(A, ..r2..)), LOAD(INDEX(B, r2*512 + r0*64 + u1*16 + lane))), r2:64)
After:  REDUCE(MUL(LOAD(INDEX(A, ..r2..)), LOAD(INDEX(AFTER(LOCAL[32768], END(STORE(INDEX(LOCAL, r3*64 + r4*4096 + ..),
        LOAD(INDEX(B, r3*512 + r4*64 + ..))), r3:64, r4:8)), r2*64 + r0*4096 + u1*16 + lane))), r2:64)
"""

from __future__ import annotations

from itertools import count, pairwise
from math import gcd, inf, prod
from typing import Any, NamedTuple

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges, replace_ranges
from monolect.ir.ops import BufferArg, LoadArg
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import TRUE, conjuncts, less, linear
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute, toposort
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.tuning import (
    LINE_BYTES,
    MAX_WINDOW_OVERREAD,
    MIN_COPIES_TO_PEEL,
    MIN_ROW_TO_TRANSPOSE,
    MIN_WORDS_TO_TRANSPOSE,
    RUNS_PREFETCHED,
    SHORT_RUN,
)


class BlockDim(NamedTuple):
    """One dimension of a packed block, with `size` iterations v.

    Iteration v is the element `v * step` further in the memory that is copied, and `v * dst` further in the block. In
    terms of the kernel's loops, it advances each RANGE r by `v * weights[r]` iterations. When the kernel reads the
    block, v is the sum over `parts` of the part's iteration times its weight.
    """

    size: int
    step: int
    dst: int
    weights: dict[UOp, int]
    parts: tuple[tuple[AxisPart, int], ...]


class SlidingWindow(NamedTuple):
    """Two RANGEs (rows and taps of a convolution) that the address depends on only through the sum w of `weights[r]`
    times r's iteration. They make one dimension of a packed block.

    `size`: number of values of w. `step`: elements in memory from w to w + 1. `unit`: {RANGE r: iterations of r} that
    add up to w = 1.
    """

    size: int
    step: int
    weights: dict[UOp, int]
    unit: dict[UOp, int]


class PackedBlock:
    """The block of memory that the LOAD `u` reads in one iteration of the innermost block loop that it depends on, and
    the layout of its packed copy.

    Raises ActionError where PACK is not possible. For targets without workgroups; subclasses are for workgroups.
    """

    has_panels = True

    def __init__(self, plan: LoopNest, u: UOp):
        self.plan, self.load = plan, u
        self.index = u.src[0].src[1]
        self.gate = u.src[2] if len(u.src) == 3 else TRUE
        self.steps = self._linear()
        self.widened = self._widened()  # the node of the kernel that the block's load replaces
        self.dtype = self.widened.dtype  # dtype of the block's elements
        mine = [p for p in plan.axes if p.root in self.steps]
        self.level = max((p.created for p in mine if p.is_block), default=0)
        self.outer = [p for p in mine if self.is_outside(p)]
        self.inner = [p for p in mine if p not in self.outer]
        if any(not p.size for p in self.inner):
            raise ActionError("PACK", expected="loops of constant size", found="a symbolic one")
        lane = plan.lane(u)
        self.summed = next((p.root for p in self.inner if p.type == "GROUP_REDUCE" and self.has_panels), None)
        self.lane = lane if self.has_panels and lane in self.steps and self.summed is None else None
        self.is_panel = self.lane is not None
        self.gated = self.gate is not TRUE or bool(self._bounds())
        self.windows = self._windows()
        self.in_tiles = self.is_panel or self._has_rows()
        self.dims = self._laid_out(self._dims())
        self.elements = max((d.dst * self._padded_size(d, self.dims) for d in self.dims), default=1)
        self.is_packed_once = plan.is_frozen(u)
        found = self.elements * self.dtype.itemsize
        if not self.is_packed_once and found > plan.target.local_bytes:
            raise ActionError("PACK makes a block too large", expected=f"<= {plan.target.local_bytes}", found=found)

    def is_outside(self, p: AxisPart) -> bool:
        """Whether the part p is a loop around the copy (a thread or block loop), so that each of its iterations has its
        own block.
        """
        return p.type == "THREAD" or p.is_block

    def _linear(self) -> dict[UOp, int]:
        """Return {RANGE: the stride in elements of the packed load's address along it}.

        Raises ActionError where the load cannot be packed: its index is not linear, it reads memory that the kernel
        writes, or its gate depends on other loops or on loads.
        """
        plan, known = self.plan, {*self.plan.outputs, *self.plan.reduced}
        steps: dict[UOp, int] = {}
        for x, c in linear(self.index)[1]:
            if x not in known:
                raise ActionError("PACK", expected="an index linear in the loops", found=repr(x))
            steps[x] = c
        stored = {memory_of(u.src[0]) for u in plan.order if u.op in ("STORE", "ATOMICADD")}
        if memory_of(self.load.src[0]) in stored or plan.sequential:
            raise ActionError("PACK", expected="memory this kernel only reads", found="memory it writes, or a scan")
        around = toposort(self.gate)
        if any(x.op == "LOAD" for x in around) or not ranges(self.gate) <= steps.keys():
            raise ActionError("PACK", expected="a gate of the loops of the index", found=repr(self.gate))
        if not steps or (len(self.load.src) == 3 and self.load.src[1].op != "CONST"):
            raise ActionError("PACK", expected="a load that moves with the loops", found=repr(self.load))
        return steps

    def extent(self, r: UOp) -> int:
        """Number of iterations of the RANGE r that one block covers: those of its parts inside of the copy's loops."""
        return prod(p.size for p in self.inner if p.root is r)

    @property
    def local_bytes(self) -> int:
        """Bytes that the block takes in local memory."""
        return self.elements * self.dtype.itemsize

    def _widened(self) -> UOp:
        """Return the node of the kernel that a load from the block replaces: the LOAD's CAST to a wider dtype if that
        is its only user, so that the copy casts; else the LOAD.
        """
        users = self.plan.scratch.users.get(self.load, [])
        is_cast = len(users) == 1 and users[0].op == "CAST" and users[0].dtype.itemsize > self.load.dtype.itemsize
        return users[0] if is_cast and self.has_panels and self.plan.unit is None else self.load

    # ---- dimensions --------------------------------------------------------------------------------------------------
    def _dims(self) -> list[BlockDim]:
        """Return the dimensions of the block with more than one element, innermost first. Their strides `dst` in the
        block are not set yet.
        """
        self._check_parts()
        windows = [self._of_window(w) for w in self.windows]
        in_window = {r for w in self.windows for r in w.weights}
        contracted = [self._of_part(p) for p in reversed(self.inner) if p.type == "CONTRACT"]
        out: list[BlockDim] = contracted[:1]  # the contiguous word of a matrix unit
        if self.in_tiles:
            shaped = [p for p in self.inner if p.type == "UPCAST" and p.root not in in_window]
            loops = [p for p in self.inner if p.type == "LOOP" and p.root not in in_window and p.root not in shaped]
            tile = [self._of_part(p) for p in sorted(shaped, key=lambda p: p.created)]
            out += [*tile[:1], *contracted[1:], *tile[1:]]
            whole = [r for r in self.steps if r in self.plan.reduced and r not in in_window]
            out += sorted([*windows, *map(self._of_root, whole)], key=lambda d: abs(d.step))
            out += [self._of_part(p) for p in reversed(loops)]
        else:
            whole = [r for r in self.steps if r not in in_window]
            nearest = sorted([*windows, *map(self._of_root, whole)], key=lambda d: abs(d.step))
            out += contracted[1:] + sorted(nearest, key=lambda d: self.summed not in (None, *d.weights))
        return [d for d in out if d.size > 1]

    def _check_parts(self) -> None:
        """Raise ActionError if a block loop is inside of a loop over the block: blocks must be cut from the outer part
        of an axis.
        """
        if any(o.root is p.root and o.stride < p.stride for o in self.outer for p in self.inner):
            raise ActionError("PACK", expected="blocks of the outer part of an axis", found="of an inner one")

    def _of_part(self, p: AxisPart) -> BlockDim:
        """Return the dimension of the block that the iterations of the part p alone make."""
        return BlockDim(p.size, self.steps[p.root] * p.stride, 0, {p.root: p.stride}, ((p, 1),))

    def _of_root(self, r: UOp) -> BlockDim:
        """Return the dimension of the block that all parts of the RANGE r make together, except its CONTRACT parts
        (steps that a matrix unit takes at once).
        """
        mine = [p for p in self.inner if p.root is r and p.type != "CONTRACT"]
        k = self.extent(r) // prod(p.size for p in mine)
        return BlockDim(self.extent(r) // k, self.steps[r] * k, 0, {r: k}, tuple((p, p.stride // k) for p in mine))

    def _of_window(self, w: SlidingWindow) -> BlockDim:
        """Return the dimension of the block that the two RANGEs of the window w make together."""
        parts = tuple((p, w.weights[p.root] * p.stride) for p in self.inner if p.root in w.weights)
        return BlockDim(w.size, w.step, 0, w.unit, parts)

    def _has_rows(self) -> bool:
        """Whether the packed load is a broadcast operand (it does not move along the vector lanes) whose tile rows are
        consecutive in memory, so that they are stored next to each other.

        False for a matrix unit with several rows, which has its own layout.
        """
        shaped = [p for p in self.inner if p.type == "UPCAST" and self.steps[p.root] == 1 and p.stride == 1]
        unit = self.plan.unit
        in_window = {r for w in self.windows for r in w.weights}
        return (
            self.has_panels
            and self.summed is None
            and bool(shaped)
            and shaped[0].root not in in_window
            and not (unit and unit.m > 1)
        )

    def _windows(self) -> list[SlidingWindow]:
        """Return the windows of the packed load: pairs of an output RANGE and a reduction RANGE that its address
        depends on only through a weighted sum.

        A padded reduction is in no window: elements beyond its end read as zero, not as the next row.
        """
        out: list[SlidingWindow] = []
        free = list(self.steps)
        whole = {r for r in self.plan.reduced if r not in self.plan.padded}
        whole -= {p.root for p in self.inner if p.type == "CONTRACT"}
        for a in [r for r in free if r in self.plan.outputs and r is not self.lane]:
            for b in [r for r in free if r in whole]:
                if a in free and b in free and (w := self._window(a, b)) is not None:
                    out.append(w)
                    free = [r for r in free if r not in w.weights]
        return out

    def _window(self, a: UOp, b: UOp) -> SlidingWindow | None:
        """Return the RANGEs a and b as a window of the packed load, or None if they are none: the weighted sum has as
        many values as there are pairs of iterations, or the load's gate depends on more than the sum.
        """
        g = gcd(self.steps[a], self.steps[b])
        ka, kb = self.steps[a] // g, self.steps[b] // g
        na, nb = self.extent(a), self.extent(b)
        piece = na if ka == 1 else nb if kb == 1 else 1  # length of contiguous runs in memory
        most = na * nb * (MAX_WINDOW_OVERREAD if g == 1 and piece < SHORT_RUN else 1)
        if min(ka, kb) < 1 or (size := ka * (na - 1) + kb * (nb - 1) + 1) >= most:
            return None
        unit = {a: 1, b: 0} if ka == 1 else {a: (n := pow(ka, -1, kb)), b: (1 - ka * n) // kb}
        all_blocks = ka * (self.plan.size(a) - 1) + kb * (self.plan.size(b) - 1) + 1
        v = node("RANGE", (idx(all_blocks),), (-1, "LOOP"))
        for e in conjuncts(self.gate):  # each condition must depend on the sum alone
            if a in ranges(e) or b in ranges(e):
                if substitute(substitute(e, {r: v * n for r, n in unit.items()}), {v: a * ka + b * kb}) is not e:
                    return None
        return SlidingWindow(size, g, {a: ka, b: kb}, unit)

    def _laid_out(self, dims: list[BlockDim]) -> list[BlockDim]:
        """Return the dimensions `dims` of the block, innermost first, each with its stride `dst` in the block.

        Rows are padded to whole vectors, and so that adjacent rows use different cache sets.
        """
        lanes, itemsize = self._lanes(), self.pair * self.dtype.itemsize
        out: list[BlockDim] = []
        at = 1
        for i, d in enumerate(dims):
            out.append(d._replace(dst=at))
            n = self._padded_size(d, dims)
            if at == self.pair and i < len(dims) - 1 and not self.in_tiles:
                along = d.step == 1 or (i > 0 and d.step == dims[0].step * self.pair == self.pair)
                along |= self.summed in d.weights
                n = -(-n // lanes) * lanes if along and n > lanes else n
                n += lanes if n * itemsize % 512 == 0 else 0  # rows at powers of two share cache sets
            at *= n
            if at > n and self.in_tiles and not self.is_panel and i == len(dims) - 2 and at * itemsize % 512 == 0:
                at += lanes  # tiles are filled in parallel
        return out

    def _padded_size(self, d: BlockDim, dims: list[BlockDim]) -> int:
        """Number of iterations of the dimension d that the block has room for. Where the copy transposes squares of d
        by the vector lanes, it is rounded up to whole squares. `dims`: all dimensions of the block, innermost first.
        """
        room = -(-d.size // self._lanes()) * self._lanes()
        return room if self._are_words(d, dims) or self._is_transposed(d, dims) else d.size

    def _is_transposed(self, d: BlockDim, dims: list[BlockDim]) -> bool:
        """Whether the copy transposes squares (the vector lanes by as many iterations of the dimension d) in registers.
        The last square may be partly outside of the block. `dims`: all dimensions of the block, innermost first.
        """
        along_lanes = self.is_panel or self.summed is not None
        return along_lanes and self.pair == 1 and dims[0].step != 1 and d.step == 1 and d.size >= MIN_ROW_TO_TRANSPOSE

    def _are_words(self, d: BlockDim, dims: list[BlockDim]) -> bool:
        """Whether the dimension d consists of words (the pairs of adjacent elements that a matrix unit takes) that are
        consecutive in memory, and of enough words to copy them in transposed squares. `dims`: all dimensions of the
        block, innermost first.
        """
        words = self.is_panel and self.pair > 1 and dims[0].step == 1 and d.step == self.pair
        return words and d.size >= MIN_WORDS_TO_TRANSPOSE and dims[1].size % self._lanes() == 0

    @property
    def pair(self) -> int:
        """Number of elements of the reduction that the plan's matrix unit takes as one contiguous word; 1 without a
        matrix unit.
        """
        unit = self.plan.unit
        return unit.pair if unit is not None and any(p.type == "CONTRACT" for p in self.inner) else 1

    def _lanes(self) -> int:
        """Number of words of `pair` elements in a vector register."""
        return self.plan.target.lanes(self.dtype.itemsize) // self.pair

    # ---- code --------------------------------------------------------------------------------------------------------
    def packed(self, made: dict[AxisPart, UOp], ids: count, slots: count) -> UOp:
        """Return the LOAD from the block in local memory that replaces the packed load, AFTER the loops that copy the
        block.

        `made`: {part of an axis: its new RANGE}. `ids`, `slots`: free numbers of RANGEs, and of BUFFERs.
        """
        u = self.load
        # copying whole vectors may write beyond the end
        n = self.elements + self.plan.target.lanes(self.dtype.itemsize)
        memory = node("BUFFER", (shape_source((n,)),), BufferArg(next(slots), self.dtype, None, "LOCAL"))
        filled = node("AFTER", (memory, *self._peeled_copies(self._copy(made, ids, memory, u.src[0].src[0]), ids)))
        return node("LOAD", (node("INDEX", (filled, self._element_offset(made))),), u.arg)

    def load_packed_once(self, made: dict[AxisPart, UOp], slot: int) -> UOp:
        """Return the LOAD that replaces the packed load, from the PARAM number `slot` that holds all blocks, which a
        separate kernel filled once. `made`: {part of an axis: its new RANGE}.
        """
        memory = self._blocks(slot)
        if self.plan.flags.get(self.load) == "next":
            prefetches = [node("PREFETCH", (node("INDEX", (memory, at)),)) for at in self._next(made)]
            memory = node("AFTER", (memory, *prefetches))
        address = node("INDEX", (memory, self._start(made) + self._element_offset(made)))
        return node("LOAD", (address,), self.load.arg)

    def _next(self, made: dict[AxisPart, UOp]) -> list[UOp]:
        """Return index expressions: the elements, in the PARAM of all blocks, whose cache lines this iteration
        prefetches. They are in the block after the current one.

        A pass is one run of the loops over the current block, which several rows of tiles read. Each pass prefetches
        its share of the next block, so that memory is used evenly. `made`: {part of an axis: its new RANGE}.
        """
        readers = [ranges(s) for s in self.plan.stores if self.load in toposort(s)]
        around = [p for p in self.plan.axes if p in made and p.type == "LOOP" and p.root not in self.steps]
        around = [p for p in around if all(p.root in nest for nest in readers)]  # loops of all readers
        passes = sorted((p for p in around if not p.is_block or p.created > self.level), key=lambda p: made[p].arg[0])
        sizes = [p.size or self.plan.extent(made[p]) for p in passes]
        n, number = prod(sizes), idx(0)
        for p, size in zip(passes, sizes, strict=True):
            number = number * size + made[p]
        if not all(p.size for p in passes):
            number = number % n  # a symbolic loop may have more iterations than expected
        loops = [(p, w * d.dst) for d in self.dims for p, w in d.parts if p in made and p.type in ("LOOP", "REDUCE")]
        step = min((k for _, k in loops), default=self.elements)  # elements that one iteration reads
        share, line = -(-step // n), LINE_BYTES // self.dtype.itemsize
        at = number * -(-self.elements // n) + _sum((made[p], k // step * share) for p, k in loops)
        return [self._start(made) + (self._stride() + i) + at for i in range(0, share, line)]

    def fill(self, slot: int) -> list[UOp]:
        """Return the loop nests (ENDs) of the separate kernel that copies all blocks to PARAM `slot` from the original
        memory, which is PARAM `slot + 1` there.
        """
        ids = count()
        made = {p: node("RANGE", (idx(p.size),), (next(ids), "LOOP")) for p in self._nest()}
        old = self.load.src[0].src[0]
        source = node("PARAM", old.src, old.arg._replace(slot=slot + 1))
        around = tuple(made.values())
        copy = self._copy(made, ids, self._blocks(slot), source, self._start(made), around)
        return self._peeled_copies(copy, ids, len(around))

    def _nest(self) -> list[AxisPart]:
        """The parts whose loops are around the copy of a block, outermost first."""
        return sorted((p for p in self.outer if p.size > 1), key=lambda p: (p.type != "THREAD", p.created))

    def _stride(self) -> int:
        """Number of elements from the start of a block to the start of the next one in the PARAM of blocks that are
        packed once: whole vectors, with room for copies that write beyond a block's end.
        """
        lanes = self.plan.target.lanes(self.dtype.itemsize)
        return (-(-self.elements // lanes) + 1) * lanes

    def _blocks(self, slot: int) -> UOp:
        """Return the PARAM number `slot` that holds all blocks that are packed once."""
        n = self.kept_bytes // self.dtype.itemsize
        arg = self.load.src[0].src[0].arg._replace(slot=slot, dtype=self.dtype)
        return node("PARAM", (shape_source((n,)),), arg)

    @property
    def source_slot(self) -> int:
        """Slot of the PARAM whose memory is packed."""
        return int(self.load.src[0].src[0].arg.slot)

    @property
    def kept_bytes(self) -> int:
        """Bytes of the PARAM that holds all blocks that are packed once."""
        return self._stride() * prod(p.size for p in self._nest()) * self.dtype.itemsize

    @property
    def has_next(self) -> bool:
        """Whether the load is packed once, and each thread reads several blocks, so that a PREFETCH of the next block
        is possible.
        """
        return self.is_packed_once and any(p.type != "THREAD" for p in self._nest())

    def _start(self, made: dict[AxisPart, UOp]) -> UOp:
        """Offset in elements, as an index expression, of the current block in the PARAM of all blocks that are packed
        once. `made`: {part of an axis: its new RANGE}.
        """
        at: UOp = idx(0)
        for p in self._nest():
            at = at * p.size + made[p]
        return at * self._stride()

    def _element_offset(self, made: dict[AxisPart, UOp]) -> UOp:
        """Offset in elements, as an index expression, inside of the block, of the element that the kernel loads.
        `made`: {part of an axis: its new RANGE}.
        """
        return _sum((made[p], w * d.dst) for d in self.dims for p, w in d.parts if p in made)

    def _copy(
        self,
        made: dict[AxisPart, UOp],
        ids: count,
        memory: UOp,
        origin: UOp,
        start: UOp | None = None,
        around: tuple[UOp, ...] = (),
    ) -> UOp:
        """Return the loop nest (an END) that copies one block from the memory `origin` to `memory`, at the offset
        `start` (None: 0).

        `made`: {part of an axis: its new RANGE}. `ids`: free numbers of RANGEs. `around`: RANGEs around the copy that
        the END closes too.
        """
        u = self.load
        outer = {r: _sum((made[p], p.stride) for p in self.outer if p.root is r and p in made) for r in self.steps}
        values = dict(outer)
        source, target, inside = substitute(self.index, outer), idx(0) if start is None else start, TRUE
        loops = list(around)
        for pieces in self._copy_loops():
            first, v = pieces[0], idx(0)
            for n, k, kind in pieces[1]:
                r = node("RANGE", (idx(n),), (next(ids), kind))
                loops.append(r)
                v = v + r * k
            source, target = source + v * first.step, target + v * first.dst
            for root, w in first.weights.items():
                values[root] = values[root] + v * w
            if prod(n for n, _, _ in pieces[1]) > first.size and not self._are_words(first, self.dims):
                inside = build("AND", inside, less(v, first.size))
        gate = build("AND", self._gate(values), inside)
        address = node("INDEX", (origin, source))
        alt = u.src[1] if len(u.src) == 3 else const(0, u.dtype)
        ahead = self._prefetch_arg()
        value = node("LOAD", (address, alt, gate), ahead) if gate is not TRUE else node("LOAD", (address,), ahead)
        value.origin = u.origin
        if self.dtype is not u.dtype:
            value = node("CAST", (value,), self.dtype)
        store = node("STORE", (node("INDEX", (memory, target)), value))
        return node("END", (store, *loops)) if loops else store

    def _peeled_copies(self, copy: UOp, ids: count, n_around: int = 0) -> list[UOp]:
        """Return the loop nest `copy` as a list of loop nests. If it copies in transposed squares, the last iterations
        of its loops are peeled into loop nests of their own, so that only those are gated; otherwise the list is
        [copy].

        Nothing is peeled where a copied row overwrites the start of the next row, which must be written later. `ids`:
        free numbers of RANGEs. The outermost `n_around` loops are not peeled.
        """
        in_squares = self.pair > 1 or any(self._is_transposed(d, self.dims) for d in self.dims)
        return _peel_last(copy, ids, n_around) if in_squares and not self._overlaps() else [copy]

    def _overlaps(self) -> bool:
        """Whether the copy of one row, in whole vectors, overwrites the start of the next row in the block."""
        pieces = self._copy_loops()
        dims = [d for d, _ in pieces]
        return any(_end_of_copy(d, prod(n for n, _, _ in cut)) > _next_row(d, dims) for d, cut in pieces)

    def _prefetch_arg(self) -> Any:
        """Return the arg of the LOAD in the copy: a prefetch distance if the copy reads short runs of tile rows from a
        buffer that exceeds the L2 cache, else the arg of the packed load.
        """
        far = prod(memory_of(self.load.src[0]).shape) * self.load.dtype.itemsize > self.plan.target.l2_bytes
        if not self.in_tiles or self.is_panel or not far or not self.plan.target.streams:
            return self.load.arg
        return LoadArg(prefetch_bytes=RUNS_PREFETCHED * max(abs(d.step) for d in self.dims) * self.load.dtype.itemsize)

    def _gate(self, values: dict[UOp, UOp]) -> UOp:
        """Return the gate of the LOAD in the copy: the gate of the packed load, AND a bound for each loop that the copy
        runs beyond its end.

        `values`: {RANGE of the original kernel: its iteration, as an expression in the loops of the copy}.
        """
        gate = substitute(self.gate, values)
        for r, n in (self._bounds() | self._squares()).items():
            w = next((w for w in self.windows if r in w.weights), None)
            if w is None and r in values:
                gate = build("AND", gate, less(values[r], n))
            elif w is not None:
                last = sum(k * (self.plan.size(x) - 1) for x, k in w.weights.items())
                gate = build("AND", gate, less(_sum((values[x], k) for x, k in w.weights.items()), last + 1))
        return gate

    def _bounds(self) -> dict[UOp, int]:
        """Return {RANGE: its size} of the RANGEs whose parts together have more iterations than the RANGE: it is
        padded, or cut into unequal parts.
        """
        clipped = {p.root: self.plan.size(p.root) for p in self.inner if p.clipped}
        return clipped | {r: self.plan.size(r) for r in self.plan.padded if r in self.steps}

    def _squares(self) -> dict[UOp, int]:
        """Return {RANGE: its size} of the RANGEs along which a copy in whole squares of words runs beyond the end, so
        that the copy's gate needs a bound.
        """
        words = (d for d in self.dims if self._are_words(d, self.dims) and self._padded_size(d, self.dims) > d.size)
        return {r: self.plan.size(r) for d in words for r in d.weights}

    def _copy_loops(self) -> list[tuple[BlockDim, list[tuple[int, int, str]]]]:
        """Return (dimension, its loops in the copy) for each dimension of the block, the one with the largest stride in
        memory first. Each loop is (number of iterations, stride in iterations of the dimension, axis type LOOP or
        UPCAST).

        Vectors run along the dimension that is contiguous in the block; where another is contiguous in memory, also
        along that one, which makes squares.
        """
        lanes, pair = self.plan.target.lanes(self.dtype.itemsize), self.pair
        dims = self._merged()
        turned = any(d.step == 1 and d.dst > 1 and gcd(self._padded_size(d, self.dims), lanes) > 1 for d in dims)
        out: list[tuple[BlockDim, list[tuple[int, int, str]]]] = []
        order = sorted(dims, key=lambda d: (-abs(d.step), -d.dst))
        # elements written beyond a row's end are overwritten later
        again = all(a.dst > b.dst for a, b in pairwise(order))

        def may_run_over(d: BlockDim, k: int) -> bool:
            return not self.is_panel and (again or _end_of_copy(d, k) <= _next_row(d, dims))

        for d in order:
            # a merged dimension is no row
            row_of_tile = d in self.dims and d.step == 1 and self.in_tiles and not self.is_panel
            if d.dst in (1, pair) and row_of_tile:
                cut = [(d.size, 1, "UPCAST")]
            elif d.dst == 1 and d.size <= lanes:
                cut = [(d.size, 1, "UPCAST")]
            elif d.dst == 1:
                k = lanes if may_run_over(d, lanes) else gcd(d.size, lanes)
                n = -(-d.size // k)
                v = 1 if turned else next(v for v in (4, 3, 2, 1) if n % v == 0)  # one square fills the registers
                cut = [(n // v, v * k, "LOOP"), (v, k, "UPCAST"), (k, 1, "UPCAST")]
            elif pair > 1 and pair in (d.step, d.dst) and dims[0].step == 1 and d.size % (k := lanes // pair) == 0:
                cut = [(d.size // k, k, "LOOP"), (k, 1, "UPCAST")]  # `expand` transposes squares of pairs
            elif d.step == 1 and d.dst == pair and d.size > (k := lanes // pair) and may_run_over(d, k):
                cut = [(-(-d.size // k), k, "LOOP"), (k, 1, "UPCAST")]
            elif d in self.dims and (n := self._padded_size(d, self.dims)) > d.size:  # alone, not merged with another
                k = self._lanes()
                cut = [(n // k, k, "LOOP"), (k, 1, "UPCAST")]
            elif d.step == 1 and (k := gcd(d.size, lanes // (pair if d.dst == pair else 1))) > 1:
                cut = [(d.size // k, k, "LOOP"), (k, 1, "UPCAST")]
            else:
                cut = [(d.size, 1, "LOOP")]
            out.append((d, [c for c in cut if c[0] > 1]))
        return out

    def _merged(self) -> list[BlockDim]:
        """Return the dimensions of the block, with neighbours merged into one where one continues the other both in
        memory and in the block.
        """
        out: list[BlockDim] = []
        for d in self.dims:  # innermost first
            p = out[-1] if out else None
            if p is None or d.step != p.step * p.size or d.dst != p.dst * p.size or not self._can_gate_merged(d, p):
                out.append(d)
            else:
                out[-1] = p._replace(size=p.size * d.size)
        return out

    def _can_gate_merged(self, d: BlockDim, p: BlockDim) -> bool:
        """Whether the copy's gate can still be expressed if the dimension d is merged into the inner dimension p."""
        if d.weights == {r: w * p.size for r, w in p.weights.items()}:
            return True
        return not self.gated and self._squares().keys().isdisjoint({*d.weights, *p.weights})


def _end_of_copy(d: BlockDim, k: int) -> int:
    """Offset in the block after the last element that a copy of the dimension d writes, if it copies k iterations at a
    time.
    """
    return -(-d.size // k) * k * d.dst


def _next_row(d: BlockDim, dims: list[BlockDim]) -> float:
    """Offset in the block from one run of elements along the dimension d to the next run: the next larger stride `dst`
    among the block's dimensions `dims`; inf if d is outermost.
    """
    return min((x.dst for x in dims if x.dst > d.dst), default=inf)


def _peel_last(copy: UOp, ids: count, n_around: int) -> list[UOp]:
    """Return the loop nest `copy` as a list of loop nests, with the last iteration of each loop peeled if only that
    iteration needs the gate.

    The outermost `n_around` loops are around all of them and are not peeled. `ids`: free numbers of RANGEs.
    """
    store, *loops = copy.src if copy.op == "END" else (copy,)
    gates = store.src[1].src[2:]
    around, inner = loops[:n_around], loops[n_around:]
    for r in inner:
        n = r.src[0].value
        if r.arg[1] == "LOOP" and n >= MIN_COPIES_TO_PEEL and gates and r in ranges(gates[0]):
            shorter = node("RANGE", (idx(n - 1),), r.arg)
            if shorter not in ranges(replace_ranges(gates[0], {r: shorter})):
                others = [x for x in inner if x is not r]
                last = _in_new_loops(replace_ranges(store, {r: idx(n - 1)}), around, {x: x.src[0] for x in others}, ids)
                first = _in_new_loops(store, around, {x: x.src[0] if x is not r else idx(n - 1) for x in inner}, ids)
                return [part for c in (first, last) for part in _peel_last(c, ids, n_around)]
    return [copy]


def _in_new_loops(store: UOp, around: list[UOp], inner: dict[UOp, UOp], ids: count) -> UOp:
    """Return an END that runs `store` in the loops `around` and, inside of them, in new RANGEs.

    `inner`: {RANGE that `store` uses: the size of the new RANGE that replaces it}. `ids`: free numbers of RANGEs.
    """
    new = {r: node("RANGE", (inner[r],), (next(ids), r.arg[1])) for r in sorted(inner, key=lambda r: r.arg[0])}
    return node("END", (replace_ranges(store, new), *around, *(new[r] for r in inner)))


def _sum(terms: Any) -> UOp:
    """Return the index expression sum(x * k) for the pairs (node x, factor k) in `terms`."""
    out: UOp = idx(0)
    for x, k in terms:
        out = out + x * k
    return out


__all__ = ["BlockDim", "PackedBlock", "SlidingWindow"]

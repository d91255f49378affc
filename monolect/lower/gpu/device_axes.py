"""Turn GLOBAL and LOCAL ranges into indices of a launch, and share reductions and copies between the lanes of a
workgroup.

What it is for: targets with workgroups. GLOBAL ranges become SPECIAL gidx0.. and LOCAL, WARP and GROUP_REDUCE ranges
lidx0.., where number 0 is the innermost loop, whose lanes are adjacent. Two axes share the same lanes if no value
depends on both (`ir.lanes`). A REDUCE over GROUP_REDUCE ranges is split: each lane stores its partial result to a
slot of LOCAL memory, and after a BARRIER all lanes load and reduce the slots, in two steps if there are many. If lanes
of a warp can read each other's registers, they first combine their results by SHUFFLE, without memory or a BARRIER. The
iterations of a copy to LOCAL memory are divided between all lanes of the workgroup. A BARRIER follows the copy, and in
a loop another one precedes it. A pipelined copy is double-buffered and needs only the BARRIER after it, since slower
lanes still read the other block. The iterations that one lane does of a pipelined copy become shape (UPCAST), so that
their values are kept in registers.
What it is not: it does not choose axes; the optimizer does. It does nothing for targets without workgroups, on which
the lanes of GROUP_REDUCE are shape (`expand`).

Before: SINK(END(STORE(INDEX(PARAM0, r0), REDUCE(x(r0, r1, r2), r1:8 REDUCE, r2:4 GROUP_REDUCE)), r0:16 GLOBAL))
After:  SINK(STORE(INDEX(PARAM0, gidx0), REDUCE(LOAD(INDEX(AFTER(LOCAL[4], BARRIER(STORE(INDEX(LOCAL[4], lidx0),
        REDUCE(x(gidx0, r1, lidx0), r1:8 REDUCE)))), r3)), r3:4 REDUCE), CMPLT(lidx0, 1)))
Invariant: all lanes of a workgroup reach the same BARRIERs; a store to global memory outside of the loop of an axis is
done by lane 0 of that axis.
Source: the axis types of the specification.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.bounds import min_max, ranges, unused_ranges, unused_slots
from monolect.ir.lanes import MOST_SLOTS, in_warp, shared_lanes
from monolect.ir.ops import BufferArg
from monolect.ir.placement import memory_of
from monolect.ir.rewrite.normal import TRUE, less, smaller
from monolect.ir.uop import UOp, build, idx, node, nodes_of, rebuild, shape_source, toposort
from monolect.lower.gpu.fragments import fragments
from monolect.lower.gpu.launch import launched
from monolect.lower.software_pipeline import is_pipelined

LANES = frozenset(("LOCAL", "WARP", "GROUP_REDUCE"))  # types of the ranges whose iterations are lanes


def device_axes(sink: UOp, target: Target) -> UOp:
    """Pass: replace GLOBAL ranges and ranges over lanes by indices of the launch, on targets with workgroups.

    Raises ActionError for too many lanes or too much memory in a workgroup.
    """
    order = nodes_of(sink)
    if not target.workgroups or not any(u.op == "RANGE" and (u.arg[1] in LANES or u.arg[1] == "GLOBAL") for u in order):
        return sink
    with_fragments = fragments(sink, order, target)
    return _Workgroups(with_fragments, order if with_fragments is sink else toposort(with_fragments), target).run()


def is_shared_copy(u: UOp) -> bool:
    """Whether `u` is the END of a copy to LOCAL memory that the lanes of a workgroup do together."""
    if u.op != "END" or u.src[0].op != "STORE" or not any(r.arg[1] == "LOCAL" for r in u.src[1:]):
        return False
    return not _is_global(u.src[0])


class _Workgroups:
    """Lowers one kernel. `values` maps its GLOBAL, LOCAL, WARP and GROUP_REDUCE ranges to indices of the launch.

    `dims` are the dimensions of a workgroup, that of adjacent lanes first; each lists the ranges that it replaces.
    """

    def __init__(self, sink: UOp, order: Sequence[UOp], target: Target):
        self.sink, self.order, self.target = sink, order, target
        self.copy_ranges = {r for u in order if is_shared_copy(u) for r in u.src[1:] if r.arg[1] == "LOCAL"}
        loops = sorted((u for u in order if u.op == "RANGE"), key=lambda r: -r.arg[0])
        groups = [r for r in loops if r.arg[1] == "GLOBAL"]
        lanes = [r for r in loops if r.arg[1] in LANES and r not in self.copy_ranges]
        self.values = dict(zip(groups, launched([r.src[0] for r in groups], "gidx", target.max_grid), strict=True))
        self.dims = shared_lanes([(r, _size(r)) for r in lanes], {ranges(u) for u in order})
        sizes = [mine[0].src[0] for mine in self.dims]
        self.lane_indices = launched(sizes, "lidx", target.max_block)  # index of the lane along each dimension
        self.values |= {r: v for mine, v in zip(self.dims, self.lane_indices, strict=True) for r in mine}
        self.sizes = [_size(mine[0]) for mine in self.dims]
        self.n_lanes = prod(self.sizes)
        if target.max_local and self.n_lanes > target.max_local:
            raise ActionError("too many lanes in a workgroup", expected=f"<= {target.max_local}", found=self.n_lanes)
        self.slots = unused_slots(order)
        self.ids = unused_ranges(loops)
        self.slot_loops: dict[tuple, UOp] = {}  # (dimension, number of slots, distance) -> the loop over the slots
        self.local_bytes = sum(prod(u.shape) * u.dtype.itemsize for u in order if _is_local(u))
        self._check_memory()

    def run(self) -> UOp:
        """Return the lowered SINK."""
        new: dict[UOp, UOp] = dict(self.values) | self._split_copies()
        copies = [u for u in self.order if u.op == "END" and not self.copy_ranges.isdisjoint(u.src)]
        copies += [u for u in self.order if u.op == "TMACOPY"]
        self._rewrite(toposort(*copies), new)
        by_loops: dict[frozenset[UOp], list[UOp]] = {}  # copies in one loop share their barriers
        for u in copies:
            by_loops.setdefault(ranges(new[u]), []).append(u)
        for same in by_loops.values():
            if self.n_lanes > 1:
                new.update(dict.fromkeys(same, node("BARRIER", tuple(new[u] for u in same))))
        self._rewrite(self.order, new)
        return new[self.sink]

    def _rewrite(self, order: Sequence[UOp], new: dict[UOp, UOp]) -> None:
        """Add the replacement of each node of `order` to `new`, except for nodes that `new` has."""
        gates = self._gates()
        for u in order:
            if u in new:
                continue
            src = tuple(new[s] for s in u.src)
            if u.op == "REDUCE" and any(r in self.values for r in u.src[1:]):
                new[u] = self._reduce_lanes(u, src[0])
            elif u.op == "END" and not self.copy_ranges.isdisjoint(u.src):
                new[u] = self._copied(u, src)
            elif u.op in ("END", "AFTER", "WMMA") and not _keeps_lane_indices(u):
                left = tuple(v for s, v in zip(u.src, src, strict=True) if s not in self.values)
                left = tuple(dict.fromkeys(left)) if u.op == "AFTER" else left  # copies that share a BARRIER
                new[u] = node(u.op, left, u.arg) if len(left) > 1 else left[0]
            elif gates.get(u, TRUE) is not TRUE:
                gate = build("AND", src[2], gates[u]) if len(src) > 2 else gates[u]
                new[u] = node(u.op, (src[0], src[1], gate), u.arg)
            else:
                new[u] = rebuild(u, src)

    def _gates(self) -> dict[UOp, UOp]:
        """Return the gate of each store to global memory: the index is 0 along each axis whose loop does not contain
        the store.
        """
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
        axes = [*([r] for r in self.values if r.arg[1] == "GLOBAL"), *self.dims]
        out = {}
        for u, mine in own.items():
            gate = TRUE
            for same in axes:
                if mine.isdisjoint(same):
                    gate = build("AND", gate, less(self.values[same[0]], 1))
            out[u] = gate
        return out

    # ---- copies ------------------------------------------------------------------------------------------------------
    def _split_copies(self) -> dict[UOp, UOp]:
        """Return the replacements of the LOCAL ranges of copies: lane i of n takes iterations i, i + n, i + 2n, ...

        Iterations beyond the end repeat the last one.
        """
        lane = self._flat(self.lane_indices)
        pipelined = {r for u in self.order if is_shared_copy(u) and _is_pipelined_store(u.src[0]) for r in u.src[1:]}
        out = {}
        for r in sorted(self.copy_ranges, key=lambda r: r.arg[0]):
            n = _size(r)
            steps = -(-n // self.n_lanes)
            kind = "UPCAST" if r in pipelined else "LOOP"
            at = node("RANGE", (idx(steps),), (next(self.ids), kind)) * self.n_lanes if steps > 1 else idx(0)
            at = at + lane
            out[r] = at if steps * self.n_lanes == n else smaller(at, n - 1)
        return out

    def _copied(self, u: UOp, src: tuple[UOp, ...]) -> UOp:
        """Return the copy `u`, the END of a STORE, with the rewritten sources `src`.

        In a loop, a BARRIER keeps the memory from being overwritten before all lanes have read it, unless the copy is
        pipelined.
        """
        loops = [x for r in src[1:] for x in ranges(r)]
        store = src[0]
        view = store.src[0].src
        out = node("END", (store, *loops)) if loops else store
        around = sorted((r for r in ranges(out) if r.arg[1] != "UPCAST"), key=lambda r: r.arg[0])
        if around and self.n_lanes > 1 and not _is_pipelined_store(store):
            ordered_memory = node("AFTER", (view[0], node("BARRIER", tuple(around))))
            store = node("STORE", (node("INDEX", (ordered_memory, *view[1:])), *store.src[1:]))
            out = node("END", (store, *loops)) if loops else store
        return out

    # ---- reductions --------------------------------------------------------------------------------------------------
    def _reduce_lanes(self, u: UOp, body: UOp) -> UOp:
        """Return the REDUCE `u` of `body` over lanes.

        Lanes are combined by SHUFFLEs within a warp where the target has them, the rest in one or two rounds through
        local memory.
        """
        kept = tuple(r for r in u.src[1:] if r not in self.values)
        partial = node("REDUCE", (body, *kept), u.arg) if kept else body
        shaped = sorted((r for r in ranges(u) if r.arg[1] == "UPCAST"), key=lambda r: r.arg[0])
        loops = sorted((r for r in ranges(partial) if r.arg[1] != "UPCAST"), key=lambda r: r.arg[0])
        dims = [k for k, mine in enumerate(self.dims) if not set(mine).isdisjoint(u.src[1:])]
        out = partial
        bits = in_warp(self.sizes, dims, self.target.warp) if self.target.shuffles else dict.fromkeys(dims, [])
        for bit in (b for k in dims for b in bits[k]):  # after it, each lane of a warp has the combined result
            out = build(u.arg[0], out, node("SHUFFLE", (out,), bit))
        done = {k: 1 << len(bits[k]) for k in dims}
        if all(done[k] == self.sizes[k] for k in dims):
            return out
        for parts in self._steps(dims, done):
            memory = self._memory(u, shaped)
            # in a loop, a BARRIER keeps slots from being overwritten before all lanes have read them
            ordered_memory = node("AFTER", (memory, node("BARRIER", tuple(loops)))) if loops else memory
            written = node("STORE", (node("INDEX", (ordered_memory, self._slot({}, shaped))), out))
            ready = node("AFTER", (memory, node("BARRIER", (written,))))
            at = {k: self._part(k, *parts[k]) for k in dims}
            part = node("LOAD", (node("INDEX", (ready, self._slot(at, shaped))),))
            out = node("REDUCE", (part, *(r for v in at.values() for r in ranges(v))), u.arg)
            out.origin = u.origin
        return out

    def _steps(self, dims: list[int], done: dict[int, int]) -> list[dict[int, tuple[int, int, bool]]]:
        """Plan the reduction of the lanes along `dims` through local memory, in which each lane has stored its result.

        Return for each round, by dimension: (number of lanes' results that a lane combines, distance between these
        lanes, whether different lanes combine different results). `done`: by dimension, the number of adjacent lanes
        that have the same result already.
        """
        if any(n > 1 for n in done.values()):
            return [{k: (self.sizes[k] // done[k], done[k], done[k] > 1) for k in dims}]
        n = prod(self.sizes[k] for k in dims)
        longest = max(dims, key=lambda k: self.sizes[k])
        size = self.sizes[longest]
        divisors = [k for k in range(2, size) if size % k == 0 and k * k >= size]
        whole = {k: (self.sizes[k], 1, False) for k in dims}
        if n <= MOST_SLOTS or not divisors:
            return [whole]
        n_left = divisors[0]  # lane i combines slots i % n_left, i % n_left + n_left, ..
        own = {k: (1, 1, True) for k in dims}
        return [own | {longest: (size // n_left, n_left, True)}, whole | {longest: (n_left, 1, False)}]

    def _part(self, k: int, n: int, distance: int, own: bool) -> UOp:
        """Return the index along dimension k of the `n` lanes, at `distance`, whose results a lane combines in a loop.

        The index starts at 0, or with `own` at the lane's own index modulo the distance.
        """
        if (k, n, distance) not in self.slot_loops:
            self.slot_loops[k, n, distance] = node("RANGE", (idx(n),), (next(self.ids), "REDUCE"))
        loop = self.slot_loops[k, n, distance] * distance if n > 1 else idx(0)
        return loop + (self.lane_indices[k] % distance if n > 1 else self.lane_indices[k]) if own else loop

    def _memory(self, u: UOp, shaped: list[UOp]) -> UOp:
        """Return a LOCAL buffer with an element for each lane and each value of the UPCAST ranges `shaped`."""
        n = self.n_lanes * prod(_size(r) for r in shaped)
        self.local_bytes += n * u.dtype.itemsize
        self._check_memory()
        return node("BUFFER", (shape_source((n,)),), BufferArg(next(self.slots), u.dtype, None, "LOCAL"))

    def _check_memory(self) -> None:
        """Raise ActionError if the kernel uses more local memory than the target has."""
        if self.local_bytes > self.target.local_bytes:
            raise ActionError("too much local memory", expected=f"<= {self.target.local_bytes}", found=self.local_bytes)

    def _slot(self, at: dict[int, UOp], shaped: list[UOp]) -> UOp:
        """Return the index, in the buffer of `_memory`, of a lane's element for the values of the UPCAST ranges
        `shaped`.

        `at` gives the lane's index along some dimensions; along the others it is that of the running lane.
        """
        out = idx(0)
        for r in shaped:
            out = out * _size(r) + r
        return out * self.n_lanes + self._flat([at.get(k, v) for k, v in enumerate(self.lane_indices)])

    def _flat(self, lane_indices: list[UOp]) -> UOp:
        """Return the number, in its workgroup, of the lane with these indices along the dimensions."""
        out = idx(0)
        for n, v in zip(self.sizes[::-1], lane_indices[::-1], strict=True):
            out = out * n + v
        return out


def _size(r: UOp) -> int:
    """Return the maximum number of iterations of the range `r`."""
    return int(min_max(r.src[0])[1])


def _is_local(u: UOp) -> bool:
    """Whether `u` is a LOCAL buffer."""
    return u.op == "BUFFER" and u.arg.addrspace == "LOCAL"


def _is_pipelined_store(store: UOp) -> bool:
    """Whether `store` stores the value of a pipelined LOAD."""
    return is_pipelined(store.src[1])


def _keeps_lane_indices(u: UOp) -> bool:
    """Whether `u` is an AFTER of a PARAM: the ranges in `u` are loops that repeat a write to the PARAM, such as an
    addition.

    The indices that replace these ranges stay sources of `u`, so that the launch keeps their lanes.
    """
    return u.op == "AFTER" and memory_of(u).op == "PARAM"


def _is_global(e: UOp) -> bool:
    """Whether the STORE or ATOMICADD `e` writes memory that outlives the kernel: a PARAM or a GLOBAL buffer."""
    view = e.src[0]
    while view.src and view.op not in ("PARAM", "BUFFER"):
        view = view.src[0]
    return view.op == "PARAM" or view.arg.addrspace == "GLOBAL"


__all__ = ["device_axes", "is_shared_copy"]

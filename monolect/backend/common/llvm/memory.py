"""Render addresses, loads and stores in LLVM IR.

An address is a scalar part, which comes from the normal form of the index, plus a constant offset for each register. A
register of contiguous elements is one vector access. Loads of elements close to each other (backwards, every second to
fourth, each twice) are one to four vector loads and shuffles. Other accesses are element by element.

What it does not do: check bounds. A closed gate masks a vector access, and redirects a scalar access to a dummy.
Invariant: REG buffers never touch memory; their current values are in `accumulators`.
"""

from __future__ import annotations

from bisect import bisect_right
from math import prod
from typing import Any

import numpy as np

from monolect.backend.common.llvm.elementwise import ElementwiseRenderer
from monolect.backend.common.llvm.types import (
    Value,
    lane_list,
    memory_type,
    n_regs,
    overload,
    splat_literal,
    type_name,
)
from monolect.backend.common.shaped import register_of, strip_after
from monolect.base.dtype import USER, DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.rewrite.normal import conjuncts
from monolect.ir.uop import UOp

LaneOffsets = tuple[int, ...]  # for each lane of a register, elements from the lowest address to it
MAX_VECTOR_BYTES = 64  # bytes of the widest vectors of any processor
MAX_VECTORS = 4  # vector loads for one register; a register that needs more is loaded element by element
MAPPED_MARGIN_BYTES = 1 << 14  # bytes before and after a buffer that are assumed to be mapped memory
_ZEROS = frozenset({"zeroinitializer", *(splat_literal(0, d, lanes) for d in USER for lanes in (1, 2))})

MAX_STORE_RUN = 16  # stores of a block between two separators; see `_split_store_run`
LINE_BYTES = 64  # of a cache line
PAGE_BYTES = 4096  # of a small page of memory
L1_PREFETCH_BYTES = 32 << 10  # lines that far ahead or farther go to L2: L1 would evict them before they are read


def is_contiguous(row: LaneOffsets) -> bool:
    """Whether the lanes are contiguous in memory."""
    return row == tuple(range(len(row)))


def vectors_of(row: LaneOffsets) -> tuple[int, list[int]]:
    """Return (lanes, first elements) of contiguous vectors that cover the elements of `row`.

    They hold nothing before its first element or after its last one.
    """
    span = max(row) + 1
    width = len(row) if span >= len(row) else 1 << (span.bit_length() - 1)
    starts: list[int] = []
    for e in sorted(row):
        if not starts or e >= starts[-1] + width:
            starts.append(min(e, span - width))
    return width, starts


def is_few_vectors(row: LaneOffsets, gated: bool) -> bool:
    """Whether few vector loads cover the lanes; with gates also only few lanes may read the same element."""
    lanes = len(row)
    if lanes == 1 or is_contiguous(row):
        return True
    often = max(map(row.count, row)) if gated else 1
    width, starts = vectors_of(row)
    return width > 1 and often <= MAX_VECTORS and len(starts) <= (MAX_VECTORS if lanes >= MAX_VECTORS else 1)


def _may_leave_mapped_memory(index: UOp) -> bool:
    """Whether an INDEX of a buffer may be more than MAPPED_MARGIN_BYTES outside of it (in lanes that a gate closes)."""
    low, high = min_max(index.src[1])
    size, itemsize = index.src[0].shape, index.src[0].dtype.itemsize
    known = len(size) == 1 and size[0].__class__ is int
    return known and (low * itemsize < -MAPPED_MARGIN_BYTES or (high - size[0]) * itemsize > MAPPED_MARGIN_BYTES)


class MemoryRenderer(ElementwiseRenderer):
    """Renders LOAD, STORE, ATOMICADD and PREFETCH.

    A closed gate redirects a scalar access to the dummy: 64 bytes of stack memory that no open access uses.
    """

    store_separator = ""  # line that keeps the code generator from combining memory accesses across it
    # Whether a vector load with all lanes closed reads a dummy if its address may not be mapped: a masked load there
    # takes as long as a thousand others.
    redirects_closed_loads = False

    def __init__(self, vector_bytes: int = MAX_VECTOR_BYTES) -> None:
        super().__init__()
        self.vector_bytes = vector_bytes  # bytes of the processor's widest vectors
        self.has_nontemporal = False  # the program has a non-temporal store
        self.n_stores = 0  # in this block since its start or the last `store_separator`
        self.origins: dict[str, tuple[str, int]] = {}  # address -> (address it was computed from, bytes added)
        self.accumulators: dict[int, list[str]] = {}  # slot of a REG buffer -> the registers of its current value

    # ---- addresses ---------------------------------------------------------------------------------------------------
    def pointers(self, index: UOp) -> list[tuple[str, LaneOffsets]] | None:
        """Return (address of the lowest element, LaneOffsets) of each register of an INDEX.

        Return None if offsets within a register are known only at run time.
        """
        buf = strip_after(index.src[0])
        p, t = self.value(buf).regs[0], memory_type(buf.dtype)
        if len(index.src) < 2:
            return [(p, (0,))]
        base, offs, dynamic = self.address_parts(index.src[1])
        if any(term.shape[-1] > 1 for term in dynamic):
            return None
        if base != "0":
            p = self._offset(p, t, base)
        shape = index.shape
        rows = np.broadcast_to(offs, shape).reshape(n_regs(shape), -1) if shape else offs.reshape(1, 1)
        lowest = rows.min(1).tolist()
        starts = [p] * len(rows)
        for term in dynamic:  # is the same for all lanes of a register
            regs = self.broadcast(term, (*shape[:-1], 1))
            starts = [self._offset(s, t, r) for s, r in zip(starts, regs, strict=True)]
        out = []
        for s, low, row in zip(starts, lowest, rows, strict=True):
            q = self._offset(s, t, str(low)) if low else s
            self.origins[q] = (s, low * buf.dtype.itemsize)
            out.append((q, tuple((row - low).tolist())))
        return out

    def lane_pointers(self, index: UOp) -> list[str]:
        """Return the address of every element of an INDEX of any form."""
        buf = strip_after(index.src[0])
        p, t = self.value(buf).regs[0], memory_type(buf.dtype)
        base, offs, dynamic = self.address_parts(index.src[1])
        n = prod(index.shape)
        at = [str(int(o)) for o in np.broadcast_to(offs, index.shape).ravel()]
        if base != "0":
            p = self._offset(p, t, base)
        for term in dynamic:
            v = Value(index.shape, self.broadcast(term, index.shape))
            lanes = [self.lane(term.dtype, v, i) for i in range(n)]
            at = [self.emit(f"add i64 {a}, {b}") if a != "0" else b for a, b in zip(at, lanes, strict=True)]
        return [self._offset(p, t, a) for a in at]

    def _offset(self, p: str, t: str, i: str | None) -> str:
        """Return the address `i` elements of type `t` after `p`."""
        key = (p, t, i)
        out = self.find_shared(key)
        if out is None:
            out = self.shared[-1][key] = self.emit(f"getelementptr inbounds {t}, {self.pointer(p)}, i64 {i}")
        return out

    def pointer(self, p: str) -> str:
        """Return the address `p` with its pointer type, which includes the address space."""
        return f"ptr {p}"

    def alignment(self, p: str, d: DType, lanes: int) -> int:
        """Return the known alignment in bytes of the address `p` of `lanes` contiguous elements."""
        return d.itemsize

    # ---- loads -------------------------------------------------------------------------------------------------------
    def load(self, u: UOp) -> Value:
        """Render LOAD, with or without a gate and the value of closed lanes."""
        reg = register_of(u.src[0])
        if reg is not None:
            return Value(u.shape, self.accumulators[reg.arg.slot])
        index = u.src[0]
        alt, gate = (u.src[1], u.src[2]) if len(u.src) == 3 else (None, None)
        ptrs = self.pointers(index) if index.shape == u.shape else None
        lanes = u.shape[-1] if u.shape else 1
        if ptrs is not None and not all(is_few_vectors(row, gate is not None) for _, row in ptrs):
            ptrs = None
        alts = self.broadcast(alt, u.shape) if alt is not None else [""] * n_regs(u.shape)
        gates: list[Any] = [None] * n_regs(u.shape)
        if gate is not None:
            if gate.shape or ptrs is None or lanes > 1:
                gates = self.broadcast(gate, u.shape)
            else:  # one gate for all registers
                gates = self.value(gate).regs * n_regs(u.shape)
        if ptrs is None:
            return self._gather(u, index, gates, alt)
        if gate is not None and lanes > 1 and self.redirects_closed_loads and _may_leave_mapped_memory(index):
            ptrs = [(self._redirect_if_closed(p, g, lanes), row) for (p, row), g in zip(ptrs, gates, strict=True)]
        if u.arg is not None and u.arg.prefetch_bytes:
            self._prefetch(ptrs, lanes * u.dtype.itemsize, u.arg.prefetch_bytes)
        rows = zip(ptrs, gates, alts, strict=True)
        return Value(u.shape, [self._load_row(u.dtype, p, row, g, a) for (p, row), g, a in rows])

    def _redirect_if_closed(self, p: str, gate: str, lanes: int) -> str:
        """Emit the address `p`, or that of the dummy (memory on the stack) if the gates of all lanes are closed."""
        if gate[0] == "<":  # a constant
            return p
        any_lane = f"@llvm.vector.reduce.or.v{lanes}i1"
        self.declares.add(f"declare i1 {any_lane}(<{lanes} x i1>)")
        is_open = self.emit(f"call i1 {any_lane}(<{lanes} x i1> {gate})")
        return self.emit(f"select i1 {is_open}, ptr {p}, ptr %dummy")

    def _load_row(self, d: DType, p: str, row: LaneOffsets, gate: str | None, alt: str) -> str:
        """Emit a load of the elements at offsets `row` from `p`, with those of `alt` in lanes whose gate is false."""
        lanes = len(row)
        if gate is not None and gate[0] == "<" and "true" not in gate:
            return alt  # a constant gate, closed for all lanes
        if gate is not None and gate[0] == "<" and "false" not in gate:
            gate = None
        if lanes == 1:
            if gate is not None:
                p = self.emit(f"select i1 {gate}, ptr {p}, ptr %dummy")
            r = self._from_memory(
                d, 1, self.emit(f"load {memory_type(d)}, {self.pointer(p)}, align {self.alignment(p, d, 1)}")
            )
            return r if gate is None else self.emit(f"select i1 {gate}, {type_name(d)} {r}, {type_name(d)} {alt}")
        if is_contiguous(row):
            r = self._load_vector(d, p, lanes, gate)
        else:
            r = self._load_shuffled(d, p, row, gate)
        r = self._from_memory(d, lanes, r)
        if gate is None or alt in _ZEROS and len({*row}) == lanes:
            return r
        return self.emit(f"select <{lanes} x i1> {gate}, {type_name(d, lanes)} {r}, {type_name(d, lanes)} {alt}")

    def _prefetch(self, ptrs: list[tuple[str, LaneOffsets]], row_bytes: int, ahead: int) -> None:
        """Emit prefetches of the lines `ahead` bytes after the registers' addresses, once for each line.

        They go to L1 from a page ahead up to L1_PREFETCH_BYTES. They go to L2 if they are farther ahead, or less than a
        page, where the hardware prefetcher fills L1. Rows of at most 8 bytes go to L2, too: they are broadcast operands
        of a tile, and L1 holds the vectors.
        """
        self.declares.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for p, _ in ptrs:
            start, n_bytes = self.origins.get(p, (p, 0))
            key = ("prefetch", start, n_bytes // LINE_BYTES, str(ahead))
            if self.find_shared(key) is None:
                later = self.shared[-1][key] = self.emit(f"getelementptr i8, ptr {p}, i64 {ahead}")
                locality = 3 if row_bytes > 8 and PAGE_BYTES <= ahead < L1_PREFETCH_BYTES else 2  # L1, L2
                self.lines.append(f"  call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 {locality}, i32 1)")

    def prefetch(self, index: UOp) -> None:
        """Render PREFETCH: prefetch the lines of all elements of an INDEX."""
        if (ptrs := self.pointers(index)) is not None:
            self._prefetch(ptrs, index.dtype.itemsize, 0)

    def _load_vector(self, d: DType, p: str, lanes: int, gate: str | None) -> str:
        """Emit a load of `lanes` contiguous elements in their type in memory, zero in lanes whose gate is false."""
        t, align, at = memory_type(d, lanes), self.alignment(p, d, lanes), self.pointer(p)
        if gate is None:
            return self.emit(f"load {t}, {at}, align {align}")
        if (parts := self._register_parts(d, p, lanes, gate)) is not None:
            n = lanes // len(parts)
            return self.concatenate([self._load_vector(d, q, n, g) for q, g, _ in parts], d, n)
        full, kind = self._masked("load", d, lanes, p)
        self.declares.add(f"declare {t} {full}({kind}, i32, <{lanes} x i1>, {t})")
        return self.emit(f"call {t} {full}({at}, i32 {align}, <{lanes} x i1> {gate}, {t} zeroinitializer)")

    def _register_parts(self, d: DType, p: str, lanes: int, gate: str) -> list[tuple[str, str, range]] | None:
        """Return the parts of a masked access to `lanes` elements that is wider than the processor's vectors, or None.

        A part is (address, gate, its lanes). LLVM's code generator, which would split such an access itself, reads a
        part whose gates it finds to be false only after the split as if they were true. Gates that are compared again
        as integers hide nothing from the folding of constants before it selects instructions.
        """
        n = lanes
        while n * d.itemsize > self.vector_bytes and n % 2 == 0:
            n //= 2
        if n == lanes:
            return None
        out = []
        for first in range(0, lanes, n):
            part = self.shuffle(gate, dtypes.bool, lanes, range(first, first + n))
            number = self.emit(f"zext <{n} x i1> {part} to <{n} x i8>")
            mask = self.emit(f"icmp ne <{n} x i8> {number}, zeroinitializer")
            out.append((self._offset(p, memory_type(d), str(first)) if first else p, mask, range(first, first + n)))
        return out

    def _masked(self, what: str, d: DType, lanes: int, p: str) -> tuple[str, str]:
        """Return (name, type of the address) of the masked intrinsic `what` for `lanes` contiguous elements."""
        kind = self.pointer(p).rpartition(" ")[0]
        space = "".join(c for c in kind if c.isdigit()) or "0"
        return f"@llvm.masked.{what}.{overload(memory_type(d), lanes)}.p{space}", kind

    def _load_shuffled(self, d: DType, p: str, row: LaneOffsets, gate: str | None) -> str:
        """Emit vector loads that cover the elements at offsets `row`, and shuffles that select these."""
        lanes, (width, starts) = len(row), vectors_of(row)
        source = [bisect_right(starts, e) - 1 for e in row]
        acc = ""
        for k, start in enumerate(starts):
            at = [
                e - start if source[i] == k else -1 for i, e in enumerate(row)
            ]  # lane of this load for each lane, or -1
            at_start = self._offset(p, memory_type(d), str(start)) if start else p
            r = self._load_vector(d, at_start, width, self._vector_gate(gate, at, width))
            t = memory_type(d, width)
            if k:  # elements selected before stay in their lanes
                old = range(lanes) if k > 1 else [row[i] if source[i] == 0 else -1 for i in range(lanes)]
                pick = [width + e if e >= 0 else o for e, o in zip(at, old, strict=True)]
                r = self.emit(f"shufflevector {t} {acc}, {t} {r}, {lane_list(pick)}")
            elif len(starts) == 1:
                r = self.emit(f"shufflevector {t} {r}, {t} poison, {lane_list(at)}")
            acc = r
        return acc

    def _vector_gate(self, gate: str | None, at: list[int], width: int) -> str | None:
        """Emit the gate of a vector load of `width` elements, from which the lanes of a register are selected.

        `at` gives for each lane of the register the element of the vector that it reads, or -1. `gate` is the
        register's gate. An element's gate is open if the gate of any lane that reads the element is open.
        """
        if gate is None or (gate in self.splats and width == len(at)):
            return gate
        b, mask = f"<{len(at)} x i1>", ""
        for n in range(max((at.count(e) for e in at if e >= 0), default=1)):
            lanes = [[i for i, e in enumerate(at) if e == j][n : n + 1] or [len(at)] for j in range(width)]
            m = self.emit(f"shufflevector {b} {gate}, {b} zeroinitializer, {lane_list([i for (i,) in lanes])}")
            mask = self.emit(f"or <{width} x i1> {mask}, {m}") if mask else m
        return mask

    def _from_memory(self, d: DType, lanes: int, r: str) -> str:
        return r if d is not dtypes.bool else self.emit(f"icmp ne {memory_type(d, lanes)} {r}, zeroinitializer")

    def _gather(self, u: UOp, index: UOp, gates: list[Any], alt: UOp | None) -> Value:
        """Emit loads element by element; equal addresses under equal gates are loaded once."""
        d, out = u.dtype, []
        gated = Value(u.shape, gates) if alt is not None else None
        alts = Value(u.shape, self.broadcast(alt, u.shape)) if alt is not None else None
        ptrs = self.lane_pointers(index)
        ptrs = [ptrs[i] for i in np.broadcast_to(np.arange(len(ptrs)).reshape(index.shape), u.shape).ravel().tolist()]
        loaded: dict[tuple, str] = {}
        for i, p in enumerate(ptrs):
            gate = self.lane(dtypes.bool, gated, i) if gated is not None else None
            key = (p, gate)
            if key not in loaded:
                a = self.lane(d, alts, i) if alts is not None else ""
                loaded[key] = self._load_row(d, p, (0,), gate, a)
            out.append(loaded[key])
        return self.join(out, u.shape, d)

    # ---- stores ------------------------------------------------------------------------------------------------------
    def store(self, u: UOp) -> None:
        """Render STORE, with or without a gate."""
        target, val = u.src[0], u.src[1]
        reg = register_of(target)
        if reg is not None:
            self.accumulators[reg.arg.slot] = list(self.broadcast(val, reg.shape))
            return
        shape = target.shape if len(target.shape) >= len(val.shape) else val.shape
        gate = u.src[2] if len(u.src) == 3 else None
        if gate is not None and gate.shape and prod(shape) == 1:
            shape = gate.shape
        regs, d = self.broadcast(val, shape), val.dtype
        lanes = shape[-1] if shape else 1
        ptrs = self.pointers(target) if target.shape == shape else None
        gates = self._gates(gate, shape)
        if ptrs is None or not all(is_contiguous(row) for _, row in ptrs):
            self._scatter(target, shape, d, regs, gates)
            return
        is_nontemporal = u.arg == "nontemporal" and lanes > 1 and gate is None
        self.has_nontemporal |= is_nontemporal
        if gate is not None and 1 < lanes <= LINE_BYTES // d.itemsize:
            ptrs, gates = self._redirect_closed_rows(ptrs, gate, shape)
        for (p, _), r, g in zip(ptrs, regs, gates, strict=True):
            self._store_row(d, p, lanes, r, g, is_nontemporal)

    def atomic_add(self, u: UOp) -> None:
        """Render ATOMICADD as load, add and store, element by element: one thread owns the kernel's whole target."""
        target, val = u.src[0], u.src[1]
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        regs, d = self.broadcast(val, shape), val.dtype
        lanes = shape[-1] if shape else 1
        ptrs = self.pointers(target) if target.shape == shape else None
        gates = self._gates(gate, shape)
        if ptrs is not None and (lanes > 1 or gate is None) and all(is_contiguous(row) for _, row in ptrs):
            zero = splat_literal(0, d, lanes)
            for (p, row), r, g in zip(ptrs, regs, gates, strict=True):
                old = self._load_row(d, p, row, g, zero)
                self._store_row(d, p, lanes, self.combine("ADD", d, lanes, old, r), g)
            return
        v, gated = Value(shape, regs), Value(shape, gates)
        every = self.lane_pointers(target)
        for i, p in enumerate(every * (prod(shape) // len(every))):
            if gate is not None:  # a closed lane adds to the dummy
                p = self.emit(f"select i1 {self.lane(dtypes.bool, gated, i)}, ptr {p}, ptr %dummy")
            old = self._load_row(d, p, (0,), None, "")
            self._store_row(d, p, 1, self.combine("ADD", d, 1, old, self.lane(d, v, i)), None)

    def _redirect_closed_rows(
        self, ptrs: list[tuple[str, LaneOffsets]], gate: UOp, shape: tuple
    ) -> tuple[list, list[Any]]:
        """Redirect the stores of registers with all lanes closed to the dummy; return the new addresses and the masks.

        The masks lack the conditions that are equal for all lanes of a register, since the redirection covers these.

        A store with all lanes masked to memory that was not touched yet takes as long as a hundred others.
        """
        each = conjuncts(gate)
        rows = [self.broadcast(c, (*shape[:-1], 1)) for c in each if c.shape[-1:] in ((), (1,))]
        masks = [self.broadcast(c, shape) for c in each if c.shape[-1:] not in ((), (1,))]
        if not rows:
            return ptrs, self._gates(gate, shape)
        kept = [self._all_of(at, "i1") for at in zip(*rows, strict=True)]
        redirected = [
            (self.emit(f"select i1 {k}, ptr {p}, ptr %dummy"), row) for k, (p, row) in zip(kept, ptrs, strict=True)
        ]
        mask = f"<{shape[-1]} x i1>"
        return redirected, [self._all_of(at, mask) for at in zip(*masks, strict=True)] if masks else [None] * len(ptrs)

    def _all_of(self, gates: tuple[str, ...], t: str) -> str:
        """Emit the AND of gates of type `t`."""
        out, *more = gates
        for g in more:
            key = (out, g, t)
            found = self.find_shared(key)
            out = found or self.emit(f"and {t} {out}, {g}")
            self.shared[-1][key] = out
        return out

    def _gates(self, gate: UOp | None, shape: tuple) -> list[Any]:
        return [None] * n_regs(shape) if gate is None else self.broadcast(gate, shape)

    def _scatter(self, target: UOp, shape: tuple, d: DType, regs: list[str], gates: list[Any]) -> None:
        """Emit stores element by element."""
        v, gated = Value(shape, regs), Value(shape, gates)
        ptrs = self.lane_pointers(target)
        for i, p in enumerate(ptrs * (prod(shape) // len(ptrs))):
            g = self.lane(dtypes.bool, gated, i) if gates[0] is not None else None
            self._store_row(d, p, 1, self.lane(d, v, i), g)

    def _store_row(self, d: DType, p: str, lanes: int, r: str, gate: str | None, is_nontemporal: bool = False) -> None:
        self._split_store_run()
        t, align, at = memory_type(d, lanes), self.alignment(p, d, lanes), self.pointer(p)
        if d is dtypes.bool:
            r = self.emit(f"zext {type_name(d, lanes)} {r} to {t}")
        if is_nontemporal:
            self.lines.append(f"  store {t} {r}, {at}, align {d.itemsize * lanes}, !nontemporal !{{i32 1}}")
        elif gate is None:
            self.lines.append(f"  store {t} {r}, {at}, align {align}")
        elif lanes == 1:
            p = self.emit(f"select i1 {gate}, ptr {p}, ptr %dummy")
            self.lines.append(f"  store {t} {r}, ptr {p}, align {align}")
        elif gate[0] == "<" and gate.count("i1 true") == 1:
            # one constant lane as a scalar: LLVM would store it as wide as before a truncation
            i = gate.split(", ").index(next(g for g in gate.split(", ") if "true" in g))
            one = self.emit(f"extractelement {t} {r}, i64 {i}")
            q = self._offset(p, memory_type(d), str(i)) if i else p
            self.lines.append(f"  store {memory_type(d)} {one}, {self.pointer(q)}, align {d.itemsize}")
        elif (parts := self._register_parts(d, p, lanes, gate)) is not None:
            for q, g, at_lanes in parts:
                part = self.emit(f"shufflevector {t} {r}, {t} poison, {lane_list(at_lanes)}")
                self._store_masked(d, q, len(at_lanes), part, g)
        else:
            self._store_masked(d, p, lanes, r, gate)

    def _store_masked(self, d: DType, p: str, lanes: int, r: str, gate: str) -> None:
        """Emit a masked store of the register `r` of `lanes` elements in their type in memory."""
        t, align, at = memory_type(d, lanes), self.alignment(p, d, lanes), self.pointer(p)
        full, kind = self._masked("store", d, lanes, p)
        self.declares.add(f"declare void {full}({t}, {kind}, i32, <{lanes} x i1>)")
        self.lines.append(f"  call void {full}({t} {r}, {at}, i32 {align}, <{lanes} x i1> {gate})")

    def _split_store_run(self) -> None:
        """Emit `store_separator`, which is no machine instruction, after MAX_STORE_RUN stores of a block.

        The code generator compares each store of a block with all others, to merge them, and with all loads, to order
        them. 256 stores of elements took it 0.4 s; in runs of sixteen they take 0.06 s.
        """
        if self.store_separator and self.n_stores == MAX_STORE_RUN:
            self.lines.append(self.store_separator)
            self.n_stores = 0
        self.n_stores += 1


__all__ = [
    "LaneOffsets",
    "MAX_STORE_RUN",
    "MAX_VECTOR_BYTES",
    "MAX_VECTORS",
    "MemoryRenderer",
    "is_contiguous",
    "is_few_vectors",
    "vectors_of",
]

"""Addresses, loads and stores in LLVM IR.

An address is one scalar part, taken from the normal form of the index, plus a constant offset for each register. Rows
whose elements lie side by side (or side by side backwards) are one vector access; others go element by element.

What it does not do: check bounds. A closed gate masks a vector access and sends a scalar one to a dummy.
Invariant: REG buffers never touch memory; their current values are in `accumulators`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from monolect.backend.common.llvm_elementwise import ElementwiseRenderer
from monolect.backend.common.llvm_types import (
    Value,
    literal,
    memory_type,
    n_regs,
    overload,
    splat_literal,
    type_name,
)
from monolect.base.dtype import DType, dtypes
from monolect.ir.uop import UOp

_ZEROS = frozenset(
    ("false", "0", "zeroinitializer", "0x0000000000000000", "splat (float 0x0000000000000000)",
     "splat (double 0x0000000000000000)", "splat (i32 0)", "splat (i64 0)", "splat (i1 false)")
)  # fmt: skip

LINE_BYTES = 64


def ordered(u: UOp) -> UOp:
    """What a chain of AFTERs orders."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


def register_of(u: UOp) -> UOp | None:
    """The REG buffer behind `u`, or None."""
    u = ordered(u)
    return u if u.op == "BUFFER" and u.arg.addrspace == "REG" else None


class MemoryRenderer(ElementwiseRenderer):
    """LOAD, STORE and ATOMICADD."""

    def __init__(self) -> None:
        super().__init__()
        self.streamed = False  # some store went past the caches
        self.accumulators: dict[int, list[str]] = {}  # slot of a REG buffer -> the registers of its current value

    # ---- addresses ---------------------------------------------------------------------------------------------------
    def pointers(self, index: UOp) -> list[tuple[str, int]] | None:
        """For each register its address and the stride of its lanes; None where these cannot be told."""
        buf = ordered(index.src[0])
        p, t = self.value(buf).regs[0], memory_type(buf.dtype)
        if len(index.src) < 2:
            return [(p, 0)]
        base, offs, dynamic = self.address_parts(index.src[1])
        if dynamic:
            return None
        if base != "0":
            p = self._offset(p, t, base)
        shape = index.shape
        rows = np.broadcast_to(offs, shape).reshape(n_regs(shape), -1) if shape else offs.reshape(1, 1)
        out = []
        for row in rows:
            step = int(row[1] - row[0]) if len(row) > 1 else 0
            if len(row) > 2 and (np.diff(row) != step).any():
                return None
            out.append((self._offset(p, t, str(int(row[0]))) if row[0] else p, step))
        return out

    def lane_pointers(self, index: UOp) -> list[str]:
        """The address of every element, for indices of any form."""
        buf = ordered(index.src[0])
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
        """The address `i` elements of type `t` after `p`."""
        key = (p, t, i)
        out = self.find_shared(key)
        if out is None:
            out = self.shared[-1][key] = self.emit(f"getelementptr inbounds {t}, ptr {p}, i64 {i}")
        return out

    # ---- loads -------------------------------------------------------------------------------------------------------
    def load(self, u: UOp) -> Value:
        """LOAD, with a gate and a value for where it is closed, or without."""
        reg = register_of(u.src[0])
        if reg is not None:
            return Value(u.shape, self.accumulators[reg.arg.slot])
        index = u.src[0]
        alt, gate = (u.src[1], u.src[2]) if len(u.src) == 3 else (None, None)
        ptrs = self.pointers(index) if index.shape == u.shape else None
        lanes = u.shape[-1] if u.shape else 1
        if ptrs is not None and any(step not in (0, 1, -1) for _, step in ptrs):
            ptrs = None
        alts = self.broadcast(alt, u.shape) if alt is not None else [""] * n_regs(u.shape)
        gates: list[Any] = [None] * n_regs(u.shape)
        if gate is not None:
            if gate.shape or ptrs is None or lanes > 1:
                gates = self.broadcast(gate, u.shape)
            else:  # one gate for all rows
                gates = self.value(gate).regs * n_regs(u.shape)
        if ptrs is None:
            return self._gather(u, index, gates, alt)
        if isinstance(u.arg, int):
            self._fetch(ptrs, lanes * u.dtype.itemsize, u.arg)
        rows = zip(ptrs, gates, alts, strict=True)
        return Value(u.shape, [self._load_row(u.dtype, p, step, lanes, g, a) for (p, step), g, a in rows])

    def _load_row(self, d: DType, p: str, step: int, lanes: int, gate: str | None, alt: str) -> str:
        """`lanes` elements from `p` on (backwards if `step` is -1), or those of `alt` where `gate` is false."""
        t, align = memory_type(d, lanes), d.itemsize
        if lanes == 1:
            if gate is not None:
                p = self.emit(f"select i1 {gate}, ptr {p}, ptr %dummy")
            r = self._from_memory(d, 1, self.emit(f"load {t}, ptr {p}, align {align}"))
            return r if gate is None else self.emit(f"select i1 {gate}, {type_name(d)} {r}, {type_name(d)} {alt}")
        if step == -1:
            p = self._offset(p, memory_type(d), str(1 - lanes))
        if gate is None:
            r = self.emit(f"load {t}, ptr {p}, align {align}")
        else:
            g = self._reverse(gate, dtypes.bool, lanes) if step == -1 else gate
            full = f"@llvm.masked.load.{overload(memory_type(d), lanes)}.p0"
            self.declares.add(f"declare {t} {full}(ptr, i32, <{lanes} x i1>, {t})")
            r = self.emit(f"call {t} {full}(ptr {p}, i32 {align}, <{lanes} x i1> {g}, {t} zeroinitializer)")
        r = self._from_memory(d, lanes, r)
        if step == -1:
            r = self._reverse(r, d, lanes)
        if gate is None or alt in _ZEROS:
            return r
        return self.emit(f"select <{lanes} x i1> {gate}, {type_name(d, lanes)} {r}, {type_name(d, lanes)} {alt}")

    def _fetch(self, ptrs: list[tuple[str, int]], row_bytes: int, ahead: int) -> None:
        """Ask for the lines that lie `ahead` bytes after the rows."""
        self.declares.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for p, _ in ptrs[:: max(1, LINE_BYTES // row_bytes)]:
            later = self.emit(f"getelementptr i8, ptr {p}, i64 {ahead}")
            self.lines.append(f"  call void @llvm.prefetch.p0(ptr {later}, i32 0, i32 3, i32 1)")

    def _from_memory(self, d: DType, lanes: int, r: str) -> str:
        return r if d is not dtypes.bool else self.emit(f"icmp ne {memory_type(d, lanes)} {r}, zeroinitializer")

    def _reverse(self, r: str, d: DType, lanes: int) -> str:
        return self.shuffle(r, d, lanes, range(lanes - 1, -1, -1))

    def _gather(self, u: UOp, index: UOp, gates: list[Any], alt: UOp | None) -> Value:
        """Element by element; equal addresses under equal gates are loaded once."""
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
                loaded[key] = self._load_row(d, p, 0, 1, gate, a)
            out.append(loaded[key])
        return self.join(out, u.shape, d)

    # ---- stores ------------------------------------------------------------------------------------------------------
    def store(self, u: UOp) -> None:
        """STORE, with a gate or without."""
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
        if ptrs is None or (lanes > 1 and any(step != 1 for _, step in ptrs)):
            self._scatter(target, shape, d, regs, gates)
            return
        stream = u.arg == "stream" and lanes > 1
        self.streamed |= stream
        for (p, _), r, g in zip(ptrs, regs, gates, strict=True):
            self._store_row(d, p, lanes, r, g, stream)

    def atomic_add(self, u: UOp) -> None:
        """One thread owns the kernel's whole target here: load, add, store, element after element."""
        target, val = u.src[0], u.src[1]
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        regs, d = self.broadcast(val, shape), val.dtype
        lanes = shape[-1] if shape else 1
        ptrs = self.pointers(target) if target.shape == shape else None
        gates = self._gates(gate, shape)
        if ptrs is not None and (lanes == 1 or all(step == 1 for _, step in ptrs)):
            zero = splat_literal(0, d, lanes)
            for (p, _), r, g in zip(ptrs, regs, gates, strict=True):
                old = self._load_row(d, p, 1, lanes, g, zero)
                self._store_row(d, p, lanes, self.combine("ADD", d, lanes, old, r), g)
            return
        v, gated = Value(shape, regs), Value(shape, gates)
        every = self.lane_pointers(target)
        for i, p in enumerate(every * (prod(shape) // len(every))):
            g = self.lane(dtypes.bool, gated, i) if gate is not None else None
            old = self._load_row(d, p, 0, 1, g, literal(0, d))
            self._store_row(d, p, 1, self.combine("ADD", d, 1, old, self.lane(d, v, i)), g)

    def _gates(self, gate: UOp | None, shape: tuple) -> list[Any]:
        return [None] * n_regs(shape) if gate is None else self.broadcast(gate, shape)

    def _scatter(self, target: UOp, shape: tuple, d: DType, regs: list[str], gates: list[Any]) -> None:
        """Element by element."""
        v, gated = Value(shape, regs), Value(shape, gates)
        ptrs = self.lane_pointers(target)
        for i, p in enumerate(ptrs * (prod(shape) // len(ptrs))):
            g = self.lane(dtypes.bool, gated, i) if gates[0] is not None else None
            self._store_row(d, p, 1, self.lane(d, v, i), g)

    def _store_row(self, d: DType, p: str, lanes: int, r: str, gate: str | None, stream: bool = False) -> None:
        t, align = memory_type(d, lanes), d.itemsize
        if d is dtypes.bool:
            r = self.emit(f"zext {type_name(d, lanes)} {r} to {t}")
        if stream:
            self.lines.append(f"  store {t} {r}, ptr {p}, align {align * lanes}, !nontemporal !{{i32 1}}")
        elif gate is None:
            self.lines.append(f"  store {t} {r}, ptr {p}, align {align}")
        elif lanes == 1:
            p = self.emit(f"select i1 {gate}, ptr {p}, ptr %dummy")
            self.lines.append(f"  store {t} {r}, ptr {p}, align {align}")
        else:
            full = f"@llvm.masked.store.{overload(memory_type(d), lanes)}.p0"
            self.declares.add(f"declare void {full}({t}, ptr, i32, <{lanes} x i1>)")
            self.lines.append(f"  call void {full}({t} {r}, ptr {p}, i32 {align}, <{lanes} x i1> {gate})")

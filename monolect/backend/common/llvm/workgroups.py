"""Render programs for workgroups in LLVM IR, for PTX, AMD's code objects and SPIR-V, on top of the CPU's renderer.

What it is for: the differences from a CPU. Buffers and Variables are parameters of the function. Pointer types have an
address space. A LOCAL buffer is a global variable of the workgroup. A branch skips closed lanes. An access is as wide
as the known alignment of its address allows. The `Dialect` of a target has its texts.
What it does not do: distribute work to lanes. LLVM splits vectors if the hardware has none.

Invariant: buffers and intermediates are aligned to `wide_bytes`.
"""

from __future__ import annotations

from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from monolect.backend.common.launch import launch_sizes
from monolect.backend.common.llvm.dialect import Dialect, Unit
from monolect.backend.common.llvm.memory import LaneOffsets
from monolect.backend.common.llvm.program import Renderer
from monolect.backend.common.llvm.types import Value, memory_type, type_bytes, type_name
from monolect.backend.common.shaped import address_parts
from monolect.base.dtype import DType, dtypes
from monolect.base.errors import InternalError
from monolect.base.matrix_units import BY_NAME
from monolect.ir.check.arrays import tiles_in_warp
from monolect.ir.rewrite.normal import linear as linear_form
from monolect.ir.uop import UOp


class PointerFacts(NamedTuple):
    """Known facts on an address: its address space, and a number of bytes of which it is a multiple."""

    space: int
    multiple: int  # 0: a multiple of any number


class GroupRenderer(Renderer):
    """Renders one kernel for a target with workgroups."""

    store_separator = ""  # drivers may not support it
    redirects_closed_loads = False  # branches skip closed loads
    is_simd = False  # vectors of a lane become several instructions, and not all devices have float64

    def __init__(self, dialect: Dialect, linear: UOp, name: str):
        super().__init__(linear, name)
        self.dialect = dialect
        self.facts: dict[str, PointerFacts] = {}  # by the register of an address
        self.multiples: dict[str, int] = {}  # register of an index -> a number of which it is a multiple
        self.globals: list[str] = []
        self.branches: list[int] = []

    # ---- the kernel --------------------------------------------------------------------------------------------------
    def render(self) -> str:
        """Return the text of the kernel, after that of its local memory."""
        head = self.signature()
        self.local_memory()
        for u in self.program:
            self.instruction(u)
        return "\n".join([*self.globals, head + " {", "entry:", *self.lines, "  ret void", "}", ""])

    def signature(self) -> str:
        """Return the head of the kernel, with its parameters in the order of their slots."""
        d, texts = self.dialect, []
        for u in sorted((u for u in self.program if u.op == "PARAM"), key=lambda u: u.arg.slot):
            v = f"%data{u.arg.slot}" if u.arg.name is None else f"%size{u.arg.slot}"
            self.vals[u] = Value((), [v])
            if u.arg.name is None:
                self.facts[v] = PointerFacts(d.global_space, d.wide_bytes)
                texts.append(d.pointer.format(p=_pointer_type(d.global_space), align=d.wide_bytes, v=v))
            else:
                texts.append(f"i64 {v}")
        sides = launch_sizes(self.program)[1]
        numbers = dict(zip("xyz", sides, strict=True), lanes=prod(sides))
        head = d.kernel.format(name=self.name, params=", ".join(texts))
        return f"{head} {d.attributes.format(**numbers)} {d.metadata.format(**numbers)}".rstrip()

    def local_memory(self) -> None:
        """Declare each LOCAL buffer as a global variable, of which each workgroup has its own."""
        for u in self.program:
            if u.op == "BUFFER" and u.arg.addrspace == "LOCAL":
                v, d = f"@{self.name}_local{u.arg.slot}", self.dialect
                t = f"[{prod(u.shape)} x {memory_type(u.dtype)}]"
                self.globals.append(f"{v} = internal addrspace({d.local_space}) global {t} undef, align {d.wide_bytes}")
                self.vals[u], self.facts[v] = Value((), [v]), PointerFacts(d.local_space, d.wide_bytes)

    def instruction(self, u: UOp) -> None:
        match u.op:
            case "PARAM" | "BUFFER":
                pass
            case "SPECIAL":
                self.vals[u] = Value((), [self.special(u)])
            case "IF":
                self.branches.append(self.open_branch(self.value(u.src[0]).regs[0]))
            case "ENDIF":
                self.close_branch(self.branches.pop())
            case "BARRIER":
                self.lines += [f"  {line}" for line in self.dialect.barrier]
            case "SHUFFLE":
                self.vals[u] = self.from_lane(u)
            case _:
                super().instruction(u)

    def special(self, u: UOp) -> str:
        """Emit the index of a lane or workgroup that a SPECIAL names."""
        d = self.dialect
        if u.arg not in d.ids:
            raise InternalError(f"{d.name} has no {u.arg}", expected=", ".join(d.ids))
        r = self.emit(f"call {d.ids[u.arg]}")
        return r if d.id_type == "i64" else self.emit(f"zext {d.id_type} {r} to i64")

    # ---- branches ----------------------------------------------------------------------------------------------------
    def open_branch(self, gate: str) -> int:
        """Open a block that runs only if `gate` is true, and return its number for `close_branch`.

        Registers that are memoized in the block are not reused after it.
        """
        self.n += 1
        self.lines += [f"  br i1 {gate}, label %open{self.n}, label %join{self.n}", f"open{self.n}:"]
        self.block = f"open{self.n}"
        self.shared.append({})
        return self.n

    def close_branch(self, number: int) -> None:
        """Close the block of a branch and open the block in which both paths meet."""
        self.shared.pop()
        self.lines += [f"  br label %join{number}", f"join{number}:"]
        self.block = f"join{number}"

    def _load_row(self, d: DType, p: str, row: LaneOffsets, gate: str | None, alt: str) -> str:
        """Emit a load in a branch if the register has one gate, or else a load for each lane."""
        lanes, t = len(row), type_name(d, len(row))
        if gate in (None, "true"):
            return super()._load_row(d, p, row, None, alt)
        if lanes > 1 and gate not in self.splats:
            alts = Value((lanes,), [alt])
            pointers = [self._offset(p, memory_type(d), str(at)) if at else p for at in row]
            rows = zip(
                pointers, self.gate_lanes(gate, lanes), [self.lane(d, alts, i) for i in range(lanes)], strict=True
            )
            return self.join([self._load_row(d, q, (0,), g, a) for q, g, a in rows], (lanes,), d).regs[0]
        if gate == "false":
            return alt
        before, number = self.block, self.open_branch(self.gate_lanes(gate, lanes)[0])
        r = super()._load_row(d, p, row, None, alt)
        inside = self.block
        self.close_branch(number)
        return self.emit(f"phi {t} [ {r}, %{inside} ], [ {alt}, %{before} ]")

    def _store_row(self, d: DType, p: str, lanes: int, r: str, gate: str | None, is_nontemporal: bool = False) -> None:
        if gate in (None, "true"):
            super()._store_row(d, p, lanes, r, None)
        elif lanes > 1 and gate not in self.splats:
            for i, g in enumerate(self.gate_lanes(gate, lanes)):
                q = self._offset(p, memory_type(d), str(i)) if i else p
                self._store_row(d, q, 1, self.lane(d, Value((lanes,), [r]), i), g)
        elif gate != "false":
            number = self.open_branch(self.gate_lanes(gate, lanes)[0])
            super()._store_row(d, p, lanes, r, None)
            self.close_branch(number)

    def _redirect_closed_rows(
        self, ptrs: list[tuple[str, LaneOffsets]], gate: UOp, shape: tuple
    ) -> tuple[list, list[Any]]:
        """Return the addresses and gates unchanged: a branch skips closed stores."""
        return ptrs, self._gates(gate, shape)

    def gate_lanes(self, gate: str, lanes: int) -> list[str]:
        """Return the gate of each lane, or one gate if all are equal."""
        if gate[0] == "<":
            return [g.strip("<>").removeprefix("i1 ") for g in gate.split(", ")]
        n = 1 if gate in self.splats else lanes
        return [self.lane(dtypes.bool, Value((lanes,) if lanes > 1 else (), [gate]), i) for i in range(n)]

    def atomic_add(self, u: UOp) -> None:
        """Render ATOMICADD, element by element.

        A dtype without atomic additions is added by load, add and store: only one lane adds to an element then.
        """
        target, val = u.src[0], u.src[1]
        d = val.dtype
        if d.name not in self.dialect.atomics:
            super().atomic_add(u)
            return
        gate = u.src[2] if len(u.src) == 3 else None
        shape = np.broadcast_shapes(target.shape, val.shape, gate.shape if gate is not None else ())
        v, ends = Value(shape, self.broadcast(val, shape)), self.lane_pointers(target)
        gated = Value(shape, self.broadcast(gate, shape)) if gate is not None else None
        how, t = "fadd" if d.is_float else "add", type_name(d)
        for i in range(prod(shape)):
            x, p = self.lane(d, v, i), self.pointer(ends[i % len(ends)])
            number = self.open_branch(self.lane(dtypes.bool, gated, i)) if gated is not None else None
            self.emit(f"atomicrmw {how} {p}, {t} {x} {self.dialect.scope}monotonic, align {d.itemsize}")
            if number is not None:
                self.close_branch(number)

    # ---- lanes of a warp ---------------------------------------------------------------------------------------------
    def from_lane(self, u: UOp) -> Value:
        """Render SHUFFLE, element by element, in words of 32 bits."""
        if not self.dialect.shuffle:
            raise InternalError(f"{self.dialect.name}: the lanes of a warp have no access to each other")
        v, d, t = self.value(u.src[0]), u.dtype, type_name(u.dtype)
        n_bits = 1 if d is dtypes.bool else d.bits
        whole, word = f"i{n_bits}", f"i{max(n_bits, 32)}"
        out = []
        for i in range(prod(u.shape)):
            r = self.lane(d, v, i)
            r = r if t == whole else self.emit(f"bitcast {t} {r} to {whole}")
            if n_bits < 32:
                r = self.emit(f"trunc i32 {self.shuffled(self.emit(f'zext {whole} {r} to i32'), u.arg)} to {whole}")
            elif n_bits == 32:
                r = self.shuffled(r, u.arg)
            else:
                parts = [self.emit(f"trunc i64 {x} to i32") for x in (r, self.emit(f"lshr i64 {r}, 32"))]
                low, high = (self.emit(f"zext i32 {self.shuffled(x, u.arg)} to {word}") for x in parts)
                r = self.emit(f"or i64 {low}, {self.emit(f'shl i64 {high}, 32')}")
            out.append(r if t == whole else self.emit(f"bitcast {whole} {r} to {t}"))
        return self.join(out, u.shape, d)

    def shuffled(self, x: str, bits: int) -> str:
        """Emit a read of the 32-bit word `x` of the lane whose number differs from this one's in `bits`."""
        steps: list[str] = []
        for text in self.dialect.shuffle:
            steps.append(self.emit(text.format(*steps, x=x, bits=bits)))
        return steps[-1]

    # ---- matrix units ------------------------------------------------------------------------------------------------
    def multiply(self, u: UOp) -> Value:
        """Render WMMA of a matrix unit of a warp: an instruction for each tile."""
        if u.arg[0] not in self.dialect.units:
            return super().multiply(u)
        row, held = self.dialect.units[u.arg[0]], [self.value(s) for s in u.src]
        out = [""] * prod(u.shape)
        for at in tiles_in_warp(BY_NAME[u.arg[0]], [s.shape for s in u.src], u.arg[1]):
            tiles = [[self.lane(s.dtype, v, int(i)) for i in k] for s, v, k in zip(u.src, held, at, strict=True)]
            for k, x in zip(at[2], self.tile(row, [s.dtype for s in u.src], tiles), strict=True):
                out[k] = x
        return self.join(out, u.shape, u.dtype)

    def tile(self, row: Unit, kinds: list[DType], tiles: list[list[str]]) -> list[str]:
        """Emit the instruction for one tile: return this lane's elements of the new sum.

        `tiles` are this lane's elements of a, of b and of the sum; `kinds` their dtypes; `row` the instruction.
        """
        operands: list[str] = []
        d, n = kinds[2], len(tiles[2])
        for kind, t, xs in zip(kinds, row.types, tiles, strict=True):
            if row.rounded and len(operands) < 2:
                regs = [self.emit(row.rounded.format(x=x)) for x in xs]
            else:
                regs = self.as_registers(kind, xs, t) if row.result else [self.bits(xs, kind, t)]
            operands.append(", ".join(f"{t} {r}" for r in regs))
        if row.declare:
            self.declares.add(row.declare)
        r = self.emit(row.text.format(**dict(zip("abc", operands, strict=True))))
        if row.result:
            return [self.emit(row.result.format(r=r, i=i)) for i in range(n)]
        return [self.lane(d, Value((n,), [r]), i) for i in range(n)]

    def bits(self, xs: list[str], d: DType, t: str) -> str:
        """Return the scalars `xs` of dtype `d`, packed into one register of type `t`."""
        whole, r = type_name(d, len(xs)), self.join(xs, (len(xs),), d).regs[0]
        return r if whole == t else self.emit(f"bitcast {whole} {r} to {t}")

    def as_registers(self, d: DType, xs: list[str], t: str) -> list[str]:
        """Return the scalars `xs` of dtype `d`, packed into registers of type `t`, the first in the lowest bits."""
        each = type_bytes(t) // d.itemsize
        return xs if type_name(d) == t else [self.bits(xs[i : i + each], d, t) for i in range(0, len(xs), each)]

    # ---- addresses ---------------------------------------------------------------------------------------------------
    def address_parts(self, u: UOp) -> tuple[str, Any, list[UOp]]:
        base = address_parts(u, self.consts)[0]
        r, offs, dynamic = super().address_parts(u)
        if base is not None:
            k, terms = linear_form(base)
            self.multiples[r] = gcd(k, *(c for _, c in terms))
        return r, offs, dynamic

    def _offset(self, p: str, t: str, i: str | None) -> str:
        out = super()._offset(p, t, i)
        step = self.multiples.get(str(i), 1) if str(i)[0] == "%" else int(str(i))
        self.facts[out] = self.facts[p]._replace(multiple=gcd(self.facts[p].multiple, step * type_bytes(t)))
        return out

    def pointer(self, p: str) -> str:
        return f"{_pointer_type(self.facts[p].space)} {p}"

    def alignment(self, p: str, d: DType, lanes: int) -> int:
        known = self.facts[p].multiple & -self.facts[p].multiple
        return max(d.itemsize, min(known, self.dialect.wide_bytes))


def _pointer_type(space: int) -> str:
    return f"ptr addrspace({space})" if space else "ptr"


def render_module(kernels: list[tuple[str, UOp]], dialect: Dialect) -> str:
    """Render an LLVM module with a kernel for each (name, LINEAR)."""
    rendered = [GroupRenderer(dialect, linear, name) for name, linear in kernels]
    texts = [r.render() for r in rendered]
    declares = {d for r in rendered for d in r.declares} | set(dialect.declares)
    return "\n".join([*sorted(declares), *texts, dialect.footer])


__all__ = ["GroupRenderer", "render_module"]

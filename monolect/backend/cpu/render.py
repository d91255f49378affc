"""Render LINEAR programs for the device `cpu` as LLVM IR, with WMMA as the matrix instructions in `units`."""

from __future__ import annotations

import numpy as np

from monolect.backend.common.llvm import program as llvm_ir
from monolect.backend.common.llvm.memory import MAX_VECTOR_BYTES
from monolect.backend.common.llvm.types import Value, type_name
from monolect.backend.cpu.tiles import TileRenderer
from monolect.backend.cpu.units import BY_NAME
from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit
from monolect.ir.uop import UOp


class CpuRenderer(TileRenderer):
    """Renders one kernel as an LLVM function."""

    def multiply(self, u: UOp) -> Value:
        """Render a WMMA; on vector registers it is one instruction for each register of the accumulator."""
        unit, intrinsic, _ = BY_NAME[u.arg[0]]
        if unit.n_tiles:
            return self.multiply_tiles(u, unit, intrinsic)
        a, b, acc = u.src
        wide = unit.n * unit.k
        types = [type_name(acc.dtype, unit.n), *(f"<{wide} x {_element(x.dtype)}>" for x in (a, b))]
        name = self.declare(types[0], intrinsic, ", ".join(types))
        columns = [
            self.broadcast(acc, u.shape),
            *(self.operand_registers(x, unit, u.shape[:-1], u.arg[1]) for x in (a, b)),
        ]
        regs = []
        for row in zip(*columns, strict=True):
            row = (
                row[0],
                *(self.bitcast_to(x.dtype, wide, t, r) for x, t, r in zip((a, b), types[1:], row[1:], strict=True)),
            )
            operands = ", ".join(f"{t} {r}" for t, r in zip(types, row, strict=True))
            regs.append(self.emit(f"call {types[0]} {name}({operands})"))
        return Value(u.shape, regs)

    def bitcast_to(self, d: DType, lanes: int, t: str, r: str) -> str:
        """Return the register `r` of `lanes` elements bitcast to the LLVM type `t` of an intrinsic's operand."""
        if t == type_name(d, lanes):
            return r
        found = self.find_shared((r, t))
        if found is None:
            found = self.shared[-1][r, t] = self.emit(f"bitcast {type_name(d, lanes)} {r} to {t}")
        return found

    def operand_registers(self, x: UOp, unit: MatrixUnit, lead: tuple, n_axes: int) -> list[str]:
        """Return a register of operand `x` for each accumulator register: `unit.k` contracted elements for each lane.

        `lead`: the accumulator's shape without lanes; `n_axes`: number of contracted axes, the last ones of `x`.
        """
        own_lead = x.shape[: -1 - n_axes]
        if x.op == "CONST":
            regs = [self.broadcast_group(self.value(x).regs[0], x, unit)]
        elif len(x.shape) > n_axes and x.shape[-1 - n_axes] == unit.n:
            regs = self.lane_registers(x, unit)
        elif x.op == "XOR" and x.src[1].op == "CONST":  # after the broadcast, so that LLVM can merge it with the load
            regs = [self.xor_words(r, x.src[1], unit) for r in self.operand_registers(x.src[0], unit, own_lead, n_axes)]
        else:
            regs = [self.broadcast_group(r, x, unit) for r in self.value(x).regs]
        at = np.arange(len(regs)).reshape(own_lead)
        return [regs[i] for i in np.broadcast_to(at, lead).ravel()]

    def xor_words(self, r: str, bits: UOp, unit: MatrixUnit) -> str:
        """XOR each element with a constant, in 32-bit words: LLVM then merges load, broadcast and XOR."""
        wide, words = type_name(bits.dtype, unit.n * unit.k), f"<{unit.n} x i32>"
        word = int.from_bytes(bytes([bits.value & 255] * 4), "little")
        v = self.emit(f"bitcast {wide} {r} to {words}")
        v = self.emit(f"xor {words} {v}, splat (i32 {word})")
        return self.emit(f"bitcast {words} {v} to {wide}")

    def lane_registers(self, x: UOp, unit: MatrixUnit) -> list[str]:
        """Return the registers of an operand that differs between lanes; one load each if memory has their order."""
        n = unit.n * unit.k
        if x.op == "RESHAPE" and x.src[0].shape[-1:] == (n,):
            return self.value(x.src[0]).regs
        v = self.value(x)
        each = [v.regs[i : i + n // v.lanes] for i in range(0, len(v.regs), n // v.lanes)]
        return [self.concatenate(rs, x.dtype, v.lanes) for rs in each]

    def broadcast_group(self, r: str, x: UOp, unit: MatrixUnit) -> str:
        """Return a register with the `unit.k` contracted elements of `r` repeated for each of the `unit.n` lanes."""
        wide = type_name(x.dtype, unit.n * unit.k)
        if x.op == "CONST":
            return f"splat ({type_name(x.dtype)} {r})"
        key = (r, wide)
        found = self.find_shared(key)
        if found is None:
            word = f"i{unit.k * x.dtype.bits}"
            one = self.emit(f"bitcast {type_name(x.dtype, unit.k)} {r} to {word}")
            t = f"<{unit.n} x {word}>"
            one = self.emit(f"insertelement {t} poison, {word} {one}, i64 0")
            one = self.emit(f"shufflevector {t} {one}, {t} poison, <{unit.n} x i32> zeroinitializer")
            found = self.shared[-1][key] = self.emit(f"bitcast {t} {one} to {wide}")
        return found


def _element(d: DType) -> str:
    """Return the LLVM element type that the intrinsics use for a dtype."""
    return "bfloat" if d is dtypes.bfloat16 else type_name(d)


def render_module(kernels: list[tuple[str, UOp]], vector_bytes: int = MAX_VECTOR_BYTES) -> str:
    """Return one LLVM module with a function for each (name, LINEAR); `vector_bytes`: width of the vectors."""
    return llvm_ir.render_module(kernels, CpuRenderer, vector_bytes)


__all__ = ["render_module"]

"""CPU: the LLVM renderer, and WMMA as the instructions of `units`."""

from __future__ import annotations

import numpy as np

from monolect.backend.common.llvm import program as llvm_ir
from monolect.backend.common.llvm.types import Value, type_name
from monolect.backend.cpu.tiles import TileRenderer
from monolect.backend.cpu.units import BY_NAME
from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit
from monolect.ir.uop import UOp


class CpuRenderer(TileRenderer):
    """One function."""

    def multiply(self, u: UOp) -> Value:
        """WMMA. On vector registers: one instruction for each register of the accumulator."""
        unit, intrinsic, _ = BY_NAME[u.arg[0]]
        if unit.n_tiles:
            return self.multiply_tiles(u, unit, intrinsic)
        a, b, acc = u.src
        wide = unit.n * unit.k
        types = [type_name(acc.dtype, unit.n), *(f"<{wide} x {_element(x.dtype)}>" for x in (a, b))]
        name = self.declare(types[0], intrinsic, ", ".join(types))
        columns = [self.broadcast(acc, u.shape), *(self.tiles(x, unit, u.shape[:-1], u.arg[1]) for x in (a, b))]
        regs = []
        for row in zip(*columns, strict=True):
            row = (
                row[0],
                *(self.as_type(x.dtype, wide, t, r) for x, t, r in zip((a, b), types[1:], row[1:], strict=True)),
            )
            operands = ", ".join(f"{t} {r}" for t, r in zip(types, row, strict=True))
            regs.append(self.emit(f"call {types[0]} {name}({operands})"))
        return Value(u.shape, regs)

    def as_type(self, d: DType, lanes: int, t: str, r: str) -> str:
        """The bits of `r` as the type that an intrinsic takes."""
        if t == type_name(d, lanes):
            return r
        found = self.find_shared((r, t))
        if found is None:
            found = self.shared[-1][r, t] = self.emit(f"bitcast {type_name(d, lanes)} {r} to {t}")
        return found

    def tiles(self, x: UOp, unit: MatrixUnit, lead: tuple, n_axes: int) -> list[str]:
        """The operand `x` of each register of the accumulator: what it contracts side by side, lane after lane."""
        mine = x.shape[: -1 - n_axes]
        if x.op == "CONST":
            regs = [self.whole_splat(self.value(x).regs[0], x, unit)]
        elif len(x.shape) > n_axes and x.shape[-1 - n_axes] == unit.n:
            regs = self.joined_lanes(x, unit)
        elif x.op == "XOR" and x.src[1].op == "CONST":  # cheaper on what a load has spread over the lanes
            regs = [self.flipped(r, x.src[1], unit) for r in self.tiles(x.src[0], unit, mine, n_axes)]
        else:
            regs = [self.whole_splat(r, x, unit) for r in self.value(x).regs]
        at = np.arange(len(regs)).reshape(mine)
        return [regs[i] for i in np.broadcast_to(at, lead).ravel()]

    def flipped(self, r: str, bits: UOp, unit: MatrixUnit) -> str:
        """XOR of each element with a constant, in words: as such, one instruction loads, spreads and flips."""
        wide, words = type_name(bits.dtype, unit.n * unit.k), f"<{unit.n} x i32>"
        word = int.from_bytes(bytes([bits.value & 255] * 4), "little")
        v = self.emit(f"bitcast {wide} {r} to {words}")
        v = self.emit(f"xor {words} {v}, splat (i32 {word})")
        return self.emit(f"bitcast {words} {v} to {wide}")

    def joined_lanes(self, x: UOp, unit: MatrixUnit) -> list[str]:
        """The registers of an operand that differs from lane to lane: one load where it lies in memory like that."""
        n = unit.n * unit.k
        if x.op == "RESHAPE" and x.src[0].shape[-1:] == (n,):
            return self.value(x.src[0]).regs
        v = self.value(x)
        each = [v.regs[i : i + n // v.lanes] for i in range(0, len(v.regs), n // v.lanes)]
        return [self.concatenate(rs, x.dtype, v.lanes) for rs in each]

    def whole_splat(self, r: str, x: UOp, unit: MatrixUnit) -> str:
        """What `r` holds of the contracted axes, in every lane."""
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
    """The type of an element as intrinsics name it."""
    return "bfloat" if d is dtypes.bfloat16 else type_name(d)


def render_module(kernels: list[tuple[str, UOp]]) -> str:
    """One LLVM module with a function for each (name, LINEAR)."""
    return llvm_ir.render_module(kernels, CpuRenderer)


__all__ = ["render_module"]

"""List the matrix units of processors, with their LLVM intrinsics and the processor features that they need.

What it is for: `units` returns the available matrix units, the fastest first.
What it is not: the decision whether a kernel uses a unit (`optimize.cpu.contraction`), or the loops around it.

An `intrinsic` takes the accumulator and both operands; where `a` and `b` differ in dtype, `a` is the first operand.
Subnormal numbers may count as zero in the bfloat16 units; those of float16 count in its unit.
Source: Intel's "Intrinsics Guide", Arm's "ACLE".
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = (
    158,
    0x1023,
    18,
)  # constants of Linux: asm/unistd_64.h, asm/prctl.h
F16, BF16, F32 = dtypes.float16, dtypes.bfloat16, dtypes.float32
I8, U8, I32 = dtypes.int8, dtypes.uint8, dtypes.int32


class UnitRow(NamedTuple):
    """A matrix unit, its LLVM intrinsic, and the sets of processor features each of which suffices for it."""

    unit: MatrixUnit
    intrinsic: str
    features: tuple[frozenset[str], ...]


def _tile_unit(name: str, k: int, pair: int, a: DType, b: DType, acc: DType, *features: str) -> UnitRow:
    unit = MatrixUnit(name, 16, 16, k, pair, a, b, acc, n_tiles=8)
    return UnitRow(unit, f"x86.{name}.internal", (frozenset(("amx-tile", *features)),))


def _dot_unit(name: str, lanes: int, k: int, a: DType, b: DType, acc: DType, intrinsic: str, *features: str) -> UnitRow:
    unit = MatrixUnit(name, 1, lanes, k, k, a, b, acc)
    return UnitRow(unit, intrinsic, tuple(frozenset(f.split()) for f in features))


ROWS: tuple[UnitRow, ...] = (
    _tile_unit("tdpbf16ps", 32, 2, BF16, BF16, F32, "amx-bf16"),
    _tile_unit("tdpfp16ps", 32, 2, F16, F16, F32, "amx-fp16"),
    _tile_unit("tdpbssd", 64, 4, I8, I8, I32, "amx-int8"),
    _tile_unit("tdpbsud", 64, 4, I8, U8, I32, "amx-int8"),
    _tile_unit("tdpbusd", 64, 4, U8, I8, I32, "amx-int8"),
    _tile_unit("tdpbuud", 64, 4, U8, U8, I32, "amx-int8"),
    _dot_unit("vdpbf16ps", 16, 2, BF16, BF16, F32, "x86.avx512bf16.dpbf16ps.512", "avx512bf16"),
    _dot_unit("vpdpbusd", 16, 4, U8, I8, I32, "x86.avx512.vpdpbusd.512", "avx512vnni"),
    _dot_unit("vpdpbusd-8", 8, 4, U8, I8, I32, "x86.avx512.vpdpbusd.256", "avxvnni"),
    _dot_unit("bfdot", 4, 2, BF16, BF16, F32, "aarch64.neon.bfdot.v4f32.v8bf16", "bf16"),
    _dot_unit("sdot", 4, 4, I8, I8, I32, "aarch64.neon.sdot.v4i32.v16i8", "dotprod"),
    _dot_unit("udot", 4, 4, U8, U8, I32, "aarch64.neon.udot.v4i32.v16i8", "dotprod"),
)  # fmt: skip
BY_NAME: dict[str, UnitRow] = {row.unit.name: row for row in ROWS}
BY_INTRINSIC: dict[str, UnitRow] = {row.intrinsic: row for row in ROWS}
_VNNI = ("avx512vnni",)
_BF16 = (*_VNNI, "avx512bf16")
# value of EMULATE_UNITS -> (features of the emulated processor, bytes of a vector register, number of vector registers)
EMULATED: dict[str, tuple[tuple[str, ...], int, int]] = {
    "amx": ((*_BF16, "amx-tile", "amx-bf16", "amx-fp16", "amx-int8"), 64, 32),
    "bf16": (_BF16, 64, 32),
    "vnni": (_VNNI, 64, 32),
    "avxvnni": (("avxvnni",), 32, 16),
}


def units(features: tuple[str, ...], vector_bytes: int) -> tuple[MatrixUnit, ...]:
    """Return the units of a processor with these features, whose vectors have `vector_bytes`, the fastest first."""
    available = frozenset(features)
    fits = [r.unit for r in ROWS if any(f <= available for f in r.features)]
    return tuple(u for u in fits if u.n_tiles or u.n * u.acc.itemsize == vector_bytes)


def usable_units(features: tuple[str, ...], vector_bytes: int) -> tuple[MatrixUnit, ...]:
    """Return the units of this processor, with these features, that the system lets this process use."""
    found = units(features, vector_bytes)
    return found if not any(u.n_tiles for u in found) or may_use_tiles() else tuple(u for u in found if not u.n_tiles)


def may_use_tiles() -> bool:
    """Request permission for AMX tiles from Linux, which every process needs; True if it is granted."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return int(syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)) == 0


__all__ = ["BY_INTRINSIC", "BY_NAME", "EMULATED", "I8", "ROWS", "UnitRow", "may_use_tiles", "units", "usable_units"]

"""Matrix units of processors, and the instructions that drive them.

What it is for: one row a unit, with the features it needs. `units` picks those that are here, the best first.
What it is not: the choice whether a kernel uses one (`optimize.cpu.contraction`), or the loops around it.

A row's `intrinsic` takes the accumulator and both operands; where `a` and `b` differ in dtype, that of `a` comes first.
Subnormal numbers may count as zero in the bfloat16 units.
Source: Intel's "Intrinsics Guide", Arm's "ACLE".
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.base.target import MatrixUnit

_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18  # Linux: asm/unistd_64.h, asm/prctl.h
BF16, F32, I8, U8, I32 = dtypes.bfloat16, dtypes.float32, dtypes.int8, dtypes.uint8, dtypes.int32


class Row(NamedTuple):
    """A unit, its LLVM intrinsic, and sets of features any of which brings it."""

    unit: MatrixUnit
    intrinsic: str
    features: tuple[frozenset[str], ...]


def _tiles(name: str, k: int, pair: int, a: DType, b: DType, acc: DType, *features: str) -> Row:
    unit = MatrixUnit(name, 16, 16, k, pair, a, b, acc, n_tiles=8)
    return Row(unit, f"x86.{name}.internal", (frozenset(("amx-tile", *features)),))


def _dots(name: str, lanes: int, k: int, a: DType, b: DType, acc: DType, intrinsic: str, *features: str) -> Row:
    unit = MatrixUnit(name, 1, lanes, k, k, a, b, acc)
    return Row(unit, intrinsic, tuple(frozenset(f.split()) for f in features))


ROWS: tuple[Row, ...] = (
    _tiles("tdpbf16ps", 32, 2, BF16, BF16, F32, "amx-bf16"),
    _tiles("tdpbssd", 64, 4, I8, I8, I32, "amx-int8"),
    _tiles("tdpbsud", 64, 4, I8, U8, I32, "amx-int8"),
    _tiles("tdpbusd", 64, 4, U8, I8, I32, "amx-int8"),
    _tiles("tdpbuud", 64, 4, U8, U8, I32, "amx-int8"),
    _dots("vdpbf16ps", 16, 2, BF16, BF16, F32, "x86.avx512bf16.dpbf16ps.512", "avx512bf16"),
    _dots("vpdpbusd", 16, 4, U8, I8, I32, "x86.avx512.vpdpbusd.512", "avx512vnni"),
    _dots("vpdpbusd-8", 8, 4, U8, I8, I32, "x86.avx512.vpdpbusd.256", "avxvnni"),
    _dots("bfdot", 4, 2, BF16, BF16, F32, "aarch64.neon.bfdot.v4f32.v8bf16", "bf16"),
    _dots("sdot", 4, 4, I8, I8, I32, "aarch64.neon.sdot.v4i32.v16i8", "dotprod"),
    _dots("udot", 4, 4, U8, U8, I32, "aarch64.neon.udot.v4i32.v16i8", "dotprod"),
)  # fmt: skip
BY_NAME: dict[str, Row] = {row.unit.name: row for row in ROWS}
BY_INTRINSIC: dict[str, Row] = {row.intrinsic: row for row in ROWS}
_VNNI = ("avx512vnni",)
_BF16 = (*_VNNI, "avx512bf16")
# the setting EMULATE_UNITS -> (features of a processor whose units are emulated, bytes of its vectors, its registers)
EMULATED: dict[str, tuple[tuple[str, ...], int, int]] = {
    "amx": ((*_BF16, "amx-tile", "amx-bf16", "amx-int8"), 64, 32),
    "bf16": (_BF16, 64, 32),
    "vnni": (_VNNI, 64, 32),
    "avxvnni": (("avxvnni",), 32, 16),
}


def units(features: tuple[str, ...], vector_bytes: int) -> tuple[MatrixUnit, ...]:
    """The units that a processor with these features has, for vectors of its own width."""
    here = frozenset(features)
    fits = [r.unit for r in ROWS if any(f <= here for f in r.features)]
    return tuple(u for u in fits if u.n_tiles or u.n * u.acc.itemsize == vector_bytes)


def usable_units(features: tuple[str, ...], vector_bytes: int) -> tuple[MatrixUnit, ...]:
    """The same, but for those that the system does not let this process use. For the features of this processor."""
    found = units(features, vector_bytes)
    return found if not any(u.n_tiles for u in found) or may_use_tiles() else tuple(u for u in found if not u.n_tiles)


def may_use_tiles() -> bool:
    """Ask Linux for the state of tiles, which a process has only after it asked; True where it may be used."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return False
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    return int(syscall(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA)) == 0

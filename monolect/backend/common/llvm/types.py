"""Translate dtypes, constants and shapes to LLVM IR text.

What it does not do: emit instructions. Every function here depends only on a dtype, a number or a shape.
Invariant: memory and registers differ in one type only: a bool is an i1 in a register and a byte in memory.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any

import numpy as np

from monolect.base.dtype import DType, dtypes
from monolect.ir.ops import INVALID

_FLOATS = {
    "float32": "float",
    "float64": "double",
    "float16": "half",
}  # other floats are integers of their bits in LLVM IR: LLVM selects few ops on bfloat
_OVERLOADS = {"float": "f32", "double": "f64", "half": "f16"}


class Value:
    """The registers of one shaped value: `regs` in row-major order of shape[:-1], each with shape[-1] lanes."""

    __slots__ = ("lanes", "lead", "regs")

    def __init__(self, shape: tuple, regs: list[str]):
        self.lanes = shape[-1] if shape else 1
        self.lead = shape[:-1]
        self.regs = regs


def n_regs(shape: tuple) -> int:
    """Return the number of registers of a value of `shape`."""
    return prod(shape[:-1]) if shape else 1


def type_name(d: DType, lanes: int = 1) -> str:
    """Return the LLVM type of a register with `lanes` elements of dtype `d`."""
    if d.is_float:
        t = _FLOATS.get(d.name) or f"i{d.bits}"
    else:
        t = "i1" if d is dtypes.bool else "i64" if d.kind == "x" else f"i{d.bits}"
    return t if lanes == 1 else f"<{lanes} x {t}>"


def memory_type(d: DType, lanes: int = 1) -> str:
    """Return the LLVM type of `lanes` elements of dtype `d` in memory, where a bool is a byte."""
    return type_name(dtypes.uint8 if d is dtypes.bool else d, lanes)


def type_bytes(t: str) -> int:
    """Return the bytes of the scalar LLVM type `t` in memory."""
    return {"half": 2, "float": 4, "double": 8}.get(t) or int(t[1:]) // 8


def overload(t: str, lanes: int = 1) -> str:
    """Return the suffix of an intrinsic's name for `lanes` of scalar type `t`, as in `v16f32`."""
    return (f"v{lanes}" if lanes > 1 else "") + _OVERLOADS.get(t, t)


def literal(value: Any, d: DType) -> str:
    """Return the text of the scalar constant `value` of dtype `d`; of INVALID, a zero."""
    if value is INVALID:
        return "0.0" if d.name in _FLOATS else "zeroinitializer"
    if d is dtypes.bool:
        return "true" if value else "false"
    if not d.is_float:
        return str(int(value))
    if d.name not in _FLOATS:  # the bits of the float, as an integer
        return str(np.array(value, d.numpy).view(f"u{d.itemsize}"))
    if d is dtypes.float16:
        return "0xH" + struct.pack(">e", value).hex().upper()
    return "0x" + struct.pack(">d", value).hex().upper()


def splat_literal(value: Any, d: DType, lanes: int) -> str:
    """Return the text of a constant with the same value in every lane."""
    return literal(value, d) if lanes == 1 else f"splat ({type_name(d)} {literal(value, d)})"


def vector_literal(row: Any, d: DType) -> str:
    """Return the text of a constant with one value a lane, from a NumPy row; a row of one value is a scalar."""
    if len(row) == 1:
        return literal(row[0].item(), d)
    t = type_name(d)
    return "<" + ", ".join(f"{t} {literal(x.item(), d)}" for x in row) + ">"


def lane_list(lanes: Any) -> str:
    """Return the mask of a `shufflevector`: for each lane of the result the number of a source lane, -1 for any."""
    return f"<{len(lanes)} x i32> <" + ", ".join(f"i32 {i}" if i >= 0 else "i32 poison" for i in lanes) + ">"


__all__ = [
    "Value",
    "lane_list",
    "literal",
    "memory_type",
    "n_regs",
    "overload",
    "splat_literal",
    "type_bytes",
    "type_name",
    "vector_literal",
]

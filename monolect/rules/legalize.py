"""Legalize float types that a target lacks: arithmetic in float32, conversions by integer operations.

What it is for: float16, bfloat16 and the two fp8 types on targets that only load and store their bits. A value of such
a type keeps its dtype. Its operands are upcast and the result is rounded back, so every operation rounds as the type
requires. What it is not: it does not choose accumulators, or emulate 64-bit types.

Invariant: conversions agree with NumPy and ml_dtypes in every bit, except for the payload of nan: subnormals are exact,
rounding is to nearest even, overflow gives inf (nan in fp8e4m3, which has no inf). Selections and movement of such
values are left alone, since they need no arithmetic.
Source: IEEE 754-2019; the OCP 8-bit floating point specification; rounding by an added half as in FBGEMM.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.uop import UOp, build, const
from monolect.rules.formula import (
    bits,
    cast,
    differ,
    less,
    magnitude_argument,
    shift_left,
    shift_right,
    sub,
    union,
    where,
)
from monolect.rules.transcendental import LN2, LOG2E, exp_argument, is_log
from monolect.rules.trigonometric import HALF_PI, cosine_argument

F32, U32, F64 = dtypes.float32, dtypes.uint32, dtypes.float64
EXACT = 1 << 24  # float32 represents all integers up to this


class Narrow(NamedTuple):
    """The layout of a float of fewer than 32 bits."""

    uint: DType
    mantissa: int
    bias: int
    top: int  # bits of the first magnitude that is not finite: inf, or nan where there is no inf
    nan: int  # bits of a quiet nan


NARROW: dict[DType, Narrow] = {
    dtypes.float16: Narrow(dtypes.uint16, 10, 15, 0x7C00, 0x7E00),
    dtypes.bfloat16: Narrow(dtypes.uint16, 7, 127, 0x7F80, 0x7FC0),
    dtypes.fp8e5m2: Narrow(dtypes.uint8, 2, 15, 0x7C, 0x7E),
    dtypes.fp8e4m3: Narrow(dtypes.uint8, 3, 7, 0x7F, 0x7F),
}
_NEEDED = "the target has no arithmetic on such floats"
ROWS = Family(
    "legalize", __name__,
    Row("narrow_and_back", "a narrow float cast to float32 and back is itself"),
    Row("cast_through_single", "a cast of a narrow float goes through float32", _NEEDED),
    Row("widen_by_bits", "a narrow float is converted to float32 by integer operations", _NEEDED),
    Row("narrow_by_bits", "float32 is rounded to a narrow float by integer operations", _NEEDED),
    Row("narrow_of_bool", "a bool cast to a narrow float is (1 if p else 0)", _NEEDED),
    Row("round_to_odd", "float64 and large integers are truncated to float32 with a sticky last bit, so that they are rounded once"),
    Row("reduce_in_single", "a reduction of narrow floats is computed in float32 and rounded", _NEEDED),
    Row("op_in_single", "an op on narrow floats is computed in float32 and rounded", _NEEDED),
    Row("exp_in_single", "exp of a narrow float is computed in float32, with a float32 constant"),
    Row("log_in_single", "log of a narrow float is computed in float32, with a float32 constant"),
    Row("cos_in_single", "cos of a narrow float is computed in float32, with a float32 constant"),
    Row("abs_in_single", "|x| of a narrow float is computed in float32, so that |-0.0| is 0.0"),
)  # fmt: skip
_MOVED = frozenset(("WHERE",))  # elementwise, but no arithmetic on the operands' values


def widen(x: UOp) -> UOp:
    """Return `x`, of a narrow type, as float32. Exact; does not rely on subnormal float32 arithmetic."""
    n = NARROW[x.dtype]
    raw = cast(bits(x, n.uint), U32)
    if n.bias == 127:
        return bits(shift_left(raw, 16), F32)
    sign = shift_left(shift_right(raw, x.dtype.bits - 1), 31)
    a = raw & (1 << (x.dtype.bits - 1)) - 1
    moved = shift_left(a, 23 - n.mantissa)
    normal = moved + (127 - n.bias << 23)
    tiny = bits(cast(a, F32) * 2.0 ** (1 - n.bias - n.mantissa), U32)
    out = where(less(a, 1 << n.mantissa), tiny, normal)
    special = where(less(n.top, a), 0x7FC00000, 0x7F800000, raw) if n.top != n.nan else const(0x7FC00000, U32)
    return bits(union(where(less(a, n.top), out, special), sign), F32)


def narrow(x: UOp, d: DType) -> UOp:
    """Return float32 `x` rounded to nearest even, as a value of the narrow type `d`, by integer operations.

    Normal results: the bits to cut are rounded by adding half of their unit, less one, plus the last kept bit.
    Subnormal results: adding 2**23 times their unit lets the adder round.
    """
    n = NARROW[d]
    raw = bits(x, U32)
    a = raw & 0x7FFFFFFF
    cut = 23 - n.mantissa
    odd = shift_right(a, cut) & 1
    out = shift_right(a + odd + ((1 << cut - 1) - 1 - (127 - n.bias << 23)), cut)
    if n.bias != 127:
        magic = const(2.0 ** (23 + 1 - n.bias - n.mantissa), F32)
        tiny = bits(bits(a, F32) + magic, U32) + -_bits_of(magic)
        out = where(less(a, 127 - n.bias + 1 << 23), tiny, out)
        out = where(less(_last_finite(n), a), n.top, out)
    out = where(less(0x7F800000, a), n.nan, out)
    sign = shift_left(shift_right(raw, 31), d.bits - 1)
    return bits(cast(union(out, sign), n.uint), d)


def _bits_of(c: UOp) -> int:
    """Return the bit pattern, as an int, of the float32 CONST `c`, which is a power of two."""
    return (
        (127 + int(c.value).bit_length() - 1 << 23) if c.value >= 1 else 127 - int(1 / c.value).bit_length() + 1 << 23
    )


def _last_finite(layout: Narrow) -> int:
    """Return the bit pattern of the largest float32 magnitude that rounds to a finite number of the `layout`."""
    largest = layout.top - 1
    midpoint = (largest << 23 - layout.mantissa) + (1 << 22 - layout.mantissa) + (127 - layout.bias << 23)
    return midpoint if largest % 2 == 0 else midpoint - 1


def to_odd(x: UOp) -> UOp:
    """Return the float64 or integer `x` rounded to odd in float32: truncated, with the last bit set if that is inexact.

    Rounding the result to fewer bits gives the same as rounding `x` once.
    """
    single = cast(x, F32)
    back = cast(single, x.dtype)
    up = where(less(x, 0), less(back, x), less(x, back))  # away from zero
    cut = sub(bits(single, U32), cast(up, U32))
    return bits(union(cut, cast(differ(back, x), U32)), F32)


def _rounds_twice(x: UOp, d: DType) -> bool:
    """Whether a cast of `x` to the narrow type `d` through float32 would round twice: `x` is float64 or may be a large
    integer.

    Large integers matter only for bfloat16; in other narrow types, integers that float32 does not represent overflow.
    """
    if x.dtype is F64:
        return True
    low, high = min_max(x) if x.dtype.is_int and d is dtypes.bfloat16 else (0, 0)
    return low < -EXACT or high > EXACT


def legalize(u: UOp, native: frozenset[DType], casts: frozenset[DType] = frozenset()) -> UOp | None:
    """Return `u` without arithmetic on float types that are not in `native`, or None if it needs no change.

    `casts` names types that the target can convert to and from float32 although it cannot compute in them. A CAST of an
    upcast value back to its own type vanishes. This is one step: the result may contain nodes to be legalized in turn.
    """
    if u.op == "CAST":
        return _cast(u, native, casts)
    if u.op in ("REDUCE", "SCAN") and u.dtype in NARROW and u.dtype not in native:
        return fired("reduce_in_single", u, cast(build(u.op, cast(u.src[0], F32), *u.src[1:], arg=u.arg), u.dtype))
    if u.op not in ELEMENTWISE or u.op in _MOVED:
        return None
    if not any(s.dtype in NARROW and s.dtype not in native for s in u.src):
        return None
    return fired("op_in_single", u, in_single(u))


def in_single(u: UOp) -> UOp:
    """Return the op on float32 copies of its narrow operands, rounded back to the dtype of the node.

    exp, log, cos and |x|, which are patterns of two nodes, are upcast as a whole with constants in full precision: x *
    log2(e) rounded to eight bits would make e**10 wrong by four percent. max(x, -x) must return 0.0 for zero.
    """
    out = _pair_in_single(u)
    if out is None:
        out = build(u.op, *(cast(s, F32) if s.dtype in NARROW else s for s in u.src), arg=u.arg)
    return out if out.dtype is u.dtype else cast(out, u.dtype)


def _pair_in_single(u: UOp) -> UOp | None:
    """Return exp, cos, log or |x| of a float32 copy of the argument, in float32, if the narrow `u` is that pattern of
    two nodes; else None.
    """
    if u.op == "EXP2" and (x := exp_argument(u)) is not None and is_on("exp_in_single"):
        return fired("exp_in_single", u, build("EXP2", cast(x, F32) * LOG2E))
    if u.op == "SIN" and (x := cosine_argument(u)) is not None and is_on("cos_in_single"):
        return fired("cos_in_single", u, build("SIN", build("SUB", const(HALF_PI, F32), cast(x, F32))))
    if u.op == "MUL" and is_log(u) and is_on("log_in_single"):
        x = (u.src[0] if u.src[0].op == "LOG2" else u.src[1]).src[0]
        return fired("log_in_single", u, build("LOG2", cast(x, F32)) * LN2)
    if u.op == "MAX" and (x := magnitude_argument(u)) is not None and is_on("abs_in_single"):
        return fired("abs_in_single", u, build("MAX", cast(x, F32), build("NEG", cast(x, F32))))
    return None


def _cast(u: UOp, native: frozenset[DType], casts: frozenset[DType]) -> UOp | None:
    """Return the CAST `u` legalized, or None if the target has it or no narrow type is involved.

    The target computes in the dtypes of `native`, and converts those of `casts` to and from float32.
    """
    x, d = u.src[0], u.dtype
    if d in NARROW and x.op == "CAST" and x.dtype is F32 and x.src[0].dtype is d and is_on("narrow_and_back"):
        return fired("narrow_and_back", u, x.src[0])
    if x.dtype in NARROW and x.dtype not in native:
        if d is not F32:
            return fired("cast_through_single", u, cast(cast(x, F32), d))
        return None if x.dtype in casts else fired("widen_by_bits", u, widen(x))
    if d in NARROW and d not in native:
        if x.dtype is F32:
            return None if d in casts else fired("narrow_by_bits", u, narrow(x, d))
        if x.dtype is dtypes.bool:
            return fired("narrow_of_bool", u, build("WHERE", x, const(1, d), const(0, d)))
        if _rounds_twice(x, d) and is_on("round_to_odd"):
            return fired("round_to_odd", u, cast(to_odd(x), d))
        return fired("cast_through_single", u, cast(cast(x, F32), d))
    return None


__all__ = ["NARROW", "Narrow", "ROWS", "in_single", "legalize", "narrow", "to_odd", "widen"]

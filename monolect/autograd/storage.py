"""Encode and decode the storage dtypes, formats of 8 and 4 bits, by operations on the bits of float32.

What it is for: `graph.cast` from and to these dtypes. A value is a byte in memory; one of 4 bits has
the low ones.
What it is not: it computes nothing in such a format, and casts have no derivative.
Invariant: results are those of `ml_dtypes` in every bit. A number is rounded once, to nearest even, except that ties of
float8_e8m0fnu go up. Float8 formats turn what is too large into nan, float4_e2m1fn into the largest number, and
integers saturate (from floats) or wrap (from integers).
Source: OCP Microscaling Formats (MX) specification, 2023; Noune et al., "8-bit numerical formats for deep neural
networks", 2022.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.base.dtype import DType, dtypes, is_whole
from monolect.ir.uop import UOp, build, const

F32, U32, U8 = dtypes.float32, dtypes.uint32, dtypes.uint8
INFINITY = 0x7F800000  # bits of the float32
LARGE = (dtypes.float64, dtypes.int32, dtypes.uint32, dtypes.int64, dtypes.uint64)  # hold numbers float32 does not


class Format(NamedTuple):
    """A signed format: bits of the mantissa and of the whole magnitude, and the exponent's bias."""

    mantissa: int
    magnitude: int
    bias: int


FORMATS: dict[DType, Format] = {
    dtypes.float8_e4m3fnuz: Format(3, 7, 8),
    dtypes.float8_e5m2fnuz: Format(2, 7, 16),
    dtypes.float4_e2m1fn: Format(1, 3, 1),
}
NAN = 0x80  # byte of the formats without a negative zero


def _op(op: str, a: UOp, b: UOp | int | float) -> UOp:
    return build(op, a, b if b.__class__ is UOp else const(b, a.dtype))


def _bits(u: UOp, d: DType) -> UOp:
    return build("BITCAST", u, arg=d)


def _to(u: UOp, d: DType) -> UOp:
    return u if u.dtype is d else build("CAST", u, arg=d)


def _where(c: UOp, a: UOp | int, b: UOp) -> UOp:
    return build("WHERE", c, a if a.__class__ is UOp else const(a, b.dtype), b)


def decoded(u: UOp) -> UOp:
    """Return the values of `u`, of a storage dtype, as float32; those of an integer format as int8 or uint8."""
    raw, d = _bits(u, U8), u.dtype
    if is_whole(d):
        if d is dtypes.uint4:
            return _op("AND", raw, 15)
        return _op("SHR", _bits(_op("SHL", raw, 4), dtypes.int8), 4)
    if d is dtypes.float8_e8m0fnu:
        wide = _to(raw, U32)
        out = _where(_op("CMPNE", wide, 0), _op("SHL", wide, 23), const(0x00400000, U32))  # 2**-127 is subnormal
        return _bits(_where(_op("CMPNE", wide, 255), out, const(INFINITY | 0x400000, U32)), F32)
    form, wide = FORMATS[d], _to(raw, U32)
    n = form.magnitude
    magnitude = _op("AND", wide, (1 << n) - 1)
    normal = _op("ADD", _op("SHL", magnitude, 23 - form.mantissa), 127 - form.bias << 23)
    tiny = _bits(_op("MUL", _to(magnitude, F32), 2.0 ** (1 - form.bias - form.mantissa)), U32)
    out = _where(_op("CMPLT", magnitude, 1 << form.mantissa), tiny, normal)
    out = _op("OR", out, _op("SHL", _op("AND", _op("SHR", wide, n), 1), 31))
    return _bits(out if n < 7 else _where(_op("CMPNE", wide, NAN), out, const(INFINITY | 0x400000, U32)), F32)


def encoded(u: UOp, d: DType) -> UOp:
    """Return `u`, of another dtype than a storage dtype, rounded to the storage dtype `d`."""
    if is_whole(d):
        return _bits(_op("AND", _to(_inside(u, d), U8), 15), d)
    x = _bits(_odd_single(u) if u.dtype in LARGE else _to(u, F32), U32)
    magnitude = _op("AND", x, 0x7FFFFFFF)
    if d is dtypes.float8_e8m0fnu:
        return _bits(_to(_exponent(x, magnitude), U8), d)
    form = FORMATS[d]
    out = _rounded(magnitude, form)
    most = (1 << form.magnitude) - 1
    sign = _op("SHL", _op("SHR", x, 31), form.magnitude)
    if form.magnitude < 7:
        out = _op("OR", _where(_op("CMPLT", out, most), out, const(most, U32)), sign)
        nan = _op("XOR", sign, most + 1)  # a zero, of the other sign
    else:
        out = _where(_op("CMPLT", const(most, U32), out), NAN, _where(_op("CMPNE", out, 0), _op("OR", out, sign), out))
        nan = const(NAN, U32)
    return _bits(_to(_where(_op("CMPLT", const(INFINITY, U32), magnitude), nan, out), U8), d)


def _rounded(magnitude: UOp, form: Format) -> UOp:
    """Return the magnitude bits of the format for those of a float32, to nearest even; too large ones are not cut.

    Normal results: adding half of the unit of the last place, less one, plus the last kept bit. Subnormal results:
    adding 2**23 times their unit lets the adder round.
    """
    cut = 23 - form.mantissa
    odd = _op("AND", _op("SHR", magnitude, cut), 1)
    near = _op("ADD", _op("ADD", magnitude, odd), (1 << cut - 1) - 1)
    normal = _op("SHR", _op("SUB", near, 127 - form.bias << 23), cut)
    exponent = 24 - form.bias - form.mantissa  # of 2**23 units of subnormal numbers
    tiny = _op("SUB", _bits(_op("ADD", _bits(magnitude, F32), 2.0**exponent), U32), 127 + exponent << 23)
    return _where(_op("CMPLT", magnitude, 127 - form.bias + 1 << 23), tiny, normal)


def _exponent(x: UOp, magnitude: UOp) -> UOp:
    """Return the bytes of float8_e8m0fnu for the bits of float32 numbers; 255 for zero, negative numbers and nan."""
    normal = _op("SHR", _op("ADD", magnitude, 0x400000), 23)
    tiny = _to(_op("CMPLT", const(0x400000, U32), magnitude), U32)
    out = _where(_op("CMPLT", magnitude, 0x800000), tiny, normal)
    return _where(_op("CMPLT", _op("SUB", x, 1), INFINITY - 1), out, const(255, U32))


def _inside(u: UOp, d: DType) -> UOp:
    """Return floats as int8, truncated and saturated to the integer format `d`; integers unchanged."""
    if not u.dtype.is_float:
        return u
    low, high = (const(x, dtypes.int8) for x in (d.min, d.max))
    whole = _to(u, dtypes.int8)
    return _where(_op("CMPLT", whole, high), _where(_op("CMPLT", whole, low), low, whole), high)


def _odd_single(u: UOp) -> UOp:
    """Return `u` rounded to odd in float32: truncated, with the last bit set if that is inexact. Rounding the result to
    fewer bits is then as one rounding of `u`.
    """
    single = _to(u, F32)
    raw, back = _bits(single, U32), _to(single, u.dtype)
    is_up = _where(_op("CMPLT", u, 0), _op("CMPLT", back, u), _op("CMPLT", u, back))  # rounded away from zero
    return _bits(_op("OR", _op("SUB", raw, _to(is_up, U32)), _to(_op("CMPNE", back, u), U32)), F32)


__all__ = ["decoded", "encoded"]

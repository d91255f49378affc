"""Define SIN, and cosine written as SIN of a difference from pi/2, for float32 and float64 over their whole range.

What it is for: targets without the function. An argument is reduced to a multiple k of pi/2 and a remainder r in
[-pi/4, pi/4], which is kept in two parts; k selects one of two polynomials and the sign. Small arguments are reduced by
the method of Cody and Waite. Large ones, unless the graph proves that there are none (converted bounded integers,
constants, sums and products of them), are reduced by that of Payne and Hanek in 64-bit integers; they are marked
unlikely.
What it is not: it does not define sinpi or tan, or a fast version without large arguments.

Invariant: no branches, no loads, no calls; sin(-0.0) is -0.0, infinities and nan give nan, no result is above 1. Errors
are at most those of `rules.accuracy`.
Source: Payne and Hanek, "Radian Reduction for Trigonometric Functions", SIGNUM 18 (1983); Cody and Waite (1980);
Muller, "Elementary Functions" (3rd ed.), chapter 11. Coefficients: as in `rules.transcendental`, fits below 2**-29
(2**-62).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.uop import UOp, build, const
from monolect.rules.formula import (
    FORMATS,
    Format,
    bits,
    cast,
    constant_of,
    differ,
    exclusive,
    less,
    magnitude,
    mulacc,
    negate,
    polynomial,
    shift_left,
    shift_right,
    sub,
    union,
    unlikely,
    where,
)  # fmt: skip
from monolect.rules.transcendental import INF, NAN, is_factor

HALF_PI = math.pi / 2
SMALL_ARGUMENT = 1024.0  # radians; up to this, products with Cody and Waite's parts are exact in both formats

# floor(2**1280 * 2/pi); Payne and Hanek's windows are cut from its leading words.
INVERSE = int(
    "A2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921CFE1D"
    "EB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE05980FEF2F118B"
    "5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B"
    "6BABF0CFBC209AF4361D",
    16,
)


class Tables(NamedTuple):
    """Constants of one format. The polynomials are in r**2, for |r| <= 1."""

    sine: tuple[float, ...]  # (sin(r) - r) / r**3
    cosine: tuple[float, ...]  # (cos(r) - 1 + r**2/2) / r**4
    half_pi: tuple[float, ...]  # parts of pi/2; all but the last so short that k * part is exact


TABLES: dict[DType, Tables] = {
    dtypes.float32: Tables(
        # -0x1.555556p-3 0x1.11113ep-7 -0x1.a02006p-13 0x1.6decf2p-19
        sine=(-0.1666666716337204, 0.008333354257047176, -0.00019842390611302108, 2.726357934079715e-06),
        # 0x1.555524p-5 -0x1.6bfaap-10 0x1.960924p-16
        cosine=(0.04166657477617264, -0.001388469710946083, 2.4201613996410742e-05),
        half_pi=(1.5706787109375, 0.00011761486530303955, 9.918039722833782e-10, 2.8960739513993194e-13),
    ),
    dtypes.float64: Tables(
        sine=(-0.16666666666666666, 0.008333333333333106, -0.0001984126984108026, 2.7557319148835723e-06,
              -2.5052092417848438e-08, 1.605717558911378e-10, -7.533608590699912e-13),
        cosine=(0.041666666666666664, -0.0013888888888888516, 2.4801587301357193e-05, -2.75573191513148e-07,
                2.087674409000289e-09, -1.1469442730648683e-11, 4.709437718175257e-14),
        half_pi=(1.570796326794607, 2.8960739716218175e-13, 1.644625693631744e-26, 6.81899229294183e-39),
    ),
}  # fmt: skip


# ---- the form and the bound of the argument --------------------------------------------------------------------------
def cosine_argument(u: UOp) -> UOp | None:
    """Return x if `u` is SIN(pi/2 - x) or SIN(x + pi/2) in any equivalent form, else None."""
    y = u.src[0]
    if y.op == "SUB" and is_factor(y.src[0], HALF_PI):
        return y.src[1]
    if y.op == "ADD":
        for x, c in (y.src, y.src[::-1]):
            if is_factor(c, HALF_PI):
                return _negated(x) or x
    return None


def _negated(x: UOp) -> UOp | None:
    """Return y if `x` is -y, else None. Cosine is even, so the sign does not matter."""
    if x.op == "NEG":
        return x.src[0]
    return x.src[0] if x.op == "MUL" and constant_of(x.src[1]) == -1.0 else None


def upper_bound(x: UOp, depth: int = 8) -> float:
    """Return an upper bound of |x| that the graph proves, or inf. Nodes more than `depth` levels deep are not
    examined.
    """
    c = constant_of(x)
    if c is not None:
        return abs(float(c))
    if x.op == "SIN":
        return 1.0
    if depth == 0:
        return INF
    if x.op == "CAST" and not x.src[0].dtype.is_float:
        return float(max(abs(int(b)) for b in min_max(x.src[0])))
    s = [upper_bound(y, depth - 1) for y in x.src] if x.op in _BOUNDED else []
    return _BOUNDED[x.op](s) * 1.001 if s and INF not in s else INF


# op -> function from the upper bounds of the operands to that of the result
_BOUNDED: dict[str, Callable[[list[float]], float]] = {
    "ADD": sum,
    "SUB": sum,
    "MUL": math.prod,
    "NEG": sum,
    "MULACC": lambda s: s[0] * s[1] + s[2],
    "WHERE": lambda s: max(s[1:]),
    "MAX": max,
    "CAST": sum,
}


# ---- sine and cosine -------------------------------------------------------------------------------------------------
def sine(u: UOp) -> UOp:
    """Return sin(x) for the node `u`, SIN(x), as a formula of other elementwise ops."""
    return _sine_or_cosine(u.src[0], False)


def cosine(u: UOp) -> UOp:
    """Return cos(x) for SIN(pi/2 - x): the next quadrant of the sine, so that zeros keep full accuracy."""
    x = cosine_argument(u)
    assert x is not None
    return _sine_or_cosine(x, True)


def cosine_by_sine(u: UOp) -> UOp:
    """Return cos(x) by the target's SIN: of x minus an odd multiple of pi/2, or for large x as 1 - 2*sin(x/2)**2.

    The multiple is subtracted in three steps with exact products, since the rounding of pi/2 - x would lose accuracy.
    Error: below 2e-7 in absolute terms (float32). Source: Cephes, sin.c.
    """
    x = cosine_argument(u)
    assert x is not None
    f = FORMATS[x.dtype]
    parts, limit = HALF_PI_PARTS[f.real]
    small = less(magnitude(x), limit)
    t = mulacc(x, 1 / math.pi, -0.5)
    k = sub(t + f.magic, f.magic)  # x is nearest to (k + 1/2) * pi
    r, q = x, mulacc(k, 2.0, 1.0)
    for part in parts:
        r = mulacc(q, -part, r)
    s = build("SIN", where(small, r, x * 0.5))
    odd = differ(bits(k + f.magic, f.uint) & 1, 0)
    return where(small, where(odd, s, build("NEG", s)), sub(const(1.0, x.dtype), s * s * 2.0))


# by format: three parts of pi/2, so short that multiples of them are exact, and the limit of |x| (radians) for that
HALF_PI_PARTS = {
    dtypes.float32: ((1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8), 8192.0),
    dtypes.float64: ((1.57079625129699707031, 7.54978941586159635336e-8, 5.39030285815811905290e-15), 1e9),
}


def _sine_or_cosine(x: UOp, quarter: bool) -> UOp:
    """Return sin(x), or cos(x) if `quarter`: reduce the argument, evaluate one polynomial, and set the sign."""
    f = FORMATS[x.dtype]
    a = magnitude(x)
    r, rest, k = _short_reduction(a, f)
    if upper_bound(x) > SMALL_ARGUMENT:
        is_large = negate(less(a, SMALL_ARGUMENT))
        r, rest, k = map(partial(unlikely, is_large), _long_reduction(a, f), (r, rest, k))
    k = k + 1 if quarter else k
    y = where(differ(k & 1, 0), _cosine_near(r, rest, f), _sine_near(r, rest, f))
    sign = shift_left(k & 2, f.real.bits - 2)
    if not quarter:
        sign = exclusive(sign, bits(x, f.uint) & f.sign)
    return bits(exclusive(bits(y, f.uint), sign), f.real)


def _sine_near(r: UOp, rest: UOp, f: Format) -> UOp:
    """Return sin(r + rest) for |r| <= 1 and a `rest` below an ULP of r."""
    z = r * r
    return r + mulacc(z * r, polynomial(z, TABLES[f.real].sine), rest)


def _cosine_near(r: UOp, rest: UOp, f: Format) -> UOp:
    """Return cos(r + rest): 1 - r**2/2 with the rounding error of that difference, and the higher terms."""
    z = r * r
    half = z * 0.5
    one = sub(const(1.0, f.real), half)
    lost = sub(sub(const(1.0, f.real), one), half)
    return one + mulacc(z * z, polynomial(z, TABLES[f.real].cosine), sub(lost, r * rest))


def _two_sum(large: UOp, little: UOp) -> tuple[UOp, UOp]:
    """Return (rounded sum, its rounding error). The error is exact if |large| >= |little| or the sum is exact."""
    total = large + little
    return total, sub(little, sub(total, large))


def _short_reduction(a: UOp, f: Format) -> tuple[UOp, UOp, UOp]:
    """Return (r, rest, k) with a = k * pi/2 + r + rest, for 0 <= a <= SMALL_ARGUMENT.

    Only the two low bits of the integer k are those of the quotient.
    """
    t = mulacc(a, 2 / math.pi, f.magic)
    k = sub(t, f.magic)
    first, second, third, fourth = TABLES[f.real].half_pi
    r, rest = _two_sum(mulacc(k, -first, a), k * -second)
    r, rest = _two_sum(r, mulacc(k, -third, rest))
    return r, mulacc(k, -fourth, rest), bits(t, f.uint)


def _long_reduction(a: UOp, f: Format) -> tuple[UOp, UOp, UOp]:
    """Return (r, rest, k modulo 4) with a = k * pi/2 + r + rest, for any a >= 1.

    r is nan for inf and nan. With a = m * 2**s, a * 2/pi modulo 4 is m times the bits of 2/pi that start at weight
    2**(1-s): a fixed-point number with two integer bits, which rounds to k.
    """
    e = shift_right(bits(a, f.uint), f.mantissa)
    m = union(bits(a, f.uint) & ((1 << f.mantissa) - 1), 1 << f.mantissa)
    m = cast(m, dtypes.uint64)
    p = cast(e + -f.bias, dtypes.uint64)
    high, low = _fraction_single(m, p) if f.mantissa == 23 else _fraction_double(m, p)
    k = cast(shift_right(high + (1 << 61), 62), f.uint)
    r, rest = _radians(high, low, f)
    return where(less(a, INF), r, NAN), rest, k


def _radians(high: UOp, low: UOp | None, f: Format) -> tuple[UOp, UOp]:
    """Return pi/2 times the fraction of a fixed-point number, minus 1 if the fraction is at least 1/2, in two floats.

    `high` has the number's 2 integer and first 62 fraction bits, `low` the next 64 bits or None.
    """
    q = shift_right(bits(shift_left(high, 2), dtypes.int64), 2)
    cut = 62 - f.mantissa
    top = q + (1 << cut - 1) & -(1 << cut)  # few enough bits for an exact conversion
    tail = cast(sub(q, top), f.real)
    if low is not None:
        tail = mulacc(cast(bits(shift_right(low, 1), dtypes.int64), f.real), 2.0**-63, tail)
    g, lost = _two_sum(cast(top, f.real), tail)
    unit = 2.0**-62  # pi/2 = 2 - 1/2 + 0.07: the first two products are exact
    r, rest = _two_sum(g * (2 * unit), g * (-0.5 * unit))
    return _two_sum(r, mulacc(lost, HALF_PI * unit, mulacc(g, (HALF_PI - 1.5) * unit, rest)))


def _words(start: int, count: int) -> list[UOp]:
    """Return `count` 64-bit constants: the bits of 2/pi from the bit of weight 2**start on."""
    value = INVERSE >> (1280 + start + 1 - 64 * count)
    return [const(value >> (64 * (count - 1 - i)) & (2**64 - 1), dtypes.uint64) for i in range(count)]


def _window(words: list[UOp], p: UOp, count: int) -> list[UOp]:
    """Return the `count` 64-bit words that begin at bit `p` of `words`, the highest bit being bit 0.

    A barrel shifter of WHEREs selects whole words, which are then shifted by bits.
    """
    step = 1
    while count + 1 + 2 * step - 1 < len(words):
        step *= 2
    while step:
        bit = build("CMPNE", p & (64 * step), const(0, dtypes.uint64))
        needed = count + 1 + step - 1
        words = [where(bit, words[j + step], words[j]) for j in range(needed)]
        step //= 2
    near = p & 63
    complement = exclusive(near, 63)  # 63 - near; the first of the two shifts by one keeps the amount below 64
    return [
        union(shift_left(words[i], near), shift_right(shift_right(words[i + 1], 1), complement)) for i in range(count)
    ]


def _fraction_single(m: UOp, p: UOp) -> tuple[UOp, UOp | None]:
    """Return (word, None): m times the bits of 2/pi from weight 2**(24 - p) on, as 2 integer and 62 fraction bits.

    m has 24 bits. The product is taken modulo 4.
    """
    h, rest = _window(_words(24, 4), p, 2)
    return m * h + shift_right(m * shift_right(rest, 32), 32), None


def _fraction_double(m: UOp, p: UOp) -> tuple[UOp, UOp]:
    """Return (upper word, lower word) of m times the bits of 2/pi from weight 2**(53 - p) on, modulo 4.

    The two uint64 words have 2 integer and 126 fraction bits. m is a uint64 of 53 bits.
    """
    h, middle, rest = _window(_words(53, 19), p, 3)
    product = m * middle
    low = product + _high_product(m, rest)
    carry = cast(build("CMPLT", low, product), dtypes.uint64)
    return m * h + _high_product(m, middle) + carry, low


def _high_product(a: UOp, b: UOp) -> UOp:
    """Return the upper 64 bits of a * b, for a below 2**53."""
    a_high, a_low, b_high, b_low = shift_right(a, 32), a & 0xFFFFFFFF, shift_right(b, 32), b & 0xFFFFFFFF
    t = a_high * b_low + shift_right(a_low * b_low, 32)
    v = a_low * b_high + (t & 0xFFFFFFFF)
    return a_high * b_high + shift_right(t, 32) + shift_right(v, 32)


__all__ = ["HALF_PI", "Tables", "cosine", "cosine_argument", "cosine_by_sine", "sine", "upper_bound"]

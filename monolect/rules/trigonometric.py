"""SIN, and cosine written as SIN of a difference from pi/2, for float32 and float64 over their whole range.

What it is for: targets without the function. An argument is reduced to a multiple k of pi and a rest r in
[-pi/2, pi/2]; one odd polynomial serves both functions, and k's parity flips the sign. When the graph proves that the
argument is small (converted bounded integers, constants, sums and products of them) the reduction is Cody and Waite's,
else it is Payne and Hanek's in 64-bit integers. There are no branches, so only one of them is ever computed.
What it is not: sinpi, tan, or a fast version that gives up large arguments.

Invariant: no branches, no loads, no calls; sin(-0.0) is -0.0, infinities and nan give nan. The errors stated are the
largest that tests/unit/test_decompose.py measures, in units in the last place, with MULACC unfused.
Source: Payne and Hanek, "Radian Reduction for Trigonometric Functions", SIGNUM 18 (1983); Cody and Waite (1980);
Muller, "Elementary Functions" (3rd ed.), chapter 11. Coefficients: as in `rules.transcendental`, fit 2**-27 (2**-61).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.uop import UOp, build, const
from monolect.rules.formula import (
    FORMATS, Format, bits, cast, constant_of, exclusive, less, magnitude, mulacc, polynomial, shift_left, shift_right,
    sub, union, where,
)  # fmt: skip
from monolect.rules.transcendental import INF, NAN, is_factor

HALF_PI = math.pi / 2
SMALL_ARGUMENT = 1024.0  # Cody and Waite's parts are exact up to here, in both formats

# floor(2**1280 / pi); its leading 64-bit words are the string that Payne and Hanek's windows are cut from.
INVERSE_PI = int(
    "517CC1B727220A94FE13ABE8FA9A6EE06DB14ACC9E21C820FF28B1D5EF5DE2B0DB92371D2126E9700324977504E8C90E7F0E"
    "F58E5894D39F74411AFA975DA24274CE38135A2FBF209CC8EB1CC1A99CFA4E422FC5DEFC941D8FFC4BFFEF02CC07F79788C5"
    "AD05368FB69B3F6793E584DBA7A31FB34F2FF516BA93DD63F5F2F8BD9E839CFBC529497535FDAFD88FC6AE842B0198237E3D"
    "B5D5F867DE104D7A1B0E",
    16,
)


class Tables(NamedTuple):
    """Constants of one format."""

    sine: tuple[float, ...]  # (sin(r) - r) / r**3 as a polynomial in r**2 on |r| <= pi/2
    pi: tuple[float, ...]  # parts of pi; all but the last are short enough that k/2 * part is exact
    half_pi: tuple[float, float]  # pi/2 and what is missing from it


TABLES: dict[DType, Tables] = {
    dtypes.float32: Tables(
        # -0x1.55554cp-3 0x1.110edap-7 -0x1.9f70fp-13 0x1.5dc902p-19
        sine=(-0.16666659712791443, 0.008333069272339344, -0.00019809778314083815, 2.606102725621895e-06),
        pi=(3.141357421875, 0.0002352297306060791, 1.9836079445667565e-09, 5.792147902798639e-13),
        half_pi=(1.5707963705062866, -4.371138828673793e-08),
    ),
    dtypes.float64: Tables(
        sine=(-0.16666666666666666, 0.008333333333333207, -0.0001984126984121253, 2.7557319211588727e-06,
              -2.5052106907111908e-08, 1.6058941180356002e-10, -7.643025013795359e-13, 2.7214885067194602e-15),
        pi=(3.141592653589214, 5.792147943243635e-13, 3.289251387263488e-26, 1.363798458588366e-38),
        half_pi=(1.5707963267948966, 6.123233995736766e-17),
    ),
}  # fmt: skip


# ---- what the graph says about the argument --------------------------------------------------------------------------
def cosine_argument(u: UOp) -> UOp | None:
    """x when `u` is SIN(pi/2 - x) or SIN(x + pi/2), however the difference is spelled."""
    y = u.src[0]
    if y.dtype not in TABLES:
        return None
    if y.op == "SUB" and is_factor(y.src[0], HALF_PI):
        return y.src[1]
    if y.op == "ADD":
        for x, c in (y.src, y.src[::-1]):
            if is_factor(c, HALF_PI):
                return _negated(x) or x
    return None


def _negated(x: UOp) -> UOp | None:
    """y when `x` is -y; the cosine is even, so the sign can go."""
    if x.op == "NEG":
        return x.src[0]
    return x.src[0] if x.op == "MUL" and constant_of(x.src[1]) == -1.0 else None


def largest(x: UOp, depth: int = 8) -> float:
    """An upper bound of |x| that the graph proves, or inf; looks `depth` nodes deep."""
    c = constant_of(x)
    if c is not None:
        return abs(float(c))
    if depth == 0:
        return INF
    if x.op == "CAST" and not x.src[0].dtype.is_float:
        return float(max(abs(int(b)) for b in min_max(x.src[0])))
    s = [largest(y, depth - 1) for y in x.src] if x.op in _BOUNDED else []
    return _BOUNDED[x.op](s) * 1.001 if s and INF not in s else INF


_BOUNDED = {
    "ADD": sum,
    "SUB": sum,
    "MUL": math.prod,
    "NEG": sum,
    "MULACC": lambda s: s[0] * s[1] + s[2],
    "WHERE": lambda s: max(s[1:]),
    "MAX": max,
    "CAST": sum,
    "SIN": lambda s: 1.0,
}


# ---- sine and cosine -------------------------------------------------------------------------------------------------
def sine(u: UOp) -> UOp:
    """sin(x). Error: 1.8 ULP (float32), 1.8 ULP (float64); 1.0 where the argument is known to be small."""
    return _turn(u.src[0], False)


def cosine(u: UOp) -> UOp:
    """cos(x), written as SIN(pi/2 - x): half a turn of k is added, so zeros keep full accuracy. Error: as sine."""
    x = cosine_argument(u)
    assert x is not None
    return _turn(x, True)


def _turn(x: UOp, quarter: bool) -> UOp:
    f = FORMATS[x.dtype]
    a = magnitude(x)
    if largest(x) <= SMALL_ARGUMENT:
        r, sign = _short_reduction(a, quarter, f)
    else:
        r, sign = _long_reduction(a, quarter, f)
    z = r * r
    y = mulacc(z * r, polynomial(z, TABLES[f.float].sine), r)
    if not quarter:
        sign = exclusive(sign, bits(x, f.uint) & f.sign)
    return bits(exclusive(bits(y, f.uint), sign), f.float)


def _short_reduction(a: UOp, quarter: bool, f: Format) -> tuple[UOp, UOp]:
    """r and the sign bit for 0 <= a <= SMALL_ARGUMENT; with `quarter`, of a + pi/2."""
    t = mulacc(a, 1 / math.pi, 0.5) + f.magic if quarter else mulacc(a, 1 / math.pi, f.magic)
    k = sub(t, f.magic)
    k = k + -0.5 if quarter else k
    r = a
    for part in TABLES[f.float].pi:
        r = mulacc(k, -part, r)
    return r, shift_left(bits(t, f.uint), f.float.bits - 1)


def _long_reduction(a: UOp, quarter: bool, f: Format) -> tuple[UOp, UOp]:
    """The same for any a >= 0; nan for inf and nan.

    With a = m * 2**s, a/pi modulo 2 is m times the bits of 1/pi that start at weight 2**-s: a fixed-point number with
    one integer bit. Below 1 the rest is a itself.
    """
    e = shift_right(bits(a, f.uint), f.mantissa)
    tiny = less(a, 1.0)
    m = union(bits(a, f.uint) & ((1 << f.mantissa) - 1), 1 << f.mantissa)
    m = cast(where(tiny, 0, m), dtypes.uint64)  # a zero product below 1, where the window would start too early
    p = cast(e + -f.bias, dtypes.uint64)
    high, low = _fraction_single(m, p) if f.mantissa == 23 else _fraction_double(m, p)
    high = high + (1 << 62) if quarter else high
    parity = shift_right(high + (1 << 62), 63)
    g, unit = cast(bits(shift_left(high, 1), dtypes.int64), f.float), math.pi * 2.0**-64
    if low is not None:
        g = cast(bits(union(shift_left(high, 1), shift_right(low, 63)), dtypes.int64), f.float)
        g = mulacc(cast(bits(shift_right(shift_left(low, 1), 1), dtypes.int64), f.float), 2.0**-63, g)
    r = mulacc(g, 2.0**-62, g * (unit - 2.0**-62))  # pi = 4 - 0.86: the largest term is exact
    one = TABLES[f.float].half_pi
    near = (a + -one[0]) + -one[1] if quarter else a
    r = where(tiny, near, where(less(a, INF), r, NAN))
    return r, shift_left(cast(parity, f.uint), f.float.bits - 1)


def _words(start: int, count: int) -> list[UOp]:
    """The first `count` 64-bit words of 1/pi, from the bit of weight 2**start on."""
    value = INVERSE_PI >> (1280 + start + 1 - 64 * count)
    return [const(value >> (64 * (count - 1 - i)) & (2**64 - 1), dtypes.uint64) for i in range(count)]


def _window(words: list[UOp], p: UOp, count: int) -> list[UOp]:
    """`count` consecutive words from bit `p` on: whole words by a barrel shifter of WHEREs, then a shift of bits."""
    step = 1
    while count + 1 + 2 * step - 1 < len(words):
        step *= 2
    while step:
        bit = build("CMPNE", p & (64 * step), const(0, dtypes.uint64))
        needed = count + 1 + step - 1
        words = [where(bit, words[j + step], words[j]) for j in range(needed)]
        step //= 2
    near = p & 63
    far = exclusive(near, 63)  # 63 - near; the first of the two shifts by one keeps the amount below 64
    return [
        union(shift_left(words[i], near), shift_right(shift_right(words[i + 1], 1), far)) for i in range(count)
    ]


def _fraction_single(m: UOp, p: UOp) -> tuple[UOp, UOp | None]:
    """m (24 bits) times the window at `p`, modulo 2, as 1 + 63 bits."""
    h, l = _window(_words(23, 4), p, 2)
    return m * h + shift_right(m * shift_right(l, 32), 32), None


def _fraction_double(m: UOp, p: UOp) -> tuple[UOp, UOp | None]:
    """m (53 bits) times the window at `p`, modulo 2, as 1 + 127 bits in two words."""
    h, l, rest = _window(_words(52, 19), p, 3)
    product = m * l
    low = product + _high_product(m, rest)
    carry = cast(build("CMPLT", low, product), dtypes.uint64)
    return m * h + _high_product(m, l) + carry, low


def _high_product(a: UOp, b: UOp) -> UOp:
    """The upper 64 bits of a * b, for a below 2**53."""
    a_high, a_low, b_high, b_low = shift_right(a, 32), a & 0xFFFFFFFF, shift_right(b, 32), b & 0xFFFFFFFF
    t = a_high * b_low + shift_right(a_low * b_low, 32)
    v = a_low * b_high + (t & 0xFFFFFFFF)
    return a_high * b_high + shift_right(t, 32) + shift_right(v, 32)

"""Define EXP2, LOG2, SQRT and POW by primitives, for float32 and float64.

What it is for: targets without the function, and targets whose native version is not accurate enough. exp(x) and
log(x), which the tensor layer writes as EXP2(x * log2(e)) and LOG2(x) * ln(2), are recognized and get their own range
reductions, so that the rounding of the product costs no accuracy. What it is not: it does not contain sine and cosine
(`rules.trigonometric`), or narrow floats, which are computed in float32.

Invariant: no branches, no loads, no calls; special values (nan, infinities, both zeros, subnormals) come out as
NumPy's, with gradual underflow. Errors are at most those of `rules.accuracy`.
Source: Cody and Waite, "Software Manual for the Elementary Functions" (1980); Muller, "Elementary Functions" (3rd ed.);
fdlibm's e_log.c for the atanh form of the float64 logarithm. Coefficients: weighted minimax fits made with mpmath, each
rounded to the format in turn while the rest was fitted again; the fit's own error is below 2**-27 (2**-57).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from monolect.base.dtype import DType, as_python, dtypes
from monolect.ir.uop import UOp, build
from monolect.rules.formula import (
    FORMATS,
    Format,
    bits,
    both,
    cast,
    constant_of,
    differ,
    either,
    exclusive,
    less,
    magnitude,
    mulacc,
    negate,
    polynomial,
    shift_left,
    shift_right,
    sub,
    unlikely,
    where,
)  # fmt: skip

INF, NAN = math.inf, math.nan
LN2, LOG2E = math.log(2.0), 1.4426950408889634


class Tables(NamedTuple):
    """Constants of one format for exponentials and logarithms."""

    exp: tuple[float, ...]  # e**r on |r| <= ln(2)/2
    exp2: tuple[float, ...]  # 2**r on |r| <= 1/2
    ln2_high: float  # short enough that n * ln2_high is exact for every exponent n
    ln2_low: float
    dead: tuple[float, float]  # 2**x (e**x) is 0 below this
    low: tuple[float, float]  # 2**x (e**x) may be subnormal below this, and is normal above
    high: tuple[float, float]  # 2**x (e**x) is infinite from here on
    root_half: int  # the bits of sqrt(1/2), rounded up


TABLES: dict[DType, Tables] = {
    dtypes.float32: Tables(
        # 0x1p+0 0x1p+0 0x1.fffffcp-2 0x1.555492p-3 0x1.5558bp-5 0x1.12398ep-7 0x1.6a4d34p-10
        exp=(1.0, 1.0, 0.4999999403953552, 0.1666652113199234, 0.04166826605796814, 0.008368677459657192,
             0.0013820708265663438),
        # 0x1p+0 0x1.62e43p-1 0x1.ebfbdcp-3 0x1.c6af7ap-5 0x1.3b2ddap-7 0x1.5f0976p-10 0x1.4172a6p-13
        exp2=(1.0, 0.6931471824645996, 0.24022647738456726, 0.05550359562039375, 0.009618503041565418,
              0.0013390997191891074, 0.0001532782771391794),
        ln2_high=0.693359375, ln2_low=-2.12194440e-4,
        dead=(-150.0, -104.0), low=(-125.0, -86.0), high=(128.0, 89.0), root_half=0x3F3504F4,
    ),
    dtypes.float64: Tables(
        exp=(1.0, 1.0, 0.5000000000000011, 0.1666666666666644, 0.041666666666526894, 0.00833333333347734,
             0.0013888888944380193, 0.0001984126954214653, 2.4801492392677303e-05, 2.755755553821853e-06,
             2.763048295673657e-07, 2.500961065965269e-08),
        exp2=(1.0, 0.6931471805599453, 0.2402265069591011, 0.055504108664821736, 0.009618129107600562,
              0.0013333558146540457, 0.00015403530450288356, 1.525273364142358e-05, 1.3215438233982887e-06,
              1.0178156354795813e-07, 7.073333731257191e-09, 4.43949074350049e-10),
        ln2_high=float.fromhex("0x1.62e42fee00000p-1"), ln2_low=1.90821492927058770002e-10,
        dead=(-1075.0, -746.0), low=(-1021.0, -707.0), high=(1024.0, 710.0), root_half=0x3FE6A09E667F3BCD,
    ),
}  # fmt: skip

# (log2(1+f) - f) / f on sqrt(1/2) <= 1+f <= sqrt(2), float32
# 0x1.c551dap-2 -0x1.715476p-1 0x1.ec7044p-2 -0x1.715786p-2 0x1.2786ccp-2 -0x1.eb3a52p-3 0x1.a27cdep-3 -0x1.836e7ep-3
# 0x1.7df0eep-3 -0x1.d33806p-4
LOG2_TAIL = (
    0.4426950514316559, -0.7213475108146667, 0.4808970093727112, -0.36068543791770935, 0.2886001467704773,
    -0.23985733091831207, 0.20433972775936127, -0.1891755908727646, 0.18649469316005707, -0.11406709998846054,
)  # fmt: skip
# (ln(1+f) - f) / f**2 on the same interval, float32
# -0x1p-1 0x1.555554p-2 -0x1.000226p-2 0x1.99a01cp-3 -0x1.547288p-3 0x1.22d932p-3 -0x1.0d826cp-3 0x1.055eap-3
# -0x1.38c82ap-4
LN_TAIL = (
    -0.5, 0.3333333134651184, -0.2500081956386566, 0.2000124156475067, -0.1662340760231018, 0.14201582968235016,
    -0.1315964162349701, 0.12762188911437988, -0.07636276632547379,
)  # fmt: skip
# log2(1+f) / f on the same interval, in float64 for float32: below 2**-33
LOG2_WIDE = (
    1.4426950409393422, -0.7213475252130654, 0.4808983207305888, -0.36067280055686096, 0.28854064345854635,
    -0.24050417391095438, 0.20609625919730065, -0.1790469550594418, 0.15900146049991665, -0.15698222412339424,
    0.1548576999415856, -0.08634624094534506,
)  # fmt: skip
# ((ln((1+s)/(1-s)) - 2s) / s) / s**2 as a polynomial in s**2, float64
ATANH_TAIL = (
    0.6666666666666735, 0.3999999999940934, 0.2857142874369075, 0.2222219842840322, 0.18183572390584138,
    0.15313831124906904, 0.14798270338281352,
)  # fmt: skip


# ---- exponentials ----------------------------------------------------------------------------------------------------
def is_factor(u: UOp, value: float) -> bool:
    """Whether `u` is the constant `value`, rounded to its dtype."""
    return constant_of(u) == as_python(value, u.dtype)


def exp_argument(u: UOp) -> UOp | None:
    """Return x if the EXP2 `u` is EXP2(x * log2(e)), or -x for a factor of -log2(e); else None."""
    x = u.src[0]
    if x.op != "MUL":
        return None
    for y, c in (x.src, x.src[::-1]):
        if is_factor(c, LOG2E):
            return y
        if is_factor(c, -LOG2E):
            return build("NEG", y)
    return None


def exp2(u: UOp) -> UOp:
    """Return 2**x: x = n + r with |r| <= 1/2 by the magic add, a polynomial in r, and n added to the exponent.

    Exact at integers.
    """
    x = u.src[0]
    f, k = FORMATS[x.dtype], TABLES[x.dtype]
    dead = less(x, k.dead[0])
    z = where(dead, 0.0, where(less(k.high[0], x), k.high[0], x))
    t = z + f.magic
    p = polynomial(sub(z, sub(t, f.magic)), [2.0 * c for c in k.exp2])
    return _scale(p, t, dead, less(x, k.low[0]), f)


def exp(u: UOp) -> UOp:
    """Return e**x for EXP2(x * log2(e)): n = round(x * log2(e)), r = x - n*ln(2) with ln(2) in two parts (Cody and
    Waite).
    """
    x = exp_argument(u)
    assert x is not None
    f, k = FORMATS[x.dtype], TABLES[x.dtype]
    dead = less(x, k.dead[1])
    z = where(dead, 0.0, where(less(k.high[1], x), k.high[1], x))
    t = mulacc(z, LOG2E, f.magic)
    n = sub(t, f.magic)
    p = polynomial(mulacc(n, -k.ln2_low, mulacc(n, -k.ln2_high, z)), [2.0 * c for c in k.exp])
    return _scale(p, t, dead, less(x, k.low[1]), f)


def exp2_by_ldexp(u: UOp) -> UOp:
    """Return 2**x on a target with LDEXP, as LDEXP(polynomial(x - n), n) with n = round(x).

    x is clamped to limits beyond which the result is 0 or infinite.
    """
    f, k = FORMATS[u.dtype], TABLES[u.dtype]
    z = _between(u.src[0], k.dead[0], k.high[0])
    n = sub(z + f.magic, f.magic)
    return build("LDEXP", polynomial(sub(z, n), k.exp2), n)


def exp_by_ldexp(u: UOp) -> UOp:
    """Return e**x on a target with LDEXP, as `exp2_by_ldexp` does."""
    x = exp_argument(u)
    assert x is not None
    f, k = FORMATS[x.dtype], TABLES[x.dtype]
    z = _between(x, k.dead[1], k.high[1])
    n = sub(mulacc(z, LOG2E, f.magic), f.magic)
    return build("LDEXP", polynomial(mulacc(n, -k.ln2_low, mulacc(n, -k.ln2_high, z)), k.exp), n)


def _between(x: UOp, low: float, high: float) -> UOp:
    """Return x clamped to [low, high]; nan stays."""
    z = where(less(x, low), low, x)
    return where(less(high, z), high, z)


def _scale(p: UOp, t: UOp, dead: UOp, low: UOp, f: Format) -> UOp:
    """Return p * 2**(n-1), where the low bits of `t` hold n; 0 where `dead`.

    Where `low`, the factor 2**64 is applied and removed again, so that only the last product can be subnormal. The
    coefficients of p are doubled to allow n-1, which keeps the exponent in range up to the largest finite result.
    """
    e = f.bias - 1
    one = where(low, (e + 64) << f.mantissa, e << f.mantissa, bits(t, f.uint))
    scale = bits(shift_left(bits(t, f.uint), f.mantissa) + one, f.real)
    return p * scale * where(dead, 0.0, where(low, 2.0**-64, 1.0, p))


# ---- logarithms ------------------------------------------------------------------------------------------------------
def _split(x: UOp, f: Format, tables: Tables) -> tuple[UOp, UOp]:
    """Return (n, r) with x = 2**n * (1+r) and sqrt(1/2) <= 1+r < sqrt(2), for finite positive x; r is exact.

    `tables`: the constants of format `f`.
    """
    small = less(x, 2.0 ** (1 - f.bias))
    grow = f.mantissa + 1
    b = bits(where(small, x * 2.0**grow, x), f.sint)
    d = b + -tables.root_half
    n = cast(shift_right(d, f.mantissa), f.real) + where(small, -float(grow), 0.0, x)
    m = bits(sub(b, d & -(1 << f.mantissa)), f.real)
    return n, m + -1.0


def _log_limits(x: UOp, y: UOp) -> UOp:
    """Return the logarithm of x: `y` for finite positive x, -inf at zero, inf at inf, nan for negative x and nan."""
    outside = where(differ(x, 0.0), NAN, -INF, x)
    return where(less(0.0, x), where(less(x, INF), y, x), outside)


def log2(u: UOp) -> UOp:
    """Return log2(x) from exponent n and mantissa 1+f: n + f + f*P(f) (float64: an atanh series).

    Writing log2(1+f) as f + 0.44f + ... adds the largest term exactly. Exact at powers of two.
    """
    x = u.src[0]
    f, k = FORMATS[x.dtype], TABLES[x.dtype]
    n, r = _split(x, f, k)
    if f.mantissa == 23:
        return _log_limits(x, n + mulacc(r, polynomial(r, LOG2_TAIL), r))
    tail = mulacc(r, LOG2E - 1.0, build("NEG", _excess_over_log1p(r) * LOG2E))
    return _log_limits(x, n + (r + tail))


def _excess_over_log1p(r: UOp) -> UOp:
    """Return r - ln(1+r) for float64: r**2/2 - s*(r**2/2 + R(s**2)) with s = r/(2+r)."""
    s = build("DIV", r, r + 2.0)
    z = s * s
    half = r * r * 0.5
    return sub(half, s * mulacc(z, polynomial(z, ATANH_TAIL), half))


def is_log(u: UOp) -> bool:
    """Whether the MUL `u` is LOG2(x) * ln(2)."""
    return any(a.op == "LOG2" and is_factor(b, LN2) for a, b in (u.src, u.src[::-1]))


def log(u: UOp) -> UOp:
    """Return ln(x) for LOG2(x) * ln(2), as ln(1+f) + n*ln(2) with x = 2**n * (1+f).

    ln(2) is in two parts, the first so short that its product with n is exact.
    """
    x = (u.src[0] if u.src[0].op == "LOG2" else u.src[1]).src[0]
    f, k = FORMATS[x.dtype], TABLES[x.dtype]
    n, r = _split(x, f, k)
    if f.mantissa == 23:
        tail = mulacc(r * r, polynomial(r, LN_TAIL), n * k.ln2_low)
    else:
        tail = sub(n * k.ln2_low, _excess_over_log1p(r))
    return _log_limits(x, mulacc(n, k.ln2_high, r + tail))


# ---- square root and power -------------------------------------------------------------------------------------------
def sqrt(u: UOp) -> UOp:
    """Return the square root by Heron's steps from a guess that halves the exponent; subnormals are scaled first.

    Each step doubles the number of correct bits; the guess has 4.7.
    """
    x = u.src[0]
    f = FORMATS[x.dtype]
    small = less(x, 2.0 ** (1 - f.bias))
    grow = f.mantissa + 1 + (f.mantissa + 1) % 2
    y = where(small, x * 2.0**grow, x)
    guess = (f.bias << (f.mantissa - 1)) - (0x2E20B << (f.mantissa - 23))
    s = bits(shift_right(bits(y, f.uint), 1) + guess, f.real)
    for _ in range(3 if f.mantissa == 23 else 4):
        s = (s + build("DIV", y, s)) * 0.5
    s = s * where(small, 2.0 ** (-grow // 2), 1.0, x)
    return where(less(0.0, x), where(less(x, INF), s, x), where(differ(x, 0.0), NAN, x))


class Extended(NamedTuple):
    """Constants of one format for the base-2 logarithm in two floats (`_log2_parts`), which `power` needs."""

    mask: int  # keeps so few leading bits of a float that the product of two such floats is exact
    tail: tuple[float, ...]  # (ln((1+s)/(1-s)) * 3/(2s) - 3 - s**2) / s**4 as a polynomial in s**2
    factor: tuple[float, float]  # 2 / (3 ln(2)), the first part short
    limit: float  # an exponent beyond this overflows or underflows for every base but 1


EXTENDED: dict[DType, Extended] = {
    dtypes.float32: Extended(
        mask=0xFFFFF000,
        # 0x1.333332p-1 0x1.b6dd92p-2 0x1.54adccp-2 0x1.2c6ef2p-2
        tail=(0.5999999642372131, 0.4285795986652374, 0.33269423246383667, 0.29339197278022766),
        factor=(0.961669921875, 0.0001267720509756049), limit=2.0**32,
    ),
    dtypes.float64: Extended(
        mask=0xFFFFFFFFF8000000,
        tail=(0.5999999999999996, 0.4285714285716867, 0.3333333332608774, 0.2727272832950087, 0.23076833811693265,
              0.20004529027591034, 0.1751123261523931, 0.17991249914773905),
        factor=(0.9617966860532761, 7.872699542894897e-09), limit=2.0**64,
    ),
}  # fmt: skip


def power(u: UOp) -> UOp:
    """Return x**y as 2**(y * log2|x|), with logarithm and product in two parts each, and IEEE's special cases."""
    x, y = u.src
    f, k, e = FORMATS[x.dtype], TABLES[x.dtype], EXTENDED[x.dtype]
    a = magnitude(x)
    high, low = _log2_parts(a, f, k, e)
    b = where(less(e.limit, y), e.limit, where(less(y, -e.limit), -e.limit, y))
    b_high = _leading(b, f, e)
    p_high = b_high * high
    p_low = mulacc(sub(b, b_high), high, b * low)
    z = p_high + p_low
    dead, over = less(z, k.dead[0]), less(k.high[0], z)
    t = where(dead, 0.0, where(over, k.high[0], z)) + f.magic
    r = where(either(dead, over), 0.0, sub(p_high, sub(t, f.magic)) + p_low)
    finite = _scale(polynomial(r, [2.0 * c for c in k.exp2]), t, dead, less(z, k.low[0]), f)
    return _power_limits(x, y, a, finite, f)


def power_by_scaling(u: UOp) -> UOp:
    """Return float32 x**y as 2**(y * log2|x|) with logarithm and product in float64, on a target with LDEXP.

    IEEE's special cases are marked unlikely: a base that is not positive, an infinite or nan operand.
    """
    x, y = u.src
    f, k, d = FORMATS[x.dtype], TABLES[x.dtype], dtypes.float64
    a = magnitude(x)
    n, r = (cast(part, d) for part in _split(a, f, k))
    z = _between(mulacc(r, polynomial(r, LOG2_WIDE), n) * cast(y, d), k.dead[0], k.high[0])
    whole = sub(z + FORMATS[d].magic, FORMATS[d].magic)
    finite = build("LDEXP", polynomial(cast(sub(z, whole), x.dtype), k.exp2), cast(whole, x.dtype))
    usual = both(both(less(0.0, x), less(x, INF)), less(magnitude(y), INF))
    of_one = where(differ(a, 1.0), finite, 1.0)  # 1 to an infinite power is 1
    return unlikely(negate(usual), _power_limits(x, y, a, of_one, f), finite)


def _leading(x: UOp, f: Format, constants: Extended) -> UOp:
    """Return x with only the leading half of its significand bits, by the mask in `constants`; the others are zero."""
    return bits(bits(x, f.uint) & constants.mask, f.real)


def _log2_parts(a: UOp, f: Format, tables: Tables, constants: Extended) -> tuple[UOp, UOp]:
    """Return log2(a) for finite positive a in two floats: a leading part of few bits, and the rest.

    `tables` and `constants`: those of format `f`. Source: fdlibm's e_pow.c, without its table.
    """
    n, r = _split(a, f, tables)
    t = r + 2.0
    v = build("RECIP", t)
    s = r * v
    s_high = _leading(s, f, constants)
    t_high = _leading(t, f, constants)
    t_low = sub(r, t_high + -2.0)
    s_low = v * sub(sub(r, s_high * t_high), s_high * t_low)  # s_high + s_low = r / (2 + r)
    z = s * s
    square = s_high * s_high
    rest = mulacc(z * z, polynomial(z, constants.tail), s_low * (s_high + s))
    w_high = _leading((square + 3.0) + rest, f, constants)  # 3 + s**2 + ...
    w_low = sub(rest, sub(w_high + -3.0, square))
    m, q = s_high * w_high, mulacc(s_low, w_high, w_low * s)
    g_high = _leading(m + q, f, constants)  # s * (3 + s**2 + ...) = 3/2 ln(1 + r)
    g_low = sub(q, sub(g_high, m))
    c_high, c_low = constants.factor
    l_high = g_high * c_high
    l_low = mulacc(g_high, c_low, g_low * (c_high + c_low))
    high = _leading((l_high + l_low) + n, f, constants)
    return high, sub(l_low, sub(sub(high, n), l_high))


def _power_limits(x: UOp, y: UOp, a: UOp, finite: UOp, f: Format) -> UOp:
    """Return pow(x, y) with the special cases of IEEE 754, given `finite`, which is |x|**y for finite x other than
    0.
    """
    ends = either(less(a, 2.0 ** (2 - f.bias - f.mantissa) / 2), negate(less(a, INF)))  # |x| is 0, inf or nan
    unlike = build("CMPNE", less(y, 0.0), less(1.0, a))
    r = where(ends, where(unlike, INF, 0.0, x), finite)
    half = y * 0.5
    odd = both(differ(half, build("TRUNC", half)), negate(differ(y, build("TRUNC", y))))
    r = bits(exclusive(bits(r, f.uint), where(odd, bits(x, f.uint) & f.sign, 0)), f.real)
    root = both(both(less(x, 0.0), less(-INF, x)), differ(y, build("TRUNC", y)))
    r = where(either(root, either(differ(x, x), differ(y, y))), NAN, r)
    return where(either(negate(differ(x, 1.0)), negate(differ(y, 0.0))), 1.0, r)


__all__ = [
    "Extended",
    "INF",
    "LN2",
    "LOG2E",
    "NAN",
    "Tables",
    "exp",
    "exp2",
    "exp2_by_ldexp",
    "exp_argument",
    "exp_by_ldexp",
    "is_factor",
    "is_log",
    "log",
    "log2",
    "power",
    "power_by_scaling",
    "sqrt",
]

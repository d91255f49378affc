"""Decompose ops that a target lacks into ops that it has: a table by op, and a function that looks a node up in it.

What it is for: instruction selection. Every op marked `decomposed` in the op table has its definition here, so a target
needs only PRIMITIVES. MAX, TRUNC, saturating CASTs and divisions by constants have definitions too, for targets on
which those are faster. What it is not: it does not legalize element types (`rules.legalize`) or simplify algebraically.

Invariant: the replacement consists of elementwise ops and BITCASTs of equal size, and has the dtype, the shape and the
value of the node: exactly, except where a docstring states an error.
Source: the specification's table of decomposed ops; where its definition is wrong for nan (CMPGE as not less) or loses
accuracy (SQRT through EXP2) this module follows the op's meaning instead. Division: Granlund and Montgomery, PLDI 1994;
Warren, "Hacker's Delight". Threefry: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.rewrite.named_rules import Family, Row, fired, is_on
from monolect.ir.uop import UOp, build, const
from monolect.rules import transcendental, trigonometric
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
    magnitude_argument,
    mulacc,
    negate,
    shift_left,
    shift_right,
    sub,
    union,
    where,
)  # fmt: skip
from monolect.rules.legalize import in_single

# ops that every target must have
PRIMITIVES = frozenset("RECIP CAST BITCAST ADD MUL MOD IDIV CMPLT CMPNE XOR OR AND SHR SHL WHERE".split())


class Decomposition(NamedTuple):
    """One replacement of an op that a target lacks: `rewrite(u)` returns it for a node `u` for which `when(u)`."""

    name: str
    when: Callable[[UOp], bool]
    rewrite: Callable[[UOp], UOp]
    text: str
    needed: str = ""  # why it cannot be disabled
    # op that the target must lack, if not the node's own; ABS and COS are patterns of two nodes
    lacks: str | None = None
    needs: str | None = None  # op that the target must have


def always(u: UOp) -> bool:
    """Return True for every node."""
    return True


def is_float(u: UOp) -> bool:
    """Whether the first operand of `u` is a float."""
    return u.src[0].dtype.is_float


def is_narrow(u: UOp) -> bool:
    """Whether the dtype of `u` is a float of fewer than 32 bits."""
    return u.dtype.is_float and u.dtype.bits < 32


# ---- signs, comparisons, bits ----------------------------------------------------------------------------------------
def neg(u: UOp) -> UOp:
    """Return -x as x * -1; integers wrap."""
    return u.src[0] * -1


def subtract(u: UOp) -> UOp:
    """Return a - b as a + -b, which rounds the same."""
    return u.src[0] + u.src[1] * -1


def greater(u: UOp) -> UOp:
    """Return a > b as b < a."""
    return build("CMPLT", u.src[1], u.src[0])


def at_least(u: UOp) -> UOp:
    """Return a >= b as not a < b, for operands without nan."""
    return negate(build("CMPLT", *u.src))


def at_most(u: UOp) -> UOp:
    """Return a <= b as not b < a, for operands without nan."""
    return negate(build("CMPLT", u.src[1], u.src[0]))


def at_least_float(u: UOp) -> UOp:
    """Return a >= b as b < a or a == b: false if either is nan."""
    return either(build("CMPLT", u.src[1], u.src[0]), negate(build("CMPNE", *u.src)))


def at_most_float(u: UOp) -> UOp:
    """Return a <= b as a < b or a == b: false if either is nan."""
    return either(build("CMPLT", *u.src), negate(build("CMPNE", *u.src)))


def equal(u: UOp) -> UOp:
    """Return a == b as not a != b: false if either is nan."""
    return negate(build("CMPNE", *u.src))


def invert(u: UOp) -> UOp:
    """Return the logical not of a bool, or the exclusive or of an integer with all ones."""
    return negate(u.src[0]) if u.dtype is dtypes.bool else exclusive(u.src[0], -1)


def maximum(u: UOp) -> UOp:
    """Return the larger operand; nan if either is nan."""
    a, b = u.src
    if u.dtype is dtypes.bool:
        return either(a, b)
    larger = build("CMPLT", a, b)
    return where(either(larger, differ(b, b)) if u.dtype.is_float else larger, b, a)


# ---- float arithmetic ------------------------------------------------------------------------------------------------
def multiply_add(u: UOp) -> UOp:
    """Return a * b + c, rounded twice."""
    return u.src[0] * u.src[1] + u.src[2]


def divide(u: UOp) -> UOp:
    """Return a / b as q = a * (1/b), then q + (a - q*b) * (1/b) where that is finite: Markstein's correction.

    A divisor whose reciprocal would be subnormal or infinite is scaled first. Error: 1.5 ULP, and 0.51 ULP with a fused
    MULACC if |a| is above 2**-100 (2**-900 in float64); below, the residual would underflow.
    """
    a, b = u.src
    f = FORMATS[a.dtype]
    limit, step = (2.0**96, 2.0**64) if f.mantissa == 23 else (2.0**800, 2.0**512)
    size = magnitude(b)
    scale = where(less(limit, size), 1 / step, where(less(size, 1 / limit), step, 1.0, a))
    c = b * scale
    r = build("RECIP", c)
    q = a * r
    better = mulacc(mulacc(build("NEG", q), c, a), r, q)
    usable = both(less(2.0**-100 if f.mantissa == 23 else 2.0**-900, magnitude(a)), negate(differ(better, better)))
    return where(usable, better, q) * scale


def truncate(u: UOp) -> UOp:
    """Return x rounded toward zero. Exact.

    For |x| < 2**mantissa, adding and subtracting 2**mantissa rounds |x| to an integer; 1 is subtracted if that rounded
    up. Larger floats are integers.
    """
    x = u.src[0]
    f = FORMATS[x.dtype]
    a, whole = magnitude(x), 2.0**f.mantissa
    t = sub(a + whole, const(whole, x.dtype))
    t = sub(t, where(less(a, t), 1.0, 0.0, x))
    signed = bits(union(bits(t, f.uint), bits(x, f.uint) & f.sign), x.dtype)
    return where(less(a, whole), signed, x)


def scale(u: UOp) -> UOp:
    """Return a * 2**b for LDEXP(a, b) by three products, rounded once.

    Only the last product rounds, since an |a| below 1 is scaled up first.
    """
    a, b = u.src
    f = FORMATS[a.dtype]
    most, up = 3.0 * (f.bias - 2), float(f.bias - f.mantissa)  # beyond `most` every result is 0 or infinite
    small = less(magnitude(a), 1.0)
    n = b + where(small, -up, 0.0, a)
    n = where(less(n, -most), -most, where(less(most, n), most, n))
    third = build("TRUNC", n * (1 / 3))
    step = _power(third, f)
    return where(small, a * 2.0**up, a) * step * step * _power(sub(n, third * 2.0), f)


def _power(n: UOp, f: Format) -> UOp:
    """Return 2**n for an integral n within the exponents of normal floats."""
    return bits(shift_left(bits(n + (f.magic + f.bias), f.uint), f.mantissa), f.real)


def without_sign(u: UOp) -> UOp:
    """Return |x| by clearing the sign bit; MAX(x, -x) may return either zero on a target."""
    x = magnitude_argument(u)
    assert x is not None
    return magnitude(x)


# ---- casts -----------------------------------------------------------------------------------------------------------
def to_bool(u: UOp) -> UOp:
    """Return a number as a bool: x != 0, which is true for nan."""
    return differ(u.src[0], 0)


def casts_to_bool(u: UOp) -> bool:
    """Whether `u` converts to bool."""
    return u.dtype is dtypes.bool


def fitting(source: DType, target: DType) -> tuple[float, float]:
    """Return the smallest and the largest value of float dtype `source` whose truncation fits integer dtype
    `target`.
    """
    kind = source.numpy.type
    low, high = kind(target.min - 1), kind(target.max + 1)
    inside = int(low) != target.min - 1  # min - 1 is not representable, so min itself is the limit
    return float(kind(target.min) if inside else np.nextafter(low, kind(0))), float(np.nextafter(high, kind(0)))


def _outside(x: UOp, d: DType) -> UOp:
    """Return the condition that the float `x` is nan or does not fit the integer type `d`."""
    low, high = fitting(x.dtype, d)
    return either(either(less(x, low), less(high, x)), differ(x, x))


def may_overflow(u: UOp) -> bool:
    """Whether the CAST `u` converts a float to an integer, and values that do not fit are not set to 0 before it."""
    x, d = u.src[0], u.dtype
    if not d.is_int or x.dtype not in FORMATS:
        return False
    return x.op != "WHERE" or constant_of(x.src[1]) != 0.0 or x.src[0] is not _outside(x.src[2], d)


def saturate(u: UOp) -> UOp:
    """Return a CAST that saturates: too large values become the largest or smallest integer, nan becomes 0. Exact."""
    x, d = u.src[0], u.dtype
    low, high = fitting(x.dtype, d)
    inner = cast(where(_outside(x, d), 0.0, x), d)
    return where(less(high, x), d.max, where(less(x, low), d.min, inner))


# ---- division of integers by constants -------------------------------------------------------------------------------
def divisor(u: UOp) -> int:
    """Return the positive constant integer by which the IDIV or MOD `u` divides, or 0 if there is none."""
    c = constant_of(u.src[1])
    return c if c.__class__ is int and c > 0 and u.dtype.is_int else 0


def by_power_of_two(u: UOp) -> bool:
    """Whether the IDIV or MOD `u` divides by a constant power of two."""
    c = divisor(u)
    return c > 0 and c & (c - 1) == 0


def quotient_by_shift(u: UOp) -> UOp:
    """Return floor(x / 2**k) as an arithmetic shift, also for negative x."""
    return shift_right(u.src[0], divisor(u).bit_length() - 1)


def remainder_by_mask(u: UOp) -> UOp:
    """Return x mod 2**k, which is not negative, as the low bits of x."""
    return u.src[0] & divisor(u) - 1


class Multiplier(NamedTuple):
    """Constants for a division by a product: floor(x / d) == floor((x + d*lift) * factor / 2**shift) - lift, in
    `dtype`.
    """

    factor: int
    shift: int
    lift: int
    dtype: DType


def multiplier(u: UOp) -> Multiplier | None:
    """Return the Multiplier that divides the first operand of the IDIV or MOD `u` by a constant, from its bounds.

    Return None if the divisor is not a constant above 1, or if no product fits 64 bits.

    For 0 <= x <= n the result has the smallest shift s whose m = ceil(2**s / d) satisfies (m*d - 2**s) * c < 2**s,
    where c is the largest number up to n with remainder d - 1. Operands that may be negative are raised by a multiple
    of d first (`lift`).
    """
    d = divisor(u)
    if d < 2:
        return None
    low, high = (int(b) for b in min_max(u.src[0]))
    lift = max(0, -(low // d))
    n = high + lift * d
    if n < d:
        return Multiplier(0, 0, lift, u.dtype)
    worst = (n + 1) // d * d - 1
    for s in range(d.bit_length() - 1, 64):
        m = -(-(1 << s) // d)
        if (m * d - (1 << s)) * worst < 1 << s:
            own = u.dtype if u.dtype.kind != "x" else dtypes.int32
            for w in (own, dtypes.int32, dtypes.int64, dtypes.uint64):
                if n * m <= w.max and lift * d <= w.max:
                    return Multiplier(m, s, lift, u.dtype if w is own else w)
            return None
    return None


def multiplies(u: UOp) -> bool:
    """Whether a product and a shift can replace the IDIV or MOD `u` by a constant."""
    return multiplier(u) is not None


def quotient_by_product(u: UOp) -> UOp:
    """Return floor(x / d) for a constant d as a product and a shift; exact within the bounds of x."""
    f = multiplier(u)
    assert f is not None
    x = cast(u.src[0], f.dtype) + f.lift * divisor(u)
    return cast(shift_right(x * f.factor, f.shift) + -f.lift, u.dtype)


def remainder_by_product(u: UOp) -> UOp:
    """Return x mod d as x - floor(x / d) * d."""
    return u.src[0] + quotient_by_product(u) * -divisor(u)


# ---- random numbers --------------------------------------------------------------------------------------------------
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))  # bits; rotations of four rounds and of the next four
PARITY = 0x1BD11BDA  # constant from which Threefry derives its third key word


def threefry(u: UOp) -> UOp:
    """Return the 64 random bits of Threefry-2x32 with 20 rounds, for a counter and a key of 64 bits each.

    The two 32-bit halves of the counter are added, rotated and combined by exclusive or.
    """
    (x, y), (k, m) = (_halves(s) for s in u.src)
    keys = (k, m, exclusive(exclusive(k, m), PARITY))
    x, y = x + k, y + m
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x = x + y
            y = exclusive(union(shift_left(y, r), shift_right(y, 32 - r)), x)
        x, y = x + keys[(i + 1) % 3], y + keys[(i + 2) % 3] + (i + 1)
    both_halves = union(cast(x, dtypes.uint64), shift_left(cast(y, dtypes.uint64), 32))
    return cast(both_halves, u.dtype)


def _halves(x: UOp) -> tuple[UOp, UOp]:
    """Return the low and the high 32 bits of a 64-bit integer, each as uint32."""
    x = cast(x, dtypes.uint64)
    return cast(x, dtypes.uint32), cast(shift_right(x, 32), dtypes.uint32)


# ---- the table -------------------------------------------------------------------------------------------------------
def is_wide(u: UOp) -> bool:
    """Whether the dtype of `u` is float32 or float64, for which the formulas are written."""
    return u.dtype in FORMATS


def is_single(u: UOp) -> bool:
    """Whether the dtype of `u` is float32."""
    return u.dtype is dtypes.float32


def is_exp(u: UOp) -> bool:
    """Whether the EXP2 `u` is EXP2(x * log2(e)) in float32 or float64."""
    return u.dtype in FORMATS and transcendental.exp_argument(u) is not None


def is_log(u: UOp) -> bool:
    """Whether the MUL `u` is LOG2(x) * ln(2) in float32 or float64."""
    return u.dtype in FORMATS and transcendental.is_log(u)


def is_narrow_log(u: UOp) -> bool:
    """Whether the MUL `u` is LOG2(x) * ln(2) in a float of fewer than 32 bits."""
    return is_narrow(u) and transcendental.is_log(u)


def is_cosine(u: UOp) -> bool:
    """Whether `u` is SIN(pi/2 - x) in any equivalent form."""
    return u.dtype in FORMATS and trigonometric.cosine_argument(u) is not None


def is_magnitude(u: UOp) -> bool:
    """Whether `u` is |x| as MAX(x, -x) of a float."""
    return u.dtype.is_float and magnitude_argument(u) is not None


_LAST = "the only way to do without the op"
_EXACT = "the other definition is wrong for nan"
_NARROW = Decomposition(
    "narrow_in_single", is_narrow, in_single, "op(x) of a narrow float is narrow(op(float32(x)))", _LAST
)

# by op, in order of preference: the first that applies is used
DECOMPOSE: dict[str, tuple[Decomposition, ...]] = {
    "NEG": (Decomposition("neg_as_product", always, neg, "-x is x * -1", _LAST),),
    "SUB": (Decomposition("sub_as_sum", always, subtract, "a - b is a + b * -1", _LAST),),
    "DIV": (
        _NARROW,
        Decomposition(
            "div_by_reciprocal", is_wide, divide, "a / b is q + (a - q*b) * (1/b), with q = a * (1/b)", _LAST
        ),
    ),
    "CMPGT": (Decomposition("greater_as_less", always, greater, "a > b is b < a", _LAST),),
    "CMPGE": (
        Decomposition("at_least_of_floats", is_float, at_least_float, "a >= b is b < a or a == b", _EXACT),
        Decomposition("at_least_as_not_less", always, at_least, "a >= b is not a < b", _LAST),
    ),
    "CMPLE": (
        Decomposition("at_most_of_floats", is_float, at_most_float, "a <= b is a < b or a == b", _EXACT),
        Decomposition("at_most_as_not_greater", always, at_most, "a <= b is not b < a", _LAST),
    ),
    "CMPEQ": (Decomposition("equal_as_not_different", always, equal, "a == b is not a != b", _LAST),),
    "NOT": (
        Decomposition("not_as_complement", always, invert, "not p is p != True; of an integer it is x ^ -1", _LAST),
    ),
    "MAX": (
        Decomposition(
            "max_without_sign", is_magnitude, without_sign, "max(x, -x) is x without its sign bit", lacks="ABS"
        ),
        Decomposition("max_as_choice", always, maximum, "max(a, b) is (b if a < b or b is nan else a)", _LAST),
    ),
    "MULACC": (Decomposition("mulacc_as_sum", always, multiply_add, "mulacc(a, b, c) is a * b + c", _LAST),),
    "TRUNC": (
        _NARROW,
        Decomposition(
            "trunc_by_adding",
            is_wide,
            truncate,
            "trunc(x) is |x| + 2**52 - 2**52, minus 1 if that rounded up, with the sign of x",
            _LAST,
        ),
    ),
    "CAST": (
        Decomposition("bool_as_difference", casts_to_bool, to_bool, "bool(x) is x != 0", _LAST),
        Decomposition(
            "cast_saturates",
            may_overflow,
            saturate,
            "int(x) saturates to the largest or smallest integer, and is 0 for nan",
            "a plain CAST of a value that does not fit is undefined",
        ),
    ),
    "IDIV": (
        Decomposition("div_by_shift", by_power_of_two, quotient_by_shift, "x // 2**k is x >> k"),
        Decomposition(
            "div_by_product",
            multiplies,
            quotient_by_product,
            "x // d of a constant d is x * m >> s, with m and s from the bounds of x",
        ),
    ),
    "MOD": (
        Decomposition("mod_by_mask", by_power_of_two, remainder_by_mask, "x % 2**k is x & 2**k - 1"),
        Decomposition(
            "mod_by_product", multiplies, remainder_by_product, "x % d of a constant d is x - (x * m >> s) * d"
        ),
    ),
    "EXP2": (
        _NARROW,
        Decomposition(
            "exp_by_ldexp",
            is_exp,
            transcendental.exp_by_ldexp,
            "exp(x) is ldexp(polynomial(x - n*ln2), n)",
            needs="LDEXP",
        ),
        Decomposition(
            "exp2_by_ldexp",
            is_wide,
            transcendental.exp2_by_ldexp,
            "exp2(x) is ldexp(polynomial(x - n), n)",
            needs="LDEXP",
        ),
        Decomposition("exp_by_polynomial", is_exp, transcendental.exp, "exp(x) is polynomial(x - n*ln2) * 2**n"),
        Decomposition("exp2_by_polynomial", is_wide, transcendental.exp2, "exp2(x) is polynomial(x - n) * 2**n", _LAST),
    ),
    "LOG2": (
        _NARROW,
        Decomposition(
            "log2_by_polynomial",
            is_wide,
            transcendental.log2,
            "log2(x) is n + polynomial(m - 1), with x = m * 2**n",
            _LAST,
        ),
    ),
    "MUL": (
        Decomposition(
            "narrow_log_in_single",
            is_narrow_log,
            in_single,
            "log(x) of a narrow float is narrow(log(float32(x)))",
            lacks="LOG2",
        ),
        Decomposition(
            "log_by_polynomial",
            is_log,
            transcendental.log,
            "log2(x) * ln2 is n*ln2 + polynomial(m - 1), with x = m * 2**n",
            lacks="LOG2",
        ),
    ),
    "SIN": (
        _NARROW,
        Decomposition(
            "cos_by_polynomial", is_cosine, trigonometric.cosine, "sin(pi/2 - x) is a polynomial of x - n*pi/2"
        ),
        Decomposition("sin_by_polynomial", is_wide, trigonometric.sine, "sin(x) is a polynomial of x - n*pi/2", _LAST),
        Decomposition(
            "cos_by_sine",
            is_cosine,
            trigonometric.cosine_by_sine,
            "sin(pi/2 - x) is the native sine of x reduced by multiples of pi/2",
            lacks="COS",
        ),
    ),
    "SQRT": (
        _NARROW,
        Decomposition(
            "sqrt_by_steps",
            is_wide,
            transcendental.sqrt,
            "sqrt(x) is computed by Heron's steps from a guess based on the bits of x",
            _LAST,
        ),
    ),
    "POW": (
        _NARROW,
        Decomposition(
            "pow_in_double",
            is_single,
            transcendental.power_by_scaling,
            "x ** y is exp2(log2(x) * y), in double precision",
            needs="LDEXP",
        ),
        Decomposition(
            "pow_in_two_parts",
            is_wide,
            transcendental.power,
            "x ** y is exp2(log2(x) * y), with the logarithm in two parts",
            _LAST,
        ),
    ),
    "LDEXP": (
        _NARROW,
        Decomposition(
            "ldexp_as_products", is_wide, scale, "ldexp(a, n) is a * 2**(n/3) * 2**(n/3) * 2**(n - 2*(n/3))", _LAST
        ),
    ),
    "THREEFRY": (
        Decomposition(
            "threefry_as_rounds", always, threefry, "threefry is 20 rounds of add, rotate, exclusive or", _LAST
        ),
    ),
}
ROWS = Family(
    "decompose", __name__, *dict.fromkeys(Row(d.name, d.text, d.needed) for ds in DECOMPOSE.values() for d in ds)
)


def decompose(u: UOp, native: frozenset[str]) -> UOp | None:
    """Return `u` in terms of other ops, or None if a target with the ops `native` has it or no replacement applies.

    This is one step: the result may contain ops to be decomposed in turn. |x|, log and cos are patterns of two nodes,
    which are replaced although the op of `u` (MAX, MUL, SIN) is in `native`, if ABS, LOG2 or COS is not. A driver must
    decompose a node before its sources: if it decomposed those of exp, log or cos first, the error would be about 3
    ULP. IDIV and MOD by variables have no replacement: a target without them in `native` only gets the cheaper forms
    for constants. A target without CAST in `native` gets saturating casts.
    """
    for d in DECOMPOSE.get(u.op, ()):
        if (d.lacks or u.op) not in native and (d.needs is None or d.needs in native) and d.when(u) and is_on(d.name):
            return fired(d.name, u, d.rewrite(u))
    return None


__all__ = [
    "DECOMPOSE",
    "Decomposition",
    "Multiplier",
    "PRIMITIVES",
    "always",
    "at_least",
    "at_least_float",
    "at_most",
    "at_most_float",
    "by_power_of_two",
    "casts_to_bool",
    "decompose",
    "divide",
    "divisor",
    "equal",
    "fitting",
    "greater",
    "invert",
    "is_cosine",
    "is_exp",
    "is_float",
    "is_log",
    "is_magnitude",
    "is_narrow",
    "is_narrow_log",
    "is_single",
    "is_wide",
    "maximum",
    "may_overflow",
    "multiplier",
    "multiplies",
    "multiply_add",
    "neg",
    "quotient_by_product",
    "quotient_by_shift",
    "remainder_by_mask",
    "remainder_by_product",
    "saturate",
    "scale",
    "subtract",
    "threefry",
    "to_bool",
    "truncate",
    "without_sign",
]

"""Build accurate graphs of functions that have no op: exp, tanh, erf, log1p, arc functions and similar ones.

What it is for: each function is a short formula in float32 or float64 without cancellation or overflow. Its derivative
is given in closed form (`gradient.closed_form`), so that polynomials are not differentiated.
What it is not: promotion of dtypes. Only floats below 32 bits are computed in float32, and rounded once.
Invariant: nan gives nan (but `hypot` of an infinity is inf); `rules.accuracy` lists the errors.
Source: series and range reductions of elementary textbooks; polynomial coefficients are relative minimax fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, inf, log, nan, pi, sqrt, tan
from typing import Any

from monolect.autograd.closed_forms import closed_form
from monolect.autograd.graph import cast, e, multiply_add, where
from monolect.autograd.recorded import recorded
from monolect.base.dtype import dtypes
from monolect.ir.uop import UOp, build, const

LOG2_E, LN_2 = 1.4426950408889634, log(2.0)


def _function(derivative: Callable[..., Any]) -> Callable[[Callable[..., UOp]], Callable[..., UOp]]:
    """Return a decorator of a formula over nodes: it registers `derivative(g, y, *x)` as the gradients, computes floats
    below 32 bits in float32, and records the nodes.

    The backward walk calls `derivative` with the gradient g of the result y and the operands x. It returns a tuple with
    the gradient of each operand.
    """

    def decorate(formula: Callable[..., UOp]) -> Callable[..., UOp]:
        def function(*xs: UOp) -> UOp:
            dtype = xs[0].dtype
            if dtype.bits < 32:
                xs = tuple(cast(x, dtypes.float32) for x in xs)
            y = closed_form(formula(*xs), xs, derivative)
            return cast(y, dtype)

        function.__doc__, function.__name__ = formula.__doc__, formula.__name__
        return recorded(function)

    return decorate


def _wide(x: UOp) -> bool:
    """Whether `x` is a float64."""
    return x.dtype is dtypes.float64


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """Return c0 + x*(c1 + x*(c2 + ...)) for `coefficients` (c0, c1, ...), by Horner's rule."""
    acc = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        acc = multiply_add(acc, x, c)
    return acc


def absolute(x: UOp) -> UOp:
    """Return |x|; its derivative at 0 is 0."""
    return build("MAX", x, build("NEG", x))


# ---- exponentials and logarithms -------------------------------------------------------------------------------------
@_function(lambda g, y, x: (e("MUL", g, y),))
def exp(x: UOp) -> UOp:
    """Return e ** x."""
    return build("EXP2", e("MUL", x, LOG2_E))


@_function(lambda g, y, x: (e("DIV", g, x),))
def log_e(x: UOp) -> UOp:
    """Return the natural logarithm of x."""
    return e("MUL", build("LOG2", x), LN_2)


@_function(lambda g, y, x: (e("MUL", g, e("ADD", y, 1.0)),))
def expm1(x: UOp) -> UOp:
    """Return e ** x - 1, with a small relative error also near 0."""
    terms = 15 if _wide(x) else 8
    near = e("MUL", x, polynomial(x, [1 / factorial(k + 1) for k in range(terms)]))
    return where(e("CMPLT", absolute(x), 0.5), near, e("SUB", build("EXP2", e("MUL", x, LOG2_E)), 1.0))


@_function(lambda g, y, x: (e("DIV", g, e("ADD", x, 1.0)),))
def log1p(x: UOp) -> UOp:
    """Return log(1 + x), with a small relative error also near 0."""
    s = e("DIV", x, e("ADD", x, 2.0))  # log(1 + x) = 2 artanh(s)
    terms = 12 if _wide(x) else 6
    near = e("MUL", s, polynomial(e("MUL", s, s), [2 / (2 * k + 1) for k in range(terms)]))
    far = e("MUL", build("LOG2", e("ADD", x, 1.0)), LN_2)
    return where(e("AND", e("CMPLT", const(-0.29, x.dtype), x), e("CMPLT", x, 0.41)), near, far)


@_function(lambda g, y, x: (e("MUL", g, sigmoid(x)),))
def softplus(x: UOp) -> UOp:
    """Return log(1 + e**x) without overflow: max(x, 0) + log1p(e**-|x|)."""
    return e("ADD", e("MAX", x, 0.0), log1p(exp(build("NEG", absolute(x)))))


@_function(lambda g, y, a, b: _logaddexp_gradient(g, a, b))
def logaddexp(a: UOp, b: UOp) -> UOp:
    """Return log(e**a + e**b) without overflow."""
    d = build("SUB", a, b)
    same = build("CMPEQ", a, b)  # includes equal infinities, whose difference is nan
    d = where(same, 0.0, d)
    return e("ADD", build("MAX", a, b), log1p(exp(build("NEG", absolute(d)))))


def _logaddexp_gradient(g: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp]:
    d = build("SUB", a, b)
    d = where(build("AND", build("CMPEQ", a, b), build("CMPNE", d, d)), 0.0, d)  # equal infinities
    return e("MUL", g, sigmoid(d)), e("MUL", g, sigmoid(build("NEG", d)))


# ---- sigmoids --------------------------------------------------------------------------------------------------------
@_function(lambda g, y, x: (e("MUL", g, e("MUL", y, e("SUB", 1.0, y))),))
def sigmoid(x: UOp) -> UOp:
    """Return 1 / (1 + e**-x); below 0 as e**x / (1 + e**x), where e**-x could overflow."""
    small = exp(build("NEG", absolute(x)))
    return e("DIV", where(e("CMPLT", x, 0.0), small, 1.0), e("ADD", small, 1.0))


@_function(lambda g, y, x: (e("MUL", g, e("SUB", 1.0, e("MUL", y, y))),))
def tanh(x: UOp) -> UOp:
    """Return the hyperbolic tangent: expm1(2x) / (expm1(2x) + 2), which is accurate near 0."""
    limit = 20.0 if _wide(x) else 10.0
    c = where(e("CMPLT", x, -limit), -limit, where(e("CMPLT", const(limit, x.dtype), x), limit, x))
    m = expm1(e("ADD", c, c))
    return e("DIV", m, e("ADD", m, 2.0))


@_function(lambda g, y, x: (e("MUL", g, sigmoid(build("NEG", x))),))
def log_sigmoid(x: UOp) -> UOp:
    """Return log(sigmoid(x)) as min(x, 0) - log1p(e**-|x|)."""
    below = build("NEG", e("MAX", build("NEG", x), 0.0))
    return e("SUB", below, log1p(exp(build("NEG", absolute(x)))))


def _clamped_log(x: UOp) -> UOp:
    """Return max(log(x), -100)."""
    return build("MAX", log_e(x), const(-100.0, x.dtype))


def _binary_cross_entropy_gradient(g: UOp, y: UOp, x: UOp, target: UOp) -> tuple[UOp, UOp]:
    rest = e("SUB", 1.0, x)
    slope = build("DIV", build("SUB", x, target), e("MAX", build("MUL", x, rest), 1e-12))
    return build("MUL", g, slope), build("MUL", g, build("SUB", _clamped_log(rest), _clamped_log(x)))


@_function(_binary_cross_entropy_gradient)
def binary_cross_entropy(x: UOp, target: UOp) -> UOp:
    """Return -(target * log(x) + (1 - target) * log(1 - x)); logarithms are at least -100, and the slope is finite."""
    rest = e("SUB", 1.0, x)
    hit, miss = build("MUL", target, _clamped_log(x)), build("MUL", e("SUB", 1.0, target), _clamped_log(rest))
    return build("NEG", build("ADD", hit, miss))


def _silu_gradient(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
    s = sigmoid(x)
    return (e("MUL", g, e("MUL", s, multiply_add(x, e("SUB", 1.0, s), 1.0))),)


@_function(_silu_gradient)
def silu(x: UOp) -> UOp:
    """Return x * sigmoid(x)."""
    return e("MUL", x, sigmoid(x))


_GELU = 2.0 * sqrt(2.0 / pi)


def _gelu_tanh_inner(x: UOp) -> UOp:
    return e("MUL", e("MUL", x, multiply_add(e("MUL", x, x), 0.044715, 1.0)), _GELU)


def _gelu_tanh_gradient(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
    s = sigmoid(_gelu_tanh_inner(x))
    slope = e("MUL", multiply_add(e("MUL", x, x), 3 * 0.044715, 1.0), _GELU)
    return (e("MUL", g, e("MUL", s, multiply_add(e("MUL", x, slope), e("SUB", 1.0, s), 1.0))),)


@_function(_gelu_tanh_gradient)
def gelu_tanh(x: UOp) -> UOp:
    """Return the tanh approximation of gelu, with sigmoid(2u) for (1 + tanh(u)) / 2."""
    return e("MUL", x, sigmoid(_gelu_tanh_inner(x)))


# ---- the error function ----------------------------------------------------------------------------------------------
# erf(x) = x * P(x*x) on [0, 1]; erfc(x) = e**(-x*x) * t * Q(t) with t = 1 / (1 + x/2) above.
_ERF_32 = (
    1.128379167057981, -0.37612638435598705, 0.11283782002019363, -0.02686540224016915,
    0.005220952814108742, -0.0008482949582172268, 0.00011257898500833396, -9.644401802995953e-06,
)  # fmt: skip
_ERF_64 = (
    1.1283791670955126, -0.3761263890318375, 0.11283791670954858, -0.026866170645073018,
    0.005223977624782548, -0.0008548326978860298, 0.00012055331041835963, -1.4925593637772662e-05,
    1.6460975077037353e-06, -1.6350050574077034e-07, 1.4658058024656272e-08, -1.136637890838897e-09,
    5.946501086791343e-11,
)  # fmt: skip
_ERFC_32 = (
    0.2820938463410193, 0.2821353269161466, 0.24613523958682512, 0.18263615558805432, 0.050488376355923695,
    0.09953206728285152, -0.24209832711962131, 0.1008533804844448, -0.0011584538912101166,
)  # fmt: skip
_ERFC_64 = (
    0.28209479176780244, 0.2820947923037359, 0.24683292198992599, 0.17630973313390816, 0.08373924430144439,
    -0.0043231900252214675, -0.05742833006987216, -0.04945172733880923, -0.020724942639463086, 0.0981812430032852,
    -0.015924415651109292, -0.11089108615021438, 0.8137982256371262, -2.7089092056797113, 4.705753315092272,
    -4.837194734841828, 3.0236589384056356, -1.0769700240607305, 0.16936376426355657,
)  # fmt: skip


def _erf_near(x: UOp) -> UOp:
    """Return erf(x) for |x| < 1."""
    return e("MUL", x, polynomial(e("MUL", x, x), _ERF_64 if _wide(x) else _ERF_32))


def _erfc_tail(a: UOp) -> UOp:
    """Return erfc(a) / e**(-a*a) for a >= 1."""
    t = build("RECIP", multiply_add(a, 0.5, 1.0))
    return e("MUL", t, polynomial(t, _ERFC_64 if _wide(a) else _ERFC_32))


def _bell(x: UOp) -> UOp:
    """Return e ** (-x*x)."""
    return exp(build("NEG", e("MUL", x, x)))


@_function(lambda g, y, x: (e("MUL", g, e("MUL", _bell(x), 2 / sqrt(pi))),))
def erf(x: UOp) -> UOp:
    """Return the error function of x."""
    a = absolute(x)
    far = e("SUB", 1.0, e("MUL", _bell(a), _erfc_tail(a)))
    far = where(e("CMPLT", a, 6.0), far, where(build("CMPNE", x, x), x, 1.0))
    return where(e("CMPLT", a, 1.0), _erf_near(x), where(e("CMPLT", x, 0.0), build("NEG", far), far))


@_function(lambda g, y, x: (e("MUL", g, e("MUL", _bell(x), -2 / sqrt(pi))),))
def erfc(x: UOp) -> UOp:
    """Return 1 - erf(x) to full relative accuracy: the square in the exponent is an exact part plus a rest."""
    a = absolute(x)
    h = e("MUL", build("TRUNC", e("MUL", a, 64.0)), 1 / 64)
    rest = e("MUL", build("SUB", a, h), e("ADD", a, h))
    tail = e("MUL", e("MUL", _bell(h), exp(build("NEG", rest))), _erfc_tail(a))
    tail = where(e("CMPLT", a, 28.0), tail, where(build("CMPNE", x, x), x, 0.0))
    far = where(e("CMPLT", x, 0.0), e("SUB", 2.0, tail), tail)
    return where(e("CMPLT", a, 1.0), _erfc_near(x), far)


def _erfc_near(x: UOp) -> UOp:
    """Return 1 - erf(x) for |x| < 1, as (1 - x) - x * (P(x*x) - 1), which avoids cancellation."""
    first, *rest = _ERF_64 if _wide(x) else _ERF_32
    return e("SUB", e("SUB", 1.0, x), e("MUL", x, polynomial(e("MUL", x, x), (first - 1.0, *rest))))


# erfc(a) / 2 = e**(-a*a) * t * R(t) with t = 1 / (1 + 0.4*a), for any a >= 0; R's own error is below 2**-25.
_CDF_32 = (
    0.11284231394529343, 0.11273176223039627, 0.10491377860307693, 0.0793171301484108, 0.08390691131353378,
    -0.017874445766210556, 0.07457364350557327, -0.03742557018995285, -0.0447402223944664, 0.04138052463531494,
    -0.00962582416832447,
)  # fmt: skip


def _normal_cdf(x: UOp) -> UOp:
    """Return the normal distribution function of x, as nodes; `normal_cdf` adds the derivative.

    In float32 one polynomial serves all x: a second one for 1/2 + erf/2 near 0 would not improve the result. In float64
    a single polynomial would be too long.
    """
    z = e("MUL", x, sqrt(0.5))
    if not _wide(x):
        a = absolute(z)
        t = build("RECIP", multiply_add(a, 0.4, 1.0))
        tail = e("MUL", _bell(a), e("MUL", t, polynomial(t, _CDF_32)))
        return where(e("CMPLT", z, 0.0), tail, e("SUB", 1.0, tail))
    a = absolute(z)
    tail = e("MUL", e("MUL", _bell(a), _erfc_tail(a)), 0.5)
    far = where(e("CMPLT", z, 0.0), tail, e("SUB", 1.0, tail))
    return where(e("CMPLT", a, 1.0), multiply_add(_erf_near(z), 0.5, 0.5), far)


def _gelu_gradient(g: UOp, y: UOp, x: UOp) -> tuple[UOp]:
    density = e("MUL", exp(e("MUL", e("MUL", x, x), -0.5)), 1 / sqrt(2 * pi))
    return (e("MUL", g, multiply_add(x, density, normal_cdf(x))),)


@_function(lambda g, y, x: (e("MUL", g, e("MUL", exp(e("MUL", e("MUL", x, x), -0.5)), 1 / sqrt(2 * pi))),))
def normal_cdf(x: UOp) -> UOp:
    """Return the normal distribution function, (1 + erf(x / sqrt 2)) / 2."""
    return _normal_cdf(x)


@_function(_gelu_gradient)
def gelu(x: UOp) -> UOp:
    """Return x * normal_cdf(x)."""
    return e("MUL", x, _normal_cdf(x))


# ---- arc functions ---------------------------------------------------------------------------------------------------
# atan(x) = x * P(x*x) for |x| <= 1; the 64-bit fit needs |x| <= tan(pi/8).
_ATAN_32 = (
    0.9999999975305213, -0.33333282390348346, 0.1999823875904089, -0.14261696774086277, 0.10940984781306112,
    -0.08374680942316821, 0.05751276142410438, -0.030770136650191376, 0.010710592048739054, -0.0017506871846999501,
)  # fmt: skip
_ATAN_64 = (
    1.0, -0.33333333333328585, 0.1999999999888333, -0.1428571418309115, 0.11111106260862239, -0.09090774829786144,
    0.07689976804707893, -0.06640425454286225, 0.05689299965094187, -0.043506645005483804, 0.021165872130301185,
)  # fmt: skip
# asin(x) = x + x**3 * P(x*x) for |x| <= 1/2
_ASIN_32 = (
    0.1666666631928455, 0.07500098163798866, 0.04459824464032493, 0.03111360677198782, 0.017090113219190954,
    0.03378538467914676,
)  # fmt: skip
_ASIN_64 = (
    0.16666666666666669, 0.07499999999998341, 0.04464285714652842, 0.03038194412563854, 0.02237217343865335,
    0.01735238143811393, 0.013971375522819149, 0.011477635747901624, 0.010332568787868606, 0.005416739769884546,
    0.01750893195920929, -0.0150164163019329, 0.02886746218946789,
)  # fmt: skip


def _atan_unit(x: UOp) -> UOp:
    """Return atan(x) for |x| <= 1."""
    if not _wide(x):
        return e("MUL", x, polynomial(e("MUL", x, x), _ATAN_32))
    a = absolute(x)
    high = e("CMPGT", a, tan(pi / 8))
    r = where(high, e("DIV", e("SUB", a, 1.0), e("ADD", a, 1.0)), a)  # atan(a) = pi/4 + atan((a-1)/(a+1))
    y = e("MUL", r, polynomial(e("MUL", r, r), _ATAN_64))
    return with_sign(where(high, e("ADD", y, pi / 4), y), x)


@_function(lambda g, y, x: (e("DIV", g, multiply_add(x, x, 1.0)),))
def atan(x: UOp) -> UOp:
    """Return the arc tangent of x; for |x| > 1 as +-pi/2 - atan(1/x)."""
    far = e("CMPGT", absolute(x), 1.0)
    y = _atan_unit(where(far, build("RECIP", x), x))
    return where(far, e("SUB", where(e("CMPLT", x, 0.0), const(-pi / 2, x.dtype), pi / 2), y), y)


def _asin_half(x: UOp) -> UOp:
    """Return asin(x) for |x| <= 1/2."""
    z = e("MUL", x, x)
    return multiply_add(e("MUL", x, z), polynomial(z, _ASIN_64 if _wide(x) else _ASIN_32), x)


def _sqrt_one_minus_square(x: UOp) -> UOp:
    """Return sqrt(1 - x*x), without cancellation near 1."""
    return build("SQRT", e("MUL", e("SUB", 1.0, x), e("ADD", x, 1.0)))


def _acos_near_one(a: UOp) -> UOp:
    """Return acos(a) for a in [1/2, 1], as 2 asin(sqrt((1 - a) / 2))."""
    y = _asin_half(build("SQRT", e("MUL", e("SUB", 1.0, a), 0.5)))
    return e("ADD", y, y)


@_function(lambda g, y, x: (e("DIV", g, _sqrt_one_minus_square(x)),))
def asin(x: UOp) -> UOp:
    """Return the arc sine of x."""
    a = absolute(x)
    far = with_sign(e("SUB", pi / 2, _acos_near_one(a)), x)
    return where(e("CMPLE", a, 0.5), _asin_half(x), far)


@_function(lambda g, y, x: (build("NEG", e("DIV", g, _sqrt_one_minus_square(x))),))
def acos(x: UOp) -> UOp:
    """Return the arc cosine of x."""
    near_one = _acos_near_one(absolute(x))
    far = where(e("CMPLT", x, 0.0), e("SUB", pi, near_one), near_one)
    return where(e("CMPLE", absolute(x), 0.5), e("SUB", pi / 2, _asin_half(x)), far)


def _atan2_gradient(g: UOp, angle: UOp, y: UOp, x: UOp) -> tuple[UOp, UOp]:
    d = _ratio(g, e("ADD", e("MUL", x, x), e("MUL", y, y)))  # the gradient at the origin is 0, as in PyTorch
    return e("MUL", d, x), build("NEG", e("MUL", d, y))


@_function(_atan2_gradient)
def atan2(y: UOp, x: UOp) -> UOp:
    """Return the angle of the point (x, y) in radians, from -pi to pi.

    It is the arc tangent of the smaller over the larger side, mapped to the octant of the point.
    """
    a, b = absolute(y), absolute(x)
    big, small = e("MAX", a, b), build("NEG", e("MAX", build("NEG", a), build("NEG", b)))
    flat = build("CMPEQ", big, small)  # includes both 0 and both infinite, whose quotient is nan
    ratio = where(flat, where(e("CMPEQ", big, 0.0), const(0.0, x.dtype), 1.0), e("DIV", small, big))
    angle = _atan_unit(ratio)
    angle = where(build("CMPGT", a, b), e("SUB", pi / 2, angle), angle)
    angle = where(negative(x), e("SUB", pi, angle), angle)
    return copysign_value(angle, y)


# ---- hyperbolic functions --------------------------------------------------------------------------------------------
@_function(lambda g, y, x: (e("MUL", g, cosh(x)),))
def sinh(x: UOp) -> UOp:
    """Return (e**x - e**-x) / 2, from expm1; for large |x| from e**(x/2) squared, because e**x could overflow."""
    a = absolute(x)
    m = expm1(a)
    near = e("MUL", e("ADD", m, e("DIV", m, e("ADD", m, 1.0))), 0.5)
    half = exp(e("MUL", a, 0.5))
    return with_sign(where(e("CMPLT", a, 20.0), near, e("MUL", e("MUL", half, 0.5), half)), x)


@_function(lambda g, y, x: (e("MUL", g, sinh(x)),))
def cosh(x: UOp) -> UOp:
    """Return (e**x + e**-x) / 2; e**x is e**(x/2) squared and halved, because e**x could overflow."""
    a = absolute(x)
    half = exp(e("MUL", a, 0.5))
    return multiply_add(e("MUL", half, 0.5), half, e("MUL", exp(build("NEG", a)), 0.5))


_FAR_OUT = 1e9  # above it, 1 is negligible in x*x + 1


@_function(lambda g, y, x: (e("DIV", g, hypot(x, const(1.0, x.dtype))),))
def asinh(x: UOp) -> UOp:
    """Return log(x + sqrt(x*x + 1)), by log1p; log(2x) above _FAR_OUT."""
    a = absolute(x)
    z = e("MUL", a, a)
    near = log1p(e("ADD", a, e("DIV", z, e("ADD", build("SQRT", e("ADD", z, 1.0)), 1.0))))
    return with_sign(where(e("CMPLT", a, _FAR_OUT), near, e("ADD", log_e(a), LN_2)), x)


@_function(lambda g, y, x: (e("DIV", g, build("SQRT", e("MUL", e("SUB", x, 1.0), e("ADD", x, 1.0)))),))
def acosh(x: UOp) -> UOp:
    """Return log(x + sqrt(x*x - 1)), by log1p; log(2x) above _FAR_OUT."""
    t = e("SUB", x, 1.0)
    near = log1p(e("ADD", t, build("SQRT", e("MUL", t, e("ADD", t, 2.0)))))
    far = where(e("CMPLT", x, _FAR_OUT), near, e("ADD", log_e(x), LN_2))
    return where(e("CMPLT", x, 1.0), nan, far)


@_function(lambda g, y, x: (e("DIV", g, e("MUL", e("SUB", 1.0, x), e("ADD", x, 1.0))),))
def atanh(x: UOp) -> UOp:
    """Return log((1 + x) / (1 - x)) / 2, by log1p."""
    a = absolute(x)
    return with_sign(e("MUL", log1p(e("DIV", e("ADD", a, a), e("SUB", 1.0, a))), 0.5), x)


# ---- between two values ----------------------------------------------------------------------------------------------
def lerp(a: UOp, b: UOp, weight: UOp) -> UOp:
    """Return a + weight * (b - a), computed from `b` if |weight| >= 1/2, so that weight 1 gives exactly `b`.

    Of floats the derivative is that of one formula: of both, an infinite operand would give 0 * inf.
    """
    d = build("SUB", b, a)
    near = e("CMPLT", absolute(weight), 0.5)
    from_b = build("SUB", b, build("MUL", d, e("SUB", 1.0, weight)))
    y = where(near, build("ADD", a, build("MUL", weight, d)), from_b)
    return closed_form(y, (a, b, weight), _lerp_gradient) if y.dtype.is_float else y


def _lerp_gradient(g: UOp, y: UOp, a: UOp, b: UOp, w: UOp) -> tuple[UOp, UOp, UOp]:
    return e("MUL", g, e("SUB", 1.0, w)), e("MUL", g, w), e("MUL", g, e("SUB", b, a))


# ---- signs and lengths -----------------------------------------------------------------------------------------------
def with_sign(magnitude: UOp, x: UOp) -> UOp:
    """Return `magnitude`, a function of |x|, with the sign of x; at zero the result is x itself."""
    return where(e("CMPEQ", x, 0.0), x, where(e("CMPLT", x, 0.0), build("NEG", magnitude), magnitude))


_SAME_BITS = {16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64, 8: dtypes.int8}


def negative(x: UOp) -> UOp:
    """Return a bool node: true where the sign bit of the float `x` is set."""
    return e("CMPLT", build("BITCAST", x, arg=_SAME_BITS[x.dtype.bits]), 0)


def copysign_value(x: UOp, sign: UOp) -> UOp:
    """Return |x| with the sign of `sign`, as nodes; `copysign` adds the derivative."""
    a = absolute(x)
    return where(negative(sign), build("NEG", a), a)


def _copysign_gradient(g: UOp, y: UOp, x: UOp, sign: UOp) -> tuple[UOp, UOp]:
    same = build("CMPEQ", negative(x), negative(sign))
    d = where(e("CMPEQ", x, 0.0), 0.0, where(same, g, build("NEG", g)))
    return d, e("MUL", g, 0.0)


@_function(_copysign_gradient)
def copysign(x: UOp, sign: UOp) -> UOp:
    """Return |x| with the sign of `sign`."""
    return copysign_value(x, sign)


@_function(lambda g, y, r, a, b: (g, e("MUL", g, 0.0), e("MUL", g, 0.0)))
def rest_of_division(r: UOp, a: UOp, b: UOp) -> UOp:
    """Return `r`, the computed remainder of a / b, with the sign of a if it is zero.

    If |r| >= |b|, because the quotient has more digits than the type, the result is zero as well.
    """
    none = build("OR", e("CMPEQ", r, 0.0), e("CMPGE", absolute(r), absolute(b)))
    return where(none, where(negative(a), const(-0.0, r.dtype), 0.0), r)


@_function(lambda g, y, a, b: (e("MUL", g, _ratio(a, y)), e("MUL", g, _ratio(b, y))))
def hypot(a: UOp, b: UOp) -> UOp:
    """Return sqrt(a*a + b*b), scaled by the larger side to avoid overflow."""
    p, q = absolute(a), absolute(b)
    big, small = e("MAX", p, q), build("NEG", e("MAX", build("NEG", p), build("NEG", q)))
    r = _ratio(small, big)
    out = e("MUL", big, build("SQRT", multiply_add(r, r, 1.0)))
    endless = build("OR", e("CMPEQ", p, inf), e("CMPEQ", q, inf))  # inf, even if the other side is nan
    return where(endless, inf, out)


def _ratio(a: UOp, b: UOp) -> UOp:
    """Return a / b, or 0 where b is 0."""
    zero = e("CMPEQ", b, 0.0)
    return where(zero, 0.0, e("DIV", a, where(zero, 1.0, b)))


__all__ = [
    "absolute",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "binary_cross_entropy",
    "copysign",
    "copysign_value",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "gelu",
    "gelu_tanh",
    "hypot",
    "lerp",
    "log1p",
    "log_e",
    "log_sigmoid",
    "logaddexp",
    "negative",
    "normal_cdf",
    "polynomial",
    "rest_of_division",
    "sigmoid",
    "silu",
    "sinh",
    "softplus",
    "tanh",
    "with_sign",
]

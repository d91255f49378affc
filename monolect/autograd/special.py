"""Accurate graphs for the functions that have no op of their own: exp, tanh, erf, log1p, arc functions and the like.

What it is for: each function is a short formula in float32 or float64 that neither cancels nor overflows, with its
derivative in closed form (`gradient.closed_form`), so that derivatives do not go through polynomials.
What it is not: it promotes nothing but halves, which are computed in float32 and rounded once.
Invariant: a value of `x` that is nan gives nan; errors are a few units in the last place, as the tests state.
Source: series and range reductions of elementary textbooks; polynomial coefficients are relative minimax fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, inf, log, log2, pi
from typing import Any

from monolect.autograd.gradient import closed_form, cosine
from monolect.autograd.graph import cast, e, where
from monolect.base.dtype import dtypes
from monolect.ir.uop import UOp, build, const

LOG2_E, LN_2 = log2(2.718281828459045), log(2.0)


def _function(derivative: Callable[..., Any]) -> Callable[[Callable[..., UOp]], Callable[..., UOp]]:
    """Make a formula a function with `derivative(g, y, *x)`; halves are computed in float32."""

    def decorate(formula: Callable[..., UOp]) -> Callable[..., UOp]:
        def function(*xs: UOp) -> UOp:
            dtype = xs[0].dtype
            if dtype.bits < 32:
                xs = tuple(cast(x, dtypes.float32) for x in xs)
            y = closed_form(formula(*xs), xs, derivative)
            return cast(y, dtype)

        function.__doc__, function.__name__ = formula.__doc__, formula.__name__
        return function

    return decorate


def _wide(x: UOp) -> bool:
    return x.dtype is dtypes.float64


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """c0 + x*(c1 + x*(c2 + ...)), by Horner's rule."""
    acc = const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        acc = e("ADD", e("MUL", acc, x), c)
    return acc


def absolute(x: UOp) -> UOp:
    """|x|; its derivative at 0 is 0."""
    return build("MAX", x, build("NEG", x))


# ---- exponentials and logarithms ---------------------------------------------------------------------------------------
@_function(lambda g, y, x: (e("MUL", g, y),))
def exp(x: UOp) -> UOp:
    """e ** x."""
    return build("EXP2", e("MUL", x, LOG2_E))


@_function(lambda g, y, x: (e("DIV", g, x),))
def log_e(x: UOp) -> UOp:
    """The natural logarithm."""
    return e("MUL", build("LOG2", x), LN_2)


@_function(lambda g, y, x: (e("MUL", g, e("ADD", y, 1.0)),))
def expm1(x: UOp) -> UOp:
    """e ** x - 1, exact to the last places near 0."""
    terms = 15 if _wide(x) else 8
    near = e("MUL", x, polynomial(x, [1 / factorial(k + 1) for k in range(terms)]))
    return where(e("CMPLT", absolute(x), 0.5), near, e("SUB", build("EXP2", e("MUL", x, LOG2_E)), 1.0))


@_function(lambda g, y, x: (e("DIV", g, e("ADD", x, 1.0)),))
def log1p(x: UOp) -> UOp:
    """log(1 + x), exact to the last places near 0."""
    s = e("DIV", x, e("ADD", x, 2.0))  # log(1 + x) = 2 artanh(s)
    terms = 12 if _wide(x) else 6
    near = e("MUL", s, polynomial(e("MUL", s, s), [2 / (2 * k + 1) for k in range(terms)]))
    far = e("MUL", build("LOG2", e("ADD", x, 1.0)), LN_2)
    return where(e("AND", e("CMPLT", const(-0.29, x.dtype), x), e("CMPLT", x, 0.41)), near, far)


@_function(lambda g, y, x: (e("MUL", g, sigmoid(x)),))
def softplus(x: UOp) -> UOp:
    """log(1 + e**x) without overflow: max(x, 0) + log1p(e**-|x|)."""
    return e("ADD", e("MAX", x, 0.0), log1p(exp(build("NEG", absolute(x)))))


@_function(lambda g, y, a, b: _logaddexp_gradient(g, a, b))
def logaddexp(a: UOp, b: UOp) -> UOp:
    """log(e**a + e**b) without overflow."""
    d = build("SUB", a, b)
    same = build("CMPEQ", a, b)  # also both the same infinity, whose difference is nan
    d = where(same, 0.0, d)
    return e("ADD", build("MAX", a, b), log1p(exp(build("NEG", absolute(d)))))


def _logaddexp_gradient(g: UOp, a: UOp, b: UOp) -> tuple[UOp, UOp]:
    d = where(build("CMPEQ", a, b), 0.0, build("SUB", a, b))
    return e("MUL", g, sigmoid(d)), e("MUL", g, sigmoid(build("NEG", d)))


# ---- sigmoids ----------------------------------------------------------------------------------------------------------
@_function(lambda g, y, x: (e("MUL", g, e("MUL", y, e("SUB", 1.0, y))),))
def sigmoid(x: UOp) -> UOp:
    """1 / (1 + e**-x)."""
    return build("RECIP", e("ADD", build("EXP2", e("MUL", x, -LOG2_E)), 1.0))


_TANH_P = (
    4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08,
    -8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16,
)  # fmt: skip
_TANH_Q = (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)


@_function(lambda g, y, x: (e("MUL", g, e("SUB", 1.0, e("MUL", y, y))),))
def tanh(x: UOp) -> UOp:
    """The hyperbolic tangent: expm1(2x) / (expm1(2x) + 2), odd and exact near 0."""
    limit = 20.0 if _wide(x) else 10.0
    c = where(e("CMPLT", x, -limit), -limit, where(e("CMPLT", const(limit, x.dtype), x), limit, x))
    m = expm1(e("ADD", c, c))
    return e("DIV", m, e("ADD", m, 2.0))

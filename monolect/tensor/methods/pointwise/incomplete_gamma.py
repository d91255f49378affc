"""Incomplete gamma functions, and the derivative of a gamma variate by its concentration.

What it is for: both are one integral of a positive function, which the trapezoidal rule computes with a fixed number of
nodes for all arguments, without cancellation.
Invariant: the smaller one of the two functions is computed, the other one is 1 minus it; so both have small relative
errors.
Source: Takahasi and Mori, "Double exponential formulas for numerical integration", 1974; Figurnov, Mohamed and Mnih,
"Implicit reparameterization gradients", 2018.
"""

from __future__ import annotations

from math import factorial, inf, nan, pi
from typing import Any, Self

from monolect.autograd.closed_forms import closed_alone
from monolect.base.dtype import dtypes
from monolect.ir.uop import UOp, build
from monolect.tensor.base import TensorBase, TensorLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.pointwise.coefficients import LGAMMA
from monolect.tensor.methods.pointwise.gamma import BERNOULLI, FAR, _digamma, _lgamma
from monolect.tensor.methods.pointwise.series import chebyshev, in_float64, polynomial, refuse_gradient, with_slope

# The trapezoidal rule in u, where the variable of the integral is exp(u - exp(-u)) times a scale. With this step the
# error is below 1e-15; beyond these bounds the integrand is below 1e-18 of its sum.
FIRST, STEP, NODES = -3.8, 0.06, 135
MOST = 60.0  # the integrand vanishes before its variable is that large
TERMS = 19  # of a power series at 1: the next one is below 1e-18
NEAR_ONE = 0.5  # |mu| up to which mu - log(1 + mu) is a series
NEAR_ZERO = 0.7  # |w| up to which expm1(w) - w is a series


@guard_methods
class IncompleteGammaMixin(TensorBase):
    """Methods of Tensor that are incomplete gamma functions; integers give float32."""

    __slots__ = ()

    def igamma(self, other: TensorLike) -> Self:
        """Return the regularized lower incomplete gamma function: the share of a gamma distribution of concentration
        self that is below `other`, broadcast.

        It is nan where either one is negative or nan, or both are 0 or infinite. Only `other` has a gradient;
        `backward` to self raises GradientError.

        >>> round(Tensor(2.0).igamma(3.0).item(), 4)
        0.8009
        """
        return _incomplete(self, other, False)

    def igammac(self, other: TensorLike) -> Self:
        """Return the regularized upper incomplete gamma function, 1 - igamma(self, other), broadcast; it is accurate
        also where that is tiny.

        It is nan where either one is negative or nan, or both are 0 or infinite. Only `other` has a gradient;
        `backward` to self raises GradientError.

        >>> round(Tensor(2.0).igammac(3.0).item(), 4)
        0.1991
        """
        return _incomplete(self, other, True)


@in_float64
def _incomplete(a: Any, x: Any, is_upper: bool) -> Any:
    """Return the function for a float64 tensor `a`, and `x`, which is one or a number."""
    x = x if isinstance(x, TensorBase) else a._kind.full((), x, dtype=dtypes.float64)
    name, sign = ("igammac", -1.0) if is_upper else ("igamma", 1.0)
    wrap = a._kind._wrap

    def derivative(g: UOp, y: UOp, a: UOp, x: UOp) -> tuple[UOp, UOp]:
        return g, build("MUL", g, (_density(wrap(a), wrap(x)) * sign)._uop)  # the first one is refused

    y = _values(a.detach(), x.detach(), is_upper)
    a = refuse_gradient(a, f"{name} by its first argument")
    return a._wrap(closed_alone(y._uop, (a._uop, x._uop), derivative))


def _values(a: Any, x: Any, is_upper: bool) -> Any:
    is_lower = x <= a.maximum(1.0)  # then the lower function is computed
    moved = is_lower.where(a + 1.0, a)
    integral, _ = _integrals(moved, x, is_lower)
    lead = _lead(a, x)
    y = (lead * is_lower.where(1.0 + x * integral, a * integral)).minimum(1.0)
    y = is_lower.where(1.0 - y, y) if is_upper else is_lower.where(y, 1.0 - y)
    if is_upper:
        y = ((a <= 1.0) & (x <= 1.0)).where(_upper_of_small(a, x), y)
    at_0, at_inf = (1.0, 0.0) if is_upper else (0.0, 1.0)
    y = x.eq(0.0).where(at_0, y)
    y = x.eq(inf).where(at_inf, a.eq(inf).where(at_0, y))
    y = a.eq(0.0).where(at_inf, y)
    is_undefined = (a < 0.0) | (x < 0.0) | (a.eq(0.0) & x.eq(0.0)) | (a.eq(inf) & x.eq(inf)) | a.isnan() | x.isnan()
    return is_undefined.where(nan, y)


def _integrals(a: Any, x: Any, is_lower: Any) -> tuple[Any, Any]:
    """Return the integral over v > 0 of exp(-|x - a| v - x (exp(w) - 1 - w)), and that with the factor v; w is -v where
    `is_lower`, for x <= a, and v elsewhere, for x >= a.

    Times x**a exp(-x) / gamma(a) the first one is the lower or upper function.
    """
    u = a._kind.arange(NODES, dtype=dtypes.float64) * STEP + FIRST
    small = (-u).exp()
    nodes = (u - small).exp()
    weights = nodes * (small + 1.0) * STEP
    a, x, is_lower = (t.unsqueeze(-1) for t in (a, x, is_lower))
    distance = (x - a).abs()
    scale = 1.0 / (distance + x.sqrt())
    v = nodes * scale
    f = (-distance * v - x * _expm1_rest(is_lower.where(-v, v).minimum(MOST))).exp() * weights
    return (f * scale).sum(-1), (f * v * scale).sum(-1)


def _expm1_rest(w: Any) -> Any:
    """Return exp(w) - 1 - w without cancellation near 0."""
    is_near = w.abs() < NEAR_ZERO
    z = is_near.where(w, 0.0)
    near = z * z * polynomial([1.0 / factorial(k + 2) for k in range(16)], z)
    return is_near.where(near, w.exp() - 1.0 - w)


def _log1p_rest(mu: Any) -> Any:
    """Return mu - log(1 + mu) without cancellation near 0, by log(1 + mu) = 2 artanh(s)."""
    is_near = mu.abs() < NEAR_ONE
    z = is_near.where(mu, 0.0)
    s = z / (z + 2.0)
    near = z * s - s * s * s * polynomial([2.0 / (2 * k + 3) for k in range(TERMS)], s * s)
    return is_near.where(near, mu - mu.log1p())


def _lead(a: Any, x: Any) -> Any:
    """Return x**a exp(-x) / gamma(a + 1), for large `a` by Stirling's formula, as a distance from the maximum."""
    is_far = a >= FAR
    b = is_far.where(1.0, a)
    near = (b * x.log() - x - _lgamma(b + 1.0)).exp()
    c = is_far.where(a, FAR)
    r = 1.0 / c
    tail = polynomial([v / ((2 * k + 1) * (2 * k + 2)) for k, v in enumerate(BERNOULLI)], r * r) * r
    far = (-c * _log1p_rest((x - c) * r) - tail).exp() / (c * (2.0 * pi)).sqrt()
    return is_far.where(far, near)


def _upper_of_small(a: Any, x: Any) -> Any:
    """Return the upper function for `a` and `x` up to 1: 1 - x**a / gamma(a + 1) (1 - a x / (a + 1) + ...)."""
    is_low = a < 0.5
    step = is_low.where(a, a - 1.0)  # log of gamma(2 + step) is a series
    logarithm = a * x.log() - step * chebyshev(LGAMMA, step * 2.0) + is_low.where(a.log1p(), 0.0)
    rest = a * 0.0
    for n in reversed(range(1, TERMS)):
        rest = ((-1.0) ** (n + 1) / factorial(n) / (a + n) + rest) * x
    return a * rest * logarithm.exp() - logarithm.expm1()


def _density(a: Any, x: Any) -> Any:
    """Return x**(a - 1) exp(-x) / gamma(a), the derivative of the lower function by `x`."""
    at_0 = (a < 1.0).where(inf, a.eq(1.0).where(1.0, 0.0))
    return x.eq(0.0).where(at_0, x.eq(inf).where(0.0, _lead(a, x) * a / x))


def log_variate(logarithm: Any, concentration: Any) -> Any:
    """Return the tensor `logarithm` of gamma variates with its derivative by the tensor `concentration`.

    It is the implicit one: a variate is the inverse of its distribution function at a share that does not depend on the
    concentration. It is computed in float64.
    """

    def slope(y: Any, a: Any) -> Any:
        wide = (y.cast(dtypes.float64), a.cast(dtypes.float64))
        return _log_slope(*wide).cast(y.dtype)

    return with_slope(logarithm, concentration, slope)


def _log_slope(logarithm: Any, a: Any) -> Any:
    """Return the derivative by `a` of the logarithm of a gamma variate of concentration `a`."""
    x = logarithm.exp()
    is_lower = x <= a.maximum(1.0)
    moved = is_lower.where(a + 1.0, a)
    first, second = _integrals(moved, x, is_lower)
    ratio = _digamma(moved) - logarithm  # of the logarithm of `lead` by the concentration, negated
    lower = (ratio * (1.0 + x * first) + x * second) / a
    return is_lower.where(lower, second - ratio * first)


__all__ = ["IncompleteGammaMixin", "log_variate"]

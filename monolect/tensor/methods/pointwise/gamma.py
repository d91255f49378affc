"""The gamma function's family: its logarithm, derivatives of that, zeta functions.

Source: recurrences move an argument to where a Chebyshev series (`coefficients`) or an asymptotic series is exact to
float64; reflection formulas serve negative arguments.
"""

from __future__ import annotations

from math import factorial, inf, log, nan, pi
from typing import Any, Self

from monolect.base.errors import ArgumentError
from monolect.tensor.base import TensorBase, TensorLike, as_int
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.pointwise.coefficients import DIGAMMA, DIGAMMA_ROOT, LGAMMA
from monolect.tensor.methods.pointwise.series import chebyshev, in_float64, polynomial, with_slope

FAR = 10.0  # from here on, asymptotic series are exact to float64
STEPS = 12  # terms of a sum that are added before its tail is a series
MOST_BELOW = 32  # polygamma of n > 1 moves arguments below 0 up by so much
MOST_DERIVATIVES = 170  # the factorial of a greater number is no float64
MOST_DIMENSIONS = 1000  # terms of `mvlgamma`, each a part of one formula
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)


@guard_methods
class GammaMixin(TensorBase):
    """Methods of Tensor around the gamma function; integers give float32."""

    __slots__ = ()

    @in_float64
    def lgamma(self) -> Self:
        """Return the logarithm of the absolute value of the gamma function; infinity at 0, -1, -2, ...

        >>> Tensor([1.0, 5.0]).lgamma().exp().round().tolist()
        [1.0, 24.0]
        """
        return with_slope(_lgamma(self), self, lambda y, x: _digamma(x))

    @in_float64
    def digamma(self) -> Self:
        """Return the derivative of `lgamma`; nan at -1, -2, ..., and an infinity at 0.

        >>> round(Tensor(1.0).digamma().item(), 4)
        -0.5772
        """
        return with_slope(_digamma(self), self, lambda y, x: _polygamma(1, x))

    def polygamma(self, n: int) -> Self:
        """Return the n-th derivative of `digamma`. Raises ArgumentError for n outside of 0..169.

        Above n = 1, arguments below -32 give nan.

        >>> round(Tensor(1.0).polygamma(1).item(), 4)
        1.6449
        """
        k = as_int(n, "n")
        if not 0 <= k < MOST_DERIVATIVES:
            raise ArgumentError("polygamma: n", expected=f"0..{MOST_DERIVATIVES - 1}", found=n)
        return self.digamma() if k == 0 else _polygamma_method(self, k)

    def mvlgamma(self, p: int) -> Self:
        """Return the logarithm of the multivariate gamma function of dimension `p`, for self above (p - 1) / 2.

        Raises ArgumentError for `p` outside of 1..1000.

        >>> round(Tensor(2.0).mvlgamma(2).item(), 4)
        0.4516
        """
        k = as_int(p, "p")
        if not 1 <= k <= MOST_DIMENSIONS:
            raise ArgumentError("mvlgamma: p", expected=f"1..{MOST_DIMENSIONS}", found=p)
        x: Any = self
        total: Self = x._kind.stack([(x - j / 2).lgamma() for j in range(k)]).sum(0) + k * (k - 1) / 4 * log(pi)
        return total

    @in_float64
    def zeta(self, other: TensorLike) -> Self:
        """Return the Hurwitz zeta function, the sum of 1 / (other + k) ** self over k from 0 on, broadcast.

        It is infinity for self = 1 or `other` a whole number below 1, and nan for self below 1 or another `other` below
        0. Only `other` has a gradient.

        >>> round(Tensor(2.0).zeta(1.0).item(), 4)
        1.6449
        """
        s: Any = self
        return _zeta(s, other if isinstance(other, TensorBase) else s * 0 + other)


def _lgamma(x: Any) -> Any:
    a = (x < 0).where(1 - x, x)
    is_far = a >= FAR
    b = is_far.where(2.0, a)
    is_small, is_low = b < 0.5, b < 1.5
    factor = is_small.where(b * (b + 1), is_low.where(b, 1.0))
    step, product = b, x * 0 + 1
    for _ in range(int(FAR) - 2):
        is_high = step >= 2.5
        step = is_high.where(step - 1, step)
        product = is_high.where(product * step, product)
    t = is_small.where(b, is_low.where(b - 1, step - 2))  # the argument is 2 + t
    near = t * chebyshev(LGAMMA, t * 2) + product.log() - factor.log()
    c = is_far.where(a, FAR)
    r = 1 / c
    tail = polynomial([v / ((2 * k + 1) * (2 * k + 2)) for k, v in enumerate(BERNOULLI)], r * r) * r
    far = (c - 0.5) * c.log() - c + log(2 * pi) / 2 + tail
    y = is_far.where(far, near)
    y = (x < 0).where(log(pi) - ((x - x.round()) * pi).sin().abs().log() - y, y)
    return x.isinf().where(inf, y)


def _digamma(x: Any) -> Any:
    a = (x < 0).where(1 - x, x)
    is_far = a >= FAR
    b = is_far.where(1.5, a)
    is_low = b < 1
    step, total = is_low.where(b + 1, b), is_low.where(-1 / b, 0.0)
    for _ in range(int(FAR) - 2):
        is_high = step > 2
        step = is_high.where(step - 1, step)
        total = total + is_high.where(1 / step, 0.0)
    root, rest = DIGAMMA_ROOT
    near = (step - root - rest) * chebyshev(DIGAMMA, step * 2 - 3) + total
    c = is_far.where(a, FAR)
    r = 1 / (c * c)
    far = c.log() - 0.5 / c - polynomial([v / (2 * k + 2) for k, v in enumerate(BERNOULLI)], r) * r
    y = is_far.where(far, near)
    fraction = x - x.round()
    y = (x < 0).where(y - pi / (fraction * pi).tan(), y)
    y = ((x < 0) & (fraction == 0)).where(nan, y)
    return (x == 0).where((x * 0 + inf).copysign(-x), (x == inf).where(inf, y))


@in_float64
def _polygamma_method(x: Any, n: int) -> Any:
    return with_slope(_polygamma(n, x), x, lambda y, x: _polygamma(n + 1, x))


def _polygamma(n: int, x: Any) -> Any:
    """Return (-1) ** (n + 1) * n! * zeta(n + 1, x) for n above 0."""
    sign = (-1) ** (n + 1) * float(factorial(n))
    if n == 1:  # reflected
        a = (x < 0.5).where(1 - x, x)
        sine = ((x - x.round()) * pi).sin()
        y = _whole_zeta(2, a)
        return (x == inf).where(0.0, (x < 0.5).where((pi / sine).square() - y, y))
    below = x * 0
    at = x
    for _ in range(MOST_BELOW):
        is_below = at < 0
        below = below + is_below.where((1 / at) ** (n + 1), 0.0)
        at = is_below.where(at + 1, at)
    y = (at < 0).where(nan, sign * (below + _whole_zeta(n + 1, at)))
    return (x == inf).where(0.0, y)


def _whole_zeta(s: int, q: Any) -> Any:
    """Return zeta(s, q) for a whole s above 1 and q of at least 0, by the formula of Euler and Maclaurin."""
    total = q * 0
    for k in reversed(range(STEPS)):
        total = total + (1 / (q + k)) ** s
    r = 1 / (q + STEPS)
    factor, tail = float(s), r * 0
    for j, b in enumerate(BERNOULLI):
        tail = tail + (b / factorial(2 * j + 2) * factor) * r ** (2 * j + 2)
        factor *= (s + 2 * j + 1) * (s + 2 * j + 2)
    return total + (r ** (s - 1)) * (1 / (s - 1) + 0.5 * r + tail)


def _zeta(s: Any, q: Any) -> Any:
    total = s * 0 + q * 0
    for k in reversed(range(STEPS)):
        total = total + (q + k) ** (-s)
    w = q + STEPS
    r = 1 / w
    factor, tail = s, r * 0
    for j, b in enumerate(BERNOULLI):
        tail = tail + b / factorial(2 * j + 2) * factor * r ** (2 * j + 2)
        factor = factor * (s + 2 * j + 1) * (s + 2 * j + 2)
    y = total + w ** (1 - s) * (1 / (s - 1) + 0.5 * r + tail)
    y = (q <= 0).where((q == q.floor()).where(inf, nan), y)
    return (s == 1).where(inf, (s < 1).where(nan, y))


__all__ = ["GammaMixin"]

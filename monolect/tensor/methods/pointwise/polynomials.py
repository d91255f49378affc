"""Orthogonal polynomials of a given degree, by their recurrences.

What it is not: the degree is an int, not a tensor, since each degree is a formula of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from monolect.base.errors import ArgumentError
from monolect.tensor.base import TensorBase, as_int
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.pointwise.series import in_float64

MOST_DEGREES = 1000  # steps of a recurrence, each a part of one formula


@guard_methods
class PolynomialsMixin(TensorBase):
    """Methods of Tensor that are orthogonal polynomials; integers give float32."""

    __slots__ = ()

    @in_float64
    def chebyshev_polynomial_t(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the first kind of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).chebyshev_polynomial_t(2).item()
        -0.5
        """
        return _chebyshev(self, n, lambda x: x)

    @in_float64
    def chebyshev_polynomial_u(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the second kind of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).chebyshev_polynomial_u(2).item()
        0.0
        """
        return _chebyshev(self, n, lambda x: 2 * x)

    @in_float64
    def chebyshev_polynomial_v(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the third kind of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).chebyshev_polynomial_v(2).item()
        -1.0
        """
        return _chebyshev(self, n, lambda x: 2 * x - 1)

    @in_float64
    def chebyshev_polynomial_w(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the fourth kind of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).chebyshev_polynomial_w(2).item()
        1.0
        """
        return _chebyshev(self, n, lambda x: 2 * x + 1)

    @in_float64
    def shifted_chebyshev_polynomial_t(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the first kind at 2 * self - 1 of degree `n`, an int; 0 for a negative
        degree.

        >>> Tensor(0.75).shifted_chebyshev_polynomial_t(2).item()
        -0.5
        """
        return _chebyshev(_shifted(self), n, lambda x: x)

    @in_float64
    def shifted_chebyshev_polynomial_u(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the second kind at 2 * self - 1 of degree `n`, an int; 0 for a negative
        degree.

        >>> Tensor(0.75).shifted_chebyshev_polynomial_u(2).item()
        0.0
        """
        return _chebyshev(_shifted(self), n, lambda x: 2 * x)

    @in_float64
    def shifted_chebyshev_polynomial_v(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the third kind at 2 * self - 1 of degree `n`, an int; 0 for a negative
        degree.

        >>> Tensor(0.75).shifted_chebyshev_polynomial_v(2).item()
        -1.0
        """
        return _chebyshev(_shifted(self), n, lambda x: 2 * x - 1)

    @in_float64
    def shifted_chebyshev_polynomial_w(self, n: int) -> Self:
        """Return the Chebyshev polynomial of the fourth kind at 2 * self - 1 of degree `n`, an int; 0 for a negative
        degree.

        >>> Tensor(0.75).shifted_chebyshev_polynomial_w(2).item()
        1.0
        """
        return _chebyshev(_shifted(self), n, lambda x: 2 * x + 1)

    @in_float64
    def hermite_polynomial_h(self, n: int) -> Self:
        """Return the Hermite polynomial, of physicists, of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).hermite_polynomial_h(2).item()
        -1.0
        """
        return _recurrence(self, n, lambda x: 2 * x, lambda k, x, a, b: 2 * (x * a - k * b))

    @in_float64
    def hermite_polynomial_he(self, n: int) -> Self:
        """Return the Hermite polynomial, of the normal distribution, of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).hermite_polynomial_he(2).item()
        -0.75
        """
        return _recurrence(self, n, lambda x: x, lambda k, x, a, b: x * a - k * b)

    @in_float64
    def laguerre_polynomial_l(self, n: int) -> Self:
        """Return the Laguerre polynomial of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).laguerre_polynomial_l(2).item()
        0.125
        """
        return _recurrence(self, n, lambda x: 1 - x, lambda k, x, a, b: ((2 * k + 1 - x) * a - k * b) / (k + 1))

    @in_float64
    def legendre_polynomial_p(self, n: int) -> Self:
        """Return the Legendre polynomial of degree `n`, an int; 0 for a negative degree.

        >>> Tensor(0.5).legendre_polynomial_p(2).item()
        -0.125
        """
        return _recurrence(self, n, lambda x: x, lambda k, x, a, b: ((2 * k + 1) * x * a - k * b) / (k + 1))


def _shifted(x: Any) -> Any:
    return 2 * x - 1


def _chebyshev(x: Any, n: Any, first: Callable[[Any], Any]) -> Any:
    return _recurrence(x, n, first, lambda k, x, a, b: 2 * x * a - b)


def _recurrence(x: Any, n: Any, first: Callable[[Any], Any], step: Callable[[int, Any, Any, Any], Any]) -> Any:
    """Return the polynomial of degree `n`: 1, then `first(x)`, then `step(k, x, a, b)` of the last two, `a` of degree
    k.

    Raises ArgumentError unless `n` is an int of at most MOST_DEGREES.
    """
    degree = as_int(n, "n")
    if degree > MOST_DEGREES:
        raise ArgumentError("the degree of a polynomial", expected=f"at most {MOST_DEGREES}", found=n)
    if degree < 1:
        return x.full_like(0.0 if degree < 0 else 1.0)
    before, last = x.ones_like(), first(x)
    for k in range(1, degree):
        last, before = step(k, x, last, before), last
    return last


__all__ = ["PolynomialsMixin"]

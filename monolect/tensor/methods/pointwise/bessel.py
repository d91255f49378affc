"""Bessel functions of orders 0 and 1, modified ones, and the Airy function Ai.

Source: Chebyshev series near 0 and, divided by the leading terms, far from it (`coefficients`).
"""

from __future__ import annotations

from math import inf, nan, pi, sqrt
from typing import Any, Self

from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.pointwise import coefficients as c
from monolect.tensor.methods.pointwise.series import chebyshev, in_float64, polynomial, with_slope

FAR = 8.0  # bound between the two series
AIRY_FAR = 5.0  # Ai(x) has waves below minus this
AIRY_ZERO = 200.0  # Ai is 0 in float64 from here on
SERIES_OF_SINC = (1.0, -1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800, 1 / 6227020800)


@guard_methods
class BesselMixin(TensorBase):
    """Methods of Tensor that are Bessel functions; integers give float32."""

    __slots__ = ()

    @in_float64
    def i0(self) -> Self:
        """Return the modified Bessel function of the first kind of order 0.

        >>> round(Tensor(1.0).i0().item(), 4)
        1.2661
        """
        return with_slope(_i0e(self) * self.abs().exp(), self, lambda y, x: _i1e(x) * x.abs().exp())

    @in_float64
    def i0e(self) -> Self:
        """Return exp(-|self|) * i0(self), which does not overflow.

        >>> round(Tensor(1.0).i0e().item(), 4)
        0.4658
        """
        return with_slope(_i0e(self), self, lambda y, x: _i1e(x) - x.sign() * y)

    @in_float64
    def i1(self) -> Self:
        """Return the modified Bessel function of the first kind of order 1.

        >>> round(Tensor(1.0).i1().item(), 4)
        0.5652
        """
        return with_slope(
            _i1e(self) * self.abs().exp(),
            self,
            lambda y, x: (x.abs() < 1e-20).where(0.5, _i0e(x) * x.abs().exp() - y / x),
        )

    @in_float64
    def i1e(self) -> Self:
        """Return exp(-|self|) * i1(self), which does not overflow.

        >>> round(Tensor(1.0).i1e().item(), 4)
        0.2079
        """
        return with_slope(_i1e(self), self, lambda y, x: (x.abs() < 1e-20).where(0.5, _i0e(x) - y * (x.sign() + 1 / x)))

    def modified_bessel_i0(self) -> Self:
        """Return the modified Bessel function of the first kind of order 0, as `i0`.

        >>> round(Tensor(1.0).modified_bessel_i0().item(), 4)
        1.2661
        """
        return self.i0()

    def modified_bessel_i1(self) -> Self:
        """Return the modified Bessel function of the first kind of order 1, as `i1`.

        >>> round(Tensor(1.0).modified_bessel_i1().item(), 4)
        0.5652
        """
        return self.i1()

    @in_float64
    def modified_bessel_k0(self) -> Self:
        """Return the modified Bessel function of the second kind of order 0: infinity at 0, nan below.

        >>> round(Tensor(1.0).modified_bessel_k0().item(), 4)
        0.421
        """
        return _k(self, 0, False)

    @in_float64
    def modified_bessel_k1(self) -> Self:
        """Return the modified Bessel function of the second kind of order 1: infinity at 0, nan below.

        >>> round(Tensor(1.0).modified_bessel_k1().item(), 4)
        0.6019
        """
        return _k(self, 1, False)

    @in_float64
    def scaled_modified_bessel_k0(self) -> Self:
        """Return exp(self) * modified_bessel_k0(self), which does not vanish.

        >>> round(Tensor(1.0).scaled_modified_bessel_k0().item(), 4)
        1.1445
        """
        return _k(self, 0, True)

    @in_float64
    def scaled_modified_bessel_k1(self) -> Self:
        """Return exp(self) * modified_bessel_k1(self), which does not vanish.

        >>> round(Tensor(1.0).scaled_modified_bessel_k1().item(), 4)
        1.6362
        """
        return _k(self, 1, True)

    @in_float64
    def bessel_j0(self) -> Self:
        """Return the Bessel function of the first kind of order 0.

        >>> round(Tensor(1.0).bessel_j0().item(), 4)
        0.7652
        """
        return _waves(self.abs(), 0)[0]

    @in_float64
    def bessel_j1(self) -> Self:
        """Return the Bessel function of the first kind of order 1.

        >>> round(Tensor(1.0).bessel_j1().item(), 4)
        0.4401
        """
        x: Any = self
        return (x < 0).where(-1.0, 1.0) * _waves(x.abs(), 1)[0]

    @in_float64
    def bessel_y0(self) -> Self:
        """Return the Bessel function of the second kind of order 0: -infinity at 0, nan below.

        >>> round(Tensor(1.0).bessel_y0().item(), 4)
        0.0883
        """
        x: Any = self
        return (x < 0).where(nan, x.eq(0).where(-inf, _waves(x, 0)[1]))

    @in_float64
    def bessel_y1(self) -> Self:
        """Return the Bessel function of the second kind of order 1: -infinity at 0, nan below.

        >>> round(Tensor(1.0).bessel_y1().item(), 4)
        -0.7812
        """
        x: Any = self
        return (x < 0).where(nan, x.eq(0).where(-inf, _waves(x, 1)[1]))

    @in_float64
    def airy_ai(self) -> Self:
        """Return the Airy function Ai: the solution of y'' = self * y that vanishes at infinity.

        The relative error of a result far from 0, where Ai decays or oscillates, grows with |self|^1.5.

        >>> round(Tensor(1.0).airy_ai().item(), 4)
        0.1353
        """
        return _airy(self)

    @in_float64
    def spherical_bessel_j0(self) -> Self:
        """Return sin(self) / self, and 1 at 0.

        >>> round(Tensor(1.0).spherical_bessel_j0().item(), 4)
        0.8415
        """
        x: Any = self
        is_small = x.abs() < 0.5
        near = polynomial(SERIES_OF_SINC, is_small.where(x, 0.0).square())
        return x.isinf().where(0.0, is_small.where(near, x.sin() / is_small.where(1.0, x)))


def _i0e(x: Any) -> Any:
    a = x.abs()
    is_far = a > FAR
    near = a.eq(0).where(1.0, chebyshev(c.I0_NEAR, is_far.where(1.0, a) / 4 - 1))
    far = chebyshev(c.I0_FAR, 16 / is_far.where(a, FAR) - 1) / is_far.where(a, FAR).sqrt()
    return x.isnan().where(nan, is_far.where(far, near))


def _i1e(x: Any) -> Any:
    a = x.abs()
    is_far = a > FAR
    near = chebyshev(c.I1_NEAR, is_far.where(1.0, a) / 4 - 1) * a
    far = chebyshev(c.I1_FAR, 16 / is_far.where(a, FAR) - 1) / is_far.where(a, FAR).sqrt()
    return x.isnan().where(nan, is_far.where(far, near)) * (x < 0).where(-1.0, 1.0)


def _k(x: Any, order: int, is_scaled: bool) -> Any:
    """Return the modified Bessel function of the second kind of order 0 or 1; times exp(x) if `is_scaled`."""
    is_far = x > 2
    a = is_far.where(1.0, x)
    logarithm = (a / 2).log()
    if order == 0:
        near = chebyshev(c.K0_NEAR, a * a / 2 - 1) - logarithm * _i0e(a) * a.exp()
    else:
        near = chebyshev(c.K1_NEAR, a * a / 2 - 1) / a + logarithm * _i1e(a) * a.exp()
    b = is_far.where(x, 2.0)
    far = chebyshev(c.K0_FAR if order == 0 else c.K1_FAR, 4 / b - 1) / b.sqrt()
    y = is_far.where(far, near * a.exp()) if is_scaled else is_far.where(far * (-b).exp(), near)
    return (x < 0).where(nan, x.eq(0).where(inf, x.isnan().where(nan, y)))


def _waves(x: Any, order: int) -> tuple[Any, Any]:
    """Return the Bessel functions of the first and second kind of order 0 or 1, for x of at least 0."""
    first, second, p, q = (c.J0_NEAR, c.Y0_NEAR, c.P0, c.Q0) if order == 0 else (c.J1_NEAR, c.Y1_NEAR, c.P1, c.Q1)
    is_far = x > FAR
    a = is_far.where(1.0, x)
    t = a * a / 32 - 1
    j = chebyshev(first, t) * (1 if order == 0 else a)
    regular = chebyshev(second, t) * (1 if order == 0 else a)
    y = regular + 2 / pi * (a.log() * j - (0 if order == 0 else 1 / a))
    b = is_far.where(x, FAR)
    t, phase, scale = 128 / (b * b) - 1, b - pi / 4 - order * pi / 2, (2 / (pi * b)).sqrt()
    cosine_part, sine_part = chebyshev(p, t), chebyshev(q, t) / b
    far_j = scale * (cosine_part * phase.cos() - sine_part * phase.sin())
    far_y = scale * (cosine_part * phase.sin() + sine_part * phase.cos())
    j, y = (is_far.where(f, n) for f, n in ((far_j, j), (far_y, y)))
    return x.isnan().where(nan, x.isinf().where(0.0, j)), x.isnan().where(nan, x.isinf().where(0.0, y))


def _airy(x: Any) -> Any:
    """Return Ai(x): a series near 0, one of the factor of exp(-z) above, and amplitudes of two waves below."""
    is_low, is_high = x < -AIRY_FAR, x > 1
    near = chebyshev(c.AIRY_NEAR, ((is_low | is_high).where(0.0, x) + 2) / 3)
    b = is_high.where(x, 1.0).minimum(AIRY_ZERO)
    power = b * b.sqrt()
    high = chebyshev(c.AIRY_FAR, 2 / power - 1) * (power * (-2 / 3)).exp() / b.sqrt().sqrt() * (0.5 / sqrt(pi))
    is_wave = is_low & (x > -inf)
    b = is_wave.where(-x, AIRY_FAR)
    z = b * b.sqrt() * (2 / 3)
    t, phase = 250 / (b * b * b) - 1, z + pi / 4
    waves = chebyshev(c.AIRY_P, t) * phase.sin() - chebyshev(c.AIRY_Q, t) / z * phase.cos()
    low = is_wave.where(waves / b.sqrt().sqrt() * (1 / sqrt(pi)), 0.0)
    return x.isnan().where(nan, is_low.where(low, is_high.where(high, near)))


__all__ = ["BesselMixin"]

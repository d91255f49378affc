"""Functions of the normal distribution and of entropies: inverses of erf, logarithms of tails, x log(y)."""

from __future__ import annotations

from math import inf, nan, pi, sqrt
from typing import Any, Self

from monolect.autograd import special
from monolect.base.dtype import dtypes
from monolect.tensor.base import TensorBase, TensorLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import float_pair, floating
from monolect.tensor.methods.pointwise.coefficients import ERFCX
from monolect.tensor.methods.pointwise.series import chebyshev, in_float64, with_slope

ROOT_PI = sqrt(pi)
WINITZKI = 0.147  # the constant of Winitzki's formula for the inverse of erf, within 0.002


@guard_methods
class NormalMixin(TensorBase):
    """Methods of Tensor around the normal distribution; integers give float32."""

    __slots__ = ()

    @in_float64
    def erfinv(self) -> Self:
        """Return the inverse of `erf`: an infinity at -1 and 1, nan outside.

        >>> Tensor([0.0, 1.0]).erfinv().tolist(), round(Tensor(0.5).erfinv().item(), 4)
        ([0.0, inf], 0.4769)
        """
        return with_slope(_erfinv(self), self, lambda y, x: (y * y).exp() * (ROOT_PI / 2))

    @in_float64
    def erfcx(self) -> Self:
        """Return exp(self ** 2) * erfc(self), which neither overflows nor vanishes for positive numbers.

        >>> round(Tensor(10.0).erfcx().item(), 4)
        0.0561
        """
        return with_slope(_erfcx(self), self, lambda y, x: 2 * (x * y - 1 / ROOT_PI))

    def ndtr(self) -> Self:
        """Return the area of the standard normal distribution below self.

        >>> Tensor(0.0).ndtr().item()
        0.5
        """
        return self._wrap(special.normal_cdf(floating(self)))

    @in_float64
    def log_ndtr(self) -> Self:
        """Return the logarithm of `ndtr`, accurate also where that is tiny.

        >>> round(Tensor(-40.0).log_ndtr().item(), 2)
        -804.61
        """
        x: Any = self
        z = x * sqrt(0.5)
        low = (x < -1).where(z, -1.0)
        y = (x < -1).where((_erfcx(-low) / 2).log() - low * low, _log_upper(z))
        return with_slope(y, x, lambda y, x: sqrt(2 / pi) / _erfcx(-x * sqrt(0.5)))

    @in_float64
    def ndtri(self) -> Self:
        """Return the inverse of `ndtr`: an infinity at 0 and 1, nan outside.

        >>> round(Tensor(0.975).ndtri().item(), 2)
        1.96
        """
        x: Any = self
        tail = (x < 0.5).where(x, 1 - x)
        is_tail = tail < 0.25
        y = is_tail.where(-_erfcinv(is_tail.where(2 * tail, 0.5)), _erfinv(is_tail.where(0.0, 2 * x - 1)))
        y = sqrt(2) * (is_tail & (x > 0.5)).where(-y, y)
        return with_slope(y, x, lambda y, x: (y * y / 2).exp() * sqrt(2 * pi))

    def entr(self) -> Self:
        """Return -self * log(self): 0 at 0, -infinity below.

        >>> Tensor([0.0, -1.0]).entr().tolist()
        [0.0, -inf]
        """
        x: Any = self._wrap(floating(self))
        wide = x if x.dtype.bits >= 32 else x.float()
        y = (wide > 0).where(-wide * wide.log(), wide.eq(0).where(0.0, wide.isnan().where(nan, -inf)))
        return with_slope(y, wide, lambda y, x: -x.log() - 1).cast(x.dtype)

    def xlogy(self, other: TensorLike) -> Self:
        """Return self * log(other), broadcast; 0 where self is 0, unless `other` is nan. Integers give float32.

        >>> Tensor([0.0, 2.0]).xlogy(Tensor([0.0, 1.0])).tolist()
        [0.0, 0.0]
        """
        return _product_with(self, other, lambda y: y.log())

    def xlog1py(self, other: TensorLike) -> Self:
        """Return self * log(1 + other), broadcast; 0 where self is 0, unless `other` is nan. Integers give float32.

        >>> Tensor([0.0, 2.0]).xlog1py(Tensor([-1.0, 0.0])).tolist()
        [0.0, 0.0]
        """
        return _product_with(self, other, lambda y: y.log1p())


def _product_with(self: Any, other: Any, function: Any) -> Any:
    """Return self * function(other) as floats, 0 where self is 0 and `other` no nan."""
    a, b = (self._wrap(u) for u in float_pair(self, other))
    d = a.dtype
    a, b = (t.cast(dtypes.float32) if d.bits < 32 else t for t in (a, b))
    is_zero = a.eq(0) & ~b.isnan() & ~function(b.detach()).isfinite()  # elsewhere self = 0 has a gradient
    value = a * function(is_zero.where(1.0, b))
    return is_zero.where(0.0, value).cast(d)


def _log_upper(z: Any) -> Any:
    """Return log(1 - erfc(z) / 2) for z above -1/sqrt(2)."""
    return (-z.erfc() / 2).log1p()


def _erfcx(x: Any) -> Any:
    above = x.abs()
    near = chebyshev(ERFCX, (above - 3.75) / (above + 3.75)) / (1 + 2 * above)
    near = above.isinf().where(0.0, near)
    return (x < 0).where(2 * (x * x).exp() - near, near)


def _guess(q: Any) -> Any:
    """Return the inverse of erfc at q in 0..1, within 0.002 of it."""
    logarithm = (q * (2 - q)).log()
    middle = logarithm / 2 + 2 / (pi * WINITZKI)
    return ((middle * middle - logarithm / WINITZKI).sqrt() - middle).clamp(min=0).sqrt()


def _erfcinv(q: Any) -> Any:
    """Return the inverse of erfc for q in 0..1/2: Newton's method on the logarithm."""
    y = _guess(q)
    for _ in range(3):
        y = y + (y.erfc() / q).log() * _erfcx(y) * (ROOT_PI / 2)
    return (q == 0).where(inf, (q < 0).where(nan, y))


def _erfinv(x: Any) -> Any:
    a = x.abs()
    is_tail = a > 0.5
    y = _guess(is_tail.where(0.5, 1 - a))
    for _ in range(2):  # Halley's method
        step = (y.erf() - is_tail.where(0.5, a)) * (ROOT_PI / 2) * (y * y).exp()
        y = y - step / (1 + y * step)
    y = is_tail.where(_erfcinv(is_tail.where(1 - a, 0.5)), y)
    return (x < 0).where(-y, y)


__all__ = ["NormalMixin"]

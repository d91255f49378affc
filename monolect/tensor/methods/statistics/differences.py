"""Differences between neighbours, derivatives of samples, and integrals by trapezoids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.tensor.base import Axes, Number, TensorBase, as_int
from monolect.tensor.guard import guard_methods


@guard_methods
class DifferencesMixin(TensorBase):
    """Methods of Tensor for differences and integrals along an axis."""

    __slots__ = ()

    def diff(
        self, n: int = 1, dim: int = -1, prepend: TensorBase | None = None, append: TensorBase | None = None
    ) -> Self:
        """Return the n-th differences between neighbours along axis `dim`, after `prepend` and `append` are joined.

        Differences of bools are bools. Raises ArgumentError for a negative `n`, ShapeError without an axis.

        >>> Tensor([1, 4, 9]).diff().tolist()
        [3, 5]
        """
        k = as_int(n, "n")
        if k < 0:
            raise ArgumentError("diff: n", expected="at least 0", found=n)
        if not self.ndim:
            raise ShapeError("diff", expected="at least 1 axis", found=self.shape)
        a = self._axis(dim)
        x: Any = self
        if k and (prepend is not None or append is not None):
            x = x._kind.cat([t for t in (prepend, x, append) if t is not None], dim=a)
        for _ in range(min(k, x.shape[a])):
            m = x.shape[a]
            high, low = x.narrow(a, 1, m - 1), x.narrow(a, 0, m - 1)
            x = high ^ low if x.dtype is dtypes.bool else high - low
        return x

    def trapezoid(self, x: TensorBase | None = None, *, dx: Number = 1, dim: int = -1) -> Self:
        """Return the integral of self along axis `dim` by trapezoids, at points `x` or at distances `dx`.

        Raises ShapeError without an axis or for points that do not fit.

        >>> Tensor([1.0, 2.0, 3.0]).trapezoid().item()
        4.0
        """
        parts, a = _trapezoids(self, "trapezoid", x, dx, dim)
        return parts.sum(a)

    trapz = trapezoid

    def cumulative_trapezoid(self, x: TensorBase | None = None, *, dx: Number = 1, dim: int = -1) -> Self:
        """Return the integrals of self along axis `dim` up to each point but the first one, by trapezoids.

        Raises ShapeError without an axis or for points that do not fit.

        >>> Tensor([1.0, 2.0, 3.0]).cumulative_trapezoid().tolist()
        [1.5, 4.0]
        """
        parts, a = _trapezoids(self, "cumulative_trapezoid", x, dx, dim)
        return parts.cumsum(a)

    def gradient(
        self,
        *,
        spacing: Number | Sequence[Number] | Sequence[TensorBase] | None = None,
        dim: Axes = None,
        edge_order: int = 1,
    ) -> tuple[Self, ...]:
        """Return the derivatives of samples along axes `dim`, by default all, by central differences.

        `spacing` is a distance, a distance for each axis, or a vector of points for each axis. `edge_order` 1 or 2 is
        the order of the one-sided differences at the ends. Raises ShapeError for an axis of fewer than edge_order + 1
        elements, ArgumentError for another order or number of spacings.

        >>> [t.tolist() for t in Tensor([1.0, 4.0, 9.0]).gradient()]
        [[3.0, 4.0, 5.0]]
        """
        if edge_order not in (1, 2):
            raise ArgumentError("gradient: edge_order", expected="1 or 2", found=edge_order)
        axes = range(self.ndim) if dim is None else [dim] if not isinstance(dim, Sequence) else dim
        axes = [self._axis(d) for d in axes]
        is_one = spacing is None or not isinstance(spacing, Sequence)
        given: Any = [1 if spacing is None else spacing] * len(axes) if is_one else spacing
        if len(given) != len(axes):
            raise ArgumentError("gradient: spacing", expected=f"{len(axes)} distances", found=len(given))
        x: Any = self if self.dtype.is_float else self.float()
        return tuple(_slope(x, a, h, edge_order) for a, h in zip(axes, given, strict=True))


def _trapezoids(y: Any, name: str, x: Any, dx: Any, dim: Any) -> tuple[Any, int]:
    """Return the areas between neighbours along axis `dim` of `y`, and the axis. Raises ShapeError where `x` does not
    fit.
    """
    if not y.ndim:
        raise ShapeError(name, expected="at least 1 axis", found=y.shape)
    a = y._axis(dim)
    n = y.shape[a]
    if n < 1:
        empty = y._kind.zeros(*(0 if i == a else s for i, s in enumerate(y.shape)), dtype=y.dtype, device=y.device)
        return (empty if y.dtype.is_float else empty.float()), a
    means = (y.narrow(a, 1, n - 1) + y.narrow(a, 0, n - 1)) / 2
    if x is None:
        return means * dx, a
    if x.ndim == 1:
        if x.shape[0] != n:
            raise ShapeError(f"{name}: x", expected=(n,), found=x.shape)
        return means * x.diff().reshape(*(-1 if i == a else 1 for i in range(y.ndim))), a
    b = a - y.ndim  # axes of `x` are counted from the last
    if -b > x.ndim or x.shape[b] != n:
        raise ShapeError(f"{name}: x", expected=f"{n} points", found=x.shape)
    return means * x.diff(dim=b), a


def _slope(x: Any, a: int, h: Any, order: int) -> Any:
    """Return the derivatives of `x` along axis `a` at distance `h`, a number or a vector of points."""
    n = x.shape[a]
    if n < order + 1:
        raise ShapeError("gradient", expected=f"at least {order + 1} elements along axis {a}", found=x.shape)

    def part(i: int, j: int) -> Any:
        return x.narrow(a, i, j - i)

    is_points = isinstance(h, TensorBase) and h.ndim > 0
    if is_points:
        d: Any = h
        d = d.diff().reshape(*(-1 if i == a else 1 for i in range(x.ndim)))

        def gap(i: int, j: int) -> Any:
            return d.narrow(a, i, j - i)

        one, two = gap(0, n - 2), gap(1, n - 1)
        low, middle, high = part(0, n - 2), part(1, n - 1), part(2, n)
        inner = (one * one * high + (two * two - one * one) * middle - two * two * low) / (one * two * (one + two))
        ends = [gap(0, 1), gap(n - 2, n - 1)]
    else:
        inner = (part(2, n) - part(0, n - 2)) / (2 * h)
        ends = [h, h]
    first, last = (part(1, 2) - part(0, 1)) / ends[0], (part(n - 1, n) - part(n - 2, n - 1)) / ends[1]
    if order == 2:
        nexts = [gap(1, 2), gap(n - 3, n - 2)] if is_points else ends
        first = _one_sided(part(0, 1), part(1, 2), part(2, 3), ends[0], nexts[0])
        last = -_one_sided(part(n - 1, n), part(n - 2, n - 1), part(n - 3, n - 2), ends[1], nexts[1])
    return x._kind.cat([first, inner, last] if n > 2 else [first, last], dim=a)


def _one_sided(y0: Any, y1: Any, y2: Any, h1: Any, h2: Any) -> Any:
    """Return the derivative of order 2 at the first of three points, at distances `h1` and then `h2`."""
    total = h1 + h2
    return -y0 * (2 * h1 + h2) / (h1 * total) + y1 * total / (h1 * h2) - y2 * h1 / (h2 * total)


__all__ = ["DifferencesMixin"]

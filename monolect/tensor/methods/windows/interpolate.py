"""Methods for resizing the last axes of a tensor: nearest, linear, cubic and area interpolation.

What it is for: each axis is a product with a sparse matrix (`taps`), whose weights follow from sizes and scales.
What it is not: it resizes no axis of symbolic size.
Invariant: source positions are those of PyTorch, computed in the dtype of the tensor, at least float32.
Source: names, defaults and formulas of torch.nn.functional.interpolate; the cubic kernel is that of Keys (1981).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil, floor
from typing import Any, Self

from monolect.base.dtype import accumulator
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.numpy import np
from monolect.graphs.windows import refuse_symbolic
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.windows.adaptive import AdaptiveMixin
from monolect.tensor.methods.windows.taps import KEPT_TABLES, Taps, weighted_sums

MAX_SIZE = 1 << 22  # elements of a new axis; a table lists the weights of each
_SPATIAL = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}  # axes that a mode resizes; others: 1 to 3
_ALIGNABLE = frozenset(_SPATIAL)
_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area")
_CUBIC = -0.75  # slope of the cubic kernel at 1
_CUBIC_ANTIALIAS = -0.5  # the same with antialias, as in PIL


def _scale(size: int, out: int, align: bool, factor: float | None, real: Any) -> Any:
    """Return the distance in the source of two neighbours of the result, as a number of the NumPy type `real`.

    `size` and `out` are the sizes of the axis before and after. `factor`: the user's scale factor, or None.
    """
    if align:
        return real(size - 1) / real(out - 1) if out > 1 else real(0)
    return real(1.0 / factor) if factor is not None and factor > 0 else real(size) / real(out)


def _positions(size: int, out: int, align: bool, factor: float | None, real: Any) -> Any:
    """Return the position in the source of each of the `out` elements, which is negative before its first centre."""
    scale, i = _scale(size, out, align, factor, real), np.arange(out).astype(real)
    return scale * i if align else scale * (i + real(0.5)) - real(0.5)


@lru_cache(KEPT_TABLES)
def _nearest(size: int, out: int, factor: float | None, exact: bool, real: Any) -> Taps:
    """Return the taps of nearest interpolation; `exact` compares the centres of elements instead of their starts."""
    scale = _scale(size, out, False, factor, real)
    i = np.arange(out).astype(real)
    source = np.floor((i + real(0.5)) * scale if exact else i * scale).astype(np.int64)
    return Taps(np.minimum(source, size - 1).reshape(-1, 1), None, size)


@lru_cache(KEPT_TABLES)
def _linear(size: int, out: int, align: bool, factor: float | None, real: Any) -> Taps:
    """Return the taps of linear interpolation."""
    if size == out:
        return Taps(np.arange(out).reshape(-1, 1), None, size)
    source = np.maximum(_positions(size, out, align, factor, real), real(0))
    low = np.minimum(source.astype(np.int64), size - 1)
    share = np.clip(source - low.astype(real), 0, 1)
    high = np.minimum(low + 1, size - 1)
    return Taps(np.stack([low, high], 1), np.stack([1 - share, share], 1), size)


def _keys(distance: Any, slope: float) -> Any:
    """Return the cubic kernel of Keys at distances of at least 0, with that slope at 1; it is 0 from 2 on."""
    d = distance
    near = ((slope + 2) * d - (slope + 3)) * d * d + 1
    far = ((slope * d - 5 * slope) * d + 8 * slope) * d - 4 * slope
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


@lru_cache(KEPT_TABLES)
def _cubic(size: int, out: int, align: bool, factor: float | None, real: Any) -> Taps:
    """Return the taps of cubic interpolation; elements beyond an end repeat the last."""
    if size == out:
        return Taps(np.arange(out).reshape(-1, 1), None, size)
    source = _positions(size, out, align, factor, real)
    low = np.minimum(np.floor(source).astype(np.int64), size - 1)
    share = np.clip(source - low.astype(real), 0, 1)
    around = np.arange(-1, 3)
    index = np.clip(low[:, None] + around, 0, size - 1)
    return Taps(index, _keys(np.abs(share[:, None] - around), _CUBIC), size)


@lru_cache(KEPT_TABLES)
def _antialiased(size: int, out: int, align: bool, factor: float | None, real: Any, cubic: bool) -> Taps:
    """Return the taps of linear or `cubic` interpolation whose kernel is as wide as the source of an element."""
    if size == out:
        return Taps(np.arange(out).reshape(-1, 1), None, size)
    scale = _scale(size, out, align, factor, real)
    wide = max(scale, real(1))
    support = real(2 if cubic else 1) * wide
    centre = scale * (np.arange(out).astype(real) + real(0.5))
    first = np.maximum((centre - support + real(0.5)).astype(np.int64), 0)
    stop = np.minimum((centre + support + real(0.5)).astype(np.int64), size)
    index = first[:, None] + np.arange(ceil(support) * 2 + 1)
    distance = np.abs((index - centre[:, None] + real(0.5)) / wide)
    inside = index < stop[:, None]
    weight = _keys(distance, _CUBIC_ANTIALIAS) if cubic else np.maximum(1 - distance, 0)
    weight = np.where(inside, weight, 0.0)
    total = weight.sum(1, keepdims=True)
    return Taps(np.where(inside, index, -1), weight / np.where(total == 0, 1, total), size)


@guard_methods
class InterpolateMixin(AdaptiveMixin):
    """Methods of Tensor that resize (N, C, spatial axes)."""

    __slots__ = ()

    def interpolate(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Self:
        """Return self, (N, C, 1 to 3 spatial axes), with the spatial axes resized.

        The new sizes are `size`, or the old ones times `scale_factor`, rounded down; each is a number for all axes, or
        one for each. `mode` is nearest, nearest-exact, linear (1 axis), bilinear or bicubic (2), trilinear (3) or area.
        With `align_corners` the centres of the first and of the last elements stay, and distances are ratios of
        size - 1. Positions follow from `scale_factor` itself, with `recompute_scale_factor` from the sizes.
        `antialias` (bilinear and bicubic) widens the kernel where an axis shrinks. Raises ArgumentError for another
        mode or options that do not fit it, ShapeError for other ranks and symbolic sizes, DTypeError for integers
        unless the mode is nearest or nearest-exact.

        >>> Tensor([[[1.0, 2.0]]]).interpolate(scale_factor=2).tolist()
        [[[1.0, 1.0, 2.0, 2.0]]]
        >>> Tensor([[[1.0, 3.0]]]).interpolate(3, mode="linear", align_corners=True).tolist()
        [[[1.0, 2.0, 3.0]]]
        """
        n = self.ndim - 2
        if mode not in _MODES:
            raise ArgumentError("interpolate: mode", expected=" or ".join(_MODES), found=repr(mode))
        if not 1 <= n <= 3 or _SPATIAL.get(mode, n) != n:
            axes = _SPATIAL.get(mode, "1 to 3")
            expected = f"(batch, channels, {axes} axes) for mode {mode}"
            raise ShapeError("interpolate: rank of the input", expected=expected, found=self.shape)
        if align_corners is not None and mode not in _ALIGNABLE:
            expected = "None, as the mode has no corners to align"
            raise ArgumentError("interpolate: align_corners", expected=expected, found=align_corners)
        if antialias and mode not in ("bilinear", "bicubic"):
            raise ArgumentError("interpolate: antialias", expected="mode bilinear or bicubic", found=mode)
        sizes, factors = self._new_sizes(size, scale_factor, recompute_scale_factor)
        if mode == "area":
            return self._adaptive_means(n, sizes, "interpolate")
        if not mode.startswith("nearest"):
            self._check_float(f"interpolate with mode {mode}")
        return self._resized(sizes, factors, mode, bool(align_corners), antialias)

    def _new_sizes(self, size: Any, factor: Any, recompute: bool | None) -> tuple[list[int], list[float | None]]:
        """Return for each spatial axis its new size, and the scale factor that positions follow from, or None.

        The arguments are those of `interpolate`. Raises ArgumentError or ShapeError for values that do not fit.
        """
        spatial = self.shape[2:]
        n = len(spatial)
        refuse_symbolic(spatial, "interpolate", "int sizes")
        if (size is None) == (factor is None):
            raise ArgumentError("interpolate: size", expected="either size or scale_factor", found=(size, factor))
        given = size if factor is None else factor
        values = list(given) if isinstance(given, tuple | list) else [given] * n
        if len(values) != n:
            raise ShapeError("interpolate: size", expected=f"a number or {n} numbers", found=given)
        factors: list[float | None] = [None] * n
        if factor is None:
            if recompute:
                raise ArgumentError("interpolate: recompute_scale_factor", expected="scale_factor", found="size")
            sizes = values
        else:
            sizes = [floor(float(s) * v) for s, v in zip(spatial, values, strict=True)]
            factors = factors if recompute else [float(v) for v in values]
        if any(not isinstance(s, int) or not 1 <= s <= MAX_SIZE for s in sizes) or 0 in spatial:
            expected = f"sizes of at least 1, at most {MAX_SIZE}"
            raise ArgumentError("interpolate: size", expected=expected, found=(spatial, sizes))
        return sizes, factors

    def _resized(self, sizes: list[int], factors: list[Any], mode: str, align: bool, antialias: bool) -> Self:
        """Return self with the spatial axes resized to `sizes`; the arguments are those of `interpolate`, checked."""
        wide = accumulator(self.dtype) if self.dtype.is_float else self.dtype
        real = np.float64 if wide.bits == 64 and wide.is_float else np.float32
        x: Any = self
        if mode.startswith("nearest"):
            exact = mode == "nearest-exact"
            make: Callable[..., Taps] = lambda s, o, f: _nearest(s, o, f, exact, np.float32)  # noqa: E731
        else:
            x = self.cast(wide)
            cubic = mode == "bicubic"
            if antialias:
                make = lambda s, o, f: _antialiased(s, o, align, f, real, cubic)  # noqa: E731
            else:
                make = lambda s, o, f: (_cubic if cubic else _linear)(s, o, align, f, real)  # noqa: E731
        taps = [make(s, o, f) for s, o, f in zip(self.shape[2:], sizes, factors, strict=True)]
        return weighted_sums(x, 2, taps).cast(self.dtype)

    def upsample(
        self,
        size: int | Sequence[int] | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ) -> Self:
        """Return `self.interpolate(size, scale_factor, mode, align_corners)`.

        >>> Tensor([[[1, 2]]]).upsample(4).tolist()
        [[[1, 1, 2, 2]]]
        """
        return self.interpolate(size, scale_factor, mode, align_corners)

    def upsample_nearest(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> Self:
        """Return `self.interpolate(size, scale_factor, mode="nearest")`.

        >>> Tensor([[[1, 2]]]).upsample_nearest(scale_factor=2).tolist()
        [[[1, 1, 2, 2]]]
        """
        return self.interpolate(size, scale_factor)

    def upsample_bilinear(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ) -> Self:
        """Return `self.interpolate(size, scale_factor, mode="bilinear", align_corners=True)`.

        >>> Tensor([[[[1.0, 3.0]]]]).upsample_bilinear((1, 3)).tolist()
        [[[[1.0, 2.0, 3.0]]]]
        """
        return self.interpolate(size, scale_factor, "bilinear", True)


__all__ = ["InterpolateMixin"]

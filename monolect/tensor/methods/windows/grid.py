"""Methods that sample an image at positions of a grid, and make the grid of an affine map.

What it is for: the elements around each position are read by computed indices; weights are functions of the positions,
so gradients reach the image and the grid.
Invariant: a position of -1 is the start of an axis and 1 its end; corners are those of the outer elements, or with
`align_corners` their centres.
Source: names and formulas of torch.nn.functional; Jaderberg et al., Spatial Transformer Networks (2015).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Self

from monolect.base.dtype import accumulator, dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.graphs.windows import refuse_symbolic
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods

_SLOPE = -0.75  # of the cubic kernel at 1
_PADDINGS = ("zeros", "border", "reflection")
_SAMPLINGS = ("bilinear", "nearest", "bicubic")


def _reflected(x: Any, low: float, high: float) -> Any:
    """Return positions `x` reflected into [low, high] as often as needed; 0 where the range is empty."""
    span = high - low
    if span <= 0:
        return x * 0.0
    distance = x - low
    distance = (distance < 0).where(-distance, distance)
    flips = (distance / span).detach().floor()
    rest = distance - flips * span
    is_even = (flips / 2).floor() * 2 == flips
    return is_even.where(rest + low, high - rest)


def _source(x: Any, size: int, padding: str, align: bool) -> Any:
    """Return positions `x` on an axis of `size` elements moved inside it as `padding` tells."""
    if padding == "reflection":
        x = _reflected(x, 0.0, size - 1.0) if align else _reflected(x, -0.5, size - 0.5)
    return x if padding == "zeros" else x.hardtanh(0.0, size - 1.0)


def _cubic_weights(t: Any) -> list[Any]:
    """Return the weights of the four elements around a position that is `t` after the second."""

    def near(d: Any) -> Any:
        return ((_SLOPE + 2) * d - (_SLOPE + 3)) * d * d + 1

    def far(d: Any) -> Any:
        return ((_SLOPE * d - 5 * _SLOPE) * d + 8 * _SLOPE) * d - 4 * _SLOPE

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def _elements(image: Any, at: list[Any], sizes: tuple[int, ...]) -> Any:
    """Return the elements of `image`, (N, C, elements), at the whole positions `at`, (N, points) for each axis of
    `sizes`: (N, C, points), 0 outside.
    """
    flat: Any = 0
    inside: Any = None
    for x, n in zip(at, sizes, strict=True):
        within = (x >= 0) & (x <= n - 1)
        inside = within if inside is None else inside & within
        flat = flat * n + within.where(x, 0.0).long()
    c = image.shape[1]
    return inside.unsqueeze(1).where(image.gather(2, flat.unsqueeze(1).expand(-1, c, -1)), 0.0)


@guard_methods
class GridMixin(TensorBase):
    """Methods of Tensor that sample images at positions of a grid."""

    __slots__ = ()

    def grid_sample(
        self,
        grid: TensorBase,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool | None = None,
    ) -> Self:
        """Return images (N, C, H, W) sampled at the positions of `grid`, (N, H', W', 2): (N, C, H', W').

        Images (N, C, D, H, W) need a grid (N, D', H', W', 3). The last axis of the grid holds x, y (and z) from -1 to
        1, the outer edges of the image, or with `align_corners` the centres of its outer elements. `mode` is bilinear,
        nearest or, for two axes, bicubic. `padding_mode` tells what is outside: zeros, border (the nearest element) or
        reflection. Raises ShapeError for shapes that do not fit, ArgumentError for other modes, DTypeError for
        integers.

        >>> image, grid = Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]])
        >>> image.grid_sample(grid, align_corners=True).tolist()
        [[[[2.0]]]]
        """
        self._check_float("grid_sample")
        grid._check_float("grid_sample")
        n = self.ndim - 2
        if n not in (2, 3) or grid.ndim != n + 2 or grid.shape[-1] != n or grid.shape[0] != self.shape[0]:
            expected = "(N, C, H, W) and (N, H', W', 2), or (N, C, D, H, W) and (N, D', H', W', 3)"
            raise ShapeError("grid_sample: shapes", expected=expected, found=(self.shape, grid.shape))
        if mode not in _SAMPLINGS or (mode == "bicubic" and n == 3):
            raise ArgumentError(
                "grid_sample: mode", expected=f"bilinear or nearest{', or bicubic' * (n == 2)}", found=mode
            )
        if padding_mode not in _PADDINGS:
            raise ArgumentError("grid_sample: padding_mode", expected=" or ".join(_PADDINGS), found=padding_mode)
        spatial, outs, align = self.shape[2:], grid.shape[1:-1], bool(align_corners)
        refuse_symbolic(spatial, "grid_sample", "int sizes")
        if 0 in spatial:
            raise ShapeError("grid_sample: sizes", expected="sizes of at least 1", found=self.shape)
        wide = accumulator(self.dtype)
        points: Any = grid.cast(wide).reshape(grid.shape[0], prod(outs), n)
        at = []
        for a, size in enumerate(spatial):
            x = points[..., n - 1 - a]
            at.append((x + 1) * ((size - 1) / 2) if align else ((x + 1) * size - 1) / 2)
        image: Any = self.cast(wide).flatten(2)
        if mode != "bicubic":
            at = [_source(x, size, padding_mode, align) for x, size in zip(at, spatial, strict=True)]
        out = _sampled(image, at, spatial, mode, padding_mode, align)
        return out.reshape(*self.shape[:2], *outs).cast(self.dtype)

    def affine_grid(self, size: Sequence[int], align_corners: bool | None = None) -> Self:
        """Return the grid of `grid_sample` that maps each position of the result by the affine matrices self.

        self is (N, 2, 3) for a `size` (N, C, H, W), which gives (N, H, W, 2), or (N, 3, 4) for (N, C, D, H, W). Raises
        ShapeError for other shapes, DTypeError for integers.

        >>> identity = Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
        >>> identity.affine_grid((1, 1, 1, 2), align_corners=True).tolist()
        [[[[-1.0, 0.0], [1.0, 0.0]]]]
        """
        self._check_float("affine_grid")
        size = tuple(size)
        n = len(size) - 2
        if n not in (2, 3) or self.shape != (size[0], n, n + 1) or min(size) < 1:
            expected = "(N, 2, 3) and (N, C, H, W), or (N, 3, 4) and (N, C, D, H, W), of at least 1"
            raise ShapeError("affine_grid: shapes", expected=expected, found=(self.shape, size))
        spatial, axes = size[2:], []
        for a, m in enumerate(spatial):
            i = self._kind.arange(m, dtype=dtypes.float64)
            x = (i * 2 - (m - 1)) / ((m - 1 or 1) if align_corners else m)
            axes.append(x.cast(self.dtype).to(self.device).reshape(m, *(1,) * (n - 1 - a)).expand(*spatial))
        ones = self._kind.ones(*spatial, dtype=self.dtype, device=self.device)
        base: Any = ones.stack(*axes).flip(0).flatten(1)  # x, y (and z), 1
        return (self @ base).transpose(1, 2).reshape(size[0], *spatial, n)


def _sampled(image: Any, at: list[Any], sizes: tuple[int, ...], mode: str, padding: str, align: bool) -> Any:
    """Return `image`, (N, C, elements), sampled at the positions `at`, one (N, points) for each axis of `sizes`."""
    if mode == "nearest":
        return _elements(image, [x.detach().round() for x in at], sizes)
    lows = [x.detach().floor() for x in at]
    shares = [x - low for x, low in zip(at, lows, strict=True)]
    first, count = (-1, 4) if mode == "bicubic" else (0, 2)
    weights = [_cubic_weights(t) if mode == "bicubic" else [1 - t, t] for t in shares]
    total: Any = None
    for ks in product(range(count), repeat=len(sizes)):
        here = [low + (k + first) for low, k in zip(lows, ks, strict=True)]
        if mode == "bicubic":
            here = [_source(x, m, padding, align).round() for x, m in zip(here, sizes, strict=True)]
        weight = weights[0][ks[0]]
        for w, k in zip(weights[1:], ks[1:], strict=True):
            weight = weight * w[k]
        term = _elements(image, here, sizes) * weight.unsqueeze(1)
        total = term if total is None else total + term
    return total


__all__ = ["GridMixin"]

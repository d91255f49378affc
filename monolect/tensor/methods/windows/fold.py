"""Methods that move elements between windows, channels and positions: im2col, fold, pixel and channel shuffles.

What it is for: windows as columns of a matrix are a view (`graphs.windows`); `fold` adds them up again, a product with
sparse matrices (`taps`).
Source: names, defaults and shapes of torch.nn.functional. Its `unfold` is `im2col` here, because `Tensor.unfold` has
the meaning of torch.Tensor.unfold.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, Self

from monolect.base.dtype import accumulator
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.numpy import np
from monolect.graphs.windows import as_ints, check_windows, pad_or_crop, refuse_symbolic, windows
from monolect.tensor.base import PerAxis, TensorBase, as_int
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.windows.taps import KEPT_TABLES, Taps, weighted_sums


@lru_cache(KEPT_TABLES)
def _overlapping(size: int, out: int, kernel: int, stride: int, padding: int, dilation: int) -> Taps:
    """Return the taps that add `out` windows of `kernel` elements, numbered in that order, up to an axis of `size`."""
    at = (np.arange(out)[:, None] * stride + np.arange(kernel) * dilation - padding).reshape(-1, 1)
    return Taps(np.where((at >= 0) & (at < size), at, -1), None, size).transposed()


@guard_methods
class FoldMixin(TensorBase):
    """Methods of Tensor that move elements between windows, channels and positions."""

    __slots__ = ()

    def im2col(self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1) -> Self:
        """Return the windows of images as columns: (N, C, H, W) -> (N, C * Kh * Kw, windows); N may be missing.

        It is torch.nn.functional.unfold. Sizes are an int or one for each axis; padding is 0. Raises ShapeError for
        another rank or a window larger than the padded image, ArgumentError for sizes below the least.

        >>> Tensor([[[[1, 2], [3, 4]]]]).im2col((1, 2)).tolist()
        [[[1, 3], [2, 4]]]
        """
        if self.ndim not in (3, 4):
            raise ShapeError("im2col: rank of the input", expected="(batch, channels, 2 axes)", found=self.shape)
        refuse_symbolic(self.shape[-2:], "im2col", "int sizes")
        k, s = as_ints(kernel_size, 2, "im2col: kernel_size", 1), as_ints(stride, 2, "im2col: stride", 1)
        p, d = as_ints(padding, 2, "im2col: padding", 0), as_ints(dilation, 2, "im2col: dilation", 1)
        x = pad_or_crop(self._uop, p, p)
        outs = check_windows(x.shape[-2:], k, s, d, "im2col")
        view = self._wrap(windows(x, k, s, d))
        lead = self.shape[:-3]
        columns: Any = view.movedim((-2, -1), (-4, -3))
        return columns.reshape(*lead, self.shape[-3] * prod(k), prod(outs))

    def fold(
        self,
        output_size: PerAxis,
        kernel_size: PerAxis,
        dilation: PerAxis = 1,
        padding: PerAxis = 0,
        stride: PerAxis = 1,
    ) -> Self:
        """Return images in which the columns of windows are added up: (N, C * Kh * Kw, windows) -> (N, C, H, W); N may
        be missing.

        (H, W) is `output_size`. It is the transpose of `im2col`. Raises ShapeError for columns that are not those of
        such images, ArgumentError for sizes below the least.

        >>> Tensor.ones(1, 2, 2).fold((1, 3), (1, 2)).tolist()
        [[[[1.0, 2.0, 1.0]]]]
        """
        size, k = as_ints(output_size, 2, "fold: output_size", 1), as_ints(kernel_size, 2, "fold: kernel_size", 1)
        s, p = as_ints(stride, 2, "fold: stride", 1), as_ints(padding, 2, "fold: padding", 0)
        d = as_ints(dilation, 2, "fold: dilation", 1)
        outs = check_windows(tuple(n + 2 * b for n, b in zip(size, p, strict=True)), k, s, d, "fold")
        if self.ndim not in (2, 3) or self.shape[-2] % prod(k) or self.shape[-1] != prod(outs):
            expected = f"(batch, a multiple of {prod(k)}, {prod(outs)} windows)"
            raise ShapeError("fold: the input", expected=expected, found=self.shape)
        lead = (*self.shape[:-2], self.shape[-2] // prod(k))
        x: Any = self.reshape(*lead, *k, *outs).movedim((-4, -3), (-3, -1))
        x = x.reshape(*lead, *(o * e for o, e in zip(outs, k, strict=True)))
        if self.dtype.is_float:
            x = x.cast(accumulator(self.dtype))
        taps = [_overlapping(*a) for a in zip(size, outs, k, s, p, d, strict=True)]
        return weighted_sums(x, len(lead), taps).cast(self.dtype)

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """Return (..., C * r * r, H, W) as (..., C, H * r, W * r), r the `upscale_factor`: channels become pixels.

        Raises ShapeError for fewer than 3 axes or channels that r * r does not divide, ArgumentError for r below 1.

        >>> Tensor([[[1]], [[2]], [[3]], [[4]]]).pixel_shuffle(2).tolist()
        [[[1, 2], [3, 4]]]
        """
        r = _factor(upscale_factor, "pixel_shuffle: upscale_factor")
        if self.ndim < 3 or self.shape[-3] % (r * r):
            expected = f"(..., a multiple of {r * r} channels, height, width)"
            raise ShapeError("pixel_shuffle: the input", expected=expected, found=self.shape)
        *lead, c, h, w = self.shape
        x: Any = self.reshape(*lead, c // (r * r), r, r, h, w).movedim((-4, -3), (-3, -1))
        return x.reshape(*lead, c // (r * r), h * r, w * r)

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """Return (..., C, H * r, W * r) as (..., C * r * r, H, W), r the `downscale_factor`: pixels become channels.

        Raises ShapeError for fewer than 3 axes or sizes that r does not divide, ArgumentError for r below 1.

        >>> Tensor([[[1, 2], [3, 4]]]).pixel_unshuffle(2).tolist()
        [[[1]], [[2]], [[3]], [[4]]]
        """
        r = _factor(downscale_factor, "pixel_unshuffle: downscale_factor")
        if self.ndim < 3 or self.shape[-2] % r or self.shape[-1] % r:
            expected = f"(..., channels, height, width), both divisible by {r}"
            raise ShapeError("pixel_unshuffle: the input", expected=expected, found=self.shape)
        *lead, c, h, w = self.shape
        x: Any = self.reshape(*lead, c, h // r, r, w // r, r).movedim((-3, -1), (-4, -3))
        return x.reshape(*lead, c * r * r, h // r, w // r)

    def channel_shuffle(self, groups: int) -> Self:
        """Return (N, C, ...) with the channels of all `groups` alternating: the first of each, the second of each, ...

        Raises ShapeError for fewer than 3 axes or channels that `groups` does not divide, ArgumentError for `groups`
        below 1.

        >>> Tensor([[[1], [2], [3], [4]]]).channel_shuffle(2).tolist()
        [[[1], [3], [2], [4]]]
        """
        groups = _factor(groups, "channel_shuffle: groups")
        if self.ndim < 3 or self.shape[1] % groups:
            expected = f"(batch, a multiple of {groups} channels, ...)"
            raise ShapeError("channel_shuffle: the input", expected=expected, found=self.shape)
        n, c, *rest = self.shape
        return self.reshape(n, groups, c // groups, *rest).movedim(1, 2).reshape(self.shape)


def _factor(value: Any, what: str) -> int:
    """Return `value` as an int. Raises ArgumentError, which names it `what`, below 1."""
    out = as_int(value, what)
    if out < 1:
        raise ArgumentError(what, expected="an int of at least 1", found=value)
    return out


__all__ = ["FoldMixin"]

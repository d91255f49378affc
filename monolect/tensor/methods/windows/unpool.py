"""Methods for pools other than maxima and means of regular windows: unpooling, power means, windows drawn at random.

Source: names, defaults and shapes of torch.nn.functional; Graham, Fractional Max-Pooling (2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.graphs.windows import as_ints, refuse_symbolic
from monolect.tensor.base import Number, PerAxis, TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.windows.interpolate import InterpolateMixin


@guard_methods
class UnpoolMixin(InterpolateMixin):
    """Methods of Tensor for unpooling, power means and fractional pools, and, inherited, resizing."""

    __slots__ = ()

    # ---- unpooling ---------------------------------------------------------------------------------------------------
    def _max_unpool(self, n: int, indices: Any, kernel: Any, stride: Any, padding: Any, size: Any) -> Self:
        """Return zeros with the elements of self at `indices` of the last n axes; see `max_unpool2d`."""
        name = f"max_unpool{n}d"
        if self.ndim not in (n + 1, n + 2):
            raise ShapeError(f"{name}: rank of the input", expected=f"(batch, channels, {n} axes)", found=self.shape)
        if indices.shape != self.shape:
            raise ShapeError(f"{name}: indices", expected=self.shape, found=indices.shape)
        spatial, lead = self.shape[-n:], self.shape[:-n]
        refuse_symbolic(spatial, name, "int sizes")
        k = as_ints(kernel, n, f"{name}: kernel_size", 1)
        s = k if stride is None else as_ints(stride, n, f"{name}: stride", 1)
        p = as_ints(padding, n, f"{name}: padding", 0)
        usual = tuple((m - 1) * b + a - 2 * c for m, a, b, c in zip(spatial, k, s, p, strict=True))
        out = usual if size is None else as_ints(tuple(size)[-n:], n, f"{name}: output_size", 0)
        if any(not u - b < o < u + b for o, u, b in zip(out, usual, s, strict=True)):
            raise ArgumentError(f"{name}: output_size", expected=f"less than the stride from {usual}", found=out)
        last = len(lead)
        flat = self._kind.zeros(*lead, prod(out), dtype=self.dtype, device=self.device)
        return flat.scatter(last, indices.flatten(last), self.flatten(last)).reshape(*lead, *out)

    def max_unpool1d(
        self,
        indices: TensorBase,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Return the inverse of `max_pool1d` over the last axis, with zeros at elements that were no maxima.

        See `max_unpool2d`.

        >>> values, indices = Tensor([[[1.0, 5.0, 2.0, 3.0]]]).max_pool1d(2, return_indices=True)
        >>> values.max_unpool1d(indices, 2).tolist()
        [[[0.0, 5.0, 0.0, 3.0]]]
        """
        return self._max_unpool(1, indices, kernel_size, stride, padding, output_size)

    def max_unpool2d(
        self,
        indices: TensorBase,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Return the inverse of `max_pool2d` over the last two axes, with zeros at elements that were no maxima.

        `indices` are those of `max_pool2d(..., return_indices=True)`; the sizes are its arguments. `output_size` is
        the shape of the result, or its last sizes; None computes it. Where two windows had one maximum, any one of
        the elements is written. Raises ShapeError for other shapes, ArgumentError for sizes that are no result's.

        >>> values, indices = Tensor([[[1.0, 5.0], [2.0, 3.0]]]).max_pool2d(2, return_indices=True)
        >>> values.max_unpool2d(indices, 2).tolist()
        [[[0.0, 5.0], [0.0, 0.0]]]
        """
        return self._max_unpool(2, indices, kernel_size, stride, padding, output_size)

    def max_unpool3d(
        self,
        indices: TensorBase,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """Return the inverse of `max_pool3d` over the last three axes, with zeros at elements that were no maxima.

        See `max_unpool2d`.

        >>> values, indices = Tensor([[[[1.0, 5.0], [2.0, 3.0]]]]).max_pool3d((1, 2, 2), return_indices=True)
        >>> values.max_unpool3d(indices, (1, 2, 2)).tolist()
        [[[[0.0, 5.0], [0.0, 0.0]]]]
        """
        return self._max_unpool(3, indices, kernel_size, stride, padding, output_size)

    # ---- power means -------------------------------------------------------------------------------------------------
    def _lp_pool(self, n: int, norm_type: Number, kernel: Any, stride: Any, ceil_mode: bool) -> Self:
        """Return the p-norm of each window over the last n axes; see `lp_pool2d`."""
        name = f"lp_pool{n}d"
        k = as_ints(kernel, n, f"{name}: kernel_size", 1)
        if not norm_type:
            raise ArgumentError(f"{name}: norm_type", expected="a number other than 0", found=norm_type)
        mean: Any = (self**norm_type)._avg_pool(n, k, stride, 0, ceil_mode, True, None)
        return (mean.sign() * mean.abs().relu() * prod(k)) ** (1.0 / norm_type)

    def lp_pool1d(
        self, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
    ) -> Self:
        """Return the norm of order `norm_type` of each window over the last axis. See `lp_pool2d`.

        >>> Tensor([[[3.0, 4.0]]]).lp_pool1d(2, 2).tolist()
        [[[5.0]]]
        """
        return self._lp_pool(1, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool2d(
        self, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
    ) -> Self:
        """Return (sum of x ** norm_type) ** (1 / norm_type) of each window over the last two axes.

        The stride is the kernel size by default. With `ceil_mode` a last window may extend past the end. Raises
        ArgumentError for a `norm_type` of 0, ShapeError for a window larger than the input.

        >>> Tensor([[[3.0, 4.0]]]).lp_pool2d(2, (1, 2)).tolist()
        [[[5.0]]]
        """
        return self._lp_pool(2, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool3d(
        self, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
    ) -> Self:
        """Return the norm of order `norm_type` of each window over the last three axes. See `lp_pool2d`.

        >>> Tensor([[[[3.0, 4.0]]]]).lp_pool3d(2, (1, 1, 2)).tolist()
        [[[[5.0]]]]
        """
        return self._lp_pool(3, norm_type, kernel_size, stride, ceil_mode)

    # ---- windows drawn at random -------------------------------------------------------------------------------------
    def _fractional(self, n: int, kernel: Any, size: Any, ratio: Any, wants_indices: bool, samples: Any) -> Any:
        """Return maxima of windows drawn at random over the last n axes; see `fractional_max_pool2d`."""
        name = f"fractional_max_pool{n}d"
        if self.ndim not in (n + 1, n + 2):
            raise ShapeError(f"{name}: rank of the input", expected=f"(batch, channels, {n} axes)", found=self.shape)
        spatial = self.shape[-n:]
        refuse_symbolic(spatial, name, "int sizes")
        if (size is None) == (ratio is None):
            raise ArgumentError(f"{name}: sizes", expected="either output_size or output_ratio", found=(size, ratio))
        k = as_ints(kernel, n, f"{name}: kernel_size", 1)
        if size is None:
            ratios = ratio if isinstance(ratio, tuple | list) else (ratio,) * n
            size = tuple(int(m * r) for m, r in zip(spatial, ratios, strict=True))
        outs = as_ints(size, n, f"{name}: output_size", 1)
        if any(o + a - 1 > m for o, a, m in zip(outs, k, spatial, strict=True)):
            raise ShapeError(
                f"{name}: windows", expected=f"output_size + kernel_size - 1 of at most {spatial}", found=outs
            )
        x: Any = self if self.ndim == n + 2 else self.unsqueeze(0)
        batch, channels = x.shape[:2]
        if samples is None:
            dtype = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
            samples = self.rand(batch, channels, n, dtype=dtype, device=self.device)
        if samples.shape != (batch, channels, n):
            raise ShapeError(f"{name}: samples", expected=(batch, channels, n), found=samples.shape)
        flat: Any = 0
        for a, (m, o, w) in enumerate(zip(spatial, outs, k, strict=True)):
            at = self._starts(samples[..., n - 1 - a : n - a], m, o, w)
            window = self._kind.arange(w, device=self.device)
            ones = (1,) * (n - 1 - a)
            own = at.reshape(batch, channels, *(1,) * a, o, *ones, *(1,) * n) + window.reshape(w, *ones)
            flat = flat * m + own
        flat = flat.reshape(batch, channels, prod(outs), prod(k))
        rows = x.flatten(2)
        best = rows.gather(2, flat.flatten(2)).reshape(flat.shape).detach().argmax(-1, keepdim=True)
        index = flat.gather(3, best).squeeze(3)
        shape = (*self.shape[:-n], *outs)
        values = rows.gather(2, index).reshape(*shape)
        return (values, index.reshape(*shape)) if wants_indices else values

    def _starts(self, sample: Any, size: int, out: int, window: int) -> Any:
        """Return the starts of `out` windows of `window` elements on an axis of `size`: int64, (..., out).

        `sample`, (..., 1), has a random number in [0, 1).
        """
        last = self._kind.zeros(1, dtype=dtypes.int64, device=self.device) + (size - window)
        if out == 1:
            return last.expand(*sample.shape)
        alpha = (size - window) / (out - 1)
        i = self._kind.arange(out - 1, dtype=sample.dtype, device=self.device)
        starts = ((i + sample) * alpha).long() - (sample * alpha).long()
        return starts.cat(last.expand(*sample.shape), dim=-1)

    def fractional_max_pool2d(
        self,
        kernel_size: PerAxis,
        output_size: PerAxis | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: TensorBase | None = None,
    ) -> Self | tuple[Self, Self]:
        """Return the maxima of windows whose starts are drawn at random: (N, C, H, W) -> (N, C, *output_size); N may be
        missing.

        `output_ratio`, in (0, 1), gives the output size as a share of the input's. With `return_indices` also return
        the row-major numbers of the maxima in (H, W). `_random_samples` (N, C, 2) in [0, 1) replaces the draw. Raises
        ArgumentError unless one of the sizes is given, ShapeError for windows that do not fit.

        >>> Tensor.ones(1, 1, 5, 5).fractional_max_pool2d(2, output_size=3).shape
        (1, 1, 3, 3)
        """
        return self._fractional(2, kernel_size, output_size, output_ratio, return_indices, _random_samples)

    def fractional_max_pool3d(
        self,
        kernel_size: PerAxis,
        output_size: PerAxis | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: TensorBase | None = None,
    ) -> Self | tuple[Self, Self]:
        """Return the maxima of windows whose starts are drawn at random: (N, C, D, H, W) -> (N, C, *output_size).

        See `fractional_max_pool2d`; `_random_samples` is (N, C, 3).

        >>> Tensor.ones(1, 1, 4, 5, 5).fractional_max_pool3d(2, output_ratio=0.5).shape
        (1, 1, 2, 2, 2)
        """
        return self._fractional(3, kernel_size, output_size, output_ratio, return_indices, _random_samples)


__all__ = ["UnpoolMixin"]

"""Define convolutions, transposed convolutions, and windows as columns.

Invariant: names, shapes and initial distributions of parameters are those of torch.nn.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any, TypeAlias

from monolect.base.errors import ArgumentError
from monolect.graphs.windows import as_ints
from monolect.nn.layers.initial import uniform
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike, PerAxis
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

_PADDINGS = ("zeros", "reflect", "replicate", "circular")
Padding: TypeAlias = "PerAxis | str"


class _Weighted(Module):
    """The parameters that convolutions share. `bias` is (out_channels,)."""

    axes = 0

    def _fill(
        self,
        channels: tuple[int, int],
        kernel_size: Any,
        sizes: tuple[Any, Any, Any],
        groups: int,
        bias: bool,
        padding_mode: str,
        first: int,
        second: int,
        made: tuple[Any, Any],
    ) -> None:
        """Set the attributes: `channels` are those of the input and the output, `sizes` stride, padding and dilation,
        `first` and `second` the leading sizes of the weight, before the kernel, `made` its device and dtype.

        Raises ArgumentError for groups that do not divide the channels and an unknown `padding_mode`.
        """
        kernel = as_ints(kernel_size, self.axes, "kernel_size", 1)
        if groups < 1 or channels[0] % groups or channels[1] % groups:
            expected = f"a divisor of {channels[0]} and {channels[1]} channels"
            raise ArgumentError("groups of a convolution", expected=expected, found=groups)
        if padding_mode not in _PADDINGS:
            raise ArgumentError("padding_mode", expected=" or ".join(_PADDINGS), found=padding_mode)
        self.in_channels, self.out_channels = channels
        self.kernel_size, self.groups, self.padding_mode = kernel, groups, padding_mode
        self.stride, self.padding, self.dilation = sizes
        bound = 1.0 / sqrt(max(second // groups * prod(kernel), 1))
        self.weight = uniform((first, second // groups, *kernel), bound, *made)
        self.bias = uniform((channels[1],), bound, *made) if bias else None

    def extra_repr(self) -> str:
        """Return channels, kernel size and stride as text."""
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


@guard_methods
class _Conv(_Weighted):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: Padding = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        sizes = (stride, padding, dilation)
        channels, made = (in_channels, out_channels), (device, dtype)
        self._fill(channels, kernel_size, sizes, groups, bias, padding_mode, out_channels, in_channels, made)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            x, padding = x.pad(self._widths(), self.padding_mode), 0
        method: Any = (x.conv1d, x.conv2d, x.conv3d)[self.axes - 1]
        y: Tensor = method(self.weight, self.bias, self.stride, padding, self.dilation, self.groups)
        return y

    def _widths(self) -> list[int]:
        """Return the widths of `padding` for `Tensor.pad`, from the last axis on."""
        if self.padding == "valid":
            return [0] * 2 * self.axes
        if self.padding == "same":
            dilation = as_ints(self.dilation, self.axes, "dilation", 1)
            total = [d * (k - 1) for d, k in zip(dilation, self.kernel_size, strict=True)]
            return [w for t in reversed(total) for w in (t // 2, t - t // 2)]
        return [p for p in reversed(as_ints(self.padding, self.axes, "padding", 0)) for _ in range(2)]


@guard_methods
class Conv1d(_Conv):
    """Convolve over one axis: (N, Cin, L) -> (N, Cout, L'). See `Tensor.conv1d`.

    `padding_mode` is zeros, reflect, replicate or circular.

    >>> Conv1d(2, 3, 3, padding=1)(Tensor.ones(1, 2, 8)).shape
    (1, 3, 8)
    """

    axes = 1


@guard_methods
class Conv2d(_Conv):
    """Convolve over two axes: (N, Cin, H, W) -> (N, Cout, H', W'). See `Tensor.conv2d`.

    `padding_mode` is zeros, reflect, replicate or circular.

    >>> Conv2d(1, 4, 3)(Tensor.ones(2, 1, 8, 8)).shape
    (2, 4, 6, 6)
    """

    axes = 2


@guard_methods
class Conv3d(_Conv):
    """Convolve over three axes: (N, Cin, D, H, W) -> (N, Cout, D', H', W'). See `Tensor.conv3d`.

    `padding_mode` is zeros, reflect, replicate or circular.

    >>> Conv3d(1, 2, 2)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


@guard_methods
class _ConvTranspose(_Weighted):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: PerAxis = 1,
        padding_mode: str = "zeros",
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        if padding_mode != "zeros":
            raise ArgumentError("padding_mode of a transposed convolution", expected="zeros", found=padding_mode)
        sizes = (stride, padding, dilation)
        self.output_padding = output_padding
        channels, made = (in_channels, out_channels), (device, dtype)
        self._fill(channels, kernel_size, sizes, groups, bias, padding_mode, in_channels, out_channels, made)

    def forward(self, x: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """See the class. `output_size`, the last sizes of the result, replaces `output_padding`. Raises ArgumentError
        for one that no output padding gives.
        """
        method: Any = (x.conv_transpose1d, x.conv_transpose2d, x.conv_transpose3d)[self.axes - 1]
        extra = self.output_padding if output_size is None else self._extra(x, output_size)
        y: Tensor = method(self.weight, self.bias, self.stride, self.padding, extra, self.groups, self.dilation)
        return y

    def _extra(self, x: Tensor, output_size: Sequence[int]) -> list[int]:
        """Return the output padding that gives `output_size`."""
        n = self.axes
        wanted = tuple(output_size)[-n:]
        s, p = as_ints(self.stride, n, "stride", 1), as_ints(self.padding, n, "padding", 0)
        d = as_ints(self.dilation, n, "dilation", 1)
        rows = zip(x.shape[-n:], s, p, d, self.kernel_size, strict=True)
        least = [(m - 1) * a - 2 * b + c * (k - 1) + 1 for m, a, b, c, k in rows]
        extra = [w - v for w, v in zip(wanted, least, strict=True)]
        if any(not 0 <= v < a for v, a in zip(extra, s, strict=True)):
            expected = f"sizes from {tuple(least)} to less than a stride more"
            raise ArgumentError("output_size", expected=expected, found=wanted)
        return extra


@guard_methods
class ConvTranspose1d(_ConvTranspose):
    """Transpose a convolution over one axis: (N, Cin, L) -> (N, Cout, L'). See `Tensor.conv_transpose1d`.

    >>> ConvTranspose1d(2, 3, 2, stride=2)(Tensor.ones(1, 2, 4)).shape
    (1, 3, 8)
    """

    axes = 1


@guard_methods
class ConvTranspose2d(_ConvTranspose):
    """Transpose a convolution over two axes: (N, Cin, H, W) -> (N, Cout, H', W'). See `Tensor.conv_transpose2d`.

    >>> ConvTranspose2d(2, 3, 3, stride=2)(Tensor.ones(1, 2, 4, 4), output_size=(10, 10)).shape
    (1, 3, 10, 10)
    """

    axes = 2


@guard_methods
class ConvTranspose3d(_ConvTranspose):
    """Transpose a convolution over three axes: (N, Cin, D, H, W) -> (N, Cout, D', H', W').

    See `Tensor.conv_transpose3d`.

    >>> ConvTranspose3d(1, 1, 2)(Tensor.ones(1, 1, 2, 2, 2)).shape
    (1, 1, 3, 3, 3)
    """

    axes = 3


@guard_methods
class Unfold(Module):
    """Return the windows of images as columns: (N, C, H, W) -> (N, C * Kh * Kw, windows). See `Tensor.im2col`.

    >>> Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    def __init__(self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1):
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.im2col(self.kernel_size, self.dilation, self.padding, self.stride)


@guard_methods
class Fold(Module):
    """Add up the columns of windows: (N, C * Kh * Kw, windows) -> (N, C, *output_size). See `Tensor.fold`.

    >>> Fold((4, 4), 2)(Tensor.ones(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self,
        output_size: PerAxis,
        kernel_size: PerAxis,
        dilation: PerAxis = 1,
        padding: PerAxis = 0,
        stride: PerAxis = 1,
    ):
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.fold(self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)


__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Fold",
    "Unfold",
]

"""Functions that move windows over axes, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Sequence

from monolect.tensor.base import PerAxis
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def adaptive_avg_pool1d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of `output_size` equal parts of the last axis; None keeps the axis.

    Raises ArgumentError unless `output_size` divides the axis, DTypeError for integers.

    >>> monolect.adaptive_avg_pool1d(Tensor([[1.0, 5.0, 2.0, 4.0]]), 2).tolist()
    [[3.0, 3.0]]
    """
    return input.adaptive_avg_pool1d(output_size)


@guarded
def adaptive_avg_pool2d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of equal parts of the last two axes, which get `output_size` parts; None keeps an axis.

    `output_size` is an int or one int for each axis; 1 averages all elements. Raises ArgumentError unless it
    divides the axes, DTypeError for integers.

    >>> nn.functional.adaptive_avg_pool2d(Tensor([[1.0, 5.0], [2.0, 4.0]]), 1).tolist()
    [[3.0]]
    """
    return input.adaptive_avg_pool2d(output_size)


@guarded
def adaptive_avg_pool3d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the means of equal parts of the last three axes, which get `output_size` parts; None keeps an axis.

    Raises ArgumentError unless `output_size`, an int or one for each axis, divides the axes, DTypeError for
    integers.

    >>> nn.functional.adaptive_avg_pool3d(Tensor([[[[1.0, 5.0], [2.0, 4.0]]]]), (None, 1, 1)).tolist()
    [[[[3.0]]]]
    """
    return input.adaptive_avg_pool3d(output_size)


@guarded
def adaptive_max_pool1d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the largest elements of `output_size` equal parts of the last axis; None keeps the axis.

    Raises ArgumentError unless `output_size` divides the axis.

    >>> monolect.adaptive_max_pool1d(Tensor([[1, 5, 2, 4]]), 2).tolist()
    [[5, 4]]
    """
    return input.adaptive_max_pool1d(output_size)


@guarded
def adaptive_max_pool2d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the largest elements of equal parts of the last two axes, which get `output_size` parts.

    `output_size` is an int, or an int or None (keeps the axis) for each axis. Raises ArgumentError unless it
    divides the axes.

    >>> nn.functional.adaptive_max_pool2d(Tensor([[1, 5], [2, 4]]), (None, 1)).tolist()
    [[5], [4]]
    """
    return input.adaptive_max_pool2d(output_size)


@guarded
def adaptive_max_pool3d(input: Tensor, output_size: int | Sequence[int | None]) -> Tensor:
    """Return the largest elements of equal parts of the last three axes, which get `output_size` parts.

    `output_size` is an int, or an int or None (keeps the axis) for each axis. Raises ArgumentError unless it
    divides the axes.

    >>> nn.functional.adaptive_max_pool3d(Tensor([[[[1, 5], [2, 4]]]]), 1).tolist()
    [[[[5]]]]
    """
    return input.adaptive_max_pool3d(output_size)


@guarded
def avg_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window over the last axis: (..., L) -> (..., L').

    The stride is the kernel size by default. Padding counts as zeros unless `count_include_pad` is False. With
    `ceil_mode` a last window may extend past the end. `divisor_override` replaces the number of elements as the
    divisor. Raises DTypeError for integers, ShapeError or ArgumentError for sizes that do not fit.

    >>> monolect.avg_pool1d(Tensor([[1.0, 5.0, 2.0, 4.0]]), 2).tolist()
    [[3.0, 3.0]]
    """
    return input.avg_pool1d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@guarded
def avg_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window over the last two axes: (..., H, W) -> (..., H', W').

    Padding counts as zeros unless `count_include_pad` is False. Elements that `ceil_mode` adds never count.
    `divisor_override` replaces the number of elements as the divisor. Sizes are an int or one for each axis; the
    stride is the kernel size by default. Raises DTypeError for integers, ShapeError for a window larger than the
    padded input, ArgumentError for padding above half of the kernel or a divisor of 0.

    >>> nn.functional.avg_pool2d(Tensor([[1.0, 5.0], [2.0, 4.0]]), 2).tolist()
    [[3.0]]
    """
    return input.avg_pool2d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@guarded
def avg_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """Return the mean of each window over the last three axes: (..., D, H, W) -> (..., D', H', W').

    Sizes are an int or one for each axis; the stride is the kernel size by default. Padding counts as zeros unless
    `count_include_pad` is False. With `ceil_mode` a last window may extend past the end. `divisor_override`
    replaces the number of elements as the divisor. Raises DTypeError for integers, ShapeError or ArgumentError for
    sizes that do not fit.

    >>> nn.functional.avg_pool3d(Tensor([[[[1.0, 5.0], [2.0, 4.0]]]]), (1, 2, 2)).tolist()
    [[[[3.0]]]]
    """
    return input.avg_pool3d(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


@guarded
def max_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the largest element of each window over the last axis: (..., L) -> (..., L').

    The stride is the kernel size by default. Padding is never the maximum. With `ceil_mode` a last window may
    extend past the end if it starts inside. Raises ShapeError for a window larger than the padded input,
    ArgumentError for padding above half of the kernel.

    >>> monolect.max_pool1d(Tensor([[1, 5, 2, 3]]), 2).tolist()
    [[5, 3]]
    """
    return input.max_pool1d(kernel_size, stride, padding, dilation, ceil_mode)


@guarded
def max_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the largest element of each window over the last two axes: (..., H, W) -> (..., H', W').

    `kernel_size`, `stride`, `padding` and `dilation` are an int or one for each axis; the stride is the kernel size
    by default. Padding is never the maximum. With `ceil_mode` a last window may extend past the end if it starts
    inside. The first of equal elements gets the gradient. Raises ShapeError for a window larger than the padded
    input, ArgumentError for padding above half of the kernel.

    >>> monolect.max_pool2d(Tensor([[1, 5], [2, 3]]), 2).tolist()
    [[5]]
    """
    return input.max_pool2d(kernel_size, stride, padding, dilation, ceil_mode)


@guarded
def max_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
) -> Tensor:
    """Return the largest element of each window over the last three axes: (..., D, H, W) -> (..., D', H', W').

    Sizes are an int or one for each axis; the stride is the kernel size by default. Padding is never the maximum.
    With `ceil_mode` a last window may extend past the end if it starts inside. Raises ShapeError for a window
    larger than the padded input, ArgumentError for padding above half of the kernel.

    >>> monolect.max_pool3d(Tensor([[[[1, 5], [2, 3]]]]), (1, 2, 2)).tolist()
    [[[[5]]]]
    """
    return input.max_pool3d(kernel_size, stride, padding, dilation, ceil_mode)


__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]

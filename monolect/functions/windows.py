"""Functions that move windows over axes, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from monolect.tensor.base import DeviceLike, DTypeLike, Number, PerAxis
from monolect.tensor.guard import guarded
from monolect.tensor.methods.windows.adaptive import Parts
from monolect.tensor.tensor import Tensor


@guarded
def adaptive_avg_pool1d(input: Tensor, output_size: Parts) -> Tensor:
    """Return the means of `output_size` parts of the last axis; None keeps the axis.

    Raises ArgumentError for a size below 1, DTypeError for integers.

    >>> monolect.adaptive_avg_pool1d(Tensor([[1.0, 5.0, 2.0]]), 2).tolist()
    [[3.0, 3.5]]
    """
    return input.adaptive_avg_pool1d(output_size)


@guarded
def adaptive_avg_pool2d(input: Tensor, output_size: Parts) -> Tensor:
    """Return the means of parts of the last two axes, which get `output_size` parts; None keeps an axis.

    `output_size` is an int or one int for each axis; 1 averages all elements. Raises ArgumentError for a size below
    1, DTypeError for integers.

    >>> nn.functional.adaptive_avg_pool2d(Tensor([[1.0, 5.0], [2.0, 4.0]]), 1).tolist()
    [[3.0]]
    """
    return input.adaptive_avg_pool2d(output_size)


@guarded
def adaptive_avg_pool3d(input: Tensor, output_size: Parts) -> Tensor:
    """Return the means of parts of the last three axes, which get `output_size` parts; None keeps an axis.

    `output_size` is an int or one for each axis. Raises ArgumentError for a size below 1, DTypeError for integers.

    >>> nn.functional.adaptive_avg_pool3d(Tensor([[[[1.0, 5.0], [2.0, 4.0]]]]), (None, 1, 1)).tolist()
    [[[[3.0]]]]
    """
    return input.adaptive_avg_pool3d(output_size)


@overload
def adaptive_max_pool1d(input: Tensor, output_size: Parts, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool1d(input: Tensor, output_size: Parts, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@guarded
def adaptive_max_pool1d(
    input: Tensor, output_size: Parts, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest elements of `output_size` parts of the last axis; None keeps the axis.

    With `return_indices` also return their indices, int64. Raises ArgumentError for a size below 1.

    >>> monolect.adaptive_max_pool1d(Tensor([[1, 5, 2]]), 2, return_indices=True)[1].tolist()
    [[1, 1]]
    """
    method: Any = input.adaptive_max_pool1d
    return method(output_size, return_indices)


@overload
def adaptive_max_pool2d(input: Tensor, output_size: Parts, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool2d(input: Tensor, output_size: Parts, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@guarded
def adaptive_max_pool2d(
    input: Tensor, output_size: Parts, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest elements of parts of the last two axes, which get `output_size` parts.

    `output_size` is an int, or an int or None (keeps the axis) for each axis. With `return_indices` also return
    their row-major numbers in these axes, int64. Raises ArgumentError for a size below 1.

    >>> nn.functional.adaptive_max_pool2d(Tensor([[1, 5], [2, 4]]), (None, 1)).tolist()
    [[5], [4]]
    """
    method: Any = input.adaptive_max_pool2d
    return method(output_size, return_indices)


@overload
def adaptive_max_pool3d(input: Tensor, output_size: Parts, return_indices: Literal[False] = False) -> Tensor: ...
@overload
def adaptive_max_pool3d(input: Tensor, output_size: Parts, return_indices: Literal[True]) -> tuple[Tensor, Tensor]: ...
@guarded
def adaptive_max_pool3d(
    input: Tensor, output_size: Parts, return_indices: bool = False
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest elements of parts of the last three axes, which get `output_size` parts.

    `output_size` is an int, or an int or None (keeps the axis) for each axis. With `return_indices` also return
    their row-major numbers in these axes, int64. Raises ArgumentError for a size below 1.

    >>> nn.functional.adaptive_max_pool3d(Tensor([[[[1, 5], [2, 4]]]]), 1).tolist()
    [[[[5]]]]
    """
    method: Any = input.adaptive_max_pool3d
    return method(output_size, return_indices)


@guarded
def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """Return the grid of `grid_sample` that maps each position of the result by the affine matrices `theta`.

    `theta` is (N, 2, 3) for a `size` (N, C, H, W), which gives (N, H, W, 2), or (N, 3, 4) for (N, C, D, H, W).
    Raises ShapeError for other shapes, DTypeError for integers.

    >>> identity = Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> nn.functional.affine_grid(identity, (1, 1, 1, 2), align_corners=True).tolist()
    [[[[-1.0, 0.0], [1.0, 0.0]]]]
    """
    return theta.affine_grid(size, align_corners)


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
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the triangle from 0 to 1 and back; symmetric unless `periodic`.

    Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

    >>> monolect.bartlett_window(4).tolist()
    [0.0, 0.5, 1.0, 0.5]
    """
    return Tensor.bartlett_window(window_length, periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window of Blackman, 0.42 - 0.5 cos(2 pi t) + 0.08 cos(4 pi t); symmetric unless `periodic`.

    Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

    >>> [abs(round(x, 4)) for x in monolect.blackman_window(4).tolist()]
    [0.0, 0.34, 1.0, 0.34]
    """
    return Tensor.blackman_window(window_length, periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Return (N, C, ...) with the channels of all `groups` alternating: the first of each, the second of each, ...

    Raises ShapeError for fewer than 3 axes or channels that `groups` does not divide, ArgumentError for `groups`
    below 1.

    >>> monolect.channel_shuffle(Tensor([[[1], [2], [3], [4]]]), 2).tolist()
    [[[1], [3], [2], [4]]]
    """
    return input.channel_shuffle(groups)


@guarded
def fold(
    input: Tensor,
    output_size: PerAxis,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """Return images in which the columns of windows are added up: (N, C * Kh * Kw, windows) -> (N, C, H, W); N may be
    missing.

    (H, W) is `output_size`. It is the transpose of `im2col`. Raises ShapeError for columns that are not those of
    such images, ArgumentError for sizes below the least.

    >>> nn.functional.fold(Tensor.ones(1, 2, 2), (1, 3), (1, 2)).tolist()
    [[[[1.0, 2.0, 1.0]]]]
    """
    return input.fold(output_size, kernel_size, dilation, padding, stride)


@guarded
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    output_size: PerAxis | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the maxima of windows whose starts are drawn at random: (N, C, H, W) -> (N, C, *output_size); N may be
    missing.

    `output_ratio`, in (0, 1), gives the output size as a share of the input's. With `return_indices` also return
    the row-major numbers of the maxima in (H, W). `_random_samples` (N, C, 2) in [0, 1) replaces the draw. Raises
    ArgumentError unless one of the sizes is given, ShapeError for windows that do not fit.

    >>> nn.functional.fractional_max_pool2d(Tensor.ones(1, 1, 5, 5), 2, output_size=3).shape
    (1, 1, 3, 3)
    """
    return input.fractional_max_pool2d(kernel_size, output_size, output_ratio, return_indices, _random_samples)


@guarded
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    output_size: PerAxis | None = None,
    output_ratio: float | Sequence[float] | None = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the maxima of windows whose starts are drawn at random: (N, C, D, H, W) -> (N, C, *output_size).

    See `fractional_max_pool2d`; `_random_samples` is (N, C, 3).

    >>> nn.functional.fractional_max_pool3d(Tensor.ones(1, 1, 4, 5, 5), 2, output_ratio=0.5).shape
    (1, 1, 2, 2, 2)
    """
    return input.fractional_max_pool3d(kernel_size, output_size, output_ratio, return_indices, _random_samples)


@guarded
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Return images (N, C, H, W) sampled at the positions of `grid`, (N, H', W', 2): (N, C, H', W').

    Images (N, C, D, H, W) need a grid (N, D', H', W', 3). The last axis of the grid holds x, y (and z) from -1 to
    1, the outer edges of the image, or with `align_corners` the centres of its outer elements. `mode` is bilinear,
    nearest or, for two axes, bicubic. `padding_mode` tells what is outside: zeros, border (the nearest element) or
    reflection. Raises ShapeError for shapes that do not fit, ArgumentError for other modes, DTypeError for
    integers.

    >>> image, grid = Tensor([[[[1.0, 3.0]]]]), Tensor([[[[0.0, 0.0]]]])
    >>> nn.functional.grid_sample(image, grid, align_corners=True).tolist()
    [[[[2.0]]]]
    """
    return input.grid_sample(grid, mode, padding_mode, align_corners)


@guarded
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window of Hamming, alpha - beta cos(2 pi t); symmetric unless `periodic`.

    Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

    >>> [round(x, 4) for x in monolect.hamming_window(4).tolist()]
    [0.08, 0.54, 1.0, 0.54]
    """
    return Tensor.hamming_window(
        window_length, periodic, alpha, beta, dtype=dtype, device=device, requires_grad=requires_grad
    )


@guarded
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window of Hann, sin(pi t) ** 2; symmetric unless `periodic`.

    Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

    >>> [round(x, 4) for x in monolect.hann_window(4).tolist()]
    [0.0, 0.5, 1.0, 0.5]
    """
    return Tensor.hann_window(window_length, periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def im2col(
    input: Tensor, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1
) -> Tensor:
    """Return the windows of images as columns: (N, C, H, W) -> (N, C * Kh * Kw, windows); N may be missing.

    It is torch.nn.functional.unfold. Sizes are an int or one for each axis; padding is 0. Raises ShapeError for
    another rank or a window larger than the padded image, ArgumentError for sizes below the least.

    >>> nn.functional.unfold(Tensor([[[[1, 2], [3, 4]]]]), (1, 2)).tolist()
    [[[1, 3], [2, 4]]]
    """
    return input.im2col(kernel_size, dilation, padding, stride)


@guarded
def interpolate(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Return `input`, (N, C, 1 to 3 spatial axes), with the spatial axes resized.

    The new sizes are `size`, or the old ones times `scale_factor`, rounded down; each is a number for all axes, or
    one for each. `mode` is nearest, nearest-exact, linear (1 axis), bilinear or bicubic (2), trilinear (3) or area.
    With `align_corners` the centres of the first and of the last elements stay, and distances are ratios of size -
    1. Positions follow from `scale_factor` itself, with `recompute_scale_factor` from the sizes. `antialias`
    (bilinear and bicubic) widens the kernel where an axis shrinks. Raises ArgumentError for another mode or options
    that do not fit it, ShapeError for other ranks and symbolic sizes, DTypeError for integers unless the mode is
    nearest or nearest-exact.

    >>> nn.functional.interpolate(Tensor([[[1.0, 2.0]]]), scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    >>> nn.functional.interpolate(Tensor([[[1.0, 3.0]]]), 3, mode="linear", align_corners=True).tolist()
    [[[1.0, 2.0, 3.0]]]
    """
    return input.interpolate(size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)


@guarded
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Return the window of Kaiser, i0(beta sqrt(1 - (2 t - 1) ** 2)) / i0(beta); symmetric unless `periodic`.

    Raises ArgumentError for a negative length, DTypeError for an integer `dtype`.

    >>> [round(x, 4) for x in monolect.kaiser_window(4, beta=2.0).tolist()]
    [0.4387, 0.8348, 1.0, 0.8348]
    """
    return Tensor.kaiser_window(window_length, periodic, beta, dtype=dtype, device=device, requires_grad=requires_grad)


@guarded
def lp_pool1d(
    input: Tensor, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of order `norm_type` of each window over the last axis. See `lp_pool2d`.

    >>> nn.functional.lp_pool1d(Tensor([[[3.0, 4.0]]]), 2, 2).tolist()
    [[[5.0]]]
    """
    return input.lp_pool1d(norm_type, kernel_size, stride, ceil_mode)


@guarded
def lp_pool2d(
    input: Tensor, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return (sum of x ** norm_type) ** (1 / norm_type) of each window over the last two axes.

    The stride is the kernel size by default. With `ceil_mode` a last window may extend past the end. Raises
    ArgumentError for a `norm_type` of 0, ShapeError for a window larger than the input.

    >>> nn.functional.lp_pool2d(Tensor([[[3.0, 4.0]]]), 2, (1, 2)).tolist()
    [[[5.0]]]
    """
    return input.lp_pool2d(norm_type, kernel_size, stride, ceil_mode)


@guarded
def lp_pool3d(
    input: Tensor, norm_type: Number, kernel_size: PerAxis, stride: PerAxis | None = None, ceil_mode: bool = False
) -> Tensor:
    """Return the norm of order `norm_type` of each window over the last three axes. See `lp_pool2d`.

    >>> nn.functional.lp_pool3d(Tensor([[[[3.0, 4.0]]]]), 2, (1, 1, 2)).tolist()
    [[[[5.0]]]]
    """
    return input.lp_pool3d(norm_type, kernel_size, stride, ceil_mode)


@overload
def max_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@guarded
def max_pool1d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest element of each window over the last axis: (..., L) -> (..., L').

    The stride is the kernel size by default. Padding is never the maximum. With `ceil_mode` a last window may
    extend past the end if it starts inside. With `return_indices` also return the numbers of the maxima in the last
    axis, int64. Raises ShapeError for a window larger than the padded input, ArgumentError for padding above half
    of the kernel.

    >>> monolect.max_pool1d(Tensor([[1, 5, 2, 3]]), 2).tolist()
    [[5, 3]]
    """
    method: Any = input.max_pool1d
    return method(kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@overload
def max_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@guarded
def max_pool2d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest element of each window over the last two axes: (..., H, W) -> (..., H', W').

    `kernel_size`, `stride`, `padding` and `dilation` are an int or one for each axis; the stride is the kernel size
    by default. Padding is never the maximum. With `ceil_mode` a last window may extend past the end if it starts
    inside. The first of equal elements gets the gradient. With `return_indices` also return the row-major numbers
    of the maxima in the pooled axes, int64. Raises ShapeError for a window larger than the padded input,
    ArgumentError for padding above half of the kernel.

    >>> monolect.max_pool2d(Tensor([[1, 5], [2, 3]]), 2).tolist()
    [[5]]
    """
    method: Any = input.max_pool2d
    return method(kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@overload
def max_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
@guarded
def max_pool3d(
    input: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the largest element of each window over the last three axes: (..., D, H, W) -> (..., D', H', W').

    Sizes are an int or one for each axis; the stride is the kernel size by default. Padding is never the maximum.
    With `ceil_mode` a last window may extend past the end if it starts inside. With `return_indices` also return
    the row-major numbers of the maxima in the pooled axes, int64. Raises ShapeError for a window larger than the
    padded input, ArgumentError for padding above half of the kernel.

    >>> monolect.max_pool3d(Tensor([[[[1, 5], [2, 3]]]]), (1, 2, 2)).tolist()
    [[[[5]]]]
    """
    method: Any = input.max_pool3d
    return method(kernel_size, stride, padding, dilation, ceil_mode, return_indices)


@guarded
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return the inverse of `max_pool1d` over the last axis, with zeros at elements that were no maxima.

    See `max_unpool2d`.

    >>> values, indices = Tensor([[[1.0, 5.0, 2.0, 3.0]]]).max_pool1d(2, return_indices=True)
    >>> nn.functional.max_unpool1d(values, indices, 2).tolist()
    [[[0.0, 5.0, 0.0, 3.0]]]
    """
    return input.max_unpool1d(indices, kernel_size, stride, padding, output_size)


@guarded
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return the inverse of `max_pool2d` over the last two axes, with zeros at elements that were no maxima.

    `indices` are those of `max_pool2d(..., return_indices=True)`; the sizes are its arguments. `output_size` is the
    shape of the result, or its last sizes; None computes it. Where two windows had one maximum, any one of the
    elements is written. Raises ShapeError for other shapes, ArgumentError for sizes that are no result's.

    >>> values, indices = Tensor([[[1.0, 5.0], [2.0, 3.0]]]).max_pool2d(2, return_indices=True)
    >>> nn.functional.max_unpool2d(values, indices, 2).tolist()
    [[[0.0, 5.0], [0.0, 0.0]]]
    """
    return input.max_unpool2d(indices, kernel_size, stride, padding, output_size)


@guarded
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Return the inverse of `max_pool3d` over the last three axes, with zeros at elements that were no maxima.

    See `max_unpool2d`.

    >>> values, indices = Tensor([[[[1.0, 5.0], [2.0, 3.0]]]]).max_pool3d((1, 2, 2), return_indices=True)
    >>> nn.functional.max_unpool3d(values, indices, (1, 2, 2)).tolist()
    [[[[0.0, 5.0], [0.0, 0.0]]]]
    """
    return input.max_unpool3d(indices, kernel_size, stride, padding, output_size)


@guarded
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Return (..., C * r * r, H, W) as (..., C, H * r, W * r), r the `upscale_factor`: channels become pixels.

    Raises ShapeError for fewer than 3 axes or channels that r * r does not divide, ArgumentError for r below 1.

    >>> monolect.pixel_shuffle(Tensor([[[1]], [[2]], [[3]], [[4]]]), 2).tolist()
    [[[1, 2], [3, 4]]]
    """
    return input.pixel_shuffle(upscale_factor)


@guarded
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Return (..., C, H * r, W * r) as (..., C * r * r, H, W), r the `downscale_factor`: pixels become channels.

    Raises ShapeError for fewer than 3 axes or sizes that r does not divide, ArgumentError for r below 1.

    >>> monolect.pixel_unshuffle(Tensor([[[1, 2], [3, 4]]]), 2).tolist()
    [[[1]], [[2]], [[3]], [[4]]]
    """
    return input.pixel_unshuffle(downscale_factor)


@guarded
def upsample(
    input: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """Return `input.interpolate(size, scale_factor, mode, align_corners)`.

    >>> nn.functional.upsample(Tensor([[[1, 2]]]), 4).tolist()
    [[[1, 1, 2, 2]]]
    """
    return input.upsample(size, scale_factor, mode, align_corners)


@guarded
def upsample_bilinear(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Return `input.interpolate(size, scale_factor, mode="bilinear", align_corners=True)`.

    >>> nn.functional.upsample_bilinear(Tensor([[[[1.0, 3.0]]]]), (1, 3)).tolist()
    [[[[1.0, 2.0, 3.0]]]]
    """
    return input.upsample_bilinear(size, scale_factor)


@guarded
def upsample_nearest(
    input: Tensor, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """Return `input.interpolate(size, scale_factor, mode="nearest")`.

    >>> nn.functional.upsample_nearest(Tensor([[[1, 2]]]), scale_factor=2).tolist()
    [[[1, 1, 2, 2]]]
    """
    return input.upsample_nearest(size, scale_factor)


__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "bartlett_window",
    "blackman_window",
    "channel_shuffle",
    "fold",
    "fractional_max_pool2d",
    "fractional_max_pool3d",
    "grid_sample",
    "hamming_window",
    "hann_window",
    "im2col",
    "interpolate",
    "kaiser_window",
    "lp_pool1d",
    "lp_pool2d",
    "lp_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_unpool1d",
    "max_unpool2d",
    "max_unpool3d",
    "pixel_shuffle",
    "pixel_unshuffle",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]

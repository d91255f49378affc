"""Functions for layers of networks and losses, made from the methods of Tensor; written by `make surface`."""

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
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool | None = None,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Return `input`, (N, C, ...), normalized to mean 0 and variance 1 over each channel, then `* weight + bias`, both
    (C,).

    In training (by default the setting TRAINING) the statistics are those of the batch. The running statistics, if
    given, then move toward them by `momentum`, with the unbiased variance; their assignment is lazy. Otherwise the
    running statistics are used. `weight` or `bias` None is left out. Raises ShapeError for other shapes, fewer than
    2 axes, or fewer than 2 values of a channel in training; ArgumentError if statistics that are needed are None.

    >>> x = Tensor([[1.0], [3.0]])
    >>> monolect.batch_norm(x, training=True, eps=0.0).tolist()
    [[-1.0], [1.0]]
    """
    return input.batch_norm(running_mean, running_var, weight, bias, training, momentum, eps)


@guarded
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the cross-entropy of probabilities with targets in [0, 1], reduced by `reduction`.

    `reduction` is 'mean', 'sum' or 'none'. Logarithms are at least -100. `weight` scales the loss of each element;
    None leaves it. Raises ShapeError for another shape of `target`.

    >>> round(nn.functional.binary_cross_entropy(Tensor([0.5]), Tensor([1.0])).item(), 4)
    0.6931
    """
    return input.binary_cross_entropy(target, weight, reduction)


@guarded
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Return the cross-entropy of sigmoid(`input`) with targets in [0, 1], reduced by `reduction`.

    `reduction` is 'mean', 'sum' or 'none'. It does not overflow. `weight` scales the loss of each element,
    `pos_weight` the term of its target; None leaves them. Raises ShapeError for another shape of `target`.

    >>> round(monolect.binary_cross_entropy_with_logits(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """
    return input.binary_cross_entropy_with_logits(target, weight, reduction=reduction, pos_weight=pos_weight)


@guarded
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution over one axis: (N, Cin, L) with weight (Cout, Cin / groups, K) -> (N, Cout, L').

    `bias` has shape (Cout,); None adds nothing. `padding` is an int, 'valid' or 'same' (stride 1 only). The batch
    axis may be missing. Raises ShapeError for shapes that do not fit, ArgumentError for other values.

    >>> monolect.conv1d(Tensor([[[1.0, 2.0, 3.0]]]), Tensor([[[1.0, 1.0]]])).tolist()
    [[[3.0, 5.0]]]
    """
    return input.conv1d(weight, bias, stride, padding, dilation, groups)


@guarded
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution over two axes: (N, Cin, H, W) with weight (Cout, Cin / groups, Kh, Kw) -> (N, Cout, H',
    W').

    `bias` has shape (Cout,); None adds nothing. `padding` is an int, one int for each axis, 'valid' or 'same'
    (stride 1 only); `stride` and `dilation` are an int or one for each axis. The batch axis may be missing. float16
    and bfloat16 are accumulated in float32. Raises ShapeError for shapes that do not fit, ArgumentError for other
    values of `stride`, `padding`, `dilation` and `groups`.

    >>> monolect.conv2d(Tensor.ones(1, 1, 4, 4), Tensor.ones(2, 1, 3, 3), padding=1).shape
    (1, 2, 4, 4)
    """
    return input.conv2d(weight, bias, stride, padding, dilation, groups)


@guarded
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Return the convolution over three axes: (N, Cin, D, H, W) with weight (Cout, Cin / groups, Kd, Kh, Kw) -> (N,
    Cout, D', H', W').

    `bias` has shape (Cout,); None adds nothing. `padding` is an int, one int for each axis, 'valid' or 'same'
    (stride 1 only); `stride` and `dilation` are an int or one for each axis. The batch axis may be missing. Raises
    ShapeError for shapes that do not fit, ArgumentError for other values.

    >>> monolect.conv3d(Tensor.ones(1, 1, 2, 2, 2), Tensor.ones(1, 1, 2, 2, 2)).tolist()
    [[[[[8.0]]]]]
    """
    return input.conv3d(weight, bias, stride, padding, dilation, groups)


@guarded
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """Return the transpose of `conv1d`: (N, Cin, L) with weight (Cin, Cout / groups, K) -> (N, Cout, L').

    `stride`, `padding` and `dilation` are those of the convolution that is transposed. `output_padding` is added at
    the end of the axis and is less than the stride or the dilation. Raises ShapeError for shapes that do not fit,
    ArgumentError for other values.

    >>> monolect.conv_transpose1d(Tensor([[[1.0, 2.0]]]), Tensor([[[1.0, 10.0]]])).tolist()
    [[[1.0, 12.0, 20.0]]]
    """
    return input.conv_transpose1d(weight, bias, stride, padding, output_padding, groups, dilation)


@guarded
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """Return the transpose of `conv2d`: (N, Cin, H, W) with weight (Cin, Cout / groups, Kh, Kw) -> (N, Cout, H', W').

    This is the gradient of `conv2d` with respect to its input; `bias`, `stride`, `padding` and `dilation` are those
    of `conv2d`, except that `padding` is no string. `output_padding` is added at the end of each axis and is less
    than the stride or the dilation. Raises ShapeError for shapes that do not fit, ArgumentError for other values.

    >>> monolect.conv_transpose2d(Tensor.ones(1, 1, 2, 2), Tensor.ones(1, 1, 2, 2), stride=2).shape
    (1, 1, 4, 4)
    """
    return input.conv_transpose2d(weight, bias, stride, padding, output_padding, groups, dilation)


@guarded
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """Return the transpose of `conv3d`: (N, Cin, D, H, W) with weight (Cin, Cout / groups, Kd, Kh, Kw) -> (N, Cout,
    D', H', W').

    `stride`, `padding` and `dilation` are those of the convolution that is transposed. `output_padding` is added at
    the end of each axis and is less than the stride or the dilation. Raises ShapeError for shapes that do not fit,
    ArgumentError for other values.

    >>> monolect.conv_transpose3d(Tensor.ones(1, 1, 1, 1, 2), Tensor.ones(1, 1, 1, 1, 2)).tolist()
    [[[[[1.0, 2.0, 1.0]]]]]
    """
    return input.conv_transpose3d(weight, bias, stride, padding, output_padding, groups, dilation)


@guarded
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross-entropy of logits (N, C, ...) or (C,) with classes (N, ...), or with probabilities in the shape
    of `input`.

    Integer targets are classes. Targets equal to `ignore_index` are skipped, and the mean is over the weight of the
    others; `weight` has shape (C,). `label_smoothing`: share of the target that all classes get equally. A class
    outside of [0, C) makes the loss nan, and raises IndexRangeError under `CHECK_BOUNDS=1`. Float targets are
    probabilities; the mean is over N and the axes after C. `reduction` is 'mean', 'sum' or 'none'. Raises
    ShapeError for other shapes of `target` and `weight`, DTypeError for integer logits, ArgumentError for another
    reduction or a `label_smoothing` outside of [0, 1].

    >>> round(nn.functional.cross_entropy(Tensor([[2.0, 0.0]]), Tensor([0])).item(), 4)
    0.1269
    """
    return input.cross_entropy(
        target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


@guarded
def dropout(input: Tensor, p: float = 0.5, training: bool | None = None) -> Tensor:
    """Return `input` with each element set to 0 with probability `p`, else divided by 1 - p; `input` unchanged if not
    training.

    `training` is by default the setting TRAINING. Raises ArgumentError unless 0 <= p <= 1, DTypeError for integers.

    >>> monolect.dropout(Tensor([1.0, 2.0]), 0.5, training=False).tolist()
    [1.0, 2.0]
    """
    return input.dropout(p, training)


@guarded
def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-05
) -> Tensor:
    """Return `input`, (N, C, ...), normalized to mean 0 and variance 1 over each of `num_groups` groups of channels of
    a sample, then `* weight + bias`, both (C,). `eps` is added to the variance.

    `weight` or `bias` None is left out. Raises ShapeError for other shapes or fewer than 2 axes, and ArgumentError
    if `num_groups` does not divide the channels.

    >>> monolect.group_norm(Tensor.ones(1, 4, 3), 2).tolist()[0][0]
    [0.0, 0.0, 0.0]
    """
    return input.group_norm(num_groups, weight, bias, eps)


@guarded
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return d * d / 2 where |d| < delta, else delta * (|d| - delta / 2), reduced by `reduction`.

    d is `input` - target; `reduction` is 'mean', 'sum' or 'none'. Raises ArgumentError unless `delta` is positive,
    ShapeError for another shape of `target`.

    >>> nn.functional.huber_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    return input.huber_loss(target, reduction, delta)


@guarded
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> Tensor:
    """Return `input`, (N, C, ...), normalized to mean 0 and variance 1 over each channel of each sample, then `*
    weight + bias`, both (C,).

    `weight` or `bias` None is left out. Without `use_input_stats` the running statistics, (C,), are used, and
    ArgumentError is raised if they are None; they are never updated, so `momentum` has no effect. Raises ShapeError
    for other shapes or fewer than 3 axes.

    >>> monolect.instance_norm(Tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    return input.instance_norm(running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@guarded
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """Return target * (log(target) - `input`), reduced by `reduction`.

    `input` holds log-probabilities, and with `log_target` so does `target`. `reduction` may also be 'batchmean',
    which divides the sum by the first size. Raises ShapeError for another shape of `target`.

    >>> monolect.kl_div(Tensor([0.0]), Tensor([0.0]), reduction="sum").item()
    0.0
    """
    return input.kl_div(target, reduction, log_target)


@guarded
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the absolute difference from `target`, reduced by `reduction`: 'mean', 'sum' or 'none'.

    Raises ShapeError for another shape of `target`.

    >>> nn.functional.l1_loss(Tensor([1.0, -3.0]), Tensor([0.0, 0.0])).item()
    2.0
    """
    return input.l1_loss(target, reduction)


@guarded
def layer_norm(
    input: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-05,
) -> Tensor:
    """Return `input` normalized to mean 0 and variance 1 over its last axes, then `* weight + bias`.

    `weight` and `bias` have the shape `normalized_shape`, the last sizes of `input`; None leaves either out. `eps`
    is added to the variance. Raises ShapeError for other sizes, DTypeError for integers.

    >>> monolect.layer_norm(Tensor([[1.0, 3.0]]), 2, eps=0.0).tolist()
    [[-1.0, 1.0]]
    """
    return input.layer_norm(normalized_shape, weight, bias, eps)


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


@guarded
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the squared difference from `target`, reduced by `reduction`: 'mean', 'sum' or 'none'.

    Raises ShapeError for another shape of `target`.

    >>> nn.functional.mse_loss(Tensor([1.0, 3.0]), Tensor([0.0, 0.0])).item()
    5.0
    """
    return input.mse_loss(target, reduction)


@guarded
def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Return the negative log-likelihood of log-probabilities (N, C, ...) or (C,) for target classes (N, ...).

    Targets equal to `ignore_index` are skipped. `weight`, of shape (C,), is a factor for each class; None is 1.
    `reduction` is 'mean', over the weight of the targets that count, 'sum' or 'none'. Raises DTypeError for integer
    log-probabilities and for targets that are not integers, ShapeError for other shapes.

    >>> nn.functional.nll_loss(Tensor([[-0.5, -1.0]]), Tensor([1])).item()
    1.0
    """
    return input.nll_loss(target, weight, ignore_index=ignore_index, reduction=reduction)


@guarded
def rms_norm(
    input: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Return `input` divided by the root mean square over its last axes, then `* weight`, which has
    `normalized_shape`.

    `eps` is added to the mean square; None is the machine epsilon. `weight` None is left out. Raises ShapeError for
    other sizes than the last ones of `input`, DTypeError for integers.

    >>> round(monolect.rms_norm(Tensor([[3.0, 4.0]]), 2).square().mean().item(), 4)
    1.0
    """
    return input.rms_norm(normalized_shape, weight, eps)


@guarded
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return d * d / (2 beta) where |d| < beta, else |d| - beta / 2, reduced by `reduction`.

    d is `input` - target; `reduction` is 'mean', 'sum' or 'none'. Raises ArgumentError for a negative `beta`,
    ShapeError for another shape of `target`.

    >>> nn.functional.smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    return input.smooth_l1_loss(target, reduction, beta)


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
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cross_entropy",
    "dropout",
    "group_norm",
    "huber_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mse_loss",
    "nll_loss",
    "rms_norm",
    "smooth_l1_loss",
]

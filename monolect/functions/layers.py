"""Functions for layers of networks, and activations, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Sequence

from monolect.tensor.base import Number, PerAxis
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.tensor import Tensor


@guarded
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False) -> Tensor:
    """Return `input` with each element replaced, with probability `p`, by the limit of `selu` far below 0, then scaled
    and shifted so that mean 0 and variance 1 stay.

    `training` is by default the setting TRAINING. Raises ArgumentError unless 0 <= p <= 1, DTypeError for integers.

    >>> monolect.alpha_dropout(Tensor([1.0, 2.0]), 0.5, training=False).tolist()
    [1.0, 2.0]
    """
    return into(input if inplace else None, "alpha_dropout", input.alpha_dropout(p, training))


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
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input1`[..., i] * weight[o, i, j] * input2[..., j], summed over i and j, plus `bias`[o]: (..., I) and
    (..., J) -> (..., O).

    `bias` None adds nothing. Raises ShapeError for shapes that do not fit.

    >>> monolect.bilinear(Tensor([2.0]), Tensor([3.0]), Tensor([[[1.0]]])).tolist()
    [6.0]
    """
    return input1.bilinear(input2, weight, bias)


@guarded
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` where it is positive, else alpha * expm1(`input` / alpha); integers give float32.

    >>> round(monolect.celu(Tensor(-1.0), alpha=2.0).item(), 4)
    -0.7869
    """
    return into(input if inplace else None, "celu", input.celu(alpha))


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
def dropout(input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False) -> Tensor:
    """Return `input` with each element set to 0 with probability `p`, else divided by 1 - p; `input` unchanged if not
    training.

    `training` is by default the setting TRAINING. Raises ArgumentError unless 0 <= p <= 1, DTypeError for integers.

    >>> monolect.dropout(Tensor([1.0, 2.0]), 0.5, training=False).tolist()
    [1.0, 2.0]
    """
    return into(input if inplace else None, "dropout", input.dropout(p, training))


@guarded
def dropout1d(input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False) -> Tensor:
    """Return (N, C, L) or (C, L) with each channel set to 0 with probability `p`, else divided by 1 - p.

    See `dropout`. Raises ShapeError for other ranks.

    >>> nn.functional.dropout1d(Tensor.ones(2, 3), 1.0, training=True).sum().item()
    0.0
    """
    return into(input if inplace else None, "dropout1d", input.dropout1d(p, training))


@guarded
def dropout2d(input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False) -> Tensor:
    """Return (N, C, H, W) with each channel set to 0 with probability `p`, else divided by 1 - p.

    Three axes are (N, C, L). See `dropout`. Raises ShapeError for other ranks.

    >>> nn.functional.dropout2d(Tensor.ones(2, 3, 1, 1), 1.0, training=True).sum().item()
    0.0
    """
    return into(input if inplace else None, "dropout2d", input.dropout2d(p, training))


@guarded
def dropout3d(input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False) -> Tensor:
    """Return (N, C, D, H, W) or (C, D, H, W) with each channel set to 0 with probability `p`, else divided by 1 - p.

    See `dropout`. Raises ShapeError for other ranks.

    >>> nn.functional.dropout3d(Tensor.ones(2, 3, 1, 1), 1.0, training=True).sum().item()
    0.0
    """
    return into(input if inplace else None, "dropout3d", input.dropout3d(p, training))


@guarded
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` where it is positive, else alpha * expm1(`input`); integers give float32.

    >>> round(nn.functional.elu(Tensor(-1.0)).item(), 4)
    -0.6321
    """
    return into(input if inplace else None, "elu", input.elu(alpha))


@guarded
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: Number = 2.0,
    scale_grad_by_freq: bool = False,
) -> Tensor:
    """Return the rows of `weight` whose numbers `input` holds; shape (*`input`.shape, *weight.shape[1:]).

    The row `padding_idx` gets no gradient. With `max_norm` the rows that are used are first scaled, in `weight`
    itself, to norms of order `norm_type` of at most `max_norm`. With `scale_grad_by_freq` the gradient of a row is
    divided by the number of its uses. Raises DTypeError unless `input` holds integers, ArgumentError for a
    `padding_idx` that is no row.

    >>> monolect.embedding(Tensor([1, 0, 1]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    return input.embedding(weight, padding_idx, max_norm, norm_type, scale_grad_by_freq)


@guarded
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: Number = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    *,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Return the sum, mean or maximum (`mode`) of the rows of `weight` in each bag: (bags, *weight.shape[1:]).

    A row of `input`, (bags, n), is a bag; or `input` is a vector and bag i starts at `offsets`[i], with
    `include_last_offset` up to the last offset. Rows `padding_idx` do not count. `per_sample_weights`, in the shape
    of `input`, scales the rows of a sum. An empty bag gives zeros. `max_norm`, `norm_type` and `scale_grad_by_freq`
    are those of `embedding`. Raises ArgumentError for other modes and arguments that do not fit, ShapeError for
    other shapes, DTypeError unless `input` holds integers.

    >>> table = Tensor([[1.0], [2.0], [4.0]])
    >>> monolect.embedding_bag(Tensor([0, 1, 2]), table, Tensor([0, 2]), mode="sum").tolist()
    [[3.0], [4.0]]
    """
    return input.embedding_bag(
        weight,
        offsets,
        max_norm,
        norm_type,
        scale_grad_by_freq,
        mode,
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )


@guarded
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool | None = None, inplace: bool = False) -> Tensor:
    """Return `input`, (N, C, ...), with whole channels dropped as `alpha_dropout` drops elements.

    Raises ShapeError for fewer than two axes.

    >>> monolect.feature_alpha_dropout(Tensor.ones(2, 3, 4), 0.5, training=False).sum().item()
    24.0
    """
    return into(input if inplace else None, "feature_alpha_dropout", input.feature_alpha_dropout(p, training))


@guarded
def feature_dropout(input: Tensor, p: float = 0.5, train: bool | None = None) -> Tensor:
    """Return `input`, (N, C, ...), with each channel set to 0 with probability `p`, else divided by 1 - p.

    `train` is by default the setting TRAINING. Raises ShapeError for fewer than two axes.

    >>> monolect.feature_dropout(Tensor.ones(2, 3, 4), 1.0, True).sum().item()
    0.0
    """
    return input.feature_dropout(p, train)


@guarded
def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """Return the Gaussian error linear unit; `approximate` is "none" (exact) or "tanh".

    Integers give float32. Raises ArgumentError for another `approximate`.

    >>> round(nn.functional.gelu(Tensor(1.0)).item(), 4)
    0.8413
    """
    return into(out, "gelu", input.gelu(approximate))


@guarded
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """Return the first half of axis `dim` times the sigmoid of the second half.

    Raises ShapeError for an odd size.

    >>> nn.functional.glu(Tensor([2.0, 0.0])).tolist()
    [1.0]
    """
    return input.glu(dim)


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
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """Return a random choice along `dim` in a differentiable form: softmax((`logits` + noise) / tau), the noise drawn
    from a Gumbel distribution.

    With `hard` the value is 1 for the largest and 0 for the others, and the gradient that of the softmax. `eps` is
    the least number whose logarithm is taken. Raises DTypeError for integers.

    >>> nn.functional.gumbel_softmax(Tensor([[0.0, 1.0]]), hard=True).sum().item()
    1.0
    """
    return logits.gumbel_softmax(tau, hard, eps, dim)


@guarded
def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """Return `input`, but 0 where |`input`| <= lambd; integers give float32.

    >>> monolect.hardshrink(Tensor([-2.0, 0.5, 1.0])).tolist()
    [-2.0, 0.0, 1.0]
    """
    return into(out, "hardshrink", input.hardshrink(lambd))


@guarded
def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """Return clamp(`input` / 6 + 1/2, 0, 1); integers give float32.

    >>> nn.functional.hardsigmoid(Tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return into(input if inplace else None, "hardsigmoid", input.hardsigmoid())


@guarded
def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input * hardsigmoid(input)`; integers give float32.

    >>> nn.functional.hardswish(Tensor([-1.5, 1.5, 4.0])).tolist()
    [-0.375, 1.125, 4.0]
    """
    return into(input if inplace else None, "hardswish", input.hardswish())


@guarded
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """Return `input` clamped to [min_val, max_val]; the derivative is 0 at the bounds and at nan, as in PyTorch.

    Integers stay integers, with bounds rounded toward zero. Raises ArgumentError if min_val > max_val or a bound is
    nan.

    >>> nn.functional.hardtanh(Tensor([-3.0, 0.5, 3.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    return into(input if inplace else None, "hardtanh", input.hardtanh(min_val, max_val))


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

    `weight` or `bias` None is left out. With `use_input_stats` the running statistics, (C,), if given, move toward
    the means over the samples by `momentum`, with the unbiased variance; their assignment is lazy. Without, they
    are used, and ArgumentError is raised if they are None. Raises ShapeError for other shapes or fewer than 3 axes.

    >>> monolect.instance_norm(Tensor([[[1.0, 3.0]]]), eps=0.0).tolist()
    [[[-1.0, 1.0]]]
    """
    return input.instance_norm(running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


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
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """Return `input` where it is positive, else negative_slope * `input`.

    >>> nn.functional.leaky_relu(Tensor([-2.0, 3.0]), 0.25).tolist()
    [-0.5, 3.0]
    """
    return into(input if inplace else None, "leaky_relu", input.leaky_relu(negative_slope))


@guarded
def local_response_norm(input: Tensor, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Return `input`, (N, C, ...), divided by (k + alpha * mean of squares of `size` neighbouring channels) ** beta.

    Channels beyond the ends count as 0. Raises ShapeError for fewer than three axes, DTypeError for integers.

    >>> nn.functional.local_response_norm(Tensor.ones(1, 1, 1), 1, alpha=3.0, beta=0.5).tolist()
    [[[0.5]]]
    """
    return input.local_response_norm(size, alpha, beta, k)


@guarded
def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return log(sigmoid(`input`)) without overflow. Integers and bools give float32.

    >>> round(nn.functional.logsigmoid(Tensor(0.0)).item(), 4)
    -0.6931
    """
    return into(out, "logsigmoid", input.logsigmoid())


@guarded
def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input * tanh(softplus(input))`; integers give float32.

    >>> round(nn.functional.mish(Tensor(1.0)).item(), 4)
    0.8651
    """
    return into(input if inplace else None, "mish", input.mish())


@guarded
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return `input` where it is positive, else weight * `input`.

    `weight` is one slope, of shape () or (1,), or a vector with one slope for each channel (axis 1). Raises
    ShapeError for another shape.

    >>> monolect.prelu(Tensor([[-2.0, -2.0], [1.0, 1.0]]), Tensor([0.5, 0.25])).tolist()
    [[-1.0, -0.5], [1.0, 1.0]]
    """
    return input.prelu(weight)


@guarded
def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return max(`input`, 0), in the same dtype; the derivative at 0 is 0.

    >>> monolect.relu(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return into(input if inplace else None, "relu", input.relu())


@guarded
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """Return min(max(`input`, 0), 6); the derivative at 0 and 6 is 0.

    >>> nn.functional.relu6(Tensor([-1.0, 2.0, 8.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return into(input if inplace else None, "relu6", input.relu6())


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
def rrelu(
    input: Tensor,
    lower: float = 0.125,
    upper: float = 0.3333333333333333,
    training: bool | None = None,
    inplace: bool = False,
) -> Tensor:
    """Return `input` where it is at least 0, else `input` times a slope: drawn from [lower, upper) in training, else
    their mean.

    `training` is by default the setting TRAINING. Raises ArgumentError where lower > upper.

    >>> monolect.rrelu(Tensor([-2.0, 3.0]), 0.25, 0.75, training=False).tolist()
    [-1.0, 3.0]
    """
    return into(input if inplace else None, "rrelu", input.rrelu(lower, upper, training))


@guarded
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return the `input`-normalising elu: 1.0507 times `elu` with alpha 1.6733.

    >>> round(monolect.selu(Tensor(-1.0)).item(), 4)
    -1.1113
    """
    return into(input if inplace else None, "selu", input.selu())


@guarded
def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """Return `input * sigmoid(input)`; integers give float32.

    >>> round(nn.functional.silu(Tensor(1.0)).item(), 4)
    0.7311
    """
    return into(input if inplace else None, "silu", input.silu())


@guarded
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0, *, out: Tensor | None = None) -> Tensor:
    """Return log(1 + exp(beta * `input`)) / beta, or `input` where beta * `input` > threshold.

    >>> round(nn.functional.softplus(Tensor(0.0)).item(), 4), nn.functional.softplus(Tensor(30.0)).item()
    (0.6931, 30.0)
    """
    return into(out, "softplus", input.softplus(beta, threshold))


@guarded
def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """Return `input` moved toward 0 by `lambd`, and 0 where |`input`| <= lambd; integers give float32.

    >>> nn.functional.softshrink(Tensor([-2.0, 0.5, 1.0])).tolist()
    [-1.5, 0.0, 0.5]
    """
    return into(out, "softshrink", input.softshrink(lambd))


@guarded
def softsign(input: Tensor) -> Tensor:
    """Return `input / (1 + |input|)`; integers give float32.

    >>> nn.functional.softsign(Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """
    return input.softsign()


@guarded
def tanhshrink(input: Tensor) -> Tensor:
    """Return `input - tanh(input)`; integers give float32.

    >>> round(nn.functional.tanhshrink(Tensor(1.0)).item(), 4)
    0.2384
    """
    return input.tanhshrink()


@guarded
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """Return `input` where it is above the threshold, else `value`.

    >>> monolect.threshold(Tensor([1, 2, 3]), 1, -1).tolist()
    [-1, 2, 3]
    """
    return into(input if inplace else None, "threshold", input.threshold(threshold, value))


__all__ = [
    "alpha_dropout", "batch_norm", "bilinear", "celu", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "conv_transpose3d", "dropout", "dropout1d", "dropout2d", "dropout3d", "elu", "embedding",
    "embedding_bag", "feature_alpha_dropout", "feature_dropout", "gelu", "glu", "group_norm", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "instance_norm", "layer_norm", "leaky_relu",
    "local_response_norm", "logsigmoid", "mish", "prelu", "relu", "relu6", "rms_norm", "rrelu", "selu", "silu",
    "softplus", "softshrink", "softsign", "tanhshrink", "threshold",
]  # fmt: skip

"""Functions that are losses, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.neural.alignment import Lengths
from monolect.tensor.tensor import Tensor


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
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return 1 - cos(`input1`, input2) where `target` is 1 and max(0, cos - margin) where it is -1, reduced.

    `input1` and `input2` are (N, D) for a target (N,), or (D,) for a scalar. `reduction` is 'mean', 'sum' or
    'none'. Raises ShapeError for other shapes.

    >>> x = Tensor([[1.0, 0.0]])
    >>> monolect.cosine_embedding_loss(x, Tensor([[0.0, 2.0]]), Tensor([1])).item()
    1.0
    """
    return input1.cosine_embedding_loss(input2, target, margin, reduction)


@guarded
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-08) -> Tensor:
    """Return the cosine of the angle between `x1` and `x2` along axis `dim`, broadcast.

    Lengths are at least `eps`. Raises DTypeError for integers.

    >>> round(monolect.cosine_similarity(Tensor([[3.0, 4.0]]), Tensor([[4.0, 3.0]])).item(), 4)
    0.96
    """
    return x1.cosine_similarity(x2, dim, eps)


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
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return minus the logarithm of the probability of the targets over all alignments.

    `log_probs` holds log-probabilities (T, N, C), or (T, C) for one sequence; `targets` are classes (N, S), or all
    of them in one vector. The lengths, (N,), tell how much of each counts. `blank` is the class of no label. 'mean'
    divides each loss by its target length first; `reduction` may also be 'sum' or 'none'. A target without an
    alignment gives inf, or with `zero_infinity` 0. The graph has a step for each of T. The gradient is that of the
    loss; PyTorch's is the same behind a `log_softmax` only. Raises ShapeError for other shapes, DTypeError for
    targets that are no integers, ArgumentError for a `blank` that is no class.

    >>> half = Tensor([[0.5, 0.5], [0.5, 0.5]]).log()
    >>> round(monolect.ctc_loss(half, Tensor([1]), 2, 1, reduction="sum").exp().item(), 4)
    1.3333
    """
    return log_probs.ctc_loss(targets, input_lengths, target_lengths, blank, reduction, zero_infinity)


@guarded
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-06, reduction: str = "mean"
) -> Tensor:
    """Return (log(var) + (`input` - target) ** 2 / var) / 2, the negative log-likelihood of normal numbers.

    `var`, a number, has the shape of `input`, or lacks its last axis, or has size 1 there; it is at least `eps`,
    with the gradient of itself. `full` adds log(2 pi) / 2. `reduction` is 'mean', 'sum' or 'none'. Raises
    ShapeError for another shape of `var`, ArgumentError for a negative number.

    >>> nn.functional.gaussian_nll_loss(Tensor([1.0]), Tensor([3.0]), Tensor([1.0])).item()
    2.0
    """
    return input.gaussian_nll_loss(target, var, full, eps, reduction)


@guarded
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return `input` where `target` is 1 and max(0, margin - `input`) where it is -1, reduced by `reduction`.

    `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for shapes that do not broadcast.

    >>> monolect.hinge_embedding_loss(Tensor([0.5, 0.25]), Tensor([1, -1]), reduction="none").tolist()
    [0.5, 0.75]
    """
    return input.hinge_embedding_loss(target, margin, reduction)


@guarded
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Return d * d / 2 where |d| < delta, else delta * (|d| - delta / 2), reduced by `reduction`.

    d is `input` - target; `reduction` is 'mean', 'sum' or 'none'. `weight` has a factor for each element, and the
    mean is that of the products, as in PyTorch. Raises ArgumentError unless `delta` is positive, ShapeError for
    another shape of `target` or `weight`.

    >>> nn.functional.huber_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    return input.huber_loss(target, reduction, delta, weight)


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
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Return the absolute difference from `target`, reduced by `reduction`: 'mean', 'sum' or 'none'.

    `weight` has a factor for each element; the mean is then divided by the sum of the factors. Raises ShapeError
    for another shape of `target` or `weight`.

    >>> nn.functional.l1_loss(Tensor([1.0, -3.0]), Tensor([0.0, 0.0])).item()
    2.0
    """
    return input.l1_loss(target, reduction, weight)


@guarded
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return `input.linear(linear_weight, linear_bias).cross_entropy(target, ...)`, for `input` (N, features) or
    (features,) and a weight (classes, features).

    `ignore_index` None is -100. Raises as `linear` and `cross_entropy`.

    >>> x, w = Tensor([[1.0, 0.0]]), Tensor([[2.0, 0.0], [0.0, 0.0]])
    >>> round(nn.functional.linear_cross_entropy(x, w, Tensor([0])).item(), 4)
    0.1269
    """
    return input.linear_cross_entropy(
        linear_weight,
        target,
        linear_bias=linear_bias,
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )


@guarded
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return max(0, -target * (`input1` - input2) + margin), reduced by `reduction`: 'mean', 'sum' or 'none'.

    A `target` of 1 wants `input1` to be greater, -1 `input2`. Raises ShapeError for different numbers of axes.

    >>> monolect.margin_ranking_loss(Tensor([1.0, 2.0]), Tensor([0.0, 4.0]), Tensor([1, 1]), reduction="none").tolist()
    [0.0, 2.0]
    """
    return input1.margin_ranking_loss(input2, target, margin, reduction)


@guarded
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """Return the squared difference from `target`, reduced by `reduction`: 'mean', 'sum' or 'none'.

    `weight` has a factor for each element; the mean is then divided by the sum of the factors. Raises ShapeError
    for another shape of `target` or `weight`.

    >>> nn.functional.mse_loss(Tensor([1.0, 3.0]), Tensor([0.0, 0.0])).item()
    5.0
    """
    return input.mse_loss(target, reduction, weight)


@guarded
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
) -> Tensor:
    """Return the sum of max(0, margin - `input`[y] + `input`[i]) ** p over classes i other than the target y, over C.

    `input` is (N, C) with targets (N,), or (C,) with a scalar. `weight`, (C,), is a factor for each target class;
    None is 1. `p` is 1 or 2. `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for other shapes, DTypeError
    for targets that are no integers, ArgumentError for another `p`.

    >>> nn.functional.multi_margin_loss(Tensor([[0.0, 0.5]]), Tensor([1])).item()
    0.25
    """
    return input.multi_margin_loss(target, p, margin, weight, reduction=reduction)


@guarded
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return the sum of max(0, 1 - (`input`[j] - `input`[i])) over target classes j and other classes i, divided by C.

    `input` is (N, C) or (C,); `target` has this shape and holds the target classes of a row first, then -1.
    `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for other shapes, DTypeError for targets that are no
    integers.

    >>> nn.functional.multilabel_margin_loss(Tensor([0.1, 0.2, 0.4, 0.8]), Tensor([3, 0, -1, 1])).item()
    0.8500000238418579
    """
    return input.multilabel_margin_loss(target, reduction)


@guarded
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """Return the mean over classes, the last axis, of the cross-entropy of sigmoid(`input`) with targets 0 and 1.

    `weight` is a factor for each class; None is 1. `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for
    another shape of `target`.

    >>> round(nn.functional.multilabel_soft_margin_loss(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """
    return input.multilabel_soft_margin_loss(target, weight, reduction=reduction)


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
def normalize(
    input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12, *, out: Tensor | None = None
) -> Tensor:
    """Return `input` divided by its norm of order `p` along `dim`, or by `eps` where the norm is less.

    Raises DTypeError for integers.

    >>> nn.functional.normalize(Tensor([[0.0, 4.0]])).tolist()
    [[0.0, 1.0]]
    """
    return into(out, "normalize", input.normalize(p, dim, eps))


@guarded
def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-06, keepdim: bool = False) -> Tensor:
    """Return the norm of order `p` of `x1` - x2 + eps along the last axis; `keepdim` keeps it with size 1.

    Raises ShapeError for shapes that do not broadcast.

    >>> round(monolect.pairwise_distance(Tensor([3.0, 0.0]), Tensor([0.0, 4.0])).item(), 3)
    5.0
    """
    return x1.pairwise_distance(x2, p, eps, keepdim)


@guarded
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """Return the distances of order `p` of all pairs of rows i < j of `input`, (N, D), in row-major order of (i, j).

    Raises ShapeError unless `input` has two axes.

    >>> monolect.pdist(Tensor([[0.0], [1.0], [3.0]])).tolist()
    [1.0, 3.0, 2.0]
    """
    return input.pdist(p)


@guarded
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    *,
    eps: float = 1e-08,
    reduction: str = "mean",
) -> Tensor:
    """Return exp(`input`) - target * `input`, the negative log-likelihood of counts for the logarithm of their rate.

    Without `log_input` `input` is the rate: `input` - target * log(`input` + eps). `full` adds Stirling's
    approximation of log(target!) for targets above 1. `reduction` is 'mean', 'sum' or 'none'.

    >>> monolect.poisson_nll_loss(Tensor([0.0]), Tensor([3.0])).item()
    1.0
    """
    return input.poisson_nll_loss(target, log_input, full, eps=eps, reduction=reduction)


@guarded
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return d * d / (2 beta) where |d| < beta, else |d| - beta / 2, reduced by `reduction`.

    d is `input` - target; `reduction` is 'mean', 'sum' or 'none'. Raises ArgumentError for a negative `beta`,
    ShapeError for another shape of `target`.

    >>> nn.functional.smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    return input.smooth_l1_loss(target, reduction, beta)


@guarded
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """Return log(1 + exp(-target * `input`)) for targets 1 and -1, reduced by `reduction`: 'mean', 'sum' or 'none'.

    It does not overflow. Raises ShapeError for another shape of `target`.

    >>> round(nn.functional.soft_margin_loss(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """
    return input.soft_margin_loss(target, reduction)


@guarded
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-06,
    swap: bool = False,
    *,
    reduction: str = "mean",
) -> Tensor:
    """Return max(0, d(`anchor`, positive) - d(`anchor`, negative) + margin), d the `pairwise_distance` of order `p`.

    With `swap` the distance of `positive` and `negative` counts if it is less than the second. `reduction` is
    'mean', 'sum' or 'none'. Raises ShapeError for different numbers of axes.

    >>> anchor, near, far = Tensor([[0.0]]), Tensor([[1.0]]), Tensor([[3.0]])
    >>> round(monolect.triplet_margin_loss(anchor, far, near).item(), 4)
    3.0
    """
    return anchor.triplet_margin_loss(positive, negative, margin, p, eps, swap, reduction=reduction)


@guarded
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Any, Any], Any] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """Return max(0, d(`anchor`, positive) - d(`anchor`, negative) + margin), d the `distance_function`, reduced.

    None is `pairwise_distance`. With `swap` the distance of `positive` and `negative` counts if it is less than the
    second. `reduction` is 'mean', 'sum' or 'none'.

    >>> a, b, c = Tensor([0.0]), Tensor([1.0]), Tensor([3.0])
    >>> nn.functional.triplet_margin_with_distance_loss(a, c, b, distance_function=lambda x, y: (x - y).abs()).item()
    3.0
    """
    return anchor.triplet_margin_with_distance_loss(
        positive, negative, distance_function=distance_function, margin=margin, swap=swap, reduction=reduction
    )


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "ctc_loss",
    "gaussian_nll_loss",
    "hinge_embedding_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "linear_cross_entropy",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "pairwise_distance",
    "pdist",
    "poisson_nll_loss",
    "smooth_l1_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]

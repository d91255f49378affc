"""Functions that are losses, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.guard import guarded
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
def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return d * d / 2 where |d| < delta, else delta * (|d| - delta / 2), reduced by `reduction`.

    d is `input` - target; `reduction` is 'mean', 'sum' or 'none'. Raises ArgumentError unless `delta` is positive,
    ShapeError for another shape of `target`.

    >>> nn.functional.huber_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    return input.huber_loss(target, reduction, delta)


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
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """Return d * d / (2 beta) where |d| < beta, else |d| - beta / 2, reduced by `reduction`.

    d is `input` - target; `reduction` is 'mean', 'sum' or 'none'. Raises ArgumentError for a negative `beta`,
    ShapeError for another shape of `target`.

    >>> nn.functional.smooth_l1_loss(Tensor([0.5, 3.0]), Tensor([0.0, 0.0]), reduction="none").tolist()
    [0.125, 2.5]
    """
    return input.smooth_l1_loss(target, reduction, beta)


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]

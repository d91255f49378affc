"""Define loss layers: each holds settings and calls the method of Tensor of the same name.

`reduction` is 'mean', 'sum' or 'none' everywhere. Arguments that PyTorch deprecates (`size_average`, `reduce`) are
absent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.containers import ModuleList, Sequential
from monolect.nn.layers.linear import Linear
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class _Loss(Module):
    buffer_names = "weight", "pos_weight"

    def __init__(self, *, reduction: str = "mean"):
        self.reduction = reduction

    def extra_repr(self) -> str:
        """Return the reduction as text."""
        return f"reduction={self.reduction!r}"


@guard_methods
class L1Loss(_Loss):
    """Return the absolute difference. See `Tensor.l1_loss`.

    >>> L1Loss()(Tensor([1.0]), Tensor([3.0])).item()
    2.0
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.l1_loss(target, self.reduction)


@guard_methods
class MSELoss(_Loss):
    """Return the squared difference. See `Tensor.mse_loss`.

    >>> MSELoss()(Tensor([1.0]), Tensor([3.0])).item()
    4.0
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.mse_loss(target, self.reduction)


@guard_methods
class SmoothL1Loss(_Loss):
    """Return a square near 0 and the absolute difference beyond `beta`. See `Tensor.smooth_l1_loss`.

    >>> SmoothL1Loss()(Tensor([1.0]), Tensor([3.0])).item()
    1.5
    """

    def __init__(self, *, beta: float = 1.0, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.beta = beta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.smooth_l1_loss(target, self.reduction, self.beta)


@guard_methods
class HuberLoss(_Loss):
    """Return a square near 0 and a line beyond `delta`. See `Tensor.huber_loss`.

    >>> HuberLoss(delta=2.0)(Tensor([0.0]), Tensor([3.0])).item()
    4.0
    """

    def __init__(self, *, delta: float = 1.0, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.huber_loss(target, self.reduction, self.delta)


@guard_methods
class CrossEntropyLoss(_Loss):
    """Return the cross-entropy of logits (N, C, ...) with classes (N, ...) or probabilities.

    See `Tensor.cross_entropy`.

    >>> round(CrossEntropyLoss()(Tensor([[2.0, 0.0]]), Tensor([0])).item(), 4)
    0.1269
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ):
        super().__init__(reduction=reduction)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.cross_entropy(
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


@guard_methods
class NLLLoss(_Loss):
    """Return the negative log-likelihood of log-probabilities (N, C, ...) for classes (N, ...). See `Tensor.nll_loss`.

    >>> NLLLoss()(Tensor([[-0.5, -1.0]]), Tensor([1])).item()
    1.0
    """

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.weight, self.ignore_index = weight, ignore_index

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.nll_loss(target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


@guard_methods
class BCELoss(_Loss):
    """Return the cross-entropy of probabilities with targets in [0, 1]. See `Tensor.binary_cross_entropy`.

    >>> round(BCELoss()(Tensor([0.5]), Tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.weight = weight

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.binary_cross_entropy(target, self.weight, self.reduction)


@guard_methods
class BCEWithLogitsLoss(_Loss):
    """Return the cross-entropy of sigmoid(x) with targets in [0, 1].

    See `Tensor.binary_cross_entropy_with_logits`.

    >>> round(BCEWithLogitsLoss()(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, *, pos_weight: Tensor | None = None, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.weight, self.pos_weight = weight, pos_weight

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.binary_cross_entropy_with_logits(
            target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


@guard_methods
class KLDivLoss(_Loss):
    """Return target * (log(target) - x) for log-probabilities x. See `Tensor.kl_div`.

    `reduction` may also be 'batchmean'.

    >>> KLDivLoss(reduction="sum")(Tensor([0.0]), Tensor([0.0])).item()
    0.0
    """

    def __init__(self, *, log_target: bool = False, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.log_target = log_target

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.kl_div(target, self.reduction, self.log_target)


@guard_methods
class PoissonNLLLoss(_Loss):
    """Return the negative log-likelihood of counts with a Poisson distribution. See `Tensor.poisson_nll_loss`.

    >>> PoissonNLLLoss()(Tensor([0.0]), Tensor([3.0])).item()
    1.0
    """

    def __init__(self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.poisson_nll_loss(target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


@guard_methods
class GaussianNLLLoss(_Loss):
    """Return the negative log-likelihood of numbers with a normal distribution. See `Tensor.gaussian_nll_loss`.

    >>> GaussianNLLLoss()(Tensor([1.0]), Tensor([3.0]), Tensor([1.0])).item()
    2.0
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, x: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        """See the class."""
        return x.gaussian_nll_loss(target, var, self.full, self.eps, self.reduction)


@guard_methods
class HingeEmbeddingLoss(_Loss):
    """Return x for targets 1 and max(0, margin - x) for targets -1. See `Tensor.hinge_embedding_loss`.

    >>> HingeEmbeddingLoss()(Tensor([0.25]), Tensor([-1])).item()
    0.75
    """

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.hinge_embedding_loss(target, self.margin, self.reduction)


@guard_methods
class MarginRankingLoss(_Loss):
    """Return max(0, -target * (input1 - input2) + margin). See `Tensor.margin_ranking_loss`.

    >>> MarginRankingLoss()(Tensor([2.0]), Tensor([4.0]), Tensor([1])).item()
    2.0
    """

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return input1.margin_ranking_loss(input2, target, self.margin, self.reduction)


@guard_methods
class CosineEmbeddingLoss(_Loss):
    """Return 1 - cos for targets 1 and max(0, cos - margin) for targets -1. See `Tensor.cosine_embedding_loss`.

    >>> CosineEmbeddingLoss()(Tensor([[1.0, 0.0]]), Tensor([[0.0, 2.0]]), Tensor([1])).item()
    1.0
    """

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return input1.cosine_embedding_loss(input2, target, self.margin, self.reduction)


@guard_methods
class TripletMarginLoss(_Loss):
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin). See `Tensor.triplet_margin_loss`.

    >>> round(TripletMarginLoss()(Tensor([[0.0]]), Tensor([[3.0]]), Tensor([[1.0]])).item(), 4)
    3.0
    """

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ):
        super().__init__(reduction=reduction)
        self.margin, self.p, self.eps = margin, p, eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """See the class."""
        return anchor.triplet_margin_loss(
            positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction
        )


@guard_methods
class TripletMarginWithDistanceLoss(_Loss):
    """Return max(0, d(anchor, positive) - d(anchor, negative) + margin) for any distance d.

    See `Tensor.triplet_margin_with_distance_loss`.

    >>> TripletMarginWithDistanceLoss(distance_function=Tensor.l1_loss)(Tensor(0.0), Tensor(3.0), Tensor(1.0)).item()
    3.0
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ):
        super().__init__(reduction=reduction)
        self.distance_function, self.margin, self.swap = distance_function, margin, swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """See the class."""
        return anchor.triplet_margin_with_distance_loss(
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


@guard_methods
class SoftMarginLoss(_Loss):
    """Return log(1 + exp(-target * x)) for targets 1 and -1. See `Tensor.soft_margin_loss`.

    >>> round(SoftMarginLoss()(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.soft_margin_loss(target, self.reduction)


@guard_methods
class MultiLabelMarginLoss(_Loss):
    """Return margins between listed and other classes. See `Tensor.multilabel_margin_loss`.

    >>> round(MultiLabelMarginLoss()(Tensor([0.1, 0.2, 0.4, 0.8]), Tensor([3, 0, -1, 1])).item(), 4)
    0.85
    """

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.multilabel_margin_loss(target, self.reduction)


@guard_methods
class MultiLabelSoftMarginLoss(_Loss):
    """Return the mean over classes of the cross-entropy of sigmoid(x). See `Tensor.multilabel_soft_margin_loss`.

    >>> round(MultiLabelSoftMarginLoss()(Tensor([[0.0, 0.0]]), Tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.weight = weight

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.multilabel_soft_margin_loss(target, self.weight, reduction=self.reduction)


@guard_methods
class MultiMarginLoss(_Loss):
    """Return margins between the target class and others. See `Tensor.multi_margin_loss`.

    >>> MultiMarginLoss()(Tensor([[0.0, 0.5]]), Tensor([1])).item()
    0.25
    """

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Tensor | None = None, *, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.p, self.margin, self.weight = p, margin, weight

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.multi_margin_loss(target, self.p, self.margin, self.weight, reduction=self.reduction)


@guard_methods
class CTCLoss(_Loss):
    """Return the loss of a sequence of classes over all its alignments. See `Tensor.ctc_loss`.

    >>> round(CTCLoss()(Tensor([[0.5, 0.5], [0.5, 0.5]]).log(), Tensor([1]), 2, 1).exp().item(), 4)
    1.3333
    """

    def __init__(self, blank: int = 0, *, zero_infinity: bool = False, reduction: str = "mean"):
        super().__init__(reduction=reduction)
        self.blank, self.zero_infinity = blank, zero_infinity

    def forward(
        self,
        x: Tensor,
        targets: Tensor,
        input_lengths: Tensor | int | Sequence[int],
        target_lengths: Tensor | int | Sequence[int],
    ) -> Tensor:
        """See the class."""
        return x.ctc_loss(targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity)


@guard_methods
class LinearCrossEntropyLoss(_Loss):
    """Return the cross-entropy of `linear(x)`, logits for (N, in_features), with classes or probabilities.

    See `Tensor.cross_entropy`. `ignore_index` None is -100.

    >>> LinearCrossEntropyLoss(3, 5)(Tensor.ones(2, 3), Tensor([0, 4])).shape
    ()
    """

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ):
        super().__init__(reduction=reduction)
        self.linear = Linear(in_features, num_classes, bias, device, dtype)
        self.weight, self.ignore_index, self.label_smoothing = weight, ignore_index, label_smoothing

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        """See the class."""
        return x.linear_cross_entropy(
            self.linear.weight,
            target,
            linear_bias=self.linear.bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
        )


@guard_methods
class CosineSimilarity(Module):
    """Return the cosine of the angle between two tensors along `dim`. See `Tensor.cosine_similarity`.

    >>> round(CosineSimilarity()(Tensor([[3.0, 4.0]]), Tensor([[4.0, 3.0]])).item(), 4)
    0.96
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """See the class."""
        return x1.cosine_similarity(x2, self.dim, self.eps)


@guard_methods
class PairwiseDistance(Module):
    """Return the distance of order `p` along the last axis. See `Tensor.pairwise_distance`.

    >>> round(PairwiseDistance()(Tensor([[3.0, 0.0]]), Tensor([[0.0, 4.0]])).item(), 3)
    5.0
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """See the class."""
        return x1.pairwise_distance(x2, self.p, self.eps, self.keepdim)


class _Output(NamedTuple):
    """The result of AdaptiveLogSoftmaxWithLoss."""

    output: Tensor  # log-probability of the target of each row
    loss: Tensor  # minus their mean


@guard_methods
class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over many classes in clusters: rare classes have smaller matrices. (N, in_features), (N,) -> (log-
    probabilities of the targets, loss).

    The classes before the first of `cutoffs` are in the head, those up to the next one in a cluster of
    in_features / `div_value` elements, and so on. All clusters are computed for all rows. Raises ArgumentError for
    `cutoffs` that do not grow from 1 to n_classes - 1, ShapeError for other inputs.

    >>> layer = AdaptiveLogSoftmaxWithLoss(8, 10, [4])
    >>> output, loss = layer(Tensor.ones(2, 8), Tensor([1, 9]))
    >>> output.shape, layer.log_prob(Tensor.ones(2, 8)).shape
    ((2,), (2, 10))
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        cuts = list(cutoffs)
        if not cuts or cuts != sorted(set(cuts)) or cuts[0] < 1 or cuts[-1] > n_classes - 1:
            expected = f"ints that grow, from 1 to {n_classes - 1}"
            raise ArgumentError("AdaptiveLogSoftmaxWithLoss: cutoffs", expected=expected, found=cuts)
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cuts, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.head = Linear(in_features, cuts[0] + len(cuts), head_bias, device, dtype)
        self.tail = ModuleList()
        for i, (start, stop) in enumerate(pairwise(self.cutoffs)):
            size = int(in_features // div_value ** (i + 1))
            first = Linear(in_features, size, False, device, dtype)
            self.tail.append(Sequential(first, Linear(size, stop - start, False, device, dtype)))

    def forward(self, x: Tensor, target: Tensor) -> _Output:
        """See the class. The batch axis may be missing."""
        if target.ndim > 1 or x.ndim != target.ndim + 1 or x.shape[:-1] != target.shape:
            expected = f"(N, {self.in_features}) and (N,), or ({self.in_features},) and ()"
            raise ShapeError("AdaptiveLogSoftmaxWithLoss", expected=expected, found=(x.shape, target.shape))
        rows, classes = (x, target) if target.ndim else (x.unsqueeze(0), target.unsqueeze(0))
        loss = self.log_prob(rows).nll_loss(classes, reduction="none")
        return _Output(-loss if target.ndim else -loss.squeeze(0), loss.mean())

    def log_prob(self, x: Tensor) -> Tensor:
        """Return the log-probabilities of all classes: (N, in_features) -> (N, n_classes).

        >>> nn.AdaptiveLogSoftmaxWithLoss(8, 10, [4]).log_prob(Tensor.ones(2, 8)).shape
        (2, 10)
        """
        head, first = self.head(x).log_softmax(1), self.cutoffs[0]
        parts = [tail(x).log_softmax(1) + head[:, first + i].unsqueeze(1) for i, tail in enumerate(self.tail)]
        return head[:, :first].cat(*parts, dim=1)

    def predict(self, x: Tensor) -> Tensor:
        """Return the most likely class of each row: (N, in_features) -> (N,).

        >>> nn.AdaptiveLogSoftmaxWithLoss(8, 10, [4]).predict(Tensor.ones(2, 8)).shape
        (2,)
        """
        return self.log_prob(x).argmax(1)


__all__ = [
    "AdaptiveLogSoftmaxWithLoss",
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LinearCrossEntropyLoss",
    "MSELoss",
    "MarginRankingLoss",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss",
    "PairwiseDistance",
    "PoissonNLLLoss",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
]

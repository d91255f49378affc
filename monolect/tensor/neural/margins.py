"""Methods for losses of distances, margins and distributions other than classes, in PyTorch's functional forms.

What it is for: ranking, embeddings, several labels, counts with a Poisson and numbers with a Gaussian distribution.
Invariant: 'mean' and 'sum' give a scalar, 'none' a tensor; the derivative at a margin is that of PyTorch.
Source: torch.nn.functional.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi
from typing import Any, Self

from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import check_range
from monolect.tensor.neural.distance import DistanceMixin
from monolect.tensor.neural.loss import reduced, same_shape

_TINY = 1e-12  # added to squared lengths in cosine_embedding_loss


def _above(x: Any) -> Any:
    """Return max(x, 0) with derivative 1 at 0, as PyTorch's clamp has."""
    return (x >= 0).where(x, 0.0)


def _rows(x: Any, name: str) -> Any:
    """Return `x`, of shape (N, C) or (C,), as (N, C). Raises ShapeError, which names the method `name`, for others."""
    if x.ndim not in (1, 2) or x.shape[-1] == 0:
        raise ShapeError(f"{name}: the input", expected="(batch, classes) or (classes,)", found=x.shape)
    return x if x.ndim == 2 else x.unsqueeze(0)


@guard_methods
class MarginsMixin(DistanceMixin):
    """Methods of Tensor for losses of margins and distributions and, inherited, distances and losses of classes."""

    __slots__ = ()

    # ---- pairs and triplets ------------------------------------------------------------------------------------------
    def hinge_embedding_loss(self, target: TensorBase, margin: float = 1.0, reduction: str = "mean") -> Self:
        """Return self where `target` is 1 and max(0, margin - self) where it is -1, reduced by `reduction`.

        `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for shapes that do not broadcast.

        >>> Tensor([0.5, 0.25]).hinge_embedding_loss(Tensor([1, -1]), reduction="none").tolist()
        [0.5, 0.75]
        """
        near: Any = (target == -1).where(0.0, self)
        far: Any = (target == 1).where(0.0, _above(margin - self))
        return reduced(near + far, reduction, "hinge_embedding_loss")

    def margin_ranking_loss(
        self, input2: TensorBase, target: TensorBase, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """Return max(0, -target * (self - input2) + margin), reduced by `reduction`: 'mean', 'sum' or 'none'.

        A `target` of 1 wants self to be greater, -1 `input2`. Raises ShapeError for different numbers of axes.

        >>> Tensor([1.0, 2.0]).margin_ranking_loss(Tensor([0.0, 4.0]), Tensor([1, 1]), reduction="none").tolist()
        [0.0, 2.0]
        """
        if not self.ndim == input2.ndim == target.ndim:
            raise ShapeError(
                "margin_ranking_loss: ranks",
                expected="equal numbers of axes",
                found=(self.shape, input2.shape, target.shape),
            )
        return reduced(_above(-target * (self - input2) + margin), reduction, "margin_ranking_loss")

    def cosine_embedding_loss(
        self, input2: TensorBase, target: TensorBase, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """Return 1 - cos(self, input2) where `target` is 1 and max(0, cos - margin) where it is -1, reduced.

        self and `input2` are (N, D) for a target (N,), or (D,) for a scalar. `reduction` is 'mean', 'sum' or 'none'.
        Raises ShapeError for other shapes.

        >>> x = Tensor([[1.0, 0.0]])
        >>> x.cosine_embedding_loss(Tensor([[0.0, 2.0]]), Tensor([1])).item()
        1.0
        """
        if target.ndim > 1 or self.ndim != target.ndim + 1 or input2.ndim != self.ndim:
            expected = "(N, D), (N, D) and (N,), or (D,), (D,) and ()"
            raise ShapeError("cosine_embedding_loss", expected=expected, found=(self.shape, input2.shape, target.shape))
        x: Any = self
        squares = ((x * x).sum(-1) + _TINY) * ((input2 * input2).sum(-1) + _TINY)
        cosine = (x * input2).sum(-1) / squares.sqrt()
        loss = (target == 1).where(1 - cosine, 0.0) + (target == -1).where(_above(cosine - margin), 0.0)
        return reduced(loss, reduction, "cosine_embedding_loss")

    def triplet_margin_loss(
        self,
        positive: TensorBase,
        negative: TensorBase,
        margin: float = 1.0,
        p: float = 2,
        eps: float = 1e-6,
        swap: bool = False,
        *,
        reduction: str = "mean",
    ) -> Self:
        """Return max(0, d(self, positive) - d(self, negative) + margin), d the `pairwise_distance` of order `p`.

        With `swap` the distance of `positive` and `negative` counts if it is less than the second. `reduction` is
        'mean', 'sum' or 'none'. Raises ShapeError for different numbers of axes.

        >>> anchor, near, far = Tensor([[0.0]]), Tensor([[1.0]]), Tensor([[3.0]])
        >>> round(anchor.triplet_margin_loss(far, near).item(), 4)
        3.0
        """
        if not self.ndim == positive.ndim == negative.ndim:
            found = (self.shape, positive.shape, negative.shape)
            raise ShapeError("triplet_margin_loss: ranks", expected="equal numbers of axes", found=found)
        return self.triplet_margin_with_distance_loss(
            positive,
            negative,
            distance_function=lambda a, b: a.pairwise_distance(b, p, eps),
            margin=margin,
            swap=swap,
            reduction=reduction,
        )

    def triplet_margin_with_distance_loss(
        self,
        positive: TensorBase,
        negative: TensorBase,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """Return max(0, d(self, positive) - d(self, negative) + margin), d the `distance_function`, reduced.

        None is `pairwise_distance`. With `swap` the distance of `positive` and `negative` counts if it is less than the
        second. `reduction` is 'mean', 'sum' or 'none'.

        >>> a, b, c = Tensor([0.0]), Tensor([1.0]), Tensor([3.0])
        >>> a.triplet_margin_with_distance_loss(c, b, distance_function=lambda x, y: (x - y).abs()).item()
        3.0
        """
        distance = distance_function or (lambda a, b: a.pairwise_distance(b))
        near, far = distance(self, positive), distance(self, negative)
        if swap:
            far = far.minimum(distance(positive, negative))
        return reduced(_above(margin + near - far), reduction, "triplet_margin_loss")

    # ---- labels ------------------------------------------------------------------------------------------------------
    def soft_margin_loss(self, target: TensorBase, reduction: str = "mean") -> Self:
        """Return log(1 + exp(-target * self)) for targets 1 and -1, reduced by `reduction`: 'mean', 'sum' or 'none'.

        It does not overflow. Raises ShapeError for another shape of `target`.

        >>> round(Tensor([0.0]).soft_margin_loss(Tensor([1.0])).item(), 4)
        0.6931
        """
        same_shape(self, target, "soft_margin_loss")
        return reduced(-((target * self).logsigmoid()), reduction, "soft_margin_loss")

    def multilabel_soft_margin_loss(
        self, target: TensorBase, weight: TensorBase | None = None, *, reduction: str = "mean"
    ) -> Self:
        """Return the mean over classes, the last axis, of the cross-entropy of sigmoid(self) with targets 0 and 1.

        `weight` is a factor for each class; None is 1. `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for
        another shape of `target`.

        >>> round(Tensor([[0.0, 0.0]]).multilabel_soft_margin_loss(Tensor([[1.0, 0.0]])).item(), 4)
        0.6931
        """
        same_shape(self, target, "multilabel_soft_margin_loss")
        x: Any = self
        loss = -(target * x.logsigmoid() + (1 - target) * (-x).logsigmoid())
        loss = loss if weight is None else loss * weight
        return reduced(loss.mean(-1), reduction, "multilabel_soft_margin_loss")

    def multilabel_margin_loss(self, target: TensorBase, reduction: str = "mean") -> Self:
        """Return the sum of max(0, 1 - (self[j] - self[i])) over target classes j and other classes i, divided by C.

        self is (N, C) or (C,); `target` has this shape and holds the target classes of a row first, then -1.
        `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for other shapes, DTypeError for targets that are no
        integers.

        >>> Tensor([0.1, 0.2, 0.4, 0.8]).multilabel_margin_loss(Tensor([3, 0, -1, 1])).item()
        0.8500000238418579
        """
        same_shape(self, target, "multilabel_margin_loss")
        if not target.dtype.is_int:
            raise DTypeError("multilabel_margin_loss: target", expected="integer classes", found=target.dtype.name)
        x, y = _rows(self, "multilabel_margin_loss"), _rows(target, "multilabel_margin_loss").long()
        n, c = x.shape
        is_listed = (y < 0).long().cumsum(1) == 0
        y = is_listed.where(y, 0)
        check_range(y, c, "multilabel_margin_loss")
        is_target = ((y.unsqueeze(2) == self._kind.arange(c, device=self.device)) & is_listed.unsqueeze(2)).any(1)
        terms = _above(1 - x.gather(1, y).unsqueeze(2) + x.unsqueeze(1))
        counts = is_listed.unsqueeze(2) & ~is_target.unsqueeze(1)
        loss = counts.where(terms, 0.0).sum((1, 2)) / c
        return reduced(loss if self.ndim == 2 else loss.squeeze(0), reduction, "multilabel_margin_loss")

    def multi_margin_loss(
        self,
        target: TensorBase,
        p: int = 1,
        margin: float = 1.0,
        weight: TensorBase | None = None,
        *,
        reduction: str = "mean",
    ) -> Self:
        """Return the sum of max(0, margin - self[y] + self[i]) ** p over classes i other than the target y, over C.

        self is (N, C) with targets (N,), or (C,) with a scalar. `weight`, (C,), is a factor for each target class; None
        is 1. `p` is 1 or 2. `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for other shapes, DTypeError for
        targets that are no integers, ArgumentError for another `p`.

        >>> Tensor([[0.0, 0.5]]).multi_margin_loss(Tensor([1])).item()
        0.25
        """
        if p not in (1, 2):
            raise ArgumentError("multi_margin_loss: p", expected="1 or 2", found=p)
        if not target.dtype.is_int:
            raise DTypeError("multi_margin_loss: target", expected="integer classes", found=target.dtype.name)
        x: Any = _rows(self, "multi_margin_loss")
        n, c = x.shape
        if target.shape != self.shape[:-1] and target.shape != (n,):
            raise ShapeError("multi_margin_loss: target", expected=self.shape[:-1], found=target.shape)
        if weight is not None and weight.shape != (c,):
            raise ShapeError("multi_margin_loss: weight", expected=(c,), found=weight.shape)
        y: Any = target.reshape(n, 1)
        y = y.long()
        check_range(y, c, "multi_margin_loss")
        terms = _above(margin - x.gather(1, y) + x)
        terms = terms if p == 1 else terms * terms
        terms = terms if weight is None else terms * weight[y]
        loss = (y == self._kind.arange(c, device=self.device)).where(0.0, terms).sum(1) / c
        return reduced(loss if self.ndim == 2 else loss.squeeze(0), reduction, "multi_margin_loss")

    # ---- distributions -----------------------------------------------------------------------------------------------
    def poisson_nll_loss(
        self,
        target: TensorBase,
        log_input: bool = True,
        full: bool = False,
        *,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Self:
        """Return exp(self) - target * self, the negative log-likelihood of counts for the logarithm of their rate.

        Without `log_input` self is the rate: self - target * log(self + eps). `full` adds Stirling's approximation of
        log(target!) for targets above 1. `reduction` is 'mean', 'sum' or 'none'.

        >>> Tensor([0.0]).poisson_nll_loss(Tensor([3.0])).item()
        1.0
        """
        x: Any = self
        loss = x.exp() - target * x if log_input else x - target * (x + eps).log()
        if full:
            above = target > 1
            t: Any = above.where(target, 2)
            loss = loss + above.where(t * t.log() - t + 0.5 * (t * (2 * pi)).log(), 0.0)
        return reduced(loss, reduction, "poisson_nll_loss")

    def gaussian_nll_loss(
        self,
        target: TensorBase,
        var: TensorBase | float,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Self:
        """Return (log(var) + (self - target) ** 2 / var) / 2, the negative log-likelihood of normal numbers.

        `var`, a number, has the shape of self, or lacks its last axis, or has size 1 there; it is at least `eps`, with
        the gradient of itself. `full` adds log(2 pi) / 2. `reduction` is 'mean', 'sum' or 'none'. Raises ShapeError for
        another shape of `var`, ArgumentError for a negative number.

        >>> Tensor([1.0]).gaussian_nll_loss(Tensor([3.0]), Tensor([1.0])).item()
        2.0
        """
        v: Any = var
        if not isinstance(v, TensorBase):
            if v < 0:
                raise ArgumentError("gaussian_nll_loss: var", expected="0 or more", found=var)
            v = self._kind.full(self.shape, float(v), dtype=self.dtype, device=self.device)
        if v.shape != self.shape:
            if v.shape == self.shape[:-1]:
                v = v.unsqueeze(-1)
            elif v.shape[:-1] != self.shape[:-1] or v.shape[-1:] != (1,):
                raise ShapeError("gaussian_nll_loss: var", expected=self.shape, found=v.shape)
        v = (v.detach() < eps).where(v - v.detach() + eps, v)
        loss = 0.5 * (v.log() + (self - target) ** 2 / v)
        return reduced(loss + 0.5 * log(2 * pi) if full else loss, reduction, "gaussian_nll_loss")

    def linear_cross_entropy(
        self,
        linear_weight: TensorBase,
        target: TensorBase,
        *,
        linear_bias: TensorBase | None = None,
        weight: TensorBase | None = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
    ) -> Self:
        """Return `self.linear(linear_weight, linear_bias).cross_entropy(target, ...)`, for self (N, features) or
        (features,) and a weight (classes, features).

        `ignore_index` None is -100. Raises as `linear` and `cross_entropy`.

        >>> x, w = Tensor([[1.0, 0.0]]), Tensor([[2.0, 0.0], [0.0, 0.0]])
        >>> round(x.linear_cross_entropy(w, Tensor([0])).item(), 4)
        0.1269
        """
        logits: Any = self.linear(linear_weight, linear_bias)  # type: ignore[attr-defined]
        ignored = -100 if ignore_index is None else ignore_index
        return logits.cross_entropy(
            target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
        )


__all__ = ["MarginsMixin"]

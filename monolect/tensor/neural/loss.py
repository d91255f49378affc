"""Methods for loss functions, in PyTorch's functional forms.

What it is for: classification, regression and divergence losses with PyTorch's names, defaults and reductions.
What it is not: it holds no state. Classes are selected by comparing with an iota (WHERE), not by indexing. So the
gradient is dense and cheap, and softmax, selection and sum are one kernel over a row.
Invariant: losses are accumulated in at least float32; `reduction` is 'mean', 'sum' or 'none'.
Source: torch.nn.functional.
"""

from __future__ import annotations

from typing import Any, Self

from monolect.autograd import graph as g
from monolect.autograd import special
from monolect.base.dtype import accumulator, dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import floating, pair
from monolect.tensor.methods.index import check_range
from monolect.tensor.neural.norm import NormMixin

_REDUCTIONS = ("mean", "sum", "none")


def _huber(difference: Any, width: float, factor: float, slope: float) -> Any:
    """Return `factor` times the squared difference where |difference| < width or is nan, else a line in |difference|
    of that `slope`, which is 0 at width / 2.

    Beyond `width` the square is computed of 0, because the derivative of a rejected infinite square would be nan. The
    square is not computed from the distance, whose derivative at 0 is 0, so that the second derivative would be 0
    there.
    """
    distance = difference.abs()
    far = distance >= width
    square = far.where(0, difference)
    return far.where((distance - 0.5 * width) * slope, square * square * factor)


def reduced(loss: Any, reduction: str, name: str) -> Any:
    """Return the loss reduced to its mean or sum by `reduction` 'mean' or 'sum', or unchanged for 'none'.

    Raises ArgumentError, which names the method `name`, for another reduction.
    """
    if reduction not in _REDUCTIONS:
        raise ArgumentError(f"{name}: reduction", expected="'mean', 'sum' or 'none'", found=repr(reduction))
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


def weighed(loss: Any, weight: Any, name: str) -> Any:
    """Return the loss of each element times `weight`, if any. Raises ShapeError for another shape of `weight`."""
    if weight is None:
        return loss
    same_shape(loss, weight, f"{name}: weight of the")
    return loss * weight


def averaged(loss: Any, weight: Any, reduction: str, name: str) -> Any:
    """Return the loss times `weight`, if any, reduced as by `reduced`; a mean is divided by the sum of the weights."""
    if weight is None or reduction != "mean":
        return reduced(weighed(loss, weight, name), reduction, name)
    return weighed(loss, weight, name).sum() / weight.sum()


def same_shape(x: Any, target: Any, name: str) -> None:
    """Raise DTypeError unless `target` is a Tensor, ShapeError unless it has the shape of `x`; `name` is the method in
    the message.
    """
    if not isinstance(target, TensorBase):
        raise DTypeError(f"{name}: target", expected="a Tensor", found=type(target).__name__)
    if x.shape != target.shape:
        raise ShapeError(f"{name}: target", expected=x.shape, found=target.shape)


def _class_axis(x: Any, name: str) -> int:
    """Return the axis of the classes of the Tensor `x`: 0 for the shape (C,), else 1.

    Raises ShapeError, which names the method `name`, for a scalar.
    """
    if x.ndim == 0:
        raise ShapeError(f"{name}: rank of the input", expected="(classes,) or (batch, classes, ...)", found=())
    return 0 if x.ndim == 1 else 1


def _class_weight(x: Any, weight: Any, axis: int, name: str) -> Any:
    """Return `weight`, shape (classes,), reshaped to broadcast along the class axis, number `axis`, of `x`.

    Raises ShapeError, which names the method `name`, for another shape.
    """
    if weight.shape != (x.shape[axis],):
        raise ShapeError(f"{name}: weight", expected=(x.shape[axis],), found=weight.shape)
    return weight.reshape(-1, *(1,) * (x.ndim - 1 - axis))


@guard_methods
class LossMixin(NormMixin):
    """Methods of Tensor for loss functions and, inherited, normalisation.

    `self` is the prediction; 'mean' and 'sum' give a scalar, 'none' a tensor.
    """

    __slots__ = ()

    # ---- classes -----------------------------------------------------------------------------------------------------
    def cross_entropy(
        self,
        target: TensorBase,
        weight: TensorBase | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Self:
        """Return the cross-entropy of logits (N, C, ...) or (C,) with classes (N, ...), or with probabilities in the
        shape of self.

        Integer targets are classes. Targets equal to `ignore_index` are skipped, and the mean is over the weight of the
        others; `weight` has shape (C,). `label_smoothing`: share of the target that all classes get equally. A class
        outside of [0, C) makes the loss nan, and raises IndexRangeError under `CHECK_BOUNDS=1`. Float targets are
        probabilities; the mean is over N and the axes after C. `reduction` is 'mean', 'sum' or 'none'. Raises
        ShapeError for other shapes of `target` and `weight`, DTypeError for integer logits, ArgumentError for another
        reduction or a `label_smoothing` outside of [0, 1].

        >>> round(Tensor([[2.0, 0.0]]).cross_entropy(Tensor([0])).item(), 4)
        0.1269
        """
        self._check_float("cross_entropy")
        if not 0.0 <= label_smoothing <= 1.0:
            raise ArgumentError("cross_entropy: label_smoothing", expected="0 to 1", found=label_smoothing)
        axis = _class_axis(self, "cross_entropy")
        wide = self.float() if self.dtype.bits < 32 else self
        logp = wide.log_softmax(axis)
        if target.dtype.is_float:
            loss = logp._soft_cross_entropy(target, weight, axis, reduction, label_smoothing)
        else:
            loss = logp._class_loss(target, weight, axis, ignore_index, reduction, label_smoothing, "cross_entropy")
        return loss.cast(self.dtype)

    def nll_loss(
        self, target: TensorBase, weight: TensorBase | None = None, *, ignore_index: int = -100, reduction: str = "mean"
    ) -> Self:
        """Return the negative log-likelihood of log-probabilities (N, C, ...) or (C,) for target classes (N, ...).

        Targets equal to `ignore_index` are skipped. `weight`, of shape (C,), is a factor for each class; None is 1.
        `reduction` is 'mean', over the weight of the targets that count, 'sum' or 'none'. Raises DTypeError for integer
        log-probabilities and for targets that are not integers, ShapeError for other shapes.

        >>> Tensor([[-0.5, -1.0]]).nll_loss(Tensor([1])).item()
        1.0
        """
        self._check_float("nll_loss")
        axis = _class_axis(self, "nll_loss")
        wide = self.cast(accumulator(self.dtype))
        return wide._class_loss(target, weight, axis, ignore_index, reduction, 0.0, "nll_loss").cast(self.dtype)

    def _class_loss(
        self, target: Any, weight: Any, axis: int, ignore: int, reduction: str, smoothing: float, name: str
    ) -> Any:
        """Return the loss of integer target classes; self holds log-probabilities with classes along `axis`.

        `weight`: a factor for each class, or None. Targets equal to `ignore` are skipped. `smoothing`: share of the
        target that all classes get equally. `reduction`: 'mean', 'sum' or 'none'. `name`: the method in messages.
        Raises DTypeError for targets that are no integers, ShapeError for other shapes.
        """
        if not target.dtype.is_int:
            raise DTypeError(f"{name}: target", expected="integer classes", found=target.dtype.name)
        if target.shape != self.shape[:axis] + self.shape[axis + 1 :]:
            expected = self.shape[:axis] + self.shape[axis + 1 :]
            raise ShapeError(f"{name}: target", expected=expected, found=target.shape)
        classes = self.shape[axis]
        target = target.cast(dtypes.int32) if target.dtype.bits < 32 else target
        is_target = self._wrap(g.iota(classes, target.dtype, axis, self.ndim)) == target.unsqueeze(axis)
        w = None if weight is None else _class_weight(self, weight, axis, name)
        counted = target != ignore
        check_range(target, classes, name, counted=counted)
        loss = -is_target.where(self if w is None else self * w, 0.0).sum(axis)
        target_weight = counted.cast(self.dtype) if w is None else counted.where(is_target.where(w, 0.0).sum(axis), 0.0)
        if smoothing:
            rest = -(self if w is None else self * w).sum(axis)
            loss = loss * (1.0 - smoothing) + rest * (smoothing / classes)
        is_class = (target >= 0) & (target < classes)
        loss = counted.where(is_class.where(loss, float("nan")), 0.0)
        if reduction == "mean":
            return loss.sum() / target_weight.sum()
        return reduced(loss, reduction, name)

    def _soft_cross_entropy(self, target: Any, weight: Any, axis: int, reduction: str, smoothing: float) -> Any:
        """Return the loss of target probabilities; self holds log-probabilities with classes along `axis`.

        `weight`: a factor for each class, or None. `smoothing`: share of the target that all classes get equally.
        `reduction`: 'mean', 'sum' or 'none'. Raises ShapeError unless `target` has the shape of self.
        """
        same_shape(self, target, "cross_entropy")
        classes = self.shape[axis]
        if smoothing:
            target = target * (1.0 - smoothing) + smoothing / classes
        terms = self * target.cast(self.dtype)
        if weight is not None:
            terms = terms * _class_weight(self, weight, axis, "cross_entropy")
        return reduced(-terms.sum(axis), reduction, "cross_entropy")

    # ---- numbers -----------------------------------------------------------------------------------------------------
    def mse_loss(self, target: TensorBase, reduction: str = "mean", weight: TensorBase | None = None) -> Self:
        """Return the squared difference from `target`, reduced by `reduction`: 'mean', 'sum' or 'none'.

        `weight` has a factor for each element; the mean is then divided by the sum of the factors. Raises ShapeError
        for another shape of `target` or `weight`.

        >>> Tensor([1.0, 3.0]).mse_loss(Tensor([0.0, 0.0])).item()
        5.0
        """
        same_shape(self, target, "mse_loss")
        d = self - target
        return averaged(d * d, weight, reduction, "mse_loss")

    def l1_loss(self, target: TensorBase, reduction: str = "mean", weight: TensorBase | None = None) -> Self:
        """Return the absolute difference from `target`, reduced by `reduction`: 'mean', 'sum' or 'none'.

        `weight` has a factor for each element; the mean is then divided by the sum of the factors. Raises ShapeError
        for another shape of `target` or `weight`.

        >>> Tensor([1.0, -3.0]).l1_loss(Tensor([0.0, 0.0])).item()
        2.0
        """
        same_shape(self, target, "l1_loss")
        return averaged((self - target).abs(), weight, reduction, "l1_loss")

    def smooth_l1_loss(self, target: TensorBase, reduction: str = "mean", beta: float = 1.0) -> Self:
        """Return d * d / (2 beta) where |d| < beta, else |d| - beta / 2, reduced by `reduction`.

        d is self - target; `reduction` is 'mean', 'sum' or 'none'. Raises ArgumentError for a negative `beta`,
        ShapeError for another shape of `target`.

        >>> Tensor([0.5, 3.0]).smooth_l1_loss(Tensor([0.0, 0.0]), reduction="none").tolist()
        [0.125, 2.5]
        """
        same_shape(self, target, "smooth_l1_loss")
        if beta < 0:
            raise ArgumentError("smooth_l1_loss: beta", expected="0 or more", found=beta)
        d = self - target
        return reduced(d.abs() if beta == 0 else _huber(d, beta, 0.5 / beta, 1.0), reduction, "smooth_l1_loss")

    def huber_loss(
        self, target: TensorBase, reduction: str = "mean", delta: float = 1.0, weight: TensorBase | None = None
    ) -> Self:
        """Return d * d / 2 where |d| < delta, else delta * (|d| - delta / 2), reduced by `reduction`.

        d is self - target; `reduction` is 'mean', 'sum' or 'none'. `weight` has a factor for each element, and the
        mean is that of the products, as in PyTorch. Raises ArgumentError unless `delta` is positive, ShapeError for
        another shape of `target` or `weight`.

        >>> Tensor([0.5, 3.0]).huber_loss(Tensor([0.0, 0.0]), reduction="none").tolist()
        [0.125, 2.5]
        """
        same_shape(self, target, "huber_loss")
        if delta <= 0:
            raise ArgumentError("huber_loss: delta", expected="more than 0", found=delta)
        return reduced(weighed(_huber(self - target, delta, 0.5, delta), weight, "huber_loss"), reduction, "huber_loss")

    # ---- probabilities -----------------------------------------------------------------------------------------------
    def binary_cross_entropy(
        self, target: TensorBase, weight: TensorBase | None = None, reduction: str = "mean"
    ) -> Self:
        """Return the cross-entropy of probabilities with targets in [0, 1], reduced by `reduction`.

        `reduction` is 'mean', 'sum' or 'none'. Logarithms are at least -100. `weight` scales the loss of each element;
        None leaves it. Raises ShapeError for another shape of `target`.

        >>> round(Tensor([0.5]).binary_cross_entropy(Tensor([1.0])).item(), 4)
        0.6931
        """
        same_shape(self, target, "binary_cross_entropy")
        loss = self._wrap(special.binary_cross_entropy(*pair(self._wrap(floating(self)), target)))
        return reduced(loss if weight is None else loss * weight, reduction, "binary_cross_entropy")

    def binary_cross_entropy_with_logits(
        self,
        target: TensorBase,
        weight: TensorBase | None = None,
        *,
        reduction: str = "mean",
        pos_weight: TensorBase | None = None,
    ) -> Self:
        """Return the cross-entropy of sigmoid(self) with targets in [0, 1], reduced by `reduction`.

        `reduction` is 'mean', 'sum' or 'none'. It does not overflow. `weight` scales the loss of each element,
        `pos_weight` the term of its target; None leaves them. Raises ShapeError for another shape of `target`.

        >>> round(Tensor([0.0]).binary_cross_entropy_with_logits(Tensor([1.0])).item(), 4)
        0.6931
        """
        same_shape(self, target, "binary_cross_entropy_with_logits")
        positive = 1.0 if pos_weight is None else (pos_weight - 1.0) * target + 1.0
        loss = (1.0 - target) * self - self.logsigmoid() * positive
        return reduced(loss if weight is None else loss * weight, reduction, "binary_cross_entropy_with_logits")

    def kl_div(self, target: TensorBase, reduction: str = "mean", log_target: bool = False) -> Self:
        """Return target * (log(target) - self), reduced by `reduction`.

        self holds log-probabilities, and with `log_target` so does `target`. `reduction` may also be 'batchmean', which
        divides the sum by the first size. Raises ShapeError for another shape of `target`.

        >>> Tensor([0.0]).kl_div(Tensor([0.0]), reduction="sum").item()
        0.0
        """
        same_shape(self, target, "kl_div")
        if log_target:
            loss = target.exp() * (target - self)
        else:
            # 0 * log(0) is 0 here; `where` keeps the logarithm and its gradient finite, and hides no nan.
            loss = target * ((target == 0.0).where(1.0, target).log() - self)
        if reduction == "batchmean":
            return (loss.cast(accumulator(loss.dtype)).sum() / self.shape[0]).cast(loss.dtype)
        return reduced(loss, reduction, "kl_div")


__all__ = ["LossMixin", "reduced", "same_shape"]

"""Methods that drop elements or channels at random, and activations that draw random numbers.

Invariant: without `training`, by default the setting TRAINING, dropout returns self.
Source: names and formulas of torch.nn.functional; alpha dropout: Klambauer et al. (2017).
"""

from __future__ import annotations

from typing import Any, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.settings import settings
from monolect.tensor.base import TensorBase
from monolect.tensor.guard import guard_methods

_SATURATED = -1.7580993408473766  # limit of selu far below 0, the value of dropped elements


@guard_methods
class DropMixin(TensorBase):
    """Methods of Tensor that draw random numbers for each element or channel."""

    __slots__ = ()

    def _kept(self, shape: tuple[Any, ...], p: float, training: bool | None, name: str) -> Any:
        """Return a bool Tensor of `shape`, True with probability 1 - p, or None if nothing is dropped.

        Raises ArgumentError, which names the method `name`, unless 0 <= p <= 1, DTypeError for integers.
        """
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"{name}: p", expected="a probability, 0 to 1", found=p)
        if not (bool(settings.TRAINING) if training is None else training) or p == 0.0:
            return None
        self._check_float(name)
        return self._kind.rand(*shape, device=self.device, dtype=dtypes.float32) >= p

    def _drop_channels(self, n: int, p: float, training: bool | None) -> Self:
        """Return self, (N, C, n axes) or (C, n axes), with whole channels dropped."""
        name = f"dropout{n}d"
        # PyTorch takes three axes for (N, C, L) in dropout2d.
        lead = 2 if self.ndim == n + 2 or (n == 2 and self.ndim == 3) else 1
        if self.ndim not in (n + 1, n + 2):
            raise ShapeError(f"{name}: rank", expected=f"(batch, channels, {n} axes)", found=self.shape)
        keep = self._kept((*self.shape[:lead], *(1,) * (self.ndim - lead)), p, training, name)
        if keep is None:
            return self
        return keep.where(self * (1.0 / (1.0 - p) if p < 1.0 else 0.0), 0.0)

    def dropout1d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Return (N, C, L) or (C, L) with each channel set to 0 with probability `p`, else divided by 1 - p.

        See `dropout`. Raises ShapeError for other ranks.

        >>> Tensor.ones(2, 3).dropout1d(1.0, training=True).sum().item()
        0.0
        """
        return self._drop_channels(1, p, training)

    def dropout2d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Return (N, C, H, W) with each channel set to 0 with probability `p`, else divided by 1 - p.

        Three axes are (N, C, L). See `dropout`. Raises ShapeError for other ranks.

        >>> Tensor.ones(2, 3, 1, 1).dropout2d(1.0, training=True).sum().item()
        0.0
        """
        return self._drop_channels(2, p, training)

    def dropout3d(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Return (N, C, D, H, W) or (C, D, H, W) with each channel set to 0 with probability `p`, else divided by
        1 - p.

        See `dropout`. Raises ShapeError for other ranks.

        >>> Tensor.ones(2, 3, 1, 1).dropout3d(1.0, training=True).sum().item()
        0.0
        """
        return self._drop_channels(3, p, training)

    def feature_dropout(self, p: float = 0.5, train: bool | None = None) -> Self:
        """Return self, (N, C, ...), with each channel set to 0 with probability `p`, else divided by 1 - p.

        `train` is by default the setting TRAINING. Raises ShapeError for fewer than two axes.

        >>> Tensor.ones(2, 3, 4).feature_dropout(1.0, True).sum().item()
        0.0
        """
        if self.ndim < 2:
            raise ShapeError("feature_dropout: rank", expected="(batch, channels, ...)", found=self.shape)
        keep = self._kept((*self.shape[:2], *(1,) * (self.ndim - 2)), p, train, "feature_dropout")
        return self if keep is None else keep.where(self * (1.0 / (1.0 - p) if p < 1.0 else 0.0), 0.0)

    def _alpha_dropped(self, shape: tuple[Any, ...], p: float, training: bool | None, name: str) -> Self:
        """Return self with elements dropped to the limit of selu, scaled to keep mean 0 and variance 1."""
        keep = self._kept(shape, p, training, name)
        if keep is None:
            return self
        if p == 1.0:
            return self * 0.0
        scale = ((1 - p) * (1 + p * _SATURATED**2)) ** -0.5
        return keep.where(self * scale, _SATURATED * scale) - scale * _SATURATED * p

    def alpha_dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Return self with each element replaced, with probability `p`, by the limit of `selu` far below 0, then scaled
        and shifted so that mean 0 and variance 1 stay.

        `training` is by default the setting TRAINING. Raises ArgumentError unless 0 <= p <= 1, DTypeError for integers.

        >>> Tensor([1.0, 2.0]).alpha_dropout(0.5, training=False).tolist()
        [1.0, 2.0]
        """
        return self._alpha_dropped(self.shape, p, training, "alpha_dropout")

    def feature_alpha_dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Return self, (N, C, ...), with whole channels dropped as `alpha_dropout` drops elements.

        Raises ShapeError for fewer than two axes.

        >>> Tensor.ones(2, 3, 4).feature_alpha_dropout(0.5, training=False).sum().item()
        24.0
        """
        if self.ndim < 2:
            raise ShapeError("feature_alpha_dropout: rank", expected="(batch, channels, ...)", found=self.shape)
        shape = (*self.shape[:2], *(1,) * (self.ndim - 2))
        return self._alpha_dropped(shape, p, training, "feature_alpha_dropout")

    def rrelu(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool | None = None) -> Self:
        """Return self where it is at least 0, else self times a slope: drawn from [lower, upper) in training, else
        their mean.

        `training` is by default the setting TRAINING. Raises ArgumentError where lower > upper.

        >>> Tensor([-2.0, 3.0]).rrelu(0.25, 0.75, training=False).tolist()
        [-1.0, 3.0]
        """
        if not lower <= upper:
            raise ArgumentError("rrelu: bounds", expected="lower <= upper", found=(lower, upper))
        self._check_float("rrelu")
        slope: Any = (lower + upper) / 2
        if bool(settings.TRAINING) if training is None else training:
            slope = self._kind.rand(*self.shape, device=self.device, dtype=dtypes.float32).cast(self.dtype)
            slope = slope * (upper - lower) + lower
        return (self >= 0).where(self, self * slope)

    def gumbel_softmax(self, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Self:
        """Return a random choice along `dim` in a differentiable form: softmax((self + noise) / tau), the noise drawn
        from a Gumbel distribution.

        With `hard` the value is 1 for the largest and 0 for the others, and the gradient that of the softmax. `eps` is
        the least number whose logarithm is taken. Raises DTypeError for integers.

        >>> Tensor([[0.0, 1.0]]).gumbel_softmax(hard=True).sum().item()
        1.0
        """
        self._check_float("gumbel_softmax")
        x: Any = self
        u = self._kind.rand(*self.shape, device=self.device, dtype=dtypes.float32).clamp(eps)
        noise = -(-u.log()).clamp(eps).log()
        soft = ((x + noise.cast(self.dtype)) / tau).softmax(dim)
        if not hard:
            return soft
        axis = self._axis(dim)
        best = soft.detach().argmax(axis, keepdim=True)
        one = best == self._kind.arange(self.shape[axis], device=self.device).reshape(
            -1, *(1,) * (self.ndim - 1 - axis)
        )
        return one.cast(self.dtype) - soft.detach() + soft


__all__ = ["DropMixin"]

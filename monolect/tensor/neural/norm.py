"""Methods for normalisation and dropout, in PyTorch's functional forms.

What it is for: layer, RMS, batch, group and instance normalisation as means of squares along axes. The compiler makes
one kernel of each if the axes are rows.
What it is not: it holds no parameters; `nn` does.
Invariant: statistics are computed in at least float32, from centred values (two passes, no cancellation). The result
has the dtype of the input.
Source: torch.nn.functional.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from monolect.autograd.graph import cast, e
from monolect.base.dtype import accumulator, dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.settings import settings
from monolect.ir.bounds import at_most
from monolect.ir.rewrite.normal import count
from monolect.tensor.base import TensorBase, as_sizes
from monolect.tensor.guard import guard_methods
from monolect.tensor.state.deferred import defer

# Gap between 1 and the next number of the dtype that means are computed in: the default eps of rms_norm.
_EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23}


def _scaled(x: Any, weight: Any, bias: Any, shape: tuple[Any, ...], name: str) -> Any:
    """Return `x * weight + bias`, where weight and bias are reshaped to `shape`, which broadcasts to `x`.

    A weight or bias of None is left out. Raises ShapeError, which names the method `name`, if one of them has other
    sizes than `shape`, apart from sizes of 1.
    """
    size = tuple(n for n in shape if not (n.__class__ is int and n == 1))
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(n for n in t.shape if not (n.__class__ is int and n == 1)) != size:
            raise ShapeError(f"{name}: {what}", expected=size, found=t.shape)
    if weight is not None:
        x = x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


@guard_methods
class NormMixin(TensorBase):
    """Methods of Tensor for normalisation and dropout: lazy tensors of the shape and dtype of self."""

    __slots__ = ()

    def _wide(self, name: str) -> Any:
        """Return self in at least float32. Raises DTypeError, which names the method `name`, for integers."""
        self._check_float(name)
        return self.cast(accumulator(self.dtype))

    def _normalized(self, axes: tuple[int, ...], eps: float, name: str) -> Any:
        """Return self with mean 0 and variance 1 along `axes`, in at least float32. `eps` is added to the variance.

        Raises DTypeError, which names the method `name`, for integers.
        """
        x = self._wide(name)
        centred = x - x.mean(axes, keepdim=True)
        return centred * ((centred * centred).mean(axes, keepdim=True) + eps).rsqrt()

    def _trailing(self, normalized_shape: Any, name: str) -> tuple[tuple[Any, ...], tuple[int, ...]]:
        """Return (shape, axes): `normalized_shape`, an int or ints, as a tuple, and the numbers of the axes it names.

        Raises ShapeError, which names the method `name`, unless these are the last sizes of self.
        """
        shape = as_sizes((normalized_shape,), "normalized_shape")
        first = self.ndim - len(shape)
        if not shape or first < 0 or self.shape[first:] != shape:
            raise ShapeError(f"{name}: normalized_shape", expected=f"the last sizes of {self.shape}", found=shape)
        return shape, tuple(range(first, self.ndim))

    def layer_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: TensorBase | None = None,
        bias: TensorBase | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """Return self normalized to mean 0 and variance 1 over its last axes, then `* weight + bias`.

        `weight` and `bias` have the shape `normalized_shape`, the last sizes of self; None leaves either out. `eps` is
        added to the variance. Raises ShapeError for other sizes, DTypeError for integers.

        >>> Tensor([[1.0, 3.0]]).layer_norm(2, eps=0.0).tolist()
        [[-1.0, 1.0]]
        """
        shape, axes = self._trailing(normalized_shape, "layer_norm")
        return _scaled(self._normalized(axes, eps, "layer_norm"), weight, bias, shape, "layer_norm").cast(self.dtype)

    def rms_norm(
        self, normalized_shape: int | Sequence[int], weight: TensorBase | None = None, eps: float | None = None
    ) -> Self:
        """Return self divided by the root mean square over its last axes, then `* weight`, which has
        `normalized_shape`.

        `eps` is added to the mean square; None is the machine epsilon. `weight` None is left out. Raises ShapeError for
        other sizes than the last ones of self, DTypeError for integers.

        >>> round(Tensor([[3.0, 4.0]]).rms_norm(2).square().mean().item(), 4)
        1.0
        """
        shape, axes = self._trailing(normalized_shape, "rms_norm")
        x = self._wide("rms_norm")
        small = _EPSILON[x.dtype.name] if eps is None else eps
        y = x * ((x * x).mean(axes, keepdim=True) + small).rsqrt()
        return _scaled(y, weight, None, shape, "rms_norm").cast(self.dtype)

    def group_norm(
        self, num_groups: int, weight: TensorBase | None = None, bias: TensorBase | None = None, eps: float = 1e-5
    ) -> Self:
        """Return self, (N, C, ...), normalized to mean 0 and variance 1 over each of `num_groups` groups of channels of
        a sample, then `* weight + bias`, both (C,). `eps` is added to the variance.

        `weight` or `bias` None is left out. Raises ShapeError for other shapes or fewer than 2 axes, and ArgumentError
        if `num_groups` does not divide the channels.

        >>> Tensor.ones(1, 4, 3).group_norm(2).tolist()[0][0]
        [0.0, 0.0, 0.0]
        """
        if self.ndim < 2:
            raise ShapeError("group_norm: rank of the input", expected="(batch, channels, ...)", found=self.shape)
        n, c = self.shape[:2]
        if num_groups < 1 or c % num_groups:
            raise ArgumentError("group_norm: num_groups", expected=f"a divisor of {c} channels", found=num_groups)
        size = count((c // num_groups, *self.shape[2:]))
        rows = self.reshape(n, num_groups, size)._normalized((2,), eps, "group_norm").reshape(self.shape)
        return _scaled(rows, weight, bias, (c, *(1,) * (self.ndim - 2)), "group_norm").cast(self.dtype)

    def instance_norm(
        self,
        running_mean: TensorBase | None = None,
        running_var: TensorBase | None = None,
        weight: TensorBase | None = None,
        bias: TensorBase | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Self:
        """Return self, (N, C, ...), normalized to mean 0 and variance 1 over each channel of each sample, then
        `* weight + bias`, both (C,).

        `weight` or `bias` None is left out. With `use_input_stats` the running statistics, (C,), if given, move toward
        the means over the samples by `momentum`, with the unbiased variance; their assignment is lazy. Without, they
        are used, and ArgumentError is raised if they are None. Raises ShapeError for other shapes or fewer than 3 axes.

        >>> Tensor([[[1.0, 3.0]]]).instance_norm(eps=0.0).tolist()
        [[[-1.0, 1.0]]]
        """
        if self.ndim < 3:
            raise ShapeError("instance_norm: rank of the input", expected="(batch, channels, ...)", found=self.shape)
        if not use_input_stats:
            return self.batch_norm(running_mean, running_var, weight, bias, False, momentum, eps)
        axes = tuple(range(2, self.ndim))
        y = self._normalized(axes, eps, "instance_norm")
        out = _scaled(y, weight, bias, (self.shape[1], *(1,) * (self.ndim - 2)), "instance_norm").cast(self.dtype)
        x: Any = self.detach().cast(accumulator(self.dtype))
        for running, method in ((running_mean, "mean"), (running_var, "var")):
            if running is not None:
                new: Any = getattr(x, method)(axes).mean(0) * momentum + running * (1.0 - momentum)
                running.assign(new.cast(running.dtype))  # type: ignore[attr-defined]
                defer(running)
        return out

    def batch_norm(
        self,
        running_mean: TensorBase | None = None,
        running_var: TensorBase | None = None,
        weight: TensorBase | None = None,
        bias: TensorBase | None = None,
        training: bool | None = None,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Self:
        """Return self, (N, C, ...), normalized to mean 0 and variance 1 over each channel, then `* weight + bias`, both
        (C,).

        In training (by default the setting TRAINING) the statistics are those of the batch. The running statistics, if
        given, then move toward them by `momentum`, with the unbiased variance; their assignment is lazy. Otherwise the
        running statistics are used. `weight` or `bias` None is left out. Raises ShapeError for other shapes, fewer than
        2 axes, or fewer than 2 values of a channel in training; ArgumentError if statistics that are needed are None.

        >>> x = Tensor([[1.0], [3.0]])
        >>> x.batch_norm(training=True, eps=0.0).tolist()
        [[-1.0], [1.0]]
        """
        if self.ndim < 2:
            raise ShapeError("batch_norm: rank of the input", expected="(batch, channels, ...)", found=self.shape)
        training = bool(settings.TRAINING) if training is None else training
        c = self.shape[1]
        along = (1, c, *(1,) * (self.ndim - 2))
        for what, t in (("running_mean", running_mean), ("running_var", running_var)):
            if t is not None and t.shape != (c,):
                raise ShapeError(f"batch_norm: {what}", expected=(c,), found=t.shape)
        x = self._wide("batch_norm")
        news: list[tuple[Any, Any]] = []
        if training:
            y, news = x._batch_normalized(running_mean, running_var, momentum, eps)
        elif running_mean is None or running_var is None:
            raise ArgumentError("batch_norm: statistics", expected="running_mean and running_var", found="none given")
        else:
            y = (x - running_mean.reshape(along)) * (running_var.reshape(along) + eps).rsqrt()
        out = _scaled(y, weight, bias, along[1:], "batch_norm").cast(self.dtype)
        for running, new in news:  # assigned last, after all checks
            running.assign(new)
            defer(running)
        return out

    def _batch_normalized(self, mean: Any, var: Any, momentum: Any, eps: float) -> Any:
        """Return self normalized by the statistics of the batch, and (running statistic, its new value) for each of
        the running `mean` and `var` that is not None. `momentum` is the share of the batch in the new value; `eps` is
        added to the variance.

        Raises ShapeError for fewer than two values in a channel.
        """
        axes = (0, *range(2, self.ndim))
        n = count((self.shape[0], *self.shape[2:]))
        if not at_most(2, n):
            raise ShapeError("batch_norm in training", expected="2 or more values for each channel", found=self.shape)
        unbiased = (
            n / (n - 1) if n.__class__ is int else self._wrap(e("DIV", cast(n, self.dtype), cast(n - 1, self.dtype)))
        )
        own_mean = self.mean(axes, keepdim=True)
        centred = self - own_mean
        own_var = (centred * centred).mean(axes, keepdim=True)
        news = []
        for running, own, factor in ((mean, own_mean, 1.0), (var, own_var, unbiased)):
            if running is not None:
                old = running.cast(accumulator(running.dtype))  # a momentum without axes would take a narrow dtype
                new = own.detach().reshape(running.shape) * (momentum * factor) + old * (1.0 - momentum)
                news.append((running, new.cast(running.dtype)))
        return centred * (own_var + eps).rsqrt(), news

    def dropout(self, p: float = 0.5, training: bool | None = None) -> Self:
        """Return self with each element set to 0 with probability `p`, else divided by 1 - p; self unchanged if not
        training.

        `training` is by default the setting TRAINING. Raises ArgumentError unless 0 <= p <= 1, DTypeError for integers.

        >>> Tensor([1.0, 2.0]).dropout(0.5, training=False).tolist()
        [1.0, 2.0]
        """
        if not 0.0 <= p <= 1.0:
            raise ArgumentError("dropout: p", expected="a probability, 0 to 1", found=p)
        training = bool(settings.TRAINING) if training is None else training
        if not training or p == 0.0:
            return self
        self._check_float("dropout")
        if p == 1.0:
            return self * 0.0
        keep = self.rand(*self.shape, device=self.device, dtype=dtypes.float32) >= p
        return keep.where(self * (1.0 / (1.0 - p)), 0.0)


__all__ = ["NormMixin"]

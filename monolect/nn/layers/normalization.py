"""Define layers that normalize to mean 0 and variance 1, or by neighbours.

Invariant: names, shapes and initial values of parameters and buffers are those of torch.nn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.layers.initial import filled
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike, as_int, as_sizes
from monolect.tensor.creation import check_sizes
from monolect.tensor.guard import guard_methods
from monolect.tensor.state.deferred import defer
from monolect.tensor.tensor import Tensor


class _Statistics(Module):
    """The parameters and buffers of layers with running statistics."""

    ranks: tuple[int, ...] = ()
    buffer_names = "running_mean", "running_var", "num_batches_tracked"

    def _fill(
        self, num_features: Any, eps: float, momentum: float | None, affine: bool, bias: bool, stats: bool, made: Any
    ) -> None:
        """Set the attributes; `made` is the device and the dtype, and `stats` whether there are running statistics."""
        (num_features,) = check_sizes((as_int(num_features, "num_features"),))
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, stats
        (device, dtype), shape = made, (num_features,)
        self.weight = filled(shape, 1.0, device, dtype) if affine else None
        self.bias = filled(shape, 0.0, device, dtype) if affine and bias else None
        self.running_mean = filled(shape, 0.0, device, dtype, requires_grad=False) if stats else None
        self.running_var = filled(shape, 1.0, device, dtype, requires_grad=False) if stats else None
        self.num_batches_tracked = filled((), 0, device, dtypes.int64, requires_grad=False) if stats else None

    def _check_rank(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            expected = " or ".join(map(str, self.ranks)) + " axes"
            raise ShapeError(f"{type(self).__name__}: rank of the input", expected=expected, found=x.shape)

    def extra_repr(self) -> str:
        """Return features, eps and momentum as text."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


@guard_methods
class _BatchNorm(_Statistics):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        self._fill(num_features, eps, momentum, affine, bias, track_running_stats, (device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """See the class. `momentum` None gives all batches the same weight."""
        self._check_rank(x)
        use_batch_statistics = self.training or self.running_mean is None
        mean, var = self.running_mean, self.running_var
        momentum: Any = self.momentum
        if momentum is None:
            seen = self.num_batches_tracked
            momentum = 0.0 if seen is None or not self.training else 1.0 / (seen + 1).double()
        y = x.batch_norm(mean, var, self.weight, self.bias, use_batch_statistics, momentum, self.eps)
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
            defer(self.num_batches_tracked)
        return y


@guard_methods
class BatchNorm1d(_BatchNorm):
    """Normalize each feature of (N, C) or (N, C, L) to mean 0 and variance 1. See `Tensor.batch_norm`.

    >>> BatchNorm1d(3).eval()(Tensor.ones(2, 3)).shape
    (2, 3)
    """

    ranks = (2, 3)


@guard_methods
class BatchNorm2d(_BatchNorm):
    """Normalize each channel of (N, C, H, W) to mean 0 and variance 1. See `Tensor.batch_norm`.

    >>> BatchNorm2d(3).eval()(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    ranks = (4,)


@guard_methods
class BatchNorm3d(_BatchNorm):
    """Normalize each channel of (N, C, D, H, W) to mean 0 and variance 1. See `Tensor.batch_norm`.

    >>> BatchNorm3d(3).eval()(Tensor.ones(2, 3, 1, 2, 2)).shape
    (2, 3, 1, 2, 2)
    """

    ranks = (5,)


@guard_methods
class _InstanceNorm(_Statistics):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        self._fill(num_features, eps, momentum, affine, bias, track_running_stats, (device, dtype))

    def forward(self, x: Tensor) -> Tensor:
        """See the class. The batch axis may be missing."""
        self._check_rank(x)
        own = self.training or self.running_mean is None
        batched = x if x.ndim == max(self.ranks) else x.unsqueeze(0)
        mean, var, momentum = self.running_mean, self.running_var, 0.1 if self.momentum is None else self.momentum
        y = batched.instance_norm(mean, var, self.weight, self.bias, own, momentum, self.eps)
        return y if batched is x else y.squeeze(0)


@guard_methods
class InstanceNorm1d(_InstanceNorm):
    """Normalize each channel of each sample of (N, C, L) or (C, L). See `Tensor.instance_norm`.

    >>> InstanceNorm1d(3)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    ranks = (2, 3)


@guard_methods
class InstanceNorm2d(_InstanceNorm):
    """Normalize each channel of each sample of (N, C, H, W) or (C, H, W). See `Tensor.instance_norm`.

    >>> InstanceNorm2d(3)(Tensor.ones(2, 3, 4, 4)).shape
    (2, 3, 4, 4)
    """

    ranks = (3, 4)


@guard_methods
class InstanceNorm3d(_InstanceNorm):
    """Normalize each channel of each sample of (N, C, D, H, W) or (C, D, H, W). See `Tensor.instance_norm`.

    >>> InstanceNorm3d(3)(Tensor.ones(2, 3, 1, 2, 2)).shape
    (2, 3, 1, 2, 2)
    """

    ranks = (4, 5)


@guard_methods
class LayerNorm(Module):
    """Normalize to mean 0 and variance 1 over the last axes, of sizes `normalized_shape`. See `Tensor.layer_norm`.

    >>> LayerNorm(4)(Tensor.ones(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        shape = check_sizes(as_sizes((normalized_shape,), "normalized_shape"))
        self.normalized_shape, self.eps = shape, eps
        self.weight = filled(shape, 1.0, device, dtype) if elementwise_affine else None
        self.bias = filled(shape, 0.0, device, dtype) if elementwise_affine and bias else None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return the shape and eps as text."""
        return f"{self.normalized_shape}, eps={self.eps}"


@guard_methods
class RMSNorm(Module):
    """Divide by the root mean square over the last axes, of sizes `normalized_shape`. See `Tensor.rms_norm`.

    >>> RMSNorm(4)(Tensor.ones(2, 4)).shape
    (2, 4)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        shape = check_sizes(as_sizes((normalized_shape,), "normalized_shape"))
        self.normalized_shape, self.eps = shape, eps
        self.weight = filled(shape, 1.0, device, dtype) if elementwise_affine else None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Return the shape and eps as text."""
        return f"{self.normalized_shape}, eps={self.eps}"


@guard_methods
class GroupNorm(Module):
    """Normalize each group of channels of (N, C, ...) to mean 0 and variance 1. See `Tensor.group_norm`.

    >>> GroupNorm(2, 4)(Tensor.ones(2, 4, 3)).shape
    (2, 4, 3)
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError("num_groups", expected=f"a divisor of {num_channels} channels", found=num_groups)
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = filled((num_channels,), 1.0, device, dtype) if affine else None
        self.bias = filled((num_channels,), 0.0, device, dtype) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` of shape (N, C, ...) with each group of channels normalized, scaled and shifted."""
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return groups, channels and eps as text."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


@guard_methods
class LocalResponseNorm(Module):
    """Divide each element of (N, C, ...) by a power of the squares of neighbouring channels.

    See `Tensor.local_response_norm`.

    >>> LocalResponseNorm(2)(Tensor.ones(2, 3, 4)).shape
    (2, 3, 4)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.local_response_norm(self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LocalResponseNorm",
    "RMSNorm",
]

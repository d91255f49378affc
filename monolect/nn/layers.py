"""Define layers with PyTorch's names, attributes and initial weights.

What it is for: parameters and their shapes; the computation is a method of Tensor.
What it is not: it has no recurrent layers yet. For one seed, initial values differ from PyTorch's; their distributions
do not.
Invariant: random parameters are lazy until their first use; their numbers come from the default device.
Source: torch.nn.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt

import numpy as np

from monolect.base.errors import ArgumentError, ShapeError
from monolect.graphs.windows import as_ints
from monolect.nn.module import Module
from monolect.tensor.base import PerAxis, as_int, as_sizes
from monolect.tensor.creation import check_sizes
from monolect.tensor.deferred import defer
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


def _uniform(shape: tuple[int, ...], bound: float) -> Tensor:
    return Tensor.uniform(*shape, low=-bound, high=bound, requires_grad=True)


def _filled(shape: tuple[int, ...], value: float) -> Tensor:
    """Return a parameter of shape `shape` filled with `value`, in a buffer, so no kernel is needed to make it."""
    return Tensor(np.full(shape, value, np.float32), requires_grad=True)


@guard_methods
class Linear(Module):
    """Compute `x @ weight.T + bias`: (..., in_features) -> (..., out_features).

    `weight` is (out_features, in_features), `bias` (out_features,) or None, both float32.

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        bound = 1.0 / sqrt(max(in_features, 1))
        self.in_features, self.out_features = in_features, out_features
        self.weight = _uniform((out_features, in_features), bound)
        self.bias = _uniform((out_features,), bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the numbers of features and whether there is a bias, as text."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


@guard_methods
class _Conv(Module):
    axes = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        kernel = as_ints(kernel_size, self.axes, "kernel_size", 1)
        if groups < 1 or in_channels % groups or out_channels % groups:
            expected = f"a divisor of {in_channels} and {out_channels} channels"
            raise ArgumentError("groups of a convolution", expected=expected, found=groups)
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        bound = 1.0 / sqrt(in_channels // groups * prod(kernel))
        self.weight = _uniform((out_channels, in_channels // groups, *kernel), bound)
        self.bias = _uniform((out_channels,), bound) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        method = (x.conv1d, x.conv2d, x.conv3d)[self.axes - 1]
        return method(self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    def extra_repr(self) -> str:
        """Return channels, kernel size and stride as text."""
        return f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"


@guard_methods
class Conv1d(_Conv):
    """Convolve over one axis: (N, Cin, L) -> (N, Cout, L'). See `Tensor.conv1d`.

    >>> Conv1d(2, 3, 3, padding=1)(Tensor.ones(1, 2, 8)).shape
    (1, 3, 8)
    """

    axes = 1


@guard_methods
class Conv2d(_Conv):
    """Convolve over two axes: (N, Cin, H, W) -> (N, Cout, H', W'). See `Tensor.conv2d`.

    >>> Conv2d(1, 4, 3)(Tensor.ones(2, 1, 8, 8)).shape
    (2, 4, 6, 6)
    """

    axes = 2


@guard_methods
class Conv3d(_Conv):
    """Convolve over three axes: (N, Cin, D, H, W) -> (N, Cout, D', H', W'). See `Tensor.conv3d`.

    >>> Conv3d(1, 2, 2)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 2, 2, 2, 2)
    """

    axes = 3


@guard_methods
class _BatchNorm(Module):
    ranks: tuple[int, ...] = ()
    buffer_names = "running_mean", "running_var", "num_batches_tracked"

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ):
        (num_features,) = check_sizes((as_int(num_features, "num_features"),))
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.weight = _filled((num_features,), 1.0) if affine else None
        self.bias = _filled((num_features,), 0.0) if affine else None
        stats = track_running_stats
        self.running_mean = Tensor(np.zeros(num_features, np.float32)) if stats else None
        self.running_var = Tensor(np.ones(num_features, np.float32)) if stats else None
        self.num_batches_tracked = Tensor(np.zeros((), np.int64)) if stats else None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        if x.ndim not in self.ranks:
            expected = " or ".join(map(str, self.ranks)) + " axes"
            raise ShapeError(f"{type(self).__name__}: rank of the input", expected=expected, found=x.shape)
        use_batch_statistics = self.training or self.running_mean is None
        mean, var = self.running_mean, self.running_var
        y = x.batch_norm(mean, var, self.weight, self.bias, use_batch_statistics, self.momentum, self.eps)
        if self.training and self.num_batches_tracked is not None:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
            defer(self.num_batches_tracked)
        return y

    def extra_repr(self) -> str:
        """Return features, eps and momentum as text."""
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


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
    ):
        shape = check_sizes(as_sizes((normalized_shape,), "normalized_shape"))
        self.normalized_shape, self.eps = shape, eps
        self.weight = _filled(shape, 1.0) if elementwise_affine else None
        self.bias = _filled(shape, 0.0) if elementwise_affine and bias else None

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
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ):
        shape = check_sizes(as_sizes((normalized_shape,), "normalized_shape"))
        self.normalized_shape, self.eps = shape, eps
        self.weight = _filled(shape, 1.0) if elementwise_affine else None

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

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError("num_groups", expected=f"a divisor of {num_channels} channels", found=num_groups)
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = _filled((num_channels,), 1.0) if affine else None
        self.bias = _filled((num_channels,), 0.0) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` of shape (N, C, ...) with each group of channels normalized, scaled and shifted."""
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Return groups, channels and eps as text."""
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


@guard_methods
class Embedding(Module):
    """Look up one row of a table for each index: integers (...) -> (..., embedding_dim).

    The row `padding_idx` starts as zeros and gets no gradient. Raises ArgumentError for a `padding_idx` that is not a
    row.

    >>> Embedding(10, 3)(Tensor([1, 2])).shape
    (2, 3)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None):
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError("padding_idx", expected=f"a row of {num_embeddings}", found=padding_idx)
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        weight = Tensor.randn(num_embeddings, embedding_dim)
        if self.padding_idx is not None:
            rows = Tensor.arange(num_embeddings).reshape(-1, 1)
            weight = (rows == self.padding_idx).where(0.0, weight)
        self.weight = weight.requires_grad_(True)

    def forward(self, index: Tensor) -> Tensor:
        """See the class."""
        rows = self.weight[index]
        if self.padding_idx is None:
            return rows
        return (index == self.padding_idx).unsqueeze(-1).where(rows.detach(), rows)

    def extra_repr(self) -> str:
        """Return the numbers of rows and columns as text."""
        return f"{self.num_embeddings}, {self.embedding_dim}"


@guard_methods
class Dropout(Module):
    """Set elements to zero with probability `p` while training, and scale the others. See `Tensor.dropout`.

    >>> Dropout(0.5).eval()(Tensor([1.0])).tolist()
    [1.0]
    """

    def __init__(self, p: float = 0.5):
        if not 0.0 <= p <= 1.0:
            raise ArgumentError("Dropout: p", expected="a probability, 0 to 1", found=p)
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.dropout(self.p, training=self.training)

    def extra_repr(self) -> str:
        """Return the probability as text."""
        return f"p={self.p}"


__all__ = [
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "Dropout",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "Linear",
    "RMSNorm",
]

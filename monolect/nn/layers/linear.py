"""Define layers of matrix products, and those that keep or reshape their input.

Invariant: names, shapes and initial distributions of parameters are those of torch.nn.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from monolect.nn.layers.initial import uniform
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class Identity(Module):
    """Return the input unchanged; the arguments are ignored.

    >>> Identity()(Tensor([1.0])).tolist()
    [1.0]
    """

    def __init__(self, *args: object, **kwargs: object):
        pass

    def forward(self, x: Tensor) -> Tensor:
        """Return `x` unchanged."""
        return x


@guard_methods
class Flatten(Module):
    """Merge the axes from `start_dim` to `end_dim` into one: (N, C, H, W) -> (N, C*H*W) by default.

    >>> Flatten()(Tensor.ones(2, 3, 4)).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        """Return the axes as text."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


@guard_methods
class Unflatten(Module):
    """Cut the axis `dim` into axes of the sizes `unflattened_size`.

    >>> Unflatten(1, (3, 4))(Tensor.ones(2, 12)).shape
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        """Return the axis and the sizes as text."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


@guard_methods
class Linear(Module):
    """Compute `x @ weight.T + bias`: (..., in_features) -> (..., out_features).

    `weight` is (out_features, in_features), `bias` (out_features,) or None, both float32 unless `dtype` is given.

    >>> Linear(3, 2)(Tensor.ones(4, 3)).shape
    (4, 2)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        bound = 1.0 / sqrt(max(in_features, 1))
        self.in_features, self.out_features = in_features, out_features
        self.weight = uniform((out_features, in_features), bound, device, dtype)
        self.bias = uniform((out_features,), bound, device, dtype) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.linear(self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the numbers of features and whether there is a bias, as text."""
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"


@guard_methods
class Bilinear(Module):
    """Compute input1 * weight[o] * input2 + bias[o] for each output: (..., I) and (..., J) -> (..., O).

    `weight` is (out_features, in1_features, in2_features). See `Tensor.bilinear`.

    >>> Bilinear(3, 4, 2)(Tensor.ones(5, 3), Tensor.ones(5, 4)).shape
    (5, 2)
    """

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        bound = 1.0 / sqrt(max(in1_features, 1))
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = uniform((out_features, in1_features, in2_features), bound, device, dtype)
        self.bias = uniform((out_features,), bound, device, dtype) if bias else None

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        """See the class."""
        return input1.bilinear(input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Return the numbers of features as text."""
        features = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{features}, out_features={self.out_features}, bias={self.bias is not None}"


__all__ = ["Bilinear", "Flatten", "Identity", "Linear", "Unflatten"]

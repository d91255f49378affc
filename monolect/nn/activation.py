"""Define layers without parameters: activations, pools, reshaping.

What it is for: the parts between the layers of a `Sequential`; each calls one method of Tensor.
Invariant: they hold settings only, so a state dict never names them.
Source: torch.nn.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.nn.module import Module
from monolect.tensor.base import PerAxis
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class Identity(Module):
    """Return the input unchanged.

    >>> Identity()(Tensor([1.0])).tolist()
    [1.0]
    """

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


@guard_methods
class ReLU(Module):
    """Apply max(x, 0) to each element.

    >>> ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.relu()


@guard_methods
class LeakyReLU(Module):
    """Apply x for x > 0, `negative_slope * x` otherwise, to each element.

    >>> LeakyReLU(0.25)(Tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
    """

    def __init__(self, negative_slope: float = 0.01):
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.leaky_relu(self.negative_slope)


@guard_methods
class GELU(Module):
    """Apply x * Phi(x), Phi the normal distribution function; `approximate` is "none" (exact) or "tanh".

    >>> round(GELU()(Tensor(1.0)).item(), 4)
    0.8413
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Return `x.gelu(self.approximate)`."""
        return x.gelu(self.approximate)


@guard_methods
class SiLU(Module):
    """Apply x * sigmoid(x) to each element.

    >>> round(SiLU()(Tensor(1.0)).item(), 4)
    0.7311
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.silu()


@guard_methods
class Tanh(Module):
    """Apply the hyperbolic tangent to each element.

    >>> round(Tanh()(Tensor(1.0)).item(), 4)
    0.7616
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return the hyperbolic tangent of each element of `x`."""
        return x.tanh()


@guard_methods
class Sigmoid(Module):
    """Apply 1 / (1 + exp(-x)) to each element.

    >>> round(Sigmoid()(Tensor(1.0)).item(), 4)
    0.7311
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.sigmoid()


@guard_methods
class Softmax(Module):
    """Divide exp(x) by its sum along the axis `dim`.

    Without `dim` it is axis 0 for tensors of 0, 1 and 3 axes, axis 1 for others, as in PyTorch.

    >>> Softmax()(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, dim: int | None = None):
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.softmax(int(x.ndim not in (0, 1, 3)) if self.dim is None else self.dim)


@guard_methods
class MaxPool2d(Module):
    """Take the maximum of each window: (N, C, H, W) -> (N, C, H', W'). See `Tensor.max_pool2d`.

    >>> MaxPool2d(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        ceil_mode: bool = False,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """Return the maximum of each window: (N, C, H, W) -> (N, C, H', W')."""
        return x.max_pool2d(self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        """Return kernel size, stride and padding as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


@guard_methods
class AvgPool2d(Module):
    """Take the mean of each window: (N, C, H, W) -> (N, C, H', W'). See `Tensor.avg_pool2d`.

    >>> AvgPool2d(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.avg_pool2d(self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """Return kernel size, stride and padding as text."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


@guard_methods
class AdaptiveAvgPool2d(Module):
    """Take the means of equal parts: (N, C, H, W) -> (N, C, *output_size). See `Tensor.adaptive_avg_pool2d`.

    >>> AdaptiveAvgPool2d(1)(Tensor.ones(1, 1, 4, 4)).tolist()
    [[[[1.0]]]]
    """

    def __init__(self, output_size: int | Sequence[int | None]):
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.adaptive_avg_pool2d(self.output_size)


__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "Flatten",
    "GELU",
    "Identity",
    "LeakyReLU",
    "MaxPool2d",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]

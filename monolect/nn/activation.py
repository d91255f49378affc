"""Layers without parameters: activations, pools, reshaping.

What it is for: the parts between the layers of a `Sequential`; each calls one method of Tensor.
Invariant: they hold settings only, so a state dict never names them.
Source: torch.nn.
"""

from __future__ import annotations

from typing import Any

from monolect.nn.module import Module
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class Identity(Module):
    """The input itself.

    >>> Identity()(Tensor([1.0])).tolist()
    [1.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x


@guard_methods
class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one.

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
    """max(x, 0).

    >>> ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.relu()


@guard_methods
class LeakyReLU(Module):
    """`x` above 0, `negative_slope * x` below.

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
    """The input times the normal distribution function of it; `approximate` is "none" or "tanh".

    >>> round(GELU()(Tensor(1.0)).item(), 4)
    0.8413
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.gelu(self.approximate)


@guard_methods
class SiLU(Module):
    """x * sigmoid(x).

    >>> round(SiLU()(Tensor(1.0)).item(), 4)
    0.7311
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.silu()


@guard_methods
class Tanh(Module):
    """The hyperbolic tangent.

    >>> round(Tanh()(Tensor(1.0)).item(), 4)
    0.7616
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.tanh()


@guard_methods
class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    >>> round(Sigmoid()(Tensor(1.0)).item(), 4)
    0.7311
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.sigmoid()


@guard_methods
class Softmax(Module):
    """exp(x) over its sum along an axis. Without `dim` the first axis of tensors of 0, 1 and 3 axes, the second of
    others, as in PyTorch.

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
    """The largest element of each window. See `Tensor.max_pool2d`.

    >>> MaxPool2d(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.ceil_mode = dilation, ceil_mode

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.max_pool2d(self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode)

    def extra_repr(self) -> str:
        """Kernel, stride and padding."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


@guard_methods
class AvgPool2d(Module):
    """The mean of each window. See `Tensor.avg_pool2d`.

    >>> AvgPool2d(2)(Tensor.ones(1, 1, 4, 4)).shape
    (1, 1, 2, 2)
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.avg_pool2d(self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """Kernel, stride and padding."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


@guard_methods
class AdaptiveAvgPool2d(Module):
    """The means of equal parts. See `Tensor.adaptive_avg_pool2d`.

    >>> AdaptiveAvgPool2d(1)(Tensor.ones(1, 1, 4, 4)).tolist()
    [[[[1.0]]]]
    """

    def __init__(self, output_size: Any):
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.adaptive_avg_pool2d(self.output_size)

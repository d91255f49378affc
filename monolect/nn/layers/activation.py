"""Define activations as layers: each holds settings and calls the method of Tensor of its name.

`inplace` is accepted for PyTorch's sake: the result is the same, and the input is not changed.
Invariant: they hold settings only, except `PReLU`, whose slopes are a parameter.
"""

from __future__ import annotations

from monolect.base.errors import ShapeError
from monolect.nn.layers.initial import filled
from monolect.nn.module import Module
from monolect.tensor.base import DeviceLike, DTypeLike
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


class _Plain(Module):
    def __init__(self, inplace: bool = False):
        pass


@guard_methods
class ReLU(_Plain):
    """Apply max(x, 0) to each element.

    >>> ReLU()(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.relu()


@guard_methods
class ReLU6(_Plain):
    """Apply min(max(x, 0), 6) to each element.

    >>> ReLU6()(Tensor([-1.0, 8.0])).tolist()
    [0.0, 6.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.relu6()


@guard_methods
class LeakyReLU(Module):
    """Apply x for x > 0, `negative_slope * x` otherwise, to each element.

    >>> LeakyReLU(0.25)(Tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.leaky_relu(self.negative_slope)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"negative_slope={self.negative_slope!r}"


@guard_methods
class RReLU(Module):
    """Apply x for x >= 0, else x times a slope, random in training. See `Tensor.rrelu`.

    >>> RReLU(0.25, 0.75).eval()(Tensor([-2.0, 3.0])).tolist()
    [-1.0, 3.0]
    """

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False):
        self.lower, self.upper = lower, upper

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.rrelu(self.lower, self.upper, training=self.training)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"lower={self.lower!r}, upper={self.upper!r}"


@guard_methods
class ELU(Module):
    """Apply x for x > 0, `alpha * (exp(x) - 1)` otherwise, to each element.

    >>> ELU()(Tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.elu(self.alpha)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"alpha={self.alpha!r}"


@guard_methods
class CELU(Module):
    """Apply x for x > 0, `alpha * (exp(x / alpha) - 1)` otherwise, to each element.

    >>> CELU()(Tensor([0.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.celu(self.alpha)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"alpha={self.alpha!r}"


@guard_methods
class SELU(_Plain):
    """Apply the self-normalising elu to each element. See `Tensor.selu`.

    >>> SELU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.selu()


@guard_methods
class GELU(Module):
    """Apply x * Phi(x), Phi the normal distribution function; `approximate` is "none" (exact) or "tanh".

    >>> GELU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def __init__(self, approximate: str = "none"):
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.gelu(self.approximate)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"approximate={self.approximate!r}"


@guard_methods
class SiLU(_Plain):
    """Apply x * sigmoid(x) to each element.

    >>> SiLU()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.silu()


@guard_methods
class Mish(_Plain):
    """Apply x * tanh(log(1 + exp(x))) to each element.

    >>> Mish()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.mish()


@guard_methods
class Tanh(Module):
    """Apply the hyperbolic tangent to each element.

    >>> Tanh()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.tanh()


@guard_methods
class Tanhshrink(Module):
    """Apply x - tanh(x) to each element.

    >>> Tanhshrink()(Tensor([0.0])).tolist()
    [0.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.tanhshrink()


@guard_methods
class Sigmoid(Module):
    """Apply 1 / (1 + exp(-x)) to each element.

    >>> Sigmoid()(Tensor([0.0])).tolist()
    [0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.sigmoid()


@guard_methods
class LogSigmoid(Module):
    """Apply log(sigmoid(x)) to each element, without overflow.

    >>> LogSigmoid()(Tensor([-1000.0])).tolist()
    [-1000.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.logsigmoid()


@guard_methods
class Hardsigmoid(_Plain):
    """Apply clamp(x / 6 + 1/2, 0, 1) to each element.

    >>> Hardsigmoid()(Tensor([-4.0, 0.0])).tolist()
    [0.0, 0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.hardsigmoid()


@guard_methods
class Hardswish(_Plain):
    """Apply x * hardsigmoid(x) to each element.

    >>> Hardswish()(Tensor([-4.0, 4.0])).abs().tolist()
    [0.0, 4.0]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.hardswish()


@guard_methods
class Hardtanh(Module):
    """Clamp each element to [min_val, max_val].

    >>> Hardtanh()(Tensor([-3.0, 0.5])).tolist()
    [-1.0, 0.5]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False):
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.hardtanh(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"min_val={self.min_val!r}, max_val={self.max_val!r}"


@guard_methods
class Hardshrink(Module):
    """Apply x, but 0 where |x| <= lambd, to each element.

    >>> Hardshrink()(Tensor([0.5, 1.0])).tolist()
    [0.0, 1.0]
    """

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.hardshrink(self.lambd)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"lambd={self.lambd!r}"


@guard_methods
class Softshrink(Module):
    """Move each element toward 0 by `lambd`; those within become 0.

    >>> Softshrink()(Tensor([0.5, 1.0])).tolist()
    [0.0, 0.5]
    """

    def __init__(self, lambd: float = 0.5):
        self.lambd = lambd

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.softshrink(self.lambd)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"lambd={self.lambd!r}"


@guard_methods
class Softplus(Module):
    """Apply log(1 + exp(beta * x)) / beta, or x where beta * x > threshold, to each element.

    >>> Softplus()(Tensor([30.0])).tolist()
    [30.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        self.beta, self.threshold = beta, threshold

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.softplus(self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"beta={self.beta!r}, threshold={self.threshold!r}"


@guard_methods
class Softsign(Module):
    """Apply x / (1 + |x|) to each element.

    >>> Softsign()(Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.softsign()


@guard_methods
class Threshold(Module):
    """Apply x where it is above the threshold, else `value`.

    >>> Threshold(1.0, 9.0)(Tensor([0.5, 2.0])).tolist()
    [9.0, 2.0]
    """

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        self.threshold, self.value = threshold, value

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.threshold(self.threshold, self.value)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"threshold={self.threshold!r}, value={self.value!r}"


@guard_methods
class GLU(Module):
    """Return the first half of axis `dim` times the sigmoid of the second half.

    >>> GLU()(Tensor([2.0, 0.0])).tolist()
    [1.0]
    """

    def __init__(self, dim: int = -1):
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.glu(self.dim)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"dim={self.dim!r}"


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
        return x.softmax(_axis(x) if self.dim is None else self.dim)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"dim={self.dim!r}"


@guard_methods
class LogSoftmax(Module):
    """Return log(softmax(x)) along the axis `dim`.

    Without `dim` it is axis 0 for tensors of 0, 1 and 3 axes, axis 1 for others, as in PyTorch.

    >>> LogSoftmax()(Tensor([7.0])).tolist()
    [0.0]
    """

    def __init__(self, dim: int | None = None):
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.log_softmax(_axis(x) if self.dim is None else self.dim)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"dim={self.dim!r}"


@guard_methods
class Softmin(Module):
    """Return softmax(-x) along the axis `dim`.

    Without `dim` it is axis 0 for tensors of 0, 1 and 3 axes, axis 1 for others, as in PyTorch.

    >>> Softmin()(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, dim: int | None = None):
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.softmin(_axis(x) if self.dim is None else self.dim)

    def extra_repr(self) -> str:
        """Return the settings as text."""
        return f"dim={self.dim!r}"


@guard_methods
class Softmax2d(Module):
    """Return the softmax over the channels of (N, C, H, W) or (C, H, W). Raises ShapeError for other ranks.

    >>> Softmax2d()(Tensor.zeros(1, 2, 1, 1)).flatten().tolist()
    [0.5, 0.5]
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        if x.ndim not in (3, 4):
            raise ShapeError("Softmax2d: rank of the input", expected="(batch, channels, 2 axes)", found=x.shape)
        return x.softmax(-3)


@guard_methods
class PReLU(Module):
    """Apply x for x > 0, `weight * x` otherwise; `weight` has one slope, or one for each channel (axis 1).

    >>> PReLU()(Tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):
        self.num_parameters, self.init = num_parameters, init
        self.weight = filled((num_parameters,), init, device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x.prelu(self.weight)

    def extra_repr(self) -> str:
        """Return the number of slopes as text."""
        return f"num_parameters={self.num_parameters}"


def _axis(x: Tensor) -> int:
    """Return the axis of a softmax without `dim`."""
    return int(x.ndim not in (0, 1, 3))


__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]

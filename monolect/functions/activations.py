"""Functions of activations, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return `input` where it is positive, else alpha * expm1(`input` / alpha); integers give float32.

    >>> round(monolect.celu(Tensor(-1.0), alpha=2.0).item(), 4)
    -0.7869
    """
    return input.celu(alpha)


@guarded
def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """Return `input` where it is positive, else alpha * expm1(`input`); integers give float32.

    >>> round(nn.functional.elu(Tensor(-1.0)).item(), 4)
    -0.6321
    """
    return input.elu(alpha)


@guarded
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """Return the Gaussian error linear unit; `approximate` is "none" (exact) or "tanh".

    Integers give float32. Raises ArgumentError for another `approximate`.

    >>> round(nn.functional.gelu(Tensor(1.0)).item(), 4)
    0.8413
    """
    return input.gelu(approximate)


@guarded
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return `input`, but 0 where |`input`| <= lambd; integers give float32.

    >>> monolect.hardshrink(Tensor([-2.0, 0.5, 1.0])).tolist()
    [-2.0, 0.0, 1.0]
    """
    return input.hardshrink(lambd)


@guarded
def hardsigmoid(input: Tensor) -> Tensor:
    """Return clamp(`input` / 6 + 1/2, 0, 1); integers give float32.

    >>> nn.functional.hardsigmoid(Tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return input.hardsigmoid()


@guarded
def hardswish(input: Tensor) -> Tensor:
    """Return `input * hardsigmoid(input)`; integers give float32.

    >>> nn.functional.hardswish(Tensor([-1.5, 1.5, 4.0])).tolist()
    [-0.375, 1.125, 4.0]
    """
    return input.hardswish()


@guarded
def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """Return `input` clamped to [min_val, max_val]; the derivative is 0 at the bounds and at nan, as in PyTorch.

    Integers stay integers, with bounds rounded toward zero. Raises ArgumentError if min_val > max_val or a bound is
    nan.

    >>> nn.functional.hardtanh(Tensor([-3.0, 0.5, 3.0])).tolist()
    [-1.0, 0.5, 1.0]
    """
    return input.hardtanh(min_val, max_val)


@guarded
def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """Return `input` where it is positive, else negative_slope * `input`.

    >>> nn.functional.leaky_relu(Tensor([-2.0, 3.0]), 0.25).tolist()
    [-0.5, 3.0]
    """
    return input.leaky_relu(negative_slope)


@guarded
def logsigmoid(input: Tensor) -> Tensor:
    """Return log(sigmoid(`input`)) without overflow. Integers and bools give float32.

    >>> round(nn.functional.logsigmoid(Tensor(0.0)).item(), 4)
    -0.6931
    """
    return input.logsigmoid()


@guarded
def mish(input: Tensor) -> Tensor:
    """Return `input * tanh(softplus(input))`; integers give float32.

    >>> round(nn.functional.mish(Tensor(1.0)).item(), 4)
    0.8651
    """
    return input.mish()


@guarded
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """Return `input` where it is positive, else weight * `input`.

    `weight` is one slope, of shape () or (1,), or a vector with one slope for each channel (axis 1). Raises
    ShapeError for another shape.

    >>> monolect.prelu(Tensor([[-2.0, -2.0], [1.0, 1.0]]), Tensor([0.5, 0.25])).tolist()
    [[-1.0, -0.5], [1.0, 1.0]]
    """
    return input.prelu(weight)


@guarded
def relu(input: Tensor) -> Tensor:
    """Return max(`input`, 0), in the same dtype; the derivative at 0 is 0.

    >>> monolect.relu(Tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return input.relu()


@guarded
def relu6(input: Tensor) -> Tensor:
    """Return min(max(`input`, 0), 6); the derivative at 0 and 6 is 0.

    >>> nn.functional.relu6(Tensor([-1.0, 2.0, 8.0])).tolist()
    [0.0, 2.0, 6.0]
    """
    return input.relu6()


@guarded
def selu(input: Tensor) -> Tensor:
    """Return the `input`-normalising elu: 1.0507 times `elu` with alpha 1.6733.

    >>> round(monolect.selu(Tensor(-1.0)).item(), 4)
    -1.1113
    """
    return input.selu()


@guarded
def silu(input: Tensor) -> Tensor:
    """Return `input * sigmoid(input)`; integers give float32.

    >>> round(nn.functional.silu(Tensor(1.0)).item(), 4)
    0.7311
    """
    return input.silu()


@guarded
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """Return log(1 + exp(beta * `input`)) / beta, or `input` where beta * `input` > threshold.

    >>> round(nn.functional.softplus(Tensor(0.0)).item(), 4), nn.functional.softplus(Tensor(30.0)).item()
    (0.6931, 30.0)
    """
    return input.softplus(beta, threshold)


@guarded
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """Return `input` moved toward 0 by `lambd`, and 0 where |`input`| <= lambd; integers give float32.

    >>> nn.functional.softshrink(Tensor([-2.0, 0.5, 1.0])).tolist()
    [-1.5, 0.0, 0.5]
    """
    return input.softshrink(lambd)


@guarded
def softsign(input: Tensor) -> Tensor:
    """Return `input / (1 + |input|)`; integers give float32.

    >>> nn.functional.softsign(Tensor([1.0, -3.0])).tolist()
    [0.5, -0.75]
    """
    return input.softsign()


@guarded
def tanhshrink(input: Tensor) -> Tensor:
    """Return `input - tanh(input)`; integers give float32.

    >>> round(nn.functional.tanhshrink(Tensor(1.0)).item(), 4)
    0.2384
    """
    return input.tanhshrink()


@guarded
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """Return `input` where it is above the threshold, else `value`.

    >>> monolect.threshold(Tensor([1, 2, 3]), 1, -1).tolist()
    [-1, 2, 3]
    """
    return input.threshold(threshold, value)


__all__ = [
    "celu",
    "elu",
    "gelu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
    "threshold",
]

"""Initial values of parameters, as functions that fill a Tensor in place and return it.

What it is for: PyTorch's initialisers by their names. A leaf that requires a gradient takes the values as new ones.
What it is not: lazy where values need a factorisation or an order that is no graph: `orthogonal_` computes on the host.
Invariant: dtype, shape and devices of the Tensor stay; a write to a view changes its base.
Source: names and defaults follow torch.nn.init; Glorot and Bengio, 2010; He et al., 2015; Saxe et al., 2013; Martens,
2010.
"""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import numpy as np

from monolect.base.errors import ArgumentError, ShapeError
from monolect.runtime.replay.in_progress import refuse_while_capturing
from monolect.tensor.base import as_int
from monolect.tensor.draws.generator import Generator
from monolect.tensor.draws.methods import fans
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

_LINEAR = ("linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_GAINS = {"sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": sqrt(2.0), "selu": 0.75} | dict.fromkeys(_LINEAR, 1.0)


@guarded
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor by which weights in front of a function are scaled; `param` is the slope of `leaky_relu`.

    Functions are linear, conv1d, conv2d, conv3d, conv_transpose1d, conv_transpose2d, conv_transpose3d, sigmoid, tanh,
    relu, leaky_relu and selu. Raises ArgumentError for another function, or a slope that is no number.

    >>> from monolect import nn
    >>> nn.init.calculate_gain("tanh"), nn.init.calculate_gain("leaky_relu", 1.0)
    (1.6666666666666667, 1.0)
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        names = ", ".join((*_GAINS, "leaky_relu"))
        raise ArgumentError("calculate_gain: nonlinearity", expected=names, found=repr(nonlinearity))
    slope = 0.01 if param is None else param
    if isinstance(slope, bool) or not isinstance(slope, int | float):
        raise ArgumentError("calculate_gain: slope", expected="a number", found=repr(param))
    return sqrt(2.0 / (1.0 + slope * slope))


# ---- numbers ---------------------------------------------------------------------------------------------------------
@guarded
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with uniform numbers in [a, b). Raises DTypeError unless the dtype is a float, ArgumentError where a > b.

    >>> from monolect import Tensor, nn
    >>> nn.init.uniform_(Tensor.zeros(2), 3.0, 3.0).tolist()
    [3.0, 3.0]
    """
    return tensor.uniform_(a, b, generator=generator)


@guarded
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill with normal numbers. Raises DTypeError unless the dtype is a float, ArgumentError for a negative `std`.

    >>> from monolect import Tensor, nn
    >>> nn.init.normal_(Tensor.zeros(2), 3.0, 0.0).tolist()
    [3.0, 3.0]
    """
    return tensor.normal_(mean, std, generator=generator)


@guarded
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Fill with normal numbers of this mean and standard deviation that are in [a, b].

    Raises DTypeError unless the dtype is a float, ArgumentError where a > b or `std` is not above 0.

    >>> from monolect import Tensor, nn
    >>> bool((nn.init.trunc_normal_(Tensor.zeros(50), std=2.0).abs() <= 2).all().item())
    True
    """
    return tensor._truncated_normal_(a, b, mean, std, generator)


@guarded
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`.

    >>> from monolect import Tensor, nn
    >>> nn.init.constant_(Tensor.zeros(2), 0.5).tolist()
    [0.5, 0.5]
    """
    return tensor.fill_(val)


@guarded
def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1.

    >>> from monolect import Tensor, nn
    >>> nn.init.ones_(Tensor.zeros(2)).tolist()
    [1.0, 1.0]
    """
    return tensor.fill_(1)


@guarded
def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0.

    >>> from monolect import Tensor, nn
    >>> nn.init.zeros_(Tensor.ones(2)).tolist()
    [0.0, 0.0]
    """
    return tensor.fill_(0)


# ---- weights that preserve the variance ------------------------------------------------------------------------------
@guarded
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight (out, in, ...) with uniform numbers of variance gain**2 * 2 / (fan_in + fan_out).

    Raises ShapeError for fewer than 2 axes, DTypeError unless the dtype is a float.

    >>> from monolect import Tensor, nn
    >>> bool((nn.init.xavier_uniform_(Tensor.zeros(2, 4)).abs() <= 1.0).all().item())
    True
    """
    bound = gain * sqrt(6.0 / max(sum(fans(tensor.shape, "xavier_uniform_")), 1))
    return tensor.uniform_(-bound, bound, generator=generator)


@guarded
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Fill a weight (out, in, ...) with normal numbers of variance gain**2 * 2 / (fan_in + fan_out).

    Raises ShapeError for fewer than 2 axes, DTypeError unless the dtype is a float.

    >>> from monolect import Tensor, nn
    >>> nn.init.xavier_normal_(Tensor.zeros(2, 4), gain=0.0).abs().sum().item()
    0.0
    """
    std = gain * sqrt(2.0 / max(sum(fans(tensor.shape, "xavier_normal_")), 1))
    return tensor.normal_(0.0, std, generator=generator)


def _kaiming_std(name: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"{name}: mode", expected="'fan_in' or 'fan_out'", found=repr(mode))
    fan = fans(tensor.shape, name)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(max(fan, 1))


@guarded
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight (out, in, ...) with uniform numbers of variance gain**2 / fan, the gain that of `nonlinearity`.

    `mode` is the fan that is preserved, "fan_in" or "fan_out"; `a` the slope of a leaky ReLU. Raises ShapeError for
    fewer than 2 axes, ArgumentError for another `mode` or `nonlinearity`, DTypeError unless the dtype is a float.

    >>> from monolect import Tensor, nn
    >>> bool((nn.init.kaiming_uniform_(Tensor.zeros(2, 6)).abs() <= 1.0).all().item())
    True
    """
    bound = sqrt(3.0) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return tensor.uniform_(-bound, bound, generator=generator)


@guarded
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Fill a weight (out, in, ...) with normal numbers of variance gain**2 / fan, the gain that of `nonlinearity`.

    `mode` is the fan that is preserved, "fan_in" or "fan_out"; `a` the slope of a leaky ReLU. Raises ShapeError for
    fewer than 2 axes, ArgumentError for another `mode` or `nonlinearity`, DTypeError unless the dtype is a float.

    >>> from monolect import Tensor, nn
    >>> nn.init.kaiming_normal_(Tensor.zeros(2, 6), mode="fan_out", nonlinearity="relu").shape
    (2, 6)
    """
    std = _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity)
    return tensor.normal_(0.0, std, generator=generator)


# ---- matrices --------------------------------------------------------------------------------------------------------
def _check_axes(name: str, tensor: Tensor, least: int, most: int | None = None) -> tuple[int, ...]:
    """Return the shape. Raises ShapeError for another number of axes, and for a symbolic size."""
    expected = (
        f"at least {least} axes" if most is None else f"{least} axes" if most == least else f"{least}..{most} axes"
    )
    is_right = least <= tensor.ndim and (most is None or tensor.ndim <= most)
    if not is_right or any(n.__class__ is not int for n in tensor.shape):
        raise ShapeError(f"{name}: shape", expected=f"{expected} of fixed sizes", found=tensor.shape)
    return tensor.shape


@guarded
def eye_(tensor: Tensor) -> Tensor:
    """Fill a matrix with 1 on the diagonal and 0 elsewhere. Raises ShapeError unless there are 2 axes.

    >>> from monolect import Tensor, nn
    >>> nn.init.eye_(Tensor.zeros(2, 3)).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    return tensor.copy_(np.eye(*_check_axes("eye_", tensor, 2, 2), dtype=np.float32))


@guarded
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Fill the weight (out, in, *kernel) of a convolution so that each group keeps its first channels.

    Raises ShapeError unless there are 3 to 5 axes, ArgumentError where `groups` does not divide the first size.

    >>> from monolect import Tensor, nn
    >>> nn.init.dirac_(Tensor.zeros(2, 2, 3)).tolist()
    [[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]
    """
    n_out, n_in, *kernel = _check_axes("dirac_", tensor, 3, 5)
    if as_int(groups, "groups") < 1 or n_out % groups:
        raise ArgumentError("dirac_: groups", expected=f"a divisor of {n_out}", found=groups)
    values = np.zeros(tensor.shape, np.float32)
    own = n_out // groups
    centre = tuple(n // 2 for n in kernel)
    for k in range(n_out):
        if k % own < n_in and values.size:
            values[(k, k % own, *centre)] = 1
    return tensor.copy_(values)


@guarded
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with a matrix (first axis, all others) whose rows, or columns if there are fewer, are orthonormal, times
    `gain`.

    It is the Q of a QR factorisation of normal numbers, by NumPy in float64: the numbers are computed at the call, and
    the function raises JitError in a captured step. Raises ShapeError for fewer than 2 axes, DTypeError unless the
    dtype is a float.

    >>> from monolect import Tensor, nn
    >>> w = nn.init.orthogonal_(Tensor.zeros(2, 5))
    >>> bool(((w @ w.T - Tensor.eye(2)).abs() < 1e-6).all().item())
    True
    """
    shape = _check_axes("orthogonal_", tensor, 2)
    tensor._check_float("orthogonal_")
    refuse_while_capturing("orthogonal_", tensor._uop)
    if not tensor.numel():
        return tensor
    rows = shape[0]
    numbers = Tensor.randn(rows, tensor.numel() // rows, generator=generator).numpy().astype(np.float64)
    q, r = np.linalg.qr(numbers if rows >= numbers.shape[1] else numbers.T)
    q *= np.where(np.diagonal(r) < 0, -1.0, 1.0)  # else Q is not uniformly distributed
    values: Any = (q if rows >= numbers.shape[1] else q.T) * gain
    return tensor.copy_(values.reshape(shape))


@guarded
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Fill a matrix with normal numbers, and ceil(sparsity * rows) random elements of each column with 0.

    Raises ShapeError unless there are 2 axes, ArgumentError for a `sparsity` outside of [0, 1] or a negative `std`,
    DTypeError unless the dtype is a float.

    >>> from monolect import Tensor, nn
    >>> (nn.init.sparse_(Tensor.zeros(10, 2), 0.3) == 0).sum(0).tolist()
    [3, 3]
    """
    rows, _ = shape = _check_axes("sparse_", tensor, 2, 2)
    if not 0 <= sparsity <= 1:
        raise ArgumentError("sparse_: sparsity", expected="from 0 to 1", found=sparsity)
    tensor.normal_(0.0, std, generator=generator)
    if not tensor.numel():
        return tensor
    order = Tensor.rand(*shape, dtype="float64", device=tensor.device, generator=generator).argsort(0).argsort(0)
    return tensor.copy_(tensor.detach().masked_fill(order < ceil(sparsity * rows), 0.0))


__all__ = [
    "calculate_gain", "constant_", "dirac_", "eye_", "kaiming_normal_", "kaiming_uniform_", "normal_", "ones_",
    "orthogonal_", "sparse_", "trunc_normal_", "uniform_", "xavier_normal_", "xavier_uniform_", "zeros_",
]  # fmt: skip

"""Fold a batch norm in evaluation into the weights of the layer before it, as torch.nn.utils.fusion does."""

from __future__ import annotations

import copy
from typing import TypeVar

from monolect.base.errors import ArgumentError, ShapeError
from monolect.nn.layers.linear import Linear
from monolect.nn.layers.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from monolect.nn.module import Module, Parameter
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
BatchNorm = BatchNorm1d | BatchNorm2d | BatchNorm3d
Weights = tuple[Tensor, Tensor]


@guarded
def fuse_conv_bn_eval(conv: M, bn: BatchNorm, transpose: bool = False) -> M:
    """Return a copy of the convolution `conv` that computes `bn(conv(x))`; `transpose` for a transposed convolution.

    Raises ArgumentError unless both are in evaluation and `bn` has running statistics.

    >>> from monolect import nn
    >>> from monolect.nn.utils.fusion import fuse_conv_bn_eval
    >>> conv, bn = nn.Conv2d(1, 2, 3).eval(), nn.BatchNorm2d(2).eval()
    >>> x = Tensor.randn(1, 1, 5, 5)
    >>> fuse_conv_bn_eval(conv, bn)(x).allclose(bn(conv(x)), atol=1e-5)
    True
    """
    return _fused("fuse_conv_bn_eval", conv, bn, transpose)


@guarded
def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> Weights:
    """Return (weight, bias) of a convolution followed by a batch norm, from those of the convolution, `conv_w` and
    `conv_b`, and the running mean and variance, eps, weight and bias of the norm.

    The results have the dtypes of the weight and the bias, and are leaves if these are.

    >>> from monolect.nn.utils.fusion import fuse_conv_bn_weights
    >>> w, b = fuse_conv_bn_weights(Tensor.ones(2, 1, 1), None, Tensor([1.0, 2.0]), Tensor([1.0, 4.0]), 0.0, None, None)
    >>> w.flatten().tolist(), b.tolist()
    ([1.0, 0.5], [-1.0, -1.0])
    """
    scale = (bn_rv + bn_eps).rsqrt()
    scale = scale if bn_w is None else scale * bn_w
    shape = (1, -1) if transpose else (-1, 1)
    weight = conv_w * scale.reshape(*shape, *(1,) * (conv_w.ndim - 2))
    bias = ((-bn_rm if conv_b is None else conv_b - bn_rm) * scale) + (0.0 if bn_b is None else bn_b)
    is_leaf, dtype = (False, conv_w.dtype) if conv_b is None else (conv_b.requires_grad, conv_b.dtype)
    return (
        Parameter(weight.detach().cast(conv_w.dtype).realize(), conv_w.requires_grad),
        Parameter(bias.detach().cast(dtype).realize(), is_leaf),
    )


@guarded
def fuse_linear_bn_eval(linear: Linear, bn: BatchNorm) -> Linear:
    """Return a copy of `linear` that computes `bn(linear(x))`.

    Raises ArgumentError unless both are in evaluation and `bn` has running statistics, ShapeError unless `bn` has as
    many features as `linear` gives, or one.

    >>> from monolect import nn
    >>> from monolect.nn.utils.fusion import fuse_linear_bn_eval
    >>> linear, bn = nn.Linear(3, 2).eval(), nn.BatchNorm1d(2).eval()
    >>> x = Tensor.randn(4, 3)
    >>> fuse_linear_bn_eval(linear, bn)(x).allclose(bn(linear(x)), atol=1e-5)
    True
    """
    if bn.num_features not in (1, linear.out_features):
        expected = f"1 or {linear.out_features} features of the batch norm"
        raise ShapeError("fuse_linear_bn_eval", expected=expected, found=bn.num_features)
    return _fused("fuse_linear_bn_eval", linear, bn, False)


@guarded
def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
) -> Weights:
    """Return (weight, bias) of a linear layer followed by a batch norm. It is `fuse_conv_bn_weights` for a matrix.

    >>> from monolect.nn.utils.fusion import fuse_linear_bn_weights
    >>> w, b = fuse_linear_bn_weights(Tensor.ones(2, 1), None, Tensor([1.0, 2.0]), Tensor([1.0, 4.0]), 0.0, None, None)
    >>> w.tolist(), b.tolist()
    ([[1.0], [0.5]], [-1.0, -1.0])
    """
    return fuse_conv_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b)


def _fused(call: str, layer: M, bn: BatchNorm, transpose: bool) -> M:
    """Return a copy of `layer` with the weights of it and `bn`."""
    if layer.training or bn.training or bn.running_mean is None or bn.running_var is None:
        found = f"training: {layer.training}, {bn.training}; running statistics: {bn.running_mean is not None}"
        raise ArgumentError(call, expected="both in evaluation, a batch norm with running statistics", found=found)
    fused = copy.deepcopy(layer)
    own = vars(fused)
    statistics = bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    own["weight"], own["bias"] = fuse_conv_bn_weights(own["weight"], own["bias"], *statistics, transpose)
    return fused


__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def __dir__() -> list[str]:
    return __all__

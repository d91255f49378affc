"""Functions for networks, by PyTorch's names; written by `make surface`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from monolect.base.absent import hint
from monolect.functions.creation import one_hot
from monolect.functions.elements import sigmoid, tanh
from monolect.functions.indexing import embedding
from monolect.functions.layers import (
    batch_norm,
    celu,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    dropout,
    elu,
    gelu,
    group_norm,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    instance_norm,
    layer_norm,
    leaky_relu,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    rms_norm,
    selu,
    silu,
    softplus,
    softshrink,
    softsign,
    tanhshrink,
    threshold,
)
from monolect.functions.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from monolect.functions.products import linear, scaled_dot_product_attention
from monolect.functions.reductions import log_softmax, softmax, softmin
from monolect.functions.shapes import pad, unfold
from monolect.functions.windows import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)

if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("nn.functional", name))


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_norm", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "celu", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
    "conv_transpose3d", "cross_entropy", "dropout", "elu", "embedding", "gelu", "group_norm", "hardshrink",
    "hardsigmoid", "hardswish", "hardtanh", "huber_loss", "instance_norm", "kl_div", "l1_loss", "layer_norm",
    "leaky_relu", "linear", "log_softmax", "logsigmoid", "max_pool1d", "max_pool2d", "max_pool3d", "mish", "mse_loss",
    "nll_loss", "one_hot", "pad", "prelu", "relu", "relu6", "rms_norm", "scaled_dot_product_attention", "selu",
    "sigmoid", "silu", "smooth_l1_loss", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh",
    "tanhshrink", "threshold", "unfold",
]  # fmt: skip

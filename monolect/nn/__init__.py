"""Provide layers, optimizers and model state: `nn.Linear`, `nn.optim.Adam`, `nn.state.get_parameters`.

Source: names follow torch.nn and torch.optim.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from monolect.base.absent import hint

# The names of each module. A module is imported at the first use of one of its names, so that programs start fast.
_NAMES = {
    "attention": "GroupedQueryAttention MultiheadAttention RotaryEmbedding",
    "containers": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "layers.activation": (
        "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish "
        "PReLU RReLU ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh "
        "Tanhshrink Threshold"
    ),
    "layers.cells": "GRUCell LSTMCell RNNCell",
    "layers.convolution": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Fold Unfold",
    "layers.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "layers.embedding": "Embedding EmbeddingBag",
    "layers.linear": "Bilinear Flatten Identity Linear Unflatten",
    "layers.loss": (
        "AdaptiveLogSoftmaxWithLoss BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CosineSimilarity "
        "CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss "
        "LinearCrossEntropyLoss MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss "
        "MultiMarginLoss NLLLoss PairwiseDistance PoissonNLLLoss SmoothL1Loss SoftMarginLoss "
        "TripletMarginLoss TripletMarginWithDistanceLoss"
    ),
    "layers.normalization": (
        "BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm "
        "LocalResponseNorm RMSNorm"
    ),
    "layers.pad": (
        "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
        "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d "
        "ZeroPad2d ZeroPad3d"
    ),
    "layers.pool": (
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d "
        "AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d "
        "LPPool2d LPPool3d MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
    "layers.resample": ("ChannelShuffle PixelShuffle PixelUnshuffle Upsample UpsamplingBilinear2d UpsamplingNearest2d"),
    "module": "Module Parameter",
    "transformer": (
        "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer"
    ),
}
_MODULES = ("datasets", "functional", "init", "optim", "parallel", "state", "utils")
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_WHERE, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from monolect.nn import datasets, functional, init, optim, parallel, state, utils  # noqa: F401
    from monolect.nn.attention import *  # noqa: F403
    from monolect.nn.containers import *  # noqa: F403
    from monolect.nn.layers.activation import *  # noqa: F403
    from monolect.nn.layers.cells import *  # noqa: F403
    from monolect.nn.layers.convolution import *  # noqa: F403
    from monolect.nn.layers.dropout import *  # noqa: F403
    from monolect.nn.layers.embedding import *  # noqa: F403
    from monolect.nn.layers.linear import *  # noqa: F403
    from monolect.nn.layers.loss import *  # noqa: F403
    from monolect.nn.layers.normalization import *  # noqa: F403
    from monolect.nn.layers.pad import *  # noqa: F403
    from monolect.nn.layers.pool import *  # noqa: F403
    from monolect.nn.layers.resample import *  # noqa: F403
    from monolect.nn.module import *  # noqa: F403
    from monolect.nn.transformer import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            found = getattr(import_module(f"monolect.nn.{_WHERE[name]}"), name)
        elif name in _MODULES:
            found = import_module(f"monolect.nn.{name}")
        else:
            raise AttributeError(hint("nn", name))
        globals()[name] = found  # later uses do not call __getattr__
        return found


def __dir__() -> list[str]:
    return __all__

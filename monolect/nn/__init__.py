"""Provide layers, optimizers and model state: `nn.Linear`, `nn.optim.Adam`, `nn.state.get_parameters`.

Source: names follow torch.nn and torch.optim.
"""

from typing import TYPE_CHECKING, Any

from monolect.base.absent import hint
from monolect.nn import optim, state
from monolect.nn.activation import (
    GELU,
    AdaptiveAvgPool2d,
    AvgPool2d,
    Flatten,
    Identity,
    LeakyReLU,
    MaxPool2d,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from monolect.nn.layers import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    Dropout,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    RMSNorm,
)
from monolect.nn.module import Module, ModuleList, Sequential

__all__ = [
    "AdaptiveAvgPool2d", "AvgPool2d", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d", "Conv3d",
    "Dropout", "Embedding", "Flatten", "GELU", "GroupNorm", "Identity", "LayerNorm", "LeakyReLU", "Linear",
    "MaxPool2d", "Module", "ModuleList", "MultiheadAttention", "RMSNorm", "ReLU", "Sequential", "SiLU", "Sigmoid",
    "Softmax", "Tanh", "datasets", "functional", "init", "optim", "parallel", "state", "utils",
]  # fmt: skip


if TYPE_CHECKING:
    from monolect.nn import datasets, functional, init, parallel, utils
    from monolect.nn.attention import MultiheadAttention
else:

    def __getattr__(name: str) -> Any:
        """Import what few programs need at its first use, so that the others start fast."""
        if name == "datasets":
            import monolect.nn.datasets as datasets  # imported at its first use

            return datasets
        if name == "init":
            import monolect.nn.init as init  # imported at its first use

            return init
        if name == "functional":
            import monolect.nn.functional as functional  # imported at its first use

            return functional
        if name == "parallel":
            import monolect.nn.parallel as parallel  # imported at its first use

            return parallel
        if name == "utils":
            import monolect.nn.utils as utils  # imported at its first use

            return utils
        if name == "MultiheadAttention":
            from monolect.nn.attention import MultiheadAttention  # imported at its first use

            return MultiheadAttention
        raise AttributeError(hint("nn", name))


def __dir__() -> list[str]:
    return __all__

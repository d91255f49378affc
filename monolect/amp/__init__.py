"""Provide casts of operands and scales of losses for training in small floats, by the names of torch.amp.

>>> GradScaler(init_scale=4.0).get_scale()
4.0
"""

from monolect.amp.autocast import autocast
from monolect.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]


def __dir__() -> list[str]:
    return __all__

"""Provide optimizers, schedules of learning rates and averages of weights, by the names of torch.optim.

>>> from monolect import Tensor
>>> w = Tensor([1.0], requires_grad=True)
>>> optimizer = SGD([{"params": [w], "lr": 0.5}], momentum=0.9)
>>> optimizer.param_groups[0]["lr"]
0.5
"""

from typing import TYPE_CHECKING, Any

from monolect.optim import lr_scheduler
from monolect.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from monolect.optim.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from monolect.optim.descent import ASGD, SGD, Lion, Rprop
from monolect.optim.layerwise import LAMB, LARS, Muon
from monolect.optim.lbfgs import LBFGS
from monolect.optim.optimizer import Optimizer

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LAMB", "LARS", "LBFGS", "Lion", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "lr_scheduler", "swa_utils",
]  # fmt: skip

if TYPE_CHECKING:
    from monolect.optim import swa_utils
else:

    def __getattr__(name: str) -> Any:
        """Import what few programs need at its first use."""
        if name == "swa_utils":
            import monolect.optim.swa_utils as swa_utils  # imported at its first use

            return swa_utils
        raise AttributeError(f"module 'monolect.optim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""Provide optimizers, schedules of learning rates and averages of weights, by the names of torch.optim.

>>> from monolect import Tensor, optim
>>> w = Tensor([1.0], requires_grad=True)
>>> optimizer = optim.SGD([{"params": [w], "lr": 0.5}], momentum=0.9)
>>> optimizer.param_groups[0]["lr"]
0.5
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from monolect.base.absent import hint

# The names of each module. A module is imported at the first use of one of its names, so that programs start fast.
_NAMES = {
    "adam": "Adam Adamax AdamW NAdam RAdam",
    "adaptive": "Adadelta Adafactor Adagrad RMSprop",
    "descent": "ASGD SGD Lion Rprop",
    "layerwise": "LAMB LARS Muon",
    "lbfgs": "LBFGS",
    "optimizer": "Optimizer",
}
_MODULES = ("lr_scheduler", "swa_utils")
_WHERE = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LAMB", "LARS", "LBFGS", "Lion", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "lr_scheduler", "swa_utils",
]  # fmt: skip

if TYPE_CHECKING:
    from monolect.optim import lr_scheduler, swa_utils
    from monolect.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
    from monolect.optim.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
    from monolect.optim.descent import ASGD, SGD, Lion, Rprop
    from monolect.optim.layerwise import LAMB, LARS, Muon
    from monolect.optim.lbfgs import LBFGS
    from monolect.optim.optimizer import Optimizer
else:

    def __getattr__(name: str) -> Any:
        if name in _WHERE:
            found = getattr(import_module(f"monolect.optim.{_WHERE[name]}"), name)
        elif name in _MODULES:
            found = import_module(f"monolect.optim.{name}")
        else:
            raise AttributeError(hint("optim", name))
        globals()[name] = found  # later uses do not call __getattr__
        return found


def __dir__() -> list[str]:
    return __all__

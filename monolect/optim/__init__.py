"""Provide optimizers, schedules of learning rates and averages of weights, by the names of torch.optim.

>>> from monolect import Tensor
>>> w = Tensor([1.0], requires_grad=True)
>>> optimizer = SGD([{"params": [w], "lr": 0.5}], momentum=0.9)
>>> optimizer.param_groups[0]["lr"]
0.5
"""

from monolect.optim import lr_scheduler
from monolect.optim.adam import Adam, Adamax, AdamW, NAdam, RAdam
from monolect.optim.adaptive import Adadelta, Adafactor, Adagrad, RMSprop
from monolect.optim.descent import ASGD, SGD, Lion, Rprop
from monolect.optim.layerwise import LAMB, LARS, Muon
from monolect.optim.lbfgs import LBFGS
from monolect.optim.optimizer import Optimizer

__all__ = [
    "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LAMB", "LARS", "LBFGS", "Lion", "Muon",
    "NAdam", "Optimizer", "RAdam", "RMSprop", "Rprop", "SGD", "lr_scheduler",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__

"""Provide schedules of learning rates, by the names of torch.optim.lr_scheduler.

A schedule writes to the groups of its optimizer. A captured step serves every value: it is captured once. `step()` is
called between the calls of a captured step; inside of one it raises JitError.
"""

from monolect.optim.lr_scheduler.base import LRScheduler
from monolect.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from monolect.optim.lr_scheduler.cycles import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR
from monolect.optim.lr_scheduler.decays import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    ReduceLROnPlateau,
    StepLR,
)

__all__ = [
    "ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR",
    "LRScheduler", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR",
    "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__

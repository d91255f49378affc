"""Define schedules of schedules: one after the other, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.optim.lr_scheduler.base import LRScheduler
from monolect.optim.lr_scheduler.decays import ReduceLROnPlateau
from monolect.optim.optimizer import Optimizer
from monolect.tensor.guard import guard_methods


class _Combined(LRScheduler):
    _schedulers: list[LRScheduler]

    def _take(self, optimizer: Optimizer | None, schedulers: Sequence[LRScheduler]) -> None:
        """Check `schedulers` and keep them."""
        name, self._schedulers = type(self).__name__, list(schedulers)
        if not self._schedulers:
            raise ArgumentError(f"{name}: schedulers", expected="at least one", found="none")
        self.optimizer = optimizer or self._schedulers[0].optimizer
        for s in self._schedulers:
            if isinstance(s, ReduceLROnPlateau):
                raise ArgumentError(f"{name}: schedulers", expected="schedules without a measured value", found=s)
            if s.optimizer is not self.optimizer:
                raise ArgumentError(f"{name}: schedulers", expected="schedules of one optimizer", found="several")

    def state_dict(self) -> dict[str, Any]:
        own = {k: v for k, v in super().state_dict().items() if k != "_schedulers"}
        return {**own, "_schedulers": [s.state_dict() for s in self._schedulers]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for s, own in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            s.load_state_dict(own)


@guard_methods
class SequentialLR(_Combined):
    """The first of `schedulers` until step `milestones[0]`, then the second, and so on.

    Raises ArgumentError unless there is one milestone less than schedules, all of `optimizer`.

    >>> from monolect.optim import SGD
    >>> from monolect.optim.lr_scheduler import ConstantLR, ExponentialLR
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    >>> parts = [ConstantLR(optimizer, factor=0.5), ExponentialLR(optimizer, gamma=0.5)]
    >>> schedule = SequentialLR(optimizer, parts, milestones=[1])
    >>> first = optimizer.lr
    >>> schedule.step()
    >>> first, optimizer.lr
    (0.25, 0.5)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ):
        self._take(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            expected = f"{len(schedulers) - 1}, one less than schedules"
            raise ArgumentError("SequentialLR: milestones", expected=expected, found=len(milestones))
        self._milestones, self.last_epoch = list(milestones), last_epoch + 1
        optimizer.change_settings([{"lr": g["initial_lr"]} for g in optimizer.param_groups])
        _undo(self)
        self._schedulers[0]._start()
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self, epoch: int | None = None) -> None:
        """Take a step of the schedule whose turn it is. `epoch` is not used."""
        self.last_epoch += 1
        at = bisect_right(self._milestones, self.last_epoch)
        now = self._schedulers[at]
        try:
            now.step(0 if at and self._milestones[at - 1] == self.last_epoch else None)
        except BaseException:
            self.last_epoch -= 1
            raise
        self._last_lr = now.get_last_lr()


def _undo(schedule: _Combined) -> None:
    """Take back step 0 of all schedules of `schedule`."""
    for s in schedule._schedulers:
        if isinstance(s, _Combined):
            _undo(s)
        if hasattr(s, "last_epoch"):
            s.last_epoch -= 1


@guard_methods
class ChainedScheduler(_Combined):
    """All `schedulers` at once: a step takes a step of each, in order. Raises ArgumentError for different optimizers.

    >>> from monolect.optim import SGD
    >>> from monolect.optim.lr_scheduler import ConstantLR, ExponentialLR
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    >>> ChainedScheduler([ConstantLR(optimizer, factor=0.5), ExponentialLR(optimizer, gamma=0.5)]).step()
    >>> optimizer.lr
    0.125
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None):
        self._take(optimizer, schedulers)
        self._last_lr = self._lrs()

    def step(self, epoch: int | None = None) -> None:
        """Take a step of each schedule. `epoch` is not used."""
        for s in self._schedulers:
            s.step()
        self._last_lr = self._lrs()


__all__ = ["ChainedScheduler", "SequentialLR"]

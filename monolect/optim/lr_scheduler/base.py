"""Define LRScheduler, the base of schedules: it counts steps and writes learning rates to groups of an optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from monolect.base.errors import ArgumentError, DTypeError
from monolect.optim.optimizer import Optimizer
from monolect.tensor.guard import guard_methods


@guard_methods
class LRScheduler:
    """Base class of schedules. A subclass defines `get_lr`, the learning rates of all groups at step `last_epoch`.

    Making one takes step 0. With `last_epoch`, the schedule continues after that step, and every group has an
    `initial_lr`. Raises DTypeError for another object than an optimizer, ArgumentError for a group without
    `initial_lr`.

    >>> from monolect.optim import SGD
    >>> class Halved(LRScheduler):
    ...     def get_lr(self):
    ...         return [lr * 0.5**self.last_epoch for lr in self.base_lrs]
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.4)
    >>> schedule = Halved(optimizer)
    >>> schedule.step()
    >>> optimizer.param_groups[0]["lr"], schedule.get_last_lr()
    (0.2, [0.2])
    """

    # attributes that a captured step depends on only if its code names them or a name in `readers`
    unread = (
        "last_epoch", "_step_count", "_last_lr", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i",
    )  # fmt: skip
    readers = ("get_last_lr", "get_lr", "state_dict")

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1):
        if not isinstance(optimizer, Optimizer):
            found = type(optimizer).__name__
            raise DTypeError(f"{type(self).__name__}: optimizer", expected="an Optimizer", found=found)
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            if last_epoch == -1:
                group.setdefault("initial_lr", group["lr"])
            elif "initial_lr" not in group:
                expected = "initial_lr in every group, to continue after last_epoch"
                raise ArgumentError(f"{type(self).__name__}: last_epoch", expected=expected, found=last_epoch)
        self.base_lrs: list[float] = [group["initial_lr"] for group in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._start()

    def _start(self) -> None:
        """Take step 0, or the first step after `last_epoch`."""
        self._step_count = 0
        self.step()

    def get_lr(self) -> list[float]:
        """Return the learning rate of each group at step `last_epoch`, given those of the step before.

        >>> from monolect.optim import SGD
        >>> from monolect.optim.lr_scheduler import ExponentialLR
        >>> ExponentialLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.4), gamma=0.5).get_lr()
        [0.4]
        """
        raise NotImplementedError

    def _closed_lr(self) -> list[float]:
        """Return the learning rates at step `last_epoch`, whatever those of the step before are."""
        return self.get_lr()

    def _values(self, lrs: list[float]) -> list[dict[str, Any]]:
        """Return the settings to write to each group, with the learning rates `lrs`."""
        return [{"lr": lr} for lr in lrs]

    def step(self, epoch: int | None = None) -> None:
        """Write the learning rates of the next step, or of step `epoch`, to the groups.

        Raises JitError inside a captured step.

        >>> from monolect.optim import SGD
        >>> from monolect.optim.lr_scheduler import ExponentialLR
        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.4)
        >>> ExponentialLR(optimizer, gamma=0.5).step()
        >>> optimizer.lr
        0.2
        """
        before = self.last_epoch
        self.last_epoch = before + 1 if epoch is None else epoch
        self._step_count += 1
        try:
            self._write(self._values(self.get_lr() if epoch is None else self._closed_lr()))
        except BaseException:
            self.last_epoch = before
            self._step_count -= 1
            raise

    def _write(self, values: list[dict[str, Any]]) -> None:
        self.optimizer.change_settings(values)
        self._last_lr = self._lrs()

    def _lrs(self) -> list[float]:
        """Return the present learning rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def _per_group(self, name: str, value: Any) -> list[Any]:
        """Return `value`, or each item of it, for each group. Raises ArgumentError for another number of items."""
        n = len(self.optimizer.param_groups)
        if not isinstance(value, list | tuple):
            return [value] * n
        if len(value) != n:
            raise ArgumentError(f"{type(self).__name__}: {name}", expected=f"{n} values, one for each group",
                                found=len(value))  # fmt: skip
        return list(value)

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each group that the last step wrote.

        >>> from monolect.optim import SGD
        >>> from monolect.optim.lr_scheduler import ExponentialLR
        >>> ExponentialLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.4), gamma=0.5).get_last_lr()
        [0.4]
        """
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        """Return what is needed to continue, as plain values: all attributes but the optimizer and functions.

        >>> from monolect.optim import SGD
        >>> from monolect.optim.lr_scheduler import ExponentialLR
        >>> schedule = ExponentialLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.4), gamma=0.5)
        >>> schedule.state_dict()["last_epoch"]
        0
        """
        return {k: v for k, v in vars(self).items() if k != "optimizer" and not callable(v)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned. The learning rates themselves are part of the optimizer's state.

        >>> from monolect.optim import SGD
        >>> from monolect.optim.lr_scheduler import ExponentialLR
        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.4)
        >>> old, new = ExponentialLR(optimizer, gamma=0.5), ExponentialLR(optimizer, gamma=0.1)
        >>> new.load_state_dict(old.state_dict())
        >>> new.gamma
        0.5
        """
        self.__dict__.update(state_dict)


def check_kind(schedule: object, name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """Return `value`, the argument `name` of `schedule`. Raises ArgumentError unless it is in `allowed`."""
    if value not in allowed:
        expected = " or ".join(map(repr, allowed))
        raise ArgumentError(f"{type(schedule).__name__}: {name}", expected=expected, found=repr(value))
    return value


__all__ = ["LRScheduler", "check_kind"]

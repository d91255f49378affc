"""Define schedules that follow a factor, a function of the step, or a measured value."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import cos, inf, pi
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.optim.lr_scheduler.base import LRScheduler, check_kind
from monolect.optim.optimizer import Optimizer
from monolect.tensor.guard import guard_methods

Rule = Callable[[int], float]


class _OfRules(LRScheduler):
    """A schedule with a function of the step for each group."""

    lr_lambdas: list[Rule]

    def __init__(self, optimizer: Optimizer, lr_lambda: Rule | Sequence[Rule], last_epoch: int = -1):
        self.optimizer = optimizer
        self.lr_lambdas = self._per_group("lr_lambda", lr_lambda)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        own = [None if hasattr(f, "__code__") else dict(vars(f)) for f in self.lr_lambdas]  # of callable objects
        return {**super().state_dict(), "lr_lambdas": own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for f, own in zip(self.lr_lambdas, state_dict["lr_lambdas"], strict=True):
            if own is not None:
                vars(f).update(own)


@guard_methods
class LambdaLR(_OfRules):
    """The initial learning rate times `lr_lambda(step)`, a function or one for each group.

    >>> from monolect.optim import SGD
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    >>> LambdaLR(optimizer, lambda step: 1 / (step + 1)).step()
    >>> optimizer.lr
    0.25
    """

    def get_lr(self) -> list[float]:
        return [lr * f(self.last_epoch) for lr, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]


@guard_methods
class MultiplicativeLR(_OfRules):
    """The last learning rate times `lr_lambda(step)`, a function or one for each group.

    >>> from monolect.optim import SGD
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    >>> MultiplicativeLR(optimizer, lambda step: 0.5).step()
    >>> optimizer.lr
    0.25
    """

    def get_lr(self) -> list[float]:
        if self.last_epoch <= 0:
            return self._lrs()
        return [lr * f(self.last_epoch) for lr, f in zip(self._lrs(), self.lr_lambdas, strict=True)]


class _OfFactors(LRScheduler):
    """A schedule that multiplies all learning rates by the same factor at each step."""

    def get_lr(self) -> list[float]:
        factor = self._factor(self.last_epoch)
        return self._lrs() if factor is None else [lr * factor for lr in self._lrs()]

    def _closed_lr(self) -> list[float]:
        factor = self._total(self.last_epoch)
        return [lr * factor for lr in self.base_lrs]

    def _factor(self, step: int) -> float | None:
        """Return the factor from the step before `step`; None for no change."""
        raise NotImplementedError

    def _total(self, step: int) -> float:
        """Return the factor from the initial learning rate."""
        raise NotImplementedError


@guard_methods
class StepLR(_OfFactors):
    """The learning rate times `gamma` every `step_size` steps.

    >>> from monolect.optim import SGD
    >>> schedule = StepLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), step_size=1, gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1):
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float | None:
        return None if step == 0 or step % self.step_size else self.gamma

    def _total(self, step: int) -> float:
        return self.gamma ** (step // self.step_size)


@guard_methods
class MultiStepLR(_OfFactors):
    """The learning rate times `gamma` at each of the steps `milestones`.

    >>> from monolect.optim import SGD
    >>> schedule = MultiStepLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), milestones=[1, 3], gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1):
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float | None:
        return self.gamma ** self.milestones[step] if step in self.milestones else None

    def _total(self, step: int) -> float:
        return self.gamma ** bisect_right(sorted(self.milestones.elements()), step)


@guard_methods
class ConstantLR(_OfFactors):
    """The learning rate times `factor` until step `total_iters`. Raises ArgumentError unless 0 <= factor <= 1.

    >>> from monolect.optim import SGD
    >>> schedule = ConstantLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), factor=0.5)
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1):
        if not 0.0 <= factor <= 1.0:
            raise ArgumentError("ConstantLR: factor", expected="between 0 and 1", found=factor)
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float | None:
        return self.factor if step == 0 else None if step != self.total_iters else 1.0 / self.factor

    def _total(self, step: int) -> float:
        return self.factor + (step >= self.total_iters) * (1.0 - self.factor)


@guard_methods
class LinearLR(_OfFactors):
    """The learning rate times a factor that goes from `start_factor` to `end_factor` in `total_iters` steps.

    Raises ArgumentError unless 0 < start_factor <= 1 and 0 <= end_factor <= 1.

    >>> from monolect.optim import SGD
    >>> schedule = LinearLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), start_factor=0.5, total_iters=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.375]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ):
        if not 0.0 < start_factor <= 1.0 or not 0.0 <= end_factor <= 1.0:
            found = (start_factor, end_factor)
            raise ArgumentError("LinearLR: factors", expected="between 0 and 1, the first not 0", found=found)
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float | None:
        if step == 0:
            return self.start_factor
        if step > self.total_iters:
            return None
        rise = self.end_factor - self.start_factor
        return 1.0 + rise / (self.total_iters * self.start_factor + (step - 1) * rise)

    def _total(self, step: int) -> float:
        part = min(self.total_iters, step) / self.total_iters
        return self.start_factor + (self.end_factor - self.start_factor) * part


@guard_methods
class ExponentialLR(_OfFactors):
    """The learning rate times `gamma` at each step.

    >>> from monolect.optim import SGD
    >>> schedule = ExponentialLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), gamma=0.5)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1):
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float | None:
        return None if step == 0 else self.gamma

    def _total(self, step: int) -> float:
        return self.gamma**step


@guard_methods
class PolynomialLR(_OfFactors):
    """The learning rate times `(1 - step / total_iters) ** power`, 0 from step `total_iters` on.

    >>> from monolect.optim import SGD
    >>> schedule = PolynomialLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), total_iters=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1):
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def _factor(self, step: int) -> float | None:
        if step == 0 or step > self.total_iters:
            return None
        left = (1.0 - step / self.total_iters) / (1.0 - (step - 1) / self.total_iters)
        return float(left**self.power)

    def _total(self, step: int) -> float:
        return float((1.0 - min(self.total_iters, step) / self.total_iters) ** self.power)


@guard_methods
class CosineAnnealingLR(LRScheduler):
    """The learning rate falls to `eta_min` in `T_max` steps along a cosine, and rises again in as many.

    >>> from monolect.optim import SGD
    >>> schedule = CosineAnnealingLR(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), T_max=2)
    >>> schedule.step()
    >>> [round(lr, 4) for lr in schedule.get_last_lr()]
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1):
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        step, n, low = self.last_epoch, self.T_max, self.eta_min
        if step == 0:
            return self._lrs()
        if self._step_count == 1 and step > 0:
            return self._closed_lr()
        if (step - 1 - n) % (2 * n) == 0:
            rise = (1 - cos(pi / n)) / 2
            return [lr + (base - low) * rise for base, lr in zip(self.base_lrs, self._lrs(), strict=True)]
        factor = (1 + cos(pi * step / n)) / (1 + cos(pi * (step - 1) / n))
        return [factor * (lr - low) + low for lr in self._lrs()]

    def _closed_lr(self) -> list[float]:
        part = (1 + cos(pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (base - self.eta_min) * part for base in self.base_lrs]


@guard_methods
class ReduceLROnPlateau(LRScheduler):
    """The learning rate times `factor` once `step(metrics)` saw no better value than the best for more than `patience`
    steps; then no count for `cooldown` steps.

    `mode` is "min" or "max". A value is better by `threshold` of the best ("rel"), or by `threshold` ("abs"). A rate is
    at least `min_lr`, a number or one for each group, and changes by more than `eps`. Raises ArgumentError for a factor
    of 1 or more, and for another mode.

    >>> from monolect.optim import SGD
    >>> schedule = ReduceLROnPlateau(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), factor=0.5, patience=0)
    >>> for loss in (1.0, 2.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | list[float] = 0.0,
        eps: float = 1e-8,
    ):
        if factor >= 1.0:
            raise ArgumentError("ReduceLROnPlateau: factor", expected="below 1", found=factor)
        self.mode = check_kind(self, "mode", mode, ("min", "max"))
        self.threshold_mode = check_kind(self, "threshold_mode", threshold_mode, ("rel", "abs"))
        self.factor, self.patience, self.threshold, self.eps = factor, patience, threshold, eps
        self.cooldown, self.cooldown_counter, self.num_bad_epochs = cooldown, 0, 0
        self.best = inf if mode == "min" else -inf
        super().__init__(optimizer)
        self.min_lrs: list[float] = self._per_group("min_lr", min_lr)

    def _start(self) -> None:
        self._step_count = self.last_epoch = 0
        self._last_lr = self._lrs()

    def step(self, metrics: Any, epoch: int | None = None) -> None:  # type: ignore[override]
        """Note the measured value `metrics`, a number or a Tensor of one element, and reduce the learning rates."""
        value = float(metrics)
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self.is_better(value, self.best):
            self.best, self.num_bad_epochs = value, 0
        else:
            self.num_bad_epochs += 1
        if self.cooldown_counter > 0:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown_counter - 1, 0
        if self.num_bad_epochs > self.patience:
            self.cooldown_counter, self.num_bad_epochs = self.cooldown, 0
            new = [max(lr * self.factor, least) for lr, least in zip(self._lrs(), self.min_lrs, strict=True)]
            self._write([{"lr": n} if lr - n > self.eps else {} for lr, n in zip(self._lrs(), new, strict=True)])
        self._last_lr = self._lrs()

    def is_better(self, a: float, best: float) -> bool:
        """Return whether `a` is better than `best` by the threshold.

        >>> from monolect.optim import SGD
        >>> ReduceLROnPlateau(SGD([Tensor([1.0], requires_grad=True)])).is_better(0.5, 1.0)
        True
        """
        sign = -1.0 if self.mode == "min" else 1.0
        bound = best + sign * self.threshold if self.threshold_mode == "abs" else best * (1.0 + sign * self.threshold)
        return sign * (a - bound) > 0.0

    @property
    def in_cooldown(self) -> bool:
        """Whether steps are not counted at the moment.

        >>> from monolect.optim import SGD
        >>> ReduceLROnPlateau(SGD([Tensor([1.0], requires_grad=True)])).in_cooldown
        False
        """
        return self.cooldown_counter > 0


__all__ = [
    "ConstantLR",
    "CosineAnnealingLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "StepLR",
]

"""Define schedules that raise and lower the learning rate in cycles, and momentum against it."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, floor, log, pi
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.optim.lr_scheduler.base import LRScheduler, check_kind
from monolect.optim.optimizer import Optimizer
from monolect.tensor.guard import guard_methods


class _WithMomentum(LRScheduler):
    """A schedule of learning rates and of momentum: the setting `momentum`, or the first of `betas`."""

    cycle_momentum: bool

    def _check_momentum(self, optimizer: Optimizer) -> None:
        if self.cycle_momentum and not {"momentum", "betas"} & optimizer.defaults.keys():
            found = f"{type(optimizer).__name__} without either"
            expected = "an optimizer with momentum or betas, or cycle_momentum=False"
            raise ArgumentError(f"{type(self).__name__}: optimizer", expected=expected, found=found)

    def _momentum_of(self, group: Any, value: float) -> dict[str, Any]:
        """Return the setting that makes `value` the momentum of `group`."""
        return {"betas": (value, *group["betas"][1:])} if "betas" in group else {"momentum": value}

    def _momenta(self) -> list[float]:
        """Return the momentum of each group at step `last_epoch`."""
        raise NotImplementedError

    def _values(self, lrs: list[float]) -> list[dict[str, Any]]:
        if not self.cycle_momentum:
            return super()._values(lrs)
        groups = self.optimizer.param_groups
        return [{"lr": lr, **self._momentum_of(g, m)} for g, lr, m in zip(groups, lrs, self._momenta(), strict=True)]


@guard_methods
class CyclicLR(_WithMomentum):
    """The learning rate goes from `base_lr` to `max_lr` in `step_size_up` steps and back in `step_size_down`, again and
    again; momentum from `max_momentum` to `base_momentum` and back.

    `mode`: "triangular", "triangular2" (each cycle half as high) or "exp_range" (`gamma ** step` as high); or
    `scale_fn`, a function of the number of the cycle or, with the `scale_mode` "iterations", of the step. Raises
    ArgumentError for another mode, and for an optimizer without momentum.

    >>> from monolect.optim import SGD
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], momentum=0.9)
    >>> schedule = CyclicLR(optimizer, base_lr=0.25, max_lr=0.75, step_size_up=2)
    >>> schedule.step()
    >>> schedule.get_last_lr(), round(optimizer.momentum, 4)
    ([0.5], 0.85)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ):
        self.optimizer, self.cycle_momentum = optimizer, cycle_momentum
        self.mode = mode if scale_fn else check_kind(self, "mode", mode, ("triangular", "triangular2", "exp_range"))
        self.scale_mode = check_kind(self, "scale_mode", scale_mode, ("cycle", "iterations"))
        self.gamma, self.scale_fn = gamma, scale_fn
        if scale_fn is None and mode == "exp_range":
            self.scale_mode = "iterations"
        self._check_momentum(optimizer)
        bases, self.max_lrs = self._per_group("base_lr", base_lr), self._per_group("max_lr", max_lr)
        low, high = (self._per_group("momentum", m) for m in (base_momentum, max_momentum))
        self.base_momentums, self.max_momentums = low, high
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up + down)
        self.step_ratio = step_size_up / self.total_size
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, bases, strict=True):
                group["lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _start(self) -> None:
        if self.last_epoch == -1:
            self.base_lrs = self._lrs()
        super()._start()

    def _height(self) -> float:
        """Return the height of step `last_epoch` in its cycle, from 0 to 1, scaled."""
        cycle = floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        at = cycle if self.scale_mode == "cycle" else self.last_epoch
        if self.scale_fn is not None:
            return height * self.scale_fn(at)
        return height * {"triangular": 1.0, "triangular2": 1.0 / 2.0 ** (at - 1)}.get(self.mode, self.gamma**at)

    def get_lr(self) -> list[float]:
        height = self._height()
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs, strict=True)]

    def _momenta(self) -> list[float]:
        height = self._height()
        pairs = zip(self.base_momentums, self.max_momentums, strict=True)
        return [high - (high - low) * height for low, high in pairs]


@guard_methods
class OneCycleLR(_WithMomentum):
    """The learning rate rises from `max_lr / div_factor` to `max_lr` in the part `pct_start` of the steps, and falls to
    that of the start divided by `final_div_factor`; momentum falls from `max_momentum` to `base_momentum` and rises.

    The number of steps is `total_steps`, or `epochs * steps_per_epoch`. `anneal_strategy` is "cos" or "linear". With
    `three_phase` it falls to the rate of the start as fast as it rose, and then on. Raises ArgumentError for other
    arguments, for an optimizer without momentum, and for a step after the last.

    >>> from monolect.optim import SGD
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], momentum=0.9)
    >>> schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=10, div_factor=4.0)
    >>> schedule.step()
    >>> [round(lr, 4) for lr in schedule.get_last_lr()], round(optimizer.momentum, 4)
    ([0.625], 0.9)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ):
        self.optimizer, self.cycle_momentum = optimizer, cycle_momentum
        self.anneal_strategy = check_kind(self, "anneal_strategy", anneal_strategy, ("cos", "linear"))
        n = epochs * steps_per_epoch if total_steps is None and epochs and steps_per_epoch else total_steps
        if n is None or n <= 0 or not 0.0 <= pct_start <= 1.0:
            expected = "a positive number of steps, and pct_start between 0 and 1"
            raise ArgumentError("OneCycleLR: steps", expected=expected, found=(n, pct_start))
        self.total_steps, rise = n, float(pct_start * n)
        # (last step, names of the learning rates and of the momenta at start and end) of each phase
        self.phases: list[tuple[float, tuple[str, str], tuple[str, str]]] = [
            (rise - 1, ("initial_lr", "max_lr"), ("max_momentum", "base_momentum"))
        ]
        if three_phase:
            self.phases.append((2 * rise - 2, ("max_lr", "initial_lr"), ("base_momentum", "max_momentum")))
            self.phases.append((n - 1, ("initial_lr", "min_lr"), ("max_momentum", "max_momentum")))
        else:
            self.phases.append((n - 1, ("max_lr", "min_lr"), ("base_momentum", "max_momentum")))
        self._check_momentum(optimizer)
        if last_epoch == -1:
            low, high = (self._per_group("momentum", m) for m in (base_momentum, max_momentum))
            for group, lr, lo, hi in zip(optimizer.param_groups, self._per_group("max_lr", max_lr), low, high,
                                         strict=True):  # fmt: skip
                group.update(initial_lr=lr / div_factor, max_lr=lr, min_lr=lr / div_factor / final_div_factor)
                if cycle_momentum:
                    group.update(max_momentum=hi, base_momentum=lo, **self._momentum_of(group, hi))
        super().__init__(optimizer, last_epoch)

    def _between(self, kind: int) -> list[float]:
        """Return the value of each group at step `last_epoch`: a learning rate (kind 1) or momentum (kind 2)."""
        step, start = self.last_epoch, 0.0
        if step > self.total_steps:
            raise ArgumentError("OneCycleLR: step", expected=f"at most {self.total_steps} steps", found=step)
        for phase in self.phases:
            if step <= phase[0] or phase is self.phases[-1]:
                break
            start = phase[0]
        part = (step - start) / (phase[0] - start)
        first, last = phase[1] if kind == 1 else phase[2]
        groups = self.optimizer.param_groups
        if self.anneal_strategy == "linear":
            return [(g[last] - g[first]) * part + g[first] for g in groups]
        return [g[last] + (g[first] - g[last]) / 2.0 * (1.0 + cos(pi * part)) for g in groups]

    def get_lr(self) -> list[float]:
        return self._between(1)

    def _momenta(self) -> list[float]:
        return self._between(2)


@guard_methods
class CosineAnnealingWarmRestarts(LRScheduler):
    """The learning rate falls to `eta_min` along a cosine in `T_0` steps and starts again, each time for `T_mult` times
    as many steps. `step(epoch)` also takes fractions.

    Raises ArgumentError unless `T_0` and `T_mult` are integers of at least 1.

    >>> from monolect.optim import SGD
    >>> schedule = CosineAnnealingWarmRestarts(SGD([Tensor([1.0], requires_grad=True)], lr=0.5), T_0=2)
    >>> schedule.step()
    >>> [round(lr, 4) for lr in schedule.get_last_lr()]
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1):
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:
                expected = "an integer of at least 1"
                raise ArgumentError(f"CosineAnnealingWarmRestarts: {name}", expected=expected, found=value)
        self.T_0, self.T_i, self.T_mult, self.eta_min = T_0, T_0, T_mult, eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[float]:
        part = (1 + cos(pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (lr - self.eta_min) * part for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Write the learning rates of the next step, or of step `epoch`, to the groups."""
        before = self.T_cur, self.T_i
        if epoch is None and self.last_epoch < 0:
            epoch = 0
        if epoch is None:
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur, self.T_i = self.T_cur - self.T_i, self.T_i * self.T_mult
        elif epoch < 0:
            raise ArgumentError("CosineAnnealingWarmRestarts: epoch", expected="at least 0", found=epoch)
        elif epoch < self.T_0:
            self.T_cur, self.T_i = epoch, self.T_0
        elif self.T_mult == 1:
            self.T_cur, self.T_i = epoch % self.T_0, self.T_0
        else:
            n = int(log(epoch / self.T_0 * (self.T_mult - 1) + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / (self.T_mult - 1)
            self.T_i = self.T_0 * self.T_mult**n
        try:
            super().step(None if epoch is None else floor(epoch))
        except BaseException:
            self.T_cur, self.T_i = before
            raise


__all__ = ["CosineAnnealingWarmRestarts", "CyclicLR", "OneCycleLR"]

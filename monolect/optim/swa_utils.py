"""Average the weights of a model over steps: equally (SWA) or with an exponential decay (EMA), as in torch.optim.

An average is state that a captured step may update: the number of updates is a Tensor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from math import cos, pi
from typing import Any

import numpy as np

from monolect.nn.layers.normalization import _BatchNorm
from monolect.nn.module import Module
from monolect.optim.lr_scheduler.base import LRScheduler, check_kind
from monolect.optim.optimizer import BELOW_1, Optimizer, check_number
from monolect.tensor.guard import guard_methods, guarded
from monolect.tensor.state.leaves import is_parameter
from monolect.tensor.tensor import Tensor

Average = Callable[[Tensor, Tensor, Tensor], Tensor]  # (average, new value, number of updates) -> average
Averages = Callable[[list[Tensor], list[Tensor], Tensor], None]


def get_swa_avg_fn() -> Average:
    """Return the function of an average of equal parts.

    >>> get_swa_avg_fn()(Tensor([1.0]), Tensor([4.0]), Tensor(2)).tolist()
    [2.0]
    """
    return lambda average, new, n: average + (new - average) / (n + 1).cast(average.dtype)


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """Return the function of an average that keeps the part `decay`. Raises ArgumentError unless it is in [0, 1].

    >>> get_ema_avg_fn(0.75)(Tensor([1.0]), Tensor([5.0]), Tensor(2)).tolist()
    [2.0]
    """
    kept = check_number("decay", decay, 0.0, BELOW_1[1] if decay != 1 else None)
    return lambda average, new, n: average * kept + new * (1.0 - kept)


def _of_all(one: Average) -> Averages:
    def update(averages: list[Tensor], new: list[Tensor], n: Tensor) -> None:
        for a, x in zip(averages, new, strict=True):
            a.assign(one(a.detach(), x.detach(), n).cast(a.dtype))

    return update


def get_swa_multi_avg_fn() -> Averages:
    """Return the function that updates a list of averages of equal parts in place.

    >>> average = Tensor([1.0])
    >>> get_swa_multi_avg_fn()([average], [Tensor([4.0])], Tensor(2))
    >>> average.tolist()
    [2.0]
    """
    return _of_all(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Averages:
    """Return the function that updates a list of averages which keep the part `decay`, in place.

    >>> average = Tensor([1.0])
    >>> get_ema_multi_avg_fn(0.75)([average], [Tensor([5.0])], Tensor(2))
    >>> average.tolist()
    [2.0]
    """
    return _of_all(get_ema_avg_fn(decay))


@guard_methods
class AveragedModel(Module):
    """A copy of `model` whose weights are the average of those that `update_parameters` was given; it is called as the
    model.

    `avg_fn` is a function of (average, new value, number of updates), by default that of equal parts; `multi_avg_fn`
    updates a list of averages in place instead. Buffers, such as running means, are copied; with `use_buffers` they are
    averaged, too. `device` None keeps the devices.

    >>> from monolect import nn
    >>> model = nn.Linear(1, 1, bias=False)
    >>> average = AveragedModel(model)
    >>> for value in (1.0, 3.0):
    ...     _ = model.weight.assign(Tensor([[value]]))
    ...     average.update_parameters(model)
    >>> average(Tensor([[1.0]])).tolist()
    [[2.0]]
    """

    def __init__(
        self,
        model: Module,
        device: str | None = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Averages | None = None,
        use_buffers: bool = False,
    ):
        self.module = copy.deepcopy(model)
        if device is not None:
            for t in self.module.state_dict().values():
                t.uop = t.to(device).realize().uop
        self.n_averaged = Tensor(np.zeros((), np.int64), device=device)
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """See the class."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Add the weights of `model` to the average. The first ones are copied.

        >>> from monolect import nn
        >>> model = nn.Linear(1, 1)
        >>> average = AveragedModel(model)
        >>> average.update_parameters(model)
        >>> average.n_averaged.item()
        1
        """
        mine, new = self.module.state_dict(), model.state_dict()
        distinct = {id(t): (t, new[k].detach()) for k, t in mine.items()}  # tied weights have several names
        pairs = [(t, v.to(t.device) if isinstance(t.device, str) else v) for t, v in distinct.values()]
        averaged = [(t, v) for t, v in pairs if is_parameter(t) or self.use_buffers]
        others = [(t, v) for t, v in pairs if not (is_parameter(t) or self.use_buffers)]
        averages, values = [t for t, _ in averaged], [v for _, v in averaged]
        n = self.n_averaged
        if self.multi_avg_fn is not None:
            self.multi_avg_fn(averages, values, n)
        else:
            _of_all(self.avg_fn or get_swa_avg_fn())(averages, values, n)
        for a, v in zip(averages, values, strict=True):
            a.assign((n == 0).where(v, a.detach()))
        for t, v in others:
            t.assign(v)
        n.assign(n + 1)
        n.realize(*averages, *(t for t, _ in others))


@guard_methods
class SWALR(LRScheduler):
    """The learning rate goes to `swa_lr`, a number or one for each group, in `anneal_epochs` steps and stays there.

    `anneal_strategy` is "cos" or "linear". Raises ArgumentError for another one.

    >>> from monolect.optim import SGD
    >>> schedule = SWALR(SGD([Tensor([1.0], requires_grad=True)], lr=1.0), swa_lr=0.5, anneal_epochs=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ):
        self.optimizer, self.anneal_epochs = optimizer, anneal_epochs
        self.anneal_strategy = check_kind(self, "anneal_strategy", anneal_strategy, ("cos", "linear"))
        check_number("anneal_epochs", anneal_epochs, 0)
        for group, lr in zip(optimizer.param_groups, self._per_group("swa_lr", swa_lr), strict=True):
            group["swa_lr"] = lr
        super().__init__(optimizer, last_epoch)

    def _part(self, step: int) -> float:
        """Return the part of `swa_lr` in the learning rate of `step`."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1.0 - cos(pi * t)) / 2.0 if self.anneal_strategy == "cos" else t

    def get_lr(self) -> list[float]:
        step = max(1, self._step_count - 1) if self.anneal_epochs == 0 else self._step_count - 1
        last, now = self._part(step - 1), self._part(step)
        pairs = [(g["swa_lr"], g["lr"]) for g in self.optimizer.param_groups]
        first = [end if last == 1.0 else (lr - last * end) / (1.0 - last) for end, lr in pairs]
        return [end * now + lr * (1.0 - now) for (end, _), lr in zip(pairs, first, strict=True)]


@guarded
def update_bn(loader: Iterable[Any], model: Module, device: str | None = None) -> None:
    """Compute the running statistics of the batch norms of `model` again, as averages over the batches of `loader`.

    A batch is a Tensor, or a list or tuple whose first item is one; `device` is where it is copied to.

    >>> from monolect import nn
    >>> model = nn.BatchNorm1d(1)
    >>> update_bn([Tensor([[1.0], [3.0]]), Tensor([[3.0], [5.0]])], model)
    >>> model.running_mean.tolist()
    [3.0]
    """
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm) and m.running_mean is not None]
    momenta = [m.momentum for m in norms]
    modes = [(part, part.training) for part in model.modules()]
    for m in norms:
        for t, value in ((m.running_mean, 0.0), (m.running_var, 1.0), (m.num_batches_tracked, 0)):
            assert t is not None
            t.fill_(value)
    model.train()
    try:
        for m in norms:
            m.momentum = None  # the mean of all batches: a number for each would be a kernel for each
        for batch in loader if norms else ():
            x = batch[0] if isinstance(batch, list | tuple) else batch
            out = model(x if device is None else x.to(device))
            out.realize(*(t for m in norms for t in (m.running_mean, m.running_var) if t is not None))
    finally:
        for m, momentum in zip(norms, momenta, strict=True):
            m.momentum = momentum
        for part, training in modes:
            part.training = training


__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def __dir__() -> list[str]:
    return __all__

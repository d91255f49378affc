"""Define SGD, ASGD, Rprop and Lion: a step follows the gradient, an average of it, or its signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from monolect.base.errors import ArgumentError
from monolect.optim.optimizer import (
    ANY,
    BELOW_1,
    POSITIVE,
    Execution,
    Now,
    Optimizer,
    Params,
    Settings,
    state_like,
    wide,
)
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class SGD(Optimizer):
    """Gradient descent with momentum, dampening, Nesterov momentum and weight decay.

    `maximize` ascends. Raises ArgumentError for a bad setting, and for nesterov without momentum or with dampening.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.25)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    ranges = {"momentum": POSITIVE, "dampening": ANY, "weight_decay": POSITIVE}
    toggles = ("momentum", "dampening", "weight_decay")
    optional_slots = {"momentum": "momentum"}
    torch_names = {"momentum": "momentum_buffer"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                         nesterov=nesterov, maximize=maximize, **execution)  # fmt: skip
        self._check_nesterov()

    def _check_nesterov(self) -> None:
        """Refuse Nesterov momentum without momentum. A later step may run without its momentum."""
        for g in self.param_groups:
            if g["nesterov"] and (g["momentum"] == 0.0 or g["dampening"] != 0.0):
                found = (g["momentum"], g["dampening"])
                raise ArgumentError("SGD: nesterov", expected="a momentum and no dampening", found=found)

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {"added": 1.0 - group["dampening"]}

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        group = now.group
        if group["weight_decay"]:
            grad = grad + p * now.weight_decay
        if group["momentum"]:
            buffer = state["momentum"]
            # the first gradient is not dampened
            added = (now.count == 1.0).where(grad, grad * now.added) if group["dampening"] else grad
            buffer.assign((wide(buffer) * now.momentum + added).cast(buffer.dtype))
            grad = grad + wide(buffer) * now.momentum if group["nesterov"] else wide(buffer)
        return grad * now.lr


@guard_methods
class ASGD(Optimizer):
    """Averaged gradient descent: the state `average` has the mean of the parameters after step `t0`.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = ASGD([w], lr=0.25, lambd=0.0)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    slots = ("average", "rate", "part")
    ranges = {"lambd": ANY, "alpha": ANY, "t0": ANY, "weight_decay": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"average": "ax", "rate": "eta", "part": "mu"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, lambd=lambd, alpha=alpha, t0=t0, weight_decay=weight_decay, maximize=maximize,
                         **execution)  # fmt: skip

    def _initial(self, slot: str, p: Tensor, group: Mapping[str, Any]) -> Tensor:
        start = {"rate": group["lr"], "part": 1.0}
        return state_like(p, start[slot], ()) if slot in start else state_like(p)

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        average, rate, part = state["average"], state["rate"], state["part"]
        if now.group["weight_decay"]:
            grad = grad + p * now.weight_decay
        used = (now.count == 1.0).where(now.lr, rate)  # the learning rate may change before the first step
        change = p * (now.lambd * used) + grad * used
        average.assign((average + (p - change - average) * part).cast(average.dtype))
        rate.assign((now.lr / (now.lambd * now.lr * now.count + 1.0) ** now.alpha).cast(rate.dtype))
        part.assign((1.0 / (now.count - now.t0).maximum(1.0)).cast(part.dtype))
        return change


@guard_methods
class Rprop(Optimizer):
    """Resilient propagation: each element has a step size, which grows by `etas[1]` while the sign of the gradient
    stays, and shrinks by `etas[0]` where it changes.

    >>> w = Tensor([1.0, -3.0], requires_grad=True)
    >>> optimizer = Rprop([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -2.5]
    """

    slots = ("previous", "size")
    ranges = {"etas": POSITIVE, "step_sizes": POSITIVE}
    torch_names = {"previous": "prev", "size": "step_size"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, etas=etas, step_sizes=step_sizes, maximize=maximize, **execution)

    def _check(self, values: Settings) -> None:
        if not 0.0 < values["etas"][0] < 1.0 < values["etas"][1]:
            raise ArgumentError("Rprop: etas", expected="0 < etas[0] < 1 < etas[1]", found=values["etas"])

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        previous, size = state["previous"], state["size"]
        agree = grad * previous
        factor = (agree > 0).where(now.etas1, (agree < 0).where(now.etas0, 1.0))
        start = (now.count == 1.0).where(now.lr.cast(size.dtype), size)
        size.assign((start * factor).maximum(now.step_sizes0).minimum(now.step_sizes1).cast(size.dtype))
        grad = (agree < 0).where(0.0, grad)
        previous.assign(grad.cast(previous.dtype))
        return grad.sign() * size


@guard_methods
class Lion(Optimizer):
    """Lion: the step is `lr` times the sign of an average of gradient and momentum; weight decay shrinks parameters.

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023.

    >>> w = Tensor([1.0, -3.0], requires_grad=True)
    >>> optimizer = Lion([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -2.5]
    """

    slots = ("mean",)
    ranges = {"betas": BELOW_1, "weight_decay": POSITIVE}
    toggles = ("weight_decay",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, lr, betas=betas, weight_decay=weight_decay, maximize=maximize)

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {f"rest{i}": 1.0 - b for i, b in enumerate(group["betas"])}

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        mean = state["mean"]
        change = (wide(mean) * now.betas0 + grad * now.rest0).sign() * now.lr
        mean.assign((wide(mean) * now.betas1 + grad * now.rest1).cast(mean.dtype))
        return change + p * (now.lr * now.weight_decay) if now.group["weight_decay"] else change


__all__ = ["ASGD", "SGD", "Lion", "Rprop"]

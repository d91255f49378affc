"""Define Adagrad, Adadelta, RMSprop and Adafactor: steps divided by the root of an average of squared gradients."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod, sqrt
from typing import Any, Unpack

from monolect.base.dtype import DType, to_numpy
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
    check_number,
    state_like,
    wide,
)
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class Adagrad(Optimizer):
    """Adagrad: the step is `lr` times the gradient over the root of the sum of all squared gradients.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adagrad([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    slots = ("sum",)
    ranges = {"lr_decay": POSITIVE, "weight_decay": POSITIVE, "eps": POSITIVE}
    toggles = ("weight_decay",)

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        check_number("initial_accumulator_value", initial_accumulator_value, 0.0)
        super().__init__(params, lr, lr_decay=lr_decay, weight_decay=weight_decay,
                         initial_accumulator_value=initial_accumulator_value, eps=eps, maximize=maximize,
                         **execution)  # fmt: skip

    def _initial(self, slot: str, p: Tensor, group: Mapping[str, Any]) -> Tensor:
        return state_like(p, group["initial_accumulator_value"])

    def _prepare(self, now: Now) -> None:
        now.rate = (now.lr / ((now.count - 1.0) * now.lr_decay + 1.0)).contiguous()

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        total = state["sum"]
        if now.group["weight_decay"]:
            grad = grad + p * now.weight_decay
        total.assign((total + grad * grad).cast(total.dtype))
        return grad * now.rate / (wide(total).sqrt() + now.eps)


@guard_methods
class Adadelta(Optimizer):
    """Adadelta: the gradient over the root of its running mean square, times that of the earlier steps.

    >>> Adadelta([Tensor([1.0], requires_grad=True)]).rho
    0.9
    """

    slots = ("square", "steps")
    ranges = {"rho": (0.0, 1.0 + 2**-52), "eps": POSITIVE, "weight_decay": POSITIVE}  # a rho of 1 is allowed
    toggles = ("weight_decay",)
    torch_names = {"square": "square_avg", "steps": "acc_delta"}

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize, **execution)

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {"rest": 1.0 - group["rho"]}

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        square, steps = state["square"], state["steps"]
        if now.group["weight_decay"]:
            grad = grad + p * now.weight_decay
        square.assign((wide(square) * now.rho + grad * grad * now.rest).cast(square.dtype))
        change = grad * (wide(steps) + now.eps).sqrt() / (wide(square) + now.eps).sqrt()
        steps.assign((wide(steps) * now.rho + change * change * now.rest).cast(steps.dtype))
        return change * now.lr


@guard_methods
class RMSprop(Optimizer):
    """RMSprop: the step is `lr` times the gradient over the root of the running mean square of the gradients.

    >>> RMSprop([Tensor([1.0], requires_grad=True)]).lr
    0.01
    """

    slots = ("square",)
    optional_slots = {"mean": "centered", "momentum": "momentum"}
    ranges = {"alpha": BELOW_1, "eps": POSITIVE, "weight_decay": POSITIVE, "momentum": POSITIVE}
    toggles = ("weight_decay", "momentum")
    torch_names = {"square": "square_avg", "mean": "grad_avg", "momentum": "momentum_buffer"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum,
                         centered=centered, maximize=maximize, **execution)  # fmt: skip

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {"rest": 1.0 - group["alpha"]}

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        if now.group["weight_decay"]:
            grad = grad + p * now.weight_decay
        square = state["square"]
        square.assign((wide(square) * now.alpha + grad * grad * now.rest).cast(square.dtype))
        spread: Any = wide(square)
        if now.group["centered"]:
            mean = state["mean"]
            mean.assign((wide(mean) * now.alpha + grad * now.rest).cast(mean.dtype))
            spread = spread - wide(mean) * wide(mean)
        change = grad / (spread.sqrt() + now.eps)
        if now.group["momentum"]:
            buffer = state["momentum"]
            buffer.assign((wide(buffer) * now.momentum + change).cast(buffer.dtype))
            change = wide(buffer)
        return change * now.lr


@guard_methods
class Adafactor(Optimizer):
    """Adafactor: the mean squares of the gradients of a matrix are kept as one number for each row and each column, and
    the step is relative to the size of the parameter.

    `lr` bounds the relative step. `eps` has the least root of a mean square (None: that of the dtype) and the least
    size of a parameter. Parameters with more than two axes are stacks of matrices.

    >>> w = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> {name: t.shape for name, t in Adafactor([w]).state[w].items()}
    {'rows': (2, 1), 'columns': (1, 2)}
    """

    ranges = {"beta2_decay": ANY, "d": POSITIVE, "weight_decay": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"rows": "row_var", "columns": "col_var", "square": "variance"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, beta2_decay=beta2_decay, eps=tuple(eps), d=d, weight_decay=weight_decay,
                         maximize=maximize, **execution)  # fmt: skip

    def _check(self, values: Settings) -> None:
        if values["beta2_decay"] > 0.0 or values["d"] < 1.0:
            found = (values["beta2_decay"], values["d"])
            raise ArgumentError("Adafactor: (beta2_decay, d)", expected="at most 0, at least 1", found=found)
        for e in values["eps"]:
            check_number("eps", 0.0 if e is None else e, 0.0)

    def _slots(self, group: Mapping[str, Any], p: Tensor) -> tuple[str, ...]:
        return ("rows", "columns") if p.ndim > 1 else ("square",)

    def _initial(self, slot: str, p: Tensor, group: Mapping[str, Any]) -> Tensor:
        if slot == "square":
            return state_like(p)
        shape = (*p.shape[:-1], 1) if slot == "rows" else (*p.shape[:-2], 1, p.shape[-1])
        return state_like(p, 0.0, shape)

    def _prepare(self, now: Now) -> None:
        now.rest = (now.count**now.beta2_decay).contiguous()
        now.rate = now.lr.minimum(1.0 / now.count.sqrt()).contiguous()

    def _update(self, p: Tensor, state: dict[str, Tensor], now: Now) -> list[Tensor]:
        least = now.group["eps"][0]
        now.least = _precision(p.dtype) if least is None else least
        return super()._update(p, state, now)

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        least, smallest = now.least, now.group["eps"][1]
        root = sqrt(prod(p.shape))
        rate = (p.norm() / root).maximum(smallest) * now.rate
        if p.ndim > 1:
            rows, columns = state["rows"], state["columns"]
            for part, axis in ((rows, -1), (columns, -2)):
                mean = grad.square().mean(axis, keepdim=True)
                part.assign((part + (mean - part) * now.rest).cast(part.dtype))
            spread = rows * columns / rows.mean(-2, keepdim=True).maximum(least)
        else:
            square = state["square"]
            square.assign((square + (grad * grad - square) * now.rest).cast(square.dtype))
            spread = wide(square)
        change = grad / spread.maximum(least * least).sqrt()
        size = (change.norm() / (now.d * root)).maximum(1.0)
        change = change * (rate / size)
        return change + p * (now.lr * now.weight_decay) if now.group["weight_decay"] else change


def _precision(d: DType) -> float:
    """Return the distance from 1 to the next larger number of the dtype `d`."""
    from ml_dtypes import finfo  # imported only for Adafactor

    return float(finfo(to_numpy(d)).eps)


__all__ = ["Adadelta", "Adafactor", "Adagrad", "RMSprop"]

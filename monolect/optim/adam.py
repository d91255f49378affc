"""Define Adam, AdamW, Adamax, NAdam and RAdam: steps from running means of gradients and of their squares."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log
from typing import Any, Unpack

from monolect.optim.optimizer import BELOW_1, POSITIVE, Execution, Now, Optimizer, Params, state_like, wide
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


def _of_betas(group: Mapping[str, Any]) -> dict[str, float]:
    """Return `1 - beta` and the logarithm of each beta: the names `rest0`, `log0`, `rest1` and `log1`."""
    out: dict[str, float] = {}
    for i, b in enumerate(group["betas"]):
        out |= {f"rest{i}": 1.0 - b, f"log{i}": log(b) if b else -inf}
    return out


def _corrections(now: Now) -> tuple[Tensor, Tensor]:
    """Return `1 - beta ** count` of both betas, without cancellation."""
    return -(now.count * now.log0).expm1(), -(now.count * now.log1).expm1()


@guard_methods
class Adam(Optimizer):
    """Adam: the step is `lr` times the running mean of the gradients over the root of their running mean square; weight
    decay is added to the gradient, or shrinks the parameters with `decoupled_weight_decay`.

    With `amsgrad` the greatest mean square so far is used. `maximize` ascends.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    slots = ("mean", "square")
    optional_slots = {"largest": "amsgrad"}
    ranges = {"betas": BELOW_1, "eps": POSITIVE, "weight_decay": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"mean": "exp_avg", "square": "exp_avg_sq", "largest": "max_exp_avg_sq"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                         maximize=maximize, decoupled_weight_decay=decoupled_weight_decay, **execution)  # fmt: skip

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return _of_betas(group)

    def _prepare(self, now: Now) -> None:
        # `contiguous` computes it once instead of once per element. Numerator and denominator are multiplied by the
        # root of `second`, which saves a division per element.
        first, second = _corrections(now)
        root = second.sqrt()
        now.rate, now.small = (now.lr / first * root).contiguous(), (root * now.eps).contiguous()

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        group, mean, square = now.group, state["mean"], state["square"]
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            grad = grad + p * now.weight_decay
        mean.assign((wide(mean) * now.betas0 + grad * now.rest0).cast(mean.dtype))
        square.assign((wide(square) * now.betas1 + grad * grad * now.rest1).cast(square.dtype))
        if group["amsgrad"]:
            state["largest"].assign(state["largest"].maximum(square))
            square = state["largest"]
        change = wide(mean) * now.rate / (wide(square).sqrt() + now.small)
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            change = change + p * (now.lr * now.weight_decay)
        return change


@guard_methods
class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters directly, independent of the gradient.

    >>> AdamW([Tensor([1.0], requires_grad=True)], lr=0.1).weight_decay
    0.01
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize,
                         decoupled_weight_decay=True, **execution)  # fmt: skip


@guard_methods
class Adamax(Optimizer):
    """Adamax: Adam with the running greatest magnitude of the gradients in place of the root of their mean square.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adamax([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    slots = ("mean", "largest")
    ranges = {"betas": BELOW_1, "eps": POSITIVE, "weight_decay": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"mean": "exp_avg", "largest": "exp_inf"}

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, maximize=maximize, **execution)

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return _of_betas(group)

    def _prepare(self, now: Now) -> None:
        now.rate = (now.lr / _corrections(now)[0]).contiguous()

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        mean, largest = state["mean"], state["largest"]
        if now.group["weight_decay"]:
            grad = grad + p * now.weight_decay
        mean.assign((wide(mean) * now.betas0 + grad * now.rest0).cast(mean.dtype))
        largest.assign((wide(largest) * now.betas1).maximum(grad.abs() + now.eps).cast(largest.dtype))
        return wide(mean) * now.rate / largest


@guard_methods
class NAdam(Optimizer):
    """NAdam: Adam with Nesterov momentum, whose weight grows with the number of steps by `momentum_decay`.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = NAdam([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 2)
    0.47
    """

    slots = ("mean", "square", "product")
    ranges = {"betas": BELOW_1, "eps": POSITIVE, "weight_decay": POSITIVE, "momentum_decay": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"mean": "exp_avg", "square": "exp_avg_sq", "product": "mu_product"}

    def __init__(
        self,
        params: Params,
        lr: float = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay, momentum_decay=momentum_decay,
                         decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, **execution)  # fmt: skip

    def _initial(self, slot: str, p: Tensor, group: Mapping[str, Any]) -> Tensor:
        return state_like(p, 1.0, ()) if slot == "product" else state_like(p)

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {**_of_betas(group), "fade": group["momentum_decay"] * log(0.96)}

    def _prepare(self, now: Now) -> None:
        now.second = _corrections(now)[1].contiguous()
        now.weight = (now.betas0 * (1.0 - (now.count * now.fade).exp() * 0.5)).contiguous()
        now.next = (now.betas0 * (1.0 - ((now.count + 1.0) * now.fade).exp() * 0.5)).contiguous()

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        group, mean, square, product = now.group, state["mean"], state["square"], state["product"]
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            grad = grad + p * now.weight_decay
        product.assign((product * now.weight).cast(product.dtype))
        mean.assign((wide(mean) * now.betas0 + grad * now.rest0).cast(mean.dtype))
        square.assign((wide(square) * now.betas1 + grad * grad * now.rest1).cast(square.dtype))
        of_grad = now.lr * (1.0 - now.weight) / (1.0 - product)
        of_mean = now.lr * now.next / (1.0 - product * now.next)
        change = (grad * of_grad + wide(mean) * of_mean) / ((wide(square) / now.second).sqrt() + now.eps)
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            change = change + p * (now.lr * now.weight_decay)
        return change


@guard_methods
class RAdam(Optimizer):
    """RAdam: Adam that follows the mean gradient alone until the mean square is known well enough.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = RAdam([w], lr=0.25)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    slots = ("mean", "square")
    ranges = {"betas": BELOW_1, "eps": POSITIVE, "weight_decay": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"mean": "exp_avg", "square": "exp_avg_sq"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **execution: Unpack[Execution],
    ):
        super().__init__(params, lr, betas=betas, eps=eps, weight_decay=weight_decay,
                         decoupled_weight_decay=decoupled_weight_decay, maximize=maximize, **execution)  # fmt: skip

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        most = 2.0 / (1.0 - group["betas"][1]) - 1.0
        scale = most / ((most - 4.0) * (most - 2.0)) if most > 4.0 else 0.0
        return {**_of_betas(group), "most": most, "scale": scale}

    def _prepare(self, now: Now) -> None:
        first, second = _corrections(now)
        length = now.most - now.count * 2.0 * (1.0 - second) / second
        now.is_known = (length > 5.0).contiguous()
        known = ((length - 4.0) * (length - 2.0) * now.scale / length).maximum(0.0)
        now.rate, now.root = (now.lr / first).contiguous(), (known * second).sqrt().contiguous()

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        group, mean, square = now.group, state["mean"], state["square"]
        if group["weight_decay"] and not group["decoupled_weight_decay"]:
            grad = grad + p * now.weight_decay
        mean.assign((wide(mean) * now.betas0 + grad * now.rest0).cast(mean.dtype))
        square.assign((wide(square) * now.betas1 + grad * grad * now.rest1).cast(square.dtype))
        change = wide(mean) * now.rate * now.is_known.where(now.root / (wide(square).sqrt() + now.eps), 1.0)
        if group["weight_decay"] and group["decoupled_weight_decay"]:
            change = change + p * (now.lr * now.weight_decay)
        return change


__all__ = ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]

"""Define LARS, LAMB and Muon: steps whose size or direction is computed for each parameter tensor as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from monolect.base.errors import ArgumentError, ShapeError
from monolect.optim.adam import Adam
from monolect.optim.optimizer import BELOW_1, POSITIVE, Now, Optimizer, Params, Settings, wide
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class LARS(Optimizer):
    """LARS: gradient descent with momentum, with a rate for each parameter tensor: `trust_coefficient` times its norm
    over that of its gradient and weight decay.

    A parameter or gradient of norm 0 has the rate 1. Source: You, Gitman and Ginsburg, Large Batch Training of
    Convolutional Networks, 2017.

    >>> w = Tensor([3.0, 4.0], requires_grad=True)
    >>> optimizer = LARS([w], lr=1.0, momentum=0.0, trust_coefficient=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [1.5, 2.0]
    """

    ranges = {"momentum": POSITIVE, "weight_decay": POSITIVE, "trust_coefficient": POSITIVE, "eps": POSITIVE}
    toggles = ("momentum", "weight_decay")
    optional_slots = {"momentum": "momentum"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, lr, momentum=momentum, weight_decay=weight_decay, eps=eps, nesterov=nesterov,
                         trust_coefficient=trust_coefficient, maximize=maximize)  # fmt: skip

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        size, slope = p.norm(), grad.norm()
        below = slope + now.eps
        if now.group["weight_decay"]:
            below = below + size * now.weight_decay
            grad = grad + p * now.weight_decay
        rate = ((size > 0) & (slope > 0)).where(now.trust_coefficient * size / below, 1.0)
        change = grad * (rate * now.lr)
        if now.group["momentum"]:
            buffer = state["momentum"]
            buffer.assign((wide(buffer) * now.momentum + change).cast(buffer.dtype))
            change = change + wide(buffer) * now.momentum if now.group["nesterov"] else wide(buffer)
        return change


@guard_methods
class LAMB(Adam):
    """LAMB: the step of Adam plus weight decay, scaled to the norm of each parameter tensor.

    A parameter or step of norm 0 has the scale 1. Source: You et al., Large Batch Optimization for Deep Learning, 2019.

    >>> w = Tensor([3.0, 4.0], requires_grad=True)
    >>> optimizer = LAMB([w], lr=0.5, weight_decay=0.0)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> [round(x, 4) for x in w.tolist()]
    [1.2322, 2.2322]
    """

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 1e-2,
        *,
        maximize: bool = False,
    ):
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize)

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        mean, square = state["mean"], state["square"]
        mean.assign((wide(mean) * now.betas0 + grad * now.rest0).cast(mean.dtype))
        square.assign((wide(square) * now.betas1 + grad * grad * now.rest1).cast(square.dtype))
        change = wide(mean) * (now.rate / now.lr) / (wide(square).sqrt() + now.small)
        if now.group["weight_decay"]:
            change = change + p * now.weight_decay
        size, length = p.norm(), change.norm()
        return change * (((size > 0) & (length > 0)).where(size / length, 1.0) * now.lr)


@guard_methods
class Muon(Optimizer):
    """Muon: the momentum of a matrix, with its singular values made nearly 1 by `ns_steps` iterations of Newton and
    Schulz; weight decay shrinks the parameters.

    Parameters have two axes. `adjust_lr_fn` scales the rate by the shape: "original" (None), or "match_rms_adamw". The
    iterations are computed in the dtype of the gradient, by PyTorch in bfloat16. Raises ShapeError for a parameter of
    another number of axes.

    >>> w = Tensor([[3.0, 0.0], [0.0, 4.0]], requires_grad=True)
    >>> optimizer = Muon([w], lr=0.1, weight_decay=0.0)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> [round(x, 1) for x in w.flatten().tolist()]
    [2.9, 0.0, 0.0, 3.9]
    """

    slots = ("momentum",)
    ranges = {"weight_decay": POSITIVE, "momentum": BELOW_1, "eps": POSITIVE}
    toggles = ("weight_decay",)
    torch_names = {"momentum": "momentum_buffer"}

    def __init__(
        self,
        params: Params,
        lr: float = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ):
        super().__init__(params, lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov, eps=eps,
                         ns_coefficients=tuple(ns_coefficients), ns_steps=ns_steps,
                         adjust_lr_fn=adjust_lr_fn)  # fmt: skip

    def _check(self, values: Settings) -> None:
        if values["adjust_lr_fn"] not in (None, "original", "match_rms_adamw"):
            expected = "None, 'original' or 'match_rms_adamw'"
            raise ArgumentError("Muon: adjust_lr_fn", expected=expected, found=repr(values["adjust_lr_fn"]))
        if not 0 < values["ns_steps"] < 100:
            raise ArgumentError("Muon: ns_steps", expected="1..99", found=values["ns_steps"])
        for p in values.get("params", ()):
            if isinstance(p, Tensor) and p.ndim != 2:
                raise ShapeError("Muon: a parameter", expected="2 axes", found=f"shape {p.shape}")

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        return {"rest": 1.0 - group["momentum"]}

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        group, buffer = now.group, state["momentum"]
        buffer.assign((wide(buffer) * now.momentum + grad * now.rest).cast(buffer.dtype))
        x = grad * now.rest + wide(buffer) * now.momentum if group["nesterov"] else _norm_free(wide(buffer))
        n, m = p.shape
        x = x.T if n > m else x
        a, b, c = group["ns_coefficients"]
        x = x / x.norm().maximum(now.eps)
        for _ in range(group["ns_steps"]):
            gram = (x @ x.T).contiguous()
            x = (x * a + (gram * b + (gram @ gram) * c) @ x).contiguous()
        x = x.T if n > m else x
        scale = 0.2 * sqrt(max(n, m)) if group["adjust_lr_fn"] == "match_rms_adamw" else sqrt(max(1.0, n / m))
        change = x * (now.lr * scale)
        return change + p * (now.lr * now.weight_decay) if group["weight_decay"] else change


def _norm_free(t: Tensor) -> Tensor:
    """Return a Tensor of the value of `t`, of which views are no views of `t`."""
    return t * 1.0


__all__ = ["LAMB", "LARS", "Muon"]

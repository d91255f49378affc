"""Optimizers: SGD, Adam, AdamW, RMSprop.

What it is for: `step()` turns gradients into new parameters and realizes parameters and state together, in one batch.
What it is not: no parameter groups, no schedules (set `lr`).

The learning rate and each parameter's number of steps are one small tensor on the device, and corrections that depend
on them are computed there. So every step builds the same graph, which is compiled once and can be captured and
replayed. Both are one tensor because a step assigns it: what a captured step assigns is state, which is read anew at
each replay. A parameter without a gradient takes no step, so one whose first gradient comes late counts from there.
Parameters that took all their steps together share what is computed of the number: all of them, mostly.

Invariant: state tensors are buffers from the start; `step` changes a parameter only if it has a gradient.
Source: torch.optim, including the order in which weight decay and momentum are applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, log
from typing import Any

import numpy as np

from monolect.base.dtype import DType, dtypes, to_numpy
from monolect.base.errors import ArgumentError, DTypeError
from monolect.ir.uop import build
from monolect.nn.state import load_state_dict
from monolect.tensor.base import as_before_on_failure
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import view
from monolect.tensor.tensor import Tensor

Groups = tuple[tuple[int, ...], ...]


def _zeros(shape: tuple, dtype: DType, device: Any) -> Tensor:
    """A tensor with memory of its own, which needs no kernel to be made."""
    return Tensor(np.zeros(shape, to_numpy(dtype)), device=device)


def _split(groups: Groups, by: Sequence[Any]) -> Groups:
    """The groups of places, apart where `by` has different values."""
    parts: dict[tuple, list[int]] = {}
    for g, group in enumerate(groups):
        for i in group:
            parts.setdefault((g, by[i]), []).append(i)
    return tuple(map(tuple, parts.values()))


def _ones(moves: list[bool], device: Any) -> Tensor:
    """What a step adds to the learning rate and the counts: a constant of kernels where every parameter moves."""
    if all(moves):
        return Tensor.arange(1 + len(moves)) > 0
    return Tensor(np.array([False, *moves]), device=device)


def _check(name: str, value: float, low: float, high: float | None = None) -> float:
    if not isinstance(value, int | float) or not value >= low or (high is not None and value >= high):
        expected = "a number" if low == -inf else f"at least {low}" if high is None else f"in [{low}, {high})"
        raise ArgumentError(f"optimizer: {name}", expected=expected, found=repr(value))
    return float(value)


# No views, which make their nodes each time they are used: they took a tenth of the host cost of a step of SGD.
def _value(t: Any) -> Tensor:
    """What `t` is now, without a graph for gradients."""
    return t._wrap(build("DETACH", t._uop))


def _element(t: Any, at: int) -> Tensor:
    """What that element of `t` is now."""
    return t._wrap(view(t, t._uop, at))


@guard_methods
class Optimizer:
    """What all optimizers share. A subclass defines `_change` and names its state tensors in `slots`.

    `params` are Tensors with `requires_grad`, such as `model.parameters()`. Raises ArgumentError when there are none,
    or for one that requires no gradient.

    >>> class Signs(Optimizer):
    ...     def _change(self, p, grad, state, shared):
    ...         (lr,) = shared
    ...         return grad.sign() * lr
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> _ = (w * w).sum().backward()
    >>> Signs([w], lr=0.5).step()
    >>> w.tolist()
    [0.5, 1.5]
    """

    slots: tuple[str, ...] = ()
    unread = ("_lr",)  # by a step, which reads the tensor: of a captured one a part only if its own code names it

    def __init__(self, params: Iterable[Tensor], lr: float):
        self.params = list({id(p): p for p in params}.values())
        if not self.params:
            raise ArgumentError("optimizer: params", expected="at least one Tensor", found="none")
        for p in self.params:
            if not isinstance(p, Tensor):
                raise DTypeError("optimizer: params", expected="Tensors", found=type(p).__name__)
            if not p.requires_grad:
                raise ArgumentError("optimizer: a parameter", expected="requires_grad=True", found=repr(p))
        self._lr = _check("lr", lr, 0.0)
        wide = dtypes.float64 if any(p.dtype is dtypes.float64 for p in self.params) else dtypes.float32
        start = np.zeros(1 + len(self.params), to_numpy(wide))
        start[0] = self._lr
        self._numbers = {d: Tensor(start.copy(), device=d) for d in {p.device: None for p in self.params}}
        self._together: Groups = (tuple(range(len(self.params))),)  # places of parameters that took the same steps
        self._state = {s: [_zeros(p.shape, p.dtype, p.device) for p in self.params] for s in self.slots}

    # ---- the learning rate -------------------------------------------------------------------------------------------
    @property
    def lr(self) -> float:
        """The learning rate. Setting it writes to the device, so captured steps use the new one too.

        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
        >>> optimizer.lr = 0.05
        >>> optimizer.lr
        0.05
        """
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        lr = _check("lr", value, 0.0)
        with as_before_on_failure(self._numbers.values()):
            for device, numbers in self._numbers.items():
                new = numbers.numpy().copy()
                new[0] = lr
                numbers.assign(Tensor(new, device=device)).realize()
        self._lr = lr

    # ---- stepping ----------------------------------------------------------------------------------------------------
    def zero_grad(self) -> None:
        """Forget the gradients of all parameters.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> SGD([w]).zero_grad()
        >>> w.grad is None
        True
        """
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Change every parameter that has a gradient, and compute all of them in one batch.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> SGD([w], lr=0.25).step()
        >>> w.tolist()
        [0.5, 1.0]
        """
        together = self._together
        try:
            with as_before_on_failure((*self.params, *(t for ts in self._entries().values() for t in ts))):
                changed = self.schedule_step()
                if changed:
                    changed[0].realize(*changed[1:])
        except BaseException:
            self._together = together
            raise

    def schedule_step(self) -> list[Tensor]:
        """What `step` does, without computing it: the changed tensors, to be realized with others.

        `loss.realize(*optimizer.schedule_step())` computes loss and step in one batch.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> loss = (w * w).sum().backward()
        >>> loss.realize(*SGD([w], lr=0.25).schedule_step()).item(), w.item()
        (1.0, 0.5)
        """
        moves = [p.grad is not None for p in self.params]
        if not any(moves):
            return []
        self._together = together = _split(self._together, moves)
        changed = []
        for device, numbers in self._numbers.items():
            numbers.assign(numbers + _ones(moves, device).cast(numbers.dtype))
            changed.append(numbers)
            for group in together:
                here = [i for i in group if moves[i] and self.params[i].device == device]
                shared = self._shared(_element(numbers, 0), _element(numbers, 1 + group[0])) if here else ()
                for i in here:
                    p, states = self.params[i], [self._state[s][i] for s in self.slots]
                    value = _value(p)
                    p.assign((value - self._change(value, _value(p.grad), states, shared)).cast(p.dtype))
                    changed += [p, *states]
        return changed

    def _shared(self, lr: Tensor, count: Tensor) -> tuple[Any, ...]:
        """Scalars that all parameters of a device use that took `count` steps together, the one under way included."""
        return (lr,)

    def _change(self, p: Tensor, grad: Tensor, state: list[Tensor], shared: tuple[Any, ...]) -> Tensor:
        """What is subtracted from `p`; assigns new values to the tensors of `state`."""
        raise NotImplementedError

    # ---- state -------------------------------------------------------------------------------------------------------
    def _entries(self) -> dict[str, Any]:
        """What `nn.state.get_state_dict` finds in an optimizer: its own tensors, not the parameters."""
        return {"numbers": list(self._numbers.values()), **self._state}

    def state_dict(self) -> dict[str, Tensor]:
        """The tensors that, beside the parameters, make training continue where it was.

        `numbers` are the learning rate and the steps so far of each parameter; the others stand in the order of the
        parameters.

        >>> list(Adam([Tensor([1.0], requires_grad=True)]).state_dict())
        ['numbers.0', 'mean.0', 'square.0']
        """
        return {f"{k}.{i}": t for k, ts in self._entries().items() for i, t in enumerate(ts)}

    def load_state_dict(self, state: dict[str, Any], strict: bool = True) -> None:
        """Put back what `state_dict` gave. Raises as `nn.state.load_state_dict` does, and then changes nothing.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> old, new = SGD([w], lr=0.5), SGD([w], lr=0.1)
        >>> new.load_state_dict(old.state_dict())
        >>> new.lr
        0.5
        """
        load_state_dict(self, state, strict=strict)

    def _loaded(self) -> None:
        """`nn.state.load_state_dict` has written to the tensors, perhaps as those of a larger object."""
        lr, *counts = next(iter(self._numbers.values())).tolist()
        self._lr, self._together = float(lr), _split((tuple(range(len(counts))),), counts)


@guard_methods
class SGD(Optimizer):
    """Gradient descent, with momentum, dampening, Nesterov's look-ahead and weight decay.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.25)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        self.momentum, self.dampening = _check("momentum", momentum, 0.0), _check("dampening", dampening, -inf)
        self.weight_decay, self.nesterov = _check("weight_decay", weight_decay, 0.0), nesterov
        if nesterov and (momentum == 0.0 or dampening != 0.0):
            raise ArgumentError("SGD: nesterov", expected="a momentum and no dampening", found=(momentum, dampening))
        self.slots = ("momentum",) if momentum else ()
        super().__init__(params, lr)

    def _shared(self, lr: Tensor, count: Tensor) -> tuple[Any, ...]:
        if not self.dampening:
            return lr, None
        return lr, count == 1.0  # the first gradient enters in full

    def _change(self, p: Tensor, grad: Tensor, state: list[Tensor], shared: tuple[Any, ...]) -> Tensor:
        lr, is_first = shared
        if self.weight_decay:
            grad = grad + p * self.weight_decay
        if state:
            (buffer,) = state
            added = grad if is_first is None else is_first.where(grad, grad * (1.0 - self.dampening))
            buffer.assign((buffer * self.momentum + added).cast(buffer.dtype))
            grad = grad + buffer * self.momentum if self.nesterov else buffer
        return grad * lr


@guard_methods
class Adam(Optimizer):
    """Steps by the mean of the gradients over the root of the mean of their squares; weight decay joins the gradient.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.5)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> round(w.item(), 4)
    0.5
    """

    slots = ("mean", "square")
    decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        self.betas = (_check("betas[0]", betas[0], 0.0, 1.0), _check("betas[1]", betas[1], 0.0, 1.0))
        self.eps, self.weight_decay = _check("eps", eps, 0.0), _check("weight_decay", weight_decay, 0.0)
        super().__init__(params, lr)

    def _shared(self, lr: Tensor, count: Tensor) -> tuple[Any, ...]:
        # 1 - beta ** steps without cancellation. Computed once, not for each element: hence buffers of their own.
        # Both sides of the fraction are multiplied by the root of the second, which saves a division an element.
        first, second = (-(count * log(b)).expm1() if b else 1.0 for b in self.betas)
        if not isinstance(second, Tensor):
            return lr, (lr / first).contiguous(), self.eps
        root = second.sqrt()
        return lr, (lr / first * root).contiguous(), (root * self.eps).contiguous()

    def _change(self, p: Tensor, grad: Tensor, state: list[Tensor], shared: tuple[Any, ...]) -> Tensor:
        lr, rate, eps = shared
        mean, square = state
        if self.weight_decay and not self.decoupled:
            grad = grad + p * self.weight_decay
        mean.assign((mean * self.betas[0] + grad * (1.0 - self.betas[0])).cast(mean.dtype))
        square.assign((square * self.betas[1] + grad * grad * (1.0 - self.betas[1])).cast(square.dtype))
        change = mean * rate / (square.sqrt() + eps)
        return change + p * (lr * self.weight_decay) if self.weight_decay and self.decoupled else change


@guard_methods
class AdamW(Adam):
    """Adam whose weight decay shrinks the parameters directly.

    >>> AdamW([Tensor([1.0], requires_grad=True)], lr=0.1).weight_decay
    0.01
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)


@guard_methods
class RMSprop(Optimizer):
    """Steps by the gradient over the root of the mean of its squares.

    >>> RMSprop([Tensor([1.0], requires_grad=True)]).lr
    0.01
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ):
        self.alpha, self.eps = _check("alpha", alpha, 0.0, 1.0), _check("eps", eps, 0.0)
        self.weight_decay, self.momentum = _check("weight_decay", weight_decay, 0.0), _check("momentum", momentum, 0.0)
        self.centered = centered
        self.slots = ("square", *(("mean",) if centered else ()), *(("momentum",) if momentum else ()))
        super().__init__(params, lr)

    def _change(self, p: Tensor, grad: Tensor, state: list[Tensor], shared: tuple[Any, ...]) -> Tensor:
        own = dict(zip(self.slots, state, strict=True))
        if self.weight_decay:
            grad = grad + p * self.weight_decay
        square = own["square"]
        square.assign((square * self.alpha + grad * grad * (1.0 - self.alpha)).cast(square.dtype))
        spread: Any = square
        if self.centered:
            mean = own["mean"]
            mean.assign((mean * self.alpha + grad * (1.0 - self.alpha)).cast(mean.dtype))
            spread = square - mean * mean
        change = grad / (spread.sqrt() + self.eps)
        if self.momentum:
            buffer = own["momentum"]
            buffer.assign((buffer * self.momentum + change).cast(buffer.dtype))
            change = buffer
        return change * shared[0]


__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "RMSprop"]


def __dir__() -> list[str]:
    return __all__

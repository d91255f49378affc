"""Define the optimizers SGD, Adam, AdamW and RMSprop.

What it is for: `step()` computes new parameters from gradients and realizes parameters and state in one batch.
What it is not: it has no parameter groups and no schedules (set `lr`). It notes which parameters have equal numbers of
steps, so its state is restored by `load_state_dict`, not by writing to the tensors of `state_dict`.

The learning rate and each parameter's number of steps are one small tensor on the device, and the corrections that
depend on them are computed there. So every step builds the same graph, which is compiled once and can be captured and
replayed. Both are in one tensor because a step assigns it: a captured step reads the tensors that it assigns again at
each replay. A parameter without a gradient takes no step, so its count starts with its first gradient. Parameters with
equal counts, usually all, share the values computed from the count.

Invariant: state tensors are buffers from the start; `step` changes a parameter only if it has a gradient.
Source: torch.optim, including the order in which weight decay and momentum are applied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, log
from typing import Any

import numpy as np

from monolect.base.dtype import dtypes, to_numpy
from monolect.base.errors import ArgumentError, DTypeError
from monolect.ir.uop import build
from monolect.nn.state import load_state_dict
from monolect.tensor.base import Data, restore_on_failure
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import view
from monolect.tensor.tensor import Tensor

Groups = tuple[tuple[int, ...], ...]


def _zeros(p: Tensor) -> Tensor:
    """Return zeros in the shape of a parameter and on its devices. They have a buffer already, so that no kernel of the
    step makes them.
    """
    if isinstance(p.device, tuple):
        return p.zeros_like().realize()
    return Tensor(np.zeros(p.shape, to_numpy(p.dtype)), device=p.device)


def _home(device: Any) -> str:
    """Return the device of the numbers of parameters on `device`: the first one of several."""
    return str(device[0]) if isinstance(device, tuple) else str(device)


def _split(groups: Groups, by: Sequence[Any]) -> Groups:
    """Split groups of parameter indices, so that all parameters of a group have the same value in `by`."""
    parts: dict[tuple, list[int]] = {}
    for g, group in enumerate(groups):
        for i in group:
            parts.setdefault((g, by[i]), []).append(i)
    return tuple(map(tuple, parts.values()))


def _increments(has_grad: list[bool], device: Any) -> Tensor:
    """Return the bools that a step adds to (learning rate, counts): False, then `has_grad` of each parameter.

    If all have gradients, the value is a constant in the kernel and needs no buffer.
    """
    if all(has_grad):
        return Tensor.arange(1 + len(has_grad)) > 0
    return Tensor(np.array([False, *has_grad]), device=device)


def _check(name: str, value: float, low: float, high: float | None = None) -> float:
    if not isinstance(value, int | float) or not value >= low or (high is not None and value >= high):
        expected = "a number" if low == -inf else f"at least {low}" if high is None else f"in [{low}, {high})"
        raise ArgumentError(f"optimizer: {name}", expected=expected, found=repr(value))
    return float(value)


# `_value` and `_element` make no views: a view builds its node at each use, a tenth of the host cost of an SGD step.
def _value(t: Any) -> Tensor:
    """Return a detached Tensor with the current value of `t`."""
    return t._wrap(build("DETACH", t._uop))


def _element(t: Any, at: int) -> Tensor:
    """Return the current value of element `at` of `t`."""
    return t._wrap(view(t, t._uop, at))


@guard_methods
class Optimizer:
    """Base class of optimizers. A subclass defines `_change` and names its state tensors in `slots`.

    `params` are Tensors with `requires_grad`, such as `model.parameters()`; `lr` is at least 0. Raises ArgumentError
    for no parameters, for one that requires no gradient, and for a bad setting; DTypeError for one that is not a
    Tensor.

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
    optional_slots: dict[str, str] = {}  # slots that are there only if the optimizer was made with the setting named
    unread = ("_lr",)  # attributes that a step does not read; a captured step depends on one only if its code names it

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
        self._numbers = {d: Tensor(start.copy(), device=_home(d)) for d in {p.device: None for p in self.params}}
        self._groups: Groups = (tuple(range(len(self.params))),)  # indices of parameters with equal numbers of steps
        self._state = {s: [_zeros(p) for p in self.params] for s in self.slots}

    # ---- the learning rate -------------------------------------------------------------------------------------------
    @property
    def lr(self) -> float:
        """The learning rate, a float. Setting it writes to the device, so captured steps use the new value too.

        Raises ArgumentError for a value below 0 or not a number.

        >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
        >>> optimizer.lr = 0.05
        >>> optimizer.lr
        0.05
        """
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        lr = _check("lr", value, 0.0)
        with restore_on_failure(self._numbers.values()):
            for numbers in self._numbers.values():
                new = numbers.numpy().copy()
                new[0] = lr
                numbers.assign(Tensor(new, device=numbers.device)).realize()
        self._lr = lr

    # ---- stepping ----------------------------------------------------------------------------------------------------
    def zero_grad(self) -> None:
        """Set the gradients of all parameters to None.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> SGD([w]).zero_grad()
        >>> w.grad is None
        True
        """
        for p in self.params:
            p.grad = None

    def step(self) -> None:
        """Update every parameter that has a gradient, and compute all updates in one batch.

        If computing fails, parameters and state keep their values.

        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> SGD([w], lr=0.25).step()
        >>> w.tolist()
        [0.5, 1.0]
        """
        groups = self._groups
        try:
            with restore_on_failure((*self.params, *(t for ts in self._entries().values() for t in ts))):
                changed = self.schedule_step()
                if changed:
                    changed[0].realize(*changed[1:])
        except BaseException:
            self._groups = groups
            raise

    def schedule_step(self) -> list[Tensor]:
        """Assign the updates of `step` without computing them; return the changed tensors, to realize with others.

        Raises ArgumentError for a setting that was 0 or False when the optimizer was made and needs a state.

        `loss.realize(*optimizer.schedule_step())` computes loss and step in one batch.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> loss = (w * w).sum().backward()
        >>> loss.realize(*SGD([w], lr=0.25).schedule_step()).item(), w.item()
        (1.0, 0.5)
        """
        for slot, setting in self.optional_slots.items():
            if getattr(self, setting) and slot not in self.slots:
                kind, found = type(self).__name__, getattr(self, setting)
                raise ArgumentError(f"{kind}: {setting}", expected=f"{setting} given to {kind}(...)", found=found)
        has_grad = [p.grad is not None for p in self.params]
        if not any(has_grad):
            return []
        self._groups = groups = _split(self._groups, has_grad)
        changed = []
        for device, numbers in self._numbers.items():
            numbers.assign(numbers + _increments(has_grad, numbers.device).cast(numbers.dtype))
            changed.append(numbers)
            for group in groups:
                members = [i for i in group if has_grad[i] and self.params[i].device == device]
                shared = self._shared(_element(numbers, 0), _element(numbers, 1 + group[0])) if members else ()
                for i in members:
                    p, states = self.params[i], [self._state[s][i] for s in self.slots]
                    value = _value(p)
                    p.assign((value - self._change(value, _value(p.grad), states, shared)).cast(p.dtype))
                    changed += [p, *states]
        return changed

    def _shared(self, lr: Tensor, count: Tensor) -> tuple[Any, ...]:
        """Return the scalars that all parameters of a group share; `count` is their number of steps, including
        this one.
        """
        return (lr,)

    def _change(self, p: Tensor, grad: Tensor, state: list[Tensor], shared: tuple[Any, ...]) -> Tensor:
        """Return the tensor to subtract from `p`, and assign new values to the tensors of `state`."""
        raise NotImplementedError

    # ---- state -------------------------------------------------------------------------------------------------------
    def _entries(self) -> dict[str, Any]:
        """Return the tensors of the state dict: the optimizer's own, not the parameters."""
        return {"numbers": list(self._numbers.values()), **self._state}

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors that are needed to continue training, apart from the parameters.

        `numbers.*` holds the learning rate, then the number of steps of each parameter. The other entries are numbered
        in the order of the parameters.

        >>> list(Adam([Tensor([1.0], requires_grad=True)]).state_dict())
        ['numbers.0', 'mean.0', 'square.0']
        """
        return {f"{k}.{i}": t for k, ts in self._entries().items() for i, t in enumerate(ts)}

    def load_state_dict(self, state: Mapping[str, Data], strict: bool = True) -> None:
        """Restore the tensors of `state_dict`. Raises as `nn.state.load_state_dict`, and then changes nothing.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> old, new = SGD([w], lr=0.5), SGD([w], lr=0.1)
        >>> new.load_state_dict(old.state_dict())
        >>> new.lr
        0.5
        """
        load_state_dict(self, state, strict=strict)

    def _loaded(self) -> None:
        """Read the learning rate and the groups from the tensors; `nn.state.load_state_dict` calls it after a load."""
        lr, *counts = next(iter(self._numbers.values())).tolist()
        self._lr, self._groups = float(lr), _split((tuple(range(len(counts))),), counts)


@guard_methods
class SGD(Optimizer):
    """Gradient descent with momentum, dampening, Nesterov momentum and weight decay.

    Raises ArgumentError for a bad setting, and for nesterov without momentum or with dampening.

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.25)
    >>> _ = (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5]
    """

    optional_slots = {"momentum": "momentum"}

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
        return lr, count == 1.0  # the first gradient is not dampened

    def _change(self, p: Tensor, grad: Tensor, state: list[Tensor], shared: tuple[Any, ...]) -> Tensor:
        lr, is_first = shared
        if self.weight_decay:
            grad = grad + p * self.weight_decay
        if self.momentum:
            (buffer,) = state
            added = grad if is_first is None else is_first.where(grad, grad * (1.0 - self.dampening))
            buffer.assign((buffer * self.momentum + added).cast(buffer.dtype))
            grad = grad + buffer * self.momentum if self.nesterov else buffer
        return grad * lr


@guard_methods
class Adam(Optimizer):
    """Adam: the step is `lr` times the running mean of the gradients over the root of their running mean square; weight
    decay is added to the gradient.

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
        # 1 - beta ** count without cancellation. `contiguous` computes it once instead of once per element.
        # Numerator and denominator are multiplied by the root of `second`, which saves a division per element.
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
    """Adam whose weight decay shrinks the parameters directly, independent of the gradient.

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
    """RMSprop: the step is `lr` times the gradient over the root of the running mean square of the gradients.

    >>> RMSprop([Tensor([1.0], requires_grad=True)]).lr
    0.01
    """

    optional_slots = {"mean": "centered", "momentum": "momentum"}

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

"""Scale losses of small floats so that their gradients do not vanish, and skip steps whose gradients overflow.

Scale, counters and the decision to skip are Tensors, so a captured training step may contain all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from monolect.base.errors import ArgumentError
from monolect.optim.optimizer import Optimizer
from monolect.tensor.base import restore_on_failure
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor


@guard_methods
class GradScaler:
    """A scale of losses. It grows by `growth_factor` after `growth_interval` steps with finite gradients, and shrinks
    by `backoff_factor` after a step with others, which changes no parameter.

    `device` None is the default device. Not `enabled`, it does nothing. Raises ArgumentError for factors that do not
    grow or shrink.

    >>> from monolect.optim import SGD
    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer, scaler = SGD([w], lr=0.25), GradScaler(init_scale=4.0)
    >>> _ = scaler.scale((w * w).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([0.5], 4.0)
    """

    def __init__(
        self,
        device: str | None = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if growth_factor <= 1.0 or backoff_factor >= 1.0:
            found = (growth_factor, backoff_factor)
            raise ArgumentError("GradScaler: factors", expected="growth above 1, backoff below 1", found=found)
        self.growth_factor, self.backoff_factor, self.growth_interval = growth_factor, backoff_factor, growth_interval
        self.enabled = enabled
        # since the last update: optimizers whose gradients are divided, each with whether one is infinite or nan
        self._unscaled: list[tuple[Optimizer, Tensor]] = []
        self._stepped: list[Optimizer] = []
        self._scale = Tensor(np.array(init_scale, np.float32), device=device)
        self._n_finite = Tensor(np.array(0, np.int64), device=device)  # steps since the scale changed
        # has any optimizer found an infinity or nan since the last update?
        self._found = Tensor(np.array(False), device=device)

    def scale(self, outputs: Any) -> Any:
        """Return `outputs`, a Tensor or lists and tuples of Tensors, times the scale.

        >>> GradScaler(init_scale=4.0).scale(Tensor([1.0])).tolist()
        [4.0]
        """
        if not self.enabled:
            return outputs
        if isinstance(outputs, list | tuple):
            return type(outputs)(self.scale(x) for x in outputs)
        return outputs * self._scale.detach().to(outputs.device).cast(outputs.dtype)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of the parameters of `optimizer` by the scale, before they are clipped.

        Raises ArgumentError if they are divided already.

        >>> from monolect.optim import SGD
        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.grad = Tensor([8.0])
        >>> GradScaler(init_scale=4.0).unscale_(SGD([w]))
        >>> w.grad.tolist()
        [2.0]
        """
        if not self.enabled:
            return
        if self._own(optimizer) is not None:
            expected = "one call of unscale_ between two of update"
            raise ArgumentError("GradScaler: gradients that are unscaled", expected=expected, found="another call")
        factor, own = 1.0 / self._scale.detach(), self._found.detach() & False
        for p in optimizer.params:
            if (g := p.grad) is not None:
                at = g.device if isinstance(g.device, str) else g.device[0]
                wide = g if g.dtype.bits > 32 else g.float()  # float16 does not hold the inverse of a large scale
                g.assign((wide * factor.to(at)).cast(g.dtype))
                own = own | (~g.isfinite()).any().to(own.device)
        self._found.assign(self._found | own)
        self._unscaled = [*self._unscaled, (optimizer, own)]

    def _own(self, optimizer: Optimizer) -> Tensor | None:
        """Return whether a gradient of `optimizer` is infinite or nan; None if they are not divided yet."""
        return next((own for o, own in self._unscaled if o is optimizer), None)

    def step(self, optimizer: Optimizer) -> None:
        """Call `optimizer.step()`, unless one of its gradients is infinite or nan; divide the gradients first unless
        `unscale_` did. Raises ArgumentError for a second call before `update`, whose gradients would not be divided.

        >>> from monolect.optim import SGD
        >>> w = Tensor([1.0], requires_grad=True)
        >>> w.grad = Tensor([float("inf")])
        >>> GradScaler().step(SGD([w]))
        >>> w.tolist()
        [1.0]
        """
        if not self.enabled:
            optimizer.step()
            return
        if any(o is optimizer for o in self._stepped):
            expected = "one call of step between two of update"
            raise ArgumentError("GradScaler: steps of an optimizer", expected=expected, found="another call")
        if (own := self._own(optimizer)) is None:
            self.unscale_(optimizer)
            own = self._unscaled[-1][1]
        tensors = [*optimizer.params, *optimizer._tensors()]
        groups, old = optimizer._groups, {id(t): t._wrap(t.detach()._uop) for t in tensors}
        try:
            with restore_on_failure(tensors):
                changed = optimizer.schedule_step()
                for t in changed:
                    found = own.to(t.device if isinstance(t.device, str) else t.device[0])
                    t.assign(found.where(old[id(t)], t.detach()))
                self._found.realize(own, *changed)
        except BaseException:
            optimizer._groups = groups
            raise
        self._stepped = [*self._stepped, optimizer]

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Change the scale according to the steps since the last call, or to `new_scale`.

        >>> scaler = GradScaler(init_scale=4.0, growth_interval=1)
        >>> scaler.update()
        >>> scaler.get_scale()
        8.0
        """
        if not self.enabled:
            return
        found, scale = self._found.clone(), self._scale.clone()
        n = self._n_finite + 1
        if new_scale is not None:
            self._scale.assign(new_scale if isinstance(new_scale, Tensor) else Tensor(float(new_scale)))
        else:
            is_grown = n == self.growth_interval
            grown = scale * self.growth_factor
            larger = (is_grown & grown.isfinite()).where(grown, scale)
            self._scale.assign(found.where(scale * self.backoff_factor, larger))
            self._n_finite.assign((found | is_grown).where(0, n).cast(self._n_finite.dtype))
        self._found.assign(found & False)
        self._unscaled, self._stepped = [], []
        self._scale.realize(self._n_finite, self._found)

    def get_scale(self) -> float:
        """Return the scale, 1.0 if not enabled.

        >>> GradScaler(init_scale=4.0).get_scale()
        4.0
        """
        return float(self._scale.item()) if self.enabled else 1.0

    def is_enabled(self) -> bool:
        """Return whether it does anything.

        >>> GradScaler(enabled=False).is_enabled()
        False
        """
        return self.enabled

    def state_dict(self) -> dict[str, Any]:
        """Return scale, factors and counter as plain values; {} if not enabled.

        >>> GradScaler(init_scale=4.0).state_dict()["scale"]
        4.0
        """
        if not self.enabled:
            return {}
        names = ("growth_factor", "backoff_factor", "growth_interval")
        own = {k: getattr(self, k) for k in names}
        return {"scale": self.get_scale(), **own, "_growth_tracker": self._n_finite.item()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, here or in PyTorch.

        >>> scaler = GradScaler()
        >>> scaler.load_state_dict(GradScaler(init_scale=4.0).state_dict())
        >>> scaler.get_scale()
        4.0
        """
        if not self.enabled:
            return
        for k in ("growth_factor", "backoff_factor", "growth_interval"):
            setattr(self, k, state_dict[k])
        self._scale.assign(np.array(state_dict["scale"], np.float32))
        self._n_finite.assign(np.array(state_dict["_growth_tracker"], np.int64))
        self._scale.realize(self._n_finite)


__all__ = ["GradScaler"]

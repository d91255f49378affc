"""Define LBFGS: quasi-Newton steps whose direction comes from the last gradients, with an optional line search.

What it is for: small, smooth problems whose loss is computed several times a step, by a closure.
What it is not: its decisions depend on values, so a step is not part of a capture. Directions and history are NumPy
arrays on the host; loss and gradients are computed where the parameters are.
Source: Nocedal and Wright, Numerical Optimization, algorithms 3.5, 3.6 and 7.4; constants as in torch.optim.LBFGS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from monolect.base.dtype import to_numpy
from monolect.base.errors import ArgumentError
from monolect.optim.optimizer import POSITIVE, Optimizer, Params, Settings
from monolect.tensor.base import restore_on_failure
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

DECREASE = 1e-4  # part of the linear decrease of the loss that a step must have
FLATTENING = 0.9  # part of the slope that a step must leave behind
MAX_SEARCH = 25  # attempts of one line search after its first point
LEAST_INTERVAL = 1e-9  # greatest change of an element between the ends of an interval that is searched no more
LEAST_CURVATURE = 1e-10  # of a step; a flatter one is not kept in the history
_SCALARS = ("n_iter", "func_evals", "t", "scale", "loss")  # entries of the state that are numbers
_ARRAYS = ("direction", "gradient", "changes", "steps")


class Point(NamedTuple):
    """A point of a line search: the step length `t`, loss, gradient, and the slope along the direction."""

    t: float
    loss: float
    gradient: np.ndarray
    slope: float


def _minimum(a: Point, b: Point, low: float | None = None, high: float | None = None) -> float:
    """Return the step length of the minimum of the cubic through losses and slopes at `a` and `b`, within `low` and
    `high`, by default the lengths of the points; their middle where the cubic has no minimum.
    """
    a, b = sorted((a, b), key=lambda p: p.t)
    low, high = a.t if low is None else low, b.t if high is None else high
    d = a.slope + b.slope - 3.0 * (a.loss - b.loss) / (a.t - b.t)
    square = d * d - a.slope * b.slope
    if square < 0.0:
        return (low + high) / 2.0
    root = sqrt(square)
    found = b.t - (b.t - a.t) * ((b.slope + root - d) / (b.slope - a.slope + 2.0 * root))
    return min(max(found, low), high)


def _search(at: Callable[[float], Point], start: Point, t: float, size: float, most: int) -> tuple[Point, int]:
    """Return a point with the strong Wolfe conditions along a direction, or the best one of `most` attempts, and the
    number of points computed.

    `start`: the point of length 0. `t`: the first length to try. `size`: the greatest element of the direction.
    """

    def is_too_high(p: Point) -> bool:
        return p.loss > start.loss + DECREASE * p.t * start.slope

    def is_flat(p: Point) -> bool:
        return abs(p.slope) <= -FLATTENING * start.slope

    last, new, n = start, at(t), 1
    while n <= most:
        if is_too_high(new) or (n > 2 and new.loss >= last.loss):
            break
        if is_flat(new):
            return new, n
        if new.slope >= 0.0:
            break
        t = _minimum(last, new, new.t + 0.01 * (new.t - last.t), new.t * 10.0)
        last, new, n = new, at(t), n + 1
    else:
        last = start
    ends, is_slow = [last, new], False
    while n <= most:
        low, high = sorted(ends, key=lambda p: p.loss)
        left, right = sorted(p.t for p in ends)
        if (right - left) * size < LEAST_INTERVAL:
            break
        t, margin = _minimum(ends[0], ends[1]), 0.1 * (right - left)
        is_near = min(right - t, t - left) < margin
        if is_near and (is_slow or t >= right or t <= left):
            t, is_near = (right - margin if abs(t - right) < abs(t - left) else left + margin), False
        is_slow = is_near
        new, n = at(t), n + 1
        i = 0 if ends[0] is high else 1
        if is_too_high(new) or new.loss >= low.loss:
            ends[i] = new
            continue
        if is_flat(new):
            return new, n
        if new.slope * (high.t - low.t) >= 0.0:
            ends[i] = low
        ends[1 - i] = new
    return min(ends, key=lambda p: p.loss), n


@guard_methods
class LBFGS(Optimizer):
    """L-BFGS: `step(closure)` takes up to `max_iter` quasi-Newton steps; `closure` clears gradients, computes the loss,
    calls `backward` and returns the loss.

    `line_search_fn` is None, for steps of length `lr`, or "strong_wolfe". A step ends when a gradient is at most
    `tolerance_grad`, a change at most `tolerance_change`, or after `max_eval` losses (1.25 `max_iter`). There is one
    group. Raises ArgumentError for several groups, another line search, and a step without a closure.

    >>> w = Tensor([1.0, -3.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     return ((w - 2) * (w - 2)).sum().backward()
    >>> optimizer.step(closure).item(), [round(x, 4) for x in w.tolist()]
    (26.0, [2.0, 2.0])
    """

    ranges = {"tolerance_grad": POSITIVE, "tolerance_change": POSITIVE}

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        self._memory: dict[str, Any] = {"n_iter": 0, "func_evals": 0}
        super().__init__(params, lr, max_iter=max_iter, max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                         tolerance_grad=tolerance_grad, tolerance_change=tolerance_change, history_size=history_size,
                         line_search_fn=line_search_fn)  # fmt: skip

    def _check(self, values: Settings) -> None:
        if values["line_search_fn"] not in (None, "strong_wolfe"):
            found = repr(values["line_search_fn"])
            raise ArgumentError("LBFGS: line_search_fn", expected="None or 'strong_wolfe'", found=found)

    def _append(self, given: dict[str, Any]) -> None:
        if self.param_groups:
            raise ArgumentError("LBFGS: params", expected="one group", found="several groups")
        super()._append(given)

    def _refuse_missing_state(self) -> None:
        raise ArgumentError("LBFGS: a step reads the loss", expected="step(closure)", found="schedule_step()")

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        if closure is None:
            raise ArgumentError("LBFGS: step", expected="a closure that returns the loss", found="none")
        memory = {k: list(v) if isinstance(v, list) else v for k, v in self._memory.items()}
        try:
            with restore_on_failure(self.params):
                return self._iterate(closure)
        except BaseException:
            self._memory = memory
            raise

    def _iterate(self, closure: Callable[[], Any]) -> Any:
        m, group = self._memory, self.param_groups[0]
        least = group["tolerance_change"]
        first = closure()
        loss, gradient, n_evals = float(first.item()), self._gradient(), 1
        m["func_evals"] += 1
        if np.abs(gradient).max(initial=0.0) <= group["tolerance_grad"]:
            return first
        for n in range(1, group["max_iter"] + 1):
            m["n_iter"] += 1
            direction = self._direction(gradient)
            m["direction"], m["gradient"], m["loss"] = direction, gradient, loss
            t = group["lr"] * (min(1.0, 1.0 / float(np.abs(gradient).sum())) if m["n_iter"] == 1 else 1.0)
            slope, n_new = float(gradient @ direction), 0
            m["t"] = t
            if slope > -least:
                break
            start = self._values()
            if group["line_search_fn"] is not None:

                def at(t: float, start: np.ndarray = start, direction: np.ndarray = direction) -> Point:
                    self._write(start + t * direction)
                    loss = float(closure().item())
                    return Point(t, loss, g := self._gradient(), float(g @ direction))

                size, most = float(np.abs(direction).max()), min(MAX_SEARCH, group["max_eval"] - n_evals)
                found, n_new = _search(at, Point(0.0, loss, gradient, slope), t, size, most)
                t, loss, gradient = found[:3]
                m["t"] = t
                self._write(start + t * direction)
            else:
                self._write(start + t * direction)
                if n != group["max_iter"]:
                    loss, gradient, n_new = float(closure().item()), self._gradient(), 1
            n_evals += n_new
            m["func_evals"] += n_new
            if (
                n_evals >= group["max_eval"]
                or np.abs(gradient).max() <= group["tolerance_grad"]
                or np.abs(direction * t).max() <= least
                or abs(loss - m["loss"]) < least
            ):
                break
        return first

    def _direction(self, gradient: np.ndarray) -> np.ndarray:
        """Return the direction of the next step, and add the last step to the history."""
        m = self._memory
        if m["n_iter"] == 1:
            m.update(changes=[], steps=[], scale=1.0)
            return -gradient
        changes, steps = m["changes"], m["steps"]
        change, step = gradient - m["gradient"], m["direction"] * m["t"]
        curvature = float(change @ step)
        if curvature > LEAST_CURVATURE:
            if len(changes) == self.param_groups[0]["history_size"]:
                del changes[0], steps[0]
            changes.append(change)
            steps.append(step)
            m["scale"] = curvature / float(change @ change)
        q, weights = -gradient, []
        for y, s in zip(reversed(changes), reversed(steps), strict=True):
            weights.append(float(s @ q) / float(y @ s))
            q = q - weights[-1] * y
        q = q * m["scale"]
        for y, s, w in zip(changes, steps, reversed(weights), strict=True):
            q = q + s * (w - float(y @ q) / float(y @ s))
        return q

    def _values(self) -> np.ndarray:
        return np.concatenate([p.numpy().reshape(-1) for p in self.params])

    def _gradient(self) -> np.ndarray:
        """Return the gradients of all parameters as one vector; zeros where there is none."""
        grads = [p.grad for p in self.params]
        if given := [g for g in grads if g is not None]:
            given[0].realize(*given[1:])
        parts = [np.zeros(p.shape, to_numpy(p.dtype)) if g is None else g.numpy()
                 for p, g in zip(self.params, grads, strict=True)]  # fmt: skip
        return np.concatenate([part.reshape(-1) for part in parts])

    def _write(self, values: np.ndarray) -> None:
        at = 0
        for p in self.params:
            n = p.numel()
            part = values[at : at + n].reshape(p.shape).astype(to_numpy(p.dtype))
            p.assign(Tensor(part, device=p.device) if isinstance(p.device, str) else Tensor(part))
            at += n
        self.params[0].realize(*self.params[1:])

    def _from_torch(self, state: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        if state["state"]:
            found = "the history of PyTorch's LBFGS"
            raise ArgumentError("state dict of PyTorch", expected="one of an optimizer that made no step", found=found)
        return super()._from_torch(state)

    def _history(self) -> dict[str, Tensor]:
        m = self._memory
        scalars = Tensor(np.array([m.get(k, 0.0) for k in _SCALARS], np.float64))
        return {"scalars": scalars} | {k: Tensor(np.array(m[k])) for k in _ARRAYS if k in m}

    def _load_history(self, state: Mapping[str, Any], strict: bool) -> dict[str, Any]:
        names = ("scalars", *_ARRAYS)
        if strict and "scalars" not in state:
            raise ArgumentError("state dict: names differ", expected="scalars", found=list(state))
        arrays = {k: np.array(v.numpy() if isinstance(v, Tensor) else v) for k, v in state.items() if k in names}
        found: dict[str, Any] = dict(zip(_SCALARS, map(float, arrays.pop("scalars", np.zeros(5))), strict=True))
        self._memory = found | {k: list(v) if k in ("changes", "steps") else v for k, v in arrays.items()}
        return {k: v for k, v in state.items() if k not in names}


__all__ = ["LBFGS"]

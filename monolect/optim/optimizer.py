"""Define Optimizer, the base of all optimizers: parameter groups, settings, numbers of steps, state, and the step.

What it is for: `step()` computes new parameters from gradients and realizes parameters and state in one batch. The
rule of an optimizer (`_change`) sees one parameter at a time.
What it is not: it notes which parameters have equal numbers of steps, so its state is restored by `load_state_dict`,
not by writing to the tensors of `state_dict`.

Every number of a group is an element of a small tensor on the device, never a constant of a kernel. So a step builds
the same graph whatever the numbers are: it is compiled once, and one capture serves a changed learning rate. `numbers`
has the learning rates and each parameter's number of steps, which a step assigns. `settings` has the other numbers and
values computed from them in float64, such as `1 - beta`, which float32 could not give exactly. Switches, such as
`nesterov`, and whether a number that may be switched off is 0, decide the graph: a captured step depends on them.

A parameter without a gradient takes no step, so its count starts with its first gradient. Parameters of a group with
equal counts, usually all, share the values computed from the count.

Invariant: state tensors are buffers from the start; `step` changes a parameter only if it has a gradient.
Source: torch.optim, including the order in which weight decay and momentum are applied.
"""

from __future__ import annotations

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from monolect.backend.registry import maker_of, process_of
from monolect.base.dtype import dtypes, to_numpy
from monolect.base.errors import ArgumentError, DTypeError, JitError
from monolect.ir.uop import build
from monolect.optim.group import EXECUTION, Group, Slots, as_groups
from monolect.runtime.buffer import is_realized
from monolect.runtime.replay.in_progress import changes
from monolect.tensor.base import Data, restore_on_failure
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import view
from monolect.tensor.state.leaves import is_parameter
from monolect.tensor.tensor import Tensor

Indices = tuple[tuple[int, ...], ...]
Settings = dict[str, Any]
Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
ANY = (-inf, None)  # range of a number without bounds
POSITIVE = (0.0, None)  # range of a number of at least 0
BELOW_1 = (0.0, 1.0)


class Execution(TypedDict, total=False):
    """Keywords of PyTorch that choose among its implementations; here there is one. `differentiable` must be False."""

    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool


def state_like(p: Tensor, value: float = 0.0, shape: tuple[int, ...] | None = None) -> Tensor:
    """Return a state tensor of the parameter `p`, on its devices and full of `value`. It has a buffer already, so that
    no kernel of the step makes it.

    `shape`: another shape than that of `p`; the tensor is then on the first device, and float32 at least.
    """
    if shape is None and isinstance(p.device, tuple):
        return (p.zeros_like() + value).realize()
    dtype = p.dtype if shape is None or p.dtype.bits >= 32 else dtypes.float32
    return Tensor(np.full(p.shape if shape is None else shape, value, to_numpy(dtype)), device=_home(p.device))


def _home(device: Any) -> str:
    """Return the device of the numbers of parameters on `device`: the first one of several, or `cpu` for devices of
    several processes, so that each process reads its own.
    """
    return maker_of(device) if isinstance(device, tuple) else str(device)


def _values(t: Tensor) -> np.ndarray:
    """Return the values of `t`, which may be on a device of another process. All processes call it."""
    is_here = isinstance(t.device, tuple) or process_of(t.device) is None
    return (t if is_here else t.to("cpu")).numpy()


def _split(groups: Indices, by: Sequence[Any]) -> Indices:
    """Split groups of parameter indices, so that all parameters of a group have the same value in `by`."""
    parts: dict[tuple, list[int]] = {}
    for g, group in enumerate(groups):
        for i in group:
            parts.setdefault((g, by[i]), []).append(i)
    return tuple(map(tuple, parts.values()))


def check_number(name: str, value: Any, low: float, high: float | None = None) -> float:
    """Return `value`, a number or a Tensor of one element, as a float. Raises ArgumentError unless it is at least `low`
    and, if `high` is given, below `high`.
    """
    if not isinstance(value, int | float) and hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, int | float) or not value >= low or (high is not None and value >= high):
        expected = "a number" if low == -inf else f"at least {low}" if high is None else f"in [{low}, {high})"
        raise ArgumentError(f"optimizer: {name}", expected=expected, found=repr(value))
    return float(value)


def wide(t: Tensor) -> Tensor:
    """Return `t` in float32 at least: the numbers of a group have no axes, so they would take a narrower dtype."""
    return t if t.dtype.bits >= 32 else t.float()


# `_value` and `_element` make no views: a view builds its node at each use, a tenth of the host cost of an SGD step.
def _value(t: Any) -> Tensor:
    """Return a detached Tensor with the current value of `t`."""
    return t._wrap(build("DETACH", t._uop))


def _element(t: Any, at: int) -> Tensor:
    """Return the current value of element `at` of `t`."""
    return t._wrap(view(t, t._uop, at))


def _loaded_value(value: Any, p: Tensor) -> Any:
    """Return a value of a state dict for the parameter `p`: a copy of an array or a tensor, of any library, on its
    device.
    """
    if isinstance(value, Tensor):
        return value.detach().to(p.device).clone().realize()
    is_array = hasattr(value, "shape") and hasattr(value, "dtype")
    return Tensor(np.asarray(value).copy(), device=p.device) if is_array else value


class Now:
    """The numbers of a group in one step: `lr`, `count` (the number of the step, from 1) and the others as attributes,
    each a Tensor without axes. `group` has the switches.

    A pair such as `betas` is two attributes, `betas0` and `betas1`. A rule may add attributes that the parameters of a
    group share.
    """

    def __init__(self, group: Group, lr: Tensor, count: Tensor, settings: Tensor | None, at: dict[str, int]) -> None:
        self.group, self.lr, self.count = group, lr, count
        self._settings, self._at = settings, at

    if TYPE_CHECKING:

        def __setattr__(self, name: str, value: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_" or name not in self._at:
            raise AttributeError(name)
        value = self.__dict__[name] = _element(self._settings, self._at[name])
        return value


def _computing(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return `step`, a method of a class of optimizers, as one that then computes what it changed, if the class keeps
    its state itself. Else the updates of many steps would be one graph.
    """

    @functools.wraps(step)
    def computed(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, *args, **kwargs)
        if self.__dict__.get("_kept") is not None:
            kept = [x for values in self._kept.values() for x in values.values() if isinstance(x, Tensor)]
            if late := [t for t in (*self.params, *kept) if not is_realized(t.uop)]:
                late[0].realize(*late[1:])
        return result

    return computed


@guard_methods
class Optimizer:
    """Base class of optimizers. A subclass defines `_change`, names its state tensors in `slots` and its numbers, with
    least value and bound, in `ranges`.

    `params` are Tensors with `requires_grad`, or frozen ones, such as `model.parameters()`, pairs of a name and a
    Tensor, or dicts: each dict is a group, with `params` and the settings that differ from those of the call. `lr` is
    at least 0. Raises ArgumentError for no parameters, for one that never required a gradient or is in two groups, and
    for a bad setting; DTypeError for one that is not a Tensor.

    `param_groups` is a list of dicts with the settings of each group. Setting an entry writes to the device, so
    captured steps use the new value. A setting is an attribute, too: reading gives that of the first group, setting
    sets that of all groups.

    >>> class Signs(Optimizer):
    ...     def _change(self, p, grad, state, now):
    ...         return grad.sign() * now.lr
    >>> w = Tensor([1.0, 2.0], requires_grad=True)
    >>> _ = (w * w).sum().backward()
    >>> optimizer = Signs([w], lr=0.5)
    >>> optimizer.param_groups[0]["lr"] = 0.25
    >>> optimizer.step()
    >>> w.tolist(), optimizer.lr
    ([0.75, 1.75], 0.25)

    A class as PyTorch's users write it also works: it gives the settings as a dict in place of `lr`, and its `step`
    writes to the parameters. `self.state[p]` is a dict of its own for each parameter; what `step` changed is computed
    when it returns. A captured step depends on the numbers that it reads, so another learning rate is another capture.

    >>> class Descent(Optimizer):
    ...     def __init__(self, params, lr):
    ...         super().__init__(params, dict(lr=lr))
    ...     def step(self, closure=None):
    ...         for group in self.param_groups:
    ...             for p in group["params"]:
    ...                 p.data.add_(p.grad, alpha=-group["lr"])
    >>> _ = (w * w).sum().backward()
    >>> Descent([w], lr=0.5).step()
    >>> w.tolist()
    [-1.0, -2.0]
    """

    slots: tuple[str, ...] = ()
    optional_slots: dict[str, str] = {}  # slots that are there only if the optimizer was made with the setting named
    ranges: dict[str, tuple[float, float | None]] = {"lr": POSITIVE}  # numbers, which are on the device
    toggles: tuple[str, ...] = ()  # numbers of which 0 leaves out a part of the step
    torch_names: dict[str, str] = {}  # names of slots in a state dict of PyTorch
    _kept: dict[Tensor, dict[str, Any]] | None = None  # what a `step` of the user's keeps; None without such a step
    # attributes that a step does not read, or that change together with `params`; a captured step depends on one only
    # if its code names it
    unread: tuple[str, ...] = ("param_groups", "defaults", "_at", "_group_of", "_lr")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.ranges = {k: v for c in reversed(cls.__mro__) for k, v in vars(c).get("ranges", {}).items()}
        cls.unread = (*Optimizer.unread, *(f"_{name}" for name in cls.ranges))
        if "step" in vars(cls):
            cls.step = _computing(vars(cls)["step"])  # type: ignore[method-assign]

    def __init__(self, params: Params, lr: float | Mapping[str, Any] = 1e-3, **settings: object):
        if isinstance(given := settings.pop("defaults", lr), Mapping):
            lr, settings = given.get("lr", 1e-3), {**settings, **{k: v for k, v in given.items() if k != "lr"}}
        if isinstance(given, Mapping) and inspect.unwrap(type(self).step) is not inspect.unwrap(Optimizer.step):
            self._kept = defaultdict(dict)
        execution = {k: settings.pop(k) for k in EXECUTION if k in settings}
        if execution.get("differentiable"):
            raise ArgumentError("optimizer: differentiable", expected="False", found=True)
        self.params: list[Tensor] = []
        self.param_groups: list[Group] = []
        self._structure: tuple[Any, ...] = ()
        self._at: dict[str, int] = {}  # index of each number in the part of `settings` of a group
        self._group_of: list[int] = []  # group of each parameter
        self._groups: Indices = ()  # indices of parameters of one group with equal numbers of steps
        self._numbers: dict[Any, Tensor] = {}
        self._settings: dict[Any, Tensor] = {}
        self._state: dict[str, list[Tensor | None]] = {}
        self.defaults = self._checked({"lr": lr, "maximize": False, **settings})
        for group in as_groups(params):
            self._append(group)
        self._make_tensors(np.zeros(len(self.params)))

    # ---- groups and settings -----------------------------------------------------------------------------------------
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: a dict with `params` and the settings that differ from the defaults. Raises as the constructor.

        Steps that were captured before are captured again.

        >>> a, b = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
        >>> optimizer = Optimizer([a], lr=0.5)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.1})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.5, 0.1]
        """
        if not isinstance(param_group, dict):
            raise DTypeError("add_param_group", expected="a dict with params", found=type(param_group).__name__)
        counts = _values(next(iter(self._numbers.values())))[len(self.param_groups) :]
        (group,) = as_groups([param_group])
        self._append(group)
        self._make_tensors(np.append(counts, np.zeros(len(self.params) - len(counts))))

    def _append(self, given: dict[str, Any]) -> None:
        """Check the group `given` and append it, its parameters and their state."""
        params = list({id(p): p for p in given["params"]}.values())
        known = {id(p) for p in self.params}
        if not params:
            raise ArgumentError("optimizer: params", expected="at least one Tensor", found="none")
        for p in params:
            if not isinstance(p, Tensor):
                raise DTypeError("optimizer: params", expected="Tensors", found=type(p).__name__)
            if not is_parameter(p):
                raise ArgumentError("optimizer: a parameter", expected="requires_grad=True", found=repr(p))
            if id(p) in known:
                raise ArgumentError("optimizer: a parameter", expected="one group for each", found="two groups")
        group = Group(self, self._checked({**self.defaults, **given, "params": params}))
        states = [(slot, i, self._initial(slot, p, group)) for i, p in enumerate(params, len(self.params))
                  for slot in self._slots(group, p)]  # fmt: skip
        n = len(self.params)
        self.params = [*self.params, *params]
        self._group_of = [*self._group_of, *[len(self.param_groups)] * len(params)]
        self._groups = (*self._groups, tuple(range(n, len(self.params))))
        self.param_groups = [*self.param_groups, group]
        for slot in self._state:
            self._state[slot] = [*self._state[slot], *[None] * len(params)]
        for slot, i, t in states:
            self._state.setdefault(slot, [None] * len(self.params))[i] = t

    def _checked(self, values: Settings) -> Settings:
        """Return `values`, all settings of a group, with floats for numbers. Raises ArgumentError for a bad one."""
        out = {**values}
        for name, bounds in self.ranges.items():
            if isinstance(value := values.get(name), tuple | list):
                out[name] = tuple(check_number(f"{name}[{i}]", v, *bounds) for i, v in enumerate(value))
            elif name in values:
                out[name] = check_number(name, value, *bounds)
        self._check(out)
        return out

    def _check(self, values: Settings) -> None:
        """Raise ArgumentError for settings that do not go together."""

    def _derived(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return numbers computed from those of `group` that a step reads besides them, by attribute of Now."""
        return {}

    def _elements(self, group: Mapping[str, Any]) -> dict[str, float]:
        """Return the numbers of `group` except `lr`, as they are in its part of `settings`."""
        out: dict[str, float] = {}
        for name in self.ranges:
            value = group[name]
            if isinstance(value, tuple):
                out |= {f"{name}{i}": v for i, v in enumerate(value)}
            elif name != "lr":
                out[name] = value
        return out | self._derived(group)

    def _make_tensors(self, counts: np.ndarray) -> None:
        """Make the tensors of numbers and settings, with the numbers of steps `counts`, on the devices of the
        parameters.
        """
        wide = to_numpy(dtypes.float64 if any(p.dtype is dtypes.float64 for p in self.params) else dtypes.float32)
        rows = [self._elements(g) for g in self.param_groups]
        self._at = {name: i for i, name in enumerate(rows[0])}
        start = np.array([*(g["lr"] for g in self.param_groups), *counts], wide)
        devices = {p.device: None for p in self.params}
        self._numbers = {d: Tensor(start.copy(), device=_home(d)) for d in devices}
        table = np.array([[*row.values()] for row in rows], wide).reshape(-1)
        self._settings = {d: Tensor(table.copy(), device=_home(d)) for d in devices if table.size}
        self._note()

    def _note(self) -> None:
        """Note the settings of all groups: numbers in attributes that only code which names them reads, and what
        decides the graph of a step in `_structure`, which stays the same object if nothing in it changed.
        """
        for name in self.ranges:
            self.__dict__[f"_{name}"] = tuple(g[name] for g in self.param_groups)
        fixed = [k for k in self.defaults if k not in self.ranges and k != "params"]
        new = tuple((*(bool(g[k]) for k in self.toggles), *(g[k] for k in fixed)) for g in self.param_groups)
        if new != self._structure:
            self._structure = new

    def change_settings(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Set the settings of several groups in one write to the device: `values` has a mapping for each group.

        Raises ArgumentError for a bad value and JitError inside a captured step; then nothing changes.

        >>> optimizer = Optimizer([Tensor([1.0], requires_grad=True)], lr=0.5)
        >>> optimizer.change_settings([{"lr": 0.25}])
        >>> optimizer.param_groups[0]["lr"]
        0.25
        """
        if changes.captures:
            expected = "a change between the calls of the step"
            raise JitError("a captured step changes a setting of an optimizer", expected=expected, found=str(values))
        new = [self._checked({**g, **v}) for g, v in zip(self.param_groups, values, strict=True)]
        n, rows = len(new), [[*self._elements(g).values()] for g in new]
        lrs = [g["lr"] for g in new]
        with restore_on_failure((*self._numbers.values(), *self._settings.values())):
            if lrs != [g["lr"] for g in self.param_groups]:
                for numbers in self._numbers.values():
                    now = _values(numbers).copy()
                    now[:n] = lrs
                    numbers.assign(Tensor(now, device=numbers.device)).realize()
            if rows != [[*self._elements(g).values()] for g in self.param_groups]:
                for t in self._settings.values():
                    table = np.array(rows, to_numpy(t.dtype)).reshape(-1)
                    t.assign(Tensor(table, device=t.device)).realize()
        for group, v in zip(self.param_groups, new, strict=True):
            dict.update(group, v)
        self._note()

    def _change_group(self, group: Group, values: Mapping[str, Any]) -> None:
        """Set entries of one group, called by the group itself."""
        if "params" in values:
            raise ArgumentError("a group: params", expected="add_param_group", found="another list of parameters")
        if self.defaults.keys().isdisjoint(values):  # notes of schedulers, such as `initial_lr`
            dict.update(group, values)
        else:
            self.change_settings([values if g is group else {} for g in self.param_groups])

    def __getattr__(self, name: str) -> Any:
        """Return the setting `name` of the first group."""
        if name in self.__dict__.get("defaults", ()):
            return self.param_groups[0][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__.get("defaults", ()):
            self.change_settings([{name: value}] * len(self.param_groups))
        else:
            object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "param_groups": [dict(g) for g in self.param_groups]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, param_groups=[Group(self, g) for g in state["param_groups"]])

    # ---- stepping ----------------------------------------------------------------------------------------------------
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients of all parameters to None, or, without `set_to_none`, those that are there to zeros.

        >>> w = Tensor([1.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> Optimizer([w]).zero_grad()
        >>> w.grad is None
        True
        """
        for p in self.params:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad = p.grad.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient, compute all updates in one batch, and return the result of
        `closure`, which is called first and usually computes loss and gradients.

        If computing fails, parameters and state keep their values.

        >>> from monolect.optim import SGD
        >>> w = Tensor([1.0, 2.0], requires_grad=True)
        >>> _ = (w * w).sum().backward()
        >>> SGD([w], lr=0.25).step()
        >>> w.tolist()
        [0.5, 1.0]
        """
        return self._step(closure)

    def _step(self, closure: Callable[[], Any] | None) -> Any:
        loss = None if closure is None else closure()
        groups = self._groups
        try:
            with restore_on_failure((*self.params, *self._tensors())):
                changed = self.schedule_step()
                if changed:
                    changed[0].realize(*changed[1:])
        except BaseException:
            self._groups = groups
            raise
        return loss

    def schedule_step(self) -> list[Tensor]:
        """Assign the updates of `step` without computing them; return the changed tensors, to realize with others.

        Raises ArgumentError for a setting that was 0 or False when the optimizer was made and needs a state.

        `loss.realize(*optimizer.schedule_step())` computes loss and step in one batch.

        >>> from monolect.optim import SGD
        >>> w = Tensor([1.0], requires_grad=True)
        >>> loss = (w * w).sum().backward()
        >>> loss.realize(*SGD([w], lr=0.25).schedule_step()).item(), w.item()
        (1.0, 0.5)
        """
        self._refuse_missing_state()
        has_grad = [p.grad is not None for p in self.params]
        if not any(has_grad):
            return []
        self._groups = groups = _split(self._groups, has_grad)
        n, changed = len(self.param_groups), []
        for device, numbers in self._numbers.items():
            numbers.assign(numbers + self._increments(has_grad, numbers.device).cast(numbers.dtype))
            changed.append(numbers)
            for indices in groups:
                members = [i for i in indices if has_grad[i] and self.params[i].device == device]
                if not members:
                    continue
                g = self._group_of[members[0]]
                at = {name: g * len(self._at) + i for name, i in self._at.items()}
                count = _element(numbers, n + indices[0])
                now = Now(self.param_groups[g], _element(numbers, g), count, self._settings.get(device), at)
                self._prepare(now)
                for i in members:
                    changed += self._update(self.params[i], {s: t for s, ts in self._state.items() if (t := ts[i])
                                                             is not None}, now)  # fmt: skip
        return changed

    def _update(self, p: Tensor, state: dict[str, Tensor], now: Now) -> list[Tensor]:
        """Assign the new value of the parameter `p` and of its `state`; return them."""
        value, grad = wide(_value(p)), wide(_value(p.grad))
        change = self._change(value, -grad if now.group["maximize"] else grad, state, now)
        p.assign((value - change).cast(p.dtype))
        return [p, *state.values()]

    def _increments(self, has_grad: list[bool], device: Any) -> Tensor:
        """Return the bools that a step adds to (learning rates, counts): False for each rate, then `has_grad`.

        If all have gradients, the value is a constant in the kernel and needs no buffer.
        """
        n = len(self.param_groups)
        if all(has_grad):
            return Tensor.arange(n + len(has_grad)) >= n
        return Tensor(np.array([*[False] * n, *has_grad]), device=device)

    def _refuse_missing_state(self) -> None:
        for slot, setting in self.optional_slots.items():
            for i, g in enumerate(self._group_of):
                if self.param_groups[g][setting] and (slot not in self._state or self._state[slot][i] is None):
                    kind, found = type(self).__name__, self.param_groups[g][setting]
                    raise ArgumentError(f"{kind}: {setting}", expected=f"{setting} given to {kind}(...)", found=found)

    def _prepare(self, now: Now) -> None:
        """Add to `now` what all parameters of a group share, such as the corrections that depend on the count."""

    def _change(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], now: Now) -> Tensor:
        """Return the tensor to subtract from `p`, and assign new values to the tensors of `state`, by slot.

        `p` and `grad` are float32 at least; a rule that multiplies a state by a number makes it `wide` first.
        """
        raise NotImplementedError

    # ---- state -------------------------------------------------------------------------------------------------------
    def _slots(self, group: Mapping[str, Any], p: Tensor) -> tuple[str, ...]:
        """Return the names of the state tensors of the parameter `p` of `group`."""
        return (*self.slots, *(slot for slot, setting in self.optional_slots.items() if group[setting]))

    def _initial(self, slot: str, p: Tensor, group: Mapping[str, Any]) -> Tensor:
        """Return the first value of the state `slot` of the parameter `p` of `group`."""
        return state_like(p)

    def _entries(self) -> dict[str, Any]:
        """Return the tensors of the state dict: the optimizer's own, not the parameters."""
        own = {"numbers": self._numbers, "settings": self._settings}
        return {**{k: list(ts.values()) for k, ts in own.items() if ts}, **self._state}

    def _tensors(self) -> list[Tensor]:
        return [t for ts in self._entries().values() for t in ts if t is not None]

    @property
    def state(self) -> dict[Tensor, dict[str, Any]]:
        """The state tensors of each parameter, by the name of the slot, or by PyTorch's name of it. They are there from
        the start. Of an optimizer with a `step` of its own it is what that step keeps: an empty dict at first.

        >>> from monolect.optim import Adam
        >>> w = Tensor([1.0], requires_grad=True)
        >>> state = Adam([w]).state[w]
        >>> [*state], state["exp_avg"] is state["mean"]
        (['mean', 'square'], True)
        """
        if self._kept is not None:
            return self._kept
        return {p: self._slots_of(i, p) for i, p in enumerate(self.params)}

    def _slots_of(self, i: int, p: Tensor) -> Slots:
        """Return the state of parameter number `i`, which is `p`."""
        own = {s: t for s, ts in self._state.items() if (t := ts[i]) is not None}
        others = {name: own[s] for s, name in self.torch_names.items() if s in own}
        if "step" not in own and (numbers := self._numbers.get(p.device)) is not None:
            others["step"] = _element(numbers, len(self.param_groups) + i)
        return Slots(own, others)

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors that are needed to continue training, apart from the parameters. Of an optimizer with a
        `step` of its own they are in `state` and `param_groups`, as in PyTorch.

        `numbers.*` holds the learning rate of each group, then the number of steps of each parameter; `settings.*` the
        other numbers of the groups. The other entries are numbered in the order of the parameters.

        >>> from monolect.optim import Adam
        >>> list(Adam([Tensor([1.0], requires_grad=True)]).state_dict())
        ['numbers.0', 'settings.0', 'mean.0', 'square.0']
        """
        if self._kept is not None:
            return self._kept_dict()
        found = {f"{k}.{i}": t for k, ts in self._entries().items() for i, t in enumerate(ts) if t is not None}
        return found | self._history()

    def _kept_dict(self) -> dict[str, Any]:
        """Return the state dict of an optimizer with a `step` of its own, as PyTorch has it."""
        number = {id(p): i for i, p in enumerate(self.params)}
        groups = [{**g, "params": [number[id(p)] for p in g["params"]]} for g in self.param_groups]
        kept = (self._kept or {}).items()
        return {"state": {number[id(p)]: {**values} for p, values in kept if values}, "param_groups": groups}

    def _load_kept(self, state: Mapping[str, Any]) -> None:
        """Restore a state dict as `_kept_dict` returns it, or one of PyTorch."""
        numbers = [k for g in state["param_groups"] for k in g["params"]]
        self._refuse_groups(state["param_groups"])
        kept: dict[Tensor, dict[str, Any]] = defaultdict(dict)
        for p, k in zip(self.params, numbers, strict=True):
            entries = state["state"].get(k, state["state"].get(str(k), {}))
            if entries:
                kept[p] = {name: _loaded_value(value, p) for name, value in entries.items()}
        known = {"params", "param_names"}
        self.change_settings([{k: v for k, v in g.items() if k not in known} for g in state["param_groups"]])
        self._kept = kept

    def _refuse_groups(self, groups: Sequence[Mapping[str, Any]]) -> None:
        """Raise ArgumentError unless `groups` of a state dict have the numbers of parameters that the groups here
        have.
        """
        if [len(g["params"]) for g in groups] != [len(g["params"]) for g in self.param_groups]:
            expected, found = (str([len(g["params"]) for g in gs]) for gs in (self.param_groups, groups))
            raise ArgumentError("state dict: parameters of each group", expected=expected, found=found)

    def _history(self) -> dict[str, Tensor]:
        """Return entries of the state dict whose number or shape changes from step to step."""
        return {}

    def _load_history(self, state: Mapping[str, Any], strict: bool) -> dict[str, Any]:
        """Restore the entries of `_history`, and return the others."""
        return dict(state)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Restore the tensors of `state_dict`, or the state dict of an optimizer of PyTorch of the same class and
        groups. Raises as `nn.state.load_state_dict`, and then changes nothing.

        >>> from monolect.optim import SGD
        >>> w = Tensor([1.0], requires_grad=True)
        >>> old, new = SGD([w], lr=0.5), SGD([w], lr=0.1)
        >>> new.load_state_dict(old.state_dict())
        >>> new.lr
        0.5
        """
        from monolect.nn.state import load_state_dict  # imported at its first use: `nn` imports this package

        if self._kept is not None:
            self._load_kept(state)
            return
        if "param_groups" in state and "state" in state:
            entries, settings = self._from_torch(state)
            load_state_dict(self, entries, strict=False)
            for own, given in zip(self.param_groups, settings, strict=True):
                dict.update(own, {k: v for k, v in given.items() if k not in self.ranges and k != "lr"})
            self._note()
        else:
            before = self._history()
            others = self._load_history(state, strict)
            try:
                load_state_dict(self, others, strict=strict)
            except BaseException:
                self._load_history(before, False)
                raise

    def _from_torch(self, state: Mapping[str, Any]) -> tuple[dict[str, Data], list[Settings]]:
        """Return the entries of a state dict of PyTorch under the names of this optimizer, and the settings of each
        group.
        """
        groups = state["param_groups"]
        self._refuse_groups(groups)
        wide = to_numpy(next(iter(self._numbers.values())).dtype)
        kept = {"params", "param_names", *EXECUTION}
        settings = [self._checked({**own, **{k: v for k, v in g.items() if k not in kept}})
                    for own, g in zip(self.param_groups, groups, strict=True)]  # fmt: skip
        counts, out = np.zeros(len(self.params), wide), {}
        for i, key in enumerate(k for g in groups for k in g["params"]):
            found = state["state"].get(key, {})
            counts[i] = float(
                found.get("step", bool(found))
            )  # SGD counts no steps, but tells the first from the others
            for slot, ts in self._state.items():
                name = self.torch_names.get(slot, slot)
                if (t := ts[i]) is not None and found.get(name) is not None:
                    out[f"{slot}.{i}"] = np.asarray(found[name], to_numpy(t.dtype)).reshape(t.shape)
        numbers = np.array([*(g["lr"] for g in settings), *counts], wide)
        table = np.array([[*self._elements(g).values()] for g in settings], wide).reshape(-1)
        out |= {f"numbers.{i}": numbers for i in range(len(self._numbers))}
        return out | {f"settings.{i}": table for i in range(len(self._settings))}, settings

    def _loaded(self) -> None:
        """Read the settings and the numbers of steps from the tensors; `nn.state.load_state_dict` calls it after a
        load. A number that the tensor holds as near as its dtype allows stays as it is.
        """
        n = len(self.param_groups)
        numbers = _values(next(iter(self._numbers.values())))
        table = _values(next(iter(self._settings.values()))).reshape(n, -1) if self._settings else np.zeros((n, 0))

        def now(value: float, loaded: Any) -> float:
            return value if loaded.dtype.type(value) == loaded else float(loaded)

        for g, group in enumerate(self.param_groups):
            row = {name: table[g, i] for name, i in self._at.items()} | {"lr": numbers[g]}
            for name in self.ranges:
                value = group[name]
                if isinstance(value, tuple):
                    dict.__setitem__(group, name, tuple(now(v, row[f"{name}{i}"]) for i, v in enumerate(value)))
                else:
                    dict.__setitem__(group, name, now(value, row[name]))
        self._groups = _split(self._groups_of_settings(), numbers[n:].tolist())
        self._note()

    def _groups_of_settings(self) -> Indices:
        return tuple(tuple(i for i, k in enumerate(self._group_of) if k == g) for g in range(len(self.param_groups)))


__all__ = [
    "ANY",
    "BELOW_1",
    "POSITIVE",
    "Execution",
    "Now",
    "Optimizer",
    "Params",
    "Settings",
    "check_number",
    "state_like",
    "wide",
]

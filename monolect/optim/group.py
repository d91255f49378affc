"""Define Group, a parameter group: a dict whose settings are written to the optimizer's tensors when they are set; and
Slots, the state of a parameter.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from monolect.base.errors import ArgumentError, DTypeError
from monolect.tensor.tensor import Tensor

EXECUTION = ("foreach", "fused", "capturable", "differentiable")  # keywords of PyTorch that change no result


class Group(dict[str, Any]):
    """The parameters and settings of one group of an optimizer, as a dict.

    Setting an entry checks it and writes it to the device. Entries that are no settings of the optimizer are kept as
    they are. Raises ArgumentError for a bad value, another list of parameters, or a setting that would be removed.

    >>> from monolect.optim import SGD
    >>> optimizer = SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    >>> optimizer.param_groups[0].update(lr=0.25, note="slow")
    >>> optimizer.lr, optimizer.param_groups[0]["note"]
    (0.25, 'slow')
    """

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, values: dict[str, Any]) -> None:
        super().__init__(values)
        self._owner = weakref.ref(owner)

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def update(self, *given: Any, **values: Any) -> None:
        """Set several entries in one write to the device."""
        new = dict(*given, **values)
        owner = self._owner()
        if owner is None:
            dict.update(self, new)
        else:
            owner._change_group(self, new)

    def __ior__(self, values: Any) -> Group:  # type: ignore[override,misc]
        self.update(values)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the entry `name`; set it to `default` if there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def __delitem__(self, name: str) -> None:
        self._refuse_removal(name)
        super().__delitem__(name)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove an entry that is no setting of the optimizer, and return it."""
        self._refuse_removal(name)
        return super().pop(name, *default)

    def popitem(self) -> tuple[str, Any]:
        """Remove the last entry, which must not be a setting of the optimizer, and return it."""
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        """Raise ArgumentError: a group keeps its settings."""
        self._refuse_removal("params")

    def _refuse_removal(self, name: str) -> None:
        owner = self._owner()
        if name == "params" or (owner is not None and name in owner.defaults):
            raise ArgumentError("a group keeps its settings", expected="another value", found=f"removal of {name!r}")

    def copy(self) -> dict[str, Any]:
        """Return a plain dict of the entries."""
        return dict(self)

    def __reduce__(self) -> tuple:  # alone it is a plain dict; an optimizer makes its groups again
        return dict, (dict(self),)


class Slots(dict[str, Any]):
    """The state tensors of one parameter by their names here; PyTorch's names find the same tensors, and `step` the
    number of steps. A tensor is changed in place, as by `copy_`. Raises ArgumentError where an entry is set.

    >>> from monolect.optim import Adam
    >>> w = Tensor([1.0], requires_grad=True)
    >>> state = Adam([w]).state[w]
    >>> [*state], state["exp_avg"] is state["mean"], state["step"].item()
    (['mean', 'square'], True, 0.0)
    """

    __slots__ = ("_others",)

    def __init__(self, values: dict[str, Any], others: dict[str, Any]) -> None:
        super().__init__(values)
        self._others = others

    def __missing__(self, name: str) -> Any:
        return self._others[name]

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in self._others

    def get(self, name: str, default: Any = None) -> Any:
        """Return the entry `name`, or `default` if there is none."""
        return self[name] if name in self else default

    def __setitem__(self, name: str, value: Any) -> None:
        raise ArgumentError("the state of an optimizer", expected=f"state[p][{name!r}].copy_(...)", found="a new entry")

    def __reduce__(self) -> tuple:
        return dict, (dict(self),)


def as_groups(params: Any) -> list[dict[str, Any]]:
    """Return the groups that an optimizer was given as `params`: each a dict with a list of Tensors as `params`, and
    with `param_names` if the parameters were given with names.

    Raises ArgumentError for no parameters, DTypeError for a single Tensor or a group without `params`.
    """
    if isinstance(params, Tensor | dict) or not isinstance(params, Iterable):
        expected = "an iterable of Tensors or of dicts"
        raise DTypeError("optimizer: params", expected=expected, found=f"a {type(params).__name__}")
    items = list(params)
    if not items:
        raise ArgumentError("optimizer: params", expected="at least one Tensor", found="none")
    groups = items if isinstance(items[0], dict) else [{"params": items}]
    return [_with_names(group) for group in groups]


def _with_names(group: Any) -> dict[str, Any]:
    if not isinstance(group, dict) or "params" not in group:
        found = list(group) if isinstance(group, dict) else type(group).__name__
        raise DTypeError("optimizer: a group", expected="a dict with params", found=found)
    given = group["params"]
    params = [given] if isinstance(given, Tensor) else list(given)
    if not params or not all(isinstance(p, tuple) and len(p) == 2 for p in params):
        return {**group, "params": params}
    return {**group, "params": [p for _, p in params], "param_names": [name for name, _ in params]}


__all__ = ["EXECUTION", "Group", "Slots", "as_groups"]

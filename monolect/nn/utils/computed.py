"""Make attributes of a module computed ones: the module gets a class of its own, with a property for each.

What it is for: weights that follow from other tensors (`weight_norm`, `parametrize`, `prune`).
Invariants: a class that was made here never changes, so copies of a module may share it. A module without computed
attributes has its plain class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.nn.module import Module
from monolect.tensor.tensor import Tensor

Value = Callable[[Any], Tensor]
_PLAIN = "_plain_class"


def parameter(call: str, module: Module, name: str) -> Tensor:
    """Return the tensor `name` of `module`. Raises ArgumentError, which names the function `call`, if it has none."""
    weight = vars(module).get(name)
    if not isinstance(weight, Tensor):
        found = [k for k, v in vars(module).items() if isinstance(v, Tensor)]
        raise ArgumentError(f"{call}: name", expected=f"a module with the parameter {name!r}", found=found)
    return weight


def plain_class(module: Module) -> Any:
    """Return the class of `module` without computed attributes."""
    return vars(type(module)).get(_PLAIN, type(module))


def computed(module: Module) -> dict[str, property]:
    """Return the computed attributes of `module`, by name."""
    own = vars(type(module))
    return {k: v for k, v in own.items() if isinstance(v, property)} if _PLAIN in own else {}


def compute(module: Module, name: str, value: Value, write: Callable[[Any, Tensor], None] | None = None) -> None:
    """Replace the attribute `name` of `module` by one that is `value(module)` at each use.

    `write(module, new)` is called by an assignment to it; without `write`, an assignment raises AttributeError.
    """
    del vars(module)[name]
    _become(module, computed(module) | {name: property(value, write)})


def uncompute(module: Module, name: str) -> None:
    """Remove the computed attribute `name` from `module`, which then has no attribute of this name."""
    _become(module, {k: v for k, v in computed(module).items() if k != name})


def _become(module: Any, properties: dict[str, property]) -> None:
    plain = plain_class(module)
    names = {**properties, _PLAIN: plain, "__module__": plain.__module__}
    module.__class__ = type(plain.__name__, (plain,), names) if properties else plain


__all__ = ["compute", "computed", "parameter", "plain_class", "uncompute"]

"""Call a module with other tensors instead of its parameters and buffers, as torch.nn.utils.stateless does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monolect.base.errors import ArgumentError
from monolect.nn.module import Module
from monolect.nn.state import all_tensors
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Return `module(*args, **kwargs)`, computed with the tensors of `parameters_and_buffers`, by dotted name,
    instead of its own. Gradients flow to these tensors; afterwards the module has its own again.

    `args` is a tuple, or one argument. A tensor that the module has under several names is replaced under all of them;
    `tie_weights` False is refused. With `strict` each tensor of the module must be given. Raises ArgumentError for
    unknown names, and for missing ones if `strict`.

    >>> from monolect import nn
    >>> layer = nn.Linear(2, 1, bias=False)
    >>> functional_call(layer, {"weight": Tensor([[1.0, 2.0]])}, Tensor([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    own = all_tensors(module)
    unknown = [n for n in parameters_and_buffers if n not in own]
    missing = [n for n in own if n not in parameters_and_buffers] if strict else []
    if unknown or missing or not tie_weights:
        found = f"unknown: {unknown[:5]}; missing: {missing[:5]}; tie_weights={tie_weights}"
        raise ArgumentError("functional_call", expected="names of the module's tensors, tie_weights=True", found=found)
    others = {id(own[n]): t for n, t in parameters_and_buffers.items()}
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    replaced = [(holder, key, t) for holder, key, t in _holders(module, set()) if id(t) in others]
    if len({id(t) for *_, t in replaced}) != len(others):
        expected = "tensors that are attributes of modules, or in lists and dicts of these"
        raise ArgumentError("functional_call", expected=expected, found="one in a tuple, or in another object")
    try:
        for holder, key, t in replaced:
            holder[key] = others[id(t)]
        return module(*positional, **(kwargs or {}))
    finally:
        for holder, key, t in replaced:
            holder[key] = t


def _holders(obj: Any, seen: set[int]) -> Iterator[tuple[Any, Any, Tensor]]:
    """Yield (dict or list, key, tensor) for each tensor that `obj` holds, or a part of it."""
    if id(obj) in seen:
        return
    seen.add(id(obj))
    holder = vars(obj) if isinstance(obj, Module) else obj
    entries: Any = holder.items() if isinstance(holder, dict) else enumerate(holder)
    for key, value in list(entries):
        if isinstance(value, Tensor) and not isinstance(holder, tuple):
            yield holder, key, value
        elif isinstance(value, Module | dict | list | tuple):
            yield from _holders(value, seen)


__all__ = ["functional_call"]


def __dir__() -> list[str]:
    return __all__

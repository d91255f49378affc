"""Values that hold Tensors in any nesting: lists, tuples, named tuples, dicts and dataclasses.

What it is for: `@jit` and `@function` take and return such values; here they become a flat list and are built again.
What it is not: it looks into no other object; a Tensor inside one is part of the surroundings, not of the value.
Invariant: `unflatten(tree, iter(ts))` is `tree` with the Tensors that `flatten` lists replaced by `ts`, in that order.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from monolect.base.errors import JitError
from monolect.tensor.tensor import Tensor


def fields(tree: Any) -> tuple[str, ...] | None:
    """The names of a dataclass instance's fields, None for anything else."""
    found = getattr(type(tree), "__dataclass_fields__", None)
    return None if found is None else tuple(found)


def flatten(tree: Any, tensors: list[Tensor]) -> None:
    """Append the Tensors of `tree` to `tensors`, in order. Raises JitError for a value that holds itself."""
    try:
        _flatten(tree, tensors)
    except RecursionError:
        expected = "lists, tuples, dicts and dataclasses that end"
        raise JitError(
            "a value of a jitted function holds itself", expected=expected, found=type(tree).__name__
        ) from None


def _flatten(tree: Any, tensors: list[Tensor]) -> None:
    if isinstance(tree, Tensor):
        tensors.append(tree)
    elif isinstance(tree, list | tuple):
        for x in tree:
            _flatten(x, tensors)
    elif isinstance(tree, dict):
        for x in tree.values():
            _flatten(x, tensors)
    elif (names := fields(tree)) is not None:
        for name in names:
            _flatten(getattr(tree, name), tensors)


class Same:
    """A value without a hash as part of a key: equal to itself alone, and alive as long as the key."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def signature(tree: Any) -> Any:
    """What a capture depends on: structure, the places of Tensors, and everything else by value."""
    if isinstance(tree, Tensor):
        u = tree._uop
        return (u.src[0], u.dtype, u.arg.device)
    if isinstance(tree, list | tuple):
        return (type(tree), *[signature(x) for x in tree])
    if isinstance(tree, dict):
        return (dict, *[(k, signature(x)) for k, x in tree.items()])
    if (names := fields(tree)) is not None:
        return (type(tree), *[signature(getattr(tree, name)) for name in names])
    return (tree.__class__, tree) if tree.__hash__ is not None else Same(tree)


def unflatten(tree: Any, tensors: Iterator[Any]) -> Any:
    """`tree` with its Tensors replaced, in order, by the next of `tensors`."""
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, list | tuple):
        items = [unflatten(x, tensors) for x in tree]
        return items if isinstance(tree, list) else type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if isinstance(tree, dict):
        return {k: unflatten(v, tensors) for k, v in tree.items()}
    if (names := fields(tree)) is not None:
        new = copy.copy(tree)
        for name in names:
            object.__setattr__(new, name, unflatten(getattr(tree, name), tensors))  # also where it is frozen
        return new
    return tree

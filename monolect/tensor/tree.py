"""Values that hold Tensors in any nesting: lists, tuples, named tuples, dicts and dataclasses.

What it is for: `@jit` and `@function` take and return such values; here they become a flat list and are built again.
What it is not: it looks into no other object; a Tensor inside one is part of the surroundings, not of the value.
Invariant: `unflatten(tree, iter(ts))` is `tree` with the Tensors that `flatten` lists replaced by `ts`, in that order.
"""

from __future__ import annotations

import copy
import enum
import types
from collections.abc import Callable, Container, Iterator
from typing import Any

from monolect.base.dtype import DType
from monolect.base.errors import JitError
from monolect.base.numpy import is_array, is_scalar, np
from monolect.ir.uop import UOp
from monolect.tensor.tensor import Tensor
from monolect.tensor.variable import Variable

PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
_CONSTANT = (enum.Enum, type, range, DType, UOp, Variable)


def plain(value: Any) -> tuple[type, Any]:
    """A number or a text as part of a key: 0.0 is not -0.0, nor True 1, and nan is nan."""
    return value.__class__, repr(value) if isinstance(value, float | complex) or is_scalar(value) else value


def bytes_of(x: Any) -> bytes | None:
    """The bytes of an array, of what shows its memory as one does, or can be read as one; None for anything else."""
    if is_array(x):
        return None if x.dtype.hasobject else bytes(x.tobytes())
    try:
        return memoryview(x).tobytes()
    except (TypeError, ValueError, BufferError):
        pass
    try:
        return bytes_of(np.asarray(x)) if hasattr(type(x), "__array__") else None
    except Exception:  # whatever another library raises: such as PyTorch, for what has a gradient
        return None


def content_of(x: Any) -> tuple[bytes | None, Any, Any]:
    """The bytes of an array and what they are taken for, which may be changed in place, too."""
    return bytes_of(x), getattr(x, "dtype", None), getattr(x, "shape", None)


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


def in_order(d: dict) -> list[Any]:
    """The keys of a dict, sorted where they can be compared; those of a class of its own, such as OrderedDict, as they
    are.
    """
    try:
        return sorted(d) if d.__class__ is dict else [*d]
    except Exception:  # whatever comparing keys of the user's raises
        return [*d]


def is_in_order(tree: Any) -> bool:
    """Whether each dict of `tree` has its keys `in_order`."""
    if isinstance(tree, list | tuple):
        return all(map(is_in_order, tree))
    if isinstance(tree, dict):
        return [*tree] == in_order(tree) and all(map(is_in_order, tree.values()))
    names = () if tree.__class__ is Tensor else fields(tree) or ()
    return all(is_in_order(getattr(tree, name)) for name in names)


class Same:
    """A value without a hash as part of a key: equal to itself alone, and alive as long as the key."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def kind(t: Tensor) -> tuple[UOp, Any, Any, bool]:
    """What a capture depends on of a Tensor with a BUFFER: shape, dtype, device; does it require a gradient?"""
    u = t._uop
    return u.src[0], u.dtype, u.arg.device, t._requires_grad


def signature(tree: Any, other: Callable[[Any], Any], own: Callable[[Any], Any]) -> Any:
    """What a capture depends on: structure, kinds of Tensors, numbers and texts by value; of the rest `other`, and
    `own` of what a class of the user's adds to a container.
    """
    if isinstance(tree, Tensor):
        return kind(tree) if tree.__class__ is Tensor else (kind(tree), own(tree))
    if tree.__class__ in PLAIN:
        return plain(tree)
    if isinstance(tree, list | tuple):
        return (own(tree), *[signature(x, other, own) for x in tree])
    if isinstance(tree, dict):
        return (own(tree), *[(k, signature(x, other, own)) for k, x in tree.items()])
    if (names := fields(tree)) is not None:
        return (own(tree), *[signature(getattr(tree, name), other, own) for name in names])
    if is_array(tree) and tree.dtype != object:
        return (type(tree), tree.dtype, tree.shape, tree.tobytes())
    return other(tree)


def check_results(tree: Any, given: Container[int], what: str) -> None:
    """Raise JitError for results that a later call could not make again: all but Tensors, numbers, texts, trees of
    those, and objects that the function was given (`given`, by identity).
    """
    if tree.__class__ in PLAIN or isinstance(tree, (Tensor, *_CONSTANT)) or is_scalar(tree) or id(tree) in given:
        return
    if isinstance(tree, list | tuple | dict):
        for x in tree.values() if isinstance(tree, dict) else tree:
            check_results(x, given, what)
    elif (names := fields(tree)) is not None:
        for name in names:
            check_results(getattr(tree, name), given, what)
    elif not isinstance(tree, types.FunctionType) or tree.__closure__:
        expected = "Tensors, numbers and texts, in lists, tuples, dicts and dataclasses"
        raise JitError(f"a {what} returns what a later call could not make", expected=expected, found=repr(tree)[:80])


def unflatten(tree: Any, tensors: Iterator[Any], sort: bool = False) -> Any:
    """`tree` with its Tensors replaced, in order, by the next of `tensors`; lists, dicts and arrays are copies. With
    `sort` the dicts of the new tree have their keys `in_order`.
    """
    if isinstance(tree, Tensor):
        return next(tensors)
    if isinstance(tree, list | tuple):
        items = [unflatten(x, tensors, sort) for x in tree]
        if isinstance(tree, tuple):
            return tuple.__new__(type(tree), items)
        if tree.__class__ is list:
            return items
        new: Any = copy.copy(tree)
        new[:] = items
        return new
    if isinstance(tree, dict):
        new = {} if tree.__class__ is dict else copy.copy(tree)
        for k, v in tree.items():
            new[k] = unflatten(v, tensors, sort)
        return {k: new[k] for k in in_order(new)} if sort and new.__class__ is dict else new
    if (names := fields(tree)) is not None:
        new = copy.copy(tree)
        for name in names:
            object.__setattr__(new, name, unflatten(getattr(tree, name), tensors, sort))  # also where it is frozen
        return new
    return tree.copy() if is_array(tree) else tree

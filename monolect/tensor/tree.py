"""Flatten values that hold Tensors in lists, tuples, named tuples, dicts and dataclasses, and rebuild them.

What it is for: `@jit` and `@function` take and return such values.
What it is not: it looks into no other object. A Tensor inside another object belongs to the environment, not to the
value.
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
    """Return a number or text as (type, value), to be part of a key of a cache: 0.0 differs from -0.0, True from 1, and
    nan equals nan.
    """
    return value.__class__, repr(value) if isinstance(value, float | complex) or is_scalar(value) else value


def bytes_of(x: Any) -> bytes | None:
    """Return the bytes of an array, of an object with the buffer protocol, or of one with `__array__`; else None."""
    if is_array(x):
        return None if x.dtype.hasobject else bytes(x.tobytes())
    try:
        return memoryview(x).tobytes()
    except (TypeError, ValueError, BufferError):
        pass
    if not hasattr(type(x), "__array__"):
        return None
    try:
        values = x.detach() if getattr(x, "requires_grad", False) else x  # of such a tensor PyTorch makes no array
        return bytes_of(np.asarray(values))
    except Exception:  # another library may raise any error
        return None


def content_of(x: Any) -> tuple[bytes | None, Any, Any]:
    """Return (bytes, dtype, shape) of an array, to detect a change in place of any of them; bytes are None for an array
    of objects or if they cannot be read.
    """
    return bytes_of(x), getattr(x, "dtype", None), getattr(x, "shape", None)


def fields(tree: Any) -> tuple[str, ...] | None:
    """Return the field names of `tree` if it is an instance of a dataclass, else None."""
    found = getattr(type(tree), "__dataclass_fields__", None)
    return None if found is None else tuple(found)


def flatten(tree: Any, tensors: list[Tensor]) -> None:
    """Append the Tensors in the nested containers of `tree` to the list `tensors`, in order.

    Containers are lists, tuples, dicts and dataclasses. Raises JitError for a value that contains itself.
    """
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


def sorted_keys(d: dict) -> list[Any]:
    """Return the keys of a dict, sorted if they can be compared, else in their order in the dict. Keys of a subclass,
    such as OrderedDict, keep their order.
    """
    try:
        return sorted(d) if d.__class__ is dict else [*d]
    except Exception:  # the user's keys may raise any error when compared
        return [*d]


def has_sorted_keys(tree: Any) -> bool:
    """Whether the keys of each dict of `tree` are in the order of `sorted_keys`."""
    if isinstance(tree, list | tuple):
        return all(map(has_sorted_keys, tree))
    if isinstance(tree, dict):
        return [*tree] == sorted_keys(tree) and all(map(has_sorted_keys, tree.values()))
    names = () if tree.__class__ is Tensor else fields(tree) or ()
    return all(has_sorted_keys(getattr(tree, name)) for name in names)


class ByIdentity:
    """Wrap a value without a hash, so that it can be part of a key: two wrappers are equal if they hold the same
    object, and the wrapper keeps that object alive.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def kind(t: Tensor) -> tuple[UOp, Any, Any, bool]:
    """Return the part of a capture's cache key for the Tensor `t`, whose node is a BUFFER.

    It is (source node that holds the shape, dtype, device, requires_grad). On several devices, `device` is the pair
    (devices, axis that they divide or None).
    """
    return kind_of(t._uop, t._requires_grad)


def kind_of(u: UOp, requires_grad: bool) -> tuple[UOp, Any, Any, bool]:
    """Return (source node that holds the shape, dtype, device, requires_grad), the part of a cache key for a Tensor.

    Its node is the BUFFER `u`. On several devices, `device` is the pair (devices, axis that they divide or None).
    """
    device = u.arg.device
    return u.src[0], u.dtype, device if device.__class__ is str else (device, u.arg.axis), requires_grad


def signature(tree: Any, other: Callable[[Any], Any], own: Callable[[Any], Any]) -> Any:
    """Return the part of a capture's cache key for `tree`: its structure, the `kind` of each Tensor, other values.

    Numbers, texts and arrays are compared by value. `other(x)` is called for any other object and returns its key.
    `own(x)` is called for each container and each instance of a subclass of Tensor, and returns the key of the
    attributes that a user's class adds.
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
    """Raise JitError if `tree`, the result of a user's function, holds an object that a later call could not build.

    Allowed are Tensors, numbers, texts and other constants (such as types, enums and functions without a closure),
    trees of them, and the function's own arguments (`given` holds their ids). `what` names the kind of
    function in the message.
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
    """Return `tree` with its Tensors replaced, in order, by the next of `tensors`; containers and arrays are copied.

    With `sort`, the dicts of the new tree have their keys in the order of `sorted_keys`.
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
        return {k: new[k] for k in sorted_keys(new)} if sort and new.__class__ is dict else new
    if (names := fields(tree)) is not None:
        new = copy.copy(tree)
        for name in names:
            object.__setattr__(new, name, unflatten(getattr(tree, name), tensors, sort))  # works for frozen ones, too
        return new
    return tree.copy() if is_array(tree) else tree


__all__ = [
    "ByIdentity",
    "PLAIN",
    "bytes_of",
    "check_results",
    "content_of",
    "fields",
    "flatten",
    "has_sorted_keys",
    "kind",
    "kind_of",
    "plain",
    "signature",
    "sorted_keys",
    "unflatten",
]

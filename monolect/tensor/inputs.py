"""What a Python function depends on: the Tensors it can reach, and everything else as a value to compare.

What it is for: `@function` traces once for each key that is found here, so the key must hold whatever may steer the
trace: the structure of the arguments, the shapes, dtypes and devices of Tensors and which of them are the same node,
numbers and texts, and the same of what the function closes over, of the globals it names, and of the functions it
reaches through either.
What it is not: it runs nothing. Attributes of classes, and what code of other libraries reads, are not looked at.
Invariant: `is_complete` is False when something was met that can change without the key changing.
"""

from __future__ import annotations

import enum
import functools
import types
from collections.abc import Callable
from typing import Any

from monolect.base.dtype import DType
from monolect.ir.place import device
from monolect.ir.uop import UOp
from monolect.tensor.base import TensorBase
from monolect.tensor.surroundings import codes, plain

_VALUES = (int, float, complex, str, bytes, bool, type(None), type(...), slice, range, enum.Enum)
_FIXED = (type, types.ModuleType, DType, UOp)  # the same object means the same


def _package(name: str | None) -> str:
    return (name or "").partition(".")[0]


class Inputs:
    """The Tensors reached, each object once (`tensors`), their distinct nodes (`nodes`), and the `key` of the rest."""

    def __init__(self, f: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.tensors: list[Any] = []
        self.nodes: dict[UOp, int] = {}
        self.is_complete = True
        self._key: list[Any] = []
        self._seen: dict[int, int] = {}  # by identity: where in the walk an object was met first
        self._alive: list[Any] = []  # no identity is used twice during the walk
        self._package = _package(getattr(f, "__module__", None))
        for part in (args, kwargs, f):
            self._walk(part)
        self.key = tuple(self._key)

    def _walk(self, x: Any) -> None:
        stack = [x]
        while stack:
            x = stack.pop()
            if isinstance(x, TensorBase):
                self._tensor(x)
            elif isinstance(x, _VALUES):
                self._value(x)
            elif id(x) in self._seen:
                self._key.append(("again", self._seen[id(x)]))
            else:
                self._seen[id(x)] = len(self._seen)
                self._alive.append(x)
                stack.extend(reversed(self._parts(x)))

    def _tensor(self, t: Any) -> None:
        u = t._uop
        number = self.nodes.setdefault(u, len(self.nodes))
        if id(t) not in self._seen:
            self._seen[id(t)] = len(self._seen)
            self.tensors.append(t)
        self._key.append((number, self._seen[id(t)], u.shape, u.dtype, device(u), t._requires_grad))

    def _value(self, x: Any) -> None:
        if isinstance(x, slice):
            self._key.append((slice, repr(x)))
            self.is_complete &= all(isinstance(v, int | None) for v in (x.start, x.stop, x.step))
        else:
            self._key.append(plain(x))

    def _parts(self, x: Any) -> list[Any]:
        """What stands in `x`; what can be told of `x` itself goes into the key."""
        if isinstance(x, list | tuple):
            self._key.append((type(x), len(x)))
            return list(x)
        if isinstance(x, dict):
            self._key.append((type(x), len(x)))
            return [part for item in x.items() for part in item]
        if isinstance(x, types.FunctionType):
            return self._function(x)
        if isinstance(x, types.MethodType):
            return [x.__func__, x.__self__]
        if isinstance(x, functools.partial):
            return [x.func, x.args, x.keywords]
        attributes = getattr(x, "__dict__", None)
        if isinstance(x, _FIXED) or (callable(x) and attributes is None):
            self._key.append(x)
            return []
        if _package(type(x).__module__) == _package(__name__) and hasattr(x, "__wrapped__"):
            return [x.__wrapped__]  # a decorator of ours, with its caches
        if attributes is not None and not hasattr(x, "__next__"):
            self._key.append((type(x), len(attributes)))
            return [part for item in attributes.items() for part in item]
        return self._other(x)

    def _function(self, f: types.FunctionType) -> list[Any]:
        """Its code, and all that it reads from where it was made."""
        self._key.append(f.__code__)
        if _package(f.__module__) != self._package:
            return []
        cells = []
        for c in f.__closure__ or ():
            try:
                cells.append(c.cell_contents)
            except ValueError:  # named, and not assigned yet
                self._key.append("empty")
        names = [n for code in codes(f.__code__) for n in code.co_names]
        reads = [f.__globals__[n] for n in dict.fromkeys(names) if n in f.__globals__]
        return [*cells, f.__defaults__, f.__kwdefaults__, *reads]

    def _other(self, x: Any) -> list[Any]:
        """A value of a class that is not known here: equal values are taken to be the same, if they cannot change."""
        try:
            hash(x)
        except TypeError:
            self.is_complete = False
            return []
        if type(x).__eq__ is object.__eq__:  # compared by identity: nothing says that it stays what it is
            self.is_complete = False
        self._key.append((type(x), x))
        return []

"""What a jitted function reads from around it, other than Tensors' values: closure cells, globals, attributes.

What it is for: a number or a text that changed since the capture, a model that was set to evaluate, a name that now
stands for another object: all these make another program. Each place is looked at again at each call, and no more than
that: `holds` compares identities.
What it is not: a proof. Attributes count where the code names them, or where the object is a module of ours; what code
of other libraries reads is not looked at.
Invariant: equal keys mean equal plain values and the same other objects, which live as long as the key.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from typing import Any

from monolect.tensor.base import TensorBase
from monolect.tensor.tree import Same

MOST_PLACES = 4096
PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None)))
EMPTY = object()
_OURS = __name__.partition(".")[0]


class Surroundings:
    """The places that `function`, a method of `instance` if there is one, reads: `key` says what was there."""

    def __init__(self, function: Any, instance: Any = None):
        self.cells: list[tuple[types.CellType, Any]] = []
        self.names: dict[int, str] = {}  # of the cells, by identity
        self.items: list[tuple[dict[str, Any], str, Any]] = []
        self._named: set[str] = set()  # attributes that the code names
        self._seen: dict[int, Any] = {}
        self._later: list[Any] = []  # objects that are not ours
        self._values: list[Any] = []
        self._package = getattr(function, "__module__", None)
        for x in (function, instance):
            self._visit(x)
        for x in self._later:
            self._attributes(x, self._named.intersection(vars(x)))
        del self._seen, self._later
        self.key = tuple(map(_part, self._values))

    def changed(self) -> str | None:
        """The name of a place that holds another value than it did; None when the key would be the same."""
        for attributes, name, value in self.items:
            new = attributes.get(name, EMPTY)
            if new is not value and _part(new) != _part(value):
                return name
        for cell, value in self.cells:
            new = _content(cell)
            if new is not value and _part(new) != _part(value):
                return self.names.get(id(cell), "a variable")
        return None

    def holds(self) -> bool:
        """Whether every place still holds the very same object."""
        for attributes, name, value in self.items:
            if attributes.get(name, EMPTY) is not value:
                return False
        for cell, value in self.cells:
            if _content(cell) is not value:
                return False
        return True

    def _visit(self, x: Any) -> None:
        stack = [x]
        while stack and len(self._seen) < MOST_PLACES:
            x = stack.pop()
            if x.__class__ in PLAIN or isinstance(x, TensorBase | type | types.ModuleType) or id(x) in self._seen:
                continue
            self._seen[id(x)] = x
            stack.extend(self._inside(x))

    def _inside(self, x: Any) -> list[Any]:
        if isinstance(x, types.FunctionType):
            return list(self._function(x)) if x.__module__ == self._package else []
        if isinstance(x, types.MethodType):
            return [x.__func__, x.__self__]
        if isinstance(x, list | tuple):
            return list(x)
        if isinstance(x, dict):
            return list(x.values())
        attributes = getattr(x, "__dict__", None)
        if hasattr(x, "__wrapped__"):  # such as a jitted function, which becomes a part of this one
            return [x.__wrapped__, getattr(x, "__self__", None)]
        if attributes is None:
            return []
        if any(c.__module__.partition(".")[0] == _OURS for c in type(x).__mro__):
            names = {k for c in type(x).__mro__ for k, v in vars(c).items() if v.__class__ in PLAIN and k[0] != "_"}
            self._attributes(x, names.union(k for k, v in attributes.items() if v.__class__ in PLAIN))
            return list(attributes.values())
        self._later.append(x)
        methods = [m for m in vars(type(x)).values() if isinstance(m, types.FunctionType) or hasattr(m, "__wrapped__")]
        return [*attributes.values(), *(m for m in methods if m.__name__ in self._named or m.__name__ == "__call__")]

    def _attributes(self, x: Any, names: set[str]) -> None:
        """Note attributes of `x`; one that only its class has may come to stand in the object."""
        for name in sorted(names):
            self.items.append((vars(x), name, vars(x).get(name, EMPTY)))
            self._values.append(getattr(x, name))

    def _function(self, f: types.FunctionType) -> Iterator[Any]:
        """What the code of `f` reads from where it was made; the places are noted."""
        for code in codes(f.__code__):
            for step in dis.get_instructions(code):
                if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                    self._named.add(step.argval)
                elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    value = f.__globals__.get(step.argval, EMPTY)
                    if value is not EMPTY and not isinstance(value, type | types.ModuleType):
                        self.items.append((f.__globals__, step.argval, value))
                        self._values.append(value)
                        yield value
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=False):
            self.names[id(cell)] = name
            value = _content(cell)
            self.cells.append((cell, value))
            self._values.append(value)
            yield value


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # named, and not assigned yet
        return EMPTY


def _part(value: Any) -> Any:
    return plain(value) if value.__class__ in PLAIN else Same(value)


def plain(value: Any) -> tuple[type, Any]:
    """A number or a text as part of a key: 0.0 is not -0.0, nor True 1, and nan is nan."""
    return value.__class__, repr(value) if isinstance(value, float | complex) else value


def codes(code: types.CodeType) -> list[types.CodeType]:
    """The code of a function and of all that is defined inside it."""
    out: list[Any] = [code]
    for c in out:
        out.extend(k for k in c.co_consts if isinstance(k, types.CodeType))
    return out

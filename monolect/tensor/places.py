"""Places that were looked at, and whether they still hold what they held: by identity, arrays by their bytes.

What it is for: `Reach` notes where it found what steers a function; before each call these places are looked at again.
What it is not: the usual call of a captured step looks at them in lines written for it (`replay`), each of which says
what a line of `_others` says here.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from operator import is_not
from typing import Any

from monolect.tensor.tree import PLAIN, Same, content_of, plain


class EMPTY:
    """What stands where nothing does."""


class Current:
    """A context variable as a mapping of one name."""

    def __init__(self, variable: ContextVar) -> None:
        self.variable = variable

    def get(self, key: str, default: Any) -> Any:
        """What it is in the context of now."""
        return self.variable.get(default)


class Elements:
    """An array of objects as a sequence of them."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return int(self.array.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array.flat)


class Places:
    """Each list is of one kind of place: what is looked at, what was there, and mostly a name for it."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, str, Any]] = []  # a mapping, a key, what was there
        self.cells: list[tuple[types.CellType, Any, str]] = []
        self.slots: list[tuple[Callable[[], Any], str, Any]] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self.arrays: list[tuple[Any, Any, str]] = []  # what holds bytes, and its `content_of`
        self.flags: list[tuple[Any, bool]] = []  # of Tensors: do they require a gradient?
        self.contents: list[tuple[Any, tuple[Any, ...], str]] = []  # of what has a length and an order
        self.sizes: list[tuple[Any, int, str]] = []
        self.orders: list[tuple[dict, list[Any], str]] = []  # dicts, each with its keys
        self.kinds: list[tuple[Any, type, str]] = []  # objects, each with its class
        self.deaths: list[tuple[weakref.ref, bool, str]] = []  # references: do they refer to nothing any more?

    def holds(self) -> bool:
        """Whether every place still holds the very same object."""
        return next(self._others(is_not), None) is None

    def changed(self) -> str | None:
        """The name of a place that holds another value than it did; None when the key would be the same."""
        return next(self._others(lambda new, old: new is not old and _part(new) != _part(old)), None)

    def _others(self, differs: Callable[[Any, Any], bool]) -> Iterator[str]:
        """The names of places where something else stands."""
        for mapping, key, old in self.entries:
            if differs(mapping.get(key, EMPTY), old):
                yield str(key)
        for held, n, name in self.sizes:
            if len(held) != n:
                yield name
        for d, keys, name in self.orders:
            if [*d] != keys:
                yield name
        for held, kind, name in self.kinds:
            if type(held) is not kind:
                yield name
        for target, dead, name in self.deaths:
            if (target() is None) is not dead:
                yield name
        for held, olds, name in self.contents:
            if len(held) != len(olds) or any(map(differs, held, olds)):
                yield name
        for cell, old, name in self.cells:
            if differs(content(cell), old):
                yield name
        for ref, name, old in self.slots:
            if differs(getattr(ref(), name, EMPTY), old):
                yield name
        for f, old in self.codes:
            if f.__code__ is not old:
                yield f.__name__
        for held, old, name in self.arrays:
            if content_of(held) != old:
                yield name
        for t, old in self.flags:
            if t._requires_grad is not old:
                yield "requires_grad"


def content(cell: types.CellType) -> Any:
    """What a closure's cell holds; EMPTY for a name that is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def _part(value: Any) -> Any:
    return plain(value) if value.__class__ in PLAIN else Same(value)


__all__ = ["EMPTY", "Current", "Elements", "Places", "content"]

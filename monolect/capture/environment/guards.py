"""Places that were looked at, and whether they still hold what they held: by identity, arrays by their bytes.

What it is for: `Reach` notes where it found what steers a function; before each call these places are looked at again.
What it is not: the usual call of a captured step looks at them in lines written for it (`replay`), each of which says
what a line of `holds` says here.
"""

from __future__ import annotations

import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from operator import is_
from typing import Any

from monolect.tensor.tree import PLAIN, content_of

_LISTS = frozenset((list, tuple, deque, set))


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


class Subclasses:
    """The classes that are derived from a class, as a sequence."""

    def __init__(self, of: type) -> None:
        self.of = of

    def __len__(self) -> int:
        return len(self.of.__subclasses__())

    def __iter__(self) -> Iterator[type]:
        return iter(self.of.__subclasses__())


class Places:
    """Each list is of one kind of place: what is looked at, and what was there."""

    def __init__(self) -> None:
        self.entries: list[tuple[Any, str, Any]] = []  # a mapping, a key, what was there
        self.cells: list[tuple[types.CellType, Any]] = []
        self.slots: list[tuple[Callable[[], Any], str, Any]] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self.arrays: list[tuple[Any, Any]] = []  # what holds bytes, and its `content_of`
        self.flags: list[tuple[Any, bool]] = []  # of Tensors: do they require a gradient?
        self.contents: list[tuple[Any, tuple[Any, ...]]] = []  # of what has a length and an order
        self.sizes: list[tuple[Any, int]] = []
        self.orders: list[tuple[Any, list[Any]]] = []  # dicts, each with its keys
        self.kinds: list[tuple[Any, type]] = []  # objects, each with its class
        self.plains: list[tuple[Any, str]] = []  # a mapping and a key, whose value is plain
        self.deaths: list[tuple[weakref.ref, bool]] = []  # references: do they refer to nothing any more?

    def holds(self) -> bool:
        """Whether every place still holds the very same object."""
        return (
            all(mapping.get(key, EMPTY) is old for mapping, key, old in self.entries)
            and all(len(held) == n for held, n in self.sizes)
            and all([*d] == keys for d, keys in self.orders)
            and all(type(held) is kind for held, kind in self.kinds)
            and all(is_plain(mapping.get(key, EMPTY)) for mapping, key in self.plains)
            and all((target() is None) is dead for target, dead in self.deaths)
            and all(len(held) == len(olds) and all(map(is_, held, olds)) for held, olds in self.contents)
            and all(content(cell) is old for cell, old in self.cells)
            and all(getattr(ref(), name, EMPTY) is old for ref, name, old in self.slots)
            and all(f.__code__ is old for f, old in self.codes)
            and all(content_of(held) == old for held, old in self.arrays)
            and all(t._requires_grad is old for t, old in self.flags)
        )


def content(cell: types.CellType) -> Any:
    """What a closure's cell holds; EMPTY for a name that is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def is_plain(value: Any) -> bool:
    """Whether `value` is a number, a text, or a list or a dict of those: such as a counter or a log."""
    kind = value.__class__
    if kind is dict:
        return PLAIN.issuperset(map(type, value)) and PLAIN.issuperset(map(type, value.values()))
    return kind in PLAIN or (kind in _LISTS and PLAIN.issuperset(map(type, value)))


__all__ = ["EMPTY", "Current", "Elements", "Places", "Subclasses", "content", "is_plain"]

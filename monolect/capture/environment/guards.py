"""Guard values that a captured function read: check that they are the same objects, or for arrays that they have equal
bytes.

What it is for: `Dependencies` notes each location (such as an attribute, a closure's cell or a dict's entry) where it
found a value that a function depends on. Before each call these locations are checked again.
What it is not: the fast path of a captured step checks them with generated code (`capture/fast_path.py`). Each
condition of that code corresponds to a line of `holds` here.
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
    """Sentinel for the value of an unset cell, attribute or key.
    It is compared with `is`, and never instantiated.
    """


class ContextValue:
    """A context variable (`contextvars.ContextVar`) in the form of a mapping with one key.
    `Guards.entries` holds it like a dict with an entry.
    """

    def __init__(self, variable: ContextVar) -> None:
        self.variable = variable

    def get(self, key: str, default: Any) -> Any:
        """Return the value of the context variable in the current context, or `default` if it is not set; `key` is not
        used.
        """
        return self.variable.get(default)


class NativeAttributes:
    """The attributes that the C type of the object `of` computes or stores, such as `maxlen` of a deque, in the form of
    a mapping, so that they can be guarded like entries of a dict.

    A computed value is a new object at each read. `get` returns the object of the last read if the new one is equal.
    """

    def __init__(self, of: Any) -> None:
        self.of = of
        self.last: dict[str, Any] = {}

    def get(self, key: str, default: Any) -> Any:
        """Return the value of the attribute `key`, or `default` if it is missing or reading it raises."""
        try:
            value = getattr(self.of, key, default)
        except Exception:  # a memoryview that was released, a file that was detached
            return default
        last = self.last.get(key, default)
        if last.__class__ is value.__class__ and is_fixed(value) and repr(last) == repr(value):
            return last
        self.last[key] = value
        return value


class QueueSize:
    """A container whose `len` is the number of items of the `queue.SimpleQueue` `queue`; the items themselves cannot be
    read.
    `Guards.sizes` holds it, so that a change of the number is noticed.
    """

    def __init__(self, queue: Any) -> None:
        self.queue = queue

    def __len__(self) -> int:
        return int(self.queue.qsize())


class ArrayElements:
    """The elements of `array`, a NumPy array of objects, as a sequence.
    `Guards.contents` holds it, so that another element is noticed.
    """

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return int(self.array.size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array.flat)


class SubclassList:
    """The direct subclasses of the class `of` as a sequence.
    `Guards.contents` holds it, so that a new subclass is noticed.
    """

    def __init__(self, of: type) -> None:
        self.of = of

    def __len__(self) -> int:
        return len(self.of.__subclasses__())

    def __iter__(self) -> Iterator[type]:
        return iter(self.of.__subclasses__())


class Guards:
    """Lists of guards, one list for each kind of location. A guard is a location and the value that was found there.
    `Dependencies` adds the guards, and `holds` checks them all before a call.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, str, Any]] = []  # mapping, key, value
        self.cells: list[tuple[types.CellType, Any]] = []
        self.slots: list[tuple[Callable[[], Any], str, Any]] = []
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self.arrays: list[tuple[Any, Any]] = []  # object with a buffer of bytes, its `content_of`
        self.flags: list[tuple[Any, bool]] = []  # Tensor, its leaf flag
        self.contents: list[tuple[Any, tuple[Any, ...]]] = []  # ordered container, its items
        self.sizes: list[tuple[Any, int]] = []
        self.orders: list[tuple[Any, list[Any]]] = []  # dict, its keys in order
        self.kinds: list[tuple[Any, type]] = []  # object, its class
        self.plains: list[tuple[Any, str]] = []  # mapping, key of a value that is any plain one
        self.weak_references: list[tuple[weakref.ref, bool]] = []  # weak reference, is it dead?

    def holds(self) -> bool:
        """Whether every guarded location still has the value that was found there."""
        return (
            all(mapping.get(key, EMPTY) is old for mapping, key, old in self.entries)
            and all(len(held) == n for held, n in self.sizes)
            and all([*d] == keys for d, keys in self.orders)
            and all(type(held) is kind for held, kind in self.kinds)
            and all(is_plain(mapping.get(key, EMPTY)) for mapping, key in self.plains)
            and all((target() is None) is dead for target, dead in self.weak_references)
            and all(len(held) == len(olds) and all(map(is_, held, olds)) for held, olds in self.contents)
            and all(cell_content(cell) is old for cell, old in self.cells)
            and all(getattr(ref(), name, EMPTY) is old for ref, name, old in self.slots)
            and all(f.__code__ is old for f, old in self.codes)
            and all(content_of(held) == old for held, old in self.arrays)
            and all(t._requires_grad is old for t, old in self.flags)
        )


def cell_content(cell: types.CellType) -> Any:
    """Return the value in `cell`, a cell of a closure; EMPTY if its variable is not assigned yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


def is_fixed(value: Any) -> bool:
    """Whether `value` is an immutable plain value: a number, a string, or a tuple of these."""
    return value.__class__ in PLAIN or (value.__class__ is tuple and PLAIN.issuperset(map(type, value)))


def is_plain(value: Any) -> bool:
    """Whether `value` is a number, a string, or a list, tuple, set or dict of these, such as a counter or a log."""
    kind = value.__class__
    if kind is dict:
        return PLAIN.issuperset(map(type, value)) and PLAIN.issuperset(map(type, value.values()))
    return kind in PLAIN or (kind in _LISTS and PLAIN.issuperset(map(type, value)))


__all__ = [
    "EMPTY",
    "ArrayElements",
    "ContextValue",
    "Guards",
    "NativeAttributes",
    "QueueSize",
    "SubclassList",
    "cell_content",
    "is_fixed",
    "is_plain",
]

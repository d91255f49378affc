"""Tensors that change on the side of another computation, such as running statistics.

What it is for: a method that assigns to such a tensor defers it; the next realization computes it in the same batch, so
that what both share is computed once and no chain of assignments grows.
Where a batch with them fails they are set aside: they join no other one, unless they change again.
What it is not: it computes nothing, and keeps no tensor alive.
Invariant: a tensor is listed at most once, and no longer once it is realized or gone.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from monolect.runtime.buffer import is_realized

_changed: dict[int, weakref.ref[Any]] = {}  # by identity: comparing tensors with == is an elementwise operation
_aside: set[int] = set()  # of them


def defer(tensor: Any) -> None:
    """Compute `tensor` with the next batch."""
    key = id(tensor)
    _changed[key] = weakref.ref(tensor, lambda _: _forget(key))
    _aside.discard(key)


def _forget(key: int) -> None:
    _changed.pop(key, None)
    _aside.discard(key)


def set_aside(tensors: Iterable[Any]) -> None:
    """Let them join no batch: one of them may be what cannot be computed."""
    _aside.update(id(t) for t in tensors if id(t) in _changed)


def keep_only(tensors: Iterable[Any]) -> None:
    """Those that are deferred beside these are not any more: what deferred them has failed."""
    named = {*map(id, tensors)}
    for key in [*_changed]:
        if key not in named:
            _forget(key)


def deferred() -> list[Any]:
    """The deferred tensors that are to be computed with the next batch."""
    return [t for t in waiting() if id(t) not in _aside] if _changed else []


def waiting() -> list[Any]:
    """The deferred tensors that are still to be computed, those set aside included."""
    out: list[Any] = []
    if not _changed:
        return out
    for key, ref in list(_changed.items()):
        t = ref()
        if t is None or is_realized(t._uop):
            _forget(key)
        else:
            out.append(t)
    return out

"""Tensors that change on the side of another computation, such as running statistics.

What it is for: a method that assigns to such a tensor defers it; the next realization computes it in the same batch, so
that what both share is computed once and no chain of assignments grows.
What it is not: it computes nothing, and keeps no tensor alive.
Invariant: a tensor is listed at most once, and no longer once it is realized or gone.
"""

from __future__ import annotations

import weakref
from typing import Any

_changed: dict[int, weakref.ref[Any]] = {}  # by identity: comparing tensors with == is an elementwise operation


def defer(tensor: Any) -> None:
    """Compute `tensor` with the next batch."""
    key = id(tensor)
    _changed[key] = weakref.ref(tensor, lambda _: _changed.pop(key, None))


def deferred() -> list[Any]:
    """The deferred tensors that are still to be computed."""
    out: list[Any] = []
    if not _changed:
        return out
    for key, ref in list(_changed.items()):
        t = ref()
        if t is None or t._uop.op == "BUFFER":
            _changed.pop(key, None)
        else:
            out.append(t)
    return out

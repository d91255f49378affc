"""Defer the computation of Tensors that change as a side effect, such as running statistics.

What it is for: a method that assigns to such a tensor defers it, and the next realization computes it in the same
batch. Subexpressions that both share are computed once, and no chain of assignments grows. A tensor that is updated
while an earlier update is pending is deferred, too (`extends`), such as a parameter that a loop updates by hand. A
batch that fails excludes its deferred tensors from later batches, until they change again.
What it is not: it computes nothing and keeps no tensor alive.
Invariant: a tensor is listed at most once, and not after it is realized or collected.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from monolect.ir.uop import UOp
from monolect.runtime.buffer import is_realized
from monolect.runtime.replay.in_progress import under_way

MAX_GROWTH = 2  # writes of a leaf by hand with a higher graph than all before; the last one is computed at once
CHAIN_DEPTH = 6  # ops of an update, such as p - rate * (gradient + decay * p), between the new value and the old one
_changed: dict[int, weakref.ref[Any]] = {}  # by identity: comparing tensors with == is an elementwise operation
_excluded: set[int] = set()  # keys of `_changed` that join no batch, since a batch with them failed


def defer(tensor: Any) -> None:
    """Mark `tensor` to be computed with the next batch, the Tensors that one realization computes together.

    Only a weak reference to it is kept. An excluded tensor (see `exclude`) joins batches again.
    """
    key = id(tensor)
    _changed[key] = weakref.ref(tensor, lambda _: _forget(key))
    _excluded.discard(key)


def extends(new: UOp, old: UOp) -> bool:
    """Return whether the node `new` of a tensor is an update of its node `old`, which has no memory yet: it is computed
    from `old` by at most CHAIN_DEPTH ops. In a captured step, which runs whole, it is False.

    Without a batch that computes it, a chain of updates would grow with each one, and be another program each time.
    """
    if under_way or is_realized(old) or old.op == "CONST":
        return False
    row = [new]
    for _ in range(CHAIN_DEPTH):
        row = [x for u in row for x in u.src if x.height >= old.height]
        if old in row:
            return True
    return False


def outgrows(leaf: Any, new: UOp) -> bool:
    """Count the writes that gave `leaf` a higher node than all before, where `new` is the last one, and return whether
    it is to be computed now. Then counting begins again.

    A loop that updates parameters by hand may read no value for a long time, or read the loss before the update: then
    the gradient refers to updates that are computed already. Either way the graph grows with each update.
    """
    if under_way:
        return False
    height, times = getattr(leaf, "_growth", (new.height, 0))
    if new.height > height:
        height, times = new.height, times + 1
    leaf._growth = (0, 0) if times == MAX_GROWTH else (height, times)
    return times == MAX_GROWTH


def _forget(key: int) -> None:
    _changed.pop(key, None)
    _excluded.discard(key)


def exclude(tensors: Iterable[Any]) -> None:
    """Keep these deferred tensors out of later batches (the Tensors that one realization computes together), since a
    batch with them failed; `defer` readmits one. Tensors that are not deferred are ignored.
    """
    _excluded.update(id(t) for t in tensors if id(t) in _changed)


def forget_others(tensors: Iterable[Any]) -> None:
    """Drop all deferred tensors except `tensors`, because the function that deferred the others has failed."""
    named = {*map(id, tensors)}
    for key in [*_changed]:
        if key not in named:
            _forget(key)


def deferred() -> list[Any]:
    """Return the deferred tensors to compute with the next batch: those that are not realized and not excluded."""
    return [t for t in all_deferred() if id(t) not in _excluded] if _changed else []


def all_deferred() -> list[Any]:
    """Return all deferred tensors that are not realized yet, including those that `exclude` keeps out of batches."""
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


__all__ = ["all_deferred", "defer", "deferred", "exclude", "extends", "forget_others", "outgrows"]

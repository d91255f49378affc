"""Choose values of a batch to store besides its roots: values that a Tensor holds and that would be computed again.

What it is for: a Tensor that was not requested is computed inside the kernels that need it and has no memory, so each
later use computes it again. If the Tensor is state carried by a loop, each step would also recompute all earlier steps,
and each number of steps would be another program. So a batch that would compute a value a second time also stores those
of its values that a Tensor holds. The first batch stays fused.
What it is not: it computes nothing and does not import Tensor. A node refers to its holder weakly.

Invariant: a stored value was to be computed by the batch anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.ir.placement import device
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, toposort
from monolect.runtime.binding import variables
from monolect.runtime.buffer import is_realized

SMALL_BYTES = 1 << 20  # bytes; a value up to this size, or up to that of inputs and roots together, may be stored


def to_store(batch: Sequence[UOp], known: Sequence[UOp], dev: Any) -> list[UOp]:
    """Return the nodes that `batch`, values on the device or devices `dev`, shall store besides its roots.

    `known`: the nodes of the batch that a Tensor holds or held, and BUFFERs of state that a loop carries. The first
    batch with such nodes stores none of them: it sets `recomputed` on those that a Tensor still holds. A later batch
    with a marked node stores the marked nodes, and the nodes computed from them, that a Tensor holds, unless they are
    far larger than the batch's inputs and roots.
    """
    again = [u for u in known if u.recomputed and u not in batch]
    if not again:
        mark(known, batch, dev)
        return []
    roots = frozenset(batch)
    order = toposort(*batch)
    if variables(*batch):  # a later batch may bind other values
        return []
    room = len(again) * max(SMALL_BYTES, sum(_bytes(u) for u in order if u.op == "BUFFER" or u in roots))
    held = {u for u in known if u not in roots and _is_held(u) and _is_computed(u, dev)}
    after: set[UOp] = set()  # recomputed or carried nodes and their users: their graphs grow with each step
    out = []
    for u in order:
        if not u.recomputed and after.isdisjoint(u.src):
            continue
        fits = _bytes(u) <= room
        if u in held and fits:
            out.append(u)
        if fits or u not in held or not u.recomputed:  # a far larger held value stays fused, as the user wrote it
            after.add(u)
    return out


def mark(known: Sequence[UOp], batch: Sequence[UOp], dev: Any) -> None:
    """Mark those of the nodes `known` that a Tensor holds: `batch` computes them on `dev`, and does not store them."""
    for u in known:
        if u not in batch and _is_held(u) and _is_computed(u, dev):
            u.recomputed = True


def note_stored(u: UOp, memory: UOp) -> None:
    """Note that the node `u`, which `to_store` returned, is stored in `memory`.

    If `u` was not marked, it is state carried by a loop: mark `memory`, so that the next step stores the new state.
    """
    if not u.recomputed and memory.op == "BUFFER":
        memory.recomputed = True


def _is_held(u: UOp) -> bool:
    """Return whether a live Tensor holds the node."""
    return u.holder is not None and u.holder() is not None


def _is_computed(u: UOp, dev: Any) -> bool:
    """Return whether `u` is a computed value of `dev` with a known size above 0: no realized buffer or view, no
    index.
    """
    return not is_realized(u) and u.dtype.kind != "x" and device(u) == dev and _bytes(u) > 0


def _bytes(u: UOp) -> int:
    """Return the bytes of a value; 0 if its size is symbolic."""
    n = count(u.shape)
    return n * u.dtype.itemsize if n.__class__ is int else 0


__all__ = ["mark", "note_stored", "to_store"]

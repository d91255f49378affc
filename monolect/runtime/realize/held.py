"""Which values of a batch get memory though nobody asked for them: those that are held and would be computed again.

What it is for: a Tensor that is not asked for is computed inside the kernels that need it, and has no memory. Where it
is needed again it would be computed again; where it is state that a loop carries, so would all earlier steps, and each
number of steps is another program. So a batch that would compute a value a second time also stores those of its values
that a Tensor stands for. The first batch stays as fused as it is.
What it is not: it computes nothing and knows no Tensor. A node knows its holder weakly.

Invariant: what is stored was to be computed by the batch anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.ir.placement import device
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, toposort
from monolect.runtime.binding import variables
from monolect.runtime.buffer import is_realized

SMALL_BYTES = 1 << 20  # of what is stored, beside as much as the inputs and results have


def to_store(batch: Sequence[UOp], known: Sequence[UOp], dev: str) -> list[UOp]:
    """The nodes that `batch` is to store beside its own. `known`: those of it that ever had a holder, and BUFFERs of
    state that a loop carries.

    The others with a holder are marked: they are computed now, and get no memory.
    """
    again = [u for u in known if u.recomputed and u not in batch]
    if not again:
        for u in known:
            if (holder := u.holder) is not None and holder() is not None and u not in batch and _is_computed(u, dev):
                u.recomputed = True
        return []
    roots = frozenset(batch)
    order = toposort(*batch)
    if variables(*batch):  # another value, where it is computed later
        return []
    room = len(again) * max(SMALL_BYTES, sum(_bytes(u) for u in order if u.op == "BUFFER" or u in roots))
    held = {u for u in known if u not in roots and _is_held(u) and _is_computed(u, dev)}
    after: set[UOp] = set()  # what is computed again or carried, and what is made of that: its graph would grow
    out = []
    for u in order:
        if not u.recomputed and after.isdisjoint(u.src):
            continue
        fits = _bytes(u) <= room
        if u in held and fits:
            out.append(u)
        if fits or u not in held or not u.recomputed:  # what is held and far larger is as the user wants it
            after.add(u)
    return out


def note_stored(u: UOp, memory: UOp) -> None:
    """`u`, of `to_store`, has `memory` now. State that a loop carries is stored at once from the next step on."""
    if not u.recomputed and memory.op == "BUFFER":
        memory.recomputed = True


def _is_held(u: UOp) -> bool:
    return u.holder is not None and u.holder() is not None


def _is_computed(u: UOp, dev: str) -> bool:
    """Whether `u` is a value that has no memory and could have: no constant, no view of memory, of known size."""
    return not is_realized(u) and u.dtype.kind != "x" and device(u) == dev and _bytes(u) > 0


def _bytes(u: UOp) -> int:
    n = count(u.shape)
    return n * u.dtype.itemsize if n.__class__ is int else 0

"""A record of the rewrites of a tensor graph: for each value, the value that replaced it.

Purpose: `VERIFY=2` compares what a schedule stores with the graph as it was before the first rewrite. Scheduling itself
does not read the record.
Invariant: a value and its replacement have the same shape, dtype and, up to the order of float additions, elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from monolect.ir.uop import UOp

Renewed = Mapping[UOp, UOp]


class Followed(NamedTuple):
    """The rewrites of a graph, in order, and the buffer of each value that the partition stores in one of its own."""

    steps: list[Renewed]
    buffers: dict[UOp, UOp]


_followed: list[Followed] = []


def renewed(roots: list[UOp], new: Renewed) -> list[UOp]:
    """`roots` after a rewrite that replaced the keys of `new` by its values."""
    for f in _followed:
        f.steps.append(new)
    return [new.get(r, r) for r in roots]


def note_buffers(buffers: dict[UOp, UOp]) -> None:
    """Record where the partition stores values."""
    for f in _followed:
        f.buffers.update(buffers)


@contextmanager
def following() -> Iterator[Followed]:
    """What is recorded in the block."""
    _followed.append(found := Followed([], {}))
    try:
        yield found
    finally:
        _followed.pop()


__all__ = ["following", "note_buffers", "renewed"]

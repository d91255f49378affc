"""A record of the rewrites of a tensor graph: for each value, the value that replaced it.

Purpose: `VERIFY=2` compares what a schedule stores with the graph as it was before the first rewrite. Scheduling itself
does not read the record.
Invariant: a value and its replacement have the same shape, dtype and, up to the order of float additions, elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from monolect.ir.uop import UOp

Renewed = Mapping[UOp, UOp]
_followed: list[list[Renewed]] = []


def renewed(roots: list[UOp], new: Renewed) -> list[UOp]:
    """`roots` after a rewrite that replaced the keys of `new` by its values."""
    for steps in _followed:
        steps.append(new)
    return [new.get(r, r) for r in roots]


@contextmanager
def following() -> Iterator[list[Renewed]]:
    """The rewrites that are made in the block, in order."""
    steps: list[Renewed] = []
    _followed.append(steps)
    try:
        yield steps
    finally:
        _followed.pop()


__all__ = ["following", "renewed"]

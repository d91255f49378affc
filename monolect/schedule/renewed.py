"""What the rewrites of a tensor graph made of each value, for whoever compares the values with those asked for.

What it is for: `VERIFY=2` compares what a schedule stores with the graph as it was before the first rewrite.
What it is not: part of scheduling, which asks nobody what a value was before.
Invariant: a value and what it became have the same shape, dtype and, up to the order of float additions, elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from monolect.ir.uop import UOp

Renewed = Mapping[UOp, UOp]
_followed: list[list[Renewed]] = []


def renewed(roots: list[UOp], new: Renewed) -> list[UOp]:
    """`roots` after a rewrite that put `new` values in the place of others."""
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

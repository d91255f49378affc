"""Find, for the generator of Python code, the flat memory of a view and the offsets of its elements.

What it is for: the generator asks which nodes are memory, and emits the position expressions.
What it is not: access to memory; that is `values`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from monolect.ir.ops import INVALID
from monolect.ir.placement import VIEWS
from monolect.ir.uop import UOp


class FlatIndex(NamedTuple):
    """The element positions of a view in its flat memory: `base` (scalar or array) plus constant `offsets`."""

    base: str  # Python expression
    offsets: Any  # an int64 array of the view's shape, or None


# ---- facts about nodes -----------------------------------------------------------------------------------------------
def root_of(u: UOp) -> UOp:
    """Return the memory of a view with its own element type: a PARAM, a BUFFER, or a BITCAST of one."""
    while u.op in VIEWS and u.op != "BITCAST":
        u = u.src[0]
    return u


def validity(u: UOp) -> tuple[UOp | None, bool] | None:
    """Return (condition, b): the stored value `u` is valid, that is, not `invalid`, where the condition equals b.

    Return (None, False) if the value is invalid everywhere, None if it is valid everywhere.
    """
    if u.op == "CONST" and u.arg[0] is INVALID:
        return None, False
    if u.op == "WHERE":
        for k, sign in ((2, True), (1, False)):
            if u.src[k].op == "CONST" and u.src[k].arg[0] is INVALID:
                return u.src[0], sign
    return None


# ---- text ------------------------------------------------------------------------------------------------------------
def plus(base: str, n: int) -> str:
    """Return the expression `base + n`."""
    return f"{base} + {n}" if n and base != "0" else str(n) if base == "0" else base


def total(at: FlatIndex, share: Callable[[Any], str]) -> str:
    """Return the expression of all positions of a view; `share` returns the name of the offsets array."""
    if at.offsets is None:
        return at.base
    return share(at.offsets) if at.base == "0" else f"{at.base} + {share(at.offsets)}"


def extent(at: FlatIndex) -> tuple[int, int]:
    """Return the least and greatest offset; (0, -1), which is inside any memory, for no elements."""
    return (int(at.offsets.min()), int(at.offsets.max())) if at.offsets.size else (0, -1)


def is_run(offsets: Any) -> bool:
    """Whether offsets are consecutive, so that a slice reads them."""
    return offsets.size > 0 and bool((np.diff(offsets.ravel()) == 1).all())


__all__ = ["FlatIndex", "extent", "is_run", "plus", "root_of", "total", "validity"]

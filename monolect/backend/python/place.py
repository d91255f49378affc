"""Memory as a program addresses it: what a view is of, and where in that memory it lies.

What it is for: the generator asks it which nodes are memory and writes down the positions it answers.
What it is not: access to memory; that is `values`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from monolect.ir.ops import INVALID
from monolect.ir.placement import VIEWS
from monolect.ir.uop import UOp


class Place(NamedTuple):
    """Where in its memory a view lies: at `base` (a scalar, or an array of positions), plus constant `offsets`."""

    base: str
    offsets: Any  # an int64 array of the view's shape, or None


# ---- facts about nodes -----------------------------------------------------------------------------------------------
def root_of(u: UOp) -> UOp:
    """The PARAM or BUFFER a view is of, or a BITCAST of it: memory with its own element type."""
    while u.op in VIEWS and u.op != "BITCAST":
        u = u.src[0]
    return u


def validity(u: UOp) -> tuple[UOp | None, bool] | None:
    """Where a stored value is not `invalid`: (condition, its value there); (None, False): nowhere; None: everywhere."""
    if u.op == "CONST" and u.arg[0] is INVALID:
        return None, False
    if u.op == "WHERE":
        for k, sign in ((2, True), (1, False)):
            if u.src[k].op == "CONST" and u.src[k].arg[0] is INVALID:
                return u.src[0], sign
    return None


# ---- text ------------------------------------------------------------------------------------------------------------
def plus(base: str, n: int) -> str:
    """The expression `base + n`."""
    return f"{base} + {n}" if n and base != "0" else str(n) if base == "0" else base


def total(at: Place, share: Callable[[Any], str]) -> str:
    """The expression of all positions of a view; `share` names its offsets."""
    if at.offsets is None:
        return at.base
    return share(at.offsets) if at.base == "0" else f"{at.base} + {share(at.offsets)}"


def extent(at: Place) -> tuple[int, int]:
    """The least and greatest offset; (0, -1) of nothing, which is inside any memory."""
    return (int(at.offsets.min()), int(at.offsets.max())) if at.offsets.size else (0, -1)


def is_run(offsets: Any) -> bool:
    """Whether offsets are consecutive, so that a slice reads them."""
    return offsets.size > 0 and bool((np.diff(offsets.ravel()) == 1).all())

"""Arrange any number of axes as at most three launch dimensions, each within its limit.

Dimension 0 is for the innermost axis, whose iterations are adjacent. Axes beyond the third are merged into the last
one. If that exceeds a limit, all axes are merged and split again (`ir.lanes.fitted`).
"""

from __future__ import annotations

from monolect.ir.lanes import MOST_DIMENSIONS, fitted
from monolect.ir.uop import UOp, idx, node


def launched(sizes: list[UOp], name: str, limits: tuple[int, ...]) -> list[UOp]:
    """Return the index along each of the axes of `sizes`, innermost first, as an expression of SPECIALs `name`0, 1, 2.

    Raises ActionError if no arrangement is within the limits.
    """
    if not sizes:
        return []
    known = all(n.op == "CONST" for n in sizes)
    dims = fitted([n.value for n in sizes], limits, name) if known and limits else None
    if dims is None:
        return _one_each(sizes, name)
    flat: UOp = idx(0)
    step = 1
    for k, most in enumerate(dims):
        flat = flat + node("SPECIAL", (idx(most),), f"{name}{k}") * step
        step *= most
    out: list[UOp] = []
    for n in sizes[:-1]:
        out.append(flat % n)
        flat = flat // n
    return [*out, flat]


def _one_each(sizes: list[UOp], name: str) -> list[UOp]:
    """Return the index along each axis of `sizes` if each is a launch dimension; the last takes all further axes.

    `name`: the prefix of the names of the SPECIALs.
    """
    out: list[UOp] = []
    for k in range(min(len(sizes), MOST_DIMENSIONS)):
        mine = sizes[k:] if k == MOST_DIMENSIONS - 1 else sizes[k : k + 1]
        total = idx(1)
        for n in mine:
            total = total * n
        whole = node("SPECIAL", (total,), f"{name}{k}")
        for n in mine[:-1]:
            out.append(whole % n)
            whole = whole // n
        out.append(whole)
    return out


__all__ = ["launched"]

"""Implement TC for a unit that a warp shares: split rows, columns and steps of a product into lanes and registers.

What it is for: to check which sums such a unit fits, and to split the axes of rows and of columns. The map of the sum
(`base.matrix_units`) decides: bits of a lane's number become LOCAL parts, bits of an element's number UPCAST parts. The
steps become a range of type CONTRACT. Read as loops, the product is unchanged; `lower.gpu.fragments` decides which lane
loads which elements.

Invariant: the lanes of a warp are the first lanes of the workgroup, in the order of their numbers.
"""

from __future__ import annotations

from monolect.base.errors import ActionError
from monolect.base.matrix_units import CORE_BYTES, runs
from monolect.base.target import MatrixUnit
from monolect.ir.bounds import ranges
from monolect.ir.uop import UOp
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest


def in_warp(plan: LoopNest, unit: MatrixUnit, axis: int, rows: int = -1, columns: int = -1) -> list[AxisPart]:
    """Return the parts that `plan.axes` has after TC with the matrix unit `unit`, which a warp shares. The plan is not
    changed. Raises ActionError where the unit does not fit.

    `axis`, `rows`, `columns`: indices in `plan.axes` of the reduction, of the rows and of the columns. -1, for an axis
    that the action does not name, is illegal.
    """
    if plan.workgroup is None or not all(isinstance(i, int) and 0 <= i < len(plan.axes) for i in (rows, columns)):
        raise ActionError("TC of a warp", expected="the axes of rows and of columns", found=(rows, columns))
    p, sides = plan.axes[axis], [plan.axes[rows], plan.axes[columns]]
    if any(q.type in ("LOCAL", "GROUP_REDUCE", "UPCAST", "UNROLL") for q in plan.axes):
        raise ActionError("TC of a warp", expected="no lanes and no vectors yet", found="some")
    for q, n in zip(sides, (unit.m, unit.n), strict=True):
        if q.type != "LOOP" or q.is_block or not q.size or q.size % n:
            raise ActionError("TC of a warp", expected=f"an output axis of a multiple of {n}", found=q.size)
    check_operands(unit, plan.reduces[0], sides[0].root, sides[1].root)
    new = plan.axes[:axis], _steps(p, unit), plan.axes[axis + 1 :]
    axes = [q for part in new for q in part]
    for k, q in enumerate(sides):
        at = next(i for i, x in enumerate(axes) if x is q)
        axes[at : at + 1] = _split_side(q, unit, k, plan.next_created)
    for q in sides:
        plan.workgroup.check_split("LOCAL", q.root, axes, plan.locals)
    return axes


def check_operands(unit: MatrixUnit, u: UOp, rows: UOp, columns: UOp) -> None:
    """Raise ActionError unless the REDUCE `u` sums products of two LOADs that have the dtypes of `unit`.

    The first operand must move along the RANGE `rows` and not along `columns`, the second along `columns` and not along
    `rows`.
    """
    body = u.src[0]
    if u.arg[0] != "ADD" or body.op != "MUL" or u.dtype is not unit.acc:
        raise ActionError("TC", expected=f"a sum of products in {unit.acc.name}", found=f"{body.op} in {u.dtype.name}")
    loads = [x.src[0] if x.op == "CAST" else x for x in body.src]
    along = sorted(loads, key=lambda x: columns in ranges(x))
    moves = [(rows in ranges(x), columns in ranges(x)) for x in along]
    if any(x.op != "LOAD" for x in loads) or moves != [(True, False), (False, True)]:
        raise ActionError("TC", expected="a load along the rows, another along the columns", found=body.op)
    if [x.dtype for x in along] != [unit.a, unit.b]:
        names = " * ".join(x.dtype.name for x in along)
        raise ActionError("TC", expected=f"{unit.a.name} * {unit.b.name}", found=names)


def _steps(p: AxisPart, unit: MatrixUnit) -> list[AxisPart]:
    """Return the parts into which TC splits the reduction p: a REDUCE loop over steps of the unit, then the iterations
    inside a step as CONTRACT parts.
    """
    part = type(p)
    rest = part(p.root, p.size // unit.k, p.stride * unit.k, "REDUCE", created=p.created)
    if unit.from_memory:
        n = CORE_BYTES // unit.a.itemsize
        lines = part(p.root, unit.k // n, p.stride * n, "CONTRACT")
        return [rest, lines, part(p.root, n, p.stride, "CONTRACT")]
    return [rest, part(p.root, unit.k, p.stride, "CONTRACT")]


def _split_side(p: AxisPart, unit: MatrixUnit, side: int, created: int) -> list[AxisPart]:
    """Return the parts into which TC splits p, the axis of rows (`side` 0) or of columns (`side` 1): a loop over the
    unit's tiles, then parts for groups of bits of an index in a tile, highest bits first.

    By the unit's map of the result, each of these parts is LOCAL (lanes of the warp) or UPCAST (elements of a lane).
    `created`: the first free value for `AxisPart.created`.
    """
    part, n = type(p), (unit.m, unit.n)[side]
    out = [part(p.root, p.size // n, p.stride * n, p.type)]
    for r in reversed(runs(unit.maps[2])):
        if r.axis == side:
            kind = "LOCAL" if r.is_lane else "UPCAST"
            out.append(part(p.root, 1 << r.n_bits, p.stride << r.at, kind, created=created + r.first))
    return out


__all__ = ["check_operands", "in_warp"]

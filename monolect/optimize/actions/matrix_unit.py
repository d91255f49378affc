"""Check and build TC for a thread's matrix unit: the innermost steps of a sum of products become one step of the unit.

What it is for: to check which sums a unit fits, and to write the products as the unit takes them. A unit that
multiplies unsigned by signed numbers also takes two operands of one kind. With a' = a with its top bit flipped, which
is a - c for a constant c, the sum of a * b is that of a' * b minus that of -c * b, which does not depend on a.

What it is not: the choice of a unit (`contraction`), or the WMMA itself, which `lower.matrix_products` selects once
values have shape.
Invariant: a REDUCE over CONTRACT ranges is a sum of MUL(CAST(a), CAST(b)), with a and b of the unit's dtypes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from typing import Any

from monolect.base.dtype import DType, dtypes
from monolect.base.errors import ActionError
from monolect.base.target import MatrixUnit
from monolect.ir.bounds import min_max, ranges, unused_ranges, unused_slots
from monolect.ir.ops import BufferArg
from monolect.ir.rewrite.named_rules import Row
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, substitute, toposort
from monolect.optimize.actions.kind import ActionKind, Move, Moves, axes_with
from monolect.optimize.blocks.warp import in_warp
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest

FLIPS: dict[DType, DType] = {dtypes.int8: dtypes.uint8, dtypes.uint8: dtypes.int8}


class MatrixUnits(ActionKind):
    """Action TC: give several consecutive iterations of the kernel's only sum to one instruction of a matrix unit."""

    op = "TC"
    forms = (
        ('("TC", axis, unit)', "make steps of a reduction one step of the target's matrix unit of that name"),
        ('("TC", axis, (unit, rows, columns))',
         "likewise for a unit that a warp shares, with parts of the axes rows and columns"),
    )  # fmt: skip
    rows = (Row("TC", "steps of a sum become steps of a matrix unit"),)
    is_loop_change = False  # it checks the axis itself

    def perform(self, plan: LoopNest, subject: int, arg: Any) -> None:
        contract(plan, subject, arg)

    @property
    def moves(self) -> Moves:
        return {self.op: matrix_units}


def contract(plan: LoopNest, axis: int, arg: Any) -> None:
    """Perform TC: let a matrix unit compute the kernel's only sum, several iterations at a time. Raises ActionError
    where the unit does not fit.

    `axis`: the index in `plan.axes` of the sum's reduction. `arg`: the name of a unit of one thread, or (name, index of
    the axis of rows, index of the axis of columns) for a unit that a warp shares.
    """
    name = arg[0] if isinstance(arg, tuple) else arg
    unit = next((m for m in plan.target.units if m.name == name), None)
    names = ", ".join(m.name for m in plan.target.units) or "no unit"
    if unit is None:
        raise ActionError(f"TC on {plan.target.name}", expected=f"one of {names}", found=name)
    p = plan.axes[axis] if isinstance(axis, int) and 0 <= axis < len(plan.axes) else None
    if p is None or p.type != "REDUCE" or p.size % unit.k or plan.unit or len(plan.reduces) != 1 or plan.packs:
        expected = f"the kernel's only sum, a multiple of {unit.k} steps, once"
        raise ActionError("TC", expected=expected, found=p.size if p else axis)
    if p.clipped:
        raise ActionError("TC", expected="blocks of one size", found="a smaller last block")
    if unit.threads:
        sides = arg[1:] if isinstance(arg, tuple) else ()
        axes = in_warp(plan, unit, axis, *sides)
        plan.sides = tuple(plan.axes[i].root for i in sides)
        plan.axes, plan.unit = axes, unit
        return
    shaped = sorted((q for q in plan.axes if q.type == "UPCAST"), key=lambda q: q.created)
    check(unit, plan.reduces[0], plan.lane(plan.reduces[0]), p.root)
    rows = prod(q.size for q in shaped if q.root is not shaped[0].root)
    if shaped[0].size != unit.n or rows % unit.m or any(q.type in ("UNROLL", "GROUP_REDUCE") for q in plan.axes):
        raise ActionError("TC", expected=f"{unit.n} lanes, a multiple of {unit.m} rows", found=shaped[0].size)
    depth = [(unit.k // unit.pair, unit.pair), (unit.pair, 1)]
    parts = [AxisPart(p.root, n, p.stride * stride, "CONTRACT") for n, stride in depth if n > 1]
    plan.axes[axis : axis + 1] = [AxisPart(p.root, p.size // unit.k, p.stride * unit.k, "REDUCE"), *parts]
    plan.unit = unit


def matrix_units(plan: LoopNest) -> Iterator[Move]:
    """Yield the moves that give a reduction to a matrix unit of the target (TC), for every reduction and unit.

    For a unit of one thread there is also the pair of a SPLIT that makes its vector lanes and TC. For a unit of a warp,
    TC names an axis for its rows and one for its columns.
    """
    for unit in plan.units:
        for j, _ in axes_with(plan, "REDUCE"):
            if unit.threads:
                sides = [[i for i, n in axes_with(plan, "LOOP") if n % k == 0] for k in (unit.m, unit.n)]
                yield from ((("TC", j, (unit.name, a, b)),) for a in sides[0] for b in sides[1] if a != b)
                continue
            yield (("TC", j, unit.name),)
            for i, n in axes_with(plan, "LOOP"):
                if n % unit.n == 0:
                    yield (("SPLIT", i, (unit.n, "UPCAST", False)), ("TC", j + 1, unit.name))


def operands(u: UOp, lane: UOp | None) -> tuple[UOp, UOp]:
    """Return the two LOADs (a, b) whose products the REDUCE `u` sums, after a cast to the dtype of `u`. Only b moves
    along `lane`, the RANGE of the vector lanes.

    Raises ActionError where `u` is no such sum, or where not exactly one of the loads moves along `lane`.
    """
    body = u.src[0]
    if u.arg[0] != "ADD" or body.op != "MUL" or any(x.op != "CAST" or x.src[0].op != "LOAD" for x in body.src):
        raise ActionError("TC", expected="a sum of products of two loads, converted", found=body.op)
    a, b = (x.src[0] for x in body.src)
    if lane is None or (lane in ranges(a)) == (lane in ranges(b)):
        raise ActionError("TC", expected="vector lanes along which one of the operands moves", found=repr(lane))
    return (a, b) if lane in ranges(b) else (b, a)


def check(unit: MatrixUnit, u: UOp, lane: UOp | None, along: UOp) -> None:
    """Raise ActionError where `unit`, a matrix unit of one thread, cannot compute the REDUCE `u` in steps of the RANGE
    `along`: the dtypes differ, or an operand does not move along the sum. `lane`: the RANGE of the vector lanes.
    """
    factors = operands(u, lane)
    if any(along not in ranges(x) for x in factors):
        raise ActionError("TC", expected="two operands that move along the sum", found="one that does not move")
    found = [x.dtype for x in factors]
    flipped = found[0] is found[1] and found[0] in FLIPS and {unit.a, unit.b} == {found[0], FLIPS[found[0]]}
    either = flipped or found == [unit.b, unit.a]  # where a tile is one row, either operand may be along the lanes
    if u.dtype is not unit.acc or not (found == [unit.a, unit.b] or (either and unit.m == 1)):
        names = " * ".join(d.name for d in found) + f" in {u.dtype.name}"
        raise ActionError("TC", expected=f"{unit.a.name} * {unit.b.name} in {unit.acc.name}", found=names)


def flips(unit: MatrixUnit, u: UOp) -> bool:
    """Whether both operands of the REDUCE `u` have one dtype (int8 or uint8) while `unit` multiplies a signed by an
    unsigned one, so that the top bit of one operand must be flipped.
    """
    a, b = (x.src[0].dtype for x in u.src[0].src)
    return a is b and unit.a is not unit.b


def products(
    unit: MatrixUnit, u: UOp, a: UOp, b: UOp, closed: list[UOp], columns: list[UOp], kernel: Iterable[UOp]
) -> UOp:
    """Return the REDUCE `u`, a sum of a * b over the RANGEs `closed`, in the form that the matrix unit `unit` takes.

    Where the unit needs a flipped operand (`flips`), that is a sum of products minus a correction. `a`, `b`: the new
    LOADs. `columns`: the RANGEs that move b. `kernel`: the nodes of the kernel so far, whose numbers of RANGEs and
    slots are taken.
    """

    def total(x: UOp, y: UOp) -> UOp:
        factors = (build("CAST", z, arg=u.dtype) for z in (x, y))
        return node("REDUCE", (build("MUL", *factors), *closed), u.arg)

    if not flips(unit, u):
        return total(a, b)
    d = FLIPS[a.dtype]
    top = const(128 if d is dtypes.uint8 else -128, d)  # 0 with its top bit flipped
    return build(
        "SUB",
        total(build("XOR", build("BITCAST", a, arg=d), top), b),
        _from_local_memory(total(top, _without_prefetches(b)), columns, toposort(*kernel)),
    )


def _without_prefetches(load: UOp) -> UOp:
    """Return `load`, the LOAD of an element, without PREFETCHes before it: their addresses depend on the loops of the
    rows, which a sum of columns is outside of.
    """
    address = load.src[0]
    memory = address.src[0]
    if memory.op != "AFTER" or any(s.op != "PREFETCH" for s in memory.src[1:]):
        return load
    return node("LOAD", (node("INDEX", (memory.src[0], *address.src[1:])), *load.src[1:]), load.arg)


def _from_local_memory(x: UOp, columns: list[UOp], order: Sequence[UOp]) -> UOp:
    """Return a LOAD of the value `x` from a new LOCAL buffer that loops over `columns` fill first.

    `columns`: the RANGEs that `x` depends on and that become the buffer's axes. `order`: the nodes of the kernel, whose
    numbers of RANGEs and slots are taken.
    """
    ids = unused_ranges(order)
    slot = next(unused_slots(order))
    mine = {r: node("RANGE", r.src, (next(ids), r.arg[1])) for r in columns}
    sizes = [int(min_max(r.src[0])[1]) for r in columns]
    memory = node("BUFFER", (shape_source((prod(sizes),)),), BufferArg(slot, x.dtype, None, "LOCAL"))
    index = idx(0)
    for r, n in zip(columns, sizes, strict=True):
        index = index * n + r
    store = node("STORE", (node("INDEX", (memory, substitute(index, mine))), substitute(x, mine)))
    filled = node("AFTER", (memory, node("END", (store, *mine.values()))))
    return node("LOAD", (node("INDEX", (filled, index)),))


__all__ = ["MatrixUnits", "matrix_units", "check", "flips", "operands", "products"]

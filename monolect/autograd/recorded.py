"""Build the nodes of a formula again from rows that were recorded, without the formula's Python code and without rules.

What it is for: a program without `jit` applies the same formulas, such as tanh or a matrix product, to values of the
same shapes again and again, and building their nodes takes longer than the kernels.
What it is not: a cache of nodes or of values. The rows name operands by number, so they hold no memory.

Invariant: the nodes and derivatives are those that the formula makes. So operands are floats of known sizes on one
device, of ops that no simplifier of a formula looks into (OPAQUE), and operands of commutative ops are ordered again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from monolect.autograd.closed_forms import ClosedForm, closed
from monolect.autograd.sharding import use
from monolect.base.dtype import DType, dtypes
from monolect.ir.placement import device, note_value_of, placement
from monolect.ir.rewrite import normal
from monolect.ir.rewrite.operand_order import compare
from monolect.ir.uop import UOp, node, toposort

MAX_RECORDS = 256  # records of one formula; beyond it all are dropped: they are those of a loop over many shapes
# ops of operands that no simplifier looks into: of formulas that begin with views, and of others
NOT_VIEWS = frozenset(("BUFFER", "REDUCE", "ADD", "SUB", "MUL", "DIV", "MAX", "EXP2"))
OPAQUE = NOT_VIEWS | {"RESHAPE", "PERMUTE", "SHRINK", "EXPAND"}
_FLOATS = (dtypes.float32, dtypes.float64)


class _Row(NamedTuple):
    """A node of a formula. `src`: numbers of its sources among operands, constants and earlier rows, in this order."""

    op: str
    src: tuple[int, ...]
    arg: Any
    tag: Any
    known: tuple[DType, tuple[Any, ...]]  # dtype and shape
    is_ordered: bool  # whether the two sources are in canonical order, which depends on the operands


@dataclass(frozen=True, eq=False)
class _Record:
    """The nodes of a formula: `constants`, which need no operand, and `rows`. `derivatives`: (number of a node, numbers
    of its inputs, derivative) of each node with a derivative in closed form. `result`: number of the formula's result.
    `is_value`: whether that is a computed value, and no view of memory.
    """

    constants: tuple[UOp, ...]
    rows: tuple[_Row, ...]
    derivatives: tuple[tuple[int, tuple[int, ...], ClosedForm], ...]
    result: int
    is_value: bool

    def applied(self, operands: Sequence[UOp]) -> UOp:
        """Return the result of the formula on `operands`."""
        nodes = [*operands, *self.constants]
        for op, src, arg, tag, known, is_ordered in self.rows:
            sources = tuple([nodes[i] for i in src])
            if is_ordered and compare(*sources) > 0:
                sources = sources[::-1]
            nodes.append(node(op, sources, arg, tag, known))
        for i, inputs, derivative in self.derivatives:
            closed[nodes[i]] = tuple([nodes[k] for k in inputs]), derivative
        result = nodes[self.result]
        if self.is_value:
            note_value_of(result, operands)
        applications[result] = self, tuple(operands)
        return result


# the result of a formula -> (its record, operands); both tell all nodes between
applications: WeakKeyDictionary[UOp, tuple[_Record, tuple[UOp, ...]]] = WeakKeyDictionary()


def recorded(formula: Callable[..., UOp], opaque: frozenset[str] = OPAQUE) -> Callable[..., UOp]:
    """Return `formula`, a function of nodes and then of other hashable values, that builds its nodes from a record for
    operands of dtypes and shapes that it was called with before. The result depends on nothing else.

    `opaque`: ops of operands that no simplifier of the formula looks into.
    """
    records: dict[tuple, _Record | None] = {}

    @wraps(formula)
    def built(*args: Any) -> UOp:
        key: list[Any] = []
        operands = []
        for x in args:
            if x.__class__ is not UOp:
                key.append(x)
            elif x.op not in opaque or x.dtype not in _FLOATS:
                return formula(*args)
            else:
                key += (x.dtype, x.shape)
                operands.append(x)
        is_divided = use.found and any([isinstance(device(x), tuple) for x in operands])
        if is_divided or normal.allowed is not None or len({*operands}) < len(operands):
            return formula(*args)
        known = tuple(key)
        record = records.get(known)
        if record is not None:
            return record.applied(operands)
        result = formula(*args)
        if known not in records:
            if len(records) >= MAX_RECORDS:
                records.clear()
            records[known] = record = _record(operands, result)
            if record is not None:
                applications[result] = record, tuple(operands)
        return result

    return built


def _record(operands: Sequence[UOp], result: UOp) -> _Record | None:
    """Return how `result` is built from `operands`; None if a size is symbolic, or if it cannot be built by rows."""
    inside = {*operands}
    order = [u for u in toposort(result, stop=inside.__contains__) if u not in inside]
    needs = {*operands}
    for u in order:
        if not needs.isdisjoint(u.src):
            needs.add(u)
    constants = [u for u in order if u not in needs]
    made = [u for u in order if u in needs]
    if result not in needs or result in operands:
        return None
    uses_memory = any(u.op in ("BUFFER", "PARAM") for u in constants)
    is_symbolic = any(n.__class__ is not int for u in made for n in u.shape)
    has_conditions = any(u.op == s.op == "AND" for u in made for s in u.src)  # they are sorted all together
    if uses_memory or is_symbolic or has_conditions:
        return None
    number = {u: i for i, u in enumerate((*operands, *constants, *made))}
    rows, derivatives = [], []
    for u in made:
        is_ordered = u.op in normal.ORDERED and "CONST" not in (u.src[0].op, u.src[1].op)
        rows.append(_Row(u.op, tuple([number[s] for s in u.src]), u.arg, u.tag, (u.dtype, u.shape), is_ordered))
        if (c := closed.get(u)) is not None:
            inputs, derivative = c
            if not number.keys() >= {*inputs}:
                return None
            derivatives.append((number[u], tuple([number[x] for x in inputs]), derivative))
    is_value = placement(result)[1] is None
    return _Record(tuple(constants), tuple(rows), tuple(derivatives), number[result], is_value)


__all__ = ["NOT_VIEWS", "OPAQUE", "applications", "recorded"]

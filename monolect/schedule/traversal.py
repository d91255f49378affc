"""In which order the partition meets operands that may stand in any order.

Operands of ADD, MUL and the like stand in the order in which their nodes were made, also long before, by other programs
of the process. Decisions of a walk that took them as they stand would hang on that. So it takes them by what they are:
first the one that less is computed for, else the one with the lesser name, which tells what a value is made of, and
what is made of it.

Invariant: graphs that differ in the order of such operands alone are walked in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable

from monolect.base.disk.hashing import blake2b
from monolect.ir.ops import COMMUTATIVE
from monolect.ir.uop import UOp
from monolect.schedule.materialize import below, values

Sources = dict[UOp, tuple[UOp, ...]]  # what each value is made of, sources first


def walk(roots: list[UOp]) -> list[UOp]:
    """`values`, in an order that does not depend on how operands stand that may stand in any order."""
    order = values(roots)
    made_of = {u: below(u) for u in order}
    heights: dict[UOp, int] = {}
    names: dict[UOp, int] = {}
    turned: dict[UOp, tuple[UOp, ...]] = {}
    for u in order:
        heights[u] = 1 + max([heights[s] for s in made_of[u]], default=0)
        if u.op not in COMMUTATIVE or (x := u.src[0]) is (y := u.src[1]) or y.op == "CONST":
            continue
        by = heights[x] - heights[y]
        if by == 0:
            names = names or _names(made_of, roots)
            by = 1 if names[x] > names[y] else 0
        if by > 0:
            turned[u] = (y, x)
    return values(roots, (made_of | turned).__getitem__) if turned else order


def _names(made_of: Sources, roots: list[UOp]) -> dict[UOp, int]:
    """What tells values apart by what they are made of, what is made of them, and of what else that is made. Not by the
    numbers of buffers: those are given in the order in which another walk met them.
    """
    above: dict[UOp, list[int]] = {u: [] for u in made_of}
    for k, r in enumerate(roots):
        above[r].append(k)
    made = _joined(made_of, _kinds(made_of))
    beside: dict[UOp, int] = {}
    for u in reversed(made_of):
        beside[u] = name = hash((made[u], *sorted(above[u])))
        for k, s in enumerate(made_of[u]):
            above[s].append(name if u.op in COMMUTATIVE else hash((name, k)))
    return _joined(made_of, beside)


def _joined(made_of: Sources, names: dict[UOp, int]) -> dict[UOp, int]:
    """Names of values with those of all that they are made of."""
    out: dict[UOp, int] = {}
    for u, sources in made_of.items():
        parts = [out[s] for s in sources]
        if u.op in COMMUTATIVE:
            parts.sort()
        out[u] = hash((names[u], *parts))  # of whole numbers: the same in any process
    return out


def _kinds(order: Iterable[UOp]) -> dict[UOp, int]:
    """A number for what each value does, whatever it does it to."""
    known: dict[tuple, int] = {}
    out: dict[UOp, int] = {}
    for u in order:
        is_buffer = u.op == "BUFFER" or (u.op == "PARAM" and u.arg.name is None)
        places = u.src[1:] if u.op == "PAD" or u.op == "SHRINK" else ()
        key = (u.op, u.dtype, u.shape, None if is_buffer else u.arg, places)
        kind = known.get(key)
        if kind is None:
            text = f"{u.op} {u.dtype.short} {u.shape} {key[3]} {[s.sizes for s in places]}"
            kind = known[key] = int.from_bytes(blake2b(text.encode(), digest_size=7).digest())
        out[u] = kind
    return out


__all__ = ["walk"]

"""Traverse a tensor graph in an order that does not depend on the operand order of commutative ops.

Operands of ADD, MUL and the like are ordered by when their nodes were made, perhaps by another program of the process.
The partitioner visits them in a canonical order instead, so that its decisions are reproducible. The operand of smaller
height comes first; operands of equal height are ordered by a structural hash.

Invariant: graphs that differ only in the operand order of commutative ops are walked in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable

from monolect.base.disk.hashing import blake2b
from monolect.ir.ops import COMMUTATIVE
from monolect.ir.uop import UOp
from monolect.schedule.materialize import operands_of, values

Sources = dict[UOp, tuple[UOp, ...]]  # the operands of each value; keys are ordered sources first


def walk(roots: list[UOp]) -> list[UOp]:
    """Return the values below `roots`, sources first, in an order independent of the operand order of commutative
    ops.
    """
    order = values(roots)
    operands = {u: operands_of(u) for u in order}
    heights: dict[UOp, int] = {}
    hashes: dict[UOp, int] = {}
    swapped: dict[UOp, tuple[UOp, ...]] = {}
    for u in order:
        heights[u] = 1 + max([heights[s] for s in operands[u]], default=0)
        if u.op not in COMMUTATIVE or (x := u.src[0]) is (y := u.src[1]) or y.op == "CONST":
            continue
        by = heights[x] - heights[y]
        if by == 0:
            hashes = hashes or _structural_hashes(operands, roots)
            by = 1 if hashes[x] > hashes[y] else 0
        if by > 0:
            swapped[u] = (y, x)
    return values(roots, (operands | swapped).__getitem__) if swapped else order


def _structural_hashes(operands: Sources, roots: list[UOp]) -> dict[UOp, int]:
    """Return a hash of each value that covers its operands, its users, and the users' other operands.

    The hash does not depend on numbers of buffers, which are given in the order of another walk.
    """
    user_hashes: dict[UOp, list[int]] = {u: [] for u in operands}
    for k, r in enumerate(roots):
        user_hashes[r].append(k)
    made = _with_operands(operands, _local_hashes(operands))
    with_users: dict[UOp, int] = {}
    for u in reversed(operands):
        with_users[u] = name = hash((made[u], *sorted(user_hashes[u])))
        for k, s in enumerate(operands[u]):
            user_hashes[s].append(name if u.op in COMMUTATIVE else hash((name, k)))
    return _with_operands(operands, with_users)


def _with_operands(operands: Sources, hashes: dict[UOp, int]) -> dict[UOp, int]:
    """Combine the hash of each value with the hashes of everything below it."""
    out: dict[UOp, int] = {}
    for u, sources in operands.items():
        parts = [out[s] for s in sources]
        if u.op in COMMUTATIVE:
            parts.sort()
        out[u] = hash((hashes[u], *parts))  # a hash of integers, so it is the same in every process
    return out


def _local_hashes(order: Iterable[UOp]) -> dict[UOp, int]:
    """Return a hash of the op, dtype, shape and arg of each value, without its operands and without buffer numbers."""
    known: dict[tuple, int] = {}
    out: dict[UOp, int] = {}
    for u in order:
        is_buffer = u.op == "BUFFER" or (u.op == "PARAM" and u.arg.name is None)
        offsets = u.src[1:] if u.op == "PAD" or u.op == "SHRINK" else ()
        key = (u.op, u.dtype, u.shape, None if is_buffer else u.arg, offsets)
        local_hash = known.get(key)
        if local_hash is None:
            text = f"{u.op} {u.dtype.short} {u.shape} {key[3]} {[s.sizes for s in offsets]}"
            local_hash = known[key] = int.from_bytes(blake2b(text.encode(), digest_size=7).digest())
        out[u] = local_hash
    return out


__all__ = ["walk"]

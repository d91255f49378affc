"""A short, stable name for a graph: equal graphs have equal digests, in every process.

It names kernels in the disk cache, so it depends on ops, args and structure only, never on addresses. Operands of
commutative ops count in any order, because their order is the order in which nodes happened to be made. Slots of
BUFFERs and RANGE ids are part of `arg`; kernels number both canonically.
"""

from __future__ import annotations

from monolect.base.disk.hashing import blake2b
from monolect.ir.ops import COMMUTATIVE
from monolect.ir.uop import UOp, toposort


def digest(u: UOp) -> str:
    """128 bits of hexadecimal."""
    return digests(u)[u].hex()


def digests(u: UOp) -> dict[UOp, bytes]:
    """The 128 bits of each node under `u`."""
    names: dict[UOp, bytes] = {}
    for n in toposort(u):
        below = [names[s] for s in n.src]
        if n.op in COMMUTATIVE:
            below.sort()
        text = f"{n.op} {n.arg!r} {n.tag!r}".encode()
        names[n] = blake2b(b"".join((*below, text)), digest_size=16).digest()
    return names

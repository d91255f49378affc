"""Hash graphs: equal graphs have equal digests (128-bit hashes) in every process.

The disk cache names kernels by their digest, so a digest depends on ops, arguments, tags and structure, never on
addresses. Slots of BUFFERs and ids of RANGEs count, as parts of `arg`; kernels number both canonically.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from monolect.base.disk.hashing import blake2b
from monolect.ir.uop import UOp, nodes_of, toposort

_known: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()  # results of `digest`


def digest(u: UOp) -> str:
    """Return the 128-bit digest of node `u` and the graph below it, as 32 hexadecimal digits."""
    found = _known.get(u)
    if found is None:
        found = _known[u] = digests(u)[u].hex()
    return found


def digests(u: UOp) -> dict[UOp, bytes]:
    """Return a dict from node to digest, 16 bytes each, for `u` and every node below it."""
    names: dict[UOp, bytes] = {}
    for n in nodes_of(u) if u.op == "SINK" else toposort(u):
        below = [names[s] for s in n.src]
        text = f"{n.op} {n.arg!r} {n.tag!r}".encode()
        names[n] = blake2b(b"".join((*below, text)), digest_size=16).digest()
    return names


__all__ = ["digest", "digests"]

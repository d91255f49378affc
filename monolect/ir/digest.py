"""A short, stable name for a graph: equal graphs have equal digests, in every process.

It names kernels in the disk cache, so it depends on ops, args and structure only, never on addresses or on the order in
which nodes were made. Slots of BUFFERs and RANGE ids are part of `arg`; kernels number both canonically.
"""

from __future__ import annotations

from hashlib import blake2b

from monolect.ir.uop import UOp, toposort


def digest(u: UOp) -> str:
    """128 bits of hexadecimal."""
    number: dict[UOp, int] = {}
    lines = []
    for n in toposort(u):
        number[n] = len(number)
        lines.append(f"{n.op}{[number[s] for s in n.src]}{n.arg!r}{n.tag!r}")
    return blake2b("\n".join(lines).encode(), digest_size=16).hexdigest()

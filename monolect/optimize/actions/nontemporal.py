"""NONTEMPORAL: let a store bypass the caches.

For outputs larger than the last cache, a non-temporal store saves the read of each cache line before the line is
overwritten. It must write whole, aligned vectors. The action is illegal where that is not proven: for a store with a
gate, at an offset that is no multiple of the vector, or to memory that the kernel reads.

Before: STORE(INDEX(PARAM0, r0*16 + u), x)              u: UPCAST of 16
After:  STORE(INDEX(PARAM0, r0*16 + u), x, nontemporal)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.bounds import ranges
from monolect.ir.rewrite.named_rules import Row
from monolect.ir.rewrite.normal import linear
from monolect.ir.uop import UOp
from monolect.optimize.actions.kind import ActionKind, Move, Moves, numbered
from monolect.optimize.loops.accesses import buffer_bytes, vector_of
from monolect.optimize.loops.nest import LoopNest

MIN_NONTEMPORAL_BYTES = 16  # bytes; shorter vectors cannot be stored past the caches


class Nontemporal(ActionKind):
    """Action NONTEMPORAL: make a STORE bypass the caches, by a flag in its arg."""

    op = "NONTEMPORAL"
    forms = (('("NONTEMPORAL", store, None)', "make STORE number `store` bypass the caches"),)
    rows = (Row("NONTEMPORAL", "a store bypasses the caches"),)
    subject = "store"
    is_final, is_loop_change = True, False

    def perform(self, plan: LoopNest, subject: int, arg: Any) -> None:
        plan.flags[store_to_bypass(plan, subject)] = "nontemporal"

    @property
    def moves(self) -> Moves:
        return {self.op: nontemporal}


def store_to_bypass(plan: LoopNest, number: Any) -> UOp:
    """Return `plan.stores[number]`. Raises ActionError unless the STORE is proven to write whole aligned vectors,
    always and once, to memory that the kernel does not read.
    """
    u = numbered(plan, "NONTEMPORAL", "store", plan.stores, number)
    if u.op != "STORE" or u.arg is not None or u.src[0].src[0].op != "PARAM":
        raise ActionError("NONTEMPORAL", expected="a plain STORE to memory", found=repr(u))
    # the peeled tail is masked, and not stored past the caches
    peeled = {p.root for p, ends in plan.peeled.items() if ends[-1]}
    if len(u.src) > 2 or any(r in plan.padded and r not in peeled for r in ranges(u)):
        raise ActionError("NONTEMPORAL", expected="a store that always happens", found="a gate")
    if plan.sequential - plan.running or any(p.is_block and p.root in plan.reduced for p in plan.axes):
        raise ActionError("NONTEMPORAL", expected="a store that happens once", found="a scan, or blocks of a sum")
    if any(v.op == "LOAD" and v.src[0].op == "INDEX" and v.src[0].src[0] is u.src[0].src[0] for v in plan.order):
        raise ActionError("NONTEMPORAL", expected="memory that the kernel does not read", found=repr(u.src[0].src[0]))
    p = vector_of(plan, u)
    n_bytes = p.size * u.src[1].dtype.itemsize if p is not None else 0
    if p is None or n_bytes < MIN_NONTEMPORAL_BYTES or n_bytes & (n_bytes - 1) or n_bytes > plan.target.vector_bytes:
        raise ActionError("NONTEMPORAL", expected="vectors of 16 bytes up to a register", found=n_bytes)
    k, terms = linear(u.src[0].src[1])
    steps = [k]
    for x, c in terms:
        parts = [q for q in plan.axes if q.root is x]
        if not parts:
            raise ActionError("NONTEMPORAL", expected="an index linear in the loops", found=repr(x))
        steps += [c * q.stride for q in parts if q is not p]
    if any(s % p.size for s in steps):
        raise ActionError("NONTEMPORAL", expected=f"steps that are multiples of {p.size}", found=steps)
    return u


def nontemporal(plan: LoopNest) -> Iterator[Move]:
    """Yield a NONTEMPORAL for each store, if the kernel's outputs together take at least half of the L3 cache."""
    large = plan.target.streams and sum(map(buffer_bytes, plan.stores)) >= plan.target.l3_bytes // 2
    return ((("NONTEMPORAL", i, None),) for i in range(len(plan.stores) * large))


__all__ = ["Nontemporal", "nontemporal"]

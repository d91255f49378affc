"""Registers that are indexed become memory: a REG buffer of which elements are read or written is LOCAL.

Registers have no addresses. LOCAL memory belongs to one thread where the target has no workgroups; elsewhere the
compiler of the device keeps such arrays.

Before: BUFFER(REG) f32[8], INDEX(BUFFER, i)
After:  BUFFER(LOCAL) f32[8], INDEX(BUFFER, i)
"""

from __future__ import annotations

from math import prod

from monolect.base.errors import CompileError
from monolect.base.target import Target
from monolect.ir.bounds import unused_slots
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, substitute, toposort


def demote_registers(sink: UOp, target: Target) -> UOp:
    """See the module docstring. Raises CompileError where the local memory is too small."""
    if target.workgroups or not target.local_bytes:
        return sink
    order = toposort(sink)
    indexed = [memory_of(u.src[0]) for u in order if u.op == "INDEX" and len(u.src) > 1]
    found = list(dict.fromkeys(b for b in indexed if b.op == "BUFFER" and b.arg.addrspace == "REG"))
    if not found:
        return sink
    n_bytes = sum(prod(b.shape) * b.dtype.itemsize for b in found)
    if n_bytes > target.local_bytes:
        expected = f"at most {target.local_bytes} bytes on {target.name}"
        raise CompileError("registers that are indexed, and so in memory", expected=expected, found=f"{n_bytes} bytes")
    slots = unused_slots(order)
    return substitute(
        sink, {b: node("BUFFER", b.src, b.arg._replace(slot=next(slots), addrspace="LOCAL")) for b in found}
    )

"""Move indexed registers to memory: a REG buffer whose elements are read or written individually becomes LOCAL.

Registers have no addresses. LOCAL memory is private to a thread on targets without workgroups; on others the compiler
of the device allocates such arrays.

Before: BUFFER(REG) f32[8], INDEX(BUFFER, i)
After:  BUFFER(LOCAL) f32[8], INDEX(BUFFER, i)
"""

from __future__ import annotations

from math import prod

from monolect.base.errors import CompileError
from monolect.base.target import Target
from monolect.ir.bounds import unused_slots
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, node, nodes_of, substitute


def demote_registers(sink: UOp, target: Target) -> UOp:
    """Pass: replace indexed REG buffers by LOCAL ones on targets without workgroups.

    Raises CompileError if local memory is too small.
    """
    if target.workgroups or not target.local_bytes:
        return sink
    order = nodes_of(sink)
    indexed = [memory_of(u.src[0]) for u in order if u.op == "INDEX" and len(u.src) > 1]
    found = list(dict.fromkeys(b for b in indexed if b.op == "BUFFER" and b.arg.addrspace == "REG"))
    if not found:
        return sink
    n_bytes = sum(prod(b.shape) * b.dtype.itemsize for b in found)
    if n_bytes > target.local_bytes:
        expected = f"at most {target.local_bytes} bytes on {target.name}"
        raise CompileError("indexed registers do not fit local memory", expected=expected, found=f"{n_bytes} bytes")
    slots = unused_slots(order)
    return substitute(
        sink, {b: node("BUFFER", b.src, b.arg._replace(slot=next(slots), addrspace="LOCAL")) for b in found}
    )


__all__ = ["demote_registers"]

"""Instruction selection on values: ops and types that the target lacks are decomposed or legalised.

A product of tiles becomes WMMA where the target has a unit for it. Values keep their shape throughout; a decomposition
is elementwise and so works on a whole block at once. Registers have no addresses: a REG buffer that is read or written
at an index becomes LOCAL memory, which belongs to one thread where the target has no workgroups.

Before: (target without EXP2)  EXP2 f32[16]
After:  MULACC, BITCAST, ... f32[16]
Invariant: every elementwise op left is in the target's native set, on dtypes the target computes in. No rounding is
added or removed: a MULACC comes from the graph, from a sum of products (`lower.reduce`) or from a decomposition.
"""

from __future__ import annotations

from math import prod

from monolect.base.errors import CompileError
from monolect.base.target import Target
from monolect.ir.bounds import unused_slots
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.place import memory_of
from monolect.ir.uop import UOp, node, rebuild, substitute, toposort
from monolect.lower.matrix import multiply
from monolect.rules.decompose import decompose
from monolect.rules.legalize import legalize


def select(sink: UOp, target: Target) -> UOp:
    """See the module docstring."""
    order = toposort(sink)
    if not target.workgroups and target.local_bytes and (found := _indexed_registers(order)):
        sink = _in_memory(sink, order, found, target)
        order = toposort(sink)
    units = target.units and any(u.op in ("REDUCE", "WMMA") for u in order)
    if units or not all(_is_native(u, target) for u in order):
        sink = _rewrite(sink, target)
    return sink


def _indexed_registers(order: list[UOp]) -> list[UOp]:
    """The REG buffers of which elements are read or written."""
    places = [memory_of(u.src[0]) for u in order if u.op == "INDEX" and len(u.src) > 1]
    return list(dict.fromkeys(b for b in places if b.op == "BUFFER" and b.arg.addrspace == "REG"))


def _in_memory(sink: UOp, order: list[UOp], found: list[UOp], target: Target) -> UOp:
    """`sink` with LOCAL memory for the REG buffers `found`. Raises CompileError where that is too small."""
    n_bytes = sum(prod(b.shape) * b.dtype.itemsize for b in found)
    if n_bytes > target.local_bytes:
        expected = f"at most {target.local_bytes} bytes on {target.name}"
        raise CompileError("registers that are indexed, and so in memory", expected=expected, found=f"{n_bytes} bytes")
    slots = unused_slots(order)
    mapping = {b: node("BUFFER", b.src, b.arg._replace(slot=next(slots), addrspace="LOCAL")) for b in found}
    return substitute(sink, mapping)


def _is_native(u: UOp, target: Target) -> bool:
    if u.op not in ELEMENTWISE:
        return u.op not in ("REDUCE", "SCAN") or u.dtype in target.native_dtypes
    types = target.native_dtypes
    if u.op not in target.native or u.dtype not in types or any(s.dtype not in types for s in u.src):
        return False
    return decompose(u, target.native) is None  # |x| is a pattern of two nodes, both of which a target may have


def _rewrite(sink: UOp, target: Target) -> UOp:
    """Rewrite to a fixed point on an explicit stack. A node is asked before its sources change (exp is two nodes), and
    again after.
    """
    done: dict[UOp, UOp] = {}
    instead: dict[UOp, UOp] = {}
    stack = [sink]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        if u not in instead:
            instead[u] = _replacement(u, target)
        head = instead[u]
        pending = [s for s in (u.src if head is u else (head,)) if s not in done]
        if pending:
            stack.extend(reversed(pending))
        elif head is not u:
            done[u] = done[head]
        else:
            new = rebuild(u, tuple(done[s] for s in u.src))
            if new is u:
                done[u] = u
            else:
                instead[u] = new
    return done[sink]


def _replacement(u: UOp, target: Target) -> UOp:
    """What stands for `u` on the target, `u` itself if that may."""
    if target.units and u.op in ("ADD", "RESHAPE") and (tiles := multiply(u, target.units)) is not None:
        return tiles
    if u.op not in ELEMENTWISE and u.op not in ("REDUCE", "SCAN"):
        return u
    out = legalize(u, target.native_dtypes, target.cast_dtypes)
    out = decompose(u, target.native) if out is None else out
    return u if out is None else out

"""Flatten memory of several axes in a kernel to one axis, since all passes count elements along one axis.

The scheduler writes flat memory. A user may write LOCAL and REG buffers of any shape, index some of their axes, and
read or write them as a whole. Accumulators, which are REG buffers that are never indexed, stay as they are.

Before: INDEX(BUFFER[2,3], r0, r1)
After:  INDEX(BUFFER[6], r0*3 + r1)
Invariant: the shapes of values stay; each index names the same element.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from monolect.base.errors import VerifyError
from monolect.ir.placement import is_memory, memory_of
from monolect.ir.rewrite.named_rules import Family, Row, fired
from monolect.ir.uop import UOp, broadcast_to, build, idx, node, nodes_of, rebuild, shape_source

ROWS = Family(
    "memory", __name__,
    Row("flat_memory", "m[i, j] in memory of shape (a, b) is m[i*b + j]", "passes count elements along one axis"),
)  # fmt: skip

_MEMORY = ("AFTER", "PARAM", "BUFFER")
_ACCESSES = ("LOAD", "STORE", "ATOMICADD")


def flat_memory(sink: UOp) -> UOp:
    """Return the kernel `sink` with its PARAMs and BUFFERs of several axes flattened to one axis.

    Raises VerifyError for a view of such memory that is not an INDEX.
    """
    order = nodes_of(sink)
    multi_axis = _multi_axis_memory(order)
    if not multi_axis:
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([new[s] for s in u.src])
        if u in multi_axis:
            new[u] = node(u.op, (shape_source((prod(u.shape),)),), u.arg)
        elif (
            u.op in ("PARAM", "BUFFER") or not u.src or memory_of(u.src[0]) not in multi_axis or not is_memory(u.src[0])
        ):
            new[u] = rebuild(u, src)
        elif u.op == "AFTER" and u.src[0].op in _MEMORY:
            new[u] = node("AFTER", src)
        elif u.op == "INDEX" and u.src[0].op in _MEMORY:
            new[u] = fired("flat_memory", u, node("INDEX", (src[0], _flat_index(u, src[1:]))))
        elif u.op in _ACCESSES and u.src[0].op == "INDEX":
            new[u] = node(u.op, src, u.arg)
        elif u.op in _ACCESSES:
            new[u] = fired("flat_memory", u, _whole(u, src))
        else:
            raise VerifyError("a view of memory in a kernel", op=u.op, expected="INDEX", found=repr(u))
    return new[sink]


def _multi_axis_memory(order: Sequence[UOp]) -> set[UOp]:
    """Return the PARAMs and BUFFERs in `order` to flatten: those indexed along several axes, or accessed as a whole.

    Accumulators, and memory of symbolic shape, are left out.
    """
    indexed = {memory_of(u): len(u.src[0].shape) for u in order if u.op == "INDEX" and u.src[0].shape and is_memory(u)}
    accessed = (u.src[0] for u in order if u.op in _ACCESSES and u.src[0].op in _MEMORY and is_memory(u.src[0]))
    whole = {memory_of(v) for v in accessed if v.shape}
    accumulators = {b for b in whole if b.op == "BUFFER" and b.arg.addrspace == "REG" and b not in indexed}
    multi_axis = {b for b, rank in indexed.items() if rank > 1} | (whole - accumulators)
    return {b for b in multi_axis if all(n.__class__ is int for n in b.shape)}


def _flat_index(u: UOp, indices: tuple[UOp, ...]) -> UOp:
    """Return the flat index of the elements that `indices` name; axes without an index are taken completely."""
    shape, rank = u.src[0].shape, len(u.shape)
    rest = shape[len(indices) :]
    flat = idx(0) if not rest else build("RESHAPE", shape_source(range(prod(rest))), shape_source(rest))
    at = 0
    for k, i in enumerate(indices):
        at += len(i.shape)
        if i.shape and at < rank:
            i = build("RESHAPE", i, shape_source((*i.shape, *(1,) * (rank - at))))
        flat = build("ADD", build("MUL", i, idx(prod(shape[k + 1 :]))), flat)
    return flat


def _whole(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return `u`, a LOAD, STORE or ATOMICADD of all elements, as an access by a flat index, with values reshaped.

    `src`: the rewritten sources of `u`, the first of which is flat memory.
    """
    shape, flat = u.src[0].shape, src[0].shape
    elements = node("INDEX", (src[0], shape_source(range(flat[0]))))
    others = [x if not x.shape else build("RESHAPE", broadcast_to(x, shape), shape_source(flat)) for x in src[1:]]
    out = node(u.op, (elements, *others), u.arg)
    return build("RESHAPE", out, shape_source(shape)) if u.op == "LOAD" else out


__all__ = ["flat_memory"]

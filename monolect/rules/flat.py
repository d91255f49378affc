"""Memory of several axes in a kernel becomes memory of one: all passes count elements along one axis.

The scheduler writes flat memory; a user may write LOCAL and REG buffers of any shape, index some of their axes, and
read or write the whole of them. Accumulators, REG buffers that are never indexed, stay as they are.

Before: INDEX(BUFFER[2,3], r0, r1)
After:  INDEX(BUFFER[6], r0*3 + r1)
Invariant: the shapes of values stay what they were; each index means the same element.
"""

from __future__ import annotations

from math import prod

from monolect.base.errors import VerifyError
from monolect.ir.placement import is_memory, memory_of
from monolect.ir.rewrite.named_rules import Family, Row, fired
from monolect.ir.uop import UOp, build, idx, node, rebuild, shape_source, toposort

ROWS = Family(
    "memory", __name__,
    Row("flat_memory", "m[i, j], of memory of shape (a, b), is m[i*b + j]", "passes count elements along one axis"),
)  # fmt: skip

_MEMORY = ("AFTER", "PARAM", "BUFFER")
_ACCESSES = ("LOAD", "STORE", "ATOMICADD")


def flat_memory(sink: UOp) -> UOp:
    """See the module docstring. Raises VerifyError for a view of such memory that is no INDEX."""
    order = toposort(sink)
    found = _found(order)
    if not found:
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([new[s] for s in u.src])
        if u in found:
            new[u] = node(u.op, (shape_source((prod(u.shape),)),), u.arg)
        elif u.op in ("PARAM", "BUFFER") or not u.src or memory_of(u.src[0]) not in found or not is_memory(u.src[0]):
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


def _found(order: list[UOp]) -> set[UOp]:
    """Memory of several axes that is indexed; and memory that is read or written as a whole, but for accumulators."""
    indexed = {memory_of(u): len(u.src[0].shape) for u in order if u.op == "INDEX" and u.src[0].shape and is_memory(u)}
    accessed = (u.src[0] for u in order if u.op in _ACCESSES and u.src[0].op in _MEMORY and is_memory(u.src[0]))
    whole = {memory_of(v) for v in accessed if v.shape}
    kept = {b for b in whole if b.op == "BUFFER" and b.arg.addrspace == "REG" and b not in indexed}
    found = {b for b, rank in indexed.items() if rank > 1} | (whole - kept)
    return {b for b in found if all(n.__class__ is int for n in b.shape)}


def _flat_index(u: UOp, indices: tuple[UOp, ...]) -> UOp:
    """The elements that `indices` name, and all along the axes that they leave, counted along one axis."""
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
    """An access to all elements, each by its index: what it takes and gives keeps its shape."""
    shape, flat = u.src[0].shape, src[0].shape
    place = node("INDEX", (src[0], shape_source(range(flat[0]))))
    others = [x if not x.shape else build("RESHAPE", _expanded(x, shape), shape_source(flat)) for x in src[1:]]
    out = node(u.op, (place, *others), u.arg)
    return build("RESHAPE", out, shape_source(shape)) if u.op == "LOAD" else out


def _expanded(x: UOp, shape: tuple) -> UOp:
    if x.shape == shape:
        return x
    ones = (1,) * (len(shape) - len(x.shape))
    return build("EXPAND", build("RESHAPE", x, shape_source((*ones, *x.shape))), shape_source(shape))

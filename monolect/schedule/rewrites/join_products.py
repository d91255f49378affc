"""A sum of many short matrix products is one product of their operands, stored one after another.

A weight that each step of a recurrence reads gets a product of few rows from each step. The sum over steps of the sums
over rows is one sum over both: one kernel, whose tiles stay in registers through all of it, instead of one that meets
every product at every element, or of one a step that reads and writes all sums.

What it is not: for products so long that what they read is more than what they give, which cost less apart than
operands to be copied; nor for sums of which somebody reads a part.

Before: ADD(ADD(REDUCE(ADD, MUL(a0, b0)) over axis 0, REDUCE(ADD, MUL(a1, b1)) over axis 0), ...)
After:  REDUCE(ADD, MUL(CONTIGUOUS(a0, a1, ... joined), CONTIGUOUS(b0, b1, ... joined))) over axes 0 and 1
Invariant: shapes, dtypes and, up to the order of float additions, values stay.
"""

from __future__ import annotations

from collections import Counter

from monolect.autograd.graph import joined, reshape
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build, node, rebuild, toposort
from monolect.schedule.materialize import values
from monolect.schedule.provenance import renewed

MANY = 8  # products that are joined: fewer cost no less
REUSE = 32  # times that an element of an operand is used, from which on copying it costs less than what is gained
MOST = 64  # that are stored piece by piece (`rules.loops.concat`)
LONG = 4  # times as many elements in the operands as in the result: of sums so long nothing is gained


def join_products(roots: list[UOp]) -> list[UOp]:
    """See the module docstring."""
    order = values(roots)
    readers = Counter(s for u in toposort(*roots) for s in u.src)
    readers.update(roots)
    inner = {s for u in order if u.op == "ADD" for s in u.src if s.op == "ADD" and readers[s] == 1}
    sums = {u: found for u in order if u.op == "ADD" and u not in inner and (found := _products(u, inner, readers))}
    if not sums:
        return roots
    new: dict[UOp, UOp] = {}
    for u in toposort(*roots):
        new[u] = rebuild(u, tuple(new[s] for s in u.src))
        if u in sums:
            new[u] = _joined(u, sums[u], inner, new)
            new[u].origin = new[u].origin or u.origin
    return renewed(roots, new)


def _terms(u: UOp, inner: set[UOp]) -> list[UOp]:
    """What is added up to `u`, in order."""
    out: list[UOp] = []
    stack = [u]
    while stack:
        v = stack.pop()
        if v is u or v in inner:
            stack.extend(reversed(v.src))
        else:
            out.append(v)
    return out


def _products(u: UOp, inner: set[UOp], readers: Counter[UOp]) -> list[list[UOp]]:
    """The products among the terms of `u` that are worth joining, those of equal shapes together."""
    alike: dict[tuple, list[UOp]] = {}
    for v in _terms(u, inner):
        if readers[v] == 1 and (kind := _kind(v)):
            alike.setdefault(kind, []).append(v)
    groups = ((vs, -(-len(vs) // -(-len(vs) // MOST))) for vs in alike.values() if len(vs) >= MANY)
    return [vs[k : k + n] for vs, n in groups for k in range(0, len(vs), n)]


def _kind(v: UOp) -> tuple:
    """What products that may be joined have in common; empty where `v` is none, or better left alone."""
    v = _sum(v)
    if v.op != "REDUCE" or v.arg[0] != "ADD" or v.src[0].op != "MUL":
        return ()
    x, axis = v.src[0], v.arg[1][0]
    a, b = _factors(v)
    if any(n.__class__ is not int for n in x.shape) or any(len(f.shape) != len(x.shape) for f in (a, b)):
        return ()  # a size that is not known; a number times a tensor
    if any(f.shape[axis] != x.shape[axis] for f in (a, b)):
        return ()
    read = count(a.shape) + count(b.shape)
    if count(x.shape) < REUSE * read or read > LONG * count(v.shape):
        return ()
    return v.arg[1], x.dtype, a.shape, b.shape


def _factors(v: UOp) -> tuple[UOp, UOp]:
    """The operands of a product, without the axes along which they are repeated."""
    a, b = (s.src[0] if s.op == "EXPAND" else s for s in _sum(v).src[0].src)
    return a, b


def _sum(v: UOp) -> UOp:
    while v.op == "RESHAPE":
        v = v.src[0]
    return v


def _joined(u: UOp, products: list[list[UOp]], inner: set[UOp], new: dict[UOp, UOp]) -> UOp:
    """The sum `u` with each of `products` as one."""
    gone = {v for vs in products for v in vs}
    terms = [_one([tuple(new[f] for f in _factors(v)) for v in vs], vs[0]) for vs in products]
    terms += [new[v] for v in _terms(u, inner) if v not in gone]
    out = terms[0]
    for t in terms[1:]:
        out = build("ADD", out, t)
    return out


def _one(factors: list[tuple[UOp, ...]], like: UOp) -> UOp:
    """The sum of products, of the shape of one of them."""
    axes = _sum(like).arg[1]
    axis = axes[0]
    a, b = (_stacked([f[k] for f in factors], axis) for k in (0, 1))
    out = build("REDUCE", build("MUL", a, b), arg=("ADD", (axis, *(r + 1 for r in axes))))
    out.origin = like.origin
    return reshape(out, like.shape)


def _stacked(us: list[UOp], axis: int) -> UOp:
    """`us` in one buffer, one after another along an axis of their own before `axis`."""
    shape = us[0].shape
    return node("CONTIGUOUS", (joined([reshape(u, (*shape[:axis], 1, *shape[axis:])) for u in us], axis),))


__all__ = ["join_products"]

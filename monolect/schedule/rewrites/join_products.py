"""Replace a sum of many short matrix products by one product of their concatenated operands.

A weight that each step of a recurrence reads gets a product of few rows from each step. The sum over steps of sums over
rows is one reduction over both axes. That is one kernel whose tiles stay in registers throughout, instead of a kernel
per step that loads and stores all sums.

What it is not: it leaves products whose operands are several times larger than the result, where copying operands costs
more than it saves, and sums whose partial sums have other users.

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
from monolect.schedule.provenance import replace_roots

MIN_PRODUCTS = 8  # products; fewer are not worth joining
MIN_REUSE = 32  # uses of each operand element; below it, copying operands costs more than joining saves
MAX_PRODUCTS = 64  # products in one concatenation, which stores them piece by piece (`rules.loops.concat`)
MAX_READ_RATIO = 4  # operand elements per result element; above it, joining gains nothing


def join_products(roots: list[UOp]) -> list[UOp]:
    """Pass: replace many equally shaped contractions that are terms of one sum by one contraction of their stacked
    operands.
    """
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
    return replace_roots(roots, new)


def _terms(u: UOp, inner: set[UOp]) -> list[UOp]:
    """Return the terms of the sum `u`, in order. `inner`: the ADDs that belong to a larger sum."""
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
    """Return groups of products of equal shapes among the terms of `u` that are worth joining."""
    alike: dict[tuple, list[UOp]] = {}
    for v in _terms(u, inner):
        if readers[v] == 1 and (signature := _signature(v)):
            alike.setdefault(signature, []).append(v)
    groups = ((vs, -(-len(vs) // -(-len(vs) // MAX_PRODUCTS))) for vs in alike.values() if len(vs) >= MIN_PRODUCTS)
    return [vs[k : k + n] for vs, n in groups for k in range(0, len(vs), n)]


def _signature(v: UOp) -> tuple:
    """Return a key that products which can be joined have in common, or () if `v` is no product or not worth
    joining.
    """
    v = _sum(v)
    if v.op != "REDUCE" or v.arg[0] != "ADD" or v.src[0].op != "MUL":
        return ()
    x, axis = v.src[0], v.arg[1][0]
    a, b = _factors(v)
    if any(n.__class__ is not int for n in x.shape) or any(len(f.shape) != len(x.shape) for f in (a, b)):
        return ()  # a symbolic size, or a scalar times a tensor
    if any(f.shape[axis] != x.shape[axis] for f in (a, b)):
        return ()
    read = count(a.shape) + count(b.shape)
    if count(x.shape) < MIN_REUSE * read or read > MAX_READ_RATIO * count(v.shape):
        return ()
    return v.arg[1], x.dtype, a.shape, b.shape


def _factors(v: UOp) -> tuple[UOp, UOp]:
    """Return the two operands that the matrix product `v` multiplies, without EXPANDs."""
    a, b = (s.src[0] if s.op == "EXPAND" else s for s in _sum(v).src[0].src)
    return a, b


def _sum(v: UOp) -> UOp:
    """Return the value below the RESHAPEs on top of `v`: its REDUCE if `v` is a product."""
    while v.op == "RESHAPE":
        v = v.src[0]
    return v


def _joined(u: UOp, products: list[list[UOp]], inner: set[UOp], new: dict[UOp, UOp]) -> UOp:
    """Return the sum `u` with each group of `products` replaced by one product. `new`: rewritten nodes."""
    joined_terms = {v for vs in products for v in vs}
    terms = [_joined_product([tuple(new[f] for f in _factors(v)) for v in vs], vs[0]) for vs in products]
    terms += [new[v] for v in _terms(u, inner) if v not in joined_terms]
    out = terms[0]
    for t in terms[1:]:
        out = build("ADD", out, t)
    return out


def _joined_product(factors: list[tuple[UOp, ...]], like: UOp) -> UOp:
    """Return one product over concatenated `factors`, in the shape of `like`, one of the products."""
    axes = _sum(like).arg[1]
    axis = axes[0]
    a, b = (_stacked([f[k] for f in factors], axis) for k in (0, 1))
    out = build("REDUCE", build("MUL", a, b), arg=("ADD", (axis, *(r + 1 for r in axes))))
    out.origin = like.origin
    return reshape(out, like.shape)


def _stacked(us: list[UOp], axis: int) -> UOp:
    """Return `us` stacked along a new axis before `axis`, in one buffer."""
    shape = us[0].shape
    return node("CONTIGUOUS", (joined([reshape(u, (*shape[:axis], 1, *shape[axis:])) for u in us], axis),))


__all__ = ["join_products"]

"""Decide which values must have a buffer, and estimate the cost of recomputing each value.

Fusion is the default. A buffer is forced for requested values, CONTIGUOUS, LOADs to a device, and the target of a
partial assign; `partition` decides about all other values by these costs. The pass `own_targets` makes assigns
explicit: it copies the target of a partial STORE first if something else still reads it, so that reads before an assign
see the old value.

Invariant: after `own_targets` every AFTER either overwrites its target or owns it.
Source: none; the cost weights are measured ratios of vectorised op times on an AVX-512 CPU.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from monolect.base.dtype import dtypes
from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE, INVALID
from monolect.ir.rewrite.normal import conjuncts, count
from monolect.ir.uop import UOp, node, rebuild, toposort
from monolect.schedule.provenance import replace_roots
from monolect.schedule.ranges import overwrites, value_sources

FORCED = frozenset(("CONTIGUOUS", "LOAD"))  # ops whose values always get a buffer
_COUNTING = frozenset(("ADD", "MUL", "CMPLT", "CAST", "RESHAPE"))  # ops that compute positions from IOTAs
FREE = frozenset(("CONST", "IOTA", "DETACH", "CONTIGUOUS_BACKWARD"))  # ops without cost if they have no operands
# relative time of one op on one element; 1 for all other ops
WEIGHTS = {
    "EXP2": 12, "LOG2": 16, "SIN": 24, "POW": 60, "SQRT": 6, "RECIP": 4, "DIV": 4, "IDIV": 12, "MOD": 12,
    "THREEFRY": 90, "CAST": 1, "MULACC": 2,
}  # fmt: skip


class Cost(NamedTuple):
    """The cost of one element of a value.

    `ops`: weighted ops since the last buffer or reduction. `leaf`: the most elements of any buffer or reduction that
    the value is computed from. `reduces`: whether a reduction is fused below it. `product`: whether it is computed
    elementwise from a sum of products with reuse. `rows`: whether it depends on a reduction of `product` values.
    `heavy`: whether its kernel contains a contraction.
    """

    ops: int
    leaf: int
    reduces: bool
    product: bool = False
    rows: bool = False
    heavy: bool = False


ZERO_COST = Cost(0, 0, False)


def values(roots: list[UOp]) -> list[UOp]:
    """Return the tensor values below `roots`, sources first, including targets and values of effects but no shapes."""
    return toposort(*roots, sources=operands_of)


def operands_of(u: UOp) -> tuple[UOp, ...]:
    """Return the values that `u` is computed from: its sources, or for an AFTER the values and index tensors of its
    effects.
    """
    if u.op != "AFTER":
        return value_sources(u)
    if overwrites(u):
        return (u.src[1].src[1],)
    out = [u.src[0]]
    for e in u.src[1:]:
        out.extend(e.src[1:])
        v = e.src[0]
        # index tensors of the view that the effect writes through
        while v is not u.src[0] and v.op != "PARAM" and v.src:
            if v.op == "INDEX":
                out.extend(s for s in v.src[1:] if s.op != "CONST")
            v = v.src[0]
    return tuple(out)


def own_targets(roots: list[UOp]) -> list[UOp]:
    """Pass: rewrite each partial AFTER so that it owns its target. A target that is an input or has other readers is
    copied first.
    """
    order = values(roots)
    partial = [u for u in order if u.op == "AFTER" and not overwrites(u)]
    if not partial:
        return roots
    readers: Counter[UOp] = Counter()
    for u in order:
        readers.update(operands_of(u))  # with repeats: an assign may store the old values of its own target
    for r in set(roots):
        readers[r] += 1
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple(new.get(s, s) for s in u.src)
        if u.op == "AFTER":
            new[u] = _rewrite_overwrite(u, new) if overwrites(u) else _own_target(u, new, readers)
        elif src != u.src:
            new[u] = rebuild(u, src)
    return replace_roots(roots, new)


def _rewrite_overwrite(u: UOp, new: dict[UOp, UOp]) -> UOp:
    """Return the overwriting `u`, AFTER(X, STORE(X, v)), with v replaced by `new[v]`. X stays, as its content is not
    read.
    """
    x, value = u.src[1].src
    return u if value not in new else rebuild(u, (x, node("STORE", (x, new[value]))))


def _own_target(u: UOp, new: dict[UOp, UOp], readers: Counter[UOp]) -> UOp:
    """Return the partial AFTER `u` over a buffer that no other value reads, copied from the target where necessary."""
    old = u.src[0]
    base = new.get(old, old)
    if not is_forced(base) or readers[old] > 1:  # an AFTER with this one reader has a private buffer
        # filling a buffer with a constant is cheaper than copying it
        value = base.src[0] if _fill_value(base) is not None else base
        # the tag keeps this copy distinct from other copies of the same value
        base = node("CONTIGUOUS", (value,), None, u.serial)
    effects = []
    for e in u.src[1:]:
        view = _rebased(e.src[0], old, base, new)
        effects.append(node(e.op, (view, *(new.get(s, s) for s in e.src[1:])), e.arg))
    out = node("AFTER", (base, *effects))
    out.origin = u.origin
    return out


def _rebased(view: UOp, old: UOp, base: UOp, new: dict[UOp, UOp]) -> UOp:
    """Return the view of `old` that an effect writes through as the same view of `base`."""
    chain = []
    while view is not old:
        chain.append(view)
        view = view.src[0]
    for v in reversed(chain):
        base = rebuild(v, (base, *(new.get(s, s) for s in v.src[1:])))
    return base


def is_forced(u: UOp) -> bool:
    """Whether `u` gets a buffer regardless of its cost: a CONTIGUOUS, LOAD or AFTER."""
    return u.op in FORCED or u.op == "AFTER"


def _fill_value(u: UOp) -> UOp | None:
    """Return the CONST that fills all of the CONTIGUOUS `u`, or None."""
    if u.op != "CONTIGUOUS":
        return None
    while u.op in ("CONTIGUOUS", "EXPAND", "RESHAPE"):
        u = u.src[0]
    return u if u.op == "CONST" else None


def is_empty(u: UOp) -> bool:
    """Whether `u` is a CONTIGUOUS of INVALID: uninitialized memory that is written before it is read."""
    c = _fill_value(u)
    return c is not None and c.arg[0] is INVALID


def is_join(u: UOp) -> bool:
    """Whether `u` is a concatenation: a WHERE that chooses by position between views of buffers."""
    if u.op == "WHERE":
        return u.src[0].op == "CMPLT" and _is_position(u.src[0]) and all(map(is_join, u.src[1:]))
    while u.op in ("PAD", "SHRINK", "RESHAPE", "PERMUTE", "EXPAND", "CAST"):
        u = u.src[0]
    return u.op in ("PARAM", "BUFFER") or is_forced(u)


def costs(order: list[UOp], forced: set[UOp]) -> dict[UOp, Cost]:
    """Return the Cost of each value of `order`, which lists sources first; the values `forced` have buffers."""
    out: dict[UOp, Cost] = {}
    for u in order:
        op, operands = u.op, value_sources(u)
        if op in FREE and not operands:
            out[u] = ZERO_COST
            continue
        ops = most = leaf = 0
        reduces = product = rows = heavy = False
        for s in operands:
            if (c := out.get(s)) is not None:  # an effect has no cost
                ops, most, leaf = ops + c.ops, max(most, c.ops), max(leaf, c.leaf)
                reduces, rows, heavy = reduces or c.reduces, rows or c.rows, heavy or (c.heavy and s not in forced)
                product = product or (c.product and (s.shape == u.shape or op not in ELEMENTWISE))
        if op == "PARAM" or op == "BUFFER" or u in forced:
            out[u] = Cost(0, size_max(count(u.shape)), False, False, op == "CONTIGUOUS" and rows, heavy)
        elif op == "REDUCE":
            was_product, product = product, _is_product(u, out)
            heavy = heavy or reuses(u, out)
            out[u] = Cost(0, size_max(count(u.shape)), True, product, was_product and not product, heavy)
        elif op in ELEMENTWISE:
            out[u] = Cost(min(ops + _weight(u), 1 << 20), leaf, reduces, product, rows, heavy)
        else:
            out[u] = Cost(ops if op == "STACK" else most, leaf, reduces, product, rows, heavy)
    return out


def _is_product(u: UOp, cost: dict[UOp, Cost]) -> bool:
    """Whether `u` is a sum of products in which the elements of at least one factor are used 4 times or more."""
    x = u.src[0]
    while x.op in ("RESHAPE", "PERMUTE"):
        x = x.src[0]
    if u.arg[0] != "ADD" or x.op != "MUL":
        return False
    leaf = min(cost[s].leaf for s in x.src)
    return leaf > 0 and size_max(count(x.shape)) >= 4 * leaf


def _weight(u: UOp) -> int:
    """Return the weight of one op. Masks and index arithmetic are free: comparing again is cheaper than loading the
    result.
    """
    if u.dtype is dtypes.bool or (u.op == "CAST" and u.src[0].dtype is dtypes.bool) or u.dtype.kind == "x":
        return 0
    return WEIGHTS.get(u.op, 1)


def reuses(u: UOp, cost: dict[UOp, Cost]) -> bool:
    """Whether the REDUCE `u` is no scan and has at least 4 terms per element of the largest buffer that it reads.

    Matrix products and convolutions are such reductions.
    """
    leaf = cost[u.src[0]].leaf
    return leaf > 0 and size_max(count(u.src[0].shape)) >= 4 * leaf and scanned_axis(u) is None


def scanned_axis(u: UOp) -> int | None:
    """Return the output axis i along which the REDUCE `u` over j is a scan, or None for any other REDUCE.

    A scan reduces the elements with j <= i, or j < i. Its loop becomes one step of the loop over i, so nothing is
    computed twice.
    """
    body = u.src[0]
    while body.op == "CAST":
        body = body.src[0]
    if len(u.arg[1]) != 1 or body.op != "WHERE":
        return None
    for c in conjuncts(body.src[0]):
        if c.op == "CMPLT" and len(c.shape) == len(u.shape) and _long_axes(c.src[0]) == list(u.arg[1]):
            i = _long_axes(c.src[1])
            if len(i) == 1 and c.shape[i[0]] == c.shape[u.arg[1][0]] and _is_position(c):
                return i[0]
    return None


def _long_axes(u: UOp) -> list[int]:
    """Return the axes of `u` whose size is not 1."""
    return [a for a, n in enumerate(u.shape) if not (n.__class__ is int and n == 1)]


def _is_position(u: UOp) -> bool:
    """Whether `u` is computed from IOTAs and constants alone."""
    return u.op in ("IOTA", "CONST") or u.op in _COUNTING and all(map(_is_position, value_sources(u)))


__all__ = ["Cost", "operands_of", "costs", "is_forced", "own_targets", "reuses", "scanned_axis", "values"]

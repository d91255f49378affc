"""Replace a sum of a mask times values by the sum of the selected values, and by nan if a masked value is not finite.

A product with one-hot rows selects values; a product with a triangle of ones is a running sum. `rules.loops.reductions`
removes the loop over the values in both cases if masked terms are 0. A masked term is 0 times the value, which is nan
for inf and nan. So this pass counts the values that are not finite, both all of them and the selected ones. The first
count reads each value once; the second is computed like the sum. If the counts differ, the sum is nan. Values with a
known finite bound need no counts.

What it is not: it leaves sums whose loops would remain, and sums whose values depend on all loops of the result, where
the first count would be as much work as the sum. Sums of integers need no rewrite: their masked terms are 0.

Before: REDUCE(ADD, MUL(CAST(mask), x))
After:  s = REDUCE(ADD, WHERE(mask, x, 0)); WHERE(not finite among the chosen x < not finite among all x, nan, s)
Invariant: shapes, dtypes and, up to the order of float additions, values stay, also those that are not finite.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from operator import add, mul
from typing import NamedTuple

from monolect.autograd.graph import broadcast_to, cast, e, iota, shrink_axis, where
from monolect.base.dtype import dtypes
from monolect.ir.bounds import min_max, ranges
from monolect.ir.ops import ELEMENTWISE, INVALID
from monolect.ir.rewrite.normal import TRUE, conjuncts
from monolect.ir.uop import UOp, build, const, node, rebuild, toposort
from monolect.rules.loops.reductions import index_limit, without_loop
from monolect.schedule.provenance import replace_roots
from monolect.schedule.ranges import Index, full_index, placeholder, sources

MOVES = frozenset(("RESHAPE", "EXPAND", "PERMUTE", "FLIP", "SHRINK"))
# ops that `element` looks through
READ_THROUGH = MOVES | ELEMENTWISE | {"PAD", "DETACH", "CONTIGUOUS_BACKWARD"}
# ops that increase no absolute value
SAME = MOVES | {"PAD", "CAST", "NEG", "TRUNC", "DETACH", "CONTIGUOUS_BACKWARD", "CONTIGUOUS"}
# op -> bound of its absolute values from those of its sources
BOUNDS: dict[str, Callable[..., float]] = {
    "ADD": add, "SUB": add, "MUL": mul, "MAX": max, "WHERE": lambda c, a, b: max(a, b)
}  # fmt: skip
MAX_FINITE = 3e38  # a value up to this is finite in every float type but float16
MAX_NODES = 1000  # nodes of one element that are looked through; beyond them, an element is a placeholder


class Masked(NamedTuple):
    """The terms of a sum: `value` where `mask` is true, else 0 times `value`. Both have the shape that is reduced."""

    mask: UOp
    value: UOp


def masked_sums(roots: list[UOp], local_bytes: int = 0) -> list[UOp]:
    """Pass: rewrite the masked sums below `roots`. `local_bytes`: scratch memory that a kernel has for tables."""
    order = toposort(*roots)
    if not any(_masked(u) for u in order):
        return roots
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        found = _masked(v)
        new[u] = v if found is None else _sum_chosen(v, found, local_bytes) or v
        new[u].origin = new[u].origin or u.origin
    return replace_roots(roots, new)


def _masked(u: UOp) -> Masked | None:
    """Return the terms of `u` if it is a float sum of products with a mask, else None."""
    if u.op != "REDUCE" or u.arg[0] != "ADD" or not u.dtype.is_float:
        return None
    x, after = u.src[0], []
    while x.op in ("RESHAPE", "PERMUTE") or (x.op == "CAST" and x.src[0].dtype.is_float):
        if x.op == "CAST" and x.dtype.itemsize < x.src[0].dtype.itemsize:
            return None  # a finite value may become infinite in the narrower type
        after.append(x)
        x = x.src[0]
    if x.op == "MUL":
        for m, value in (x.src, x.src[::-1]):
            if (mask := _mask(m)) is not None:
                moves = [v for v in after if v.op != "CAST"]
                whole = broadcast_to(mask, x.shape), broadcast_to(value, x.shape)
                return Masked(_moved(whole[0], moves), cast(_moved(whole[1], moves), u.dtype))
    return None


def _mask(u: UOp) -> UOp | None:
    """Return the bools that the factor `u` was cast from, with its movements applied, or None."""
    moves = []
    while u.dtype is not dtypes.bool and (u.op in MOVES or u.op == "CAST"):
        moves.append(u)
        u = u.src[0]
    return _moved(u, [v for v in moves if v.op != "CAST"]) if u.dtype is dtypes.bool else None


def _moved(u: UOp, moves: list[UOp]) -> UOp:
    """Apply the movement ops `moves`, which lists the last one first, to `u`."""
    for v in reversed(moves):
        u = build(v.op, u, *v.src[1:], arg=v.arg)
    return u


def _sum_chosen(u: UOp, terms: Masked, local_bytes: int) -> UOp | None:
    """Return the sum `u` computed from its selected terms only, or None if that removes no loop or saves little."""
    mask, x = terms
    out = full_index(u.shape)
    ((_, index, _),) = sources(u, out, TRUE)
    condition, value = element(mask, index), element(x, index)
    closed = tuple(index[a] for a in u.arg[1])
    zero = const(0, u.dtype)
    chosen_terms = build("WHERE", condition, value, zero)
    short = without_loop(build("REDUCE", chosen_terms, *closed, arg=(u.arg[0], ())), out, local_bytes)
    if short is None:
        return None
    one = not any(v.op in ("REDUCE", "STORE") for v in toposort(short, stop=lambda v: v.op == "INDEX"))
    mask = mask if one else _with_scan_condition(mask, condition, u, index, out)
    total = _sum(build("WHERE", mask, x, zero), u)
    if max_abs(x) < inf:
        return total
    once = [a for a, i in enumerate(out) if i.op == "RANGE" and i not in ranges(value)]
    if not once:
        return None
    part = x
    for a in once:
        part = shrink_axis(part, a, 0, 1)
    n_all = _sum(_is_not_finite(part), u)
    if len(once) < sum(i.op == "RANGE" for i in out):
        # stored, since a loop of `out` that would wait for it may be the innermost
        n_all = node("CONTIGUOUS", (n_all,))
    if one:
        n_chosen = _is_not_finite(total)
    else:
        n_chosen = _sum(build("WHERE", mask, _is_not_finite(x), const(0, dtypes.int32)), u)
    # + 0.0, since a sum starts from 0 and so is never -0.0
    return where(build("CMPLT", n_chosen, n_all), nan, e("ADD", total, 0.0))


def _with_scan_condition(mask: UOp, condition: UOp, u: UOp, index: Index, out: Index) -> UOp:
    """Add the comparison j < i + 1 to the `mask` of a running sum `u`, in the form that `materialize.scanned_axis`
    recognizes.

    `condition` is the element of the mask at `index`, for element `out` of `u`. Other masks are returned unchanged.
    """
    axis, rank = u.arg[1][0], len(index)
    for c in conjuncts(condition):
        limit, is_below = index_limit(c, index[axis]) or (TRUE, False)
        if is_below and limit + -1 in out:
            a = out.index(limit + -1)
            j, i = (iota(n, dtypes.index, k, rank) for n, k in ((u.src[0].shape[axis], axis), (u.shape[a], a)))
            return build("AND", build("CMPLT", j, i + 1), mask)
    return mask


def _sum(terms: UOp, like: UOp) -> UOp:
    """Reduce `terms` as the REDUCE `like` does."""
    return build("REDUCE", terms, arg=like.arg)


def _is_not_finite(x: UOp) -> UOp:
    """Return 1 where `x` is inf or nan, so that 0 * x is not 0, and 0 elsewhere, as int32."""
    return cast(e("CMPNE", e("MUL", x, 0.0), 0.0), dtypes.int32)


def element(root: UOp, index: Index) -> UOp:
    """Return element `index` of `root` as scalar operations on placeholders for the elements that are read."""
    new: dict[tuple[UOp, Index], UOp] = {}
    stack: list[tuple[UOp, Index]] = [(root, index)]
    while stack and len(new) < MAX_NODES:
        u, at = stack[-1]
        wanted = [(s, i) for s, i, _ in sources(u, at, TRUE)] if u.op in READ_THROUGH else []
        if pending := [k for k in wanted if k not in new]:
            stack.extend(pending)
        else:
            new[stack.pop()] = _value(u, at, [new[k] for k in wanted])
    return placeholder(root, index, TRUE) if stack else new[root, index]


def _value(u: UOp, index: Index, operands: list[UOp]) -> UOp:
    """Return element `index` of `u` from the elements of its operands."""
    if u.op in ELEMENTWISE:
        return build(u.op, *operands, arg=u.arg)
    if u.op == "IOTA":
        return cast(index[0], u.arg)
    return u if u.op == "CONST" else operands[0] if operands else placeholder(u, index, TRUE)


def max_abs(root: UOp) -> float:
    """Return an upper bound of the absolute values of `root`; inf if an element may be infinite or nan."""
    known: dict[UOp, float] = {}
    for u in toposort(root, stop=lambda u: not u.dtype.is_float or u.op not in SAME | BOUNDS.keys()):
        known[u] = bound = _max_abs(u, known)
        if not bound <= (65504.0 if u.dtype is dtypes.float16 else MAX_FINITE):
            known[u] = inf
    return known[root]


def _max_abs(u: UOp, known: dict[UOp, float]) -> float:
    """Return the bound of `u` from the bounds of its sources."""
    if not u.dtype.is_float:
        return max(map(abs, min_max(u))) if u.dtype.kind != "v" else 0.0  # a shape contributes no bound
    if u.op == "CONST":
        return inf if u.arg[0] is INVALID else abs(u.value)
    if u.op in SAME:
        return known[u.src[0]]
    return BOUNDS[u.op](*(known[s] for s in u.src)) if u.op in BOUNDS else inf


__all__ = ["READ_THROUGH", "element", "max_abs", "masked_sums"]

"""A sum of a mask times values: the sum of the chosen values, and nan where a value that is not finite was masked out.

A product with one-hot rows picks values, one with a triangle of ones makes running sums. `rules.loops.reductions` needs
no loop over the values for either, if what is masked out adds 0. It adds 0 times the value, which is nan for inf and
nan. So this pass counts the values that are not finite, all of them and the chosen ones. The first count reads each
value once; the second is found as the sum is. Where they differ the sum is nan. Values with a known bound need no
counts.

What it does not do: rewrite sums whose loops stay, or whose values depend on all loops of the result, so that the first
count would be as much work as the sum. Those keep their products. Nor sums of integers, whose masked terms are 0.

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
from monolect.rules.loops.reductions import below, without_loop
from monolect.schedule.provenance import renewed
from monolect.schedule.ranges import Index, full_index, placeholder, sources

MOVES = frozenset(("RESHAPE", "EXPAND", "PERMUTE", "FLIP", "SHRINK"))
READ_THROUGH = MOVES | ELEMENTWISE | {"PAD", "DETACH", "CONTIGUOUS_BACKWARD"}
SAME = MOVES | {"PAD", "CAST", "NEG", "TRUNC", "DETACH", "CONTIGUOUS_BACKWARD", "CONTIGUOUS"}
BOUNDS: dict[str, Callable[..., float]] = {
    "ADD": add, "SUB": add, "MUL": mul, "MAX": max, "WHERE": lambda c, a, b: max(a, b)
}  # fmt: skip
LARGEST = 3e38  # finite in every float type but float16
MOST_VALUES = 1000  # of which a mask or a value is computed: what is larger is taken as it is


class Masked(NamedTuple):
    """The terms of a sum: `value` where `mask`, else 0 times it, both of the shape that is summed."""

    mask: UOp
    value: UOp


def masked_sums(roots: list[UOp], local_bytes: int = 0) -> list[UOp]:
    """See the module docstring. `local_bytes`: of the scratch memory that a kernel has for tables."""
    order = toposort(*roots)
    if not any(_masked(u) for u in order):
        return roots
    new: dict[UOp, UOp] = {}
    for u in order:
        v = rebuild(u, tuple(new[s] for s in u.src))
        found = _masked(v)
        new[u] = v if found is None else _of_chosen(v, found, local_bytes) or v
        new[u].origin = new[u].origin or u.origin
    return renewed(roots, new)


def _masked(u: UOp) -> Masked | None:
    """The terms of `u`, if it is a float sum of products with a mask."""
    if u.op != "REDUCE" or u.arg[0] != "ADD" or not u.dtype.is_float:
        return None
    x, after = u.src[0], []
    while x.op in ("RESHAPE", "PERMUTE") or (x.op == "CAST" and x.src[0].dtype.is_float):
        if x.op == "CAST" and x.dtype.itemsize < x.src[0].dtype.itemsize:
            return None  # what is finite before may be infinite after
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
    """The bools that the factor `u` was cast from."""
    moves = []
    while u.dtype is not dtypes.bool and (u.op in MOVES or u.op == "CAST"):
        moves.append(u)
        u = u.src[0]
    return _moved(u, [v for v in moves if v.op != "CAST"]) if u.dtype is dtypes.bool else None


def _moved(u: UOp, moves: list[UOp]) -> UOp:
    """`u` after `moves`, the last of which comes first."""
    for v in reversed(moves):
        u = build(v.op, u, *v.src[1:], arg=v.arg)
    return u


def _of_chosen(u: UOp, terms: Masked, local_bytes: int) -> UOp | None:
    """The sum `u` from its chosen terms; None where that spares no loop, or little."""
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
    mask = mask if one else _in_order(mask, condition, u, index, out)
    total = _sum(build("WHERE", mask, x, zero), u)
    if largest(x) < inf:
        return total
    once = [a for a, i in enumerate(out) if i.op == "RANGE" and i not in ranges(value)]
    if not once:
        return None
    part = x
    for a in once:
        part = shrink_axis(part, a, 0, 1)
    every = _sum(_is_lost(part), u)
    if len(once) < sum(i.op == "RANGE" for i in out):
        every = node("CONTIGUOUS", (every,))  # a loop of `out` that is made to wait for it may be the innermost
    if one:
        chosen = _is_lost(total)
    else:
        chosen = _sum(build("WHERE", mask, _is_lost(x), const(0, dtypes.int32)), u)
    return where(build("CMPLT", chosen, every), nan, e("ADD", total, 0.0))  # a sum of -0.0 is 0.0: it begins with 0


def _in_order(mask: UOp, condition: UOp, u: UOp, index: Index, out: Index) -> UOp:
    """The `mask` of a running sum `u`, behind the comparison of places j < i + 1 that makes it one: in that form
    `materialize.scanned_axis` finds it. `condition` is the element of the mask at `index`, for element `out` of `u`.
    """
    axis, rank = u.arg[1][0], len(index)
    for c in conjuncts(condition):
        limit, is_below = below(c, index[axis]) or (TRUE, False)
        if is_below and limit + -1 in out:
            a = out.index(limit + -1)
            j, i = (iota(n, dtypes.index, k, rank) for n, k in ((u.src[0].shape[axis], axis), (u.shape[a], a)))
            return build("AND", build("CMPLT", j, i + 1), mask)
    return mask


def _sum(terms: UOp, like: UOp) -> UOp:
    return build("REDUCE", terms, arg=like.arg)


def _is_lost(x: UOp) -> UOp:
    """1 where 0 * x is not 0, else 0."""
    return cast(e("CMPNE", e("MUL", x, 0.0), 0.0), dtypes.int32)


def element(root: UOp, index: Index) -> UOp:
    """Element `index` of `root` as a kernel would compute it, from placeholders for what is read."""
    new: dict[tuple[UOp, Index], UOp] = {}
    stack: list[tuple[UOp, Index]] = [(root, index)]
    while stack and len(new) < MOST_VALUES:
        u, at = stack[-1]
        wanted = [(s, i) for s, i, _ in sources(u, at, TRUE)] if u.op in READ_THROUGH else []
        if pending := [k for k in wanted if k not in new]:
            stack.extend(pending)
        else:
            new[stack.pop()] = _value(u, at, [new[k] for k in wanted])
    return placeholder(root, index, TRUE) if stack else new[root, index]


def _value(u: UOp, index: Index, operands: list[UOp]) -> UOp:
    if u.op in ELEMENTWISE:
        return build(u.op, *operands, arg=u.arg)
    if u.op == "IOTA":
        return cast(index[0], u.arg)
    return u if u.op == "CONST" else operands[0] if operands else placeholder(u, index, TRUE)


def largest(root: UOp) -> float:
    """A bound of the absolute value of every element of `root`; inf where one may be infinite or nan."""
    known: dict[UOp, float] = {}
    for u in toposort(root, stop=lambda u: not u.dtype.is_float or u.op not in SAME | BOUNDS.keys()):
        known[u] = bound = _largest(u, known)
        if not bound <= (65504.0 if u.dtype is dtypes.float16 else LARGEST):
            known[u] = inf
    return known[root]


def _largest(u: UOp, known: dict[UOp, float]) -> float:
    if not u.dtype.is_float:
        return max(map(abs, min_max(u))) if u.dtype.kind != "v" else 0.0  # a shape bounds nothing
    if u.op == "CONST":
        return inf if u.arg[0] is INVALID else abs(u.value)
    if u.op in SAME:
        return known[u.src[0]]
    return BOUNDS[u.op](*(known[s] for s in u.src)) if u.op in BOUNDS else inf


__all__ = ["READ_THROUGH", "element", "largest", "masked_sums"]

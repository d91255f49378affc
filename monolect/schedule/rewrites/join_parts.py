"""A sum of padded parts that do not overlap is those parts, one after another.

A loop that pads what each step computes and adds it up meets every element once a step; what is stored of such a sum
takes memory that is quadratic in the steps. Parts that are joined are stored into one buffer (`rules.loops.concat`).

What it is not: for sums of few parts, of sizes that are not known, and for those in which another order of additions
would round differently.

Before: ADD(ADD(ADD(x0 padded to [0:1] of 4, x1 padded to [1:2]), x2 padded to [2:3]), x3 padded to [3:4])
After:  x0 + 0, x1 + 0, x2 + 0, x3 + 0 joined
Invariant: shapes, dtypes and values stay, to the last bit: -0 plus 0 is 0, which each element met.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from monolect.autograd.graph import joined, pad
from monolect.autograd.parts import MANY_PARTS, Part, joined_parts
from monolect.ir.uop import UOp, build, const, rebuild, toposort
from monolect.schedule.provenance import renewed

Sum = tuple[list[Part], list[UOp]]  # its parts, joined, and what else is added


def join_parts(roots: list[UOp]) -> list[UOp]:
    """See the module docstring."""
    order = toposort(*roots)
    parts = {u: part for u in order if u.op == "WHERE" and (part := _part(u)) is not None}
    if len(parts) < MANY_PARTS:
        return roots
    readers = Counter(s for u in order for s in u.src)
    readers.update(roots)
    sums = _sums(order, parts, {u for u in order if u.op == "ADD" and readers[u] == 1})
    if not sums:
        return roots
    new: dict[UOp, UOp] = {}
    for u in order:
        new[u] = rebuild(u, tuple([new[s] for s in u.src]))
        if u in sums:
            new[u] = _joined(u.shape, *sums[u], new)
            new[u].origin = new[u].origin or u.origin
    return renewed(roots, new)


def _part(u: UOp) -> Part | None:
    """What `u` pads with zeros, and where it begins."""
    x = u.src[1]
    if x.op != "PAD" or u.dtype.kind == "b" or any(n.__class__ is not int for n in (*x.src[0].shape, *u.shape)):
        return None
    offsets = x.src[1].sizes
    if 0 in x.src[0].shape or any(o.__class__ is not int for o in offsets):
        return None
    return (offsets, x.src[0]) if pad(x.src[0], offsets, u.shape) is u else None


def _sums(order: list[UOp], parts: dict[UOp, Part], inner: set[UOp]) -> dict[UOp, Sum]:
    """The largest sums that may be joined. `inner`: ADDs that one node reads."""
    count: dict[UOp, tuple[int, int]] = {}  # of each ADD: its parts, other terms; a sum without parts is one term
    below: set[UOp] = set()
    for u in order:
        if u.op == "ADD":
            both = [(1, 0) if s in parts else count[s] if s in inner else (0, 1) for s in u.src]
            n_parts, n_others = (sum(n) for n in zip(*both, strict=True))
            count[u] = (n_parts, n_others) if n_parts else (0, 1)
            below.update(s for s in u.src if s in inner)
    out: dict[UOp, Sum] = {}
    todo = [u for u in count if u not in below]
    while todo:
        u = todo.pop()
        if count[u][0] < MANY_PARTS:
            continue
        if count[u][1] > 1:
            todo += [s for s in u.src if s in inner]
        elif found := _sum(u, parts, inner, count):
            out[u] = found
    return out


def _sum(u: UOp, parts: dict[UOp, Part], inner: set[UOp], count: dict[UOp, tuple[int, int]]) -> Sum | None:
    """The sum `u` with its parts joined; None where not so many are, or where the order of additions would matter:
    where an element may belong to three terms.
    """
    mine: list[Part] = []
    others: list[UOp] = []
    stack = [*u.src]
    while stack:
        v = stack.pop()
        if v in parts:
            mine.append(parts[v])
        elif v in inner and count[v][0]:
            stack += v.src
        else:
            others.append(v)
    out = joined_parts([(offsets, _without_negative_zeros(x)) for offsets, x in mine], u.shape, joined)
    is_exact = len(out) + len(others) < 3 or (
        len(others) < 2 and not any(_overlap(a, b) for a, b in combinations(out, 2))
    )
    return (out, others) if 2 * len(out) <= len(mine) and is_exact else None


def _overlap(a: Part, b: Part) -> bool:
    sides = zip(a[0], a[1].shape, b[0], b[1].shape, strict=True)
    return all(at < other + size and other < at + n for at, n, other, size in sides)


def _without_negative_zeros(x: UOp) -> UOp:
    return build("ADD", x, const(0, x.dtype)) if x.dtype.is_float else x


def _joined(shape: tuple[int, ...], parts: list[Part], others: list[UOp], new: dict[UOp, UOp]) -> UOp:
    """The sum of what `parts` and `others` are by now."""
    made: dict[UOp, UOp] = {}
    terms = [*others, *(pad(x, offsets, shape) for offsets, x in parts)]
    for u in toposort(*terms, stop=new.__contains__):
        made[u] = new[u] if u in new else rebuild(u, tuple([made[s] for s in u.src]))
    out = made[terms[0]]
    for t in terms[1:]:
        out = build("ADD", out, made[t])
    return out


__all__ = ["join_parts"]

"""Replace a sum of padded parts that do not overlap by the concatenation of the parts.

A loop that pads the result of each step and adds it up visits every element once per step; storing such sums takes
memory quadratic in the number of steps. Concatenated parts are stored into one buffer (`rules.loops.concat`).

What it is not: it leaves sums of few parts, of symbolic sizes, and sums where another order of additions would round
differently.

Before: ADD(ADD(ADD(x0 padded to [0:1] of 4, x1 padded to [1:2]), x2 padded to [2:3]), x3 padded to [3:4])
After:  x0 + 0, x1 + 0, x2 + 0, x3 + 0 concatenated
Invariant: shapes, dtypes and values stay, bit for bit: each part gets + 0 because -0 + 0 is 0 in the sum.
"""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from monolect.autograd.graph import joined, pad
from monolect.autograd.parts import MANY_PARTS, Part, joined_parts
from monolect.ir.uop import UOp, build, const, rebuild, toposort
from monolect.schedule.provenance import replace_roots

Sum = tuple[list[Part], list[UOp]]  # (concatenated parts, other terms)


def join_parts(roots: list[UOp]) -> list[UOp]:
    """Pass: concatenate the padded parts of sums below `roots`."""
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
    return replace_roots(roots, new)


def _part(u: UOp) -> Part | None:
    """Return (offsets, value) if `u` is a value padded with zeros, else None."""
    x = u.src[1]
    if x.op != "PAD" or u.dtype.kind == "b" or any(n.__class__ is not int for n in (*x.src[0].shape, *u.shape)):
        return None
    offsets = x.src[1].sizes
    if 0 in x.src[0].shape or any(o.__class__ is not int for o in offsets):
        return None
    return (offsets, x.src[0]) if pad(x.src[0], offsets, u.shape) is u else None


def _sums(order: list[UOp], parts: dict[UOp, Part], inner: set[UOp]) -> dict[UOp, Sum]:
    """Return the largest sums whose parts can be concatenated. `inner`: ADDs that have one user."""
    # number of parts and of other terms of each ADD; a sum without parts is one term
    count: dict[UOp, tuple[int, int]] = {}
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
        elif found := _join_sum(u, parts, inner, count):
            out[u] = found
    return out


def _join_sum(u: UOp, parts: dict[UOp, Part], inner: set[UOp], count: dict[UOp, tuple[int, int]]) -> Sum | None:
    """Return the sum `u` with its padded `parts` concatenated, or None.

    `inner`: ADDs with one user, which may belong to a larger sum. `count`: numbers of (parts, other terms) below each
    ADD. None if concatenation does not halve the number of parts, or if an element may belong to three terms, whose
    order would matter.
    """
    own: list[Part] = []
    others: list[UOp] = []
    stack = [*u.src]
    while stack:
        v = stack.pop()
        if v in parts:
            own.append(parts[v])
        elif v in inner and count[v][0]:
            stack += v.src
        else:
            others.append(v)
    out = joined_parts([(offsets, _without_negative_zeros(x)) for offsets, x in own], u.shape, joined)
    is_exact = len(out) + len(others) < 3 or (
        len(others) < 2 and not any(_overlap(a, b) for a, b in combinations(out, 2))
    )
    return (out, others) if 2 * len(out) <= len(own) and is_exact else None


def _overlap(a: Part, b: Part) -> bool:
    """Whether two parts have an element in common."""
    sides = zip(a[0], a[1].shape, b[0], b[1].shape, strict=True)
    return all(at < other + size and other < at + n for at, n, other, size in sides)


def _without_negative_zeros(x: UOp) -> UOp:
    """Return `x` + 0 for floats, which turns -0 into 0."""
    return build("ADD", x, const(0, x.dtype)) if x.dtype.is_float else x


def _joined(shape: tuple[int, ...], parts: list[Part], others: list[UOp], new: dict[UOp, UOp]) -> UOp:
    """Return the sum of `others` and of `parts` padded to `shape`, with nodes replaced as in `new`."""
    made: dict[UOp, UOp] = {}
    terms = [*others, *(pad(x, offsets, shape) for offsets, x in parts)]
    for u in toposort(*terms, stop=new.__contains__):
        made[u] = new[u] if u in new else rebuild(u, tuple([made[s] for s in u.src]))
    out = made[terms[0]]
    for t in terms[1:]:
        out = build("ADD", out, made[t])
    return out


__all__ = ["join_parts"]

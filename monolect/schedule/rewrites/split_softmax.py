"""Compute softmax-weighted sums over rows too long for local memory in blocks, as attention over many keys needs.

`partition` keeps a row of scores in local memory between the loops for the maximum, the exponentials and the weighted
sums. A row that does not fit is cut into blocks. Each block has its own maximum and its own sums of exponentials, which
are rescaled in the end by exp(block maximum - row maximum). So only one block of scores exists at any time, and a
second kernel combines a few values per row.

What it is not: it does not cut rows that have other users, or whose scores are not computed by a contraction: these are
cheaper to read again. It does nothing on a target without local memory.

Before: e = EXP2(s - MAX(s)); REDUCE(ADD, e / REDUCE(ADD, e) * v)                                 over 65536 keys
After:  m = MAX(s), e = EXP2(s - m), l = REDUCE(ADD, e), o = REDUCE(ADD, e * v): CONTIGUOUS each, over 8192 keys of 8
        w = EXP2(m - MAX(m)); REDUCE(ADD, w * o) / REDUCE(ADD, w * l)                             over the 8 blocks
Invariant: shapes, dtypes and, up to rounding, values stay, also those of scores that are infinite or NaN.
"""

from __future__ import annotations

from functools import reduce
from math import prod
from typing import NamedTuple

import numpy as np

from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import count, is_zero, unbroadcast
from monolect.ir.uop import UOp, build, const, idx, node, rebuild, shape_source
from monolect.schedule.materialize import Cost, costs, is_forced, operands_of, values
from monolect.schedule.provenance import replace_roots
from monolect.schedule.scratch import longest_row, zeroes_masked_rows

UNIT = 64  # keys; block sizes are multiples of this
MARKS = ("DETACH", "CONTIGUOUS_BACKWARD")  # ops that only mark a value for autograd
MOVES = frozenset(("RESHAPE", "PERMUTE", "EXPAND", *MARKS))  # ops that move elements and compute nothing


def split_softmax(roots: list[UOp], local_bytes: int) -> list[UOp]:
    """Pass: split the softmaxes below `roots` whose rows do not fit `local_bytes`, the local memory of each thread, if
    any.
    """
    if not local_bytes:
        return roots
    order = values(roots)
    found = [x for u in order if (x := _match_softmax(u)) is not None]
    if not found:
        return roots
    users: dict[UOp, list[UOp]] = {}
    for u in order:
        for s in dict.fromkeys(operands_of(u)):
            users.setdefault(s, []).append(u)
    long: list[tuple[Softmax, dict[UOp, dict[UOp, int]], int]] = []
    for x in found:
        if _has_no_other_users(x, users, set(roots)) and (sums := _sums(x, users, set(roots))) is not None:
            per_element = max(size_max(idx(count(r.src[0].shape)) // count(x.e.shape)) for r in sums)
            if x.size > (most := longest_row(x.e.dtype.itemsize, per_element, local_bytes)):
                long.append((x, sums, max(most, 1)))
    if not long:
        return roots
    cost = costs(order, {u for u in order if is_forced(u)} | set(roots))
    replacements: dict[UOp, UOp] = {}
    for x, sums, most in long:
        if cost[x.scores].product and any(cost[r].product for r in sums):
            replacements |= _split_in_blocks(x, sums, cost, most)
    return _replace(roots, replacements) if replacements else roots


class Softmax(NamedTuple):
    """`e` is the exponential of the scores minus `highest`, their maximum along `axis`, which has `size` elements."""

    e: UOp
    scores: UOp
    highest: UOp
    axis: int
    size: int


def _match_softmax(u: UOp) -> Softmax | None:
    """Return the Softmax whose exponentials are `u`, or None."""
    if u.op not in ("EXP", "EXP2") or u.dtype.bits < 32 or any(n.__class__ is not int for n in u.shape):
        return None
    x = _difference(u)
    if x.op != "SUB":
        return None
    s, m = x.src
    while m.op in ("EXPAND", *MARKS):
        m = m.src[0]
    if m.op != "REDUCE" or m.arg[0] != "MAX" or m.src[0] is not s or len(m.arg[1]) != 1:
        return None
    (axis,) = m.arg[1]
    return Softmax(u, s, m, axis, s.shape[axis])


def _difference(e: UOp) -> UOp:
    """Return the argument of the exponential `e`, without a positive constant factor."""
    x = e.src[0]
    scale = unbroadcast(x.src[1]) if x.op == "MUL" else None
    return x.src[0] if scale is not None and scale.op == "CONST" and scale.value > 0 else x


def _has_no_other_users(x: Softmax, users: dict[UOp, list[UOp]], roots: set[UOp]) -> bool:
    """Whether only the maximum and the exponentials use the scores.

    Scores computed again for another user may be added in another order, and then differ in bits from their maximum.
    """
    return x.scores not in roots and all(u is x.highest or u is _difference(x.e) for u in users[x.scores])


def _sums(x: Softmax, users: dict[UOp, list[UOp]], roots: set[UOp]) -> dict[UOp, dict[UOp, int]] | None:
    """Return the sums along the row with a factor `e` in each term, and the axis of the row in each node from `e` to
    there.

    None if the row has any other user.
    """
    axes = {x.e: x.axis}
    sums: list[UOp] = []
    pending = [x.e]
    while pending:
        u = pending.pop()
        if u in roots or not users.get(u):
            return None
        for v in users[u]:
            if v.op == "REDUCE" and v.arg == ("ADD", (axes[u],)):
                sums.append(v)
            elif v in axes or (axis := _axis_after(v, u, axes[u])) is None:
                return None  # also for a term with two factors of the row
            else:
                axes[v] = axis
                pending.append(v)
    return dict.fromkeys(sums, axes) if sums else None


def _axis_after(v: UOp, u: UOp, axis: int) -> int | None:
    """Return the axis of `v`, a multiple or view of `u`, that is the `axis` of `u`; None if there is none."""
    if v.op in ("MUL", "DIV", "WHERE", "CAST"):
        axis += len(v.shape) - len(u.shape)
        linear = v.src.count(u) == 1 and v.dtype.is_float and (v.op != "DIV" or v.src[0] is u)
        return axis if linear and (v.op != "WHERE" or any(is_zero(s) for s in v.src[1:])) else None
    if v.op == "PERMUTE":
        return int(v.arg.index(axis))
    if v.op == "RESHAPE":
        return _same_axis(u.shape, v.shape, axis)
    return axis if v.op in ("EXPAND", *MARKS) else None


def _same_axis(old: tuple, new: tuple, axis: int) -> int | None:
    """Return the axis of shape `new` that is the `axis` of shape `old` after a RESHAPE, or None."""
    before = prod(old[:axis])
    return next((a for a, n in enumerate(new) if n == old[axis] and prod(new[:a]) == before), None)


# ---- blocks ----------------------------------------------------------------------------------------------------------
class Segment(NamedTuple):
    """`n` blocks of `keys` keys each, starting at key `start`."""

    start: int
    n: int
    keys: int


def _segments(size: int, most: int) -> list[Segment]:
    """Cut `size` keys into blocks of at most `most` keys: equal blocks if a divisor is near, else with a shorter last
    block.
    """
    least = -(-size // most)
    n = next((n for n in range(least, 2 * least) if size % n == 0 and size // n % min(UNIT, most) == 0), 0)
    if n:
        return [Segment(0, n, size // n)]
    keys = max(1, most // UNIT * UNIT or most)
    n, rest = divmod(size, keys)
    return [Segment(0, n, keys), Segment(n * keys, 1, rest)][: 2 if rest else 1]


def _split_in_blocks(x: Softmax, sums: dict[UOp, dict[UOp, int]], cost: dict[UOp, Cost], most: int) -> dict[UOp, UOp]:
    """Return replacements for the maximum and the sums of `x`, each combined from blocks."""
    parts = [Blocks(x, segment, cost) for segment in _segments(x.size, most)]
    highest = _combined("MAX", [p.highest for p in parts])
    out = {x.highest: highest}
    for r, axes in sums.items():
        total = _combined("ADD", [p.joined(r, axes, highest) for p in parts])
        out[r] = _apply_factors(total, _term_ops(r, axes), axes)
    for old, new in out.items():
        new.origin = new.origin or old.origin
    return out


def _combined(op: str, xs: list[UOp]) -> UOp:
    """Combine `xs` pairwise from the left with the binary op `op`."""
    return reduce(lambda a, b: build(op, a, b), xs)


def _term_ops(r: UOp, axes: dict[UOp, int]) -> list[UOp]:
    """Return the ops between `e` and the REDUCE `r` that compute its terms, `e` side first."""
    out: list[UOp] = []
    u: UOp | None = r.src[0]
    while u is not None and (source := next((s for s in u.src if s in axes), None)) is not None:
        out.append(u)
        u = source
    return out[::-1]


def _apply_factors(total: UOp, chain: list[UOp], axes: dict[UOp, int]) -> UOp:
    """Apply the factors that were moved out of the sum to its `total`.

    `chain`: the ops between `e` and the sum; `axes`: the axis of the row in each of them.
    """
    left: list[tuple[UOp, list[UOp | None]]] = []
    for v in chain:
        if v.op in MOVES:
            old = next(axes[s] for s in v.src if s in axes)
            left = [
                (u, [s if s is None else _apply_movement(v, s, old, axes[v], (1,)) for s in others])
                for u, others in left
            ]
        elif _is_constant_factor(v, axes):
            left.append((v, [None if s in axes else _constant(s, v, axes[v]) for s in v.src]))
    for u, others in left:
        src = (total if s is None else s if s.dtype is dtypes.bool else _cast(s, total.dtype) for s in others)
        total = build(u.op, *src)
    return total


def _is_constant_factor(v: UOp, axes: dict[UOp, int]) -> bool:
    """Whether `v` only multiplies by operands that are constant along the row, so that it can be moved out of the
    sum.
    """
    others = [s for s in v.src if s not in axes]
    return (v.op in ("MUL", "DIV") or (v.op == "WHERE" and zeroes_masked_rows(v))) and all(
        _constant(s, v, axes[v]) is not None for s in others
    )


def _ranked(u: UOp, rank: int) -> UOp:
    """Return `u` reshaped to `rank` axes, with leading axes of size 1."""
    return build("RESHAPE", u, shape_source((1,) * (rank - len(u.shape)) + u.shape))


def _constant(s: UOp, v: UOp, axis: int) -> UOp | None:
    """Return the operand `s` of `v` with size 1 along `axis` and the size of `v` along others; None if it varies along
    `axis`.
    """
    s = _ranked(s, len(v.shape))
    s = s.src[0] if s.op == "EXPAND" else s
    return build("EXPAND", s, shape_source(_replace_axis(v.shape, axis, (1,)))) if s.shape[axis] == 1 else None


def _replace_axis(shape: tuple, axis: int, sizes: tuple[int, ...]) -> tuple:
    """Return `shape` with the size of `axis` replaced by `sizes`."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def _apply_movement(v: UOp, s: UOp, old: int, new: int, sizes: tuple[int, ...]) -> UOp:
    """Apply the movement `v` to `s`, whose axis `old` was split into axes of `sizes`; they begin at axis `new` of the
    result.
    """
    if v.op == "PERMUTE":
        more = len(sizes) - 1
        order = ((old + i for i in range(more + 1)) if a == old else (a + more * (a > old),) for a in v.arg)
        return build("PERMUTE", s, arg=tuple(a for group in order for a in group))
    return s if v.op in MARKS else build(v.op, s, shape_source(_replace_axis(v.shape, new, sizes)))


def _cast(u: UOp, dtype: DType) -> UOp:
    """Cast `u` to `dtype` unless it has that dtype."""
    return u if u.dtype is dtype else build("CAST", u, arg=dtype)


def _finite(highest: UOp) -> UOp:
    """Return the maximum `highest`, at least the lowest finite number, so that -inf minus it is -inf and not nan."""
    return build("MAX", highest, const(float(np.finfo(highest.dtype.numpy).min), highest.dtype))


class Blocks:
    """The values of one segment, in which two axes, blocks and keys of a block, replace the row's axis."""

    def __init__(self, x: Softmax, segment: Segment, cost: dict[UOp, Cost]):
        self.x, self.segment, self.cost = x, segment, cost
        self.sizes = segment.n, segment.keys
        self.made: dict[tuple[UOp, int], UOp] = {}
        scores = self.cut(x.scores, x.axis)
        self.own = node("CONTIGUOUS", (build("REDUCE", scores, arg=("MAX", (x.axis + 1,))),))
        self.e = self.made[x.e, x.axis] = self.exponential(scores, self.own)
        self.total = node("CONTIGUOUS", (build("REDUCE", self.e, arg=("ADD", (x.axis + 1,))),))
        highest = build("REDUCE", self.own, arg=("MAX", (x.axis,)))
        self.highest = build("RESHAPE", highest, shape_source(x.highest.shape))

    def exponential(self, of: UOp, highest: UOp) -> UOp:
        """Return the exponential of `of` minus `highest`, with the op and the constant factor of the softmax's `e`."""
        out = build("SUB", of, _finite(highest))
        scaled = self.x.e.src[0]
        if scaled.op == "MUL":
            out = build("MUL", out, unbroadcast(scaled.src[1]))
        return build(self.x.e.op, out)

    def joined(self, r: UOp, axes: dict[UOp, int], highest: UOp) -> UOp:
        """Return the sum `r` over this segment, rescaled to the row maximum `highest`, without the factors moved out of
        the sum.
        """
        both = build("RESHAPE", highest, shape_source(_replace_axis(highest.shape, self.x.axis, (1, 1))))
        weights = self.exponential(_finite(self.own), both)
        sums, (axis,) = self.total, r.arg[1]
        if r.src[0] is not self.x.e:
            # divided by the total of the block, as in the whole softmax, so that one kernel computes all stored values
            # the total is 0 if all scores are -inf, else at least 1
            divisor = build("MAX", self.total, const(1, self.total.dtype))
            weights = build("MUL", weights, divisor)
            terms, (divisor, weights) = self.terms(r, axes, [divisor, weights])
            sums = build("REDUCE", terms, arg=("ADD", (axis + 1,)))
            sums = node("CONTIGUOUS", (build("DIV", sums, _cast(divisor, sums.dtype)),))
        out = build("REDUCE", build("MUL", sums, _cast(weights, sums.dtype)), arg=("ADD", (axis,)))
        return build("RESHAPE", out, shape_source(r.shape))

    def terms(self, r: UOp, axes: dict[UOp, int], per_block: list[UOp]) -> tuple[UOp, list[UOp]]:
        """Return the terms of the sum `r`, and the values `per_block` with the movements of the terms applied."""
        terms, one = self.e, (self.segment.n, 1)
        for v in _term_ops(r, axes):
            axis = axes[v]
            if v.op in MOVES:
                old = next(axes[s] for s in v.src if s in axes)
                terms = _apply_movement(v, terms, old, axis, self.sizes)
                per_block = [_apply_movement(v, u, old, axis, one) for u in per_block]
                continue
            if not _is_constant_factor(v, axes):
                terms = build(v.op, *(terms if s in axes else self.operand(s, v, axis) for s in v.src), arg=v.arg)
            per_block = [
                build("EXPAND", _ranked(u, len(v.shape) + 1), shape_source(_replace_axis(v.shape, axis, one)))
                for u in per_block
            ]
        return terms, per_block

    def cut(self, u: UOp, axis: int) -> UOp:
        """Return this segment of `u` with blocks and keys as separate axes, memoized.

        The cut is moved down to the operands of the scores and of the terms, which other kernels compute.
        """
        key = (u, axis)
        if key not in self.made:
            self.made[key] = self._cut(u, axis)
        return self.made[key]

    def _cut(self, u: UOp, axis: int) -> UOp:
        """Return `cut(u, axis)` without memoization of the result."""
        if u.shape[axis] == 1:
            return build("RESHAPE", u, shape_source(_replace_axis(u.shape, axis, (1, 1))))
        if u.op in MOVES:
            s = u.src[0]
            old = u.arg[axis] if u.op == "PERMUTE" else axis
            at = _same_axis(u.shape, s.shape, axis) if u.op == "RESHAPE" else old
            if at is not None:
                return _apply_movement(u, self.cut(s, at), at, axis, self.sizes)
        if u.op in ELEMENTWISE and self.cost[u].product:
            return self.elementwise(u, axis)
        if u.op == "REDUCE" and self.cost[u].product and axis not in u.arg[1]:
            body = u.src[0]
            body = self.elementwise(body, axis) if body.op == "MUL" else self.cut(body, axis)
            return build("REDUCE", body, arg=(u.arg[0], tuple(a + (a > axis) for a in u.arg[1])))
        start, n, keys = self.segment
        if n * keys < u.shape[axis]:
            offsets = _replace_axis((0,) * len(u.shape), axis, (start,))
            u = build("SHRINK", u, shape_source(offsets), shape_source(_replace_axis(u.shape, axis, (n * keys,))))
        return build("RESHAPE", u, shape_source(_replace_axis(u.shape, axis, self.sizes)))

    def elementwise(self, u: UOp, axis: int) -> UOp:
        """Apply the elementwise op `u` to this segment of its operands."""
        return build(u.op, *(self.operand(s, u, axis) for s in u.src), arg=u.arg)

    def operand(self, s: UOp, v: UOp, axis: int) -> UOp:
        """Return this segment of the operand `s` of `v`, which may have fewer axes than `v`."""
        axis -= len(v.shape) - len(s.shape)
        return self.cut(s, axis) if axis >= 0 else s


def _replace(roots: list[UOp], replacements: dict[UOp, UOp]) -> list[UOp]:
    """Return `roots` with nodes replaced everywhere as in `replacements`, also inside of the replacements."""
    new: dict[UOp, UOp] = {}
    stack = list(roots)
    while stack:
        u = stack[-1]
        wanted = (replacements[u],) if u in replacements else u.src
        pending = [s for s in wanted if s not in new]
        stack.extend(pending)
        if not pending:
            stack.pop()
            new[u] = new[replacements[u]] if u in replacements else rebuild(u, tuple(new[s] for s in u.src))
    return replace_roots(roots, new)


__all__ = ["Blocks", "Segment", "Softmax", "split_softmax"]

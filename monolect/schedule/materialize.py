"""Which values must have a buffer, and what each value would cost to compute again.

Fusion is the default. A buffer is forced for requested values, CONTIGUOUS, LOADs to a device, and the target of a
partial assign; everything else is left to the costs that `partition` weighs. This pass also makes assigns explicit: the
target of a partial STORE that anybody else still reads is copied first, so reads before an assign see the old value.

Invariant: afterwards every AFTER either overwrites its target, or owns it.
Source: none; the cost weights are measured ratios of vectorised op times on an AVX-512 CPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from monolect.base.dtype import dtypes
from monolect.ir.bounds import size_max
from monolect.ir.ops import ELEMENTWISE, INVALID
from monolect.ir.rewrite.normal import conjuncts, count
from monolect.ir.uop import UOp, node, rebuild
from monolect.schedule.provenance import renewed
from monolect.schedule.ranges import overwrites, value_sources

FORCED = frozenset(("CONTIGUOUS", "LOAD"))
_COUNTING = frozenset(("ADD", "MUL", "CMPLT", "CAST", "RESHAPE"))
FREE = frozenset(("CONST", "IOTA", "DETACH", "CONTIGUOUS_BACKWARD"))
WEIGHTS = {
    "EXP2": 12, "LOG2": 16, "SIN": 24, "POW": 60, "SQRT": 6, "RECIP": 4, "DIV": 4, "IDIV": 12, "MOD": 12,
    "THREEFRY": 90, "CAST": 1, "MULACC": 2,
}  # fmt: skip


class Cost(NamedTuple):
    """Per element: weighted ops since the last buffer or reduce, and the most elements any leaf below it has.
    `product`: made element by element from a matrix product or the like; `rows`: and from a reduction of such values.
    `heavy`: its own kernel holds a matrix product or the like.
    """

    ops: int
    leaf: int
    reduces: bool
    product: bool = False
    rows: bool = False
    heavy: bool = False


NOTHING = Cost(0, 0, False)


def values(roots: list[UOp], made_of: Callable[[UOp], tuple[UOp, ...]] | None = None) -> list[UOp]:
    """The tensor values below `roots`, sources first, with effects' targets and values (no shapes). `made_of` says in
    which order those of a value come.
    """
    made_of = made_of or below
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list = [*reversed(roots)]
    while stack:
        u = stack.pop()
        if u.__class__ is tuple:
            out.append(u[0])
        elif u not in seen:
            seen.add(u)
            stack.append((u,))
            for s in reversed(made_of(u)):
                if s not in seen:
                    stack.append(s)
    return out


def below(u: UOp) -> tuple[UOp, ...]:
    """The values `u` is made of: its sources, or for an AFTER what its effects store."""
    if u.op != "AFTER":
        return value_sources(u)
    if overwrites(u):
        return (u.src[1].src[1],)
    out = [u.src[0]]
    for e in u.src[1:]:
        out.extend(e.src[1:])
        v = e.src[0]
        while v is not u.src[0] and v.op != "PARAM" and v.src:  # index tensors of the view the effect writes through
            if v.op == "INDEX":
                out.extend(s for s in v.src[1:] if s.op != "CONST")
            v = v.src[0]
    return tuple(out)


def own_targets(roots: list[UOp]) -> list[UOp]:
    """Rewrite each partial AFTER so that it owns its target: a target others read, or an input, is copied first."""
    order = values(roots)
    partial = [u for u in order if u.op == "AFTER" and not overwrites(u)]
    if not partial:
        return roots
    readers: Counter[UOp] = Counter()
    for u in order:
        readers.update(below(u))  # with repeats: an assign may store its target's own old values
    for r in set(roots):
        readers[r] += 1
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple(new.get(s, s) for s in u.src)
        if u.op == "AFTER":
            new[u] = _stored_anew(u, new) if overwrites(u) else _own(u, new, readers)
        elif src != u.src:
            new[u] = rebuild(u, src)
    return renewed(roots, new)


def _stored_anew(u: UOp, new: dict[UOp, UOp]) -> UOp:
    """AFTER(X, STORE(X, v)) with the v of now; X, whose content nobody reads, only says what kind of buffer it is."""
    x, value = u.src[1].src
    return u if value not in new else rebuild(u, (x, node("STORE", (x, new[value]))))


def _own(u: UOp, new: dict[UOp, UOp], readers: Counter[UOp]) -> UOp:
    old = u.src[0]
    base = new.get(old, old)
    if not is_forced(base) or readers[old] > 1:  # an AFTER made for this one reader has a buffer of its own
        value = base.src[0] if _filling(base) is not None else base  # filled again sooner than copied
        base = node("CONTIGUOUS", (value,), None, u.serial)  # the tag keeps this copy apart from any other
    effects = []
    for e in u.src[1:]:
        view = _rebased(e.src[0], old, base, new)
        effects.append(node(e.op, (view, *(new.get(s, s) for s in e.src[1:])), e.arg))
    out = node("AFTER", (base, *effects))
    out.origin = u.origin
    return out


def _rebased(view: UOp, old: UOp, base: UOp, new: dict[UOp, UOp]) -> UOp:
    """The view of `old` that an effect writes through, as the same view of `base`."""
    chain = []
    while view is not old:
        chain.append(view)
        view = view.src[0]
    for v in reversed(chain):
        base = rebuild(v, (base, *(new.get(s, s) for s in v.src[1:])))
    return base


def is_forced(u: UOp) -> bool:
    """True when `u` gets a buffer whatever it costs."""
    return u.op in FORCED or u.op == "AFTER"


def _filling(u: UOp) -> UOp | None:
    """The CONST that a CONTIGUOUS is full of."""
    if u.op != "CONTIGUOUS":
        return None
    while u.op in ("CONTIGUOUS", "EXPAND", "RESHAPE"):
        u = u.src[0]
    return u if u.op == "CONST" else None


def is_empty(u: UOp) -> bool:
    """True for a CONTIGUOUS of invalid: memory that something else is to fill, and nobody reads before."""
    c = _filling(u)
    return c is not None and c.arg[0] is INVALID


def is_join(u: UOp) -> bool:
    """True for views joined along an axis: a choice between them by place."""
    if u.op == "WHERE":
        return u.src[0].op == "CMPLT" and _counts(u.src[0]) and all(map(is_join, u.src[1:]))
    while u.op in ("PAD", "SHRINK", "RESHAPE", "PERMUTE", "EXPAND", "CAST"):
        u = u.src[0]
    return u.op in ("PARAM", "BUFFER") or is_forced(u)


def costs(order: list[UOp], forced: set[UOp]) -> dict[UOp, Cost]:
    """The Cost of each value, sources first."""
    out: dict[UOp, Cost] = {}
    for u in order:
        op, made_of = u.op, value_sources(u)
        if op in FREE and not made_of:
            out[u] = NOTHING
            continue
        ops = most = leaf = 0
        reduces = product = rows = heavy = False
        for s in made_of:
            if (c := out.get(s)) is not None:  # an effect has none
                ops, most, leaf = ops + c.ops, max(most, c.ops), max(leaf, c.leaf)
                reduces, rows, heavy = reduces or c.reduces, rows or c.rows, heavy or (c.heavy and s not in forced)
                product = product or (c.product and (s.shape == u.shape or op not in ELEMENTWISE))
        if op == "PARAM" or op == "BUFFER" or u in forced:
            out[u] = Cost(0, size_max(count(u.shape)), False, False, op == "CONTIGUOUS" and rows, heavy)
        elif op == "REDUCE":
            below_, product = product, _is_product(u, out)
            heavy = heavy or reuses(u, out)
            out[u] = Cost(0, size_max(count(u.shape)), True, product, below_ and not product, heavy)
        elif op in ELEMENTWISE:
            out[u] = Cost(min(ops + _weight(u), 1 << 20), leaf, reduces, product, rows, heavy)
        else:
            out[u] = Cost(ops if op == "STACK" else most, leaf, reduces, product, rows, heavy)
    return out


def _is_product(u: UOp, cost: dict[UOp, Cost]) -> bool:
    """True for a sum of products of which one factor at least is used many times over."""
    x = u.src[0]
    while x.op in ("RESHAPE", "PERMUTE"):
        x = x.src[0]
    if u.arg[0] != "ADD" or x.op != "MUL":
        return False
    leaf = min(cost[s].leaf for s in x.src)
    return leaf > 0 and size_max(count(x.shape)) >= 4 * leaf


def _weight(u: UOp) -> int:
    """Masks are free: they are compared again sooner than read back."""
    if u.dtype is dtypes.bool or (u.op == "CAST" and u.src[0].dtype is dtypes.bool) or u.dtype.kind == "x":
        return 0
    return WEIGHTS.get(u.op, 1)


def reuses(u: UOp, cost: dict[UOp, Cost]) -> bool:
    """True for a REDUCE whose operands are read many times over, as in a matrix product or a convolution."""
    leaf = cost[u.src[0]].leaf
    return leaf > 0 and size_max(count(u.src[0].shape)) >= 4 * leaf and scanned_axis(u) is None


def scanned_axis(u: UOp) -> int | None:
    """The output axis i that a REDUCE over j runs along when it joins what has j <= i, or j < i: its loop becomes one
    step of the loop over i, so nothing is computed twice. None for any other REDUCE.
    """
    body = u.src[0]
    while body.op == "CAST":
        body = body.src[0]
    if len(u.arg[1]) != 1 or body.op != "WHERE":
        return None
    for c in conjuncts(body.src[0]):
        if c.op == "CMPLT" and len(c.shape) == len(u.shape) and _long_axes(c.src[0]) == list(u.arg[1]):
            i = _long_axes(c.src[1])
            if len(i) == 1 and c.shape[i[0]] == c.shape[u.arg[1][0]] and _counts(c):
                return i[0]
    return None


def _long_axes(u: UOp) -> list[int]:
    return [a for a, n in enumerate(u.shape) if not (n.__class__ is int and n == 1)]


def _counts(u: UOp) -> bool:
    """Whether `u` is made of IOTAs and constants alone."""
    return u.op in ("IOTA", "CONST") or u.op in _COUNTING and all(map(_counts, value_sources(u)))


__all__ = ["Cost", "below", "costs", "is_forced", "own_targets", "reuses", "scanned_axis", "values"]

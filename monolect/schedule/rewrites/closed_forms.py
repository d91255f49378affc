"""Replace reductions of constants by formulas of the index: a running sum of ones is the index plus one.

What it is for: `arange` written as a running sum. A formula is not stored, and a mask computed from it is recognized by
`masked_sums` and by the rules of loops.
What it is not: it contains no rules of its own. `rules.loops.reductions` tells whether the loop of one element can be
removed.

Before: REDUCE(ADD, SHRINK(RESHAPE(EXPAND(PAD(ones)))))
After:  ADD(IOTA, 1)
Invariant: dtypes, shapes and values stay.
"""

from __future__ import annotations

from monolect.autograd.graph import broadcast_to, cast, iota
from monolect.base.dtype import DType, dtypes
from monolect.ir.bounds import min_max
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.normal import TRUE
from monolect.ir.uop import UOp, build, const, rebuild, toposort
from monolect.rules.loops.reductions import without_loop
from monolect.schedule.provenance import replace_roots
from monolect.schedule.ranges import full_index, sources
from monolect.schedule.rewrites.masked_sums import MOVES, READ_THROUGH, element

_FORMULA = ELEMENTWISE | {"CONST", "RANGE", "PARAM"}  # a PARAM in a formula is a symbolic size
# ops whose values are fixed if those of all sources are
_FIXED = READ_THROUGH | {"CONST", "IOTA", "REDUCE", "STACK", "RANGE"}


def closed_forms(roots: list[UOp]) -> list[UOp]:
    """Pass: replace the reductions of constants below `roots` that need no loop."""
    order = toposort(*roots)
    if not any(u.op == "REDUCE" for u in order):
        return roots
    fixed: set[UOp] = set()  # values without inputs
    indices: dict[UOp, UOp] = {}  # index arithmetic with the same elements as a value
    new: dict[UOp, UOp] = {}
    for u in order:
        new[u] = v = rebuild(u, tuple(new[s] for s in u.src))
        is_size = u.op == "PARAM" and u.arg.name is not None
        if is_size or (u.op in _FIXED and all(s in fixed for s in u.src)):
            fixed.add(u)
            formula = _formula(v) if v.op == "REDUCE" else _index_of(v, indices)
            if formula is not None:
                new[u] = whole = broadcast_to(cast(formula, u.dtype), u.shape)
                whole.origin = whole.origin or u.origin
                if formula.dtype.kind == "x":
                    indices[whole] = broadcast_to(formula, u.shape)  # a view moves axes that the formula lacks, too
    return replace_roots(roots, new)


def _index_of(u: UOp, indices: dict[UOp, UOp]) -> UOp | None:
    """Return index arithmetic equal to `u`, a view of an index or an index plus or minus a number; else None.

    Also None if the integer type of `u` would overflow.
    """
    if u.op in MOVES and u.src[0] in indices:
        return build(u.op, indices[u.src[0]], *u.src[1:], arg=u.arg)
    if u.op not in ("ADD", "SUB") or not u.dtype.is_int or not any(s in indices for s in u.src):
        return None
    if not all(s in indices or s.op == "CONST" for s in u.src):
        return None
    a, b = (indices[s] if s in indices else const(s.arg[0], dtypes.index) for s in u.src)
    out = build("ADD", a, b if u.op == "ADD" else build("MUL", b, const(-1, dtypes.index)))
    return out if _fits(u.dtype, out) else None


def _formula(u: UOp) -> UOp | None:
    """Return the reduction `u` of constants as elementwise operations on IOTAs, or None if a loop remains.

    The result has dtype index if all its values fit into the dtype of `u`.
    """
    out = full_index(u.shape)
    ((_, index, _),) = sources(u, out, TRUE)
    found: UOp | None = build("REDUCE", element(u.src[0], index), *(index[a] for a in u.arg[1]), arg=(u.arg[0], ()))
    while found is not None and found.op == "REDUCE":
        found = without_loop(found, out)
    if found is None or not all(v.op in _FORMULA for v in toposort(found)):
        return None
    axes = {r: iota(n, dtypes.index, a, len(out)) for a, (r, n) in enumerate(zip(out, u.shape, strict=True))}
    new: dict[UOp, UOp] = {}
    for v in toposort(found):
        new[v] = axes[v] if v in axes and v.op == "RANGE" else rebuild(v, tuple(new[s] for s in v.src))
    value = new[found]
    is_index = value.op == "CAST" and value.src[0].dtype.kind == "x" and _fits(u.dtype, value.src[0])
    return value.src[0] if is_index else value


def _fits(d: DType, u: UOp) -> bool:
    """Whether the integer type `d` contains every value of the index `u`."""
    low, high = min_max(u)
    return d.is_int and d.min <= low and high <= d.max


__all__ = ["closed_forms"]

"""Turn gated stores of scalars into branches, for targets that cannot mask a store.

What it is for: targets with `Target.branches`. Adjacent stores under one gate share one branch. What it is not: it
leaves loads, whose gate selects between two values, and stores of vectors, which have a mask per lane.

Before: LINEAR(..., STORE(address, value, gate), ...)
After:  LINEAR(..., IF(gate), STORE(address, value), ENDIF, ...)
Invariant: operands are computed before the branch; blocks nest.
"""

from __future__ import annotations

from monolect.base.target import Target
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.uop import UOp, node, rebuild

_PURE = ELEMENTWISE | {"CONST", "STACK", "INDEX", "PARAM", "BITCAST", "RESHAPE", "EXPAND", "PERMUTE", "SHRINK", "SCAN"}


def control(linear: UOp, target: Target) -> UOp:
    """Pass: replace the gates of scalar STOREs and ATOMICADDs in `linear` by IF and ENDIF."""
    if not target.branches or not any(_is_gated(u) for u in linear.src):
        return linear
    out: list[UOp] = []
    new: dict[UOp, UOp] = {}
    block: UOp | None = None
    start = 0  # index in `out` at which the open branch begins
    for u in linear.src:
        src = tuple(new.get(s, s) for s in u.src)
        gate = src[2] if _is_gated(u) else None
        if block is not None and gate is None and u.op in _PURE:
            new[u] = rebuild(u, src)
            out.insert(start, new[u])  # an operand of a later store, which does not depend on the branch
            start += 1
            continue
        if block is not None and block.src[0] is not gate:
            out.append(node("ENDIF", (block,)))
            block = None
        if gate is not None:
            if block is None:
                # the tag makes each branch a distinct node, as one gate may be tested several times
                start, block = len(out), node("IF", (gate,), None, len(out))
                out.append(block)
            new[u] = node(u.op, src[:2], u.arg, u.tag)
        else:
            new[u] = node("END", (out[-1], *src[1:])) if u.op == "END" else rebuild(u, src)
        out.append(new[u])
    if block is not None:
        out.append(node("ENDIF", (block,)))
    return node("LINEAR", tuple(out), linear.arg)


def _is_gated(u: UOp) -> bool:
    """Whether `u` is a STORE or ATOMICADD of a scalar with a gate."""
    return u.op in ("STORE", "ATOMICADD") and len(u.src) == 3 and u.src[2].shape == () and u.src[0].shape == ()


__all__ = ["control"]

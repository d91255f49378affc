"""Select instructions: decompose ops and legalize types that the target lacks.

Values keep their shape; a decomposition is elementwise, so it applies to a whole block. The rules of both kinds are
applied to a fixed point, since a decomposition may need a type that the target lacks, and legalization an op that it
lacks.

Before: (target without EXP2)  EXP2 f32[16]
After:  MULACC, BITCAST, ... f32[16]
Invariant: every elementwise op left is in the target's native set, on dtypes that the target computes in. No rounding
is added or removed: a MULACC comes from the graph, from a sum of products (`lower.reduce`) or from a decomposition.
"""

from __future__ import annotations

from monolect.base.target import Target
from monolect.ir.ops import ELEMENTWISE
from monolect.ir.rewrite.driver import replaced
from monolect.ir.uop import UOp, nodes_of
from monolect.rules.decompose import decompose
from monolect.rules.legalize import legalize


def select(sink: UOp, target: Target) -> UOp:
    """Pass: replace the ops and dtypes of a kernel that `target` lacks."""
    if all(_is_native(u, target) for u in nodes_of(sink)):
        return sink
    return replaced(sink, lambda u: _replacement(u, target))


def _is_native(u: UOp, target: Target) -> bool:
    """Whether `u` needs no replacement: the target has its op on its dtypes, or `u` is no arithmetic."""
    if u.op not in ELEMENTWISE:
        return u.op not in ("REDUCE", "SCAN") or u.dtype in target.native_dtypes
    types = target.native_dtypes
    if u.op not in target.native or u.dtype not in types or any(s.dtype not in types for s in u.src):
        return False
    return (
        decompose(u, target.native) is None
    )  # |x| is MAX of x and NEG x; a target may have both ops and still need its decomposition


def _replacement(u: UOp, target: Target) -> UOp:
    """Return the replacement of `u` on the target, or `u` itself if it is native."""
    if u.op not in ELEMENTWISE and u.op not in ("REDUCE", "SCAN"):
        return u
    out = legalize(u, target.native_dtypes, target.cast_dtypes)
    out = decompose(u, target.native) if out is None else out
    return u if out is None else out


__all__ = ["select"]

"""Build the steps of running sums, whose carry from one iteration to the next has more bits than the results.

What it is for: `rules.loops.reductions` builds such steps; `optimize` and `lower` turn adjacent steps into lanes. The
accumulator of a float32 sum or product is float64 if the target has that type, so results are correct to about one
rounding in rows of any length. The LOAD of a sum's accumulator is marked as rounded: sums within a vector may then be
computed in float32, and only the carry is float64. Products have no mark, because their errors multiply.

Before: n = op(LOAD(acc), x), STORE(acc, n), LOAD(acc)                                                   all float32
After:  n = op(LOAD(acc), CAST(x)), STORE(acc, n), CAST(LOAD(acc, rounded))                         acc, n float64
"""

from __future__ import annotations

from monolect.base.dtype import DType, dtypes
from monolect.base.target import Target
from monolect.ir.ops import LoadArg
from monolect.ir.rewrite.named_rules import fired, is_on
from monolect.ir.uop import UOp, build, node

ROUNDED = LoadArg(rounded=True)


def carried_type(op: str, d: DType, target: Target) -> DType:
    """Return the dtype of the accumulator of a running `op` with results of dtype `d`: float64 for float32 sums and
    products if the target has it, else `d`.
    """
    if d is not dtypes.float32 or op not in ("ADD", "MUL") or dtypes.float64 not in target.native_dtypes:
        return d
    return dtypes.float64 if is_on("carry_in_double") else d


def step(op: str, acc: UOp, before: UOp, term: UOp) -> UOp:
    """Return the result of one step of a running `op`, after a STORE of the next carry to the accumulator `acc`.

    `before` is the previous carry, `term` the value added.
    """
    wide, d = before.dtype, term.dtype
    after = node("STORE", (acc, build(op, before, build("CAST", term, arg=wide))))
    mark = ROUNDED if op == "ADD" and wide is not d else None
    out = build("CAST", node("LOAD", (node("AFTER", (acc, after)),), mark), arg=d)
    return out if wide is d else fired("carry_in_double", term, out)


def rounded_sum(u: UOp) -> UOp | None:
    """Return the STORE that updates the accumulator if `u` is the CAST of a running sum to the dtype of its terms.

    Return None if `u` is not such a CAST of a LOAD marked as rounded.
    """
    is_result = u.op == "CAST" and u.src[0].op == "LOAD" and u.src[0].arg == ROUNDED
    return u.src[0].src[0].src[1] if is_result else None


__all__ = ["ROUNDED", "carried_type", "rounded_sum", "step"]

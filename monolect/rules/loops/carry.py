"""What a running sum carries from one iteration to the next, which has more bits than its results.

What it is for: `rules.loops.reductions`, which writes such steps, and `optimize` and `lower`, which make neighbouring ones lanes.
The accumulator of a float32 sum or product is float64, where the target has that: a result is as good as rounded once,
in a row of any length. What is read of it is marked as rounded, for a sum of lanes need not have more bits than its
results: only what all of them leave for the next ones does. Products must, for their errors multiply.

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
    """The type of the accumulator of a running `op` whose results are `d`."""
    if d is not dtypes.float32 or op not in ("ADD", "MUL") or dtypes.float64 not in target.native_dtypes:
        return d
    return dtypes.float64 if is_on("carry_in_double") else d


def step(op: str, acc: UOp, before: UOp, term: UOp) -> UOp:
    """The result of a step, after which the accumulator holds what the next one starts from."""
    wide, d = before.dtype, term.dtype
    after = node("STORE", (acc, build(op, before, build("CAST", term, arg=wide))))
    mark = ROUNDED if op == "ADD" and wide is not d else None
    out = build("CAST", node("LOAD", (node("AFTER", (acc, after)),), mark), arg=d)
    return out if wide is d else fired("carry_in_double", term, out)


def rounded_sum(u: UOp) -> UOp | None:
    """The STORE to the accumulator of a running sum of which `u` is the result, rounded."""
    is_result = u.op == "CAST" and u.src[0].op == "LOAD" and u.src[0].arg == ROUNDED
    return u.src[0].src[0].src[1] if is_result else None

"""Simplify values algebraically by rules that see several nodes and need no choice: the rules of the pass `simplify`.

Identities of a single node are applied during construction (`ir.rewrite.normal`); rules that depend on a target are in
`decompose`. Every rule here is exact for all operands, including nan, infinities and -0.0 (except for the sign of a
nan).

Before: WHERE(CMPNE(c, True), a, b)
After:  WHERE(c, b, a)
"""

from __future__ import annotations

import math

from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.rewrite.driver import rewrite
from monolect.ir.rewrite.named_rules import Family, Row, fired, listener
from monolect.ir.rewrite.normal import conjuncts
from monolect.ir.rewrite.pattern import Const, Pat, Rule, RuleSet, Var
from monolect.ir.uop import UOp, build, const, node
from monolect.rules.flat import flat_memory

x, y, z = Var("x"), Var("y"), Var("z")
flag = Var("flag", dtype="bool")


def scaled(x: UOp, c: UOp) -> UOp | None:
    """Return x / c as x * (1/c) if |c| is a power of two and 1/c is a normal number of the dtype, else None."""
    value = c.value
    if not math.isfinite(value) or value == 0 or abs(math.frexp(value)[0]) != 0.5:
        return None
    limit = {16: 14, 32: 126, 64: 1022}.get(c.dtype.bits, 0)
    return x * const(1 / value, c.dtype) if abs(math.frexp(value)[1] - 1) <= limit else None


def widened(root: UOp, x: UOp) -> UOp | None:
    """Return `x` if `root` casts it to a dtype that represents all of its values and back, else None."""
    d, wide = x.dtype, root.src[0].dtype
    if root.dtype is not d or d.kind in "xv" or wide.kind in "xv":
        return None
    if d.kind == "b":
        return x
    same_kind = d.kind == wide.kind and d.bits < wide.bits or d.kind == "u" and wide.kind == "i" and d.bits < wide.bits
    mantissa = {16: 11, 32: 24, 64: 53}.get(wide.bits, 0)
    fits = d.is_int and wide.is_float and wide.name != "bfloat16" and d.bits <= mantissa
    narrow = d.is_float and wide.is_float and d.bits < 16
    return x if same_kind and not narrow or fits else None


def larger(x: UOp, a: UOp, b: UOp) -> UOp | None:
    """Return max(max(x, a), b) with the larger of the two constants, or None if one is nan."""
    if a.value != a.value or b.value != b.value or a.dtype is not b.dtype:
        return None
    return build("MAX", x, a if a.value >= b.value else b)


def gated(flag: UOp, load: UOp, c: UOp) -> UOp | None:
    """Return WHERE(flag, load, c) as the gated `load` with alternative `c`, or None if that would be another value.

    The gate of `load` must be `flag`; or it must imply `flag`, and the alternative of `load` must be `c` already.
    """
    index, alt, gate = load.src
    if not set(conjuncts(flag)) <= set(conjuncts(gate)) or (alt is not c and flag is not gate):
        return None
    return node("LOAD", (index, c, gate), load.arg)


# fmt: off
ALGEBRA = RuleSet(
    "algebra",
    Rule("where_swap", Pat("WHERE", flag.differs(True), y, z), lambda flag, y, z: build("WHERE", flag, z, y), text="(y if not p else z) is (z if p else y)"),
    Rule("neg_neg", Pat("NEG", Pat("NEG", x)), x, text="-(-x) is x"),
    Rule("sub_neg", Pat("SUB", x, Pat("NEG", y)), lambda x, y: build("ADD", x, y), text="x - -y is x + y"),
    Rule("add_neg", x + Pat("NEG", y), lambda x, y: build("SUB", x, y), text="x + -y is x - y"),
    Rule("mul_neg_neg", Pat("NEG", x) * Pat("NEG", y), lambda x, y: x * y, text="-x * -y is x * y"),
    Rule("mul_minus_one", Var("x", dtype="float") * Const(-1), lambda x: build("NEG", x), text="x * -1 of floats is -x"),
    Rule("div_power_of_two", Pat("DIV", Var("x", dtype="float"), Const("c")), scaled, text="x / 2**k is x * 2**-k, if the factor is a normal number"),
    Rule("cast_back", Pat("CAST", Pat("CAST", x)), widened, text="a cast to a dtype that represents all values of x, and back, is x"),
    Rule("cast_of_bool", Pat("CAST", Pat("CAST", flag)), lambda root, flag: build("CAST", flag, arg=root.arg), text="a cast of a cast of a bool is one cast"),
    Rule("bool_of_number", Pat("CAST", flag).differs(0), lambda flag: flag, text="number(p) != 0 is p"),
    Rule("max_max", Pat("MAX", Pat("MAX", x, Const("a")), Const("b")), larger, text="max(max(x, a), b) of constants a and b is max(x, max(a, b))"),
    Rule("where_of_gated_load", Pat("WHERE", flag, Pat("LOAD", x, y, z, name="load"), Const("c")), gated, text="(load if p else c) is the load with alternative c, if its gate is p, or implies p and c is its alternative"),
    Rule("shift_by_zero", Pat(("SHL", "SHR"), x, Const(0)), x, text="x << 0 and x >> 0 are x"),
)
# fmt: on
ROWS = Family("algebra", __name__, *(Row(rule.name, rule.text) for rule in ALGEBRA))


def simplify(sink: UOp, target: Target) -> UOp:
    """Pass: flatten memory, and apply the algebra rules that the setting DISABLE does not name until none applies."""
    trace = fired if listener.callback is not None else None
    return rewrite(flat_memory(sink), ALGEBRA.without(settings.disabled), trace=trace)


__all__ = ["ALGEBRA", "gated", "larger", "scaled", "simplify", "widened"]

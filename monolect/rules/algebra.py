"""Algebra on values that needs no choice but sees more than one node: the named rules of the pass `simplify`.

What holds for a single node at its construction is in `ir.rewrite.normal`; what depends on a target in `decompose`. Every rule
here is exact for all operands, nan, infinities and -0.0 included (the sign of a nan aside).

Before: WHERE(CMPNE(c, True), a, b)
After:  WHERE(c, b, a)
"""

from __future__ import annotations

import math

from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.rewrite.driver import rewrite
from monolect.ir.rewrite.named_rules import Family, Row, fired, listening
from monolect.ir.rewrite.normal import conjuncts
from monolect.ir.rewrite.pattern import Const, Pat, Rule, RuleSet, Var
from monolect.ir.uop import UOp, build, const, node
from monolect.rules.flat import flat_memory

x, y, z = Var("x"), Var("y"), Var("z")
flag = Var("flag", dtype="bool")


def scaled(x: UOp, c: UOp) -> UOp | None:
    """x / 2**k as x * 2**-k, where the factor is a normal number of the dtype."""
    value = c.value
    if not math.isfinite(value) or value == 0 or abs(math.frexp(value)[0]) != 0.5:
        return None
    limit = {16: 14, 32: 126, 64: 1022}.get(c.dtype.bits, 0)
    return x * const(1 / value, c.dtype) if abs(math.frexp(value)[1] - 1) <= limit else None


def widened(root: UOp, x: UOp) -> UOp | None:
    """x cast to a dtype that holds all of its values, and back."""
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
    """One bound of two."""
    if a.value != a.value or b.value != b.value or a.dtype is not b.dtype:
        return None
    return build("MAX", x, a if a.value >= b.value else b)


def gated(flag: UOp, load: UOp, c: UOp) -> UOp | None:
    """A gated load that a WHERE closes once more."""
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
    Rule("mul_minus_one", Var("x", dtype="float") * Const(-1), lambda x: build("NEG", x), text="x * -1 is -x, of floats"),
    Rule("div_power_of_two", Pat("DIV", Var("x", dtype="float"), Const("c")), scaled, text="x / 2**k is x * 2**-k, where the factor is a normal number"),
    Rule("cast_back", Pat("CAST", Pat("CAST", x)), widened, text="a cast to a dtype that holds all values of x, and back, is x"),
    Rule("cast_of_bool", Pat("CAST", Pat("CAST", flag)), lambda root, flag: build("CAST", flag, arg=root.arg), text="a cast of a cast of a bool is one cast"),
    Rule("bool_of_number", Pat("CAST", flag).differs(0), lambda flag: flag, text="number(p) != 0 is p"),
    Rule("max_max", Pat("MAX", Pat("MAX", x, Const("a")), Const("b")), larger, text="max(max(x, a), b) is max(x, max(a, b)), of constants a and b"),
    Rule("where_of_gated_load", Pat("WHERE", flag, Pat("LOAD", x, y, z, name="load"), Const("c")), gated, text="(a load that is c where p does not hold, if p else c) is the load"),
    Rule("shift_by_zero", Pat(("SHL", "SHR"), x, Const(0)), x, text="x << 0 and x >> 0 are x"),
)
# fmt: on
ROWS = Family("algebra", __name__, *(Row(rule.name, rule.text) for rule in ALGEBRA))


def simplify(sink: UOp, target: Target) -> UOp:
    """The rules that DISABLE leaves applied to a fixed point, on flat memory."""
    trace = fired if listening.heard is not None else None
    return rewrite(flat_memory(sink), ALGEBRA.without(settings.disabled), trace=trace)

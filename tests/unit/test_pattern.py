"""Patterns, rules and the driver."""

import traceback

import pytest
from hypothesis import given

from monolect.base.dtype import dtypes
from monolect.base.errors import InternalError
from monolect.ir.ops import INVALID, BufferArg, ParamArg
from monolect.ir.rewrite.driver import rewrite
from monolect.ir.rewrite.pattern import Const, Pat, Rule, RuleSet, Var
from monolect.ir.text import summary
from monolect.ir.uop import UOp, const, node, shape_source
from tests.strategies import tensor_graphs

X, Y, Z = (node("PARAM", (), ParamArg(k, dtypes.float32)) for k in range(3))
N = node("PARAM", (), ParamArg(3, dtypes.int32))
B = node("BUFFER", (shape_source((4,)),), BufferArg(0, dtypes.float32, "cpu"))
x, y, c = Var("x"), Var("y"), Const("c")


def number(v: float) -> UOp:
    return const(v, dtypes.float32)


def one(pattern, replacement, when=None, **more: object) -> RuleSet:
    return RuleSet("test", Rule("only", pattern, replacement, when, **more))


def plain(op: str, *src: UOp, arg: object = None) -> UOp:
    return node(op, src, arg)


# ---- patterns
def test_constants_and_variables() -> None:
    rules = one(x + 0, x)
    assert rewrite(plain("ADD", X, number(0.0)), rules) is X
    assert rewrite(plain("ADD", number(0.0), X), rules) is X  # both orders
    kept = plain("ADD", X, number(-0.0))
    assert rewrite(kept, rules) is kept  # -0.0 is another number
    flags = plain("ADD", node("PARAM", (), ParamArg(0, dtypes.bool)), const(False, dtypes.bool))
    assert rewrite(flags, rules) is flags  # and False is no number
    assert rewrite(plain("ADD", X, const(INVALID, dtypes.float32)), one(x + Const(INVALID), x)) is X


def test_repeated_variables_are_the_same_node() -> None:
    rules = one(Pat("SUB", x, x), 0)
    assert rewrite(plain("SUB", X, X), rules) is number(0.0)
    assert rewrite(plain("SUB", X, Y), rules).op == "SUB"
    nested = one((x * y) + x, x * (y + 1))
    for u in (plain("ADD", plain("MUL", X, Y), X), plain("ADD", X, plain("MUL", Y, X))):
        assert rewrite(u, nested) is plain("MUL", X, plain("ADD", Y, number(1.0)))


def test_commutative_operands_match_at_every_level() -> None:
    rules = one((x * c) + (y * c), (x + y) * c)
    k = number(3.0)
    want = plain("MUL", plain("ADD", X, Y), k)
    for a in (plain("MUL", X, k), plain("MUL", k, X)):
        for b in (plain("MUL", Y, k), plain("MUL", k, Y)):
            assert rewrite(plain("ADD", a, b), rules) is want
    assert rewrite(plain("ADD", plain("MUL", X, k), plain("MUL", Y, number(4.0))), rules).op == "ADD"


def test_operands_of_other_ops_keep_their_order() -> None:
    rules = one(Pat("SUB", x, Const(1)), x)
    assert rewrite(plain("SUB", number(1.0), X), rules).op == "SUB"


def test_guards() -> None:
    assert rewrite(plain("ADD", N, const(0, dtypes.int32)), one(Var("x", dtype="float") + 0, x)).op == "ADD"
    assert rewrite(plain("ADD", X, number(0.0)), one(Var("x", dtype=dtypes.float32) + 0, x)) is X
    assert rewrite(plain("NEG", X), one(Pat("NEG", x, dtype=(dtypes.int32, dtypes.float32)), x)) is X
    assert rewrite(plain("ADD", X, number(2.0)), one(x + Const("c", where=lambda u: u.arg[0] > 2), x)).op == "ADD"
    assert rewrite(plain("ADD", X, number(3.0)), one(x + Const("c", where=lambda u: u.arg[0] > 2), x)) is X
    total = plain("REDUCE", B, arg=("ADD", (0,)))
    assert rewrite(total, one(Pat("REDUCE", x, arg=("MAX", (0,))), lambda x: None)) is total
    hits = []
    rewrite(total, one(Pat("REDUCE", x, arg=lambda a: a[0] == "ADD"), lambda x: hits.append(x)))
    assert hits == [B]


def test_when_and_functions_of_captured_nodes() -> None:
    rules = one((x + Const("a")) + Const("b"), lambda x, a, b, root: x + (a + b), when=lambda a, b: a is not b)
    u = plain("ADD", plain("ADD", X, number(1.0)), number(2.0))
    assert rewrite(u, rules) is plain("ADD", X, number(3.0))
    same = plain("ADD", plain("ADD", X, number(1.0)), number(1.0))
    assert rewrite(same, rules) is same
    assert rewrite(same, one(x + y, lambda root: None)) is same


def test_several_ops_any_op_and_any_sources() -> None:
    rules = one(Pat(("EXP2", "LOG2"), x), lambda x, root: node("SIN", (x,)) if root.op == "LOG2" else None)
    assert rewrite(plain("LOG2", plain("EXP2", X)), rules) is plain("SIN", plain("EXP2", X))
    seen = []
    rewrite(plain("SINK", X, Y), one(Var("u"), lambda u: seen.append(u.op)))
    assert seen == ["PARAM", "PARAM", "SINK"]
    assert rewrite(plain("SINK", X, Y), one(Pat("SINK", x), lambda x: x, changes_type=True)).op == "SINK"
    assert rewrite(plain("SINK", X), one(Pat("SINK", x), lambda x: x, changes_type=True)) is X
    assert rewrite(plain("SINK", X, Y), one(Pat("SINK", name="s"), lambda s: s.src[0], changes_type=True)) is X


def test_replacements_take_dtype_from_beside_and_shape_from_the_root() -> None:
    flag = plain("CMPLT", N, const(5, dtypes.int32))
    u = rewrite(flag, one(Pat("CMPLT", x, Const(5)), Pat("CMPLT", x, 7)))
    assert u is plain("CMPLT", N, const(7, dtypes.int32))
    zeros = rewrite(plain("REDUCE", plain("SUB", B, B), arg=("ADD", (0,))), one(Pat("SUB", x, x), 0))
    assert zeros.shape == (1,) and summary(zeros)["EXPAND"] == 1
    assert (
        rewrite(plain("NEG", X), one(Pat("NEG", x), Pat("CAST", x, arg=dtypes.int32), changes_type=True)).op == "CAST"
    )


def test_rules_are_checked_when_made() -> None:
    with pytest.raises(InternalError, match="rule r: a name that its pattern lacks"):
        Rule("r", x + 0, y)
    with pytest.raises(InternalError, match="rule r: a name that its pattern lacks"):
        Rule("r", x + 0, lambda z: z)
    with pytest.raises(InternalError, match="a name used twice"):
        RuleSet("set", Rule("r", x + 0, x), Rule("r", x * 1, x))
    with pytest.raises(InternalError, match="unknown op"):
        Pat("FOO", x)
    with pytest.raises(InternalError, match="unknown kind of dtype"):
        Var("x", dtype="fraction")
    with pytest.raises(InternalError, match="must build one op"):
        one(Pat("NEG", x), Pat(("SIN", "SQRT"), x)).compile()


def test_a_rule_keeps_dtype_and_shape() -> None:
    with pytest.raises(InternalError, match="rule only changes dtype or shape"):
        rewrite(plain("NEG", X), one(Pat("NEG", x), lambda x: N))


def test_generated_code_stands_in_tracebacks() -> None:
    def fails(x: UOp) -> UOp:
        raise ZeroDivisionError

    rules = one(Pat("NEG", x), fails)
    with pytest.raises(ZeroDivisionError) as e:
        rewrite(plain("NEG", X), rules)
    assert "r = f" in "".join(traceback.format_exception(e.value))
    assert "# only" in rules.source("NEG") and rules.source("ADD") == ""


def test_sets_add_up_in_order() -> None:
    a = RuleSet("a", Rule("first", Pat("NEG", x), lambda x: node("SIN", (x,))))
    b = RuleSet("b", Rule("second", Pat("NEG", x), lambda x: node("SQRT", (x,))))
    assert rewrite(plain("NEG", X), a + b).op == "SIN"
    assert rewrite(plain("NEG", X), b + a).op == "SQRT"
    assert [r.name for r in a + b] == ["first", "second"] and len(a + b) == 2


# ---- the driver
def test_what_rules_make_is_rewritten_too() -> None:
    rules = RuleSet(
        "chain",
        Rule("neg", Pat("NEG", x), x * -1),
        Rule("mul", x * -1, lambda x: node("SIN", (node("NEG", (node("SQRT", (x,)),)),))),
        Rule("sqrt", Pat("SQRT", x), x),
        Rule("sin", Pat("SIN", Pat("MUL", x, -1)), x),
    )
    fired = []
    u = plain("SQRT", X)
    assert rewrite(u, rules, trace=lambda name, before, after: fired.append((name, before.op, after.op))) is X
    assert fired == [("sqrt", "SQRT", "PARAM")]


def test_trace_sees_each_firing() -> None:
    fired = []
    u = plain("ADD", plain("MUL", X, number(1.0)), number(0.0))
    rules = RuleSet("tidy", Rule("add_zero", x + 0, x), Rule("mul_one", x * 1, x))
    assert rewrite(u, rules, trace=lambda *what: fired.append(what)) is X
    assert [name for name, *_ in fired] == ["mul_one", "add_zero"]
    assert fired[0][1] is u.src[0] and fired[0][2] is X


def test_top_down_sees_a_node_before_its_sources() -> None:
    rules = RuleSet("r", Rule("outer", Pat("SIN", Pat("NEG", x)), x), Rule("inner", Pat("NEG", x), lambda x: -x))
    u = plain("SIN", plain("NEG", X))
    assert rewrite(u, rules, bottom_up=False) is X
    assert rewrite(u, rules) is plain("SIN", plain("MUL", X, number(-1.0)))


def test_top_down_reaches_the_same_fixed_point_below() -> None:
    rules = one(x * 1, x)
    u = plain("SIN", plain("MUL", plain("MUL", X, number(1.0)), number(1.0)))
    assert rewrite(u, rules, bottom_up=False) is rewrite(u, rules) is plain("SIN", X)


def test_stop_and_context() -> None:
    inner = plain("NEG", X)
    u = plain("SUB", plain("CONTIGUOUS", inner), plain("NEG", Y))
    rules = one(Pat("NEG", x), lambda x, context: node(context, (x,)))
    got = rewrite(u, rules, context="SIN", stop=lambda v: v.op == "CONTIGUOUS")
    assert got.src[0].src[0] is inner and got.src[1].op == "SIN"


def test_tags_and_origins_are_kept() -> None:
    u = node("SIN", (plain("MUL", X, number(1.0)),), None, "tag")
    u.origin = ("model.py", 3, "sin")
    got = rewrite(u, one(x * 1, x))
    assert got.tag == "tag" and got.src[0] is X and got.origin == u.origin


def test_rules_that_undo_each_other_are_named() -> None:
    rules = RuleSet(
        "silly",
        Rule("there", Pat("SIN", x), Pat("SQRT", x)),
        Rule("back", Pat("SQRT", x), Pat("SIN", x)),
    )
    with pytest.raises(InternalError, match="rules of silly undo each other: (there, back|back, there)"):
        rewrite(plain("NEG", plain("SIN", X)), rules)


def test_rules_that_grow_without_end_are_named() -> None:
    with pytest.raises(InternalError, match="do not come to an end: only"):
        rewrite(plain("SIN", X), one(Pat("SIN", x), lambda x: node("SIN", (node("SQRT", (x,)),))))
    with pytest.raises(InternalError, match="undo each other: only"):
        rewrite(plain("SIN", X), one(Pat("SIN", x), lambda root: node("SIN", (node("NEG", (root,)),))))


def test_shared_nodes_are_rewritten_once() -> None:
    u, fired = plain("MUL", X, number(1.0)), []
    for _ in range(200):
        u = plain("ADD", u, u)
    got = rewrite(u, one(x * 1, x), trace=lambda *what: fired.append(what))
    assert len(fired) == 1 and summary(got)["ADD"] == 200


def test_deep_graphs_need_no_recursion() -> None:
    u = X
    for _ in range(20_000):
        u = plain("NEG", u)
    assert rewrite(u, one(Pat("NEG", Pat("NEG", x)), x)) is X
    assert rewrite(u, one(Pat("NEG", Pat("NEG", x)), x), bottom_up=False) is X


@given(tensor_graphs())
def test_no_rules_change_nothing(u: UOp) -> None:
    assert rewrite(u, RuleSet("none")) is u
    assert rewrite(u, one(Var("u"), lambda u: None), bottom_up=False) is u

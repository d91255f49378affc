"""The normal form keeps meaning: on all values of small loops, on random tensors, and by proof."""

import numpy as np
import pytest
import z3
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect.base.dtype import dtypes
from monolect.ir.bounds import min_max, ranges
from monolect.ir.check.interp import evaluate, run_kernel
from monolect.ir.ops import ParamArg
from monolect.ir.rewrite.normal import FALSE, TRUE, less, linear, negate, within
from monolect.ir.text import show
from monolect.ir.uop import UOp, build, const, idx, node, shape_source, toposort
from tests.strategies import assert_same, bindings, index_graphs, normal_form, range_grid, tensor_graphs


def loop(k: int, bound: int) -> UOp:
    return node("RANGE", (idx(bound),), (k, "LOOP"))


R, J, K = loop(0, 4), loop(1, 6), loop(2, 5)


def same_meaning(u: UOp) -> None:
    grid = range_grid(node("SINK", (u, R, J, K)))
    before, after = evaluate([u, normal_form(u)], grid)
    np.testing.assert_array_equal(before, after, err_msg=f"\n{show(u)}became\n{show(normal_form(u))}")


@given(index_graphs())
def test_index_expressions_keep_their_value(u: UOp) -> None:
    same_meaning(u)


@given(index_graphs(boolean=True))
def test_comparisons_keep_their_value(u: UOp) -> None:
    same_meaning(u)


@given(index_graphs(boolean=True))
def test_negate_is_logical_not(u: UOp) -> None:
    u = normal_form(u)
    got, flipped = evaluate([u, negate(u)], range_grid(node("SINK", (u, R, J, K))))
    np.testing.assert_array_equal(flipped, ~got)


@given(index_graphs())
def test_normal_form_is_stable(u: UOp) -> None:
    once = normal_form(u)
    assert normal_form(once) is once, f"\n{show(once)}became\n{show(normal_form(once))}"


@given(index_graphs())
def test_bounds_hold_every_value_of_an_index(u: UOp) -> None:
    for v in (u, normal_form(u)):
        lo, hi = min_max(v)
        values = evaluate(v, range_grid(node("SINK", (u, R, J, K))))
        assert lo <= values.min() and values.max() <= hi, show(v)


@given(tensor_graphs(), st.integers(0, 9))
def test_tensors_keep_their_value(u: UOp, seed: int) -> None:
    new = normal_form(u)
    assert new.dtype is u.dtype and new.shape == u.shape
    before, after = evaluate([u, new], bindings(u, seed))
    assert_same(after, before, f"\n{show(u)}became\n{show(new)}")


@given(tensor_graphs(), st.integers(0, 9))
def test_bounds_hold_every_element(u: UOp, seed: int) -> None:
    nodes = [v for v in toposort(u) if v.dtype.kind in "iubx" and v.op != "STACK"]
    for v, values in zip(nodes, evaluate(nodes, bindings(u, seed)), strict=True):
        lo, hi = min_max(v)
        assert not values.size or (lo <= values.min() and values.max() <= hi), show(v)


# ---- proofs
def to_z3(u: UOp, known: dict[UOp, z3.ExprRef]) -> z3.ExprRef:
    """`u` over unbounded integers: division and remainder round down, and are 0 by 0."""

    def divide(a: z3.ArithRef, b: int) -> z3.ArithRef:
        return z3.IntVal(0) if b == 0 else a / b if b > 0 else (-a) / (-b)  # z3 divides Euclid's way

    for v in toposort(u):
        if v in known or v.op == "RANGE":
            known.setdefault(v, z3.Int(f"r{v.arg[0]}") if v.op == "RANGE" else None)
            continue
        s = [known[x] for x in v.src]
        n = v.src[1].arg[0] if len(v.src) > 1 and v.src[1].op == "CONST" else None
        known[v] = {
            "CONST": lambda v=v: z3.BoolVal(v.arg[0]) if v.dtype.kind == "b" else z3.IntVal(v.arg[0]),
            "ADD": lambda s=s: s[0] + s[1],
            "MUL": lambda s=s: s[0] * s[1],
            "MAX": lambda s=s: z3.If(s[0] > s[1], s[0], s[1]),
            "CMPLT": lambda s=s: s[0] < s[1],
            "CMPNE": lambda s=s: s[0] != s[1],
            "WHERE": lambda s=s: z3.If(s[0], s[1], s[2]),
            "IDIV": lambda s=s, n=n: divide(s[0], n),
            "MOD": lambda s=s, n=n: z3.IntVal(0) if n == 0 else s[0] - n * divide(s[0], n),
        }[v.op]()
    return known[u]


def prove_same(u: UOp, v: UOp) -> None:
    known: dict[UOp, z3.ExprRef] = {}
    solver = z3.Solver()
    solver.set("timeout", 5000)
    for r in (x for x in toposort(u, v) if x.op == "RANGE"):
        known[r] = z3.Int(f"r{r.arg[0]}")
        solver.add(known[r] >= 0, known[r] < r.src[0].arg[0])
    solver.add(to_z3(u, known) != to_z3(v, known))
    assert solver.check() != z3.sat, f"{solver.model()}\n{show(u)}became\n{show(v)}"


@settings(max_examples=25)
@given(index_graphs(bounds=(1000, 4096, 77), size=7))
def test_proven_equal(u: UOp) -> None:
    prove_same(u, normal_form(u))


@pytest.mark.sweep
@pytest.mark.parametrize("c", [2, 3, 12, 64])
@pytest.mark.parametrize("k", [-5, 0, 1, 11])
def test_proven_division_identities(c: int, k: int) -> None:
    x, y = loop(0, 10**6), loop(1, c)
    for raw in (
        node("IDIV", (node("ADD", (node("MUL", (x, idx(c))), node("ADD", (y, idx(k))))), idx(c))),
        node("MOD", (node("ADD", (node("MUL", (x, idx(c))), node("ADD", (y, idx(k))))), idx(c))),
        node("IDIV", (node("IDIV", (node("ADD", (x, idx(k))), idx(c))), idx(7))),
        node("IDIV", (node("MOD", (x, idx(c * 8))), idx(c))),
        node("MOD", (node("MOD", (x, idx(c * 8))), idx(c))),
        node("CMPLT", (node("MUL", (x, idx(c))), idx(k))),
    ):
        prove_same(raw, normal_form(raw))


# ---- what it reaches
def test_equal_indices_are_one_node() -> None:
    assert (R * 6 + J) // 6 is R
    assert (R * 6 + J) % 6 is J
    assert (R * 6 + J) // 6 * 6 + (R * 6 + J) % 6 is R * 6 + J
    assert (R + J) - R is J
    assert (J + R) + 3 is (3 + R) + J
    assert ((R * 6 + J) * 5 + K) // 5 % 6 is J
    for x in (
        R * 37 + J,
        R * 37 + J + 11,
        R * 38 + K * 22 + 9,
    ):  # the remainder's dividend was reduced by multiples of 7
        assert x // 7 * 7 + x % 7 is x and (x // 7 * 7 + x % 7) * 3 + R is x * 3 + R
    assert (R * 4 + J * 2) // 2 is R * 2 + J
    assert less(R * 6 + J, 24) is TRUE and less(R, 0) is FALSE
    assert within(R, 0, 4) is TRUE
    assert less(R * 4, 8) is less(R, 2)


def test_a_position_taken_apart_and_put_together_is_itself() -> None:
    at = build("MAX", node("PARAM", (), ParamArg(0, dtypes.index)), idx(0))  # nothing is known of it
    for sizes in ((5, 4), (5, 4, 3), (2, 5, 4, 3)):
        parts, left = [], at
        for n in reversed(sizes[1:]):
            parts.append(left % n)
            left = left // n
        whole = left
        for n, part in zip(sizes[1:], reversed(parts), strict=True):
            whole = whole * n + part
        assert whole is at
        assert whole * 7 + J is at * 7 + J


def test_a_loop_ends_before_its_bound_whatever_that_is() -> None:
    n = node("PARAM", (), ParamArg(0, dtypes.index, None, None, "n", 0, 9))
    for bound in (n, n * 16):
        r, other = node("RANGE", (bound,), (0, "LOOP")), node("RANGE", (n * 3,), (1, "LOOP"))
        assert build("MOD", r, bound) is r and build("IDIV", r, bound) is idx(0)
        assert build("MOD", other, bound) is not other and build("IDIV", other, bound) is not idx(0)


def test_numbers_that_count_are_compared_as_indices() -> None:
    def as_int(u: UOp) -> UOp:
        return build("CAST", u, arg=dtypes.int32)

    assert build("CMPLT", as_int(R), as_int(J)) is less(R, J)
    assert build("CMPLT", as_int(R), const(2, dtypes.int32)) is less(R, 2)
    big = node("PARAM", (), ParamArg(0, dtypes.index))
    assert build("CMPLT", as_int(big), as_int(J)).src[0] is as_int(big), "the cast may have wrapped"
    p = node("PARAM", (), ParamArg(0, dtypes.bool))
    chosen = build("WHERE", p, const(1, dtypes.int64), const(0, dtypes.int64))
    assert as_int(chosen) is build("WHERE", p, const(1, dtypes.int32), const(0, dtypes.int32))


def test_a_difference_is_bounded_by_its_ends() -> None:
    x, y = (node("RANGE", (idx(n),), (k, "LOOP")) for k, n in enumerate((9, 5)))
    assert min_max(node("SUB", (x, y))) == (-4, 8)
    d = dtypes.uint8
    small = node("SUB", (const(3, d), node("MOD", (node("CAST", (x,), d), const(4, d)))))
    assert min_max(small) == (0, 3) and min_max(node("SUB", (const(2, d), small))) == (0, 255)  # it may wrap


def test_a_mask_bounds_numbers_of_either_sign() -> None:
    x = node("PARAM", (), ParamArg(0, dtypes.int32))
    assert min_max(build("AND", x, const(12, dtypes.int32))) == (0, 12)
    assert min_max(build("AND", x, const(-2, dtypes.int32)))[0] < 0


def test_a_choice_by_its_own_comparison_is_the_smaller_or_the_larger() -> None:
    a, b = (
        build("LOAD", build("INDEX", node("PARAM", (shape_source((4,)),), ParamArg(0, d, "cpu")), idx(1)))
        for d in (dtypes.uint8, dtypes.int64)
    )
    for x, bounds in ((a, (0, 8)), (b, (-(2**63), 8))):
        eight = const(8, x.dtype)
        assert min_max(build("WHERE", build("CMPLT", x, eight), x, eight)) == bounds
        assert min_max(build("WHERE", build("CMPLT", eight, x), eight, x)) == bounds
        assert min_max(build("WHERE", build("CMPLT", x, eight), eight, x)) == (8, min_max(x)[1])


def test_a_negative_remainder_is_not_divided_early() -> None:
    for c in (-3, -6):
        same_meaning(node("IDIV", (node("MOD", (K, idx(c))), idx(3))))


def test_coefficients_are_reduced_before_the_remainder_is_split() -> None:
    n = node("PARAM", (), ParamArg(0, dtypes.index, name="n", min=1, max=4))
    assert (n * 24 + K) % 16 is (n * 8 + K) % 16 is n % 2 * 8 + K


def test_a_product_is_distributed_in_either_order() -> None:
    n = node("PARAM", (), ParamArg(0, dtypes.index, name="n", min=1, max=4))
    for a, b in ((R + n * 2, J), (R + n * 2, J + -7)):
        assert a * b is b * a


def test_branches_on_one_condition_collapse() -> None:
    p = node("PARAM", (), ParamArg(0, dtypes.bool))
    assert build("WHERE", p, build("WHERE", p, R, J), R) is R


def test_branches_on_one_condition_keep_the_shape_that_comes_from_them() -> None:
    c = node("PARAM", (shape_source((2, 1)),), ParamArg(0, dtypes.bool))
    x = node("PARAM", (shape_source((2, 3)),), ParamArg(1, dtypes.float32))
    zero = const(0, dtypes.float32)
    for then, other in ((zero, x), (x, zero)):
        inner = build("WHERE", c, then, other)
        for outer in (build("WHERE", c, inner, zero), build("WHERE", c, zero, inner), build("WHERE", c, inner, inner)):
            assert outer.shape == (2, 3)
    assert build("WHERE", c, build("WHERE", c, x, zero), zero) is build("WHERE", c, x, zero)
    assert build("WHERE", c, build("WHERE", c, zero, x), x) is build("WHERE", c, zero, x)


def test_sums_are_read_back() -> None:
    assert linear(R * 6 + J + 3) == (3, ((R, 6), (J, 1)))


def test_conditions_that_hold_in_all_lanes_leave_a_gate() -> None:
    lanes = build("STACK", *(idx(i) for i in range(4)))
    memory = node("PARAM", (build("STACK", idx(64)),), ParamArg(0, dtypes.float32, "cpu"))
    place = node("INDEX", (memory, lanes + R))
    holds, may = build("CMPLT", lanes + R, idx(9)), build("CMPLT", lanes + R, idx(5))
    zero = const(0, dtypes.float32)
    assert build("LOAD", place, zero, holds).src == (place,)
    assert build("LOAD", place, zero, build("AND", holds, may)).src[2] is may
    assert build("LOAD", place, zero, less(R, 3)).src[2] is less(R, 3)


def test_symbolic_sizes() -> None:
    n = node("PARAM", (), ParamArg(0, dtypes.index, name="n", min=1, max=64))
    assert (n * 4) // 4 is n
    assert n + n is n * 2
    assert less(0, n) is TRUE and n // n is idx(1) and n % n is idx(0)
    r = node("RANGE", (n,), (0, "LOOP"))
    assert min_max(r) == (0, 63)


def test_floats_keep_ieee_meaning() -> None:
    x = node("PARAM", (), ParamArg(0, dtypes.float32))
    zero, one = const(0.0, dtypes.float32), const(1.0, dtypes.float32)
    assert build("ADD", x, zero).op == "ADD"
    assert build("MUL", x, one) is x
    assert build("MUL", x, zero).op == "MUL"
    assert build("ADD", const(0.1, dtypes.float32), const(0.2, dtypes.float32)).arg[0] == float(
        np.float32(0.1) + np.float32(0.2)
    )


def test_ranges_are_those_not_closed() -> None:
    u = node("REDUCE", (R * 6 + J + K, K), ("ADD", ()))
    assert ranges(u) == {R, J}
    assert ranges(node("END", (node("STORE", (R, u)), R, J))) == set()
    bound = node("RANGE", (R + 1,), (7, "REDUCE"))
    assert ranges(node("REDUCE", (bound, bound), ("ADD", ()))) == {R}


@example(node("IDIV", (idx(7), idx(-2))))
@example(node("MOD", (idx(7), idx(-2))))
@example(node("MOD", (idx(-7), idx(0))))
@given(st.sampled_from("IDIV MOD".split()).flatmap(
    lambda op: st.tuples(st.integers(-50, 50), st.integers(-9, 9)).map(lambda p: node(op, (idx(p[0]), idx(p[1]))))
))  # fmt: skip
def test_constant_division_rounds_down(u: UOp) -> None:
    same_meaning(u)


@pytest.mark.parametrize("op", ["STORE", "ATOMICADD"])
def test_an_effect_names_the_loops_that_repeat_it(op: str) -> None:
    """It stays in them whatever it writes: an addition is made as often as they run."""
    out = node("PARAM", (shape_source((8,)),), ParamArg(0, dtypes.float32))
    outer, inner = loop(0, 4), loop(1, 2)
    one = const(1.0, dtypes.float32)
    alone = node(op, (node("INDEX", (out, idx(3))), one))
    end = build("END", alone, outer, inner)
    assert ranges(end.src[0]) == {outer, inner} and not ranges(end)
    assert build("END", *end.src) is end
    both = build("END", node("GROUP", (alone, node(op, (node("INDEX", (out, inner)), one)))), outer, inner)
    assert all(ranges(e) == {outer, inner} for e in both.src[0].src)
    own = node(op, (node("INDEX", (out, outer * 2 + inner)), one))
    assert build("END", own, outer, inner).src[0] is own
    memory = np.zeros(8, np.float32)
    run_kernel(node("SINK", (end,)), {out: memory})
    assert memory[3] == (8 if op == "ATOMICADD" else 1)

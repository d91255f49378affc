"""Every rule of the algebra fires on its example and leaves each value as it was, bit for bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monolect.base.dtype import dtypes
from monolect.ir.check.interp import evaluate
from monolect.ir.ops import ParamArg
from monolect.ir.rewrite.driver import rewrite
from monolect.ir.rewrite.normal import less
from monolect.ir.uop import UOp, build, const, idx, node, shape_source
from monolect.rules.algebra import ALGEBRA

N = 64
F32, F64, I8, I32, BOOL = dtypes.float32, dtypes.float64, dtypes.int8, dtypes.int32, dtypes.bool


def leaf(slot: int, d: Any) -> UOp:
    return node("PARAM", (shape_source((N,)),), ParamArg(slot, d, "cpu"))


x, y, i, small, a, b = leaf(0, F32), leaf(1, F32), leaf(2, I32), leaf(3, I8), leaf(4, BOOL), leaf(5, F64)
TRUE = const(True, BOOL)

count_ = node("RANGE", (idx(N),), (0, "LOOP"))
inside = less(idx(3), count_)


def loaded(alt: float, gate: UOp) -> UOp:
    return node("LOAD", (node("INDEX", (x, count_)), const(alt, F32), gate))


EXAMPLES: dict[str, list[Callable[[], UOp]]] = {
    "where_swap": [lambda: node("WHERE", (node("CMPNE", (a, TRUE)), x, y))],
    "neg_neg": [lambda: build("NEG", build("NEG", x)), lambda: build("NEG", build("NEG", i))],
    "sub_neg": [lambda: build("SUB", x, build("NEG", y))],
    "add_neg": [lambda: build("ADD", x, build("NEG", y)), lambda: build("ADD", build("NEG", x), y)],
    "mul_neg_neg": [lambda: build("MUL", build("NEG", x), build("NEG", y))],
    "mul_minus_one": [lambda: build("MUL", x, const(-1, F32))],
    "div_power_of_two": [
        lambda: build("DIV", x, const(4, F32)),
        lambda: build("DIV", x, const(-0.125, F32)),
        lambda: build("DIV", b, const(2.0**60, F64)),
    ],
    "cast_back": [
        lambda: build("CAST", build("CAST", small, arg=F32), arg=I8),
        lambda: build("CAST", build("CAST", x, arg=F64), arg=F32),
        lambda: node("CAST", (node("CAST", (a,), I32),), BOOL),
    ],
    "cast_of_bool": [lambda: node("CAST", (node("CAST", (a,), I32),), F32)],
    "bool_of_number": [lambda: build("CMPNE", build("CAST", a, arg=F32), const(0, F32))],
    "max_max": [
        lambda: build("MAX", build("MAX", x, const(1, F32)), const(-3, F32)),
        lambda: build("MAX", build("MAX", i, const(-7, I32)), const(5, I32)),
    ],
    "shift_by_zero": [lambda: node("SHR", (i, const(0, I32))), lambda: node("SHL", (i, const(0, I32)))],
    "where_of_gated_load": [
        lambda: build("WHERE", inside, loaded(0.0, build("AND", inside, less(count_, 60))), const(0.0, F32)),
        lambda: build("WHERE", inside, loaded(0.0, inside), const(-1.5, F32)),
    ],
}
CASES = [(name, k) for name, examples in EXAMPLES.items() for k in range(len(examples))]

KEPT: dict[str, Callable[[], UOp]] = {
    "a load that is closed elsewhere, to another value": lambda: build(
        "WHERE", inside, loaded(0.0, less(count_, 60)), const(0.0, F32)
    ),
    "a divisor that is no power of two": lambda: build("DIV", x, const(3, F32)),
    "a factor that is subnormal": lambda: build("DIV", x, const(2.0**127, F32)),
    "a cast that loses bits": lambda: build("CAST", build("CAST", i, arg=F32), arg=I32),
    "a narrowing cast and back": lambda: build("CAST", build("CAST", x, arg=dtypes.float16), arg=F32),
}


def operands() -> dict[UOp, np.ndarray]:
    rng = np.random.default_rng(7)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.4e38, 1.5], np.float32)
    floats = [np.concatenate([rng.permutation(special), rng.standard_normal(N - 8)]).astype(np.float32) for _ in "xy"]
    return {
        x: floats[0],
        y: floats[1],
        count_: np.arange(N),
        i: rng.integers(-(2**31), 2**31, N).astype(np.int32),
        small: rng.integers(-128, 128, N).astype(np.int8),
        a: rng.integers(0, 2, N).astype(bool),
        b: rng.standard_normal(N),
    }


@pytest.mark.parametrize(("name", "k"), CASES)
def test_a_rule_fires_and_keeps_the_meaning(name: str, k: int) -> None:
    before = EXAMPLES[name][k]()
    fired: list[str] = []
    after = rewrite(before, ALGEBRA, trace=lambda rule, *_: fired.append(rule))
    assert name in fired
    env = operands()
    with np.errstate(all="ignore"):
        want, got = evaluate(before, env), evaluate(after, env)
    np.testing.assert_array_equal(got, want)
    if want.dtype.kind == "f":
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.parametrize("name", KEPT)
def test_what_is_not_exact_is_left_alone(name: str) -> None:
    u = KEPT[name]()
    assert rewrite(u, ALGEBRA) is u


def test_every_rule_has_an_example() -> None:
    assert {r.name for r in ALGEBRA} == set(EXAMPLES)

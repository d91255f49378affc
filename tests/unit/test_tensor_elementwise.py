"""Elementwise methods: values, derivatives and promotion against PyTorch, accuracy against float64."""

import math
import os
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from monolect.capture.jit import jit
from monolect.tensor.tensor import Tensor

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
RNG = np.random.default_rng(0)


def tdtype(name: str) -> torch.dtype:
    return getattr(torch, name)


X = np.concatenate([RNG.normal(0, 2, 40), [0.0, 0.5, 1.0, -1.0, -0.5, 2.5, 3.5, -3.5, 8.0, -8.0, 30.0, -30.0]])
POSITIVE, UNIT, BIG = np.abs(X) + 0.1, np.linspace(-0.95, 0.95, 41), np.abs(X) + 1.01
F = torch.nn.functional
UNARY = [
    ("exp", X / 4),
    ("exp2", X / 4),
    ("expm1", X / 4),
    ("log", POSITIVE),
    ("log2", POSITIVE),
    ("log10", POSITIVE),
    ("log1p", POSITIVE),
    ("sqrt", POSITIVE),
    ("rsqrt", POSITIVE),
    ("sin", X),
    ("cos", X),
    ("tan", UNIT),
    ("asin", UNIT),
    ("acos", UNIT),
    ("atan", X),
    ("sinh", X / 4),
    ("cosh", X / 4),
    ("tanh", X),
    ("asinh", X),
    ("acosh", BIG),
    ("atanh", UNIT),
    ("erf", X),
    ("erfc", X / 8),
    ("sigmoid", X),
    ("reciprocal", POSITIVE),
    ("square", X),
    ("neg", X),
    ("abs", X),
    ("sign", X),
    ("floor", X),
    ("ceil", X),
    ("trunc", X),
    ("round", X),
    ("frac", X),
    ("deg2rad", X),
    ("rad2deg", X),
    ("sinc", X),
    ("nan_to_num", X),
    ("relu", X),
]
FUNCTIONAL = [
    ("relu6", {}),
    ("leaky_relu", {}),
    ("elu", {}),
    ("celu", {"alpha": 0.7}),
    ("selu", {}),
    ("gelu", {}),
    ("gelu", {"approximate": "tanh"}),
    ("silu", {}),
    ("softplus", {}),
    ("softplus", {"beta": 2.0}),
    ("mish", {}),
    ("softsign", {}),
    ("tanhshrink", {}),
    ("hardtanh", {}),
    ("hardsigmoid", {}),
    ("hardswish", {}),
    ("hardshrink", {}),
    ("softshrink", {}),
    ("logsigmoid", {}),
    ("threshold", {"threshold": 0.1, "value": 2.0}),
]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "x"), UNARY, ids=[n for n, _ in UNARY])
def test_unary(name: str, x: np.ndarray, dtype: str, both: Any) -> None:
    flat = name in ("sign", "floor", "ceil", "trunc", "round")
    both(lambda t: getattr(t, name)(), x.astype(dtype), grad=not flat)


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "kwargs"), FUNCTIONAL, ids=[f"{n}-{i}" for i, (n, _) in enumerate(FUNCTIONAL)])
def test_activation(name: str, kwargs: dict, both: Any) -> None:
    x = X[(np.abs(np.abs(X) - 3) > 1e-3)].astype(np.float32)  # hardswish and kin have corners at 3
    both(lambda t: getattr(t, name)(**kwargs), x, g=lambda t: getattr(F, name)(t, **kwargs))


A, B = RNG.normal(0, 2, (3, 4)).astype(np.float32), (RNG.normal(0, 2, (3, 1)) + 0.1).astype(np.float32)
BINARY: list[Any] = [
    ("add", lambda a, b: a + b),
    ("sub", lambda a, b: a - b),
    ("mul", lambda a, b: a * b),
    ("div", lambda a, b: a / b),
    ("radd", lambda a, b: 2 + a),
    ("rsub", lambda a, b: 2 - a),
    ("rdiv", lambda a, b: 2 / a),
    ("maximum", lambda a, b: a.maximum(b)),
    ("minimum", lambda a, b: a.minimum(b)),
    ("fmod", lambda a, b: a.fmod(b)),
    ("remainder", lambda a, b: a % b),
    ("floordiv", lambda a, b: (a // b).detach() + a + b),
    ("atan2", lambda a, b: a.atan2(b)),
    ("hypot", lambda a, b: a.hypot(b)),
    ("logaddexp", lambda a, b: a.logaddexp(b)),
    ("pow", lambda a, b: a.abs() ** b),
    ("pow3", lambda a, b: a**3),
    ("pow-2", lambda a, b: a**-2),
    ("pow1", lambda a, b: a**1 + b**0),
    ("pow.5", lambda a, b: a.abs() ** 0.5),
    ("pow2.5", lambda a, b: a.abs() ** 2.5),
    ("rpow", lambda a, b: 2.0**a),
    ("copysign", lambda a, b: a.copysign(b)),
    ("lerp", lambda a, b: a.lerp(b, 0.3)),
    ("addcmul", lambda a, b: a.addcmul(a, b, value=0.5)),
    ("addcdiv", lambda a, b: a.addcdiv(a, b, value=0.5)),
    ("clamp", lambda a, b: a.clamp(-1, 1)),
    ("clamp_min", lambda a, b: a.clamp_min(0.2)),
    ("alpha", lambda a, b: a.add(b, alpha=2)),
    ("clamp_tensor", lambda a, b: a.clamp(min=b)),
    ("masked_fill", lambda a, b: a.masked_fill(a > 0, 3.0)),
    ("where", lambda a, b: (a > 0).where(a, b) if isinstance(a, Tensor) else torch.where(a > 0, a, b)),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "f"), BINARY, ids=[n for n, _ in BINARY])
def test_binary_and_its_gradient(name: str, f: Any, both: Any) -> None:
    both(f, A, B)


@pytest.mark.sweep
@pytest.mark.parametrize("op", ["lt", "gt", "le", "ge", "eq", "ne"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "float32"])
def test_comparisons(op: str, dtype: str, check: Any) -> None:
    a, b = RNG.integers(0, 3, (4, 5)).astype(dtype), RNG.integers(0, 3, (5,)).astype(dtype)
    check(getattr(Tensor(a), op)(Tensor(b)), getattr(torch.tensor(a), op)(torch.tensor(b)))
    if dtype == "float32":
        n = np.array([1.0, np.nan, np.nan], np.float32)
        m = np.array([np.nan, 1.0, np.nan], np.float32)
        check(getattr(Tensor(n), op)(Tensor(m)), getattr(torch.tensor(n), op)(torch.tensor(m)))


INTS: list[Any] = [
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: ~a,
    lambda a, b: -a,
    lambda a, b: a << 2,
    lambda a, b: a >> 1,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a.fmod(b),
    lambda a, b: a.div(b, rounding_mode="trunc"),
    lambda a, b: a.minimum(b),
    lambda a, b: a.maximum(b),
    lambda a, b: a.clamp(-2, 3),
    lambda a, b: a**3,
    lambda a, b: a ** b.abs(),
    lambda a, b: a / b,
    lambda a, b: a.abs(),
    lambda a, b: a.sign(),
    lambda a, b: a.relu(),
    lambda a, b: 2 ** b.abs(),
    lambda a, b: 1 << b.abs(),
    lambda a, b: a.exp(),
]


@pytest.mark.sweep
@pytest.mark.parametrize("f", INTS)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_integers(f: Any, dtype: str, check: Any) -> None:
    a = np.array([5, -7, 0, 6, -1, 3, 100, -100]).astype(dtype)
    b = np.array([2, 3, -4, -2, 5, 1, 7, -7]).astype(dtype)
    check(f(Tensor(a), Tensor(b)), f(torch.tensor(a), torch.tensor(b)))


def test_integer_division_by_zero_is_zero() -> None:
    a, z = Tensor([7, -7]), Tensor([0, 0])
    assert (a // z).tolist() == [0, 0] and (a % z).tolist() == [0, 0]


@pytest.mark.parametrize("a", DTYPES)
@pytest.mark.parametrize("b", DTYPES)
def test_promotion_of_tensors(a: str, b: str) -> None:
    want = torch.promote_types(tdtype(a), tdtype(b))
    got = (Tensor.ones(2, dtype=a) + Tensor.ones(2, dtype=b)).dtype
    assert got.name == str(want).removeprefix("torch.")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scalar", [True, 2, 2.5])
def test_promotion_of_numbers(dtype: str, scalar: Any) -> None:
    for f in (lambda t: t + scalar, lambda t: scalar * t, lambda t: t / 2, lambda t: t > scalar):
        want = f(torch.ones(2, dtype=tdtype(dtype))).dtype
        assert f(Tensor.ones(2, dtype=dtype)).dtype.name == str(want).removeprefix("torch.")


def ulps(y: np.ndarray, exact: np.ndarray) -> float:
    return float(
        np.max(np.abs(y.astype(np.float64) - exact) / np.spacing(np.abs(exact).astype(y.dtype)).astype(np.float64))
    )


ACCURATE: list[Any] = [
    ("tanh", math.tanh, -12, 12),
    ("sigmoid", lambda v: 1 / (1 + math.exp(-v)), -80, 30),
    ("expm1", math.expm1, -20, 20),
    ("log1p", math.log1p, -0.9, 50),
    ("softplus", lambda v: max(v, 0) + math.log1p(math.exp(-abs(v))), -80, 19),
    ("erf", math.erf, -5, 5),
    ("erfc", math.erfc, -4, 9),
    ("atan", math.atan, -20, 20),
    ("asin", math.asin, -1, 1),
    ("acos", math.acos, -1, 0.99),
    ("sinh", math.sinh, -20, 20),
    ("cosh", math.cosh, -20, 20),
    ("asinh", math.asinh, -50, 50),
    ("atanh", math.atanh, -0.99, 0.99),
    ("acosh", math.acosh, 1.001, 50),
    ("logsigmoid", lambda v: -(max(-v, 0) + math.log1p(math.exp(-abs(v)))), -50, 50),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("dtype", "limit"), [("float32", 5.0), ("float64", 8.0)])
@pytest.mark.parametrize(("name", "exact", "lo", "hi"), ACCURATE, ids=[r[0] for r in ACCURATE])
def test_accuracy(name: str, exact: Any, lo: float, hi: float, dtype: str, limit: float) -> None:
    x = np.linspace(lo, hi, 4001).astype(dtype)
    if lo <= 0 <= hi:
        tiny = 10.0 ** np.linspace(-10, -1, 200)
        x = np.concatenate([x, tiny.astype(dtype), -tiny.astype(dtype)])
        x = x[x != 0]
    want = np.array([exact(float(v)) for v in x])
    if os.environ.get("TENSOR_TESTS") == "interp":
        limit = 80.0  # the interpreter rounds x * log2(e) before EXP2; targets do not
    assert ulps(getattr(Tensor(x), name)().numpy(), want) <= limit


def test_cosine_is_accurate_in_absolute_terms() -> None:
    x = np.concatenate([np.linspace(-20, 20, 2001), np.linspace(-8000, 8000, 2001), [1e5, 3e7]]).astype(np.float32)
    np.testing.assert_allclose(Tensor(x).cos().numpy(), np.cos(x.astype(np.float64)), atol=2e-7)


def test_infinities_and_nan(check: Any) -> None:
    inf, nan = math.inf, math.nan
    x = Tensor([inf, -inf, nan])
    for name in (
        "tanh",
        "sigmoid",
        "relu",
        "erf",
        "erfc",
        "atan",
        "softplus",
        "exp",
        "expm1",
        "abs",
        "sign",
        "isnan",
        "isinf",
        "isfinite",
        "asinh",
        "sinh",
        "cosh",
        "floor",
        "round",
        "sqrt",
        "log",
        "nan_to_num",
    ):
        t = torch.tensor([inf, -inf, nan])
        want = F.softplus(t) if name == "softplus" else getattr(t, name)()
        check(getattr(x, name)(), want)
    check(Tensor([1.0, nan]).maximum(Tensor([nan, 1.0])), torch.tensor([nan, nan]))
    check(Tensor([nan, 1.0]).clamp(0, 0.5), torch.tensor([nan, 0.5]))
    check(Tensor([1.0, nan]).clamp(Tensor([nan, 0.0])), torch.tensor([nan, nan]))
    check(Tensor([1.0, 2.0]).clamp(max=nan), torch.tensor([nan, nan]))
    check(Tensor([1.0, nan]).maximum(nan), torch.tensor([nan, nan]))
    check(Tensor([1.0, 2.0]).maximum(Tensor.full((2,), nan)), torch.tensor([nan, nan]))
    check(Tensor([1.0, 2.0]).minimum(nan), torch.tensor([nan, nan]))
    check(Tensor([inf, -inf, inf]).logaddexp(Tensor([inf, -inf, -inf])), torch.tensor([inf, -inf, inf]))
    check(Tensor([inf, 3e38]).hypot(Tensor([nan, 1e38])), torch.tensor([inf, float(np.hypot(3e38, 1e38))]))


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(st.integers(0, 2**32 - 1))
def test_scaled_terms_are_multiplied_in_the_order_written(dtype: str, seed: int) -> None:
    """Numbers of any magnitude: another order overflows, or vanishes, elsewhere."""
    rng = np.random.default_rng(seed)
    high = np.log10(float(np.finfo(dtype).max)) - 1
    x, y, z, c = ((rng.choice([-1, 1], 9) * 10 ** rng.uniform(-high, high, 9)).astype(dtype) for _ in range(4))
    value = c[0].item()
    with np.errstate(all="ignore"):
        product, quotient = x + value * y * z, x + value * y / z
    np.testing.assert_array_equal(Tensor(x).addcmul(Tensor(y), Tensor(z), value=value).numpy(), product)
    np.testing.assert_array_equal(Tensor(x).addcdiv(Tensor(y), Tensor(z), value=value).numpy(), quotient)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64"])
def test_integers_are_close_by_their_distance_even_if_that_overflows(dtype: str, check: Any) -> None:
    d = np.dtype(dtype)
    low, high = (False, True) if dtype == "bool" else (np.iinfo(d).min, np.iinfo(d).max)
    a, b = (x.ravel() for x in np.meshgrid(np.array([low, 0, 1, high], d), np.array([low, 0, 1, high], d)))
    assert Tensor(a).isclose(Tensor(b), rtol=0, atol=0).tolist() == (a == b).tolist()
    assert Tensor(a).isclose(Tensor(b)).tolist() == [
        math.isclose(x, y, rel_tol=1e-5) for x, y in zip(a, b, strict=True)
    ]
    assert Tensor(a).allclose(Tensor(a)) and not Tensor(a).allclose(Tensor(b))
    check(Tensor([10, 12]).isclose(Tensor([11, 10]), rtol=0, atol=1), torch.tensor([True, False]))


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["logit", "softsign", "hardsigmoid", "hardswish"])
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_formulas_of_integers_do_not_wrap(name: str, dtype: str, check: Any) -> None:
    x = np.array([0, 1]).astype(dtype) if dtype == "bool" else np.array([*range(-128, 128)]).astype(dtype)
    check(getattr(Tensor(x), name)(), torch.tensor(getattr(Tensor(x.astype(np.float32)), name)().numpy()))


def test_atan2_in_all_directions() -> None:
    v = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, 2.5], np.float32)
    a, b = (g.ravel() for g in np.meshgrid(v, v))
    got = Tensor(a).atan2(Tensor(b)).numpy()
    np.testing.assert_allclose(got, np.arctan2(a, b), rtol=1e-6)


def test_halves_are_computed_in_float32(check: Any) -> None:
    x = np.linspace(-3, 3, 101).astype(np.float16)
    for name in ("exp", "tanh", "gelu", "sigmoid"):
        want = getattr(torch, name, getattr(F, name, None))(torch.tensor(x).float()).half()
        check(getattr(Tensor(x), name)(), want, rtol=1e-3)


def test_copysign_sees_the_sign_of_zero() -> None:
    assert Tensor([1.0, 1.0]).copysign(Tensor([-0.0, 0.0])).tolist() == [-1.0, 1.0]
    assert Tensor([-0.0, 0.0, -1.0]).signbit().tolist() == [True, False, True]


def test_cast_saturates() -> None:
    x = Tensor([1e30, -1e30, math.nan, 1.9])
    assert x.int().tolist() == [2**31 - 1, -(2**31), 0, 1]
    assert Tensor([0.0, 0.3, math.nan]).bool().tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda: Tensor.ones(2, 3) + Tensor.ones(2, 4), ShapeError, "(2, 3) and (2, 4)"),
        (lambda: Tensor([1.5]) << 1, DTypeError, "integer dtype or bool"),
        (lambda: Tensor([1.5]) & Tensor([1]), DTypeError, "float32"),
        (lambda: -Tensor([True]), DTypeError, "bool"),
        (lambda: Tensor([True]) - Tensor([True]), DTypeError, "bool"),
        (lambda: Tensor([True]).rsub(1), DTypeError, "bool"),
        (lambda: Tensor([1]) + "a", ArgumentError, "'a'"),
        (lambda: Tensor([1]).where(1, 2), DTypeError, "bool condition"),
        (lambda: Tensor([2]) ** -1, ArgumentError, "negative power"),
        (lambda: Tensor([1.0]).gelu("fast"), ArgumentError, "'fast'"),
        (lambda: Tensor([1.0]).clamp(), ArgumentError, "bound"),
        (lambda: Tensor([1.0]).div(2, rounding_mode="up"), ArgumentError, "up"),
        (lambda: Tensor([1.0], device="null") + Tensor([1.0], device="cpu"), DeviceError, "cpu"),
        (lambda: Tensor([1.0]).cast("float31"), DTypeError, "float31"),
        (lambda: Tensor.ones(2, 3).maximum(Tensor.ones(2)), ShapeError, "(2, 3) and (2,)"),
        (lambda: Tensor.ones(2, 3) < Tensor.ones(2), ShapeError, "(2, 3) and (2,)"),
        (lambda: Tensor.ones(2, 3).pow(Tensor.ones(2)), ShapeError, "(2, 3) and (2,)"),
    ],
)
def test_errors_name_what_was_found(f: Any, error: type, text: str) -> None:
    with pytest.raises(error) as info:
        f()
    assert text in str(info.value)
    assert __file__ in str(info.value)


def test_an_operation_takes_python_numpy_and_symbolic_operands() -> None:
    assert (np.float32(2) * Tensor([1.0])).tolist() == [2.0]
    assert (Tensor([1.0]) * np.float64(2)).dtype is dtypes.float32
    assert (Tensor([1.0, 2.0]) + np.array([1.0, 1.0], np.float32)).tolist() == [2.0, 3.0]


@pytest.mark.parametrize("name, args", [("hardshrink", ()), ("softshrink", ()), ("threshold", (0.1, 2.0))])
def test_nan_is_not_shrunk(name: str, args: tuple[float, ...]) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.3, -0.7, 0.5, -0.5], np.float32)
    wanted = getattr(torch.nn.functional, name)(torch.from_numpy(x), *args)
    np.testing.assert_array_equal(getattr(Tensor(x), name)(*args).numpy(), wanted)


@pytest.mark.skipif(os.environ.get("TENSOR_TESTS") == "interp", reason="the interpreter rounds products")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_remainders_of_large_quotients_are_exact(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    b = (rng.random(1000) * 10 + 0.01).astype(dtype)
    a = (b * 10.0 ** rng.uniform(0, 6, 1000)).astype(dtype) * rng.choice([-1, 1], 1000).astype(dtype)
    np.testing.assert_array_equal(Tensor(a).fmod(Tensor(b)).numpy(), np.fmod(a, b))
    np.testing.assert_array_equal((Tensor(a) % Tensor(b)).numpy(), np.mod(a, b))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounding_keeps_halves_even_signs_and_what_is_whole(dtype):
    last = 2.0 ** (np.finfo(dtype).nmant - 1)  # from there on halves are the last digit
    ends = [
        0.0,
        0.2,
        0.5,
        np.nextafter(dtype(0.5), dtype(0)),
        1.5,
        2.5,
        last - 0.5,
        last + 0.5,
        4 * last - 3,
        np.inf,
        np.nan,
    ]
    x = np.array([*ends, *(-np.array(ends))], dtype)
    got = Tensor(x).round().numpy()
    np.testing.assert_array_equal(got, np.round(x))
    np.testing.assert_array_equal(np.signbit(got), np.signbit(x))


@pytest.mark.sweep
@pytest.mark.parametrize("anywhere", ["cpu", "c", "python", "python:gpu"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_magnitudes_of_zeros_have_no_sign(dtype: str, anywhere: str) -> None:
    """MAX(x, -x) of a zero is either zero: renderers that have no |x| clear the bit."""
    x = Tensor([-0.0, 0.0, -1.5, 2.0, -np.inf, np.nan], device=anywhere).cast(getattr(dtypes, dtype))
    assert x.abs().signbit().tolist()[:5] == [False] * 5
    assert x.copysign(1.0).signbit().tolist()[:5] == [False] * 5
    assert x.copysign(-1.0).signbit().tolist()[:5] == [True] * 5
    assert x.abs().tolist()[2:5] == [1.5, 2.0, np.inf] and np.isnan(x.abs().tolist()[5])
    for zero in (-0.0, 0.0):
        assert not np.signbit(Tensor.full((2,), zero, device=anywhere).abs().numpy()).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["fmod", "remainder"])
def test_what_is_left_of_a_division(name: str, dtype: Any) -> None:
    """A zero has the sign of the dividend; of a quotient with too many bits it is within the divisor."""
    v = np.array([0.0, -0.0, 3, -3, 1.5, -6, 6, 1e30, -1e30, 3.4e38, 1e-30, np.inf, -np.inf, np.nan, 7.25], dtype)
    a, b = (np.ascontiguousarray(m.ravel()) for m in np.meshgrid(v, v))
    got = getattr(Tensor(a), name)(Tensor(b)).numpy()
    want = getattr(torch, name)(torch.tensor(a), torch.tensor(b)).numpy()
    with np.errstate(all="ignore"):
        short = ~(np.abs(a / b) > 2.0 ** (np.finfo(dtype).nmant + 1)) | ~np.isfinite(a) | (b == 0)
    np.testing.assert_array_equal(got[short], want[short])
    np.testing.assert_array_equal(np.signbit(got[short & ~np.isnan(want)]), np.signbit(want[short & ~np.isnan(want)]))
    assert (np.abs(got[~short]) <= np.abs(b[~short])).all()


@pytest.mark.parametrize("call", ["__add__", "__eq__", "__lt__", "__rmul__", "maximum", "clamp"])
def test_a_number_beyond_all_floats(call):
    for number in (10**400, -(10**400)):
        with pytest.raises(ArgumentError, match="a number no float holds"):
            getattr(Tensor([1.0]), call)(number)


def test_float_power_is_of_float64():
    base = Tensor([2, 4], dtype=dtypes.int32)
    assert base.float_power(-1).tolist() == base.float_power(Tensor([-1, -1])).tolist() == [0.5, 0.25]
    for x, y in ((Tensor([2.0]), 2), (Tensor([2]).half(), Tensor([2])), (Tensor([True]), 0)):
        assert x.float_power(y).dtype is dtypes.float64


def test_prelu_of_one_number():
    assert Tensor(-2.0).prelu(Tensor([0.5])).numpy().shape == ()


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["uint8", "int8", "int16", "int32", "bool"])
@pytest.mark.parametrize("number", [-2, 300, 1 << 20, 2**40])
def test_a_quotient_with_a_number_that_the_integers_do_not_hold(name, number):
    array = np.array([0, 1, 1] if name == "bool" else [1, 3, 100], dtype=name)
    x, y = Tensor(array), torch.tensor(array)
    for ours, theirs in ((x / number, y / number), (number / x, number / y), (x.div(number), y.div(number))):
        assert ours.dtype is dtypes.float32
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)
    angle = torch.atan2(y.float(), torch.tensor(float(number)))
    np.testing.assert_allclose(x.atan2(number).numpy(), angle.numpy(), rtol=1e-5)


def test_bounds_that_the_integers_do_not_hold():
    x = Tensor(np.array([0, 3, 255], np.uint8))
    assert x.clamp(-1, 300).tolist() == [0, 3, 255] and x.clamp_min(300).tolist() == [255, 255, 255]
    assert x.clamp_max(-1).tolist() == [0, 0, 0] and x.clamp(1, 4).dtype is dtypes.uint8


def test_functions_in_steps_have_the_gradient_zero() -> None:
    values = np.array([1.5, -2.3, 0.0, 2.5, float("inf"), float("nan")], np.float32)
    for name in ("round", "floor", "ceil", "trunc", "fix", "sign", "frac"):
        ours, theirs = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
        (getattr(ours, name)() * 3).sum().backward()
        (getattr(theirs, name)() * 3).sum().backward()
        assert ours.grad is not None and ours.grad.tolist() == theirs.grad.tolist(), name
    x = Tensor([1.26], requires_grad=True)
    (x.round(decimals=1) + x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0]


def test_slopes_and_bounds_that_make_no_sense_are_refused() -> None:
    shapes: list[tuple[int, ...]] = [(), (1,), (8,), (3,), (4,), (2, 4), (1, 8), (0,)]
    for shape in ((2, 8, 3), (8,), (2, 8), (), (2, 1, 3)):
        for slopes in shapes:
            try:
                expected = torch.nn.functional.prelu(-torch.ones(shape), torch.full(slopes, 0.5)).tolist()
            except RuntimeError:
                with pytest.raises(ShapeError, match="prelu: weight"):
                    (Tensor.ones(shape) * -1).prelu(Tensor.full(slopes, 0.5))
            else:
                assert (Tensor.ones(shape) * -1).prelu(Tensor.full(slopes, 0.5)).tolist() == expected
    with pytest.raises(ArgumentError, match="hardtanh: bounds"):
        Tensor([1.0]).hardtanh(0.5, -0.5)
    assert Tensor([1.0]).hardtanh(0.5, 0.5).tolist() == [0.5]


def test_a_tensor_is_not_none() -> None:
    """As in PyTorch, for `if mask != None`."""
    for _ in range(4):  # also where the call is known
        x = Tensor([1.0, 2.0]) * 2
        assert (x == None, x != None, None == x, None != x) == (False, True, False, True)  # noqa: E711
        assert (x == x).all().item() and not (x != x).any().item()
    assert jit(lambda x, mask: x + 1 if mask != None else x)(x, x > 0).tolist() == [3.0, 5.0]  # noqa: E711
    with pytest.raises(ArgumentError, match="unsupported type"):
        x.eq(None)
    with pytest.raises(ArgumentError, match="unsupported type"):
        _ = x == "text"

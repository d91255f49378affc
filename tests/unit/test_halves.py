"""Functions of halves are computed in float32 and rounded once, whatever they are made of; and what rounding breaks."""

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.rules.accuracy import MAX_ULP, SMALL_POWER
from tests.unit.ulp import needs_long_double, ulps

ALL = np.arange(1 << 16, dtype=np.uint16)
ONE = """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
erf erfc sigmoid logsigmoid deg2rad rad2deg abs leaky_relu elu celu selu gelu silu softplus mish softsign tanhshrink
hardsigmoid hardswish sinc reciprocal logit""".split()
TWO = {
    "pow(3)": lambda x: x**3,
    "pow(-0.5)": lambda x: x**-0.5,
    "pow(-7)": lambda x: x**-7,
    "pow(31)": lambda x: x**31,
    "floor_divide": lambda x: x // 7.5,
    "remainder": lambda x: x % -7.5,
    "fmod": lambda x: x.fmod(7.5),
    "truncated": lambda x: x.div(7.5, rounding_mode="trunc"),
    "round(1)": lambda x: x.round(1),
    "round(-1)": lambda x: x.round(-1),
    "lerp": lambda x: x.lerp(x * 0 + 1, 0.3),
    "addcmul": lambda x: x.addcmul(x, x, value=0.3),
    "swish": lambda x: x.swish(0.5),
    "softplus": lambda x: x.softplus(0.5),
    "avg_pool": lambda x: x.reshape(1, 256, 256).avg_pool2d(3, 2, 1, count_include_pad=False),
    "norm": lambda x: x.reshape(-1, 8).norm(3, 1),
}


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether all elements are the same, zeros with their sign; nan is nan."""
    x, y = (t.cast(dtypes.float32).numpy() for t in (a, b))
    alike = (x.view(np.int32) == y.view(np.int32)) | (np.isnan(x) & np.isnan(y))
    return a.dtype is b.dtype and bool(alike.all())


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=lambda d: d.name)
@pytest.mark.parametrize("name", [*ONE, *TWO])
def test_rounded_once(name: str, dtype: object) -> None:
    f = TWO.get(name) or (lambda x: getattr(x, name)())
    x = Tensor(ALL).bitcast(dtype).realize()
    assert same_bits(f(x), f(x.float().realize()).cast(dtype))


def test_means_of_halves_do_not_overflow() -> None:
    x = Tensor.full((1, 1, 64, 64), 60000.0, dtype=dtypes.float16)
    assert x.adaptive_avg_pool2d(1).item() == x.avg_pool2d(2).max().item() == Tensor(60000.0).half().item()
    assert x.reshape(-1)[:8].norm(3).item() == np.inf and Tensor([300.0, 0.0]).half().norm(3).item() == 300.0


@pytest.mark.parametrize(
    "dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=lambda d: d.name
)
def test_no_magnitude_is_negative(dtype: object) -> None:
    for n in (1, 40):
        x = Tensor([0.0, -0.0, -1.5] * n).cast(dtype).realize()
        assert not x.abs().signbit().any().item()


@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [-64, -7, -3, -2, -1, 2, 3, 4, 5, 17, 63, 64, 65])
def test_whole_exponents_keep_the_stated_error(n: int, dtype: type) -> None:
    rng = np.random.default_rng(n & 255)
    most = 120 if dtype is np.float32 else 1000
    x = rng.choice([-1, 1], 5000) * 2.0 ** (rng.uniform(-most, most, 5000) / abs(n))
    x = x.astype(dtype)
    with np.errstate(over="ignore", under="ignore"):
        exact = x.astype(np.longdouble) ** n
    bound = MAX_ULP[SMALL_POWER if n in (-2, 3, 4) else "pow"]
    assert ulps((Tensor(x) ** n).numpy(), exact).max() <= getattr(bound, np.dtype(dtype).name)


def test_a_negative_power_may_be_subnormal() -> None:
    assert (Tensor([1e13]) ** -3).item() == np.float32(1e-39)  # 1e39 is infinite


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quotients_are_rounded_down(dtype: type) -> None:
    """They fit the remainder, also where the quotient is rounded up to a whole number, or to 0."""
    tiny = np.finfo(dtype).smallest_subnormal
    a = np.array([-tiny, tiny, 5, -5, 5, -5, 0.5, 1, 6, 7, -7, np.inf, 1], dtype)
    b = np.array([3, -3, np.inf, np.inf, -np.inf, -np.inf, 0.1, 0.1, 3, 2, 2, 2, 0], dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        wanted = np.floor_divide(a, b)
    wanted[-2] = np.inf  # where NumPy has nan
    np.testing.assert_array_equal((Tensor(a) // Tensor(b)).numpy(), wanted)
    rng = np.random.default_rng(5)
    k, d = rng.integers(1, 1000, 4000), rng.uniform(0.1, 10, 4000).astype(dtype)
    a = (k * d).astype(dtype)
    np.testing.assert_array_equal((Tensor(a) // Tensor(d)).numpy(), np.floor_divide(a, d))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint64"])
def test_nothing_is_left_after_a_division_by_zero(dtype: str) -> None:
    x = Tensor(np.array([7, 0, 100], dtype))
    for by in (0, Tensor(np.zeros(3, dtype))):
        assert x.fmod(by).tolist() == (x % by).tolist() == (x // by).tolist() == [0, 0, 0]


def test_between_two_values_the_ends_are_exact() -> None:
    a, b = Tensor([1e8, -np.inf, 3.0]), Tensor([1.0, 2.0, 3.0])
    assert a.lerp(b, 1.0).tolist()[0] == 1.0 and a.lerp(b, Tensor([1.0, 0.5, 0.5])).tolist() == [1.0, -np.inf, 3.0]
    assert a.lerp(b, 0.0).tolist()[0] == np.float32(1e8)
    assert Tensor([-np.inf, 1.0]).quantile(0.3, interpolation="midpoint").item() == -np.inf


def test_decimals_before_the_point() -> None:
    assert Tensor([8098250.5, 2.5e3]).round(-2).tolist() == [8098300.0, 2500.0]

"""Every function of `rules.accuracy` on the CPU, over the whole range of each float type: random bits, the edges of the
format, and ranges where a formula changes. The reference is computed in a wider type, mpmath where there is none.
"""

import math

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.base.dtype import to_numpy
from monolect.rules.accuracy import MAX_ULP, NARROW_ULP, RUNNING_ULP, SMALL_POWER
from tests.unit.ulp import RNG, assert_close, near_quadrants, needs_long_double, patterns, uniform, wide

FLOATS = (dtypes.float32, dtypes.float64)
RANGES = [(-1.1, 1.1), (-30, 30), (-110, 90), (-750, 712)]


def by_element(f):
    """A function of Python floats, which are exact enough for float32."""
    return lambda x: np.frompyfunc(f, 1, 1)(np.asarray(x, np.float64)).astype(np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logsigmoid(x):
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


REFERENCE = {name: getattr(np, name) for name in MAX_ULP if hasattr(np, name) and name != "pow"} | {
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "sigmoid": sigmoid, "logsigmoid": logsigmoid, "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": by_element(math.erf), "erfc": by_element(math.erfc),
}  # fmt: skip


def samples(name, d, n):
    yield patterns(d, n)
    for low, high in RANGES:
        yield uniform(d, low, high, n)
    for near in (0.0, 1.0, -1.0):  # where results are near zero
        yield (near + RNG.choice([-1, 1], n) * np.exp(RNG.uniform(-25, 0, n))).astype(to_numpy(d))
    if name in ("sin", "cos", "tan"):
        yield near_quadrants(d)


def check(name, x, exact, bound):
    got = getattr(Tensor(x), name)().numpy()
    assert got.dtype == x.dtype
    assert_close(got, exact, bound, x)


def test_every_function_has_a_reference():
    assert set(REFERENCE) == set(MAX_ULP) - {"pow", SMALL_POWER}


@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", REFERENCE)
def test_largest_error(name, d):
    if name in ("erf", "erfc") and d is dtypes.float64:
        pytest.skip("no long double function: test_error_function_in_double")
    for x in samples(name, d, 100_000):
        with np.errstate(all="ignore"):
            exact = REFERENCE[name](x.astype(wide))
        check(name, x, exact, getattr(MAX_ULP[name], d.name))


@needs_long_double
@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_error_function_in_double(name):
    mp = pytest.importorskip("mpmath")
    near = 1.0931156944976215 + np.arange(-50, 50) * 2.0**-52  # where erfc was found to be off most
    x = np.concatenate([uniform(dtypes.float64, -7, 28, 1500), np.exp(RNG.uniform(-300, 1, 500)), near])
    with mp.workprec(100):
        exact = np.array([wide(mp.nstr(getattr(mp, name)(mp.mpf(float(v))), 25)) for v in x], wide)
    check(name, x, exact, MAX_ULP[name].float64)


@pytest.mark.sweep
@needs_long_double
@pytest.mark.parametrize("d", FLOATS, ids=lambda d: d.name)
def test_power(d):
    low, high = (-149, 128) if d is dtypes.float32 else (-1074, 1024)
    x = np.abs(patterns(d, 100_000))
    x = x[np.isfinite(x) & (x > 0) & (x != 1)]
    y = (RNG.uniform(low, high, len(x)) / np.log2(x.astype(wide))).astype(to_numpy(d))
    for a, b in (
        (x, y),
        (uniform(d, 0.9, 1.1), uniform(d, low * 6, high * 6)),
        (patterns(d, 10**5), patterns(d, 10**5)),
    ):
        with np.errstate(all="ignore"):
            exact = np.power(a.astype(wide), b.astype(wide))
        assert_close((Tensor(a) ** Tensor(b)).numpy(), exact, getattr(MAX_ULP["pow"], d.name), a, b)


@pytest.mark.sweep
@pytest.mark.parametrize("d", (dtypes.float16, dtypes.bfloat16), ids=lambda d: d.name)
@pytest.mark.parametrize("name", REFERENCE)
def test_every_narrow_float(name, d):
    """All 65536 patterns."""
    x = np.arange(1 << 16, dtype=np.uint16).view(to_numpy(d))
    with np.errstate(all="ignore"):
        exact = REFERENCE[name](x.astype(np.float64))
    check(name, x, exact, NARROW_ULP)


@pytest.mark.slow
@pytest.mark.parametrize("name", REFERENCE)
def test_one_in_61_of_all_single_floats(name):
    step = 61 << 22
    for low in range(0, 1 << 32, step):
        x = np.arange(low, min(1 << 32, low + step), 61, dtype=np.uint64).astype(np.uint32).view(np.float32)
        with np.errstate(all="ignore"):
            exact = REFERENCE[name](x.astype(np.float64))
        check(name, x, exact, MAX_ULP[name].float32)


@pytest.mark.sweep
@pytest.mark.parametrize(("shape", "axis"), [((1 << 20,), 0), ((999_983,), 0), ((9, 50_000), 1), ((50_000, 20), 0)])
@pytest.mark.parametrize("name", sorted(RUNNING_ULP))
def test_running_sums_are_as_good_at_the_end_of_a_row(name, shape, axis):
    """Which in float32 they are not: 1e-5 off after a million terms."""
    grows = name == "cumprod"
    x = RNG.random(shape) if not grows else np.exp(RNG.normal(0, 3 / np.sqrt(max(shape)), shape))
    x = x.astype(np.float32)
    exact = (np.cumprod if grows else np.cumsum)(x.astype(np.float64), axis)
    got = getattr(Tensor(x), name.split()[0])(axis).numpy()
    assert_close(got.ravel(), exact.ravel(), RUNNING_ULP[name], exact.ravel())


def test_running_sums_of_both_signs_and_their_gradients():
    x = RNG.normal(0, 1, 1 << 18).astype(np.float32)
    exact, size = np.cumsum(x.astype(np.float64)), np.cumsum(np.abs(x.astype(np.float64)))
    assert np.max(np.abs(Tensor(x).cumsum(0).numpy() - exact) / size) <= RUNNING_ULP["cumsum of one sign"] * 2**-24
    t, g = Tensor(x, requires_grad=True), np.abs(x)
    (t.cumsum(0) * Tensor(g)).sum().backward()
    assert_close(t.grad.numpy(), np.cumsum(g[::-1].astype(np.float64))[::-1], RUNNING_ULP["cumsum of one sign"], g)


def test_a_running_sum_that_was_asked_for_in_float64_is_one_in_float64():
    x = RNG.random(4096).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64))
    np.testing.assert_allclose(Tensor(x).double().cumsum(0).numpy(), exact, rtol=1e-14)
    assert_close(Tensor(x).double().cumsum(0).float().numpy(), exact, 0.51, x)


def four_deviations(*levels):
    """How far positive values of one size, which are added in chains of chains, may be off as a share of their sum; the
    numbers of steps, the outermost chain's first. An addition is off by a unit in the last place by the root of 12,
    the sum that it rounds grows, which is another root of 3, and inner chains are as many as outer ones have steps.
    """
    chains = np.cumprod([1, *levels[:-1]])
    return (4 / 6 * np.sqrt(np.sum(levels / chains)) + 0.5) * 2.0**-23


@pytest.mark.parametrize(
    "rows, columns, groups, blocks", [(4096, 512, 16, 32), (4096, 300, 16, 16), (2048, 1000, 8, 16)]
)
@pytest.mark.parametrize("method", ["sum", "mean"])
def test_sums_of_blocks_wait_for_their_group(rows, columns, groups, blocks, method):
    """Added to the result block by block they are 1e-6 off."""
    x = RNG.random((rows, columns)).astype(np.float32)
    exact = getattr(x.astype(np.float64), method)(0)
    off = np.abs(getattr(Tensor(x), method)(0).numpy() - exact) / exact
    assert off.max() <= four_deviations(groups, blocks, rows // groups // blocks) + 2.0**-24 * (method == "mean")


@pytest.mark.parametrize("keys, causal", [(1024, False), (16_384, False), (1024, True)])
def test_attention_adds_many_keys_part_by_part(keys, causal):
    """Of equal scores it is a mean, of exact weights where nothing is masked."""
    v = RNG.random((2, keys, 64)).astype(np.float32)
    rows = keys if causal else 32
    q, k = Tensor.zeros(2, rows, 64), Tensor.zeros(2, keys, 64)
    got = q.scaled_dot_product_attention(k, Tensor(v), is_causal=causal).numpy()
    exact = v.astype(np.float64).cumsum(1) / np.arange(1, keys + 1)[:, None] if causal else v.mean(1, np.float64)
    exact = np.broadcast_to(exact if causal else exact[:, None], got.shape)
    off = np.abs(got - exact) / exact
    assert off.max() <= four_deviations(keys // 512, 512) + 2.0**-23 * causal


@pytest.mark.parametrize("m, k, n", [(256, 1024, 256), (48, 5000, 80)])
def test_products_add_many_terms_part_by_part(m, k, n):
    b = RNG.random((k, n)).astype(np.float32)
    exact = b.astype(np.float64).sum(0)
    off = np.abs((Tensor(np.ones((m, k), np.float32)) @ Tensor(b)).numpy() - exact) / exact
    assert off.max() <= four_deviations(k // 512, 512)


@pytest.mark.sweep
@pytest.mark.parametrize(
    "shape", [(60_000, 100), (9973, 33), (65_535, 16), (16, 100_000), (3, 99_991), (64, 7, 9, 1000)]
)
@pytest.mark.parametrize("method", ["sum", "var"])
def test_long_sums_are_added_part_by_part(shape, method):
    """Added one after another they are 1e-5 off along columns, and their variances 2e-5."""
    x = RNG.random(shape).astype(np.float32)
    axes = {2: int(shape[0] < shape[1]), 4: (0, 2, 3)}[len(shape)]
    exact = getattr(x.astype(np.float64), method)(axes, **({"ddof": 1} if method == "var" else {}))
    got = getattr(Tensor(x), method)(axes).numpy()
    assert_close(got.ravel(), exact.ravel(), 16.0, exact.ravel())

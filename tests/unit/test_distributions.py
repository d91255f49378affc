"""Distributions of `monolect.random` and the in-place methods against SciPy: whole distributions, tails, gradients."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

import monolect
from monolect import Tensor, dtypes, jit, random
from monolect.base.errors import ArgumentError, DTypeError, MonolectError, ShapeError
from tests.strategies import often

N = 30_000
LEAST_P = 1e-4  # of a test; seeds are fixed, so a sampler that passes once always passes
FLOATS = ("float32", "float64")

CONTINUOUS: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "uniform": (lambda **o: random.uniform(-2.0, 3.0, **o), stats.uniform(-2, 5)),
    "normal": (lambda **o: random.normal(1.0, 2.0, **o), stats.norm(1, 2)),
    "log_normal": (lambda **o: random.log_normal(0.5, 0.75, **o), stats.lognorm(0.75, scale=np.exp(0.5))),
    "truncated_normal": (lambda **o: random.truncated_normal(-1.0, 3.0, **o), stats.truncnorm(-1, 3)),
    "truncated_moved": (lambda **o: random.truncated_normal(0.0, 4.0, 1.0, 2.0, **o), stats.truncnorm(-0.5, 1.5, 1, 2)),
    "truncated_far": (lambda **o: random.truncated_normal(-9.0, -2.0, **o), stats.truncnorm(-9, -2)),
    "exponential": (lambda **o: random.exponential(2.5, **o), stats.expon(scale=0.4)),
    "laplace": (lambda **o: random.laplace(1.0, 2.0, **o), stats.laplace(1, 2)),
    "cauchy": (lambda **o: random.cauchy(-1.0, 0.5, **o), stats.cauchy(-1, 0.5)),
    "gumbel": (lambda **o: random.gumbel(1.0, 2.0, **o), stats.gumbel_r(1, 2)),
    "gamma": (lambda **o: random.gamma(2.5, 2.0, **o), stats.gamma(2.5, scale=0.5)),
    "gamma of 1": (lambda **o: random.gamma(1.0, **o), stats.gamma(1.0)),
    "gamma, small": (lambda **o: random.gamma(0.2, **o), stats.gamma(0.2)),
    "gamma, large": (lambda **o: random.gamma(300.0, **o), stats.gamma(300.0)),
    "beta": (lambda **o: random.beta(2.0, 3.0, **o), stats.beta(2, 3)),
    "beta, small": (lambda **o: random.beta(0.3, 0.9, **o), stats.beta(0.3, 0.9)),
    "student_t": (lambda **o: random.student_t(4.0, 1.0, 2.0, **o), stats.t(4, 1, 2)),
}  # fmt: skip
DISCRETE: dict[str, tuple[Callable[..., Tensor], Any]] = {
    "bernoulli": (lambda **o: random.bernoulli(0.3, **o), stats.bernoulli(0.3)),
    "geometric": (lambda **o: random.geometric(0.15, **o), stats.geom(0.15)),
    "poisson of 0.4": (lambda **o: random.poisson(0.4, **o), stats.poisson(0.4)),
    "poisson of 9.5": (lambda **o: random.poisson(9.5, **o), stats.poisson(9.5)),
    "poisson of 10.5": (lambda **o: random.poisson(10.5, **o), stats.poisson(10.5)),
    "poisson of 400": (lambda **o: random.poisson(400.0, **o), stats.poisson(400)),
    "poisson of a tensor": (lambda **o: random.poisson(Tensor([12.0]), **o), stats.poisson(12)),
    "binomial, few": (lambda **o: random.binomial(10, 0.3, **o), stats.binom(10, 0.3)),
    "binomial, few failures": (lambda **o: random.binomial(50, 0.9, **o), stats.binom(50, 0.9)),
    "binomial below the bound": (lambda **o: random.binomial(19, 0.5, **o), stats.binom(19, 0.5)),
    "binomial at the bound": (lambda **o: random.binomial(20, 0.5, **o), stats.binom(20, 0.5)),
    "binomial, many": (lambda **o: random.binomial(1000, 0.7, **o), stats.binom(1000, 0.7)),
    "binomial, rare": (lambda **o: random.binomial(100_000, 2e-4, **o), stats.binom(100_000, 2e-4)),
    "binomial of tensors": (lambda **o: random.binomial(Tensor([40.0]), Tensor([0.4]), **o), stats.binom(40, 0.4)),
    "randint": (lambda **o: random.randint(-3, 8, size=o["size"], key=o["key"]), stats.randint(-3, 8)),
}
IN_PLACE: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Any]] = {
    "uniform_": (lambda t, k: t.uniform_(-1.0, 1.0, key=k), stats.uniform(-1, 2)),
    "normal_": (lambda t, k: t.normal_(2.0, 3.0, key=k), stats.norm(2, 3)),
    "log_normal_": (lambda t, k: t.log_normal_(0.0, 0.5, key=k), stats.lognorm(0.5)),
    "exponential_": (lambda t, k: t.exponential_(0.5, key=k), stats.expon(scale=2)),
    "cauchy_": (lambda t, k: t.cauchy_(1.0, 2.0, key=k), stats.cauchy(1, 2)),
}


def probability_of_counts(x: np.ndarray, law: Any) -> float:
    """The p-value of a chi-squared test of whole numbers, over cells that are expected at least 20 times."""
    assert (x == np.round(x)).all()
    first, last = int(law.ppf(1e-6)), int(law.ppf(1 - 1e-6))
    edges = [first - 1]
    for k in range(first, last):
        if N * (law.cdf(k) - law.cdf(edges[-1])) >= 20 and N * law.sf(k) >= 20:
            edges.append(k)
    bounds = np.array([-np.inf, *edges[1:], np.inf])
    expected = N * np.diff(law.cdf(bounds))
    observed = np.array([((x > a) & (x <= b)).sum() for a, b in zip(bounds, bounds[1:], strict=False)])
    return float(stats.chisquare(observed, expected).pvalue) if len(expected) > 1 else 1.0


# ---- whole distributions ---------------------------------------------------------------------------------------------
@pytest.mark.sweep
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distributions(name: str, dtype: str) -> None:
    draw, law = CONTINUOUS[name]
    x = draw(size=N, dtype=dtype, key=random.key(1)).numpy()
    assert x.dtype == dtype and np.isfinite(x).all()
    assert stats.kstest(x.astype(np.float64), law.cdf).pvalue > LEAST_P
    if np.isfinite(law.var()):
        assert abs(x.mean(dtype=np.float64) - law.mean()) < 5 * law.std() / N**0.5
    low, high = law.ppf(1e-3), law.ppf(1 - 1e-3)  # the tails, of which a test of the whole knows little
    assert stats.binomtest(int((x < low).sum()), N, 1e-3).pvalue > LEAST_P
    assert stats.binomtest(int((x > high).sum()), N, 1e-3).pvalue > LEAST_P


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_distributions(name: str, dtype: str) -> None:
    draw, law = DISCRETE[name]
    x = draw(size=N, dtype=dtype, key=random.key(2)).numpy()
    assert probability_of_counts(x, law) > LEAST_P
    assert abs(x.mean(dtype=np.float64) - law.mean()) < 5 * law.std() / N**0.5


@pytest.mark.sweep
@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_methods(name: str) -> None:
    fill, law = IN_PLACE[name]
    for dtype in FLOATS:
        x = Tensor.zeros(N, dtype=dtype)
        assert fill(x, random.key(3)) is x and x.dtype.name == dtype
        assert stats.kstest(x.numpy().astype(np.float64), law.cdf).pvalue > LEAST_P


def test_in_place_methods_of_whole_numbers() -> None:
    k = random.key(4)
    for dtype in ("float32", "int16", "int64"):
        x = Tensor.zeros(N, dtype=dtype)
        assert probability_of_counts(x.geometric_(0.3, key=k).numpy(), stats.geom(0.3)) > LEAST_P
        assert probability_of_counts(x.bernoulli_(0.3, key=k).numpy(), stats.bernoulli(0.3)) > LEAST_P
        assert probability_of_counts(x.random_(-5, 9, key=k).numpy(), stats.randint(-5, 9)) > LEAST_P
        assert probability_of_counts(x.random_(12, key=k).numpy(), stats.randint(0, 12)) > LEAST_P
    for dtype, last in (("float32", 2**24), ("float16", 2048), ("bfloat16", 256), ("int8", 127), ("uint8", 255)):
        numbers = Tensor.zeros(N, dtype=dtype).random_(key=k).double().numpy()
        assert numbers.min() >= 0 and 0.99 * last < numbers.max() <= last
    assert set(Tensor.zeros(99, dtype="bool").random_(key=k).tolist()) == {False, True}
    p = Tensor([[0.0], [1.0]]).expand(2, 9)
    assert Tensor.zeros(2, 9, dtype="int32").bernoulli_(p).tolist() == [[0] * 9, [1] * 9]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_rounded_single_ones(dtype: str) -> None:
    k = random.key(5)
    for draw in (random.normal, random.exponential, random.laplace, random.cauchy, random.gumbel):
        wide, narrow = draw(size=99, key=k), draw(size=99, key=k, dtype=dtype)
        assert narrow.dtype.name == dtype and narrow.tolist() == wide.cast(dtype).tolist()
        x = Tensor.zeros(99, dtype=dtype)
    assert x.normal_(key=k).tolist() == random.normal(size=99, key=k).cast(dtype).tolist()


def test_tails_have_all_digits() -> None:
    """Of 24 bits alone the largest exponential number were 16.6, and the least distance of two 6e-8."""
    x = random.exponential(size=1 << 22, key=random.key(6)).numpy()
    assert 14.0 < x.max() < 23.0 and 0 < x.min() < 3e-6
    c = random.cauchy(size=1 << 20, key=random.key(6)).numpy()
    assert np.abs(c).max() > 1e5 and abs((c > 0).mean() - 0.5) < 0.002


def test_counts_of_successes() -> None:
    """Beside the whole distributions: certain results, shapes, dtypes, many trials, one graph for both samplers."""
    trials, p = Tensor([0.0, 7.0, 50.0, 50.0, 1e6]), Tensor([0.5, 1.0, 0.0, 1.0, 1.0])
    for _ in range(3):
        assert monolect.binomial(trials, p).tolist() == [0.0, 7.0, 0.0, 50.0, 1e6]
    theirs = torch.binomial(torch.tensor([[3.0], [4.0]]).expand(2, 3).contiguous(), torch.full((2, 3), 0.5))
    ours = Tensor([[3.0], [4.0]]).binomial(Tensor([0.5, 0.5, 0.5]))
    assert ours.shape == tuple(theirs.shape) and ours.dtype is dtypes.float32
    assert Tensor([3.0]).half().binomial(Tensor(0.5)).dtype is dtypes.float16
    assert Tensor.zeros(0, 2).binomial(0.5).shape == (0, 2) and random.binomial(3, 0.5).shape == ()
    for n, q in ((2**24, 1e-6), (10**7, 0.5), (10**6, 0.3))[: often(1, 3)]:
        x = random.binomial(n, q, size=N, key=random.key(7)).numpy().astype(np.float64)
        law = stats.binom(n, q)
        assert abs(x.mean() - law.mean()) < 4 * law.std() / np.sqrt(N) and abs(x.var() / law.var() - 1) < 0.04, (n, q)
    cells = np.repeat([[4.0, 30.0, 400.0]], N, axis=0)
    x, again = (Tensor(cells).binomial(0.25, key=random.key(2)).numpy() for _ in range(2))
    np.testing.assert_array_equal(x, again)
    for column, n in enumerate((4, 30, 400)):
        assert probability_of_counts(x[:, column], stats.binom(n, 0.25)) > LEAST_P
    step = jit(lambda n: n.binomial(0.5))
    assert len({tuple(step(Tensor.full((20,), 30.0)).tolist()) for _ in range(4)}) == 4
    w = Tensor([0.5], requires_grad=True)
    y = w * random.binomial(Tensor([40.0]), w)
    y.sum().backward()
    assert w.grad is not None and w.grad.item() == y.item() / 0.5


def test_large_poisson_rates() -> None:
    for rate in (1e4, 1e6):
        x = random.poisson(rate, size=N, key=random.key(7)).numpy().astype(np.float64)
        assert abs(x.mean() - rate) < 5 * (rate / N) ** 0.5 and abs(x.var() / rate - 1) < 0.05
        assert stats.kstest((x + np.random.default_rng(0).random(N) - rate) / rate**0.5, "norm").pvalue > LEAST_P
    rates = Tensor(np.array([0.0, 1e-3, 3.0, 9.99, 10.0, 80.0], np.float32).repeat(5000).reshape(6, 5000))
    x = rates.poisson(key=random.key(8)).numpy().astype(np.float64)
    for row, rate in zip(x, (0.0, 1e-3, 3.0, 9.99, 10.0, 80.0), strict=True):
        assert abs(row.mean() - rate) <= 5 * (rate / 5000) ** 0.5


def test_vectors() -> None:
    a = np.array([0.5, 1.0, 4.0])
    x = random.dirichlet(Tensor(a), size=N, key=random.key(9)).numpy()
    assert x.shape == (N, 3) and np.abs(x.sum(1) - 1).max() < 1e-6
    for k in range(3):
        assert stats.kstest(x[:, k], stats.beta(a[k], a.sum() - a[k]).cdf).pvalue > LEAST_P
    p = np.array([0.1, 0.0, 0.6, 0.3])
    with np.errstate(divide="ignore"):
        logits = Tensor(np.log(p).astype(np.float32))
    for drawn in (
        random.categorical(logits, size=N, key=random.key(10)),
        random.multinomial(Tensor(p * 7), N, True, key=random.key(11)),
        random.categorical(logits.unsqueeze(1).expand(4, N), dim=0, key=random.key(12)),
    ):
        counts = np.bincount(drawn.numpy(), minlength=4)
        assert drawn.shape == (N,) and counts[1] == 0
        assert stats.chisquare(counts[[0, 2, 3]], N * p[[0, 2, 3]]).pvalue > LEAST_P


def test_choices_without_replacement() -> None:
    p = np.array([0.1, 0.2, 0.7])
    drawn = Tensor(np.tile(p, (N, 1))).multinomial(2, key=random.key(13)).numpy()
    assert drawn.shape == (N, 2) and (drawn[:, 0] != drawn[:, 1]).all()
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    counts = [((drawn == pair).all(1)).sum() for pair in pairs]
    assert stats.chisquare(counts, [N * p[i] * p[j] / (1 - p[i]) for i, j in pairs]).pvalue > LEAST_P
    assert sorted(Tensor([0.0, 1.0, 1.0, 0.0, 1.0]).multinomial(3).tolist()) == [1, 2, 4]
    with pytest.raises(ArgumentError, match="num_samples"):
        Tensor([1.0, 1.0]).multinomial(3)


def test_permutations() -> None:
    table = Tensor(np.tile(np.arange(4), (1, 1)))
    orders = np.array([random.permutation(table, 1, key=k).numpy()[0] for k in [random.key(n) for n in range(240)]])
    assert (np.sort(orders, 1) == np.arange(4)).all()
    assert stats.chisquare(np.unique(orders, axis=0, return_counts=True)[1]).pvalue > LEAST_P
    large = random.randperm(20_000, key=random.key(1))
    assert large.dtype is dtypes.int64 and (np.sort(large.numpy()) == np.arange(20_000)).all()
    assert sorted(random.permutation(5).tolist()) == [0, 1, 2, 3, 4]


# ---- shapes, parameters, errors --------------------------------------------------------------------------------------
def test_shapes_and_dtypes() -> None:
    m = Tensor.zeros(3, 1, dtype="float64")
    assert random.normal(m, Tensor.ones(4)).shape == (3, 4) and random.normal(m, 1.0).dtype is dtypes.float64
    assert random.normal(m, size=(2, 3, 5)).shape == (2, 3, 5) and random.normal().shape == ()
    assert random.normal(m, dtype="float16").dtype is dtypes.float16
    assert random.gamma(Tensor([1, 2])).dtype is dtypes.float32 and random.bernoulli(size=0).shape == (0,)
    assert random.dirichlet(Tensor.ones(2, 3), size=(5, 2)).shape == (5, 2, 3)
    assert random.poisson(Tensor.ones(0, 2)).shape == (0, 2)
    assert random.bits((2, 3)).dtype is dtypes.uint64


REFUSED: list[tuple[Callable[[], Any], type[MonolectError], str]] = [
    (lambda: random.normal(Tensor.zeros(3), size=(2,)), ShapeError, "normal: parameters"),
    (lambda: random.normal(Tensor.zeros(3), Tensor.ones(2)), ShapeError, "normal: parameters"),
    (lambda: random.normal(std=-1.0, size=2), ArgumentError, "normal: std"),
    (lambda: random.uniform(1.0, 0.0), ArgumentError, "uniform: range"),
    (lambda: random.truncated_normal(1.0, 0.0), ArgumentError, "truncated_normal: range"),
    (lambda: random.exponential(0.0), ArgumentError, "exponential: rate"),
    (lambda: random.gamma(-1.0), ArgumentError, "gamma: concentration"),
    (lambda: random.beta(1.0, 0.0), ArgumentError, "beta: b"),
    (lambda: random.student_t(0.0), ArgumentError, "student_t: df"),
    (lambda: random.poisson(-1.0), ArgumentError, "poisson: rate"),
    (lambda: random.binomial(2.5, 0.5), ArgumentError, "binomial: n"),
    (lambda: random.binomial(-1, 0.5), ArgumentError, "binomial: n"),
    (lambda: random.binomial(3, 1.5), ArgumentError, "binomial: p"),
    (lambda: Tensor([3]).binomial(0.5), DTypeError, "binomial"),
    (lambda: Tensor([3.0]).binomial(-0.5), ArgumentError, "binomial: prob"),
    (lambda: random.bernoulli(1.5), ArgumentError, "bernoulli: p"),
    (lambda: random.geometric(0.0), ArgumentError, "geometric: p"),
    (lambda: random.dirichlet(Tensor(1.0)), ShapeError, "dirichlet"),
    (lambda: random.categorical(Tensor([1])), DTypeError, "categorical"),
    (lambda: random.normal(size=2, dtype="int32"), DTypeError, "normal: dtype"),
    (lambda: random.normal("x"), ArgumentError, "an operand"),
    (lambda: Tensor.zeros(2, dtype="int32").normal_(), DTypeError, "normal_: dtype"),
    (lambda: Tensor.zeros(2).normal_(0.0, -1.0), ArgumentError, "normal_: std"),
    (lambda: Tensor.zeros(2).uniform_(1.0, 0.0), ArgumentError, "uniform_: range"),
    (lambda: Tensor.zeros(2, dtype="float16").uniform_(0.0, 1e6), ArgumentError, "uniform_: range"),
    (lambda: Tensor.zeros(2).log_normal_(std=0.0), ArgumentError, "log_normal_: std"),
    (lambda: Tensor.zeros(2).exponential_(0.0), ArgumentError, "exponential_: lambd"),
    (lambda: Tensor.zeros(2).cauchy_(sigma=0.0), ArgumentError, "cauchy_: sigma"),
    (lambda: Tensor.zeros(2).geometric_(1.0), ArgumentError, "geometric_: p"),
    (lambda: Tensor.zeros(2, dtype="bool").geometric_(0.5), DTypeError, "geometric_: dtype"),
    (lambda: Tensor.zeros(2).bernoulli_(1.5), ArgumentError, "bernoulli_: p"),
    (lambda: Tensor.zeros(2).bernoulli_(Tensor([1])), DTypeError, "bernoulli_: p"),
    (lambda: Tensor.zeros(2).bernoulli_(Tensor.zeros(3)), ShapeError, "."),
    (lambda: Tensor.zeros(2, dtype="int8").random_(0, 200), ArgumentError, "random_: range"),
    (lambda: Tensor.zeros(2).random_(3, 3), ArgumentError, "random_: range"),
    (lambda: Tensor.zeros(2, dtype="fp8e4m3").random_(), DTypeError, "random_: dtype"),
    (lambda: Tensor([1.0]).bernoulli(2.0), ArgumentError, "bernoulli: p"),
    (lambda: Tensor([1]).poisson(), DTypeError, "poisson"),
]


@pytest.mark.parametrize(("use", "error", "text"), REFUSED)
def test_what_is_refused(use: Callable[[], Any], error: type[MonolectError], text: str) -> None:
    with pytest.raises(error, match=text):
        use()


# ---- gradients -------------------------------------------------------------------------------------------------------
def test_location_scale_and_rate_are_reparametrised() -> None:
    k = random.key(14)
    for draw in (random.normal, random.laplace, random.cauchy, random.gumbel):
        loc, scale = Tensor([0.5], requires_grad=True), Tensor([2.0], requires_grad=True)
        draw(loc, scale, size=8, key=k).sum().backward()
        assert loc.grad is not None and scale.grad is not None
        standard = draw(size=8, key=k).sum().item()
        np.testing.assert_allclose([loc.grad.item(), scale.grad.item()], [8.0, standard], rtol=1e-5)
    for draw in (random.exponential, lambda rate, **o: random.gamma(3.0, rate, **o)):
        rate = Tensor([2.0], requires_grad=True)
        x = draw(rate, size=8, key=k)
        x.sum().backward()
        assert rate.grad is not None
        np.testing.assert_allclose(rate.grad.item(), -x.sum().item() / 2.0, rtol=1e-5)
    low, high = Tensor(1.0, requires_grad=True), Tensor(3.0, requires_grad=True)
    random.uniform(low, high, size=8, key=k).sum().backward()
    assert low.grad is not None and high.grad is not None
    assert abs(low.grad.item() + high.grad.item() - 8.0) < 1e-5


def test_the_gradient_of_a_truncated_normal_number_is_that_of_its_inverse_function() -> None:
    k, eps = random.key(15), 1e-6
    parameters = [Tensor(v, dtype="float64", requires_grad=True) for v in (-1.0, 2.0, 0.3, 1.2)]
    random.truncated_normal(*parameters, size=50, key=k).sum().backward()
    for i, p in enumerate(parameters):
        above, below = (
            random.truncated_normal(*(q + Tensor(s * (q is p)).double() for q in parameters), size=50, key=k)
            for s in (eps, -eps)
        )
        assert p.grad is not None, i
        np.testing.assert_allclose(p.grad.item(), (above - below).sum().item() / (2 * eps), rtol=1e-5)


def test_discrete_numbers_have_no_gradient() -> None:
    rate, w = Tensor([3.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    for x in (rate.poisson(), random.poisson(rate), random.geometric(rate / 4), random.bernoulli(rate / 4)):
        (x * w).sum().backward()
        assert rate.grad is None or rate.grad.tolist() == [0.0]


# ---- implicit gradients ----------------------------------------------------------------------------------------------
CONCENTRATIONS = np.array([1e-3, 0.02, 0.3, 0.9, 1.0, 1.1, 3.0, 9.5, 40.0, 1e3, 1e5])


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_of_gamma_numbers_is_the_implicit_one(dtype: str) -> None:
    """PyTorch's own formulas err by up to 5e-4; the inverse of the distribution function at the same share by less."""
    a = Tensor(np.repeat(CONCENTRATIONS, 30), dtype=dtype, requires_grad=True)
    x = random.gamma(a, key=random.key(5))
    _ = x.sum().backward()
    got, shape, drawn = a.grad.numpy(), a.numpy().astype(np.float64), x.numpy().astype(np.float64)
    assert a.grad.dtype is x.dtype
    positive = drawn > 1e-30
    assert positive.sum() > 250
    theirs = torch._standard_gamma_grad(torch.tensor(shape), torch.tensor(drawn)).numpy()
    np.testing.assert_allclose(got[positive], theirs[positive], rtol=1e-3)
    share = special.gammainc(shape, drawn)
    middle = positive & (share > 1e-3) & (share < 0.99)
    h = shape * 1e-6
    sides = [special.gammaincinv(shape + s * h, share) for s in (1, -1)]
    exact = (sides[0] - sides[1]) / (2 * h)
    np.testing.assert_allclose(got[middle], exact[middle], rtol=3e-6 if dtype == "float64" else 1e-3)


def test_gradients_of_gamma_numbers_have_the_shape_of_their_parameters() -> None:
    a, rate = Tensor([0.5, 3.0], requires_grad=True), Tensor(2.0, requires_grad=True)
    x = random.gamma(a, rate, size=(4, 2), key=random.key(1))
    _ = x.sum().backward()
    values = x.numpy().astype(np.float64)
    theirs = torch._standard_gamma_grad(torch.tensor(a.numpy()).double().expand(4, 2), torch.tensor(values * 2.0))
    np.testing.assert_allclose(a.grad.numpy(), theirs.numpy().sum(0) / 2.0, rtol=1e-3)
    np.testing.assert_allclose(rate.grad.item(), -values.sum() / 2.0, rtol=1e-5)
    tiny = Tensor([1e-4], requires_grad=True)  # most of its numbers are 0 in float32, and the gradient is no nan
    _ = random.gamma(tiny, size=50, key=random.key(2)).sum().backward()
    assert np.isfinite(tiny.grad.numpy()).all()


MEANS: dict[str, tuple[Callable[[Tensor], Tensor], list[float], Callable[[Any], Any]]] = {
    "gamma": (lambda p: random.gamma(p.expand(N, 2), key=random.key(1)).square(), [0.7, 4.0], lambda p: p * (p + 1)),
    "beta": (
        lambda p: random.beta(p[0].expand(N), p[1].expand(N), key=random.key(2)),
        [0.8, 2.5],
        lambda p: p[0] / (p[0] + p[1]),
    ),
    "dirichlet": (
        lambda p: random.dirichlet(p, size=N, key=random.key(3)).square(),
        [0.5, 1.5, 4.0],
        lambda p: p * (p + 1) / (p.sum() * (p.sum() + 1)),
    ),
    "student_t": (
        lambda p: random.student_t(p.expand(N, 1), key=random.key(4)).square(),
        [9.0],
        lambda p: p / (p - 2),
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", MEANS)
def test_implicit_gradients_are_those_of_the_mean(name: str) -> None:
    """The weights of the outputs make no gradient vanish."""
    draw, values, mean = MEANS[name]
    p, t = Tensor(values, dtype="float64", requires_grad=True), torch.tensor(values, dtype=torch.float64)
    _ = t.requires_grad_()
    wanted = mean(t)
    found = draw(p)
    found = found.mean(0) if wanted.ndim else found.mean()
    weights = np.arange(1.0, 1.0 + wanted.numel()).reshape(tuple(wanted.shape))
    np.testing.assert_allclose(found.numpy(), wanted.detach().numpy(), rtol=0.05)
    _ = (found * Tensor(weights)).sum().backward()
    (wanted * torch.tensor(weights)).sum().backward()
    np.testing.assert_allclose(p.grad.numpy(), t.grad.numpy(), rtol=0.06, atol=0.02)


# ---- captured --------------------------------------------------------------------------------------------------------
def test_samplers_are_captured() -> None:
    def step(key: Tensor) -> list[Tensor]:
        first, second, third = random.split(key, 3)
        gamma, events = random.gamma(2.5, size=3, key=first), random.poisson(Tensor([3.0, 30.0]), key=second)
        return [gamma, events, random.truncated_normal(size=2, key=third), Tensor.ones(4).multinomial(2, key=third)]

    captured, keys = jit(step), [random.key(n) for n in range(3)]
    for k in keys:
        for got, wanted in zip(captured(k), step(k), strict=True):
            np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-5)

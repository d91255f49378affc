"""Reductions, softmax and running sums: values and gradients against PyTorch."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from monolect.base.errors import AxisError, DTypeError, ShapeError
from monolect.tensor.tensor import Tensor

RNG = np.random.default_rng(2)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)
TIES = RNG.integers(-2, 3, (4, 6)).astype(np.float32)
Z = np.array([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0], [0.0, 2.0, 0.0]], np.float32)

TABLE: list[Any] = [
    ("sum", lambda t: t.sum(), X),
    ("sum1", lambda t: t.sum(1), X),
    ("sum_axes", lambda t: t.sum((0, 2)), X),
    ("sum_keep", lambda t: t.sum(-1, keepdim=True), X),
    ("axis", lambda t: t.sum(axis=1), X),
    ("mean", lambda t: t.mean(), X),
    ("mean_axes", lambda t: t.mean((0, 1)), X),
    ("prod", lambda t: t.prod(1), X),
    ("prod_zeros", lambda t: t.prod(1), Z),
    ("amax", lambda t: t.amax(), X),
    ("amax_ties", lambda t: t.amax(1), TIES),
    ("amin_ties", lambda t: t.amin(0), TIES),
    ("amax_axes", lambda t: t.amax((0, 2), keepdim=True), X),
    ("max_dim", lambda t: t.max(1).values, X),
    ("min_dim", lambda t: t.min(2, keepdim=True).values, X),
    ("var", lambda t: t.var(), X),
    ("var1", lambda t: t.var(1, keepdim=True), X),
    ("var0", lambda t: t.var(1, correction=0), X),
    ("var_biased", lambda t: t.var(1, unbiased=False), X),
    ("std", lambda t: t.std((0, 1)), X),
    ("logsumexp", lambda t: t.logsumexp(1), X * 30),
    ("softmax", lambda t: t.softmax(1), X * 3),
    ("softmax_last", lambda t: t.softmax(-1), X),
    ("log_softmax", lambda t: t.log_softmax(2), X * 10),
    ("norm", lambda t: t.norm(), X),
    ("norm1", lambda t: t.norm(1, 2), X),
    ("norm3", lambda t: t.norm(3, 1), X),
    ("norm_inf", lambda t: t.norm(math.inf, 1), X),
    ("norm_-inf", lambda t: t.norm(-math.inf, 1), X),
    ("cumsum", lambda t: t.cumsum(1), X),
    ("cumsum_last", lambda t: t.cumsum(-1), X),
    ("cumsum0", lambda t: t.cumsum(0), X),
    ("cumprod", lambda t: t.cumprod(2), X),
    ("cummax", lambda t: t.cummax(1).values, X),
    ("cummin", lambda t: t.cummin(1).values, X),
    ("logcumsumexp", lambda t: t.logcumsumexp(1), X),
    ("var_mean", lambda t: t.var(1) + t.mean(1), X),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "f", "x"), TABLE, ids=[r[0] for r in TABLE])
def test_reduction_and_its_gradient(name: str, f: Any, x: np.ndarray, both: Any) -> None:
    both(f, x, rtol=1e-5, atol=1e-5)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"])
@pytest.mark.parametrize(
    "name", ["sum", "prod", "amax", "amin", "any", "all", "argmax", "argmin", "cumsum", "count_nonzero", "cumprod"]
)
def test_dtypes(name: str, dtype: str, check: Any) -> None:
    if (name.startswith("arg") and dtype == "bool") or (name in ("any", "all") and dtype == "float16"):
        pytest.skip("not in PyTorch")
    x = RNG.integers(0, 4, (3, 7)).astype(dtype)
    f = lambda t: getattr(t, name)(1)  # noqa: E731
    a, b = f(Tensor(x)), f(torch.tensor(x))
    if name in ("any", "all"):
        b = b.bool()
    check(a, b, 1e-3)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_position_is_the_first(name: str, check: Any) -> None:
    for dim, keep in ((None, False), (0, False), (1, True), (-1, False)):
        got = getattr(Tensor(TIES), name)(dim, keep)
        want = getattr(TIES, name)(axis=dim)
        assert got.numpy().ravel().tolist() == np.ravel(want).tolist()
        assert got.dtype.name == "int64"
    x = np.array([[1.0, np.nan, 9.0, np.nan]], np.float32)
    assert getattr(Tensor(x), name)(1).tolist() == [1]
    assert getattr(Tensor(np.array([-128, 127, -128], np.int8)), name)().item() == (1 if name == "argmax" else 0)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_gradient_of_a_running_product_with_zeros(zeros: int, both: Any) -> None:
    x = RNG.uniform(0.5, 2, (3, 9)).astype(np.float32)
    x[0, 4], x[2, 0] = 0, 0
    x[:, 6] *= zeros != 1
    x[1, 2] *= zeros != 2
    both(lambda t: t.cumprod(1), x, rtol=1e-5, atol=1e-5)


def test_logcumsumexp_of_far_and_infinite_elements(check: Any) -> None:
    rows = [[-300, 0, 300, 5], [-math.inf] * 4, [-math.inf, 1, 2, -math.inf], [1, math.inf, 2, 3], [0, -90, -91, -300]]
    x = np.array(rows, np.float32)
    check(Tensor(x).logcumsumexp(1), torch.tensor(x).logcumsumexp(1))
    x[:, 2] = np.nan  # which reaches no sum before it
    check(Tensor(x).logcumsumexp(1), torch.tensor(x).logcumsumexp(1))


@pytest.mark.parametrize("low", [-1e9, -np.inf])
def test_logcumsumexp_of_elements_far_below_the_others_has_finite_derivatives(low: float) -> None:
    x = np.array([low, 0.5, 1.0, low, 2.0], np.float32)
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(np.maximum(x, -1e9), requires_grad=True)
    ours.logcumsumexp(0)[1:].sum().backward()
    theirs.logcumsumexp(0)[1:].sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "logcumsumexp"])
@pytest.mark.parametrize("dim", [0, 1])
def test_exponentials_of_no_elements(name: str, dim: int, check: Any) -> None:
    x = torch.zeros(2, 0)
    check(getattr(Tensor.zeros(2, 0), name)(dim), getattr(x, name)(dim))


def test_a_scalar_has_one_axis_to_reduce_and_reverse() -> None:
    x = Tensor(3.0)
    assert [y.tolist() for y in (x.sum(0), x.sum((0,)), x.amax((-1,)), x.flip(0))] == [3.0] * 4
    with pytest.raises(AxisError):
        x.flip(1)


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float32", "float64"])
def test_running_extremes_and_their_positions(name: str, dtype: str, check: Any) -> None:
    x = RNG.integers(0, 6, (4, 40)).astype(dtype)
    if dtype == "float32":
        x[0, 5], x[1, 3], x[1, 9] = np.nan, np.inf, -np.inf
    for dim in (0, 1):
        ours, theirs = getattr(Tensor(x), name)(dim), getattr(torch.tensor(x), name)(dim)
        check(ours.values, theirs.values)
        check(ours.indices, theirs.indices)


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_gradient_of_a_running_extreme_with_ties(name: str, both: Any) -> None:
    both(lambda t: getattr(t, name)(1).values, TIES.astype(np.float32))


def test_max_of_one_axis_gives_values_and_indices(check: Any) -> None:
    ours, theirs = Tensor(X).max(1), torch.tensor(X).max(1)
    check(ours.values, theirs.values)
    check(ours.indices, theirs.indices)
    v, i = Tensor(X).min(0, keepdim=True)
    check(v, torch.tensor(X).min(0, keepdim=True).values)
    check(i, torch.tensor(X).min(0, keepdim=True).indices)
    for name in ("cummax", "cummin"):
        check(getattr(Tensor(TIES), name)(1).indices, getattr(torch.tensor(TIES), name)(1).indices)


def test_extremes_keep_nan_and_integer_limits() -> None:
    assert math.isnan(Tensor([1.0, math.nan]).max().item()) and math.isnan(Tensor([1.0, math.nan]).amin().item())
    assert Tensor(np.array([-(2**31), 5], np.int32)).amin().item() == -(2**31)
    assert Tensor(np.array([0, 200], np.uint8)).amin().item() == 0


def test_empty() -> None:
    e = Tensor.zeros(0, 3)
    assert e.sum(0).tolist() == [0, 0, 0] and e.prod(0).tolist() == [1, 1, 1]
    assert e.any().item() is False and e.all().item() is True
    with pytest.raises(ShapeError, match="no elements"):
        e.amax(0)


def test_sums_of_halves_add_up_in_float32() -> None:
    x = np.full(4096, 0.1, np.float16)
    assert abs(Tensor(x).sum().item() - 409.5) < 0.5
    assert abs(Tensor(x).mean().item() - 0.1) < 1e-3


def test_softmax_does_not_overflow() -> None:
    assert Tensor([1000.0, 1000.0]).softmax(0).tolist() == [0.5, 0.5]
    assert Tensor([-math.inf, 0.0]).softmax(0).tolist() == [0.0, 1.0]
    assert Tensor([-math.inf, -math.inf]).logsumexp(0).item() == -math.inf


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: x.sum(3), AxisError, "axis 3"),
        (lambda x: x.sum((0, 0)), AxisError, "twice"),
        (lambda x: x.long().mean(), DTypeError, "int64"),
        (lambda x: x.long().softmax(), DTypeError, "int64"),
        (lambda x: x.argmax(7), AxisError, "axis 7"),
        (lambda x: x.cumsum(5), AxisError, "axis 5"),
    ],
)
def test_errors(f: Any, error: type, text: str) -> None:
    with pytest.raises(error) as info:
        f(Tensor(X))
    assert text in str(info.value) and __file__ in str(info.value)


@pytest.mark.sweep
@pytest.mark.parametrize(("pads", "n"), [(((2, 2), (0, 2)), 1000), (((1, 0), (0, 5)), 40), (((3, 1), (2, 1)), 4097)])
def test_rows_of_what_a_tensor_is_padded_with(pads: Any, n: int) -> None:
    """All their lanes hold one number, but for those behind the end."""
    x = RNG.normal(size=(70, n)).astype(np.float32)
    ours, exact = Tensor(x).realize(), np.pad(x.astype(np.float64), pads)
    np.testing.assert_allclose((ours.pad(pads) + 1).sum(1).numpy(), (exact + 1).sum(1), rtol=1e-5, atol=1e-3)
    np.testing.assert_array_equal((ours.pad(pads) + 1).amax(1).numpy(), (np.pad(x, pads) + 1).max(1))


@pytest.mark.sweep
@pytest.mark.parametrize("lead", [(), (3,), (40,)])
@pytest.mark.parametrize("n", [33, 257, 1000])
def test_running_sums_of_what_has_no_float32_of_its_own(lead: tuple[int, ...], n: int) -> None:
    """Constants, masks and choices between numbers are made in the type of the accumulator at once."""
    x = RNG.normal(size=(*lead, n)).astype(np.float32)
    t, axis = Tensor(x).realize(), len(lead)
    cases = [
        (Tensor.full((*lead, n), 0.5), np.full((*lead, n), 0.5)),
        ((t > 0).float(), x > 0),
        ((t > 0).where(1.0, 0.25), np.where(x > 0, 1.0, 0.25)),
        ((t * 9).to(np.int8).float(), (x * 9).astype(np.int8)),
    ]
    for ours, exact in cases:
        np.testing.assert_allclose(ours.cumsum(axis).numpy(), exact.cumsum(axis, dtype=np.float64), rtol=1e-6)


@pytest.mark.sweep
@pytest.mark.parametrize("n", [70_000, 200_690])
@pytest.mark.parametrize("place", [0, 17, 35_000, -3, -1])
def test_places_in_long_rows_of_64_bits(n: int, place: int) -> None:
    """Their keys leave no bits for the number of a block."""
    x = np.floor(RNG.normal(size=n))
    x[place] = np.nan
    assert Tensor(x).argmax().item() == Tensor(x).argmin().item() == place % n
    k = RNG.integers(-(2**63), 2**63 - 1, n)
    k[place] = 2**63 - 1
    assert Tensor(k).argmax().item() == np.argmax(k) and Tensor(k).argmin().item() == np.argmin(k)


def test_a_reduction_of_nothing_that_much_is_computed_for():
    much = Tensor.rand(1 << 17).sin()
    assert much[:0].sum().item() == 0.0 and much.reshape(2, -1)[:, :0].prod(1).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("p", [0.5, -1, -2])
def test_the_norm_has_no_slope_at_zeros(p):
    for data in ([[0.5, -1.0, 0.0], [1.0, 0.25, -2.0]], [[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]]):
        x, y = Tensor(data, dtype="float64", requires_grad=True), torch.tensor(data, dtype=torch.float64)
        out, wanted = x.norm(p, 1), y.requires_grad_().norm(p, 1)
        out.sum().backward(), wanted.sum().backward()
        np.testing.assert_allclose(out.numpy(), wanted.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-12)


def test_a_bool_alone_is_the_bias_of_a_variance() -> None:
    x = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)
    for biased in (False, True):
        for name in ("var", "std"):
            ours, theirs = getattr(Tensor(x), name), getattr(torch.tensor(x), name)
            np.testing.assert_allclose(ours(biased).numpy(), theirs(biased), rtol=1e-6)
            np.testing.assert_allclose(ours(0, biased).numpy(), theirs(0, biased), rtol=1e-6)
        for name in ("var_mean", "std_mean"):
            ours, theirs = getattr(Tensor(x), name)(biased), getattr(torch, name)(torch.tensor(x), biased)
            np.testing.assert_allclose([t.item() for t in ours], theirs, rtol=1e-6)


def test_a_sum_of_repeated_sums_inside_a_sum():
    a = np.arange(16.0)
    x, least = Tensor(a), Tensor([3.0], dtype="float64").realize()
    t = Tensor.stack(x.square(), x.square() * 2).sum(0)
    t = t.unsqueeze(0).expand(2, 16).sum(0)
    t = (t > 0.1).where(t, least)
    assert (t > 0.1).where(t * 2, 0.0).sum().item() == (a * a * 12).sum() + 6

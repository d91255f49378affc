"""Order along an axis against PyTorch's stable sort: dtypes, ties, nan, both zeros, rows of any length, gradients."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from monolect import ArgumentError, AxisError, Context, DTypeError, ShapeError, Tensor, Variable
from monolect.graphs import radix_sort as radix
from monolect.graphs import select as rank
from tests.strategies import often

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
UNSIGNED = ["uint16", "uint32", "uint64"]
SHORT = 256  # more than what is sorted by comparing all pairs
LONG = 3 * radix.CHUNK + 5  # chunks of a row, the last of which is not full
RNG = np.random.default_rng(0)
X = RNG.permutation(120).reshape(4, 5, 6).astype(np.float32)


def drawn(dtype: str, *shape: int) -> np.ndarray:
    """Many equal elements, both zeros, and nan."""
    x = RNG.integers(0, 100, shape)
    if "float" not in dtype:
        return (x if dtype == "bool" or "u" in dtype else (x - 50) << (40 if dtype == "int64" else 0)).astype(dtype)
    y = (x - 50) / 2
    y[x == 7] = -0.0
    y[x > 95] = np.nan
    y[x == 95] = -np.inf
    return y.astype(dtype)


def same(a: np.ndarray, b: np.ndarray) -> None:
    """Equal, down to the sign of zero."""
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        numbers = a == a
        np.testing.assert_array_equal(np.signbit(a[numbers]), np.signbit(b[numbers]))


@pytest.mark.sweep
@pytest.mark.parametrize("shape", [(3, 40), (2, SHORT + 1), (1, LONG)])
@pytest.mark.parametrize("dtype", DTYPES + UNSIGNED)
def test_sort_is_stable(dtype: str, shape: tuple) -> None:
    x = drawn(dtype, *shape)
    for descending in (False, True):
        wide = torch.tensor(x.astype(np.int64) if dtype in UNSIGNED else x)
        want = wide.sort(dim=1, stable=True, descending=descending).indices.numpy()
        values, indices = Tensor(x).sort(1, descending)
        values.realize(indices)
        assert indices.dtype.name == "int64" and values.dtype.name == dtype
        np.testing.assert_array_equal(indices.numpy(), want)
        same(values.numpy(), np.take_along_axis(x, want, 1))


def test_unsigned_numbers_beyond_the_signed_ones() -> None:
    x = np.array([2**63 + 1, 5, 2**64 - 1, 2**63, 0], np.uint64)
    for reps in (1, SHORT):
        np.testing.assert_array_equal(Tensor(np.tile(x, reps)).sort().values.numpy(), np.sort(np.tile(x, reps)))


@pytest.mark.sweep
@pytest.mark.parametrize("n", [20, SHORT + 10])
def test_bfloat16(n: int) -> None:
    x = torch.tensor(drawn("float32", 2, n)).to(torch.bfloat16)
    want = x.sort(dim=1, stable=True)
    values, indices = Tensor(x.float().numpy()).bfloat16().sort(1)
    np.testing.assert_array_equal(indices.numpy(), want.indices.numpy())
    np.testing.assert_array_equal(values.float().numpy(), want.values.float().numpy())


@pytest.mark.sweep
@pytest.mark.parametrize("k", [1, 5, 20, radix.MAX_ROUNDS + 3])
@pytest.mark.parametrize("shape", [(3, 40), (2, 1000), (1, LONG), (1, 1), (2, 16434)])
def test_topk(shape: tuple, k: int) -> None:
    k = min(k, shape[1])
    for dtype in ("float32", "int64", "uint8"):
        x = drawn(dtype, *shape)
        for largest in (True, False):
            want = torch.tensor(x).sort(dim=1, stable=True, descending=largest).indices.numpy()[:, :k]
            values, indices = Tensor(x).topk(k, 1, largest)
            values.realize(indices)
            np.testing.assert_array_equal(indices.numpy(), want)
            same(values.numpy(), np.take_along_axis(x, want, 1))


@settings(max_examples=often(6, 1000))
@given(st.data())
def test_random_rows(data: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=12))
    floats = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan])
    x = data.draw(hnp.arrays(np.float32, shape, elements=floats))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    down = data.draw(st.booleans())
    k = data.draw(st.integers(1, shape[dim]))
    want = torch.tensor(x).sort(dim=dim, stable=True, descending=down).indices
    np.testing.assert_array_equal(Tensor(x).argsort(dim, down).numpy(), want.numpy())
    np.testing.assert_array_equal(Tensor(x).topk(k, dim, down).indices.numpy(), want.narrow(dim, 0, k).numpy())


@settings(max_examples=often(4, 1000))
@given(st.data())
def test_random_long_rows(data: Any) -> None:
    """The passes by digit, whatever the length of the chunks."""
    n = data.draw(st.integers(SHORT + 1, 700))
    x = data.draw(hnp.arrays(np.int16, (2, n), elements=st.integers(-300, 300)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(radix, "CHUNK", data.draw(st.sampled_from([100, 300, 1 << 14])))
        patch.setattr(radix, "DIGIT_BITS", data.draw(st.sampled_from([8, 5])))
        values, indices = Tensor(x).sort(1)
    np.testing.assert_array_equal(indices.numpy(), x.argsort(1, kind="stable"))
    np.testing.assert_array_equal(values.numpy(), np.sort(x, 1))


GRADIENTS = {
    "sort": lambda t: t.sort(1).values,
    "descending": lambda t: t.sort(0, descending=True).values,
    "msort": lambda t: t.msort(),
    "topk": lambda t: t.topk(2, 2).values,
    "smallest": lambda t: t.topk(3, 1, largest=False).values,
    "kthvalue": lambda t: t.kthvalue(2, 1).values,
    "kthvalue kept": lambda t: t.kthvalue(2, 0, keepdim=True).values,
    "median": lambda t: t.median(2).values,
    "median of all": lambda t: t.median(),
    "quantile": lambda t: t.quantile(0.3, 1),
    "quantile of all": lambda t: t.quantile(0.75, keepdim=True),
    "quantile at an element": lambda t: t.quantile(1.0, 0, keepdim=True),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", GRADIENTS)
def test_values_and_gradients(name: str, both: Any) -> None:
    both(GRADIENTS[name], X)


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(4, 16), (2, 3, 33), (3, 1000)])
def test_gradients_of_parts_of_topk(shape: tuple, dtype: str, both: Any) -> None:
    """A part of the part that topk is of sorted rows leads back to them."""
    x, k = RNG.permutation(int(np.prod(shape))).reshape(shape).astype(dtype), shape[-1] // 2
    for part in (slice(0, 1), slice(k // 2, k)):
        both(lambda t, part=part: t.topk(k).values[..., part], x)


def test_gradient_of_a_long_sort(both: Any) -> None:
    both(lambda t: t.sort(1).values, RNG.permutation(2 * 300).reshape(2, 300).astype(np.float32))


@pytest.mark.sweep
@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(how: str, check: Any) -> None:
    q = np.array([0, 0.1, 0.25, 0.5, 0.625, 0.77, 1], np.float32)
    for dim, keep in ((1, False), (2, True), (None, False), (None, True)):
        ours = Tensor(X).quantile(Tensor(q), dim, keep, interpolation=how)
        check(ours, torch.tensor(X).quantile(torch.tensor(q), dim, keep, interpolation=how))


@pytest.mark.sweep
@pytest.mark.parametrize("n", [rank.MIN_ROW - 1, rank.MIN_ROW, 300])
@pytest.mark.parametrize("dtype", DTYPES + UNSIGNED)
def test_elements_by_rank(dtype: str, n: int) -> None:
    """The values of a sorted row, each from where its index says."""
    x = drawn(dtype, 3, n)
    for k in (1, 2, n // 2, n):
        values, indices = Tensor(x).kthvalue(k, 1)
        values.realize(indices)
        np.testing.assert_array_equal(values.numpy(), np.sort(x, 1)[:, k - 1])
        same(values.numpy(), np.take_along_axis(x, indices.numpy()[:, None], 1)[:, 0])


@settings(max_examples=often(6, 1000))
@given(st.data())
def test_random_ranks(data: Any) -> None:
    n = data.draw(st.integers(rank.MIN_ROW, 200))
    elements = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, np.inf, -np.inf, np.nan])
    x = data.draw(hnp.arrays(np.float32, (2, n), elements=elements))
    k = data.draw(st.integers(1, n))
    q = np.array(data.draw(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=rank.MAX_RANKS + 1)), np.float32)
    np.testing.assert_array_equal(Tensor(x).kthvalue(k, 1).values.numpy(), np.sort(x, 1)[:, k - 1])
    np.testing.assert_array_equal(Tensor(x).median(1).values.numpy(), torch.tensor(x).median(1).values.numpy())
    lower = torch.tensor(x).quantile(torch.tensor(q), 1, interpolation="lower").numpy()
    np.testing.assert_array_equal(Tensor(x).quantile(Tensor(q), 1, interpolation="lower").numpy(), lower)


def test_order_statistics_of_nan() -> None:
    x = np.array([[1, np.nan, 2, 0], [3, np.inf, -np.inf, 5]], np.float32)
    np.testing.assert_array_equal(Tensor(x).median(1).values.numpy(), [np.nan, 3])
    assert Tensor(x).median(1).indices.tolist() == [1, 0]
    np.testing.assert_array_equal(Tensor(x).quantile(0.5, 1).numpy(), [np.nan, 4])
    np.testing.assert_array_equal(Tensor(x).kthvalue(4, 1).values.numpy(), [np.nan, np.inf])


def test_without_axes_and_without_elements() -> None:
    one = Tensor(3.0)
    assert one.sort().values.item() == 3 and one.sort().indices.item() == 0 and one.argsort().shape == ()
    assert one.topk(1).values.shape == () and one.median().item() == 3 and one.quantile(0.2).item() == 3
    for shape, dim in (((0, 3), 0), ((3, 0), 1), ((0, 3), 1)):
        values, indices = Tensor.zeros(*shape).sort(dim)
        assert values.shape == indices.shape == shape and values.numpy().size == 0
    assert Tensor(X).topk(0, 1).values.shape == (4, 0, 6)


def test_without_a_code_generator_and_without_the_optimizer() -> None:
    x = drawn("float32", 2, SHORT + 9)
    want = torch.tensor(x).sort(dim=1, stable=True).indices.numpy()
    np.testing.assert_array_equal(Tensor(x, device="python").argsort(1).numpy(), want)
    with Context(NOOPT=1):
        np.testing.assert_array_equal(Tensor(x).argsort(1).numpy(), want)


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda x: x.sort(3), AxisError, "axis 3"),
        (lambda x: x.topk(7, 1), ArgumentError, "topk"),
        (lambda x: x.kthvalue(0), ArgumentError, "kthvalue"),
        (lambda x: x.long().quantile(0.5), DTypeError, "quantile"),
        (lambda x: x.quantile(0.5, interpolation="cubic"), ArgumentError, "interpolation"),
        (lambda x: x.quantile(Tensor([[0.5]])), ShapeError, "quantile"),
        (lambda x: Tensor.zeros(0, 3).median(0), ShapeError, "no elements"),
        (lambda x: Tensor.zeros(Variable("n", 1, 9), 2).topk(2, 0), ArgumentError, "k is outside the axis"),
        (lambda x: Tensor(1.0).expand(1 << 31).sort(), ShapeError, "too long"),
    ],
)
def test_errors(f: Any, error: type, text: str) -> None:
    with pytest.raises(error) as info:
        f(Tensor(X))
    assert text in str(info.value) and __file__ in str(info.value)

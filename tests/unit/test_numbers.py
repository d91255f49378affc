"""Python's numbers at the edges of a dtype as arguments: of methods, of what is written, of gradients beside them."""

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from monolect import Tensor, dtypes, grad
from monolect.backend.registry import Device
from monolect.base.errors import ArgumentError, DTypeError, ShapeError

torch = pytest.importorskip("torch")
DEVICES = [name for name, why in Device.present().items() if name in ("cpu", "c", "python") and not why]


def test_floats_that_are_written_keep_float64() -> None:
    x = Tensor(np.zeros(4))
    x[0] = 0.1
    x[1:3] = [0.2, 1e300]
    x[Tensor([False, False, False, True])] = np.float64(0.3)
    assert x.tolist() == [0.1, 0.2, 1e300, 0.3]
    assert Tensor(np.zeros(2)).copy_([0.1, 0.7]).tolist() == [0.1, 0.7]
    whole = Tensor([0, 0])
    whole[:] = 2.0**30 + 1
    assert whole.tolist() == [2**30 + 1] * 2


def test_where_of_two_numbers() -> None:
    c = Tensor([True, False])
    assert Tensor.where(c, np.float32(1.5), 2).tolist() == [1.5, 2.0]
    assert Tensor.where(c, True, False).dtype is dtypes.bool
    with pytest.raises(DTypeError):
        Tensor.where(c, 2**63, 1)


def test_round_to_decimals() -> None:
    assert Tensor([1.5, 65504.0]).half().round(decimals=5).tolist() == [1.5, 65504.0]
    assert Tensor([1250]).round(decimals=2).tolist() == [1250]
    with pytest.raises(DTypeError):
        Tensor([1250]).round(decimals=-2)
    with pytest.raises(ArgumentError):
        Tensor([1.5]).round(decimals=0.5)  # type: ignore[arg-type]


def test_bounds_that_are_nan_are_refused() -> None:
    for low, high in ((nan, 1.0), (-1.0, nan)):
        with pytest.raises(ArgumentError):
            Tensor([1.0]).hardtanh(low, high)


def test_an_infinity_is_close_to_nothing_else() -> None:
    x, y = [inf, -inf, inf, 1.0], [1e38, 3.0, inf, inf]
    for rtol in (100.0, inf):
        want = torch.isclose(torch.tensor(x), torch.tensor(y), rtol=rtol).tolist()
        assert Tensor(x).isclose(Tensor(y), rtol=rtol).tolist() == want


@pytest.mark.parametrize("name", ["hardshrink", "softshrink"])
def test_the_smallest_integer_is_not_small(name: str) -> None:
    x = Tensor([-128, 0, 127], dtype=dtypes.int8)
    assert getattr(x, name)().tolist() == getattr(x.float(), name)().tolist()


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_of_one_exponent_is_no_root(device: str) -> None:
    x = Tensor([-inf, -0.0, 4.0], device=device)
    for exponent in ([0.5], [0.5] * 3):
        got = x ** Tensor(exponent, device=device)
        assert str(got.tolist()) == "[inf, 0.0, 2.0]"


def test_a_power_of_bools_is_an_integer() -> None:
    x = Tensor([True, False])
    for exponent in (True, Tensor([True])):
        assert (x**exponent).dtype is dtypes.int64 and (x**exponent).tolist() == [1, 0]


def test_the_extreme_of_no_bools() -> None:
    none = Tensor.zeros(2, 0, dtype=dtypes.bool)
    for name in ("amax", "amin", "max", "min"):
        with pytest.raises(ShapeError):
            getattr(none, name)(1)
    assert none.any(1).tolist() == [False, False] and none.all(1).tolist() == [True, True]


def test_uniform_numbers_have_a_range() -> None:
    for low, high in ((1, 0), (0, inf), (nan, 1), (-3e38, 3e38)):
        with pytest.raises(ArgumentError):
            Tensor.uniform(2, low=low, high=high)
    assert bool(Tensor.uniform(9, low=-3e38, high=3e38, dtype=dtypes.float64).isfinite().all().item())


@pytest.mark.parametrize("name", ["elu", "celu", "selu"])
def test_the_slope_of_exponential_tails(name: str) -> None:
    """1 + expm1(x) would be a multiple of the last digit of 1, and 0 from -17 on."""
    x = np.array([-80.0, -30.0, -17.5, -5.0, -1.0, -1e-3, 0.0, 2.0, 1e4], np.float32)
    ours, theirs = Tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    getattr(ours, name)().sum().backward()
    getattr(torch.nn.functional, name)(theirs).sum().backward()
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["elu", "celu"])
def test_the_tails_have_a_second_derivative(name: str) -> None:
    x = Tensor([-2.0, 3.0], requires_grad=True)
    slopes = grad(lambda t: grad(lambda u: getattr(u, name)(1.5).sum())(t).sum())(x)
    t = torch.tensor([-2.0, 3.0], requires_grad=True)
    (first,) = torch.autograd.grad(getattr(torch.nn.functional, name)(t, 1.5).sum(), t, create_graph=True)
    (want,) = torch.autograd.grad(first.sum(), t)
    np.testing.assert_allclose(slopes.numpy(), want.numpy(), rtol=1e-5)


def test_kernels_that_differ_in_the_order_of_operands_are_compiled_once() -> None:
    numbers = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5]
    pairs = [(a, b) for a in numbers for b in numbers]
    results = [Tensor.full((1,), a) == Tensor.full((1,), b) for a, b in pairs]
    Tensor.realize(*results)
    assert [r.item() for r in results] == [a == b for a, b in pairs]


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "int64", "uint64"])
@pytest.mark.parametrize("n", [100, 127, 128, 200, 256, 257, 2**15, 2**63 + 7, 2**64 + 2, 2**70 + 1])
def test_a_power_that_the_dtype_does_not_hold(name: str, n: int) -> None:
    d = getattr(dtypes, name)
    values = [0, 1, 2, 3, d.max, d.min, d.max - 2]
    want = Tensor([x**n % 2**d.bits for x in values] if n < 1000 else [pow(x, n, 2**d.bits) for x in values], dtype=d)
    assert (Tensor(values, dtype=d) ** n).tolist() == want.tolist()


@pytest.mark.sweep
@pytest.mark.parametrize("by", [8, 256, 300, -1, -256, 2**64])
def test_a_shift_that_the_dtype_does_not_hold(by: int) -> None:
    for d in (dtypes.int8, dtypes.uint8):
        x = Tensor([1, d.max, d.min], dtype=d)
        assert (x << by).tolist() == [0, 0, 0] and (x >> by).tolist() == [0, 0, -1 if d.min else 0]
        x <<= by
        assert x.tolist() == [0, 0, 0]


def test_factors_are_taken_in_the_dtype_of_the_result() -> None:
    wide, narrow, double = Tensor([1, 1]), Tensor([200, 255], dtype=dtypes.uint8), Tensor(np.ones(2))
    assert wide.add(narrow, alpha=2).tolist() == [401, 511] and wide.sub(narrow, alpha=2).tolist() == [-399, -509]
    assert wide.addcmul(narrow, wide, value=2).tolist() == [401, 511]
    for y in (wide, Tensor([1.0, 1.0])):
        assert double.add(y, alpha=0.1).tolist() == double.addcdiv(y, double, value=0.1).tolist() == [1.1, 1.1]
        assert double.addcmul(y, double, value=0.1).tolist() == [1.1, 1.1]


def test_counts_beyond_integers() -> None:
    assert Tensor.arange(2**63 - 2, 2**63).tolist() == [2**63 - 2, 2**63 - 1]
    assert Tensor.arange(2**63, 2**63 + 2, dtype=dtypes.uint64).tolist() == [2**63, 2**63 + 1]
    assert Tensor.arange(0, 300, 100, dtype=dtypes.uint8).tolist() == [0, 100, 200]
    assert Tensor.arange(2**64, 2**64 + 1, dtype=dtypes.float64).tolist() == [2.0**64]
    for arguments, dtype in (
        ((2**63, 2**63 + 2), None),
        ((0, 2**64, 2**62), None),
        ((2**64, 2**64 + 2), dtypes.uint64),
    ):
        with pytest.raises(DTypeError, match="an integer does not fit"):
            Tensor.arange(*arguments, dtype=dtype)


def test_numbers_in_line_whose_distance_overflows() -> None:
    ends = Tensor.linspace(-1.7e308, 1.7e308, 3, dtype=dtypes.float64)
    assert ends.tolist() == [-1.7e308, 0.0, 1.7e308]


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
@pytest.mark.parametrize("ends", [(0.5, 3), (3, 0.5), (0.9, 7.9), (2.75, 0)])
def test_integers_between_ends_that_are_not_whole(dtype, ends):
    """The ends are rounded toward zero first."""
    found = Tensor.linspace(*ends, 11, dtype=getattr(dtypes, dtype)).numpy()
    np.testing.assert_array_equal(found, torch.linspace(*ends, 11, dtype=getattr(torch, dtype)).numpy())


SCALARS = [np.dtype(d).type for d in ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64")]


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
@given(st.data())
def test_lists_have_the_dtype_that_they_have_in_pytorch(data: st.DataObject) -> None:
    """Python numbers have default dtypes, NumPy's scalars and arrays their own."""
    numbers = st.one_of(st.booleans(), st.integers(0, 9), st.sampled_from([0.25, 2.0]))
    scalar = st.one_of(numbers, *[st.builds(d, st.integers(0, 1)) for d in SCALARS])
    array = st.builds(lambda d, x, n: np.full(n, x, d), st.sampled_from(SCALARS), st.integers(0, 1), st.just(2))
    row = st.lists(scalar, min_size=2, max_size=2)
    given_data = data.draw(st.one_of(scalar, st.lists(scalar, max_size=3), st.lists(st.one_of(row, array), max_size=3)))
    try:
        want = torch.tensor(given_data)
    except TypeError:  # some lists with NumPy's bools
        reject()
    got = Tensor(given_data)
    assert got.shape == tuple(want.shape) and got.dtype.name == str(want.dtype).removeprefix("torch.")
    assert got.tolist() == want.tolist()

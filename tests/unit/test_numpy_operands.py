"""Operators between NumPy arrays or numbers and tensors: a Tensor, on either side, and its derivative is kept."""

import operator
from typing import Any

import numpy as np
import pytest

from monolect import Tensor, jit
from monolect.base.errors import ShapeError

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne")
BITS = ("and_", "or_", "xor", "lshift", "rshift")
MAKERS = {"number": lambda a: a[0, 0], "rank 0": lambda a: a[0, 0].reshape(()), "array": lambda a: a}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", (*ARITHMETIC, *BITS))
def test_an_operator_with_numpy_on_either_side_is_a_tensor(name: str, kind: str) -> None:
    f, rng = getattr(operator, name), np.random.default_rng(len(name))
    for dtype in (np.int32, np.uint8) if name in BITS else (np.float32, np.float64, np.int32, np.uint8):
        a = MAKERS[kind](rng.integers(1, 5, (3, 1)).astype(dtype))
        b = rng.integers(1, 5, 4).astype(dtype)
        for x, y, want in ((a, Tensor(b), f(a, b)), (Tensor(b), a, f(b, a))):
            got = f(x, y)
            assert isinstance(got, Tensor)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-6, err_msg=f"{name} {kind} {dtype.__name__}")


@pytest.mark.parametrize(
    ("f", "slope"),
    [
        (lambda x: np.sqrt(4.0) * x, [2.0, 2.0]),
        (lambda x: np.float32(1) / x, [-1.0, -0.25]),
        (lambda x: np.array([3.0, 5.0], np.float32) - x, [-1.0, -1.0]),
        (lambda x: np.array([[1.0, 2.0], [3.0, 4.0]], np.float32) @ x, [4.0, 6.0]),
        (lambda x: x @ np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), [3.0, 7.0]),
    ],
)
def test_the_derivative_goes_through(f: Any, slope: list[float]) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    f(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == slope


def test_a_number_of_numpy_takes_the_dtype_and_nothing_runs() -> None:
    assert (np.float64(2) * Tensor([1.0]).half()).dtype.name == "float16"
    assert (np.ones(1) * Tensor([1.0])).dtype.name == "float64"
    step = jit(lambda x: np.sqrt(4.0) * x + np.ones(1, np.float32))  # reading a value would be refused
    assert [step(Tensor([float(k)])).item() for k in range(3)] == [1.0, 3.0, 5.0]


def test_functions_of_numpy_take_the_values() -> None:
    x, array = Tensor([1.0, 2.0]), np.zeros(2)
    same = array
    array += x
    assert array is same and array.tolist() == [1.0, 2.0]
    assert isinstance(np.exp(x), np.ndarray) and np.add.reduce(x) == 3.0
    assert np.add(np.ones(2), x, out=array) is array and array.tolist() == [2.0, 3.0]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ShapeError, match="shapes"):
        np.ones(3) + Tensor([1.0, 2.0])
    with pytest.raises(TypeError, match="@"):
        np.float64(1) @ Tensor([1.0])

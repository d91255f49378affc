"""Operators between NumPy arrays or numbers and tensors: a Tensor, on either side, and its derivative is kept."""

import operator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from monolect import Tensor, dtypes, jit
from monolect.base.errors import ArgumentError, DTypeError, ShapeError

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "gt", "ge", "eq", "ne")
BITS = ("and_", "or_", "xor", "lshift", "rshift")
MAKERS = {"number": lambda a: a[0, 0], "rank 0": lambda a: a[0, 0].reshape(()), "array": lambda a: a}


@pytest.mark.sweep
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


# ---- other libraries -------------------------------------------------------------------------------------------------
class Exported:
    """An array of a library that NumPy reads."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([1.0, 2.0], np.float32)


@pytest.mark.sweep
@pytest.mark.parametrize("name", (*ARITHMETIC, "matmul"))
def test_an_operator_with_a_tensor_of_pytorch_on_either_side_is_a_tensor(name: str) -> None:
    f = getattr(operator, name)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int32):
        theirs, own = torch.tensor([3, 2]).to(dtype), torch.tensor([2.0, 4.0])
        x = Tensor([2.0, 4.0], requires_grad=True)
        both = own.to(torch.promote_types(own.dtype, dtype)), theirs.to(torch.promote_types(own.dtype, dtype))
        for got, want in ((f(x, theirs), f(*both)), (f(theirs, x), f(*reversed(both)))):
            assert isinstance(got, Tensor) and got.dtype.name == str(want.dtype).removeprefix("torch.")
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6, err_msg=f"{name} {dtype}")
        if name in ("add", "mul", "truediv", "matmul"):
            f(theirs, x).sum().backward()
            leaf = own.clone().requires_grad_()
            f(theirs.to(torch.promote_types(own.dtype, dtype)), leaf.to(both[0].dtype)).sum().backward()
            assert x.grad is not None and leaf.grad is not None
            np.testing.assert_allclose(x.grad.numpy(), leaf.grad.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow"))
def test_augmented_assignment_between_libraries(name: str) -> None:
    f, a, b = getattr(operator, name), [3.0, 7.0], [2.0, 4.0]
    want = f(np.array(a), np.array(b))
    for other in (torch.tensor(b), np.array(b, np.float32), np.float32(2.0)):
        x = Tensor(a)
        assert f(x, other) is x  # the Tensor is written to
        np.testing.assert_allclose(x.numpy(), f(np.array(a), np.asarray(other)), rtol=1e-6)
    theirs = torch.tensor(a)
    got = f(theirs, Tensor(b))  # the name is bound to a Tensor, and the values of PyTorch's stay
    assert isinstance(got, Tensor) and theirs.tolist() == a
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)
    array = np.array(a)
    same = array
    array = f(array, Tensor(b))  # NumPy writes the values to its array
    assert array is same
    np.testing.assert_allclose(array, want, rtol=1e-6)


def test_any_array_is_an_operand_and_what_is_none_is_refused() -> None:
    x = Tensor([3.0, 4.0], requires_grad=True)
    assert (x + Exported()).tolist() == (Exported() + x).tolist() == [4.0, 6.0]
    assert (x @ Exported()).item() == (Exported() @ x).item() == 11.0
    (Exported() * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1.0, 2.0]
    for other in (torch.tensor([1.0, 2.0], requires_grad=True), "text", [1.0, 2.0], None):
        with pytest.raises(ArgumentError):
            x + other  # type: ignore[operator]
    with pytest.raises(ArgumentError, match="detach"):
        torch.tensor([1.0, 2.0], requires_grad=True) + x
    step = jit(lambda x: x * torch.tensor([2.0, 3.0]))
    assert [step(Tensor([float(k), 1.0])).tolist() for k in range(3)] == [[2.0 * k, 3.0] for k in range(3)]


def test_dtypes_of_other_libraries_are_dtypes() -> None:
    x = Tensor([1.5])
    for name in ("float16", "bfloat16", "float64", "int64", "bool", "uint8"):
        theirs = getattr(torch, name)
        assert x.to(theirs).dtype.name == x.cast(theirs).dtype.name == Tensor.zeros(1, dtype=theirs).dtype.name == name
        if name != "bfloat16":
            assert (
                x.to(np.dtype(name)).dtype.name == x.to(getattr(np, name + "_" * (name == "bool"))).dtype.name == name
            )
    assert x.to(torch.float8_e4m3fn).dtype is dtypes.fp8e4m3 is dtypes.float8_e4m3fn
    assert x.to("float8_e5m2").dtype is x.to(np.dtype(ml_dtypes.float8_e5m2)).dtype is dtypes.fp8e5m2
    assert x.to(np.dtype(ml_dtypes.bfloat16)).dtype is dtypes.bfloat16
    with pytest.raises(DTypeError, match="complex64"):
        x.to(torch.complex64)

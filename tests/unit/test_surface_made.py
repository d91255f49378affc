"""Tensors made of formulas and other data, questions about dtypes, functions with other defaults, beside PyTorch."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, DTypeError, ShapeError, Tensor, dtypes, jit, linalg
from monolect.cli.surface.generate import NUMBER_FIRST

WINDOWS: dict[str, list[dict[str, float]]] = {
    "hann_window": [{}], "bartlett_window": [{}], "blackman_window": [{}],
    "hamming_window": [{}, {"alpha": 0.5, "beta": 0.25}], "kaiser_window": [{}, {"beta": 2.5}],
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("periodic", [True, False])
def test_windows_of_signals(name: str, periodic: bool) -> None:
    ours, theirs = getattr(monolect, name), getattr(torch, name)
    for options in WINDOWS[name]:
        for n in (0, 1, 2, 3, 8, 101):
            got, want = ours(n, periodic, **options), theirs(n, periodic, **options, dtype=torch.float64)
            assert got.dtype is dtypes.float32 and got.shape == (n,)
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)
            wide = ours(n, periodic, **options, dtype="float64")
            np.testing.assert_allclose(wide.numpy(), want.numpy(), rtol=1e-12, atol=1e-14)
    assert ours(4, dtype=dtypes.float16).dtype is dtypes.float16 and ours(4, requires_grad=True).requires_grad
    with pytest.raises(ArgumentError, match=f"{name}: window_length"):
        ours(-1)
    with pytest.raises(DTypeError, match=name):
        ours(4, dtype=dtypes.int32)


def test_conversions() -> None:
    x = Tensor([1.5, 2.5])
    assert monolect.asarray(x) is x and monolect.as_tensor(x) is x and monolect.asarray(x, copy=True) is not x
    assert monolect.asarray(x, dtype=dtypes.int32).tolist() == [1, 2] == monolect.as_tensor(x, dtypes.int64).tolist()
    assert monolect.asarray([1, 2]).dtype is dtypes.int64 and monolect.as_tensor([0.5]).dtype is dtypes.float32
    assert monolect.asarray(np.float64([1]), requires_grad=True).requires_grad
    with pytest.raises(ArgumentError, match="asarray: copy"):
        monolect.asarray([1.0], copy=False)
    assert monolect.asarray(x, copy=False) is x
    scalar = monolect.scalar_tensor(3)
    assert (
        scalar.shape == () and scalar.dtype is dtypes.float32 and str(torch.scalar_tensor(3).dtype) == "torch.float32"
    )
    assert monolect.scalar_tensor(3, dtype=dtypes.int8).dtype is dtypes.int8
    data = bytearray(np.arange(6, dtype=np.int16).tobytes())
    for options in ({}, {"count": 2}, {"offset": 4}, {"offset": 2, "count": 3}):
        want = torch.frombuffer(data, dtype=torch.int16, **options)
        assert monolect.frombuffer(data, dtype=dtypes.int16, **options).tolist() == want.tolist()
    with pytest.raises(monolect.MonolectError):
        monolect.frombuffer(data, dtype=dtypes.int16, count=99)
    assert monolect.is_tensor(x) and not monolect.is_tensor(np.zeros(2))


@pytest.mark.parametrize("given", [(0, 2, 5), (-3, 3, 7, 2.0), (1, 1, 1), (0, 1, 0), (2.5, -1.0, 6, 0.5)])
def test_logspace(given: tuple[Any, ...]) -> None:
    got, want = monolect.logspace(*given, dtype="float64"), torch.logspace(*given, dtype=torch.float64)
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-13)
    np.testing.assert_allclose(monolect.logspace(*given).numpy(), want.numpy(), rtol=2e-6)


NAMES = [d.name for d in (dtypes.bool, dtypes.uint8, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)]
NAMES += ["float16", "bfloat16", "float32", "float64"]


def test_questions_about_dtypes() -> None:
    for a in NAMES:
        for b in NAMES:
            one, two = getattr(torch, a), getattr(torch, b)
            assert monolect.promote_types(a, b).name == str(torch.promote_types(one, two)).removeprefix("torch.")
            assert monolect.can_cast(a, b) == torch.can_cast(one, two), (a, b)
            x, y = Tensor([1], dtype=a), Tensor([1], dtype=b)
            assert (
                monolect.result_type(x, y).name
                == str(torch.result_type(torch.ones(1, dtype=one), torch.ones(1, dtype=two)))[6:]
            )
    for d in NAMES[-4:]:
        ours, theirs = monolect.finfo(getattr(dtypes, d)), torch.finfo(getattr(torch, d))
        for field in ("bits", "eps", "max", "min", "resolution", "smallest_normal", "tiny"):
            assert getattr(ours, field) == pytest.approx(getattr(theirs, field), rel=1e-12), (d, field)
    for d in NAMES[1:6]:
        whole, wanted = monolect.iinfo(d), torch.iinfo(getattr(torch, d))
        assert (whole.bits, whole.min, whole.max) == (wanted.bits, wanted.min, wanted.max)
    assert monolect.finfo() == monolect.finfo(dtypes.float32) and monolect.finfo().dtype is dtypes.float32
    for call in (
        lambda: monolect.finfo(dtypes.int8),
        lambda: monolect.iinfo(dtypes.float32),
        lambda: monolect.iinfo("bool"),
    ):
        with pytest.raises(DTypeError):
            call()


A = np.random.default_rng(0).standard_normal((3, 4, 3))
NORMS: list[tuple[Any, Any]] = [(None, d) for d in (None, 1, (0, 2), (-1, 1), (1,))]
NORMS += [(p, d) for p in (1, -1, float("inf")) for d in (1, (0, 2), (-1, 1), (1,))]
NORMS += [("fro", (0, 2)), ("fro", (-1, 1)), (3, 1), (3, (1,)), (0.5, 0)]
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    **{
        f"norm {ord} {dim}": (lambda lib, x, ord=ord, dim=dim: lib.linalg.norm(x, ord, dim, keepdim=dim == 1), (A,))
        for ord, dim in NORMS
    },
    "norm of a matrix": (lambda lib, x: lib.linalg.norm(x, 1), (A[0],)),
    "norm of a vector": (lambda lib, x: lib.linalg.norm(x, 3), (A[0, 0],)),
    "frobenius_norm": (lambda lib, x: lib.frobenius_norm(x, (0, 2), True), (A,)),
    "cross": (lambda lib, x, y: lib.linalg.cross(x, y), (A, A[::-1].copy())),
    "cross, dim": (lambda lib, x, y: lib.linalg.cross(x, y, dim=0), (A, A[::-1].copy())),
    "diagonal": (lambda lib, x: lib.linalg.diagonal(x, offset=1), (A,)),
    "diagonal, dims": (lambda lib, x: lib.linalg.diagonal(x, dim1=0, dim2=2), (A,)),
    "vander": (lambda lib, x: lib.linalg.vander(x, N=4), (A[0],)),
    "vander of a number": (lambda lib, x: lib.linalg.vander(x, N=3), (np.array(2.5),)),
    "count of other elements than 0": (lambda lib, x: lib.linalg.vector_norm(x, 0), (np.array([2.0, 0.0, np.nan]),)),
    "vander of integers": (lambda lib, x: lib.linalg.vander(x), (np.array([1, 2, 3]),)),
    "constant_pad_nd": (lambda lib, x: lib.constant_pad_nd(x, (1, -1, 2, 0), 7.0), (A,)),
    "nonzero_static": (lambda lib, x: lib.nonzero_static(x, size=20), (np.maximum(A, 0),)),
    "nonzero_static, few": (lambda lib, x: lib.nonzero_static(x, size=2, fill_value=9), (np.maximum(A, 0),)),
    "nonzero_static, none": (lambda lib, x: lib.nonzero_static(x, size=3), (A * 0,)),
    "nonzero_static, bool": (lambda lib, x: x.nonzero_static(size=5), (np.array([True, False, True]),)),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.filterwarnings("ignore:at..frobenius_norm is deprecated")
@pytest.mark.parametrize("name", CASES)
def test_values_beside_pytorch(name: str) -> None:
    f, arrays = CASES[name]
    got, want = f(monolect, *map(Tensor, arrays)), f(torch, *map(torch.tensor, arrays))
    assert got.shape == tuple(want.shape) and got.dtype.name == str(want.dtype).removeprefix("torch.")
    np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-12, atol=1e-15)


def test_a_count_of_other_elements_than_0_has_gradient_0() -> None:
    x = Tensor([2.0, 0.0, -1.0], requires_grad=True)
    _ = monolect.linalg.vector_norm(x, 0).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_positions_of_a_static_number_are_captured() -> None:
    step = jit(lambda x: x.nonzero_static(size=3))
    for values in ([0, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 2], [0, 0, 0, 0]):
        want = torch.nonzero_static(torch.tensor(values), size=3)
        assert step(Tensor(values)).tolist() == want.tolist()
    assert Tensor(5).nonzero_static(size=2).shape == (2, 0) and Tensor.zeros(0).nonzero_static(size=1).tolist() == [
        [-1]
    ]
    with pytest.raises(ArgumentError, match="nonzero_static: size"):
        Tensor([1]).nonzero_static(size=-1)


def test_dropout_of_channels_of_any_rank() -> None:
    x = Tensor.ones(40, 50, 2, 3, 2, dtype="float64", requires_grad=True)
    y = monolect.feature_dropout(x, 0.25, True)
    found = y.numpy()
    np.testing.assert_allclose(np.unique(found), [0.0, 4 / 3])
    assert (found == found[:, :, :1, :1, :1]).all()
    assert 0.7 < (found > 0).mean() < 0.8
    _ = y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), found)
    assert monolect.feature_dropout(x, 0.5, False) is x
    with pytest.raises(ShapeError, match="feature_dropout"):
        monolect.feature_dropout(Tensor([1.0]), 0.5, True)


def test_what_norms_refuse() -> None:
    with pytest.raises(ShapeError, match=r"linalg\.norm"):
        linalg.norm(Tensor(A), 1)
    with pytest.raises(ArgumentError, match="matrix_norm"):
        linalg.norm(Tensor(A[0]), "nuc")
    with pytest.raises(DTypeError):
        linalg.norm(Tensor([1, 2]))
    with pytest.raises(ShapeError):
        linalg.cross(Tensor([1.0, 2.0]), Tensor([1.0, 2.0]))


@pytest.mark.parametrize(
    "data",
    [
        3, 2.5, True, [], [[]], [1, 2], [1, 2.5], [True, False], [[1.0], [2.0]], range(3), (1, 2),
        np.arange(6, dtype=np.int8).reshape(2, 3).T, np.float64([1.5]), np.array(True), np.zeros((0, 3), np.float32),
        np.arange(4, dtype=">i4"), torch.tensor(1.5), torch.ones(2, 3).T, torch.zeros(0, 2),
        torch.tensor([1, 2]).to(torch.uint8), torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
        torch.tensor([1.5, 2.5], requires_grad=True),
    ],
    ids=lambda data: f"{type(data).__name__} {data!r}"[:50],
)  # fmt: skip
def test_tensor_copies_data(data: Any) -> None:
    native = data.astype(data.dtype.newbyteorder("=")) if isinstance(data, np.ndarray) else data
    want = data.detach().clone() if isinstance(data, torch.Tensor) else torch.tensor(native)
    got, wide = monolect.tensor(data), monolect.tensor(data, dtype="float64")
    assert got.dtype.name == str(want.dtype).removeprefix("torch.") and wide.dtype is dtypes.float64
    np.testing.assert_array_equal(got.double().numpy(), want.double().numpy(), strict=True)
    np.testing.assert_array_equal(wide.numpy(), want.double().numpy(), strict=True)
    made = monolect.tensor(data, dtype=dtypes.float32, requires_grad=True, device="cpu")
    assert made.requires_grad and made.device == "cpu" and not monolect.tensor(data).requires_grad


@pytest.mark.parametrize(
    "make", [monolect.tensor, lambda data: monolect.asarray(data, copy=True)], ids=["tensor", "asarray"]
)
def test_a_copy_does_not_see_writes_to_the_data(make: Callable[[Any], Tensor]) -> None:
    """An aligned array of NumPy is shared by `Tensor(array)`."""
    array, theirs = np.ones(64, np.float32), torch.ones(64)
    ours = Tensor(np.ones(64, np.float32))
    copies = [make(array), make(theirs), make(ours), make(ours[:5]), make(ours * 2)]
    array[0] = 9
    theirs[0] = 9
    ours[0] = 9
    assert [c[0].item() for c in copies] == [1, 1, 1, 1, 2]
    copies[2][1] = 7
    assert ours[1].item() == 1


def test_tensor_of_a_tensor_is_a_leaf_and_its_data_come_from_memory_now() -> None:
    array = np.ones(64, np.float32)
    copied = monolect.tensor(Tensor(array), dtype=dtypes.float64)
    array[0] = 9
    assert copied[0].item() == 1
    w = Tensor([1.0, 2.0], requires_grad=True)
    z = monolect.tensor(w * 2, requires_grad=True)
    (z * z).sum().backward()
    assert w.grad is None and z.grad is not None and z.grad.tolist() == [4.0, 8.0]
    assert not monolect.tensor(w).requires_grad
    step = jit(lambda x: monolect.tensor(x) + monolect.tensor([1.0, 2.0]))
    for n in range(3):
        assert step(Tensor([float(n), 0.0])).tolist() == [n + 1.0, 2.0]


def test_wrong_data_of_tensor() -> None:
    for data in ("abc", None, object(), [None], torch.zeros(1, dtype=torch.complex64)):
        with pytest.raises(DTypeError):
            monolect.tensor(data)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="ragged"):
        monolect.tensor([[1], [2, 3]])
    with pytest.raises(monolect.GradientError):
        monolect.tensor([1], requires_grad=True)
    with pytest.raises(monolect.DeviceError):
        monolect.tensor([1], device="nowhere")


def test_the_package_tensor_is_a_function_and_a_package() -> None:
    code = "import monolect; print(monolect.tensor([1, 2]).tolist(), 'monolect.nn' in __import__('sys').modules);"
    code += "from monolect.tensor.view import strides; import monolect.tensor.random as r; print(r.__name__)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split("\n")
    assert out[:2] == ["[1, 2] False", "monolect.tensor.random"]


@pytest.mark.parametrize("dtype", ["float32", "int64", "int32", "uint8"])
@pytest.mark.parametrize("name", sorted(NUMBER_FIRST))
def test_a_number_as_the_first_of_two_operands(name: str, dtype: str) -> None:
    for number in (3, 2.5):
        if name.startswith("bitwise") and (dtype == "float32" or number == 2.5):
            continue
        want = getattr(torch, name)(number, torch.tensor([1, 2, 3], dtype=getattr(torch, dtype)))
        got = getattr(monolect, name)(number, Tensor([1, 2, 3], dtype=dtype))
        assert f"torch.{got.dtype.name}" == str(want.dtype)
        np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-6)
    with pytest.raises(ArgumentError, match="one of two operands"):
        getattr(monolect, name)(2, 3)


def test_a_number_to_the_power_of_a_tensor_has_a_gradient() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    monolect.pow(2, x).sum().backward()
    t = torch.tensor([1.0, 2.0], requires_grad=True)
    torch.pow(2, t).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), t.grad.numpy(), rtol=1e-6)  # type: ignore[union-attr]

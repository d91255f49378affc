"""The Tensor itself: data in and out, laziness, realization, assignment, leaves, provenance."""

import gc
import math
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect.autograd.gradient import reach
from monolect.base.dtype import dtypes
from monolect.base.errors import (
    AllocationError,
    ArgumentError,
    DeviceError,
    DTypeError,
    GradientError,
    JitError,
    ShapeError,
)
from monolect.base.settings import Context
from monolect.capture.jit import jit
from monolect.ir.uop import live_nodes, toposort
from monolect.runtime.realize import execute
from monolect.tensor.tensor import Tensor

CREATION: list[Any] = [
    ("zeros", lambda n: n.zeros(2, 3), None),
    ("ones", lambda n: n.ones((2, 3)), None),
    ("full", lambda n: n.full((2, 2), 7), None),
    ("full_float", lambda n: n.full((3,), 1.5), None),
    ("full_bool", lambda n: n.full((3,), True), None),
    ("arange", lambda n: n.arange(5), None),
    ("arange2", lambda n: n.arange(2, 11, 3), None),
    ("arange_down", lambda n: n.arange(5, 0, -2), None),
    ("arange_float", lambda n: n.arange(0.0, 1.0, 0.1), None),
    ("arange_empty", lambda n: n.arange(3, 3), None),
    ("linspace", lambda n: n.linspace(-1, 2, 7), None),
    ("linspace1", lambda n: n.linspace(3, 9, 1), None),
    ("eye", lambda n: n.eye(3), None),
    ("eye_wide", lambda n: n.eye(2, 4), None),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "f", "_"), CREATION, ids=[r[0] for r in CREATION])
def test_creation(name: str, f: Any, _: Any, check: Any) -> None:
    check(f(Tensor), f(torch))


@pytest.mark.parametrize(
    "value", [3, 2.5, True, [1, 2], [[1.5], [2.0]], [True, False], [], [[]], np.float32(2), np.arange(3)]
)
def test_default_dtypes_and_values(value: Any, check: Any) -> None:
    check(Tensor(value), torch.tensor(value))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32", "float64"],
)
def test_arrays_go_in_and_out(dtype: str) -> None:
    a = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    for x in (a, a.T, a[:, ::2], a[::-1], a.astype(a.dtype.newbyteorder(">"))):
        t = Tensor(x)
        assert t.dtype.name == dtype and t.shape == x.shape
        np.testing.assert_array_equal(t.numpy(), x)
        np.testing.assert_array_equal((t.T.T + 0 if dtype != "bool" else t).numpy(), x)


def test_bfloat16_and_fp8_round_as_their_types() -> None:
    x = [1.0, 1.0 + 2**-9, 3.14159, -448.0]
    assert Tensor(x).cast("bfloat16").tolist() == torch.tensor(x).bfloat16().float().tolist()
    assert Tensor(x, dtype="fp8e4m3").tolist() == torch.tensor(x).to(torch.float8_e4m3fn).float().tolist()


def test_like_and_copies(check: Any) -> None:
    x, t = Tensor([[1, 2], [3, 4]]), torch.tensor([[1, 2], [3, 4]])
    check(x.zeros_like(), torch.zeros_like(t))
    check(x.ones_like(dtype="float32"), torch.ones_like(t, dtype=torch.float32))
    check(x.full_like(9), torch.full_like(t, 9))
    check(Tensor([0, 2, 1]).one_hot(4), torch.nn.functional.one_hot(torch.tensor([0, 2, 1]), 4))
    check(Tensor(x, dtype="float64"), t.double())
    check(Tensor([Tensor(1), Tensor(2)]), torch.tensor([1, 2]))
    check(x.clone(), t)


def test_nothing_runs_before_it_is_asked_for() -> None:
    x = Tensor([1.0, 2.0])
    y = (x * 2 + 1).exp().sum()
    repr(y), y.shape, y.dtype, y.device
    assert y.uop.op != "BUFFER"
    y.realize()
    assert y.uop.op == "BUFFER" and y.uop.storage is not None
    assert y.item() == pytest.approx(math.exp(3) + math.exp(5))


def test_python_protocols() -> None:
    x = Tensor([[1, 2], [3, 4]])
    assert len(x) == 2 and [r.tolist() for r in x] == [[1, 2], [3, 4]]
    assert bool(Tensor(1)) and int(Tensor(3)) == 3 and float(Tensor(2.5)) == 2.5 and list(range(Tensor(2))) == [0, 1]
    assert np.asarray(x).tolist() == x.tolist() and np.array(x, dtype=np.float32).dtype == np.float32
    assert x.size() == (2, 2) and x.size(1) == 2 and x.numel() == 4 and x.ndim == x.dim() == 2 and x.nbytes == 32
    assert "int64" in repr(x + 1) and "(2, 2)" in repr(x + 1)
    assert hash(x) == hash(x) and x in [x]


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda: Tensor([[1, 2], [3]]), ShapeError, "ragged"),
        (lambda: Tensor("abc"), DTypeError, "numbers"),
        (lambda: Tensor([1, "a"]), DTypeError, "numbers"),
        (lambda: Tensor([1], device="cpuu"), DeviceError, "cpuu"),
        (lambda: Tensor([1]).to("gpu9"), DeviceError, "gpu9"),
        (lambda: Tensor([1], dtype="int31"), DTypeError, "int31"),
        (lambda: Tensor([1, 2]).item(), ShapeError, "one element"),
        (lambda: bool(Tensor([1, 2])), ShapeError, "one element"),
        (lambda: len(Tensor(1)), ShapeError, "no length"),
        (lambda: Tensor.zeros(-1), ShapeError, "negative"),
        (lambda: Tensor.zeros(2.5), ArgumentError, "2.5"),
        (lambda: Tensor.arange(0, 1, 0), ArgumentError, "step"),
        (lambda: Tensor([1]).one_hot(2.5), ArgumentError, "2.5"),
        (lambda: Tensor([1.5]).one_hot(2), DTypeError, "float32"),
        (lambda: Tensor([1.0]).tril(), ShapeError, "2 axes"),
        (lambda: Tensor([1, 2], requires_grad=True), GradientError, "int64"),
    ],
)
def test_errors(f: Any, error: type, text: str) -> None:
    with pytest.raises(error) as info:
        f()
    assert text in str(info.value) and __file__ in str(info.value)


# ---- assignment ------------------------------------------------------------------------------------------------------
def test_assign_replaces_and_earlier_reads_keep_the_old_values() -> None:
    p = Tensor([1.0, 2.0])
    old = p * 10
    p.assign(p + 1)
    new = p * 10
    assert new.tolist() == [20, 30] and p.tolist() == [2, 3] and old.tolist() == [10, 20]


def test_assign_broadcasts_and_repeats() -> None:
    p = Tensor.zeros(2, 2).contiguous().realize()
    for k in range(5):
        p.assign(p + k)
    assert p.tolist() == [[10, 10], [10, 10]]
    p.assign(Tensor([1.0, 2.0]))
    assert p.tolist() == [[1, 2], [1, 2]]
    p.assign(3.0)
    assert p.tolist() == [[3, 3], [3, 3]]


def test_assign_refuses_and_leaves_the_tensor_as_it_was() -> None:
    p = Tensor([1.0, 2.0])
    uop = p.uop
    with pytest.raises(DTypeError) as info:
        p.assign(Tensor([1, 2]))
    assert "float32" in str(info.value) and "int64" in str(info.value)
    with pytest.raises(ShapeError) as info2:
        p.assign(Tensor([1.0, 2.0, 3.0]))
    assert "(2,)" in str(info2.value) and "(3,)" in str(info2.value)
    assert p.uop is uop and p.tolist() == [1, 2]


def test_a_clone_is_not_reached_by_assignment() -> None:
    p = Tensor([1.0, 2.0])
    q = p.clone()
    p.assign(p * 5).realize()
    assert q.tolist() == [1, 2]


# ---- leaves ----------------------------------------------------------------------------------------------------------
def test_equal_leaves_keep_gradients_of_their_own() -> None:
    a, b = Tensor.zeros(2, requires_grad=True), Tensor.zeros(2, requires_grad=True)
    assert a.uop is not b.uop
    (a * 2 + b * 3).sum().backward()
    assert a.grad.tolist() == [2, 2] and b.grad.tolist() == [3, 3]


def test_gradients_add_up_until_they_are_cleared() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad.tolist() == [4, 8]
    x.grad = None
    (x * 3).sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_backward_works_after_values_were_looked_at() -> None:
    x = Tensor.ones(3, requires_grad=True)
    y = x * 2
    y.realize()
    z = (y * y).sum()
    assert z.item() == 12
    x.numpy()
    z.backward()
    assert x.grad.tolist() == [8, 8, 8]


def test_a_training_loop_keeps_nothing_of_the_past() -> None:
    w = Tensor([1.0, -2.0, 3.0], requires_grad=True)
    sizes = []
    for _ in range(6):
        w.grad = None
        loss = ((w - 1) * (w - 1)).sum()
        loss.backward()
        w.assign(w.detach() - w.grad * 0.25)
        w.realize(loss)
        gc.collect()
        sizes.append(live_nodes())
    np.testing.assert_allclose(w.numpy(), 1 + np.array([0, -3, 2]) * 0.5**6, rtol=1e-5)
    assert w.requires_grad and sizes[-1] <= sizes[2] + 5


def test_detach_stops_gradients() -> None:
    x = Tensor([3.0], requires_grad=True)
    (x * x.detach()).sum().backward()
    assert x.grad.tolist() == [3]
    assert not x.grad.requires_grad and x.uop not in reach(x.grad.uop)


def test_requires_grad_can_be_taken_back() -> None:
    x = Tensor([3.0], requires_grad=True)
    x.requires_grad_(False)
    with pytest.raises(GradientError, match="no leaf"):
        (x * x).sum().backward()


def test_gradient_argument() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * x).backward(Tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2, 40]


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: (x * x).backward(), "scalar"),
        (lambda x: x.sum().long().backward(), "float"),
        (lambda x: x.detach().sum().backward(), "no leaf"),
        (lambda x: (x * 2).backward(Tensor([1.0])), "match"),
    ],
)
def test_backward_errors(f: Any, text: str) -> None:
    with pytest.raises(GradientError, match=text) as info:
        f(Tensor([1.0, 2.0], requires_grad=True))
    assert __file__ in str(info.value)


# ---- provenance ------------------------------------------------------------------------------------------------------
def test_nodes_know_the_line_and_the_method_that_made_them() -> None:
    x = Tensor([1.25, 2.5]).softmax(0)
    file, line, method = x.uop.origin
    assert (
        file == __file__ and line == test_nodes_know_the_line_and_the_method_that_made_them.__code__.co_firstlineno + 1
    )
    assert method == "softmax"
    assert (Tensor([7.25]) * 3.5).uop.origin[2] == "__mul__" and Tensor([7.25]).exp().uop.origin[2] == "exp"


def test_numbers_do_not_expand() -> None:
    y = Tensor([[1.0, 2.0]]) * 2 + 1
    assert "EXPAND" not in {u.op for u in toposort(y.uop)}
    assert y.dtype is dtypes.float32


def test_empty_is_a_bare_buffer() -> None:
    t = Tensor.empty(3, 2)
    assert t.uop.op == "BUFFER" and t.uop.storage is None
    assert (t + 1).numpy().shape == (3, 2) == Tensor.empty_like(t).numpy().shape
    t.assign(Tensor.ones(3, 2))
    assert t.tolist() == [[1.0, 1.0]] * 3


def test_a_batch_built_again_is_found_by_its_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(k: float) -> Tensor:
        x, y = Tensor(np.full(7, k, np.float32)).realize(), Tensor(np.ones(7, np.float32)).realize()
        return (x * 3 + y).realize()

    build(1.0)
    made: list[int] = []
    callified = execute._callified
    monkeypatch.setattr(execute, "_callified", lambda values: (made.append(1), callified(values))[1])
    assert build(2.0).tolist() == [7.0] * 7 and not made
    with Context(NOOPT=1):
        assert build(2.0).tolist() == [7.0] * 7 and made  # another program


def test_text_shows_values_and_what_is_unusual() -> None:
    t = Tensor([[1.0, 2.5], [-3.0, 4.0]])
    assert repr(t + 1).endswith("lazy)") and str(t + 1) == "Tensor([[ 2. ,  3.5],\n        [-2. ,  5. ]])"
    assert repr((t + 1).realize()) == str(t + 1)
    assert str(Tensor([1.5], requires_grad=True) * 2) == "Tensor([3.])" and "True" in str(
        Tensor([1.0], requires_grad=True)
    )
    assert str(Tensor([1, 2], dtype=dtypes.uint8)) == "Tensor([1, 2], dtype=uint8)"
    assert str(Tensor([1.5], dtype=dtypes.bfloat16, device="c")) == "Tensor([1.5], dtype=bfloat16, device='c')"
    assert str(Tensor.zeros(0, 3)) == "Tensor([], shape=(0, 3))" and str(Tensor(True)) == "Tensor(True)"
    assert str(Tensor.zeros(2000)) == "Tensor([0., 0., 0., ..., 0., 0., 0.])"
    assert str(t[0]) == "Tensor([1. , 2.5])"


def test_text_inside_of_a_step_computes_nothing() -> None:
    @jit
    def step(x: Tensor) -> Tensor:
        assert "shape=(1,)" in str(x * 2) and "shape=(1,)" in f"{x * 2}" and "shape=()" in f"{x.sum()}"
        return x + 1

    assert [step(Tensor([1.0])).item() for _ in range(3)] == [2.0] * 3


def test_notebooks_show_a_table() -> None:
    table = Tensor([[1.0, 2.0], [3.0, 4.0]])._repr_html_()
    assert table.count("<tr>") == 2 and table.count("<td>") == 4 and "(2, 2) float32, cpu" in table
    assert Tensor.zeros(20, 20)._repr_html_().count("<tr>") == 11 and "<td>5</td>" in Tensor(5)._repr_html_()
    assert "<table>" in Tensor.zeros(3, 0)._repr_html_()


def test_a_format_is_that_of_the_element():
    assert f"{Tensor(1.25):.1f} {Tensor([7]):03d}" == "1.2 007"
    assert f"{Tensor(1.5)} {Tensor(3)} {Tensor([2])}" == "1.5 3 Tensor([2])"
    with pytest.raises(ShapeError, match="exactly one element"):
        f"{Tensor([1.0, 2.0]):.2f}"


def test_one_hot_of_no_classes():
    for n in (0, -2):
        with pytest.raises(ArgumentError, match="number of classes"):
            Tensor([0]).one_hot(n)
    for values in ([0, -1], [], [-5]):
        with pytest.raises(ArgumentError, match="number of classes"):
            Tensor(values, dtype=dtypes.int64).one_hot()


def test_one_hot_counts_the_classes():
    for values in ([2, 0, 2], [[0], [0]], 3):
        want = torch.nn.functional.one_hot(torch.tensor(values)).tolist()
        assert Tensor(values).one_hot().tolist() == Tensor(values).one_hot(-1).tolist() == want
    with pytest.raises(JitError, match="reading the values"):
        jit(lambda x: x.one_hot())(Tensor([1]))


def test_a_scalar_that_lies_between_aligned_addresses_has_no_axis():
    a = np.arange(8.0)
    for t in (Tensor(a[1:2].reshape(())), Tensor.from_dlpack(a[3:4].reshape(())), Tensor(np.array(5.0, ">f8"))):
        assert t.shape == t.numpy().shape == (t + 1).numpy().shape == ()


@pytest.mark.parametrize("read", [Tensor.numpy, Tensor.tolist])
def test_values_of_more_axes_than_numpy_has_are_refused(read: Any) -> None:
    assert Tensor([1.0, 2.0]).reshape(2, *[1] * 63).numpy().ndim == 64
    with pytest.raises(AllocationError, match="NumPy has no array of this shape"):
        read(Tensor([1.0, 2.0]).reshape(2, *[1] * 64))


def test_data_is_the_memory_without_the_graph() -> None:
    def steps(lib: Any) -> list[Any]:
        w = lib.tensor([1.0, -2.0], requires_grad=True)
        out = []
        for _ in range(5):
            (w * w).sum().backward()
            w.data.add_(w.grad.data, alpha=-0.25)
            w.grad.data.zero_()
            out += [w.tolist(), w.grad.tolist(), (w * 2).data.tolist()]
        w.data = lib.tensor([5.0, 6.0])
        return [*out, w.tolist(), w.requires_grad, w.data.requires_grad]

    assert steps(monolect) == steps(torch)


def test_where_without_values_gives_the_indices() -> None:
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3) % 4
    for _ in range(4):
        rows, columns = monolect.where(Tensor(x) > 1)
        assert [rows.tolist(), columns.tolist()] == [i.tolist() for i in torch.where(torch.tensor(x) > 1)]
    assert Tensor(x)[monolect.where(Tensor(x) > 1)].tolist() == x[x > 1].tolist()
    with pytest.raises(ArgumentError, match="none of them"):
        monolect.where(Tensor(x) > 1, 1.0)

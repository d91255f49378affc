"""Meshes of several axes: layouts, what operators make of them, and training that is data and tensor parallel."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import ArgumentError, AxisError, Context, DeviceError, IRError, Mesh, Tensor, dtypes, jit, nn
from monolect.ir import text
from monolect.ir.layout import assembled, box, common_counts, layout_of, neighbours, part_shape, position, refined
from monolect.ir.ops import BufferArg
from monolect.ir.uop import node, shape_source
from monolect.runtime.buffer import parts_of, to_numpy
from monolect.tensor.tensor import compute_pending
from tests.strategies import often

DEVICES = tuple(["cpu", *(f"cpu:{k}" for k in range(1, 8))])
MESH = Mesh(("data", "model"), (2, 2), DEVICES[:4])
Axes = dict[str, int]


# ---- layouts ---------------------------------------------------------------------------------------------------------
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from((None, 0, 1, 2))), min_size=1, max_size=3),
)
def test_parts_are_those_of_nested_splits(shape: list[int], pairs: list[tuple[int, int | None]]) -> None:
    pairs = [(n, a if a is None or a < len(shape) else None) for n, a in pairs]
    values = np.arange(int(np.prod(shape))).reshape(shape)
    parts = [values]
    for n, a in pairs:  # NumPy's own words: each part is cut into the next axis's parts
        cut: list[np.ndarray] = []
        for p in parts:
            size = 0 if a is None else -(-p.shape[a] // n)
            cut += [p] * n if a is None else np.split(p, [min(size * k, p.shape[a]) for k in range(1, n)], a)
        parts = cut
    layout, n = layout_of(pairs), len(parts)
    if n == 1:
        return
    for k, p in enumerate(parts):
        found = values[tuple(slice(o, o + m) for o, m in box(shape, layout, k, n))]
        np.testing.assert_array_equal(found, p)
        assert part_shape(shape, layout, k, n) == p.shape
    np.testing.assert_array_equal(assembled(parts, layout, np.concatenate), values)


def test_each_division_has_one_layout() -> None:
    assert layout_of([(2, 0), (1, 1), (2, None), (3, None)]) == ((2, 0), (6, None))
    assert layout_of([(2, None), (2, None)]) is None and layout_of([(1, None), (4, 1)]) == 1
    assert common_counts([((2, 0), (4, None)), ((4, 1), (2, 0)), None], 8) == (2, 2, 2)
    assert common_counts([((2, 0), (3, 1)), ((3, 0), (2, 1))], 6) is None
    assert refined(0, 4, (2, 2), (8,)) == [0, 0] and refined(0, 4, (2, 2), (6,)) is None
    assert position(((2, 0), (3, 1)), 4, 6) == (1, 1)
    assert neighbours(((2, 0), (3, 1)), 4, 6, [1]) == [3, 4, 5] and neighbours(((2, 0), (3, 1)), 4, 6, [0]) == [1, 4]


def test_a_buffer_keeps_its_layout_in_text() -> None:
    b = node("BUFFER", (shape_source((4, 6)),), BufferArg(3, dtypes.float32, DEVICES[:4], axis=((2, 0), (2, 1))))
    assert "axis=((2, 0), (2, 1))" in text.show(b) and text.parse(text.show(b)) is b
    for bad in (2, ((2, 0), (3, 1)), ((4, 0),), ((2, None), (2, None)), ((2, 0), (2, 5)), ((2, 0), (2, "1")), "0"):
        with pytest.raises(IRError, match="layout of memory on several devices"):
            node("BUFFER", (shape_source((4, 6)),), BufferArg(3, dtypes.float32, DEVICES[:4], axis=bad))  # type: ignore[arg-type]


# ---- tensors ---------------------------------------------------------------------------------------------------------
def test_each_device_has_its_block() -> None:
    values = np.arange(35.0).reshape(5, 7)
    x = Tensor(values).shard(MESH, {"data": 0, "model": 1}).realize()
    found = [to_numpy(p) for p in parts_of(x.uop)]
    wanted = [values[:3, :4], values[:3, 4:], values[3:, :4], values[3:, 4:]]
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert MESH.axes_of(x) == {"data": 0, "model": 1} and x.shard_axis == ((2, 0), (2, 1))
    for other in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.clone(), x.shard(MESH, (0, -1))):
        assert MESH.axes_of(other) == {"data": 0, "model": 1} and other.tolist() == values.tolist()
    assert pickle.loads(pickle.dumps(MESH)).names == MESH.names


METHODS: dict[str, tuple[Callable[[Tensor], Tensor], Axes | None]] = {
    "times two": (lambda x: x * 2, {"data": 0, "model": 1}),
    "plus a row": (lambda x: x + Tensor(np.arange(4.0)), {"data": 0, "model": 1}),
    "transposed": (lambda x: x.T, {"data": 1, "model": 0}),
    "sum of rows": (lambda x: x.sum(1), {"data": 0}),
    "sum of columns": (lambda x: x.sum(0), {"model": 0}),
    "sum of all": (lambda x: x.sum(), {}),
    "softmax": (lambda x: x.softmax(1), {"data": 0, "model": 1}),
    "product": (lambda x: x @ x.T, {"data": 0}),
    "part": (lambda x: x[1:5], {"model": 1}),
    "column": (lambda x: x[:, 1], {"data": 0}),
    "flip": (lambda x: x.flip(1), {"data": 0}),
    "pad": (lambda x: x.pad((1, 1)), {"data": 0}),
    "split rows": (lambda x: x.reshape(2, 4, 4), {"data": 0, "model": 2}),
    "flat": (lambda x: x.reshape(32), {"data": 0}),
    "cumsum": (lambda x: x.cumsum(1), None),
    "rows by index": (lambda x: x[Tensor([3, 1])], {"model": 1}),
    "sort": (lambda x: x.sort(0).values, None),
    "other blocks": (lambda x: x.shard(MESH, {"data": 1, "model": 0}), {"data": 1, "model": 0}),
    "both along rows": (lambda x: x.shard(MESH, (0, 0)) + 1, {"data": 0, "model": 0}),
    "over all devices": (lambda x: x.shard(MESH) * 1, {"data": 0, "model": 0}),
    "whole": (lambda x: x.replicate(MESH), {}),
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("name", METHODS)
def test_methods_compute_what_they_do_on_one_device(name: str) -> None:
    f, axes = METHODS[name]
    values = np.random.default_rng(1).normal(size=(8, 4))
    x, one = Tensor(values).shard(MESH, {"data": 0, "model": 1}).detach(), Tensor(values)
    for t in (x, one):
        t.requires_grad = True
    found, wanted = f(x), f(one)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)
    if axes is not None:
        assert MESH.axes_of(found) == axes
    for t in (found, wanted):
        t.square().sum().backward()
    assert x.grad is not None and one.grad is not None and MESH.axes_of(x.grad) == {"data": 0, "model": 1}
    np.testing.assert_allclose(x.grad.numpy(), one.grad.numpy(), rtol=1e-12)


@pytest.mark.sweep
@pytest.mark.parametrize("of_x", [{}, {"data": 0}, {"data": 1}, {"data": 0, "model": 1}, {"data": 0, "model": 0}])
@pytest.mark.parametrize("of_w", [{}, {"model": 1}, {"model": 0}, {"data": 1, "model": 0}, {"data": 1, "model": 1}])
def test_products_of_any_two_layouts(of_x: Axes, of_w: Axes) -> None:
    a, b = np.arange(15.0).reshape(3, 5), np.arange(35.0).reshape(5, 7)
    found = Tensor(a).shard(MESH, of_x) @ Tensor(b).shard(MESH, of_w)
    np.testing.assert_array_equal(found.numpy(), a @ b)
    if of_x == {"data": 0} and of_w == {"model": 1}:  # nothing moves
        assert MESH.axes_of(found) == {"data": 0, "model": 1}


def test_debug_names_what_moves_on_a_mesh(capsys: pytest.CaptureFixture[str]) -> None:
    compute_pending()  # of earlier tests
    capsys.readouterr()
    x = Tensor(np.ones((8, 6))).shard(MESH, {"data": 0}).realize()
    w = Tensor(np.ones((6, 4))).shard(MESH, {"model": 1}).realize()
    with Context(DEBUG=2):
        (x @ w).realize()
    assert not any(word in capsys.readouterr().err for word in ("gather", "reduce:", "alltoall"))
    other = x.shard(MESH, {"data": 1}).realize()
    with Context(DEBUG=2):
        (x + other).realize()
    assert "alltoall" in capsys.readouterr().err
    with Context(DEBUG=2):
        (x + x.shard(MESH, {"data": 1})).realize()  # each device has what it needs of the sum
    assert "alltoall" not in capsys.readouterr().err


# ---- errors ----------------------------------------------------------------------------------------------------------
def test_bad_meshes_say_what_to_do() -> None:
    four = DEVICES[:4]
    for names, shape, kind in (
        (("a", "a"), (2, 2), ArgumentError),
        (("a",), (2, 2), ArgumentError),
        (("a", "b"), (2, 3), ArgumentError),
        (("a", "b"), (-2, -2), ArgumentError),
        (("a", "b"), (2.0, 2), ArgumentError),
    ):
        with pytest.raises(kind, match="Mesh"):
            Mesh(names, shape, four)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="two different devices"):
        Mesh(("a", "b"), (2, 2), ("cpu", "cpu", "cpu:1", "cpu:2"))
    x = Tensor(np.ones((4, 4)))
    with pytest.raises(ArgumentError, match="an axis"):
        x.shard(MESH, {"rows": 0})
    with pytest.raises(ArgumentError, match="one for each of"):
        x.shard(MESH, (0,))
    with pytest.raises(AxisError):
        x.shard(MESH, {"data": 2})
    with pytest.raises(ArgumentError, match="a Mesh as the devices"):
        x.shard(four, {"data": 0})
    with pytest.raises(DeviceError, match="a tensor elsewhere"):
        MESH.axes_of(x)
    six = DEVICES[:6]
    a = x.shard(Mesh(("a", "b"), (2, 3), six), (0, 1))
    b = x.shard(Mesh(("a", "b"), (3, 2), six), (0, 1))
    with pytest.raises(DeviceError, match="operands on different meshes"):
        a + b
    with pytest.raises(DeviceError, match="different devices"):
        a + x.shard(MESH, (0, 1))
    np.testing.assert_array_equal((a + b.replicate(six)).numpy(), 2 * np.ones((4, 4)))
    with pytest.raises(ArgumentError, match="a Mesh with the axis"):
        nn.parallel.shard(nn.Linear(2, 2), MESH, "rows")


# ---- training --------------------------------------------------------------------------------------------------------
def losses(
    prepare: Callable[[nn.Sequential], None], place: Callable[[Tensor], Tensor], is_captured: bool
) -> np.ndarray:
    Tensor.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 4))
    for p in nn.state.get_parameters(model):
        p.uop = p.detach().double().uop
    prepare(model)
    opt, rng, out = nn.optim.Adam(model.parameters(), lr=0.01), np.random.default_rng(7), []

    def step(x: Tensor, y: Tensor) -> Tensor:
        opt.zero_grad()
        loss = (model(x).tanh() - y).square().mean()
        loss.backward()
        opt.step()
        return loss

    run = jit(step) if is_captured else step
    for _ in range(often(6, 50)):
        out.append(run(*(place(Tensor(rng.normal(size=s))) for s in ((8, 6), (8, 4)))).item())
    return np.array(out)


def _both(model: nn.Sequential) -> None:
    nn.parallel.tensor_parallel(list(model), MESH, "model")
    nn.parallel.shard(model, MESH, "data")


def test_training_over_a_mesh_follows_the_losses_of_one_device() -> None:
    """Plain and captured; in `make test` one recipe alone and both together, each in one of these ways."""
    wanted = losses(lambda m: None, lambda x: x, False)
    assert np.ptp(wanted) > 0.1
    recipes: dict[str, Callable[[nn.Sequential], None]] = {
        "tensor parallel": lambda m: nn.parallel.tensor_parallel(list(m), MESH, "model"),
        "sharded parameters": lambda m: nn.parallel.shard(m, MESH, "data"),
        "both": _both,
    }
    ways = [("both", True), ("tensor parallel", False), *product(recipes, (False, True))]
    for name, is_captured in ways[: often(2, 8)]:
        found = losses(recipes[name], lambda x: x.shard(MESH, {"data": 0}), is_captured)
        np.testing.assert_allclose(found, wanted, rtol=1e-9)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    _both(model)
    assert MESH.axes_of(model[0].weight) == {"model": 0, "data": 1}


def test_the_example_trains_over_a_mesh_as_on_one_device(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("train_gpt", Path(__file__).parents[2] / "examples" / "train_gpt.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    small = "--steps 3 --batch 4 --context 8 --width 16 --heads 2 --layers 1".split()
    wanted = example.main(small)
    meshes = ["--mesh", "data=2,model=2", "--shard"], ["--mesh", "model=2"], ["--mesh", "data=2,model=2"]
    for over in meshes[: often(1, 3)]:  # the first has what the others have, and sharded parameters
        assert example.main(small + over) == pytest.approx(wanted, rel=1e-4)
    assert "step 2: loss" in capsys.readouterr().out


def test_a_part_of_a_sum_over_a_mesh_is_divided_again() -> None:
    """Parts of unequal sizes are cut again, and joined with views that differ from device to device."""
    six = DEVICES[:6]
    a = np.arange(64.0).reshape(8, 8)
    total = Tensor(a).shard(Mesh(("a", "b"), (2, 3), six), (0, 1)).realize().sum(0)
    part = total.shard(six, 0)
    found = Tensor.cat(part, part * 2, dim=0)
    np.testing.assert_array_equal(found.numpy(), np.concatenate([a.sum(0), a.sum(0) * 2]))

"""Captured steps on several devices do what the plain function does: arguments, states, results and gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from monolect import DeviceError, Tensor, jit, nn

PAIR, FOUR = ("cpu", "cpu:1"), ("cpu", "cpu:1", "cpu:2", "cpu:3")


def values(n: int, k: int = 0) -> np.ndarray:
    return np.arange(float(n * 3)).reshape(n, 3) + k


def placed(a: np.ndarray, axis: int | None, devices: tuple[str, ...] = PAIR) -> Tensor:
    return (Tensor(a).replicate(devices) if axis is None else Tensor(a).shard(devices, axis)).realize()


@pytest.mark.sweep
@pytest.mark.parametrize("devices", [PAIR, FOUR])
@pytest.mark.parametrize("axis", [0, 1, None])
def test_arguments_and_results_keep_their_placement(axis: int | None, devices: tuple[str, ...]) -> None:
    f = jit(lambda t: (t * 2, t.sum(), t.T))
    for k in range(4):
        double, total, turned = f(placed(values(5, k), axis, devices))
        np.testing.assert_array_equal(double.numpy(), values(5, k) * 2)
        np.testing.assert_array_equal(turned.numpy(), values(5, k).T)
        assert total.item() == values(5, k).sum()
        assert (double.device, double.shard_axis) == (devices, axis)
        assert turned.shard_axis == (None if axis is None else 1 - axis)
    assert len(f.captures) == 1


def test_each_placement_is_a_capture_of_its_own() -> None:
    f = jit(lambda t: t + 1)
    for k, axis in enumerate((0, 1, None, 0, 1, None)):
        found = f(placed(values(4, k), axis))
        assert found.shard_axis == axis
        np.testing.assert_array_equal(found.numpy(), values(4, k) + 1)
    assert len(f.captures) == 3


@pytest.mark.parametrize("axis", [0, 1, None])
def test_a_state_is_updated_and_values_computed_from_it_stay(axis: int | None) -> None:
    state = placed(values(4), axis)

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state * 2 + x)
        return state.sum()

    wanted = values(4)
    for k in range(6):
        lazy, alias, array = state * 10, state.detach(), state.numpy()
        before = wanted
        wanted = wanted * 2 + k
        assert step(placed(np.full((4, 3), float(k)), axis)).item() == wanted.sum()
        np.testing.assert_array_equal(state.numpy(), wanted)
        np.testing.assert_array_equal(lazy.numpy(), before * 10)
        np.testing.assert_array_equal(array, before)
        np.testing.assert_array_equal(alias.numpy(), wanted)
        assert state.shard_axis == axis
    (captured,) = step.captures.values()
    assert len(captured.capture.in_place) == 1 and not captured.capture.moves
    del lazy, alias
    one = placed(np.ones((4, 3)), axis)
    step(one)
    node, parts = state.uop, state.uop.storage.parts
    bound = [id(p) for p in parts]
    del node, parts
    for _ in range(3):  # no other code holds the memory: it is not bound again
        step(one)
    assert [id(p) for p in state.uop.storage.parts] == bound


def test_parts_that_other_code_holds_are_not_overwritten() -> None:
    state = placed(values(4), None)

    @jit
    def step(x: Tensor) -> None:
        state.assign(state + x)

    one = placed(np.ones((4, 3)), None)
    for _ in range(3):
        step(one)
    whole = state.to("cpu").realize()  # may be the memory of the first part
    expected = whole.numpy().copy()
    step(one)
    np.testing.assert_array_equal(whole.numpy(), expected)
    np.testing.assert_array_equal(state.numpy(), expected + 1)


def test_a_tensor_from_outside_is_followed() -> None:
    outside = placed(values(4), 0)
    f = jit(lambda t: (t * outside).sum())
    for k in range(4):
        assert f(Tensor(np.full((4, 3), float(k)))).item() == (values(4) + k).sum() * k
        outside.assign(outside + 1)
    outside.assign(placed(values(4), 0))
    assert f(Tensor(np.ones((4, 3)))).item() == values(4).sum()


def test_a_result_that_is_an_argument_or_from_outside() -> None:
    outside = placed(values(4), 1)
    f = jit(lambda t: (t, outside, t + outside))
    for k in range(3):
        t = placed(values(4, k), 1)
        same, other, total = f(t)
        np.testing.assert_array_equal(same.numpy(), values(4, k))
        np.testing.assert_array_equal(other.numpy(), values(4, k))
        np.testing.assert_array_equal(total.numpy(), 2 * values(4, k))
        outside.assign(outside + 1)
    assert same.shard_axis == other.shard_axis == total.shard_axis == 1


def test_an_argument_is_assigned() -> None:
    @jit
    def step(t: Tensor, x: Tensor) -> Tensor:
        t.assign(t + x)
        return t * 1

    t = placed(values(4), 0)
    for k in range(4):
        before = t * 1
        found = step(t, Tensor(np.full((4, 3), float(k))))
        np.testing.assert_array_equal(found.numpy(), values(4, sum(range(k + 1))))
        np.testing.assert_array_equal(t.numpy(), found.numpy())
        np.testing.assert_array_equal(before.numpy(), values(4, sum(range(k))))


def test_a_failed_step_leaves_everything() -> None:
    state, fails = placed(values(4), 0), [False]

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        if fails[0]:
            raise ValueError
        return state.sum()

    one = placed(np.ones((4, 3)), 0)
    step(one)
    fails[0] = True
    with pytest.raises(ValueError):
        step(one)
    np.testing.assert_array_equal(state.numpy(), values(4, 1))
    fails[0] = False
    assert step(one).item() == values(4, 2).sum()


def test_a_step_over_several_devices_is_not_saved(tmp_path: Path) -> None:
    for f, x in (
        (jit(lambda t: (t * 2).sum()), placed(values(4), 0)),
        (jit(lambda t: t.to("cpu:1")), Tensor(values(4))),
    ):
        f(x)
        with pytest.raises(DeviceError, match="cannot be saved"):
            f.save(tmp_path / "a.step")
        assert not list(tmp_path.iterdir())


def test_a_replay_of_a_small_step_is_one_native_call() -> None:
    f, x = jit(lambda t: (t * 2).sum()), placed(values(4), 0, FOUR)
    for _ in range(3):
        f(x)
    (captured,) = f.captures.values()
    assert captured.capture.native is not None and next(iter(captured.fast_paths.values())) is not None


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["plain", "dropout", "batch norm"])
@pytest.mark.parametrize("way", ["data parallel", "sharded", "whole data"])
def test_a_model_trains_as_without_a_capture(kind: str, way: str) -> None:
    devices = FOUR[:3] if way == "sharded" else FOUR
    rng = np.random.default_rng(0)
    xs, ys = rng.normal(size=(6, 12, 5)), rng.integers(0, 3, (6, 12))

    def run(is_captured: bool) -> tuple[list[float], list[np.ndarray]]:
        Tensor.manual_seed(0)
        layers = [nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3)]
        if kind == "batch norm":
            layers.insert(1, nn.BatchNorm1d(7))
        model = nn.Sequential(*layers)
        for p in model.state_dict().values():
            wide = p.double() if p.dtype.is_float else p
            axis = None if way == "data parallel" or not p.ndim else 0 if way == "sharded" else p.ndim - 1
            p.uop = (wide.replicate(devices) if axis is None else wide.shard(devices, axis)).detach().realize().uop
        optimizer = nn.optim.Adam(model.parameters(), lr=0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            hidden = model(x)
            hidden = hidden.dropout(0.3, training=True) if kind == "dropout" else hidden
            loss = hidden.cross_entropy(y)
            loss.backward()
            optimizer.step()
            return loss

        f = jit(step) if is_captured else step
        there = (
            (lambda a: Tensor(a).replicate(devices)) if way == "whole data" else (lambda a: Tensor(a).shard(devices))
        )
        losses = [f(there(xs[k]), there(ys[k])).item() for k in range(6)]
        if is_captured:
            assert len(f.captures) == 1
        return losses, [p.numpy() for p in model.parameters()]

    (losses, parameters), (wanted, wanted_parameters) = run(True), run(False)
    np.testing.assert_allclose(losses, wanted, rtol=1e-12)
    for p, q in zip(parameters, wanted_parameters, strict=True):
        np.testing.assert_allclose(p, q, rtol=1e-12, atol=1e-14)


@pytest.mark.sweep
@pytest.mark.parametrize("is_realized", [True, False])
@pytest.mark.parametrize(("axis", "other"), [(1, 0), (0, 1), (None, 0), (None, 1), (0, None)])
def test_tensors_with_equal_parts_have_memory_of_their_own(
    axis: int | None, other: int | None, is_realized: bool
) -> None:
    """The only element of a divided tensor is all of it, so its part may equal that of a tensor placed otherwise."""
    state, copy = (
        Tensor([[2.0]]).replicate(PAIR) if a is None else Tensor([[2.0]]).shard(PAIR, a) for a in (axis, other)
    )
    if is_realized:
        state.realize(copy)
    copy.assign(state)

    @jit
    def step(x: Tensor) -> Tensor:
        state[:, 0] = state[:, 0] + x
        return copy + state

    for k in range(1, 5):
        assert step(Tensor([1.0])).item() == 4.0 + k
        assert (state.item(), copy.item()) == (2.0 + k, 2.0)

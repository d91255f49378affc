"""What depends on constants of a captured step alone is computed once, and never stale."""

import gc
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, JitError, Tensor, jit
from monolect.backend.common.host import memory
from monolect.runtime import profile

N = 64


def constant(value: float = 1.0) -> Tensor:
    """A tensor with memory of its own."""
    return Tensor.full((N, N), value).contiguous().realize()


def kernels_of(call: Callable[[], object]) -> int:
    with profile.Recorder() as kernels:
        call()
    return len(kernels)


def total(x: Tensor, w: Tensor) -> Tensor:
    """Sums of w's columns, a kernel of its own, beside each element of x."""
    return (x.reshape(N, 1) + w.abs().sum(0)).amax(1)


X = Tensor(np.zeros(N, np.float32))


def test_a_kernel_over_constants_runs_once() -> None:
    w = constant()
    f = jit(lambda x: total(x, w))
    assert kernels_of(lambda: f(X)) == 2
    assert [kernels_of(lambda: f(X)) for _ in range(3)] == [2, 1, 1]
    np.testing.assert_allclose(f(X).numpy(), N, rtol=1e-5)


def test_a_chain_over_constants_runs_once_and_so_does_a_kernel_that_reads_nothing() -> None:
    w = constant()

    def step(x: Tensor) -> Tensor:
        y = (w.sum(1, keepdim=True).contiguous() * w).sum(0).contiguous().realize()
        return x + y + Tensor.arange(N).contiguous()

    f = jit(step)
    wanted = f(X).numpy().copy()
    f(X)
    assert kernels_of(lambda: f(X)) == 1
    np.testing.assert_array_equal(f(X).numpy(), wanted)


def test_what_arguments_state_or_results_touch_stays_in_the_step() -> None:
    w, c = constant(), Tensor([0.0]).realize()

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        c.assign(c + 1)
        return total(x, c.expand(N, N)), w.sum(1)

    f = jit(step)
    kept = [f(X)[1] for _ in range(4)]
    assert len({k.uop.storage.address for k in kept}) == 4
    np.testing.assert_allclose(f(X)[0].numpy(), N * 5, rtol=1e-5)


def test_hoist_off() -> None:
    w = constant()
    f = jit(lambda x: total(x, w))
    with Context(HOIST=0):
        f(X)
        f(X)
        assert kernels_of(lambda: f(X)) == 2


# ---- every way to write to a constant --------------------------------------------------------------------------------
def assigned(w: Tensor, value: float) -> None:
    w.assign(Tensor.full((N, N), value))


def part_set(w: Tensor, value: float) -> None:
    w[:] = value


def through_a_view(w: Tensor, value: float) -> None:
    w.numpy()[:] = value


def through_a_view_of_a_view(w: Tensor, value: float) -> None:
    w.realize().reshape(N * N).numpy()[5:].reshape(-1)[:] = value
    w[0].numpy()[:5] = value


def through_dlpack(w: Tensor, value: float) -> None:
    np.from_dlpack(w.numpy())[:] = value


def through_a_buffer(w: Tensor, value: float) -> None:
    memoryview(w.numpy()).cast("B")[:] = np.full((N, N), value, np.float32).tobytes()


@pytest.mark.parametrize(
    "write", [assigned, part_set, through_a_view, through_a_view_of_a_view, through_dlpack, through_a_buffer]
)
def test_a_write_between_replays_is_seen(write: Callable[[Tensor, float], None]) -> None:
    w = constant()
    f = jit(lambda x: total(x, w))
    for _ in range(3):
        f(X)
    for value in (2.0, 3.0):
        write(w, value)
        for _ in range(2):
            np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)


def test_writes_through_a_living_view_are_seen() -> None:
    w = constant()
    f = jit(lambda x: total(x, w))
    f(X)
    view = w.numpy()
    for value in (1.0, 2.0, 3.0):
        view[:] = value
        np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)
    del view
    f(X)
    assert kernels_of(lambda: f(X)) == 1  # nobody can write any more


def test_writes_to_the_array_a_constant_was_made_from_are_seen() -> None:
    array = np.ones((N, N), np.float32)
    flat = array.reshape(-1)
    w = Tensor(array)
    f = jit(lambda x: total(x, w))
    for value in (1.0, 2.0, 3.0):
        array[:] = value
        np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)
    del array
    for value in (4.0, 5.0):
        flat[:] = value
        np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)
    owner = np.ones((2, N, N), np.float32)
    u = Tensor(owner[1])
    f = jit(lambda x: total(x, u))
    for value in (1.0, 2.0, 3.0):
        owner[:] = value
        np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)


def test_an_array_that_nobody_else_holds_is_constant() -> None:
    w = Tensor(np.ones((N, N), np.float32))
    f = jit(lambda x: total(x, w))
    f(X)
    f(X)
    assert kernels_of(lambda: f(X)) == 1


def test_a_file_may_change_at_any_time(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes([1] * (N * N)))
    w = Tensor.from_file(path)
    f = jit(lambda x: total(x, w.to("cpu").float().reshape(N, N)))
    for value in (1, 2, 3):
        with path.open("r+b") as file:
            file.write(bytes([value] * (N * N)))
        np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)


def test_another_step_that_updates_a_constant_in_place_is_seen() -> None:
    w = constant(0.0)
    use = jit(lambda x: total(x, w))

    @jit
    def update(k: Tensor) -> None:
        w.assign(w + k)

    one, value = Tensor([1.0]), 0
    for times in (1, 1, 3, 2, 0, 1):
        for _ in range(times):
            update(one)
            value += 1
        np.testing.assert_allclose(use(X).numpy(), N * value, rtol=1e-4)


def test_what_a_step_realised_on_its_way_is_not_written_by_replays() -> None:
    keep = Mock()  # of another library: what it holds makes no other step

    @jit
    def step(x: Tensor) -> Tensor:
        y = (x * 2).realize()
        keep(y)
        return y + 1

    step(Tensor([1.0]))
    ((kept,),) = (call.args for call in keep.mock_calls)
    use = jit(lambda x: x + kept.exp().log().contiguous())
    for i in range(3):
        assert step(Tensor([float(i)])).item() == 2 * i + 1
        assert (kept.item(), round(use(Tensor([1.0])).item(), 3)) == (2.0, 3.0)
    assert keep.call_count == 1


def test_a_returned_constant_is_the_one_of_today() -> None:
    w = constant()
    f = jit(lambda x: (total(x, w), w, w.T))
    f(X)
    assigned(w, 2.0)
    assert {float(t.numpy().flat[0]) for t in f(X)[1:]} == {2.0}


def test_a_view_assigned_anew_is_seen() -> None:
    w = constant().T
    f = jit(lambda x: total(x, w))
    for value in (1.0, 2.0, 3.0):
        assigned(w, value)
        for _ in range(2):
            np.testing.assert_allclose(f(X).numpy(), N * value, rtol=1e-5)


def test_one_of_two_tensors_of_one_buffer_assigned_anew_is_seen() -> None:
    w = constant()
    v = Tensor(w)
    f = jit(lambda x: total(x, w) + total(x, v))
    f(X)
    for value in (2.0, 3.0):
        assigned(v, value)
        for _ in range(2):
            np.testing.assert_allclose(f(X).numpy(), N + N * value, rtol=1e-5)


def test_a_value_that_was_not_computed_at_the_capture_and_is_assigned_is_seen() -> None:
    w = Tensor.full((N, N), 2.0) * 3
    f = jit(lambda x: total(x, w))
    for _ in range(3):
        np.testing.assert_allclose(f(X).numpy(), N * 6, rtol=1e-5)
    w[0:1] = 7.0
    for _ in range(3):
        np.testing.assert_allclose(f(X).numpy(), N * 6 + 1, rtol=1e-5)
    w.realize()
    assert len(f.captures) == 1 and kernels_of(lambda: f(X)) == 1  # packed when it was bound anew, not again


def test_a_constant_of_another_shape_is_refused() -> None:
    w = constant()
    f = jit(lambda x: total(x, w))
    f(X)
    f(X)
    w.uop = Tensor.zeros(N, 2 * N).contiguous().realize().uop
    with pytest.raises(JitError, match="changed its dtype or shape"):
        f(X)


WRITES = [assigned, part_set, through_a_view, through_a_view_of_a_view]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["use", "both", "hold", "drop", *range(len(WRITES))]), st.integers(0, 1))))
def test_any_order_of_writes_and_replays(actions) -> None:
    with Context(VERIFY=0, CHECK_BOUNDS=0):  # what was captured by an example before is not scheduled again
        writes_and_replays(actions)


def writes_and_replays(actions) -> None:
    ws, values, held = [constant(), constant()], [1.0, 1.0], {}
    use = [jit(lambda x, k=k: total(x, ws[k])) for k in range(2)]
    both = jit(lambda x: total(x, ws[0]) + total(x, ws[1].T))
    update = jit(lambda k: ws[0].assign(ws[0] + k))
    for at, (action, k) in enumerate(actions):
        if action == "hold":
            held[k] = (ws[k].numpy(), ws[k].uop)
        elif action == "drop":
            held.pop(k, None)
        elif isinstance(action, int):
            values[k] = float(at)
            WRITES[action](ws[k], values[k])
        elif k == 0 and at % 3 == 0:
            update(Tensor([1.0]))
            values[0] += 1
        if k in held and held[k][1] is ws[k].uop:
            values[k] = float(at + 100)
            held[k][0][:] = values[k]
        got = both(X) if action == "both" else use[k](X)
        wanted = N * sum(values) if action == "both" else N * values[k]
        np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-4, atol=1e-3)


def test_a_dropped_capture_frees_its_memory() -> None:
    w = constant()
    base = memory.stats().used_bytes

    def once() -> None:
        f = jit(lambda x: x.sum() + (w.reshape(1, N * N) * w.reshape(N * N, 1)).contiguous())
        f(X)
        f(X)
        assert memory.stats().used_bytes > base + N**4 * 4

    for _ in range(3):
        once()
        gc.collect()
        assert memory.stats().used_bytes < base + N**4

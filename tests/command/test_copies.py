"""Copies between devices whose memory kernels cannot share are items of the command buffer, eager and captured."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from monolect import Context, Tensor, function, jit
from monolect.backend.common.host import memory
from monolect.backend.python.runtime import PythonDevice
from monolect.backend.registry import Device
from monolect.command.check import check
from monolect.command.forms import calls_in, items_of, program_of
from monolect.command.interp import run_step
from monolect.runtime import profile
from monolect.runtime.realize import execute
from monolect.tensor.tensor import compute_pending


class Apart(PythonDevice):
    """Interpreted programs on memory that other devices do not reach."""

    space = "apart"

    @staticmethod
    def from_array(array: np.ndarray) -> memory.Memory:
        out = memory.alloc(array.nbytes)
        out.view(np.uint8)[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return out


@pytest.fixture(autouse=True)
def apart() -> Iterator[None]:
    Device.register("apart", Apart)
    yield
    Device._own.pop("apart", None)
    Device._open.pop("apart", None)
    execute.plans.clear()


def there_and_back(x: Tensor) -> Tensor:
    """Work on the host, then on the other device, then on the host again."""
    far = (x * 2).to("apart") + 1
    return (far.exp().to("cpu") + x).sum(1)


def wanted(x: np.ndarray) -> np.ndarray:
    return (np.exp(x * 2 + 1) + x).sum(1)


def data(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_batch_over_two_devices_is_one_plan() -> None:
    x = data(3, 4)
    t = Tensor(x).realize()
    compute_pending()  # of earlier tests
    before = profile.counts["schedules"]
    np.testing.assert_allclose(there_and_back(t).numpy(), wanted(x), rtol=1e-5)
    assert profile.counts["schedules"] == before + 1
    plan = next(reversed(execute.plans.values()))
    assert [u.op for u in plan.items].count("STORE") == 2
    np.testing.assert_allclose(there_and_back(Tensor(x + 1).realize()).numpy(), wanted(x + 1), rtol=1e-5)
    assert profile.counts["schedules"] == before + 1


def test_a_captured_step_over_two_devices_replays() -> None:
    f = jit(there_and_back)
    for k in range(4):
        x = data(3, 4) * k
        np.testing.assert_allclose(f(Tensor(x).realize()).numpy(), wanted(x), rtol=1e-5)
    (captured,) = f.captures.values()
    step = captured.capture.ready
    check(step)
    items = calls_in(items_of(program_of(step)))
    assert [u.op for u in items].count("STORE") == 2
    memory = run_step(step, {0: x})
    (out,) = (m for p, m in memory.bytes.items() if p.op == "PARAM" and p.arg.slot == 1)
    np.testing.assert_allclose(out.view(np.float32), wanted(x), rtol=1e-5)


def test_weights_on_the_other_device_are_updated_there() -> None:
    w, x = Tensor(data(4), device="apart").realize(), data(3, 4)

    @jit
    def step(x: Tensor) -> Tensor:
        far = x.to("apart") * w
        w.assign(w * 0.5)
        return far.to("cpu")

    value = data(4)
    for _ in range(4):
        np.testing.assert_allclose(step(Tensor(x).realize()).numpy(), x * value, rtol=1e-6)
        value = value * 0.5
        np.testing.assert_allclose(w.numpy(), value, rtol=1e-6)


def test_calls_on_both_devices() -> None:
    block = function(lambda x: (x.exp() + 1).log(), precompile=True)
    x = data(2, 5)
    soft = lambda a: np.log(np.exp(a) + 1)  # noqa: E731
    got = block(block(Tensor(x).realize()).to("apart")).to("cpu")
    np.testing.assert_allclose(got.numpy(), soft(soft(x)), rtol=1e-5)


def test_results_on_both_devices() -> None:
    x = data(2, 5)
    t = Tensor(x).realize()
    near, far = t + 1, (t * 3).to("apart")
    near.realize(far)
    assert (near.device, far.device) == ("cpu", "apart")
    np.testing.assert_allclose(near.numpy(), x + 1, rtol=1e-6)
    np.testing.assert_allclose(far.numpy(), x * 3, rtol=1e-6)


def test_a_recorder_names_copies(capsys: pytest.CaptureFixture[str]) -> None:
    with profile.Recorder() as runs, Context(DEBUG=2):
        there_and_back(Tensor(data(3, 4)).realize()).realize()
    copies = [r for r in runs if r.call.op == "STORE"]
    assert [r.name for r in copies] == ["copy", "copy"] and all(r.n_bytes == 96 for r in copies)
    lines = [row for row in capsys.readouterr().err.splitlines() if " copy " in row]
    assert ["to apart" in row for row in lines] == [True, False] and "to cpu" in lines[1]
    assert "2 buffers" in lines[0]
    assert "copy" in profile.kernel_table(runs)


# ---- levels ----------------------------------------------------------------------------------------------------------
def products(t: Tensor, *others: Tensor) -> int:
    """The number of products of matrices that the batch of these tensors computes."""
    with profile.Recorder() as runs:
        t.realize(*others)
        return sum("gemm" in profile.class_of(run.call) or "_r" in run.name for run in runs)


def test_a_value_that_several_copies_need_is_computed_once() -> None:
    x, w = Tensor(data(4, 6)).realize(), Tensor(data(6, 5)).realize()
    h = x @ w
    found = [(h + k).to("apart") for k in range(4)]
    assert products(*found) == 1
    for k, t in enumerate(found):
        np.testing.assert_allclose(t.numpy(), x.numpy() @ w.numpy() + k, rtol=1e-5)


def test_a_value_that_is_needed_before_and_after_a_copy_is_computed_once() -> None:
    x, w = Tensor(data(4, 6)).realize(), Tensor(data(6, 5)).realize()
    h = x @ w
    far = (h * 2).to("apart")
    back = (far + 1).to("cpu")
    assert products(back + h, back * h) == 1
    np.testing.assert_allclose((back + h).numpy(), 3 * (x.numpy() @ w.numpy()) + 1, rtol=1e-5)


def test_work_grows_with_depth_and_not_with_its_square() -> None:
    """Each layer of a network gives a value to the other device, as layers give their gradients to other processes."""

    def n_products(depth: int) -> int:
        t, far = Tensor(data(3, 4)).realize(), []
        ws = [Tensor(data(4, 4) * k).realize() for k in range(1, depth + 1)]
        for w in ws:
            t = (t @ w).tanh()
            far.append((t * 2).to("apart"))
        return products(*far)

    assert [n_products(depth) for depth in (2, 4, 8)] == [2, 4, 8]


def test_writes_and_copies_in_any_order() -> None:
    """Programs of writes to parts, copies and products, whose numbers differ from run to run, against NumPy."""
    for seed in range(80):
        check_program(np.random.default_rng(seed))


def check_program(rng: np.random.Generator) -> None:
    a = rng.integers(-3, 4, (4, 4)).astype(np.float32)
    t, out, wanted = Tensor(a).realize(), [], []
    for _ in range(7):
        k = int(rng.integers(4))
        match int(rng.integers(8)):
            case 5:
                out.append(t[k].to("apart"))
                wanted.append(a[k])
            case 6:
                t[k], a = t[k].to("apart").to("cpu") * 2, a.copy()
                a[k] *= 2
            case 7:
                t, a = swapped(t, k), a.copy()
                a[:2] = a[:2][::-1] + k
            case 0:
                t[k], a = k, a.copy()
                a[k] = k
            case 1:
                t[k] += t[(k + 1) % 4]
                a = a.copy()
                a[k] += a[(k + 1) % 4]
            case 2:
                t, a = t @ t.T / 8, a @ a.T / 8
            case 3:
                out.append((t.sum(0) + k).to("apart"))
                wanted.append(a.sum(0) + k)
            case 4:
                t, a = (t.to("apart") * 2).to("cpu") - t, a
    out.append(t)
    out[0].realize(*out[1:])
    for found, right in zip(out, [*wanted, a], strict=True):
        np.testing.assert_allclose(found.numpy(), right, rtol=1e-4, atol=1e-4)


@function(precompile=True)
def swapped(t: Tensor, k: int) -> Tensor:
    """The first two rows exchanged, plus k, written to the argument; the result is a copy."""
    t[:2] = t[:2].flip(0) + k
    return t * 1


NUMBERS: dict[str, Callable[[Tensor, float], list[Tensor]]] = {
    "before a copy": lambda t, k: [(t + k).to("apart")],
    "after a copy": lambda t, k: [t.to("apart") + k],
    "on both devices": lambda t, k: [(t.to("apart") + k).to("cpu") + k],
    "between two copies": lambda t, k: [(t.to("apart") * k).to("cpu") + 1],
    "in a part that is written": lambda t, k: [written(t, k).sum(0).to("apart"), t],
    "of another value": lambda t, k: [(t.sum(0) + k).to("apart"), t * 2],
}


def written(t: Tensor, k: float) -> Tensor:
    t[0] = k
    return t + k


@pytest.mark.sweep
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_differ_are_used_on_the_device_of_their_operand(name: str) -> None:
    """From the third number on they are inputs of the plan."""
    x = data(3, 4)
    for k in range(6):
        found = NUMBERS[name](Tensor(x).realize(), k + 0.5)
        found[0].realize(*found[1:])
        for t, right in zip(found, on_one_device(name, x, k + 0.5), strict=True):
            np.testing.assert_allclose(t.numpy(), right, rtol=1e-5)


def on_one_device(name: str, x: np.ndarray, k: float) -> list[np.ndarray]:
    """What the program of NUMBERS computes, by NumPy."""
    first = np.concatenate([np.full_like(x[:1], k), x[1:]])
    return {
        "before a copy": [x + k],
        "after a copy": [x + k],
        "on both devices": [x + k + k],
        "between two copies": [x * k + 1],
        "in a part that is written": [(first + k).sum(0), first],
        "of another value": [x.sum(0) + k, x * 2],
    }[name]

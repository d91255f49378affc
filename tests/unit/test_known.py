"""Single values whose program ran before: which take the short way of `runtime/known.py`; nothing else differs."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from monolect import AllocationError, Context, Tensor, jit, nn
from monolect.runtime import known, profile
from monolect.runtime.realize import execute, varied
from monolect.runtime.realize.encode import One
from monolect.schedule.callify import structure
from monolect.tensor import tensor as tensor_module
from monolect.tensor.state import delayed

A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = A[::-1].copy() + 1


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each value that asked for the short way: whether it was taken."""
    found: list[bool] = []

    def run_known(u: Any) -> Any:
        value = known.run_known(u)
        found.append(value is not None)
        return value

    monkeypatch.setattr(tensor_module, "run_known", run_known)
    return found


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    return Tensor(A).realize(), Tensor(B).realize()


@pytest.fixture(autouse=True)
def _without_states(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other tests of the process may have left random states that are pending, and deferred tensors. Calls that were
    made before are not delayed.
    """
    monkeypatch.setattr(delayed, "under_way", [True])
    varied._programs.clear()
    monkeypatch.setattr(tensor_module.random_state, "pending", lambda: [])
    monkeypatch.setattr(tensor_module, "deferred", lambda: [])
    yield


OPS: dict[str, tuple[Callable[..., Tensor], Callable[..., np.ndarray]]] = {
    "sum of two": (lambda a, b: a + b, lambda a, b: a + b),
    "twice one": (lambda a, b: a + a, lambda a, b: a + a),
    "number": (lambda a, b: a * 0.5, lambda a, b: a * np.float32(0.5)),
    "sum": (lambda a, b: a.sum(), lambda a, b: a.sum()),
    "product": (lambda a, b: a @ b.T, lambda a, b: a @ b.T),
    "chain": (lambda a, b: ((a + b) * 0.1 - b).exp2().sum(1), lambda a, b: np.exp2((a + b) * 0.1 - b).sum(1)),
    "row of a value": (lambda a, b: (a + b)[1] * 2, lambda a, b: (a + b)[1] * 2),
}


@pytest.mark.parametrize("name", OPS)
def test_the_second_time_takes_the_short_way(name: str, pair: Any, runs: list[bool], monkeypatch: Any) -> None:
    ours, theirs = OPS[name]
    a, b = pair
    ours(a, b).realize()
    del runs[:]
    monkeypatch.setattr(tensor_module, "compute", None)  # nothing else computes
    for k in range(3):
        x, y = Tensor(A + k), Tensor(B * (k + 1))
        np.testing.assert_allclose(ours(x, y).numpy(), theirs(A + k, B * (k + 1)), rtol=1e-5)
    assert runs == [True] * 3


@pytest.mark.parametrize("name", OPS)
def test_the_key_of_one_op_is_that_of_the_walk(name: str, pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [OPS[name][0](*pair)._uop]
    found = structure(roots)
    monkeypatch.setattr("monolect.schedule.callify._of_one_op", lambda u: None)
    assert found == structure(roots)


def test_operands_that_are_one_are_told_from_two(pair: Any) -> None:
    a, b = pair
    for _ in range(2):
        assert (a - b).tolist() == (A - B).tolist() and (a - a.clone()).tolist() == (A - A).tolist()
        assert (a + a).tolist() == (2 * A).tolist()


def test_what_is_unusual_goes_the_long_way(pair: Any, runs: list[bool]) -> None:
    a, b = pair
    (a + b).realize()
    del runs[:]
    with Context(VERIFY=2):
        assert (a + b).tolist() == (A + B).tolist()
    with profile.Recorder() as kernels:
        assert (a + b).tolist() == (A + B).tolist()
    with Context(NOOPT=1):
        assert (a + b).tolist() == (A + B).tolist()
    assert runs == [False] * 3 and len(list(kernels)) == 1
    assert (a + b).tolist() == (A + B).tolist() and runs[3:] == [True]
    (a + b).realize(a - b)
    a[0].add(1).realize()
    assert len(runs) == 4 or not runs[-1]


def test_kernels_are_shown(pair: Any, capfd: pytest.CaptureFixture[str]) -> None:
    a, b = pair
    (a + b).realize()
    with Context(DEBUG=2):
        (a + b).realize()
    out = capfd.readouterr()
    assert "us" in out.out + out.err


def test_memory_that_was_never_written(runs: list[bool]) -> None:
    (Tensor.empty(4) * 0.0 + 1).realize()
    (Tensor.empty(4) * 0.0 + 1).realize()
    assert runs[-1] is False


def test_a_step_under_capture_sees_each_value(pair: Any, runs: list[bool]) -> None:
    a, b = pair
    (a + b).realize()
    del runs[:]

    def step(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).realize() * 2

    f = jit(step)
    for k in range(4):
        x = Tensor(A + k).realize()
        assert f(x, b).tolist() == ((A + k + B) * 2).tolist()
    assert not any(runs)


def test_values_keep_their_graphs(runs: list[bool]) -> None:
    w = Tensor(A).realize().requires_grad_()
    for k in range(4):
        w.grad = None
        y = (w * B).realize()
        z = (y + y).realize()
        z.sum().backward()
        assert w.grad is not None and w.grad.tolist() == (2 * B).tolist()
        assert z.tolist() == (2 * A * B).tolist()
        assert k < 2 or runs[-1]  # the second time the gradient becomes a FUNCTION


def test_a_leaf_that_is_computed_stays_a_leaf() -> None:
    for _ in range(3):
        w = (Tensor(A) * 2).requires_grad_()
        w.realize()
        (w * 3).realize().sum().backward()
        assert w.grad is not None and w.grad.tolist() == np.full_like(A, 3).tolist()


def held_rounds() -> list[tuple[str, str]]:
    a, b = Tensor(A).realize(), Tensor(B).realize()
    out = []
    y = a + b
    for _ in range(4):
        z = (y * 2).realize()
        assert z.tolist() == ((A + B) * 2).tolist()
        out.append((y.uop.op, z.uop.op))
    state = a
    for _ in range(5):
        state = state + b
        (state * 2).realize()
        out.append((state.uop.op, ""))
    return out


def test_values_that_are_stored_besides_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    with_short = held_rounds()
    monkeypatch.setattr(tensor_module, "run_known", lambda u: None)
    assert held_rounds() == with_short and ("BUFFER", "BUFFER") in with_short


@pytest.mark.parametrize("error", [AllocationError("no memory"), KeyboardInterrupt()])
def test_a_failure_changes_nothing(pair: Any, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    (a + b).realize()
    t = a + b
    before, plans = t._uop, dict(execute.plans)

    def fails(*args: Any) -> Any:
        raise error

    key, buffers, *_ = structure([before])
    at = next(k for k in plans if k[0] == key)
    known_one = plans[at].one
    assert known_one is not None
    rest = known_one.template, known_one.n_bytes, known_one.owned_bytes
    for one in (One(known_one.run, fails, *rest), One(fails, known_one.alloc, *rest)):
        monkeypatch.setitem(execute.plans, at, plans[at]._replace(one=one))
        with pytest.raises(type(error)):
            t.realize()
        assert t._uop is before and [b.storage is not None for b in buffers] == [True, True]
    monkeypatch.setitem(execute.plans, at, plans[at])
    assert t.tolist() == (A + B).tolist()


def test_numbers_of_random_states_go_with_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    drawn = [(Tensor.rand(4) + 1).tolist() for _ in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]


def test_a_model_in_inference_takes_it(runs: list[bool]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    x = Tensor(A).realize()
    first = [model(x).numpy().copy() for _ in range(4)][-1]  # the weights are drawn, and stored when used again
    del runs[:]
    assert model(x).numpy().tobytes() == first.tobytes() and runs == [True]

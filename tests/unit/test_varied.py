"""Numbers that differ at each run of a program become its inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, Variable, jit
from monolect.base.errors import IRError
from monolect.runtime.realize import execute, varied
from monolect.runtime.realize.varied import MIN_PLANS, MIN_REPEATS
from monolect.tensor.state import delayed

X = np.random.default_rng(5).standard_normal((6, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    (Tensor([0.0]) + 1).realize()  # with what tests before deferred, which would be part of the first batch here
    varied._programs.clear()
    execute.plans.clear()


def planned(f: Callable[[float], Any], numbers: list[float]) -> list[int]:
    """How many plans each call made."""
    out = []
    for v in numbers:
        before = {*execute.plans}
        f(v)
        out.append(len({*execute.plans} - before))
    return out


def test_a_number_that_falls_compiles_nothing_more() -> None:
    state = [Tensor(X)]
    want = X

    def step(lr: float) -> None:
        nonlocal want
        state[0] = (state[0] - state[0] * lr).realize()
        want = want - want * np.float32(lr)

    new = planned(step, [0.1 / (1 + k) for k in range(40)])
    assert sum(new[MIN_PLANS:]) == 0 and sum(new[:MIN_PLANS]) == MIN_PLANS
    assert state[0].numpy().tobytes() == want.tobytes()


def test_numbers_that_stay_are_constants() -> None:
    x = Tensor(X).realize()
    for lr in (0.1, 0.2, 0.3, 0.4, 0.7, 0.8):
        ((x * lr + 0.5) * 0.25).realize()
    before = {*execute.plans}
    ((x * 0.9 + 0.5) * 0.25).realize()
    assert {*execute.plans} == before
    assert {2} in [p.varied_floats for p in varied._programs.values()]  # the innermost comes last


@pytest.mark.sweep
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0, 1e-42, 3e38])
def test_any_number_has_the_bits_of_numpy(odd: float, dtype: type) -> None:
    a = X.astype(dtype)
    x = Tensor(a).realize()
    for v in (0.3, 0.7, 1.3, 1.7, 2.3, odd, 0.1):
        with np.errstate(all="ignore"):
            want = (a * dtype(v) + dtype(0.5)) / dtype(3)
        np.testing.assert_array_equal(((x * v + 0.5) / 3).numpy(), want)


def test_two_numbers_that_are_equal_once() -> None:
    x = Tensor(X).realize()
    for a, b in [(0.1, 0.2), (0.2, 0.3), (0.3, 0.3), (0.4, 0.1), (0.5, 0.5), (0.6, 0.7), (0.7, 0.7), (0.5, 0.6)]:
        np.testing.assert_allclose((x * a + b).numpy(), X * np.float32(a) + np.float32(b), rtol=1e-6, atol=1e-7)


def test_a_result_that_is_a_number_alone_has_memory_of_its_own() -> None:
    for v in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        t = Tensor.full((4,), v).contiguous().realize()
        assert t.uop.op == "BUFFER" and t.tolist() == [float(np.float32(v))] * 4


def test_gradients_and_captured_steps() -> None:
    w = Tensor(X, requires_grad=True)
    step = jit(lambda x, v: x * v)
    for v in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
        w.grad = None
        (w * v).sum().backward()
        assert w.grad is not None
        np.testing.assert_array_equal(w.grad.numpy(), np.full((6, 16), v, np.float32))
        np.testing.assert_array_equal(step(Tensor(X), v).numpy(), X * np.float32(v))


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "MAX_PROGRAMS", 3)
    for n in range(1, 9):
        (Tensor(X[:, :n].copy()) * 0.5).realize()
        assert len(varied._programs) <= 3


def test_a_slice_at_each_offset_has_one_plan() -> None:
    a = np.random.default_rng(0).standard_normal((200, 5)).astype(np.float32)
    x = Tensor(a).realize()

    def total(i: float) -> None:
        k = int(i)
        np.testing.assert_array_equal((x[k : k + 7] * 2).numpy(), a[k : k + 7] * 2)

    assert sum(planned(total, [*range(3, 190, 11)])[MIN_PLANS:]) == 0


def test_batches_of_rows_train_a_model_with_one_plan() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((120, 4)).astype(np.float32), rng.standard_normal(120).astype(np.float32)
    w, v = Tensor(np.zeros(4, np.float32), requires_grad=True), np.zeros(4, np.float32)
    x, y = Tensor(a).realize(), Tensor(b).realize()

    def step(start: float) -> None:
        nonlocal v
        rows = slice(int(start), int(start) + 10)
        w.grad = None
        ((x[rows] @ w - y[rows]) ** 2).mean().backward()
        assert w.grad is not None
        w.assign(w - w.grad * 0.1)
        w.realize()
        v = v - 0.1 * 2 * a[rows].T @ (a[rows] @ v - b[rows]) / 10
        np.testing.assert_allclose(w.numpy(), v, rtol=1e-4, atol=1e-5)

    new = planned(step, [*range(10, 110, 10)] * 2)
    assert sum(new[MIN_PLANS + 1 :]) == 0


def test_gradients_of_elements_have_one_plan_also_at_the_ends_of_an_axis() -> None:
    """As in a policy gradient: each step of an episode takes another action."""
    w, rows = (
        Tensor(X, requires_grad=True).realize(),
        np.random.default_rng(1).standard_normal((3, 6)).astype(np.float32),
    )
    z = rows @ X
    p = np.exp(z) / np.exp(z).sum(1, keepdims=True)

    def step(number: float) -> None:
        actions = [int(number) // 5**k % 16 for k in range(3)]
        w.grad = None
        terms = [(Tensor(x) @ w).softmax(-1)[a].log() * -2.0 for x, a in zip(rows, actions, strict=True)]
        sum(terms[1:], terms[0]).backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), 2 * rows.T @ (p - np.eye(16)[actions]), rtol=1e-4, atol=1e-5)

    new = planned(step, [0, 7, 15, 5 * 15, 33, 25 * 15, 99, 400])
    assert sum(new[MIN_PLANS + 1 :]) == 0


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 14), st.integers(0, 4)), min_size=4, max_size=9))
def test_parts_that_are_padded_anywhere(calls: list[tuple[int, int, int]]) -> None:
    x = Tensor(X, requires_grad=True).realize()
    for i, j, left in calls:
        x.grad = None
        part = x[i : i + 3, j : j + 2]
        padded = part.pad((left, 4 - left), value=0.5)
        (padded * padded).sum().backward()
        want = np.full((3, 6), 0.5, np.float32)
        want[:, left : left + 2] = X[i : i + 3, j : j + 2]
        np.testing.assert_array_equal(padded.numpy(), want)
        want = np.zeros_like(X)
        want[i : i + 3, j : j + 2] = 2 * X[i : i + 3, j : j + 2]
        assert x.grad is not None
        np.testing.assert_array_equal(x.grad.numpy(), want)


def test_each_power_of_two_of_a_size_has_one_plan() -> None:
    a = np.random.default_rng(0).standard_normal((64, 5)).astype(np.float32)

    def total(n: float) -> None:
        rows = a[: int(n)]
        x = Tensor(rows.copy())
        np.testing.assert_allclose(
            (x - x.mean(0)).softmax(0).numpy(), np.exp(z := rows - rows.mean(0)) / np.exp(z).sum(0), rtol=1e-5
        )

    new = planned(total, [*range(2, 64), *range(63, 2, -1)])
    assert sum(new) <= MIN_PLANS + 6


def test_sizes_of_large_programs_stay_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(varied, "MAX_SYMBOLIC_SIZE", 50)

    def total(n: float) -> None:
        np.testing.assert_array_equal((Tensor(np.ones(int(n))) * 2).numpy(), np.full(int(n), 2.0))

    assert planned(total, [10, 11, 12, 13, 60, 61, 62, 63]) == [1, 1, 1, 0, 1, 1, 1, 1]


def test_sizes_that_do_not_follow_one_size_stay_constants() -> None:
    a = np.random.default_rng(0).standard_normal((30, 30)).astype(np.float32)
    x = Tensor(a).realize()
    for n, m in [(2, 3), (3, 4), (4, 5), (5, 6), (6, 9), (7, 3), (8, 9), (3, 8)]:
        np.testing.assert_allclose(x[:n, :m].sum(0).numpy(), a[:n, :m].sum(0), rtol=1e-5, atol=1e-5)


def test_what_the_compiler_refuses_is_computed_with_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise IRError("planted", expected="constants", found="a Variable")

    x = Tensor(X).realize()
    with monkeypatch.context() as m:
        m.setattr(execute, "bound_all", refused)
        for n in range(2, 9):
            assert (x[:, :n] * 2).sum().item() == pytest.approx(float((X[:, :n] * 2).sum()), rel=1e-5)
    assert any(varied.settings.choices in p.refused for p in varied._programs.values())


def test_a_variable_of_the_user_stays() -> None:
    a = np.arange(40.0)
    x, v = Tensor(a).realize(), Variable("v", 1, 9)
    for k in range(8):
        with v.bind(k + 1):
            assert (x[k : k + 20][:v] * (k + 0.5)).sum().item() == (a[k : k + 20][: k + 1] * (k + 0.5)).sum()


FORMULAS: list[Callable[[Any, Any, float, float], Any]] = [
    lambda x, n, a, b: x * a + b,
    lambda x, n, a, b: n.maximum(x, a) - b,
    lambda x, n, a, b: (x * a).sum(1) * b,
    lambda x, n, a, b: n.where(x > a, x, b),
    lambda x, n, a, b: (x - a) / (b + 2),
    lambda x, n, a, b: n.exp(-x * x * a) + b,
    lambda x, n, a, b: (x * a) @ (x + b).T,
]


class OfTensors:
    """NumPy's functions for Tensors."""

    where = staticmethod(lambda c, a, b: c.where(a, b))
    maximum = staticmethod(lambda x, v: x.maximum(v))
    exp = staticmethod(lambda x: x.exp())


@settings(max_examples=40, deadline=None)
@given(
    formula=st.sampled_from(FORMULAS),
    numbers=st.lists(
        st.tuples(*[st.floats(0.0625, 2, width=16) | st.sampled_from([0.0, 0.5, 1.0])] * 2), min_size=1, max_size=9
    ),
)
def test_formulas_with_numbers_at_random(formula: Any, numbers: list[tuple[float, float]]) -> None:
    x = Tensor(X).realize()
    for a, b in numbers:
        np.testing.assert_allclose(formula(x, OfTensors, a, b).numpy(), formula(X, np, a, b), rtol=1e-4, atol=1e-4)


def test_numbers_that_recur_are_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them has a plan of its own in the end, MAX_OWN at most, whatever other numbers come between."""
    monkeypatch.setattr(delayed, "under_way", [1])  # its calls have inputs of their own
    x = Tensor(X).realize()
    numbers = [0.9, 0.1, 0.999, 0.001, 0.3]
    for k in range(MIN_REPEATS + MIN_PLANS):
        for v in (*numbers, k + 0.5):
            assert (x * v).realize().numpy().tobytes() == (X * np.float32(v)).tobytes()
    (program,) = varied._programs.values()
    assert len(program.own) == len(numbers) - (MIN_PLANS - 1), "the first ones are constants from the start"
    assert len(execute.plans) == len(numbers) + 1, "one with an input"
    for k in range(3 * varied.MAX_OWN):
        for _ in range(MIN_REPEATS):
            (x * (k + 1.25)).realize()
    assert len(program.own) == varied.MAX_OWN and len(program.counts) <= varied.MAX_COUNTED + 1
    before = {*execute.plans}
    step = [Tensor(X).realize()]
    for _ in range(2 * MIN_REPEATS):
        step[0] = (step[0] * 0.9).realize()
    assert {*execute.plans} == before


def test_a_batch_whose_numbers_differ_each_time_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its key with the numbers is not made once it had inputs; other programs of its size are computed right."""
    made: list[int] = []
    structure = execute.structure
    monkeypatch.setattr(execute, "structure", lambda roots: (made.append(len(roots)), structure(roots))[1])
    w = Tensor(X, requires_grad=True)  # of a value that leads to a leaf `run_known` knows nothing
    for k in range(12):
        before = len(made)
        w.grad = None
        (w * (k + 0.25)).sin().sum().backward()
        w.grad.realize()
        np.testing.assert_allclose(w.grad.numpy(), np.cos(X * (k + 0.25)) * (k + 0.25), rtol=1e-4, atol=1e-4)
        assert k < 2 * MIN_PLANS or len(made) == before
        other = (w * 2.5).cos().sum()  # as high, and its number stays
        np.testing.assert_allclose(other.numpy(), np.cos(X * 2.5).sum(), rtol=1e-4)


def test_values_that_are_computed_again_are_stored_whatever_their_numbers_are() -> None:
    x = Tensor(X, requires_grad=True)
    for k in range(10):
        y = (x * (k + 0.5)).sin()
        for by in (0.25, 0.75):
            np.testing.assert_allclose((y + (k + by)).numpy(), np.sin(X * (k + 0.5)) + k + by, rtol=1e-4, atol=1e-4)
        assert y.uop.op == "BUFFER", k

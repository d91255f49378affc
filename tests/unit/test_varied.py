"""Numbers that differ at each run of a program become its inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, jit
from monolect.runtime.realize import execute, varied
from monolect.runtime.realize.varied import MIN_PLANS

X = np.random.default_rng(5).standard_normal((6, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
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
    assert {0} in [p.varied for p in varied._programs.values()]


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

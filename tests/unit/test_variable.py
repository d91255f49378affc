"""Symbolic sizes: one plan and one kernel for every bound value, and clear errors."""

import numpy as np
import pytest

from monolect import ArgumentError, Context, JitError, Tensor, Variable, jit
from monolect.runtime import profile
from monolect.runtime.execute import plans

N = Variable("rows", 1, 8)
X = np.arange(24, dtype=np.float32).reshape(8, 3)

PROGRAMS = {
    "slice": (lambda x: x[:N] * 2, lambda a, n: a[:n] * 2),
    "sum over the rows": (lambda x: x[:N].sum(0), lambda a, n: a[:n].sum(0)),
    "sum over the columns": (lambda x: x[:N].sum(1), lambda a, n: a[:n].sum(1)),
    "maximum": (lambda x: (x[:N] * -1).amax(0), lambda a, n: (a[:n] * -1).max(0)),
    "transpose": (lambda x: x[:N].T + 1, lambda a, n: a[:n].T + 1),
    "product": (lambda x: x @ x[:N].T, lambda a, n: a @ a[:n].T),
    "two kernels": (lambda x: (x[:N] - x[:N].sum()).contiguous() * 3, lambda a, n: (a[:n] - a[:n].sum()) * 3),
}


@pytest.mark.parametrize("device", ["cpu", "python"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_plan_for_every_value(name: str, device: str) -> None:
    ours, theirs = PROGRAMS[name]
    x = Tensor(X, device=device).realize()
    with N.bind(3):
        np.testing.assert_allclose(ours(x).numpy(), theirs(X, 3), rtol=1e-5)
    before, made = len(plans), profile.counts["schedules"]
    for n in (1, 8, 5):
        with N.bind(n):
            got = ours(x).numpy()
        assert got.shape == theirs(X, n).shape
        np.testing.assert_allclose(got, theirs(X, n), rtol=1e-5)
    assert (len(plans), profile.counts["schedules"]) == (before, made)


def test_without_the_optimizer() -> None:
    x = Tensor(X).realize()
    with Context(NOOPT=1), N.bind(4):
        np.testing.assert_allclose(x[:N].sum(1).numpy(), X[:4].sum(1))


def test_a_value_is_checked_when_it_is_bound() -> None:
    for value in (0, 9, 2.0, "3"):
        with pytest.raises(ArgumentError, match="value of rows"), N.bind(value):  # type: ignore[arg-type]
            pass


def test_an_unbound_variable_is_named() -> None:
    with pytest.raises(ArgumentError, match="Variable rows is not bound"):
        Tensor(X)[:N].numpy()


def test_bindings_nest_and_end() -> None:
    x = Tensor(X).realize()
    with N.bind(2):
        with N.bind(5):
            assert x[:N].numpy().shape == (5, 3)
        assert x[:N].numpy().shape == (2, 3)
    with pytest.raises(ArgumentError, match="not bound"):
        x[:N].numpy()


def test_a_captured_step_refuses_symbolic_sizes() -> None:
    with N.bind(2), pytest.raises(JitError, match="symbolic sizes"):
        jit(lambda x: x[:N] + 1)(Tensor(X))


def test_bad_variables() -> None:
    with pytest.raises(ArgumentError, match="identifier"):
        Variable("a b", 1, 2)
    with pytest.raises(ArgumentError, match="min <= max"):
        Variable("a", 3, 2)

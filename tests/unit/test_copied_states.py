"""States that are copied to each other, or that have one memory: each has its own from then on."""

import copy
from collections.abc import Callable

import numpy as np
import pytest

from monolect import Tensor, jit


def zeros(n: int = 3) -> Tensor:
    return Tensor(np.zeros(n)).realize()


def test_a_state_that_is_copied_to_another() -> None:
    a, b, c = zeros(), zeros(), zeros()

    @jit
    def step(x: Tensor) -> None:
        a.copy_(a + x)
        b.copy_(a)
        c.assign(a)

    for k in range(1, 5):
        step(Tensor(np.ones(3)))
        assert a.tolist() == b.tolist() == c.tolist() == [k] * 3
    assert len(step.captures) == 1 and step.usual is not None


def test_a_parameter_that_is_copied_to_a_state() -> None:
    """Through `detach`, in memory that the parameter has: the two nodes differ."""
    w, s, part = Tensor(np.ones(3), requires_grad=True).realize(), zeros(), zeros(1)

    @jit
    def step(x: Tensor) -> None:
        w.assign(w + x)
        s.copy_(w.detach())
        part.copy_(w.detach()[:1])

    for k in range(2, 6):
        step(Tensor(np.ones(k - 1))[:1])
        assert (w.tolist(), s.tolist(), part.tolist()) == ([k] * 3, [k] * 3, [k])
    assert len(step.captures) == 1 and step.usual is not None


def test_equal_values_of_two_states() -> None:
    a, b = zeros(), zeros()

    @jit
    def step(x: Tensor) -> None:
        a.copy_(x * 2)
        b.copy_(x * 2)
        b[0] += 1

    for k in range(1, 5):
        step(Tensor(np.full(3, float(k))))
        assert (a.tolist(), b.tolist()) == ([2 * k] * 3, [2 * k + 1, 2 * k, 2 * k])


def test_states_that_are_swapped() -> None:
    a, b = zeros(), zeros()

    @jit
    def step(x: Tensor) -> Tensor:
        before = a.clone()
        a.copy_(b)
        b.copy_(before)
        return a - b + x

    a.fill_(1.0)
    for k in range(5):
        assert step(zeros()).tolist() == [(-1.0) ** (k + 1)] * 3
    assert len(step.captures) == 1 and step.usual is not None


def pairs() -> dict[str, Callable[[], tuple[Tensor, Tensor]]]:
    def batch() -> tuple[Tensor, Tensor]:
        x = zeros()
        a, b = x + 1, x + 1
        a.realize(b)
        return a, b

    def one(how: Callable[[Tensor], Tensor]) -> Callable[[], tuple[Tensor, Tensor]]:
        def made() -> tuple[Tensor, Tensor]:
            a = zeros() + 1
            return a.realize(), how(a)

        return made

    return {"batch": batch, "copy": one(copy.deepcopy), "times one": one(lambda a: a * 1.0)}


@pytest.mark.parametrize("name", pairs())
def test_states_of_one_memory(name: str) -> None:
    a, b = pairs()[name]()

    @jit
    def step(x: Tensor) -> Tensor:
        a.copy_(a * 2 + x)
        b.copy_(b - x)
        return a + b

    p = q = 1.0
    for k in range(1, 6):
        p, q = p * 2 + k, q - k
        assert step(Tensor(np.full(3, float(k)))).tolist() == [p + q] * 3
        assert (a.tolist(), b.tolist()) == ([p] * 3, [q] * 3)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("method", ["copy_", "assign"])
def test_what_is_copied_from_an_array_is_no_part_of_it(method: str, lazy: bool, captured: bool) -> None:
    array, state = np.zeros(16), Tensor.zeros(16, dtype="float64") if lazy else zeros(16)

    def put(x: Tensor) -> Tensor:
        return getattr(state, method)(x).sum()

    step = jit(put) if captured else put
    for k in range(4):
        array[...] = k
        assert step(Tensor(array)).item() == 16 * k
        state.realize()
        array[...] = 99.0
        assert state.tolist() == [k] * 16
    other = zeros(16)
    other.copy_(state).realize()
    state.numpy()[0] = -1.0
    assert other.tolist() == [3.0] * 16


def test_a_state_that_becomes_what_somebody_outside_has() -> None:
    """The expression in the step is the one of a tensor outside that is not computed yet."""
    c = Tensor(np.arange(3.0)).realize()
    nothing, other = Tensor.zeros(3, dtype="float64"), c * 2 + 1
    a, b, w = zeros(), zeros(), Tensor(np.ones(3), requires_grad=True)

    @jit
    def step(x: Tensor) -> Tensor:
        a.zero_()
        b.copy_(c * 2 + 1)
        w.grad = None
        (w * (c * 2 + 1)).sum().backward()
        return x + 1

    for _ in range(4):
        a[1], b[0] = 5.0, 9.0
        step(zeros())
        assert (a.tolist(), b.tolist(), w.grad.tolist()) == ([0.0] * 3, [1.0, 3.0, 5.0], [1.0, 3.0, 5.0])
        w.grad.numpy()[...] = 7.0  # its own memory
        a.numpy()[...] = 7.0
        assert nothing.tolist() == [0.0] * 3 and other.tolist() == [1.0, 3.0, 5.0]

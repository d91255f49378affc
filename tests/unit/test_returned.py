"""What captured steps and `@function`s return: values, Tensors from outside as they are, and views of these."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monolect import Tensor, function, jit

CALLS = 4  # the first is captured, the last are usual ones


def numbers(n: int, start: float = 0.0) -> Tensor:
    return Tensor(np.arange(n, dtype=np.float32) + start).realize()


def plain(f: Callable[..., Any]) -> Callable[..., Any]:
    return f


FORMS = {"eager": plain, "jit": jit, "function": function, "precompiled": function(precompile=True)}


@pytest.mark.parametrize("form", FORMS)
def test_a_tensor_from_outside_is_returned_itself(form: str) -> None:
    w = numbers(6)
    step = FORMS[form](lambda x: (w, {"x": x}, [x, x * 2]))
    for i in range(CALLS):
        x = numbers(4, i)
        a, b, (c, d) = step(x)
        assert a is w and b["x"] is x and c is x
        assert d.tolist() == (x * 2).tolist()
        a.assign(a + 1)
        assert w.tolist() == [float(k + i + 1) for k in range(6)]


@pytest.mark.parametrize("form", FORMS)
def test_a_view_of_a_tensor_from_outside_shares_its_memory(form: str) -> None:
    w = numbers(6)
    step = FORMS[form](lambda x: (w[1:3], x.reshape(2, 2).T, x * 2))
    for i in range(CALLS):
        x = numbers(4, i)
        a, b, _ = step(x)
        w.assign(w * 0 + i)
        assert a.tolist() == [i, i]
        a.assign(Tensor([10.0, 20.0]))
        assert w.tolist() == [i, 10, 20, i, i, i]
        b[0, 1] = 55.0
        assert x.tolist() == [i, i + 1, 55, i + 3]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_state_that_a_step_updates_and_returns_is_the_state(form: str) -> None:
    w = numbers(3)

    def update(x: Tensor) -> tuple[Tensor, Tensor]:
        w.assign(w + x)
        return w, w[:1]

    step, first = FORMS[form](update), None
    for i in range(CALLS):
        a, b = step(Tensor([1.0, 2.0, 3.0]).realize())
        first = b if first is None else first
        want = [1.0 + i, 3.0 + 2 * i, 5.0 + 3 * i]
        assert a is w and a.tolist() == want and b.tolist() == first.tolist() == want[:1]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_an_argument_that_is_a_view_is_returned_itself(form: str) -> None:
    step = FORMS[form](lambda x: (x, x[:1], x + 1))
    for i in range(CALLS):
        base = numbers(8, i)
        x = base[2:6]
        a, b, _ = step(x)
        assert a is x
        b[0] = 99.0
        assert base.tolist()[2] == 99.0


@pytest.mark.parametrize("form", FORMS)
def test_a_view_and_its_base_are_returned_together(form: str) -> None:
    def pair(x: Tensor) -> tuple[Tensor, ...]:
        y = x * 2
        return y, y[0], y

    step = FORMS[form](pair)
    for i in range(CALLS):
        y, first, again = step(numbers(3, i))
        assert y is again
        y[0] = 5.0
        assert first.item() == 5.0
        first.assign(7.0)
        assert y.tolist() == [7.0, 2.0 * i + 2, 2.0 * i + 4]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_gradient_that_is_returned_is_the_gradient(form: str) -> None:
    w = numbers(2, 1)
    w.requires_grad = True

    def gradient(x: Tensor) -> Tensor:
        w.grad = None
        (w * x).sum().backward()
        return w.grad

    step = FORMS[form](gradient)
    for i in range(CALLS):
        g = step(numbers(2, i))
        assert g is w.grad and g.tolist() == [i, i + 1]
        g.assign(g.clamp(0, 1))
        assert w.grad.tolist() == [min(i, 1), 1]


@pytest.mark.parametrize("form", ["eager", "jit"])
def test_a_tensor_from_outside_as_a_gradient_is_that_tensor(form: str) -> None:
    a, b, other = numbers(2), numbers(2), numbers(2, 5)
    a.requires_grad = b.requires_grad = True

    def swap(x: Tensor) -> Tensor:
        a.grad = other
        b.grad = x
        return x + 1

    step = FORMS[form](swap)
    for i in range(CALLS):
        x = numbers(2, i)
        step(x)
        assert a.grad is other and b.grad is x
        other.assign(other + 1)
        assert a.grad.tolist() == [6.0 + i, 7.0 + i]
        a.grad = b.grad = None


def test_a_donated_argument_is_not_returned_itself() -> None:
    step = jit(lambda x: (x, x + 1), donate="x")
    for i in range(CALLS):
        x = numbers(3, i)
        a, b = step(x)
        assert a is not x and a.tolist() == [i, i + 1, i + 2] and b.tolist() == [i + 1, i + 2, i + 3]


def test_a_function_with_a_gradient_of_its_own_returns_what_has_it() -> None:
    reverse = function(lambda x: x, gradient=lambda inputs, grads: -grads[0])
    x = numbers(2, 1)
    x.requires_grad = True
    (reverse(x) * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [-3.0, -3.0]


def test_a_saved_step_returns_its_tensors_and_arguments_themselves(tmp_path: Path) -> None:
    w = numbers(3)

    def update(x: Tensor) -> tuple[Tensor, ...]:
        w.assign(w + x)
        return w, x, w * x, x[1:]

    step = jit(update)
    for _ in range(2):
        step(numbers(3))
    step.save(tmp_path / "a.step", {"w": w})
    loaded = jit.load(tmp_path / "a.step")
    for i in range(CALLS):
        x = numbers(3, i)
        a, b, c, d = loaded(x)
        assert a is loaded.tensors["w"] and b is x
        assert c.tolist() == (a * x).tolist() and d.tolist() == [i + 1, i + 2]


def test_a_step_of_the_form_of_a_gradient_is_saved(tmp_path: Path) -> None:
    w = numbers(2, 1)
    w.requires_grad = True

    def gradient(x: Tensor) -> list[Tensor]:
        w.grad = None
        (w * x).sum().backward()
        return [w.grad, x]

    step = jit(gradient)
    for i in range(2):
        step(numbers(2, i))
    step.save(tmp_path / "a.step", {"w": w})
    loaded = jit.load(tmp_path / "a.step", {"w": w})
    for i in range(CALLS):
        x = numbers(2, i)
        g, same = loaded(x)
        assert g is w.grad and same is x and g.tolist() == [i, i + 1]

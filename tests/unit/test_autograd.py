"""`autograd.grad`, `is_leaf` and `detach_`: values are PyTorch's, plain and captured, and no `.grad` changes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, GradientError, Tensor, function, jit

NUMBERS = {"w": [[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]], "x": [1.0, -2.0, 0.5], "v": [0.3, 0.1, -0.7]}
Case = Callable[[Any, Any, Any, Any], Any]  # (library, w, x, v) -> gradients


def leaves(library: Any) -> list[Any]:
    return [library.tensor(values, requires_grad=True) for values in NUMBERS.values()]


def _hessian_times_vector(m: Any, w: Any, x: Any, v: Any) -> Any:
    (first,) = m.autograd.grad(((w @ x).tanh() ** 2).sum(), x, create_graph=True)
    return m.autograd.grad((first * v.detach()).sum(), [x])


def _penalty(m: Any, w: Any, x: Any, v: Any) -> Any:
    (first,) = m.autograd.grad((w @ x).sigmoid(), x, m.tensor([1.0, 1.0]), create_graph=True)
    loss = ((first * first).sum().sqrt() - 1) ** 2
    return m.autograd.grad(loss, (w, x))


def _third(m: Any, w: Any, x: Any, v: Any) -> Any:
    (first,) = m.autograd.grad((x**4).sum(), x, create_graph=True)
    (second,) = m.autograd.grad(first.sum(), x, create_graph=True)
    return m.autograd.grad(second.sum(), x)


CASES: dict[str, Case] = {
    "one": lambda m, w, x, v: m.autograd.grad((w @ x).sum(), x),
    "several": lambda m, w, x, v: m.autograd.grad(((w @ x) ** 3).sum(), [w, x]),
    "sequences": lambda m, w, x, v: m.autograd.grad([(w @ x).sum(), (x * v).exp()], [v, w, x], [None, v.detach()]),
    "an output twice": lambda m, w, x, v: m.autograd.grad([x * v, x * v], [x], [v.detach(), x.detach()]),
    "an output that is an input": lambda m, w, x, v: m.autograd.grad([x, (x * x).sum()], x, [v.detach(), None]),
    "unused": lambda m, w, x, v: m.autograd.grad((x * x).sum(), [v, x, w], allow_unused=True),
    "zeros": lambda m, w, x, v: m.autograd.grad((x * x).sum(), [v, x, w], materialize_grads=True),
    "Hessian times vector": _hessian_times_vector,
    "gradient penalty": _penalty,
    "third": _third,
}


def arrays(found: Any) -> list[Any]:
    return [None if g is None else g.detach().numpy() for g in found]


def same(found: list[Any], wanted: list[Any]) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("is_captured", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_torch(name: str, is_captured: bool) -> None:
    theirs = leaves(torch)
    wanted = CASES[name](torch, *theirs)
    assert isinstance(wanted, tuple)
    ours = leaves(monolect)
    call: Any = lambda *ts: CASES[name](monolect, *ts)  # noqa: E731
    step = jit(call) if is_captured else call
    for _ in range(3):
        found = step(*ours)
        assert isinstance(found, tuple)
        same(arrays(found), arrays(wanted))
    assert all(t.grad is None for t in ours)


def test_leaves_from_outside_of_a_step_and_of_a_function() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)

    def gradient(x: Tensor) -> Tensor:
        return monolect.autograd.grad(((w * x) ** 2).sum(), w)[0]

    for f in (jit(gradient), function(gradient)):
        for k in (1.0, 2.0, 3.0):
            assert f(Tensor([k, 1.0])).tolist() == [2 * k * k, 4.0]
    w.assign([3.0, 4.0])
    for f in (jit(gradient), function(gradient)):
        assert f(Tensor([1.0, 1.0])).tolist() == [6.0, 8.0]


def test_gradients_that_exist_stay_and_a_graph_is_kept_where_asked_for() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 3).sum().backward()
    y = (x * x).sum()
    for _ in range(2):
        (g,) = monolect.autograd.grad(y, x, retain_graph=True)
        assert g.tolist() == [2.0, 4.0] and g.is_leaf and not g.requires_grad
    assert x.grad is not None and x.grad.tolist() == [3.0, 3.0]
    monolect.autograd.grad(y, x)
    with pytest.raises(GradientError, match="a second time"):
        monolect.autograd.grad(y, x)
    assert y.item() == 5.0


def test_errors() -> None:
    x, other = Tensor([1.0, 2.0], requires_grad=True), Tensor([1.0], requires_grad=True)
    grad = monolect.autograd.grad
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (GradientError, "an unused input", lambda: grad((x * x).sum(), [x, other])),
        (GradientError, "computed from leaves", lambda: grad((y := x * x).sum(), y)),
        (GradientError, "requires no gradient", lambda: grad((x * x).sum(), Tensor([1.0]))),
        (GradientError, "reaches no leaf", lambda: grad(Tensor([1.0]) * 2, x, allow_unused=True)),
        (GradientError, "without a gradient", lambda: grad(x * x, x)),
        (GradientError, "is not float", lambda: grad(Tensor([1]), x)),
        (GradientError, "does not match", lambda: grad(x * x, x, Tensor([1.0]))),
        (ArgumentError, "grad_outputs", lambda: grad([x * x], x, [x, x])),
        (ArgumentError, "inputs", lambda: grad(x.sum(), [])),
        (ArgumentError, "outputs: not a tensor", lambda: grad([1.0], x)),  # type: ignore[list-item]
        (ArgumentError, "allow_unused", lambda: grad(x.sum(), x, allow_unused=False, materialize_grads=True)),
    ]
    for kind, words, call in cases:
        with pytest.raises(kind, match=words) as error:
            call()
        assert "expected:" in str(error.value) and "found:" in str(error.value)
    assert x.grad is None and other.grad is None


# ---- leaves ----------------------------------------------------------------------------------------------------------
VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "a leaf": lambda m, w: w,
    "computed": lambda m, w: w * 2,
    "computed twice": lambda m, w: (w * 2).exp().sum(),
    "a view": lambda m, w: w[0],
    "detached": lambda m, w: w.detach(),
    "of a detached one": lambda m, w: w.detach() * 2,
    "data": lambda m, w: m.tensor([1.0]),
    "ints": lambda m, w: m.tensor([1]) + 1,
    "an int of a leaf": lambda m, w: w.argmax(),
    "a comparison": lambda m, w: w > 0,
    "in place": lambda m, w: m.tensor([1.0, 2.0]).mul_(w),
}


@pytest.mark.parametrize("name", VALUES)
def test_is_leaf(name: str) -> None:
    found = []
    for m in (torch, monolect):
        w: Any = m.tensor([1.0, 2.0], requires_grad=True)
        t = VALUES[name](m, w)
        found.append(t.is_leaf)
        t.detach().numpy()  # the computed value has the same graph
        found.append(t.is_leaf)
    assert len({*found}) == 1, found


def test_is_leaf_after_backward_without_gradients_and_of_frozen_tensors() -> None:
    for m in (torch, monolect):
        w: Any = m.tensor([1.0], requires_grad=True)
        y = (w * w).sum()
        y.backward()
        assert not y.is_leaf and w.grad.is_leaf
        with m.no_grad():
            assert (w * 2).is_leaf
        before = w * 3
        w.requires_grad_(False)
        assert w.is_leaf and (w * 2).is_leaf and not before.is_leaf


def test_detach_in_place() -> None:
    for m in (torch, monolect):
        w: Any = m.tensor([3.0], requires_grad=True)
        x = w * 2
        before = x * 1.5
        assert x.detach_() is x and x.is_leaf
        (x * w + before).sum().backward()
        assert w.grad.tolist() == [9.0]
        assert w.detach_() is w and not w.requires_grad
        plain = m.tensor([1.0])
        assert plain.detach_() is plain
    with pytest.raises(GradientError, match="detach_ of a view"):
        Tensor([[1.0, 2.0]], requires_grad=True).T.detach_()


def test_a_captured_loop_that_cuts_its_state() -> None:
    """Backpropagation through a window of steps: the state crosses from call to call, and no gradient does."""
    found = []
    for is_captured in (False, True):
        w, state = Tensor([0.5], requires_grad=True), Tensor([1.0])

        def step(x: Tensor, w: Tensor = w, state: Tensor = state) -> Tensor:
            h = (w * state + x).tanh()
            (g,) = monolect.autograd.grad((w * h).sum(), w)
            state.assign(h.detach_())
            return g

        run = jit(step) if is_captured else step
        found.append([run(Tensor([k])).item() for k in (0.1, 0.2, 0.3, 0.4)])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)

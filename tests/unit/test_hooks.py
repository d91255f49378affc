"""Hooks of gradients are PyTorch's, eager and in captured steps; a hook that would not be called is refused."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import monolect
from monolect import ArgumentError, GradientError, JitError, Tensor, function, jit, optim
from tests.strategies import often

A = np.arange(6, dtype=np.float32).reshape(2, 3) / 4 + 0.5
Make = Callable[[np.ndarray], Any]


def leaf(lib: Any, make: Make) -> list[Any]:
    x, seen = make(A).requires_grad_(True), []
    first = x.register_hook(lambda g: seen.append(g) or g * 2)
    x.register_hook(lambda g: g + 1)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    first.remove()
    first.remove()
    (x * 3).sum().backward()
    return [x.grad, *seen, *lib.autograd.grad((x * 5).sum(), x)]


def used_twice(lib: Any, make: Make) -> list[Any]:
    x, seen = make(A).requires_grad_(True), []
    y = x * x
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: (seen.append(g), None)[1])
    y.retain_grad()
    (y.exp().sum() + y[0].sum() + (y * 3).sum()).backward()
    (y.detach() * x).sum().backward()
    return [x.grad, y.grad, *seen, y]


def kept_twice(lib: Any, make: Make) -> list[Any]:
    x = make(A).requires_grad_(True)
    y = (x * 2).sum(0)
    y.retain_grad()
    y.retain_grad()
    (y * y).sum().backward(retain_graph=True)
    (y * 3).sum().backward()
    x.retain_grad()
    return [x.grad, y.grad, y.retains_grad, x.retains_grad]


def views(lib: Any, make: Make) -> list[Any]:
    x = make(A).requires_grad_(True)
    row, column = x[1], (x * 2)[:, 0]
    row.register_hook(lambda g: g * 10)
    column.retain_grad()
    ((row * row).sum() + (column * column).sum()).backward()
    return [x.grad, column.grad]


def recurrent(lib: Any, make: Make) -> list[Any]:
    w, h = make(A[:, :2]).requires_grad_(True), make(A[0, :2])
    for _ in range(3):
        h = lib.tanh(h @ w)
        h.register_hook(lambda g: g.clamp(-0.1, 0.1))
    h.sum().backward()
    return [w.grad]


def written(lib: Any, make: Make) -> list[Any]:
    """A hook of the value before a write, and one of the value after it."""
    x = make(A).requires_grad_(True)
    y = x * 1  # the node of `x`
    y.register_hook(lambda g: g * 2)
    y *= 3
    y.register_hook(lambda g: g * 5)
    y.sum().backward()
    return [x.grad]


def steps_of_leaves(lib: Any, make: Make) -> list[Any]:
    x, seen = make(A).requires_grad_(True), []

    def step(p: Any) -> None:
        with lib.no_grad():
            p -= 0.1 * p.grad
        p.grad = None

    x.register_post_accumulate_grad_hook(step)
    for _ in range(4):
        (x * x).sum().backward()
        seen.append(x.detach().clone())
    return [x, x.grad is None, *seen]


@pytest.mark.parametrize("program", [leaf, used_twice, kept_twice, views, recurrent, written, steps_of_leaves])
def test_hooks_are_those_of_pytorch(program: Callable[[Any, Make], list[Any]]) -> None:
    for _ in range(often(2, 8)):  # a graph that was built before has its gradients as a function elsewhere
        pairs = zip(program(monolect, Tensor), program(torch, torch.tensor), strict=True)
        for ours, theirs in (
            (a, b) if isinstance(b, bool) else (a.detach().numpy(), b.detach().numpy()) for a, b in pairs
        ):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_equal_values_have_hooks_of_their_own() -> None:
    x = Tensor(A, requires_grad=True)
    a = x * 2
    a.register_hook(lambda g: g * 10)
    b = x * 2
    b.register_hook(lambda g: g * 100)
    (a + b).sum().backward()
    assert x.grad.tolist() == np.full((2, 3), 220.0).tolist()


def test_steps_see_hooks_that_come_and_go() -> None:
    losses: list[list[float]] = []
    for lib, make, wrap in ((monolect, Tensor, jit), (torch, torch.tensor, lambda f: f)):
        w, scale = make(A * 0.1).requires_grad_(True), make(np.float32(2.0))
        optimizer = (optim if lib is monolect else torch.optim).SGD([w], lr=0.05)

        def step(x: Any) -> Any:
            optimizer.zero_grad()  # noqa: B023
            h = (x @ w).tanh()  # noqa: B023
            h.register_hook(lambda g: g * 3)
            loss = (h * h).sum()
            loss.backward()
            optimizer.step()  # noqa: B023
            return loss

        run, mine = wrap(step), []
        for k in range(15):
            x = np.random.default_rng(k).standard_normal((4, 2)).astype(np.float32)
            if k == 4:
                hook = w.register_hook(lambda g: g * scale)  # noqa: B023
            if k == 7:
                scale.fill_(0.5)
            if k == 9:
                hook.remove()
            if k == 12:
                w.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(0.25), None)[1])
            mine.append(run(make(x)).item())
        losses.append([*mine, *w.detach().numpy().ravel().tolist()])
    np.testing.assert_allclose(*losses, rtol=1e-3, atol=1e-5)


def test_hooks_that_would_not_be_called_are_refused() -> None:
    x = Tensor(A, requires_grad=True)

    def used(x: Tensor) -> None:
        y = x * 2
        _kept = y + 1
        y.register_hook(print)

    def computed(x: Tensor) -> None:
        (x * 2).realize().retain_grad()

    for refused in (used, computed):
        with pytest.raises(GradientError, match="a value without uses"):
            refused(x)
    with pytest.raises(GradientError, match="a tensor that a gradient flows to"):
        Tensor(A).register_hook(print)
    with pytest.raises(GradientError, match="a leaf with requires_grad"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(ArgumentError, match="hook"):
        x.register_hook(3)  # type: ignore[arg-type]

    @jit
    def inside(z: Tensor) -> Tensor:
        x.register_hook(print)
        return (x * z).sum()

    @function
    def traced(z: Tensor) -> Tensor:
        y = z * 2
        y.register_hook(print)
        return y

    for step, given in ((inside, Tensor(1.0)), (traced, x)):
        with pytest.raises(JitError, match="register_hook in a captured or traced function"):
            step(given)

    @jit
    def by_argument(p: Tensor, z: Tensor) -> Tensor:
        loss = (p * z).sum()
        loss.backward()
        return loss

    for _ in range(4):
        by_argument(x, Tensor(2.0))
    hook = x.register_hook(lambda g: g * 2)
    with pytest.raises(JitError, match="a hook of an argument's gradient"):
        by_argument(x, Tensor(2.0))
    hook.remove()
    by_argument(x, Tensor(2.0))


def test_a_hook_returns_the_same_kind_of_gradient() -> None:
    for wrong in (lambda g: g[0], lambda g: g.double(), lambda g: 3):
        x = Tensor(A, requires_grad=True)
        x.register_hook(wrong)
        with pytest.raises((GradientError, ArgumentError)):
            (x * 2).sum().backward()
        assert x.grad is None


def test_a_value_with_a_hook_is_freed() -> None:
    x = Tensor(A, requires_grad=True)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    gone = weakref.ref(y)
    del y
    gc.collect()
    assert gone() is None

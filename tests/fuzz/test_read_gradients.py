"""Random steps and functions in each other that read gradients, of tensors from outside, of views and of arguments.

A level multiplies its argument by the gradient of a tensor where there is one, reads whether it is a leaf, and calls
the next level. Between the calls gradients are set, cleared and written to, by arrays, constants and views. Each call
gives what PyTorch gives.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from monolect import JitError, MonolectError, Tensor, function, jit
from monolect.capture import function as functions
from monolect.capture import recording
from monolect.capture.gradients import initial_gradients, is_supplied
from monolect.runtime.replay.in_progress import changes

FEW = max(10, settings().max_examples // 3)
WRAPS: tuple[Callable, ...] = (lambda f: f, jit, function, lambda f: function(f, precompile=True))


def program(lib: Any, r: random.Random, has_wraps: bool) -> list[np.ndarray]:
    """What each call of the program returns."""

    def tensor(values: Any) -> Any:
        return torch.tensor(np.array(values)) if lib is torch else Tensor(np.array(values))

    base = tensor(np.arange(6.0))
    leaves = [tensor([1.0, 2.0]).requires_grad_(), base[1:3].detach().requires_grad_(), tensor([3.0, 4.0])]
    levels: list[Callable] = []

    def level(which: list[int], inner: Callable | None, hands_on: int) -> Callable:
        def f(x: Any) -> Any:
            out = x * 0.5
            for k in which:
                t = x if k == 3 else leaves[k]
                out = out + (1 if t.requires_grad else 0) + (x * t if t.grad is None else x * t.grad)
            given = x if hands_on == 3 else leaves[hands_on]
            return out if inner is None else out + inner(given)

        wrap = r.choice(WRAPS)
        return wrap(f) if has_wraps else f

    for _ in range(r.randrange(1, 4)):
        inner = r.choice([*levels, None]) if levels else None
        levels.append(level([r.randrange(4) for _ in range(r.randrange(3))], inner, r.randrange(4)))
    out = []
    for _ in range(10):
        t, how = r.choice(leaves[:2]), r.randrange(7)
        if how == 0:
            t.grad = None
        elif how == 1:
            t.grad = tensor([float(r.randrange(9)), 1.0])
        elif how == 2:
            value = float(r.randrange(9))
            t.grad = torch.full((2,), value, dtype=torch.float64) if lib is torch else tensor([1.0, 1.0]) * 0 + value
        elif how == 3:
            t.grad = base[3:5]
        elif how == 4 and t.grad is not None:
            t.grad.fill_(r.randrange(9))
        elif how == 5:
            t.requires_grad_(not t.requires_grad)
        given = r.choice([*leaves, tensor([5.0, 6.0])])
        before = [t.grad for t in leaves]
        out.append(r.choice(levels)(given).detach().numpy().copy())
        assert all(t.grad is g for t, g in zip(leaves, before, strict=True))
    return out


def differs(seed: int) -> bool:
    """Whether the program of a seed differs from PyTorch's. An argument that is reached from outside, too, ends it."""
    wanted = program(torch, random.Random(seed), has_wraps=False)
    try:
        found = [program(Tensor, random.Random(seed), has_wraps) for has_wraps in (False, True)]
    except JitError as e:
        if "also reaches from outside" in str(e):
            return False
        raise
    return any(not np.allclose(a, b) for values in found for a, b in zip(values, wanted, strict=True))


def test_gradients_that_are_read_are_those_of_the_call(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the program of seed {seed}"


class Alone:
    """Captures around a trace take no note of the gradients that it reads."""

    def __get__(self, instance: Any, owner: Any) -> Any:
        return instance.captures[-1:]

    def __set__(self, instance: Any, value: Any) -> None:
        pass


PLANTED: dict[str, tuple[Any, str, Any]] = {
    "a trace tells nobody what it reads": (type(changes), "enclosing", Alone()),
    "the value of a view has no gradient": (functions, "_value_of_view", lambda t: t._kind._wrap(t._uop)),
    "gradients of views are not looked at": (
        recording,
        "initial_gradients",
        lambda *parts: [(t, g) for t, g in initial_gradients(*parts) if not t._is_view or is_supplied(g)],
    ),
}


# seeds that are tried before all others
FOUND_BY = {
    "a trace tells nobody what it reads": 74,
    "the value of a view has no gradient": 16,
    "gradients of views are not looked at": 13,
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name], raising=False)
    assert any(_fails(seed) for seed in (FOUND_BY.get(name, 0), *range(100)))


def _fails(seed: int) -> bool:
    try:
        return differs(seed)
    except (MonolectError, AssertionError):
        return True

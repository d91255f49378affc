"""Random programs whose leaves are views of one memory, read in `@function`s and steps in each other, beside PyTorch.

A level multiplies its argument by leaves, by their base, or by leaves that are arguments, and calls the level below.
Between the calls the memory is written to, and leaves are frozen.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from monolect import Tensor, function, jit
from monolect.capture.environment.dependencies import Dependencies

FEW = max(8, settings().max_examples // 6)
PARTS = ((0, 3), (2, 5), (3, 6), (1, 4))
OPERATIONS = ("leaf", "leaf", "base", "object", "argument", "below", "square")
WRAPS: tuple[Callable, ...] = (lambda f: f, function, function, lambda f: function(f, precompile=True))


class Holder:
    leaf: Any


def made(lib: Any, r: random.Random) -> tuple[Any, list[Any], Callable]:
    """The memory, its views that are leaves, and a program of an argument."""
    values = np.random.default_rng(r.randrange(10**6)).uniform(0.5, 1.5, 6)
    flat = torch.tensor(values) if lib is torch else Tensor(values)
    leaves = [flat[a:b].detach().requires_grad_() for a, b in PARTS]
    levels: list[Callable] = []
    for n in range(r.randrange(1, 4)):
        plan = [(r.choice(OPERATIONS), r.randrange(4)) for _ in range(r.randrange(1, 4))]
        wrap, holder = r.choice(WRAPS), Holder()
        holder.leaf = leaves[r.randrange(4)]

        def level(x: Any, given: Any, plan: Any = plan, holder: Holder = holder, inner: list = levels[:n]) -> Any:
            for operation, k in plan:
                if operation == "leaf":
                    x = x * leaves[k]
                elif operation == "base":
                    x = x + flat[k % 3 : k % 3 + 3]
                elif operation == "object":
                    x = x * holder.leaf + 1
                elif operation == "argument":
                    x = x * given[0] + given[1]
                elif operation == "below" and inner:
                    x = inner[k % len(inner)](x, given)
                elif operation == "square":
                    x = x * x * 0.5
            return x * leaves[0]

        levels.append(level if lib is torch else wrap(level))
    return flat, leaves, levels[-1]


def trajectory(lib: Any, seed: int, is_step: bool) -> list[Any]:
    r = random.Random(seed)
    flat, leaves, f = made(lib, r)

    def step(x: Any, k: int, second: Any) -> Any:
        for leaf in leaves:
            leaf.grad = None
        loss = f(x, (leaves[k], second)).sum()
        loss.backward()
        return loss.detach() * 1

    run = jit(step) if is_step and lib is not torch else step
    out = []
    for _ in range(4):
        x = np.random.default_rng(r.randrange(100)).standard_normal(3)
        change, k = r.randrange(4), r.randrange(1, 4)
        out.append(run(torch.tensor(x) if lib is torch else Tensor(x), k, flat.detach()[:3] * 1).item())
        out += [None if leaf.grad is None else np.array(leaf.grad.tolist()) for leaf in leaves]
        if change == 0:
            flat[1:4] = 0.75
        elif change == 1:
            leaves[k].requires_grad_(not leaves[k].requires_grad)
    return out


def differs(seed: int, is_step: bool) -> bool:
    found, wanted = trajectory(Tensor, seed, is_step), trajectory(torch, seed, is_step)
    pairs = zip(found, wanted, strict=True)
    return any((a is None) != (b is None) or (a is not None and not np.allclose(a, b)) for a, b in pairs)


@pytest.mark.sweep
@pytest.mark.parametrize("is_step", [False, True])
def test_gradients_agree_with_pytorch(is_step: bool, start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed, is_step), f"the program of seed {seed}"


def test_the_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaf that is a view is only a part of its base."""
    note = Dependencies._tensor

    def note_base_alone(self: Any, t: Any) -> None:
        nodes = dict(self.nodes)
        note(self, t)
        if t._is_view:
            self.nodes = nodes

    monkeypatch.setattr(Dependencies, "_tensor", note_base_alone)
    monkeypatch.setattr("monolect.capture.function._views_as_leaves", lambda found: [])
    assert any(differs(seed, False) for seed in range(20))

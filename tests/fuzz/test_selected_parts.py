"""Random programs of parts that Variables select, whose Variables have other values later, beside PyTorch.

In a block a Variable has one value: parts are computed, viewed, written, differentiated, given to steps. Afterwards it
has another. A computed value and a gradient are those of their block, a view is the part of the value that holds when
it is read.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect import Tensor, Variable, function, jit
from tests.strategies import often

FEW = often(3, 250)
N = Variable("n", 0, 4)
PARTS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda t, n: t[n], lambda t, n: t[: n + 1], lambda t, n: t[n : n + 2], lambda t, n: t[4 - n],
    lambda t, n: t[:, 1][n],
)  # fmt: skip
VALUES: tuple[Callable[[Any], Any], ...] = (
    lambda p: p * 1, lambda p: p * 2, lambda p: (p * 1).reshape(-1), lambda p: (p * 1).detach(), lambda p: p.clone(),
    lambda p: p.exp(), lambda p: p + 0.0, lambda p: (p * 1)[..., None], lambda p: p.sum(),
)  # fmt: skip
ACTIONS = ("value", "value", "step", "step", "view", "write", "gradient", "gradient")


class World:
    def __init__(self, lib: Any, wrap: Callable, values: np.ndarray):
        self.lib, self.wrap = lib, wrap
        tensor = torch.tensor if lib is torch else lambda a: Tensor(a.copy())
        self.leaf, self.table = tensor(values).requires_grad_(), tensor(values * 0.5)
        self.part, self.of = PARTS[0], VALUES[0]
        self.results: list[Any] = []
        self.views: list[tuple[Any, Callable]] = []
        self.steps: dict[tuple[int, int], Callable] = {}

    def step(self, part: int, of: int) -> Callable:
        def made(t: Any, n: Any) -> Any:
            return VALUES[of](PARTS[part](t, n))

        return self.steps.setdefault((part, of), self.wrap(made) if self.lib is Tensor else made)

    def act(self, action: str, part: int, of: int, n: Any) -> None:
        p = PARTS[part](self.table, n)
        if action == "value":
            self.results.append(VALUES[of](p))
        elif action == "step":
            self.results.append(self.step(part, of)(self.table, n))
        elif action == "view":
            self.views.append((self.table if self.lib is torch else p, PARTS[part]))
        elif action == "write":
            p *= 0.5
        elif action == "gradient":
            loss = (VALUES[of % 2](PARTS[part](self.leaf, n)) * 1.5).sum()
            if of % 3 == 0:
                self.results.append(loss.detach() if self.lib is torch else loss.realize().detach())
            loss.backward()
        if self.lib is Tensor and (action == "value" or (action == "step" and self.wrap is not jit)):
            self.results[-1].realize()  # a captured step computes its results

    def seen(self, k: int) -> list[np.ndarray]:
        views = [w(t, k) if self.lib is torch else t for t, w in self.views[-2:]]
        grad = [] if self.leaf.grad is None else [self.leaf.grad]
        found = (*views, *self.results, *grad)
        return [(t.detach() if self.lib is torch else t).numpy().copy() for t in found]


def program(lib: Any, wrap: Callable, seed: int) -> list[np.ndarray]:
    r = random.Random(seed)
    world = World(lib, wrap, np.random.default_rng(seed).standard_normal((6, 3)))
    out = []
    for _ in range(6):
        k, other, looks = r.randrange(5), r.randrange(5), r.random() < 0.5
        actions = [(r.choice(ACTIONS), r.randrange(len(PARTS)), r.randrange(len(VALUES))) for _ in range(2)]
        if r.random() < 0.4:  # a table that is not computed
            world.table = world.table * 1.25
        with N.bind(k):
            for action in actions:
                world.act(*action, k if lib is torch else N)
        if looks:
            with N.bind(other):
                out += world.seen(other)
    with N.bind(2):
        return out + world.seen(2)


def differs(seed: int, wrap: Callable) -> bool:
    found, wanted = program(Tensor, wrap, seed), program(torch, wrap, seed)
    return not all(a.shape == b.shape and np.allclose(a, b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.sweep
@pytest.mark.parametrize("wrap", [lambda f: f, jit, function])
def test_parts_agree_with_pytorch(wrap: Callable, start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed, wrap), f"the program of seed {seed}"


PLANTED = {
    "a part of memory counts as computed": ("monolect.tensor.view.is_steered", lambda u: False),
    "gradients wait": ("monolect.tensor.tensor.bound_to", lambda u: None),
    "views keep what they first showed": ("monolect.tensor.view._follows_variable", lambda t: False),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert any(differs(seed, wrap) for seed in range(40) for wrap in (lambda f: f, jit))

"""Random programs whose states and arguments carry graphs into captured steps and out of them, beside PyTorch.

Between calls tensors are assigned what was computed from a leaf, and losses of them go backward; a step reads, scales,
replaces or detaches them. A gradient is PyTorch's or is refused: it never is one of an earlier value, and no part of
it is missing.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect import GradientError, Tensor, jit
from tests.strategies import often

FEW = often(12, 1000)
STEPS: dict[str, Callable] = {
    "read": lambda h, y, x: h * x,
    "metric": lambda h, y, x: y * x,
    "both": lambda h, y, x: (h + y) * x,
    "replaced": lambda h, y, x: (h.copy_(h.detach() * 0.5 + x), x * 2)[1],
    "replaced by an argument": lambda h, y, x: (h.copy_(y.detach() * x), y * 2)[1],
    "replaced by rows": lambda h, y, x: (h.copy_(h.flip(0).detach() * x), x * 2)[1],
    "from the leaf": lambda h, y, x: (h.copy_(y * x + h.detach()), x * 2)[1],
}
BETWEEN = ("assign", "assign", "detach", "loss", "loss", "realize", "own memory")


def gradients(lib: Any, seed: int, wrap: Callable) -> list[Any]:
    """The gradients of the leaf after each loss of the program of a seed; None from where one is refused."""
    r = random.Random(seed)

    def tensor(values: Any) -> Any:
        return torch.tensor(values, dtype=torch.float64) if lib is torch else Tensor(np.array(values))

    p = tensor([0.5, 1.5]).requires_grad_()
    h = tensor([0.1, 0.2])
    body = STEPS[r.choice(sorted(STEPS))]
    step = wrap(lambda y, x: body(h, y, x))
    found: list[Any] = []
    for i in range(6):
        for action in r.choices(BETWEEN, k=r.randrange(3)):
            if action == "assign":
                h.copy_(p * (i + 1.0))
            elif action in ("detach", "own memory"):
                h.copy_(h.detach().clone())
            elif action == "realize" and lib is not torch:
                h.realize()
            elif action == "loss":
                found.append(loss(p, h * 1.0))
        y = p * (i + 2.0)
        step(y, tensor(0.5 * i + 0.5))
        found.append(loss(p, y if r.random() < 0.5 else h + y))
        if found[-1] is None or found[0] is None:
            return [*found, h.detach().numpy().copy()]
    return [*found, h.detach().numpy().copy()]


def loss(p: Any, y: Any) -> Any:
    p.grad = None
    try:
        ((y * y).sum() + (p * p).sum()).backward(retain_graph=True)
    except GradientError:
        return None
    return p.grad.detach().numpy().copy()


def differs(seed: int) -> bool:
    wanted = gradients(torch, seed, lambda f: f)
    for wrap in (lambda f: f, jit):
        found = gradients(Tensor, seed, wrap)
        for a, b in zip(found[:-1], wanted[: len(found) - 1], strict=True):
            if a is None:
                break
            if not np.allclose(a, b, rtol=1e-9, atol=1e-12):
                return True
        if wrap is not jit and any(a is None for a in found):
            return True
    return False


def test_gradients_through_kept_graphs_agree_with_pytorch(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the program of seed {seed}"


def _forgets(self: Tensor, old: Any, new: Any) -> Any:
    if self._uop is old:
        self._uop = new
    return new


PLANTED = {
    "computing an argument forgets its graph": ("monolect.tensor.tensor.Tensor._take_memory", _forgets),
    "states keep the graph of the call that was captured": (
        "monolect.capture.recording._values_without_graph",
        lambda outputs: [],
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert any(differs(seed) for seed in range(60))

"""Random programs that freeze, unfreeze and write to leaves between the values that they compute from them, beside
PyTorch: a value has a gradient for a tensor that was a leaf when the value was written down, computed or not.
"""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from monolect import Tensor

FEW = max(20, settings().max_examples // 2)
ACTIONS = ("value", "value", "value", "product", "freeze", "freeze", "unfreeze", "unfreeze", "write", "backward")


def trajectory(lib: Any, seed: int) -> list[Any]:
    r = random.Random(seed)
    rng = np.random.default_rng(seed)

    def tensor(values: Any) -> Any:
        return torch.tensor(np.array(values)) if lib is torch else Tensor(np.array(values))

    flat = tensor(rng.uniform(0.5, 1.5, 6))
    kinds = [tensor(rng.uniform(0.5, 1.5, 3)), flat[:3].detach(), flat[2:5].detach(), flat[3:] * 1]
    tensors = r.sample(kinds, 2)
    always = tensor([1.0, 2.0, 3.0]).requires_grad_()
    values = [always * 1]
    out = []
    for _ in range(14):
        action, k, looks = r.choice(ACTIONS), r.randrange(2), r.random() < 0.4
        t, scale = tensors[k], tensor(np.round(rng.uniform(0.5, 1.5, 3), 2))
        if action == "value":
            values.append(t * scale)
        elif action == "product":
            values.append(values[k % len(values)] * values[-1])
        elif action == "freeze":
            t.requires_grad_(False)
        elif action == "unfreeze":
            t.requires_grad_()
        elif action == "write" and lib is torch:
            with torch.no_grad():
                t.copy_(t * 0.5 + scale)
        elif action == "write":
            t.assign(t.detach() * 0.5 + scale)
        elif action == "backward":
            loss = sum((v.sum() * (n + 1) for n, v in enumerate(values[-5:])), values[0].sum())
            loss.backward(retain_graph=True)
        if looks and lib is Tensor:
            values[-1].realize()
        out += [None if x.grad is None else np.array(x.grad.tolist()) for x in tensors]
    return out


def differs(seed: int) -> bool:
    pairs = zip(trajectory(Tensor, seed), trajectory(torch, seed), strict=True)
    return any((a is None) != (b is None) or (a is not None and not np.allclose(a, b)) for a, b in pairs)


def test_gradients_agree_with_pytorch(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the program of seed {seed}"


PLANTED = {
    "a leaf keeps the node that it had": ("monolect.tensor.tensor.Tensor._part_from_graphs", lambda t: None),
    "a frozen view keeps the node of the leaf": ("monolect.tensor.tensor.as_frozen", lambda t: None),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert any(differs(seed) for seed in range(400))

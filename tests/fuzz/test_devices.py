"""Random programs whose tensors are on several devices of one memory beside PyTorch, which has one.

Values are taken from device to device, also ones of no axes that have no memory yet; tensors and views are written to
across devices; steps and gradients are those of one device. All tensors agree after each program.
"""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from monolect import MonolectError, Tensor, jit
from monolect.command import forms

FEW = max(12, settings().max_examples // 3)
DEVICES = ("cpu", "python", "python:gpu")
OPS = (
    ("to",) * 5 + ("two", "two", "two", "one", "one", "write", "write", "write", "across", "view", "view", "read")
    + ("step", "call", "call", "loss", "descend")
)  # fmt: skip


class World:
    """What a program has, of one library."""

    def __init__(self, lib: Any, seed: int):
        self.lib, r, rng = lib, random.Random(seed), np.random.default_rng(seed)
        self.names = [self.new(rng.normal(size=shape), r.choice(DEVICES)) for shape in ((), (3,), (2, 3), (), (3,))]
        self.leaves = [self.new(rng.normal(size=3), r.choice(DEVICES)).requires_grad_() for _ in range(2)]
        self.steps: list[tuple[str, Any]] = []

    def new(self, values: Any, device: str) -> Any:
        values = np.array(values)
        return torch.tensor(values) if self.lib is torch else Tensor(values, device=device)

    def to(self, t: Any, device: str) -> Any:
        return t if self.lib is torch else t.to(device)

    def beside(self, t: Any, u: Any) -> Any:
        """`t` on the device of `u`."""
        return self.to(t, str(u.device))

    def act(self, op: str, i: int, j: int, k: int) -> None:
        pick = lambda n: self.names[-1 - n // 2 % 4] if n % 2 else self.names[n // 2 % len(self.names)]  # noqa: E731
        t, u, device = pick(i), pick(j), DEVICES[k % 3]
        other = self.beside(u, t)
        if op == "to":
            self.names.append(self.to(t, device) * 1.0 if k % 2 else self.to(t, device) + 0.5)
        elif op == "two":
            s = other.sum()
            self.names.append(
                (lambda: t + s, lambda: t * s * 0.3, lambda: (t - s).tanh(), lambda: t.sum() + s)[k % 4]()
            )
        elif op == "one":
            self.names.append((t.sum, lambda: t.exp().tanh(), lambda: t * 2, lambda: t.mean() + 1)[k % 4]())
        elif op == "write":
            s = other.sum()
            (lambda: t.copy_(t * 0.5 + s), lambda: t.fill_(0.25), lambda: t.copy_(s), lambda: t.copy_(t.tanh()))[
                k % 4
            ]()
        elif op == "across" and tuple(t.shape) == tuple(u.shape):
            t.copy_(u)
        elif op == "view" and t.ndim:
            self.names.append((lambda: t[0], lambda: t[-1:], lambda: t.reshape(-1))[k % 3]())
        elif op == "read":
            t.numpy()
        else:
            self.with_steps(op, t, j, k, device)

    def with_steps(self, op: str, t: Any, j: int, k: int, device: str) -> None:
        if op == "step":
            state = self.to(t, device) * 1.0

            def step(x: Any) -> Any:
                state.copy_(state * 0.5 + x.sum())
                return state.sum(), state * 2

            self.steps.append((device, step if self.lib is torch else jit(step)))
        elif op == "call" and self.steps:
            device, step = self.steps[k % len(self.steps)]
            self.names += step(self.to(t, device) * 1.0)
        elif op == "loss":
            p, q = self.leaves[k % 2], self.leaves[(k + 1) % 2]
            first = (p * self.beside(t, p).sum().detach()).tanh().sum()
            loss = self.beside(first, q) + (q * q).sum() * 0.1
            loss.backward()
            self.names.append(self.to(loss.detach(), DEVICES[j % 3]) * 1)
        elif op == "descend":
            for p in self.leaves:
                if p.grad is not None:
                    with torch.no_grad():
                        (p.copy_ if self.lib is torch else p.assign)(p.detach() - 0.1 * p.grad)

    def values(self) -> list[Any]:
        return [
            t.detach().numpy() for t in (*self.names, *self.leaves, *(p.grad for p in self.leaves)) if t is not None
        ]


def differs(seed: int) -> str | None:
    """Where the program of a seed differs from PyTorch's."""
    r = random.Random(seed)
    ours, theirs = World(Tensor, seed), World(torch, seed)
    for _ in range(r.choice([6, 12, 20])):
        op, *numbers = r.choice(OPS), r.randrange(1000), r.randrange(1000), r.randrange(1000)
        for world in (ours, theirs):
            world.act(op, *numbers)
            del world.names[14:]
    for k, (a, b) in enumerate(zip(ours.values(), theirs.values(), strict=True)):
        if not np.allclose(a, b, 1e-9, 1e-9):
            return f"value {k} is {a}, not {b}"
    return None


def test_tensors_of_several_devices_agree_with_pytorch(start: int) -> None:
    for seed in range(start, start + FEW):
        found = differs(seed)
        assert found is None, f"the program of seed {seed}: {found}"


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "is_scalar", lambda u: not u.shape)
    assert any(_fails(seed) for seed in range(60))


def _fails(seed: int) -> bool:
    try:
        return differs(seed) is not None
    except (MonolectError, AttributeError, TypeError):
        return True

"""Random programs of parameters, optimizers, gradients and states, in steps that call each other, beside PyTorch.

A world is three parameters, three states of their shapes with views, a counter and an optimizer. Steps are random rows
of operations on them; between the calls others freeze parameters, set the learning rate, read or set gradients, put
back an optimizer. Each program is run eager, captured and with PyTorch, and all names agree after each call.
"""

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from monolect import JitError, Tensor, jit, nn
from tests.strategies import often

FEW = often(2, 125)
INSIDE = (
    "loss", "loss", "loss", "second loss", "update", "update", "clear", "clear", "clear one", "scale", "clip", "set",
    "zero", "descend", "average", "swap", "to parameter", "to state", "keep gradient", "decay", "look at gradient",
    "row", "column", "count", "mask", "rotate", "clone", "call", "evaluate", "shrink",
)  # fmt: skip
BETWEEN = (
    "rate", "freeze", "unfreeze", "read", "read", "hold", "another loss", "put back", "new state", "gradient in a row",
    "new optimizer", "clear one", "scale", "row", "shrink", "to parameter",
)  # fmt: skip
OPTIMIZERS: tuple[tuple[str, dict[str, float]], ...] = (
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.05, "momentum": 0.9}), ("Adam", {"lr": 0.05}), ("RMSprop", {"lr": 0.01}),
)  # fmt: skip


class World:
    """What a program has, of one library."""

    def __init__(self, lib: Any, r: random.Random):
        self.lib, self.optim = lib, torch.optim if lib is torch else nn.optim
        rng = np.random.default_rng(r.randrange(10**6))
        shapes = (4, 3), (3,), (3, 1)
        self.params = [self.tensor(rng.standard_normal(s)).requires_grad_() for s in shapes]
        self.flat = self.tensor(rng.standard_normal(20))
        if r.random() < 0.3:  # parameters that are parts of one memory
            self.params[0] = self.flat[:12].reshape(4, 3).detach().requires_grad_()
            self.params[1] = self.flat[12:15].detach().requires_grad_()
        self.states = [self.tensor(rng.standard_normal(s)) for s in shapes]
        self.row, self.column, self.count = self.states[0][1], self.states[0].T[0], self.tensor(0.0)
        name, options = r.choice(OPTIMIZERS)
        self.optimizer = getattr(self.optim, name)(self.params, **options)
        self.held: list[Any] = []
        self.steps: list[Callable] = []

    def tensor(self, values: Any) -> Any:
        return torch.tensor(np.array(values)) if self.lib is torch else Tensor(np.array(values))

    def write(self, t: Any, value: Any) -> None:
        if self.lib is torch:
            with torch.no_grad():
                t.copy_(value)
        else:
            t.assign(value)

    def output(self, x: Any) -> Any:
        return (x @ self.params[0] + self.params[1]).tanh() @ self.params[2]

    def backward(self, loss: Any) -> None:
        if any(p.requires_grad for p in self.params):
            loss.backward()

    def names(self) -> list[Any]:
        return [*self.params, *self.states, self.flat, self.row, self.column, self.count, *self.held]

    # ---- what steps do -----------------------------------------------------------------------------------------------
    def inside(self, op: str, i: int, x: Any, out: list[Any], inner: list[Callable]) -> None:
        p, s = self.params[i % 3], self.states[i % 3]
        if op == "loss":
            loss = (self.output(x) - x.sum(1, keepdim=True)).square().mean()
            self.backward(loss)
            out.append(loss.detach() * 1.0)
        elif op == "second loss":
            self.backward(self.output(x).sum() * 0.1 + (s * p).sum() * 0.1)
        elif op == "update":
            self.optimizer.step()
        elif op == "clear":
            self.optimizer.zero_grad()
        elif op == "clear one":
            p.grad = None
        elif op == "set":
            p.grad = s * 0.1
        elif op == "descend":
            for q in self.params:
                if q.grad is not None:
                    self.write(q, q.detach() - 0.05 * q.grad)
        elif op == "clip":
            grads = [q.grad for q in self.params if q.grad is not None]
            for g in grads:
                g.copy_(g * (1.0 / (1 + sum(h.square().sum() for h in grads).sqrt())))
        elif op in ("scale", "zero", "keep gradient", "decay", "look at gradient"):
            if p.grad is not None:
                self.with_gradient(op, p, s, out)
        else:
            self.on_states(op, i, x, out, inner)

    def with_gradient(self, op: str, p: Any, s: Any, out: list[Any]) -> None:
        if op == "scale":
            p.grad *= 0.5
        elif op == "zero":
            p.grad.zero_()
        elif op == "keep gradient":
            s.copy_(p.grad)
        elif op == "decay":
            p.grad = p.grad + p.detach() * 0.01
        else:
            out.append((p.grad * p.detach()).sum())

    def on_states(self, op: str, i: int, x: Any, out: list[Any], inner: list[Callable]) -> None:
        p, s, first = self.params[i % 3], self.states[i % 3], self.states[0]
        if op == "average":
            for q, t in zip(self.params, self.states, strict=True):
                t.copy_(t * 0.9 + q.detach() * 0.1)
        elif op == "swap":
            before = p.detach().clone()
            self.write(p, s)
            s.copy_(before)
        elif op == "to parameter":
            self.write(p, s)
        elif op == "to state":
            s.copy_(p.detach())
        elif op == "row":
            self.row.copy_(self.row * 0.5 + self.states[1])
        elif op == "column":
            self.column.copy_(self.column * 0.5 + x[0, 0])
        elif op == "count":
            self.count += 1
            out.append(self.count * 2)
        elif op == "mask":
            first[first > 1.5] = 0.5
        elif op == "rotate":
            before = first[0].clone()
            first[:-1] = first[1:].clone()
            first[3] = before
        elif op == "clone":
            changed = s.clone()
            changed += 1
            out += [changed.sum(), s.sum()]
        elif op == "call" and inner:
            out.append(sum((t.sum() for t in inner[i % len(inner)](x)), x.sum()))
        elif op == "evaluate":
            out.append(self.output(x).detach() * (1 + self.count))
        elif op == "shrink":
            self.flat.copy_(self.flat * 0.9)
            out.append(self.flat.sum())

    # ---- what happens between the calls ------------------------------------------------------------------------------
    def between(self, op: str, i: int, x: Any) -> None:
        p, s = self.params[i % 3], self.states[i % 3]
        if op == "rate" and self.lib is torch:
            self.optimizer.param_groups[0]["lr"] = 0.01 * (i + 1)
        elif op == "rate":
            self.optimizer.lr = 0.01 * (i + 1)
        elif op == "freeze":
            p.requires_grad_(False)
        elif op == "unfreeze":
            for q in self.params:
                q.requires_grad_(True)
        elif op == "read":
            self.held.append(self.count * 1.0 if p.grad is None else p.grad * 1.0)
        elif op == "hold":
            self.held += [s + 0.0, p.detach() * 1.0]
        elif op == "another loss":
            if p.requires_grad:
                (p * s).sum().backward()
        elif op == "put back":
            state = copy.deepcopy(self.optimizer.state_dict())
            self.optimizer.step()
            self.optimizer.load_state_dict(state)
        elif op == "new state":
            self.states[1] = self.tensor(np.full(3, float(i)))
        elif op == "gradient in a row":
            self.params[1].grad = self.states[0][i % 4]
        elif op == "new optimizer":
            self.between("unfreeze", i, x)
            self.optimizer = self.optim.SGD(self.params, lr=0.05, momentum=0.5)
        else:
            self.inside(op, i, x, [], [])


def program(lib: Any, seed: int, wrap: Callable) -> Iterator[list[Any]]:
    """What is read after each action of the program of a seed."""
    r = random.Random(seed)
    world = World(lib, r)

    def made(plan: list[tuple[str, int]], inner: list[Callable]) -> Callable:
        def step(x: Any) -> Any:
            out: list[Any] = []
            for op, i in plan:
                world.inside(op, i, x, out, inner)
            return out

        return wrap(step)

    for n in range(3):
        plan = [(r.choice(INSIDE), r.randrange(6)) for _ in range(r.randrange(1, 8))]
        world.steps.append(made(plan, world.steps[:n]))
    looks = r.random() < 0.7
    for _ in range(12):
        x = world.tensor(np.random.default_rng(r.randrange(100)).standard_normal((2 + r.randrange(2), 4)))
        if r.random() < 0.6:
            yield list(r.choice(world.steps)(x))
        else:
            world.between(r.choice(BETWEEN), r.randrange(6), x)
        yield world.names()
        if looks:
            yield [p.grad for p in world.params]


def trajectory(lib: Any, seed: int, wrap: Callable) -> list[list[Any]]:
    return [[None if t is None else t.detach().numpy().copy() for t in names] for names in program(lib, seed, wrap)]


def differs(seed: int) -> bool:
    """Whether the program of a seed differs from PyTorch's. A gradient that is not kept ends it: nobody looked."""
    wanted = trajectory(torch, seed, lambda f: f)
    if not all(t is None or (np.isfinite(t).all() and np.abs(t).max() < 1e6) for names in wanted for t in names):
        return False
    for wrap in (lambda f: f, jit):
        try:
            found = trajectory(Tensor, seed, wrap)
        except JitError as e:
            if "was not kept" in str(e):
                return False
            raise
        for names, others in zip(found, wanted, strict=True):
            for a, b in zip(names, others, strict=True):
                if (a is None) != (b is None) or (b is not None and not np.allclose(a, b, rtol=1e-8, atol=1e-10)):
                    return True
    return False


def test_worlds_agree_with_pytorch(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the program of seed {seed}"


PLANTED = {
    "captures are not told apart by gradients": ("monolect.capture.step.matches_state", lambda g, state: True),
    "a gradient that a step finds is baked in": (
        "monolect.capture.recording.gradient_supplier",
        lambda brought, stand_in: lambda t, g: g,
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*PLANTED[name])
    assert any(_fails(seed) for seed in range(40))


def _fails(seed: int) -> bool:
    try:
        return differs(seed)
    except Exception:
        return True

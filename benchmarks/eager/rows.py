"""The programs: single operations on tiny tensors, steps of training without `jit`, and a loop of policy gradients.

Each row is a function that returns the call of each installed library, and the number of operations or steps that one
call makes. A call returns what NumPy can read, and the same at each call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.host.turns import Calls, peers
from monolect import Tensor, nn

Call = Callable[[], Any]
NUMBERS = 10  # operations with another number each in one call of `scaled`
STEPS = 10  # of an episode of `policy_gradient`; long enough that its loss is a graph of hundreds of nodes
STATE, HIDDEN, ACTIONS, BATCH = 4, 16, 3, 8
RATE = 0.0  # the weights stay, so that each call has the same result
_rng = np.random.default_rng(0)
A, B = (_rng.standard_normal(16).astype(np.float32) for _ in range(2))
M = _rng.standard_normal((8, 8)).astype(np.float32)
X = _rng.standard_normal((BATCH, STATE)).astype(np.float32)
W1 = _rng.standard_normal((STATE, HIDDEN)).astype(np.float32)
W2 = _rng.standard_normal((HIDDEN, ACTIONS)).astype(np.float32)


def in_each_library(work: Callable[..., Any], *arrays: np.ndarray) -> Calls:
    """The calls of work that all libraries say alike: `work(*operands)` returns an array."""
    ours = [Tensor(a).realize() for a in arrays]

    def torch() -> Call:
        import torch

        given = [torch.from_numpy(a) for a in arrays]
        return lambda: work(*given)

    def jax() -> Call:
        import jax

        given = [jax.numpy.asarray(a) for a in arrays]
        return lambda: jax.block_until_ready(work(*given))

    return peers(lambda: work(*ours).realize(), numpy=lambda: lambda: work(*arrays), torch=torch, jax=jax)


# ---- single operations -----------------------------------------------------------------------------------------------
def add() -> Calls:
    return in_each_library(lambda a, b: a + b, A, B)


def scaled() -> Calls:
    """NUMBERS products by a number; all numbers but the last of a call were never seen before."""
    numbers = (1 + k * 2.0**-20 for k in itertools.count())

    def work(x: Any, computed: Callable[[Any], Any]) -> Any:
        for number in itertools.islice(numbers, NUMBERS - 1):
            computed(x * number)
        return computed(x * 0.5)

    def torch() -> Call:
        import torch

        x = torch.from_numpy(A)
        return lambda: work(x, lambda y: y)

    def jax() -> Call:
        import jax

        x = jax.numpy.asarray(A)
        return lambda: work(x, jax.block_until_ready)

    ours = Tensor(A).realize()
    return peers(lambda: work(ours, Tensor.realize), numpy=lambda: lambda: work(A, lambda y: y), torch=torch, jax=jax)


def total() -> Calls:
    return in_each_library(lambda a: a.sum(), A)


def product() -> Calls:
    return in_each_library(lambda a: a @ a, M)


def chain() -> Calls:
    return in_each_library(lambda a, b: ((a + b) * b - a) / (b * b) + a, A, B)


def rows() -> Calls:
    """Each row of a matrix, by its index, plus 1."""
    ours = Tensor(M).realize()

    def torch() -> Call:
        import torch

        m = torch.from_numpy(M)
        return lambda: [m[i] + 1 for i in range(len(M))][-1]

    def jax() -> Call:
        import jax

        m = jax.numpy.asarray(M)
        return lambda: [jax.block_until_ready(m[i] + 1) for i in range(len(M))][-1]

    return peers(
        lambda: [(ours[i] + 1).realize() for i in range(len(M))][-1],
        numpy=lambda: lambda: [M[i] + 1 for i in range(len(M))][-1], torch=torch, jax=jax,
    )  # fmt: skip


# ---- networks --------------------------------------------------------------------------------------------------------
def forward() -> Calls:
    def torch() -> Call:
        import torch

        x, w1, w2 = map(torch.from_numpy, (X, W1, W2))
        return lambda: torch.tanh(x @ w1) @ w2

    def jax() -> Call:
        import jax

        x, w1, w2 = map(jax.numpy.asarray, (X, W1, W2))
        return lambda: jax.block_until_ready(jax.numpy.tanh(x @ w1) @ w2)

    x, w1, w2 = (Tensor(a).realize() for a in (X, W1, W2))
    return peers(
        lambda: ((x @ w1).tanh() @ w2).realize(), numpy=lambda: lambda: np.tanh(X @ W1) @ W2, torch=torch, jax=jax
    )


def training() -> Calls:
    """Forward, backward and a step of SGD, whose graphs each call builds."""

    def torch() -> Call:
        import torch

        x, w1, w2 = (torch.from_numpy(a.copy()) for a in (X, W1, W2))
        optimizer = torch.optim.SGD([w1.requires_grad_(), w2.requires_grad_()], lr=RATE)
        return lambda: _trained(optimizer, lambda: (torch.tanh(x @ w1) @ w2).square().mean()).detach()

    def jax() -> Call:
        import jax

        x, *weights = map(jax.numpy.asarray, (X, W1, W2))
        loss = jax.value_and_grad(lambda w: ((jax.numpy.tanh(x @ w[0]) @ w[1]) ** 2).mean())

        def step() -> Any:
            value, gradients = loss(weights)
            weights[:] = [jax.block_until_ready(w - RATE * g) for w, g in zip(weights, gradients, strict=True)]
            return value

        return step

    x = Tensor(X).realize()
    w1, w2 = (Tensor(w.copy()).realize().requires_grad_() for w in (W1, W2))
    optimizer = nn.optim.SGD([w1, w2], lr=RATE)
    return peers(
        lambda: _trained(optimizer, lambda: ((x @ w1).tanh() @ w2).square().mean()).realize(), torch=torch, jax=jax
    )


def _trained(optimizer: Any, forward: Callable[[], Any]) -> Any:
    """The loss, after a step of the optimizer that lowers it."""
    optimizer.zero_grad()
    loss = forward()
    loss.backward()
    optimizer.step()
    return loss


def policy_gradient() -> Calls:
    """Two episodes in an environment of NumPy's, each followed by a step of Adam: one that was never seen, then one
    that is the same at each call. The actions are drawn from the network's own probabilities.
    """

    def of(w1: Any, w2: Any, tensor: Callable[[np.ndarray], Any], optimizer: Any) -> Call:
        seeds = itertools.count(1)

        def episode(seed: int) -> Any:
            draws = np.random.default_rng(seed)
            chances, rewards = [], []
            for _ in range(STEPS):
                state = draws.standard_normal(STATE).astype(np.float32)
                p = ((tensor(state) @ w1).tanh() @ w2).softmax(-1)
                found = p.detach().numpy().astype(np.float64)
                action = int(draws.choice(ACTIONS, p=found / found.sum()))
                chances.append(p[action].log())
                rewards.append(float(state[action]))
            returns = np.cumsum(rewards[::-1])[::-1].tolist()
            loss = _trained(optimizer, lambda: -sum(c * r for c, r in zip(chances, returns, strict=True)))
            return loss.item()

        def call() -> Any:
            episode(next(seeds))
            return episode(0)

        return call

    def torch() -> Call:
        import torch

        w1, w2 = (torch.from_numpy(w.copy()).requires_grad_() for w in (W1, W2))
        return of(w1, w2, torch.from_numpy, torch.optim.Adam([w1, w2], lr=RATE))

    w1, w2 = (Tensor(w.copy()).realize().requires_grad_() for w in (W1, W2))
    return peers(of(w1, w2, Tensor, nn.optim.Adam([w1, w2], lr=RATE)), torch=torch)


ROWS: dict[str, tuple[Callable[[], Calls], int, str]] = {  # (row, operations or steps of a call, goal)
    "(a + b).realize(), 16 floats": (add, 1, "8"),
    "x * number, each time another": (scaled, NUMBERS, ""),
    "x.sum()": (total, 1, ""),
    "8x8 @ 8x8": (product, 1, ""),
    "five operations, then realize": (chain, 1, ""),
    "m[i] + 1, row by row": (rows, len(M), ""),
    "forward of an MLP": (forward, 1, ""),
    "forward, backward, SGD": (training, 1, ""),
    f"policy gradient, an episode of {STEPS} steps": (policy_gradient, 2, "0.25x"),
}


__all__ = ["ROWS"]

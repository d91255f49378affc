"""Random steps that copy, swap and rotate states, some of which had one memory before, beside PyTorch."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from monolect import JitError, Tensor, jit
from tests.strategies import often

N = 4  # states
OPS = ("copy", "copy", "swap", "add", "same", "row", "column", "argument", "part", "fill", "augment", "rotate", "mask")


def program(lib: Any, r: random.Random, wrap: Callable) -> Iterator[list[Any]]:
    """The states and the results after each call of one of two random steps."""

    def tensor(values: np.ndarray) -> Any:
        return torch.tensor(values) if lib is torch else Tensor(values.copy())

    rng = np.random.default_rng(r.randrange(1000))
    states = [tensor(rng.integers(-3, 4, (2, 3)).astype(float)) for _ in range(N)]
    for _ in range(r.randrange(4)):  # one memory
        i, j, how = r.randrange(N), r.randrange(N), r.choice(("one", "copy", "batch", "rows"))
        if how == "one":
            states[i] = states[j].clone() if lib is torch else states[j] * 1.0
        elif how == "copy":
            states[i].copy_(states[j])
        elif how == "batch":
            states[i], states[j] = states[j] * 2, states[j] * 2
            if lib is not torch:
                states[i].realize(states[j])
        elif i != j:
            base = tensor(np.stack([s.numpy() for s in (states[i], states[j])]))
            states[i], states[j] = base[0], base[1]

    def made(plan: list[tuple[str, int, int, int]], returned: list[int]) -> Any:
        def step(x: Any) -> Any:
            for op, i, j, k in plan:
                apply(op, states, i, j, k, x)
            return tuple(states[i] * 1.0 + x[0, 0] for i in returned)

        return wrap(step)

    def row() -> tuple[str, int, int, int]:
        return r.choice(OPS), r.randrange(N), r.randrange(N), r.randrange(3)

    steps = [
        made([row() for _ in range(r.randrange(1, 6))], [r.randrange(N) for _ in range(r.randrange(3))])
        for _ in range(2)
    ]
    array = np.zeros((2, 3))
    for _ in range(8):
        array[...] = rng.integers(-3, 4, (2, 3))
        is_shared = r.random() < 0.5
        x = (torch.from_numpy(array) if lib is torch else Tensor(array)) if is_shared else tensor(array)
        yield [t.numpy().copy() for t in (*r.choice(steps)(x), *states)]
        array[...] = 99.0
        yield [t.numpy().copy() for t in states]
        if r.random() < 0.3:
            apply(r.choice(("copy", "augment", "fill", "row")), states, r.randrange(N), r.randrange(N), 1, states[0])


def apply(op: str, states: list[Any], i: int, j: int, k: int, x: Any) -> None:
    a, b = states[i], states[j]
    if op == "copy":
        a.copy_(b)
    elif op == "swap":
        before = a.clone()
        a.copy_(b)
        b.copy_(before)
    elif op == "add":
        a.copy_(a + b)
    elif op == "same":
        a.copy_(b + x)
        b.copy_(b + x)
    elif op == "row":
        a[0] = b[1]
    elif op == "column":
        a.T[k] = b.T[(k + 1) % 3]
    elif op == "argument":
        a.copy_(x)
    elif op == "part":
        a[k % 2] = x[0]
    elif op == "fill":
        a.fill_(k)
    elif op == "augment":
        a += x
    elif op == "rotate":
        first = states[0].clone()
        for s, t in zip(states, states[1:], strict=False):
            s.copy_(t)
        states[-1].copy_(first)
    else:
        a[a > b] = k


def differs(seed: int) -> bool:
    """Whether the program of a seed differs from PyTorch's, eager or captured."""
    wanted = [*program(torch, random.Random(seed), lambda f: f)]
    for wrap in (lambda f: f, jit):
        for found, other in zip(program(Tensor, random.Random(seed), wrap), wanted, strict=True):
            if not all(np.array_equal(a, b) for a, b in zip(found, other, strict=True)):
                return True
    return False


def test_states_agree_with_pytorch(request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("--hypothesis-seed")
    start = random.Random(seed).randrange(10**6)
    for k in range(start, start + often(6, 100)):
        assert not differs(k), f"the program of seed {k}"


PLANTED: dict[str, dict[str, Callable]] = {
    "states of one value are one": {
        "monolect.capture.recording.separate_storage": lambda assigned: None,
        "monolect.runtime.replay.record.Counter": lambda afters: defaultdict(lambda: 1),
    },
    "what is in memory is not copied": {"monolect.tensor.tensor.in_own_memory": lambda u: u},
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, fault in PLANTED[name].items():
        monkeypatch.setattr(target, fault)
    assert any(_fails(seed) for seed in range(60))


def _fails(seed: int) -> bool:
    try:
        return differs(seed)
    except JitError:
        return True

"""Random views of views that are read between the calls of steps which write through them, beside NumPy: a view shows
the memory after each call, also one that is computed when it is read, such as a diagonal of every other row.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from monolect import Tensor, jit
from monolect.tensor import view as views

FEW = max(20, settings().max_examples // 3)
VIEWS: tuple[tuple[Callable[[Any], Any], Callable[[Any], Any]], ...] = (
    (lambda t: t[::2], lambda a: a[::2]),
    (lambda t: t.transpose(0, 1), lambda a: a.T),
    (lambda t: t[:, 1:], lambda a: a[:, 1:]),
    (lambda t: t[:, ::-1], lambda a: a[:, ::-1]),
    (lambda t: t[1::3], lambda a: a[1::3]),
)


def differs(seed: int) -> bool:
    r = random.Random(seed)
    array = np.random.default_rng(seed).integers(0, 9, (6, 6)).astype(float)
    base, wanted = Tensor(array.copy()), array.copy()
    part, expected = base, wanted
    for _ in range(r.randrange(3)):
        ours, theirs = r.choice(VIEWS)
        if min(part.shape) > 2:
            part, expected = ours(part), theirs(expected)
    if r.random() < 0.6:
        n = min(part.shape)
        part, expected = part.diagonal(), np.einsum("ii->i", expected[:n, :n])

    def step(x: Any, scale: int) -> Any:
        part[:1] += x
        part.copy_(part * scale)
        return x * 1

    run = jit(step)
    for _ in range(6):
        x, scale, looks = r.randrange(3), r.randrange(1, 3), r.randrange(3)
        run(Tensor(float(x), dtype="float64"), scale)
        expected[:1] += x
        expected *= scale
        if looks == 0 and not np.array_equal(part.numpy(), expected):
            return True
        if looks == 1 and not np.array_equal(base.numpy(), wanted):
            return True
    return not (np.array_equal(part.numpy(), expected) and np.array_equal(base.numpy(), wanted))


def test_views_show_the_memory_after_each_call(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the program of seed {seed}"


def test_the_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view of memory keeps the value that was computed for it."""

    def settle(t: Any, before: Any, value: Any) -> None:
        t._view.node = value

    monkeypatch.setattr("monolect.tensor.tensor.settle", settle)
    assert views.settle is not settle and any(differs(seed) for seed in range(60))

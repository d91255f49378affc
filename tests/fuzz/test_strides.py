"""Random views of values that nobody holds, beside PyTorch: whether `reshape` and `contiguous` of one are views does
not depend on when it was computed, read, given to a step or returned by one.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from monolect import Tensor, function, jit
from tests.strategies import often

FEW = often(6, 500)
WRAPS: tuple[Callable, ...] = (lambda f: f, jit, function, lambda f: function(f, precompile=True))
VIEWS: tuple[Callable[[Any], Any], ...] = (
    lambda t: t.transpose(0, 1), lambda t: t[:, 1:], lambda t: t[1:], lambda t: t[:, ::2], lambda t: t.movedim(0, -1),
    lambda t: t[::2], lambda t: t.unsqueeze(1), lambda t: t.transpose(0, -1), lambda t: t[..., :2],
    lambda t: t.detach(),
)  # fmt: skip
SHAPES: tuple[Callable[[Any], Any], ...] = (
    lambda t: t.reshape(-1), lambda t: t.contiguous(), lambda t: t.flatten(), lambda t: t[None].reshape(1, -1),
    lambda t: t.reshape(t.shape[0], -1), lambda t: t,
)  # fmt: skip


def program(lib: Any, r: random.Random, has_wraps: bool) -> list[np.ndarray]:
    array = np.arange(float(4 * 6)).reshape(4, 6)
    x = torch.tensor(array) if lib is torch else Tensor(array)
    chain = [r.choice(VIEWS) for _ in range(r.randrange(1, 4))]

    def made(x: Any) -> Any:
        y = x * 2
        for v in chain:
            y = v(y)
        return y

    def wrapped(f: Callable) -> Callable:
        wrap = r.choice(WRAPS)
        return wrap(f) if has_wraps else f

    f, g = wrapped(made), wrapped(lambda y: y + 1)
    out = []
    for k in range(3):
        y = f(x)
        if not y.numel():
            return out
        for _ in range(r.randrange(3)):
            how = r.randrange(4)
            if how == 0:
                y.numpy()
            elif how == 1:
                out.append((y.sum() + 1).numpy())
            elif how == 2:
                out.append(g(y).numpy())
            else:
                y[0] = -1.0
        r.choice(SHAPES)(y)[0] = 100.0 + k
        r.choice(SHAPES)(y)[-1] = 200.0 + k
        out.append(y.numpy().copy())
    return out


def differs(seed: int) -> bool:
    wanted = program(torch, random.Random(seed), has_wraps=False)
    return any(
        not np.array_equal(a, b)
        for has_wraps in (False, True)
        for a, b in zip(program(Tensor, random.Random(seed), has_wraps), wanted, strict=True)
    )


def test_strides_do_not_depend_on_what_was_computed(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the program of seed {seed}"


@pytest.mark.sweep
@pytest.mark.parametrize("where", ["monolect.tensor.view", "monolect.capture.returned"])
def test_planted_faults_are_found(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{where}.is_row_major", lambda t: True)
    assert any(differs(seed) for seed in range(60))

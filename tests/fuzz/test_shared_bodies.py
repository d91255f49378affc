"""Random `@function`s that are one body over different tensors: some name tensors that they do not use, leaves are
frozen meanwhile. Whichever was called or differentiated first, values and gradients are those of the plain function.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from monolect import Tensor, function
from monolect.autograd import gradient

FEW = max(6, settings().max_examples // 4)
FORMULAS: dict[str, Callable[..., Tensor]] = {
    "sum": lambda x, a, b: (x * a * b).sum(),
    "rows": lambda x, a, b: (x.reshape(2, 2) * a[:2]).sum(1) * b[2:],
    "whole": lambda x, a, b: (x * a).tanh() * b,
    "one": lambda x, a, b: (x * a).exp().mean(),
}


def made(r: random.Random, formula: Callable[..., Tensor], a: Tensor, b: Tensor, precompile: bool) -> Any:
    """A function of that formula, which also names scalars and rows, found after what it uses."""
    spare = [Tensor(np.full(r.choice([(), (4,), (2,)]), 50.0 + k)) for k in range(r.randrange(4))]

    def f(x: Tensor) -> Tensor:
        y = formula(x, a, b)
        for t in spare:
            assert t.ndim < 2
        return y

    return f, function(f, precompile=precompile)


def differs(seed: int) -> bool:
    """Whether a value or a gradient of the functions of a seed is not that of the plain one."""
    r = random.Random(seed)
    rng = np.random.default_rng(seed)
    a, b = (Tensor(rng.standard_normal(4), requires_grad=True) for _ in range(2))
    names, precompile = r.sample(sorted(FORMULAS), 2), r.random() < 0.3
    functions = [made(r, FORMULAS[r.choice(names)], a, b, precompile) for _ in range(4)]
    for _ in range(6):
        plain, fast = r.choice(functions)
        for t in (a, b):
            t.requires_grad = r.random() < 0.8
        x, found, twice = Tensor(rng.standard_normal(4), requires_grad=True), [], r.random() < 0.2
        for f in (plain, fast):
            x.grad = a.grad = b.grad = None
            y = f(x)
            weights = Tensor(np.arange(1.0, 1.0 + y.numel()).reshape(y.shape))
            (y * weights + y if twice else y * weights).sum().backward()
            found.append([None if t.grad is None else t.grad.numpy().copy() for t in (x, a, b)] + [y.numpy()])
        for one, other in zip(*found, strict=True):
            if (one is None) != (other is None) or (one is not None and not np.allclose(one, other, rtol=1e-9)):
                return True
    return False


def test_functions_of_one_body_have_their_own_gradients(start: int) -> None:
    for seed in range(start, start + FEW):
        assert not differs(seed), f"the functions of seed {seed}"


class _Fewer(dict):
    """Derivatives of a body, taken for those of a call with any number of arguments."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key[1:], value)


class _Derivatives(dict):
    def setdefault(self, body: Any, default: Any = None) -> Any:
        return super().setdefault(body, _Fewer())


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives that do not depend on the number of arguments."""
    monkeypatch.setattr(gradient, "_derivatives", _Derivatives())
    assert any(_fails(seed) for seed in range(30))


def _fails(seed: int) -> bool:
    try:
        return differs(seed)
    except Exception:
        return True

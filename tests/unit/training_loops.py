"""What whole training loops share: the table of them, how they are compared, and small networks.

A loop is a function of a facade, which hides how the libraries differ, and of a random generator for its data. It
yields what it reads on the way, and at the end its weights and state. It is run three times: eager, captured, and with
PyTorch as the oracle. All of it is compared to 1e-9, in float64.
"""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from monolect import Tensor
from tests.unit.both_libraries import Captured, Eager, PyTorch


# ---- the table -------------------------------------------------------------------------------------------------------
class Loop(NamedTuple):
    run: Any
    captures: tuple[int, ...]  # of each step, in the order in which the loop makes them


class Loops(dict[str, Loop]):
    """Loops by name."""

    def loop(self, name: str, *captures: int) -> Any:
        def register(run: Any) -> Any:
            assert name not in self
            self[name] = Loop(run, captures)
            return run

        return register


def read(value: Any) -> Any:
    """What a loop yields as arrays."""
    if isinstance(value, dict):
        return {k: read(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [read(v) for v in value]
    if isinstance(value, torch.Tensor):
        return value.detach().numpy().copy()
    return np.array(value.numpy() if isinstance(value, Tensor) else value)


def trajectory(lib: Eager, run: Any) -> list[Any]:
    return [read(value) for value in run(lib, np.random.default_rng(5))]


def compare(found: Any, wanted: Any, where: str) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted), where
        for key, value in wanted.items():
            compare(found[key], value, f"{where}, {key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            compare(a, b, f"{where}, {i}")
    else:
        assert found.dtype == wanted.dtype and found.shape == wanted.shape, where
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12, err_msg=where)


def check(loop: Loop, folder: Path) -> None:
    """Raise AssertionError unless a loop computes the same in its three forms, with as many captures as it names."""
    wanted = trajectory(PyTorch(folder), loop.run)
    assert all(np.isfinite(a).all() for a in leaves_of(wanted))
    compare(trajectory(Eager(folder), loop.run), wanted, "eager")
    lib = Captured(folder)
    compare(trajectory(lib, loop.run), wanted, "captured")
    assert lib.counts() == loop.captures


def leaves_of(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, dict | list):
        for v in value.values() if isinstance(value, dict) else value:
            yield from leaves_of(v)
    else:
        yield value


# ---- what loops share ------------------------------------------------------------------------------------------------
def network(lib: Any, rng: Any, *sizes: int) -> list[Any]:
    """Weight and bias of each layer of a small network."""
    return [lib.leaf(rng.standard_normal(s) / 2) for a, b in pairwise(sizes) for s in ((a, b), (b,))]


def apply(params: list[Any], x: Any) -> Any:
    for w, b in zip(params[:-2:2], params[1:-2:2], strict=True):
        x = (x @ w + b).tanh()
    return x @ params[-2] + params[-1]


def error(params: list[Any], x: Any, y: Any) -> Any:
    return (apply(params, x) - y).square().mean()


def problem(lib: Any, rng: Any, rows: int = 12) -> tuple[Any, Any]:
    """Inputs and targets of a regression."""
    x = rng.standard_normal((rows, 3))
    return lib.tensor(x), lib.tensor(np.sin(x.sum(1, keepdims=True)))


def batches(x: Any, y: Any, size: int = 4) -> Any:
    for i in range(0, len(x), size):
        yield x[i : i + size], y[i : i + size]


def clear(params: list[Any]) -> None:
    for p in params:
        p.grad = None


def descend(lib: Any, params: list[Any], rate: Any = 0.1) -> None:
    """Plain gradient descent, by hand."""
    for p in params:
        lib.write(p, p - rate * p.grad)
        p.grad = None

"""Random eager programs, computed by the short way of values that are known (`runtime/known.py`) and without it: equal
bits, and NumPy's values.

A program has names: each is a Tensor and an array that share memory with the same other names. Single operations are
computed at once or later, in batches or alone; parts are views; writes go through any name; products by a leaf are
differentiated after their values were computed, or before; captured steps read names and change a state. All numbers
are small multiples of 1/2**k, so most results are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from monolect import Tensor, jit
from monolect.runtime import known
from monolect.runtime.realize import execute, varied
from monolect.tensor import tensor as tensor_module

START = np.arange(12, dtype=np.float32).reshape(3, 4) % 5 - 2
BINARY = (
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: a.maximum(b), np.maximum),
    (lambda a, b: a.minimum(b) * 0.5, lambda a, b: np.minimum(a, b) * np.float32(0.5)),
)
UNARY = (
    (lambda a, c: -a, lambda a, c: -a),
    (lambda a, c: a * c, lambda a, c: a * np.float32(c)),
    (lambda a, c: a + c, lambda a, c: a + np.float32(c)),
    (lambda a, c: a.sum(-1, keepdim=True) * 0.25 + a, lambda a, c: a.sum(-1, keepdims=True) * np.float32(0.25) + a),
    (lambda a, c: (a > 0).where(a, c), lambda a, c: np.where(a > 0, a, np.float32(c))),
    (lambda a, c: a.amax(), lambda a, c: a.max()),
)
PARTS = (
    lambda a, k: a[..., k:],
    lambda a, k: a[..., ::2],
    lambda a, k: a[k] if len(a.shape) > 1 else a,
    lambda a, k: a.T if len(a.shape) == 2 else a,
    lambda a, k: a[..., :1],
)


class Program:
    """The names, a leaf with the gradient that is expected, and steps that change a state."""

    def __init__(self) -> None:
        self.names: list[tuple[Tensor, np.ndarray]] = []
        for k in range(2):
            array = START + k
            self.names.append((Tensor(array.copy()).realize(), array))
        self.leaf = Tensor(np.full(4, 2, np.float32), requires_grad=True)
        self.gradient = np.zeros(4, np.float32)
        self.products: list[tuple[Tensor, np.ndarray]] = []  # of the leaf, with the gradient of their sums
        self.state, self.state_array = Tensor(np.zeros(4, np.float32)).realize(), np.zeros(4, np.float32)
        self.step = jit(self._step)

    def _step(self, x: Tensor) -> Tensor:
        y = (x + self.state).realize()
        self.state.assign(self.state * 0.5 + x)
        return y - 1

    def pick(self, a: int) -> tuple[Tensor, np.ndarray]:
        return self.names[-1 - a % len(self.names)]

    def act(self, kind: int, a: int, b: int, c: int) -> None:
        (x, n), (y, m) = self.pick(a), self.pick(b)
        actions = (self.binary, self.binary, self.unary, self.unary, self.part, self.write, self.read, self.both)
        more = (self.times_leaf, self.backward, self.call)
        [*actions, *more][kind % 11](x, n, y, m, c)

    def keep(self, x: Tensor, n: Any, c: int) -> None:
        if c % 3:
            x.realize()
        self.names.append((x, np.array(n, np.float32)))

    def binary(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        try:
            np.broadcast_shapes(n.shape, m.shape)
        except ValueError:
            y, m = x, n
        ours, theirs = BINARY[c % len(BINARY)]
        self.keep(ours(x, y), theirs(n, m), c)

    def unary(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        ours, theirs = UNARY[c % len(UNARY)]
        number = (-1.0, 0.5, 1.0, 0.25, 2.0)[c // 7 % 5]
        if n.ndim:
            self.keep(ours(x, number), theirs(n, number), c)

    def part(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        make, k = PARTS[c % len(PARTS)], c // 5 % 2
        if n.ndim and n.shape[0] > k and n.shape[-1] > k:
            self.names.append((make(x, k), make(n, k)))

    def write(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        if c % 2 and n.shape == m.shape:
            x.assign(y + 1)
            n[...] = m + 1
        elif n.ndim:
            x[..., 0] = 0.5
            n[..., 0] = 0.5

    def read(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        np.testing.assert_allclose(x.numpy(), n, rtol=1e-5, atol=1e-5)

    def both(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        x.realize(y)

    def times_leaf(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        if n.shape[-1:] == (4,):
            product = x * self.leaf
            if c % 2:
                product.realize()
            self.products.append((product, n.reshape(-1, 4).sum(0)))

    def backward(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        if self.products:
            product, gradient = self.products.pop(c % len(self.products))
            (product * 2).sum().backward()
            self.gradient = self.gradient + 2 * gradient

    def call(self, x: Tensor, n: np.ndarray, y: Tensor, m: np.ndarray, c: int) -> None:
        if n.shape == (4,):
            out = self.step(x)
            want = n + self.state_array - 1
            self.state_array = self.state_array * np.float32(0.5) + n
            self.names.append((out, want))

    def results(self) -> list[np.ndarray]:
        found = [x.numpy().copy() for x, _ in self.names]
        for values, (_, n) in zip(found, self.names, strict=True):
            np.testing.assert_allclose(values, n, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(self.state.numpy(), self.state_array, rtol=1e-5, atol=1e-5)
        found.append(self.state.numpy().copy())
        if self.leaf.grad is not None:
            found.append(self.leaf.grad.numpy().copy())
            np.testing.assert_allclose(found[-1], self.gradient, rtol=1e-5, atol=1e-5)
        return found


def run(actions: list[tuple[int, int, int, int]]) -> list[np.ndarray]:
    program = Program()
    for action in actions:
        program.act(*action)
    return program.results()


small = st.integers(0, 40)


@given(st.lists(st.tuples(small, small, small, small), min_size=3, max_size=14))
def test_the_short_way_has_the_bits_of_the_long_one(actions: list[tuple[int, int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_module, "run_known", lambda u: None)
        want = run(actions)
    for _ in range(2):  # the second time more is known
        found = run(actions)
        assert [(x.shape, x.tobytes()) for x in found] == [(x.shape, x.tobytes()) for x in want]


def test_the_short_way_is_taken() -> None:
    """Otherwise the test above tests nothing."""
    taken = []

    def run_known(u: Any) -> Any:
        value = known.run_known(u)
        taken.append(value is not None)
        return value

    actions = [(k, 3 * k + j, 2 * k, 5 * j + k) for j in range(3) for k in range(11)]
    execute.plans.clear()
    varied._programs.clear()
    run(actions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_module, "run_known", run_known)
        run(actions)
    assert sum(taken) > 5

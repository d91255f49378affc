"""Random programs of a few methods and several results beside PyTorch, at sizes where the optimizer does its work.

Each method has tests of its own; here is what a kernel makes of two of them: running sums beside sums of rows, written
by place, moved, multiplied. Results are computed together, then as a captured step.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor, jit

FEW = max(20, settings().max_examples // 2)
SIZES = (1, 2, 3, 5, 12, 31, 64, 127, 237)
MOST = 400_000  # elements of a value
Step = Callable[[Any], Any]  # of a Tensor of either library
Draw = Any


def both(array: np.ndarray) -> Callable[[Any], Any]:
    """The array in the library of the value that is given."""
    ours, theirs = Tensor(array).realize(), torch.from_numpy(array)
    return lambda like: ours if isinstance(like, Tensor) else theirs


def integers(draw: Draw, most: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(draw(st.integers(0, 99))).integers(0, most, shape)


def permutation(draw: Draw, shape: tuple[int, ...], axis: int) -> np.ndarray:
    return np.argsort(np.random.default_rng(draw(st.integers(0, 99))).random(shape), axis)


# ---- methods: each takes how to draw, a shape and an axis ------------------------------------------------------------
def picked(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at = both(integers(draw, shape[a], (draw(st.sampled_from(SIZES)),)))
    return lambda x: x.index_select(a, at(x))


def gathered(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at = both(integers(draw, shape[a], shape))
    return lambda x: x.gather(a, at(x))


def added_by_place(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at = both(integers(draw, shape[a], shape))
    return lambda x: (x * 0).scatter_add(a, at(x), x) * 0.1


def slices_added(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at = both(integers(draw, shape[a], shape[a : a + 1]))
    return lambda x: (x * 0).index_add(a, at(x), x) * 0.1


def scattered(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at = both(permutation(draw, shape, a))
    return lambda x: (x * 0).scatter(a, at(x), x)


def moved(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    axes = tuple(draw(st.permutations(range(len(shape)))))
    return lambda x: x.permute(axes)


def part(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    low = draw(st.integers(0, shape[a] - 1))
    key = (*[slice(None)] * a, slice(low, draw(st.integers(low + 1, shape[a])), draw(st.sampled_from((1, 2)))))
    return lambda x: x[key]


def product(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    w = both(np.random.default_rng(0).normal(size=(shape[-1], draw(st.sampled_from(SIZES)))).astype(np.float32))
    return lambda x: x @ w(x).to(x.dtype) * shape[-1] ** -0.5


def same(f: Callable[[Any, int], Any]) -> Callable[[Draw, tuple[int, ...], int], Step]:
    return lambda draw, shape, a: lambda x: f(x, a)


METHODS = {
    "relu": same(lambda x, a: x.relu()),
    "tanh": same(lambda x, a: x.tanh()),
    "cumsum": same(lambda x, a: x.cumsum(a) * 0.1),
    "cumprod": same(lambda x, a: (x.tanh() * 0.1 + 1).cumprod(a)),
    "cummax": same(lambda x, a: x.cummax(a)[0]),
    "sum": same(lambda x, a: x.sum(a, keepdim=True) * 0.1),
    "centred": same(lambda x, a: x - x.mean(a, keepdim=True)),
    "scaled": same(lambda x, a: x * ((x * x).mean(a, keepdim=True) + 1e-3).rsqrt()),
    "softmax": same(lambda x, a: x.softmax(a)),
    "largest": same(lambda x, a: x + x.amax(a, keepdim=True)),
    "flip": same(lambda x, a: x.flip(a)),
    "squares": same(lambda x, a: x @ x.transpose(-1, -2) * 0.05),
    "moved": moved,
    "part": part,
    "product": product,
    "picked": picked,
    "gathered": gathered,
    "added by place": added_by_place,
    "slices added": slices_added,
    "scattered": scattered,
}
PAIRS = {
    "plus": lambda x, y: x + y,
    "times": lambda x, y: x * y * 0.5,
    "larger": lambda x, y: x.maximum(y),
}


class Program:
    """Values by number: two inputs, then each of `steps`, (name, numbers of what it takes, function)."""

    def __init__(self, draw: Draw):
        self.shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=3)))
        while np.prod(self.shape) > MOST:
            self.shape = (*self.shape[:-1], self.shape[-1] // 2)
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.inputs = [rng.normal(size=self.shape).astype(np.float32) for _ in range(2)]
        self.values = [torch.from_numpy(x).double() for x in self.inputs]
        self.steps: list[tuple[str, list[int], Callable[..., Any]]] = []
        for _ in range(draw(st.integers(2, 7))):
            self.add(draw)
        asked = draw(st.sets(st.integers(2, len(self.values) - 1), max_size=3))
        self.results = sorted(asked | {len(self.values) - 1})

    def add(self, draw: Draw) -> None:
        last = len(self.values) - 1
        k = draw(st.just(last) | st.integers(0, last))
        shape = tuple(self.values[k].shape)
        fits = [n for n, v in enumerate(self.values) if self.together(shape, tuple(v.shape))]
        if draw(st.integers(0, 2)) == 0:
            name, takes = draw(st.sampled_from(sorted(PAIRS))), [k, draw(st.sampled_from(fits))]
            f: Callable[..., Any] = PAIRS[name]
        else:
            name, takes = draw(st.sampled_from(sorted(METHODS))), [k]
            f = METHODS[name](draw, shape, draw(st.integers(0, len(shape) - 1)))
        value = f(*(self.values[n] for n in takes))
        if 0 < value.numel() <= MOST and value.abs().max() < 1e4:
            self.steps.append((name, takes, f))
            self.values.append(value)
        else:
            self.steps.append(("half", [k], lambda x: x * 0.5))
            self.values.append(self.values[k] * 0.5)

    @staticmethod
    def together(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        try:
            return int(np.prod(np.broadcast_shapes(a, b))) <= MOST
        except ValueError:
            return False

    def run(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = [*inputs]
        for _, takes, f in self.steps:
            values.append(f(*(values[n] for n in takes)))
        return tuple(values[k] for k in self.results)

    def check(self, got: tuple[Tensor, ...]) -> None:
        for k, t in zip(self.results, got, strict=True):
            want = self.values[k].numpy()
            tolerance = 2e-3 * (np.abs(want).max() + 1e-3)
            np.testing.assert_allclose(t.numpy(), want, rtol=0, atol=tolerance, err_msg=f"value {k} of {self}")

    def __repr__(self) -> str:
        return f"{self.shape} {[(name, takes) for name, takes, _ in self.steps]} -> {self.results}"


@settings(max_examples=FEW)
@given(st.data())
def test_several_results_are_those_of_pytorch(data: Any) -> None:
    program = Program(data.draw)
    inputs = [Tensor(x).realize() for x in program.inputs]
    together = program.run(*inputs)
    together[0].realize(*together[1:])
    program.check(together)
    step = jit(program.run)
    step(*inputs)
    program.check(step(*inputs))

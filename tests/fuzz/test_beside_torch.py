"""Random programs of a few methods and several results beside PyTorch, at sizes where the optimizer does its work.

Each method has tests of its own; here is what a kernel makes of two of them: running sums beside sums of rows, written
by place, moved, joined, multiplied. Results are computed together, then as a captured step; gradients of their sum, and
the same of a part of symbolic size, whose results are those of the part for each size it is bound to.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from monolect import Tensor, Variable, jit
from tests.strategies import often

FEW = max(20, settings().max_examples // 2)
SIZES = (1, 2, 3, 5, 12, 31, 64, 127, 237)
OTHER = 11  # a size that no axis has
MOST = 400_000  # elements of a value
FILLS = (0.0, 0.5)  # around a value that is padded
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


def zeros(shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """Not x * 0: what two read is computed first, and no kernel meets both."""
    z = both(np.zeros(shape, np.float32))
    return lambda like: z(like).to(like.dtype)


def added_by_place(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at, z = both(integers(draw, shape[a], shape)), zeros(shape)
    return lambda x: z(x).scatter_add(a, at(x), x) * 0.1


def slices_added(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at, z = both(integers(draw, shape[a], shape[a : a + 1])), zeros(shape)
    return lambda x: z(x).index_add(a, at(x), x) * 0.1


def scattered(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    at, z = both(permutation(draw, shape, a)), zeros(shape)
    return lambda x: z(x).scatter(a, at(x), x)


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


def padded(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    ends = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    if isinstance(shape[a], int) and draw(st.booleans()):
        return lambda x: x.roll(ends[0], a)
    widths, fill = (0, 0) * (len(shape) - 1 - a) + ends, draw(st.sampled_from(FILLS))

    def f(x: Any) -> Any:
        return x.pad(widths, value=fill) if isinstance(x, Tensor) else torch.nn.functional.pad(x, widths, value=fill)

    return f


def convolved(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    """Along the last axis of three, channels those before; of fewer axes, the last is shifted and added."""
    taps, stride = draw(st.sampled_from((1, 3, 5))), draw(st.sampled_from((1, 2)))
    if len(shape) != 3 or shape[1] > 64:
        return lambda x: x + x.roll(taps, -1)
    w = both(
        np.random.default_rng(1).normal(size=(draw(st.sampled_from((1, 4, 17))), shape[1], taps)).astype(np.float32)
    )
    scale = (shape[1] * taps) ** -0.5
    of = {True: Tensor.conv1d, False: torch.nn.functional.conv1d}
    return lambda x: of[isinstance(x, Tensor)](x, w(x).to(x.dtype), None, stride, taps // 2) * scale


def attended(draw: Draw, shape: tuple[int, ...], a: int) -> Step:
    causal = draw(st.booleans())

    def f(x: Any) -> Any:
        if isinstance(x, Tensor):
            return x.scaled_dot_product_attention(x * 0.5, x, is_causal=causal)
        scores = x @ x.transpose(-1, -2) * (0.5 * x.shape[-1] ** -0.5)
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1) & causal
        return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ x

    return f


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
    "log of sums": same(lambda x, a: x - x.logsumexp(a, keepdim=True)),
    "largest": same(lambda x, a: x + x.amax(a, keepdim=True)),
    "sum without its axis": same(lambda x, a: x.sum(a) * 0.1 if x.ndim > 2 else x * 0.5),
    "cumsum from the end": same(lambda x, a: x.flip(a).cumsum(a).flip(a) * 0.1),
    "triangle": same(lambda x, a: x.tril(a)),
    "another axis": same(lambda x, a: x.unsqueeze(a).repeat(*(3 if k == a else 1 for k in range(x.ndim + 1)))),
    "merged": same(lambda x, a: x.flatten(max(0, a - 1), a)),
    "flip": same(lambda x, a: x.flip(a)),
    "squares": same(lambda x, a: x @ x.transpose(-1, -2) * 0.05),
    "moved": moved,
    "part": part,
    "product": product,
    "padded": padded,
    "convolved": convolved,
    "attended": attended,
    "picked": picked,
    "gathered": gathered,
    "added by place": added_by_place,
    "slices added": slices_added,
    "scattered": scattered,
}
# Methods that ask for an order of loops: where two of them meet, something may go wrong.
OFTEN = ("cumsum", "cumprod", "cummax", "sum", "scaled", "centred", "added by place", "slices added", "scattered")
MOVES = ("flip", "moved", "part", "padded", "triangle", "another axis", "merged")
NAMES = (*sorted(METHODS), *OFTEN, *OFTEN)
# What sizes need not be known for, and what is as smooth as a gradient by PyTorch wants it.
OF_ANY_SIZE = (
    "relu", "tanh", "cumsum", "cumprod", "cummax", "sum", "centred", "scaled", "softmax", "log of sums", "largest",
    "flip", "moved", "squares", "attended", "another axis", "cumsum from the end", "sum without its axis", "triangle",
)  # fmt: skip
SMOOTH = tuple(sorted(METHODS.keys() - {"relu", "cummax", "largest"})) + OFTEN[:1] + OFTEN[3:]


def joined(x: Any, y: Any) -> Any:
    """Beside each other: a joined axis has a seam."""
    return x.cat(y, dim=-1) if isinstance(x, Tensor) else torch.cat([x, y], -1)


def stacked(x: Any, y: Any) -> Any:
    return x.stack(y, dim=0) if isinstance(x, Tensor) else torch.stack([x, y])


def written_into(x: Any, y: Any) -> Any:
    """A copy of the one, every second row of it that of the other."""
    z = x + 0
    z[::2] = y[::2]
    return z


PAIRS = {
    "plus": lambda x, y: x + y,
    "times": lambda x, y: x * y * 0.5,
    "larger": lambda x, y: x.maximum(y),
    "joined": joined,
    "stacked": stacked,
    "written into": written_into,
}
OF_ONE_SHAPE = ("joined", "stacked", "written into")  # others are subtracted
SMOOTH_PAIRS = ("plus", "times", "joined", "stacked", "written into")


class Program:
    """Values by number: two inputs, then each of `steps`, (name, numbers of what it takes, function)."""

    def __init__(
        self, draw: Draw, names: tuple[str, ...] = NAMES, pairs: tuple[str, ...] = tuple(PAIRS), most: int = MOST
    ):
        self.names, self.pairs, self.most = names, pairs, most
        sizes = draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=3))
        while np.prod(sizes) > most:
            sizes[int(np.argmax(sizes))] //= 2
        self.shape = tuple(sizes)
        rng = np.random.default_rng(draw(st.integers(0, 99)))
        self.inputs = [rng.normal(size=self.shape).astype(np.float32) for _ in range(2)]
        self.values = [torch.from_numpy(x).double() for x in self.inputs]
        self.steps: list[tuple[str, list[int], Callable[..., Any]]] = []
        for _ in range(draw(st.integers(2, 7))):
            self.add(draw)
        kept = [
            k for k in range(2, len(self.values) - 1) if draw(st.integers(0, 3)) == 3
        ]  # what is asked for is not fused
        self.results = [*kept, len(self.values) - 1]

    def add(self, draw: Draw) -> None:
        last = len(self.values) - 1
        k = draw(st.just(last) | st.integers(0, last))
        shape = tuple(self.values[k].shape)
        fits = [n for n, v in enumerate(self.values) if self.together(shape, tuple(v.shape))]
        if draw(st.integers(0, 2)) == 0:
            name, takes = draw(st.sampled_from(self.pairs)), [k, draw(st.sampled_from(fits))]
            alike = name not in OF_ONE_SHAPE or self.values[takes[1]].shape == shape
            f: Callable[..., Any] = PAIRS[name] if alike else operator.sub
        else:
            name, takes = draw(st.sampled_from(self.names)), [k]
            f = METHODS[name](draw, shape, draw(st.integers(0, len(shape) - 1)))
        value = f(*(self.values[n] for n in takes))
        if 0 < value.numel() <= self.most and value.abs().max() < 1e4 and 1 < value.ndim < 5:
            self.steps.append((name, takes, f))
            self.values.append(value)
        else:
            self.steps.append(("half", [k], lambda x: x * 0.5))
            self.values.append(self.values[k] * 0.5)

    def together(self, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        try:
            return int(np.prod(np.broadcast_shapes(a, b))) <= self.most
        except ValueError:
            return False

    def run(self, *inputs: Any) -> tuple[Any, ...]:
        values = [*inputs]
        for _, takes, f in self.steps:
            values.append(f(*(values[n] for n in takes)))
        return tuple(values[k] for k in self.results)

    def check(self, got: Iterable[Tensor], wanted: Iterable[torch.Tensor], what: Any) -> None:
        for t, w in zip(got, wanted, strict=True):
            want = w.detach().numpy()
            tolerance = 2e-3 * (np.abs(want).max() + 1e-3)
            np.testing.assert_allclose(t.numpy(), want, rtol=0, atol=tolerance, err_msg=f"{what} of {self}")

    def __repr__(self) -> str:
        return f"{self.shape} {[(name, takes) for name, takes, _ in self.steps]} -> {self.results}"


@settings(max_examples=often(6, 500))
@given(st.data())
def test_several_results_are_those_of_pytorch(data: Any) -> None:
    program = Program(data.draw)
    inputs = [Tensor(x).realize() for x in program.inputs]
    wanted = [program.values[k] for k in program.results]
    together = program.run(*inputs)
    constants = [Tensor.full((), x) for x in FILLS]  # numbers that programs are made of are results as well
    together[0].realize(*together[1:], *constants)
    program.check(together, wanted, "results")
    assert [c.item() for c in constants] == [*FILLS]
    step = jit(program.run)
    step(*inputs)
    program.check(step(*inputs), wanted, "results captured")


@settings(max_examples=FEW // 2)
@given(st.data())
def test_gradients_are_those_of_pytorch(data: Any) -> None:
    program = Program(data.draw, SMOOTH, SMOOTH_PAIRS, MOST // 10)
    theirs = [torch.from_numpy(x).double().requires_grad_() for x in program.inputs]
    weights = [
        both(np.cos(np.arange(program.values[k].numel())).reshape(program.values[k].shape)) for k in program.results
    ]
    sum((y * w(y)).sum() for y, w in zip(program.run(*theirs), weights, strict=True)).backward()
    ours = [Tensor(x).realize().requires_grad_() for x in program.inputs]
    results = program.run(*ours)
    total = sum(
        ((y * w(y).to(y.dtype)).sum() for y, w in zip(results[1:], weights[1:], strict=True)),
        start=(results[0] * weights[0](results[0]).to(results[0].dtype)).sum(),
    )
    total.backward()
    pairs = [(x.grad, t.grad) for x, t in zip(ours, theirs, strict=True) if t.grad is not None]
    if pairs:
        pairs[0][0].realize(*(x for x, _ in pairs[1:]))
    program.check([x for x, _ in pairs], [t for _, t in pairs], "gradients")


@settings(max_examples=FEW // 2)
@given(st.data())
def test_parts_of_symbolic_size_are_those_of_pytorch(data: Any) -> None:
    program = Program(data.draw, OF_ANY_SIZE, ("plus", "times", "larger", "joined", "stacked"), MOST // 10)
    a = data.draw(st.integers(0, len(program.shape) - 1))
    most = program.shape[a]
    try:
        program.run(*(torch.zeros(*program.shape[:a], OTHER, *program.shape[a + 1 :]) for _ in range(2)))
    except RuntimeError:  # values that fit where n is the size of another axis only, as x @ x.T and x
        reject()
    n = Variable("n", 1, most)
    inputs = [Tensor(x).realize() for x in program.inputs]
    step = jit(lambda *xs: program.run(*(x.narrow(a, 0, n.uop) for x in xs)))
    for size in dict.fromkeys((data.draw(st.integers(1, most)), most, 1)):
        wanted = program.run(*(torch.from_numpy(x).double().narrow(a, 0, size) for x in program.inputs))
        with n.bind(size):
            program.check(step(*inputs), wanted, f"{size} of axis {a}")

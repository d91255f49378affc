"""Random tensor programs through the public API, on the devices, against the interpreter of the same graph and NumPy.

Bounded; the seed is in pytest's header, and hypothesis shrinks what fails to a few lines.
"""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, dtypes
from monolect.base.dtype import DType, to_numpy
from monolect.ir.check.compare import EvaluationOptions, compare_value
from monolect.ir.check.interp import evaluate
from monolect.ir.text import show
from monolect.ir.uop import toposort
from monolect.runtime.buffer import to_numpy as values_of
from tests.strategies import often

Draw = Any
FEW = max(5, settings().max_examples // 5)
TYPES = (dtypes.float32, dtypes.float32, dtypes.int32, dtypes.bool, dtypes.uint8, dtypes.float16, dtypes.int64)


def leaf(draw: Draw, device: str, d: DType, shape: tuple[int, ...]) -> Tensor:
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    a = rng.integers(0 if d.is_unsigned or d.kind == "b" else -3, 2 if d.kind == "b" else 5, shape)
    return Tensor(a.astype(to_numpy(d)), device=device)


def shapes() -> st.SearchStrategy:
    return st.lists(st.sampled_from([1, 2, 3, 4, 5, 8, 17]), max_size=3).map(tuple)


# ---- one step --------------------------------------------------------------------------------------------------------
def permute(draw: Draw, x: Tensor, xs: list) -> Tensor:
    return x.permute(tuple(draw(st.permutations(range(x.ndim))))) if x.ndim else x


def flip(draw: Draw, x: Tensor, xs: list) -> Tensor:
    axes = tuple(k for k in range(x.ndim) if draw(st.booleans()))
    return x.flip(axes) if axes else x


def reshape(draw: Draw, x: Tensor, xs: list) -> Tensor:
    n = x.numel()
    cut = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
    return x.reshape(draw(st.sampled_from([(n,), (cut, n // cut), (1, n // cut, cut)])))


def expand(draw: Draw, x: Tensor, xs: list) -> Tensor:
    sizes = tuple(draw(st.integers(1, 3)) if n == 1 else n for n in x.shape)
    return x.expand(sizes) if x.ndim and int(np.prod(sizes)) < 3000 else x


def pad(draw: Draw, x: Tensor, xs: list) -> Tensor:
    if not x.ndim or x.numel() > 1000:
        return x
    return x.pad([draw(st.integers(0, 2)) for _ in range(2 * x.ndim)])


def part(draw: Draw, x: Tensor, xs: list) -> Tensor:
    def one(n: int) -> slice:
        lo = draw(st.integers(0, n - 1))
        step = draw(st.sampled_from([1, 1, 2, -1]))
        return slice(lo, draw(st.integers(lo + 1, n)), step) if step > 0 else slice(lo, None, step)

    return x[tuple(one(n) for n in x.shape)]


def cat(draw: Draw, x: Tensor, xs: list) -> Tensor:
    mates = [y for y in xs if y.shape == x.shape and y.dtype is x.dtype]
    return (
        x.cat(draw(st.sampled_from(mates)), dim=draw(st.integers(0, x.ndim - 1))) if x.ndim and x.numel() < 500 else x
    )


def unary(draw: Draw, x: Tensor, xs: list) -> Tensor:
    if x.dtype.is_float:
        return draw(
            st.sampled_from([lambda v: -v, abs, lambda v: v.relu(), lambda v: v.floor(), lambda v: v.square()])
        )(x)
    return ~x


def small(x: Tensor) -> Tensor:
    """Values kept so small that sums and products of floats stay exact."""
    return x.clamp(-4, 4) if x.dtype.is_float else x


def binary(draw: Draw, x: Tensor, xs: list) -> Tensor:
    y = draw(st.sampled_from([y for y in xs if fits(y.shape, x.shape)] + [x]))
    if draw(st.integers(0, 3)) == 0:
        y = draw(st.sampled_from([0, 1, 2, 3]))
        if x.dtype.kind == "b":
            y = bool(y)
    ops = [
        lambda a, b: a + b,
        lambda a, b: a * b,
        lambda a, b: a < b,
        lambda a, b: a == b,
        lambda a, b: (a > b).where(a, b),
    ]
    if x.dtype.kind != "b":
        ops += [lambda a, b: a - b, lambda a, b: a.maximum(b)]
    return draw(st.sampled_from(ops))(small(x), small(y) if isinstance(y, Tensor) else y)


def fits(a: tuple, b: tuple) -> bool:
    return len(a) <= len(b) and all(m in (1, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def divide(draw: Draw, x: Tensor, xs: list) -> Tensor:
    k = draw(st.sampled_from([0, 1, 2, 3, 7]))
    if not x.dtype.is_int:
        return x
    return x // k if draw(st.booleans()) else x % k


def cast(draw: Draw, x: Tensor, xs: list) -> Tensor:
    return small(x).cast(draw(st.sampled_from(TYPES)))


def reduce(draw: Draw, x: Tensor, xs: list) -> Tensor:
    axis = draw(st.sampled_from([None, *range(x.ndim)]))
    keep = draw(st.booleans()) and axis is not None
    if x.dtype.kind == "b":
        return x.any(axis)
    op = draw(st.sampled_from(["sum", "amax", "amin"]))
    return getattr(small(x), op)(axis, keepdim=keep) if axis is not None else getattr(small(x), op)()


def normalise(draw: Draw, x: Tensor, xs: list) -> Tensor:
    """A reduction and what it is made of, in one value."""
    if not x.ndim or x.dtype.kind == "b":
        return x
    x = small(x)
    axis = draw(st.integers(0, x.ndim - 1))
    return x - getattr(x, draw(st.sampled_from(["amax", "amin"])))(axis, keepdim=True)


def scan(draw: Draw, x: Tensor, xs: list) -> Tensor:
    return small(x).cumsum(draw(st.integers(0, x.ndim - 1))) if x.ndim and x.dtype.kind != "b" else x


def gather(draw: Draw, x: Tensor, xs: list) -> Tensor:
    if not x.ndim:
        return x
    i = draw(st.lists(st.integers(0, x.shape[0] - 1), min_size=1, max_size=4))
    return x[Tensor(np.array(i), device=x.device)]


def contiguous(draw: Draw, x: Tensor, xs: list) -> Tensor:
    return x.contiguous()


def multiply(draw: Draw, x: Tensor, xs: list) -> Tensor:
    """A matrix product of x with a transpose of itself."""
    if x.ndim < 2 or not x.dtype.is_float or x.dtype.bits < 32 or x.numel() > 400:
        return x
    return small(x) @ small(x).transpose(-1, -2)


def written(draw: Draw, x: Tensor, xs: list) -> Tensor:
    """A copy with a part assigned, some of it from itself."""
    if not x.ndim or x.shape[0] < 2:
        return x
    y = x + 0 if x.dtype.kind != "b" else x | False
    k = draw(st.integers(1, x.shape[0] - 1))
    if draw(st.booleans()):
        y[k:] = y[:-k]
    else:
        y[k] = y[0]
    return y


STEPS = [
    permute, flip, reshape, expand, pad, part, cat, unary, binary, binary, binary, divide, cast, reduce, reduce,
    normalise, scan, gather, contiguous, multiply, written,
]  # fmt: skip


@st.composite
def programs(draw: Draw, device: str = "cpu", most: int = 9) -> list[Tensor]:
    """The results of a random program: one, or several that share values."""
    xs = [leaf(draw, device, draw(st.sampled_from(TYPES)), draw(shapes())) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, most))):
        x = draw(st.sampled_from(xs[-3:]))
        xs.append(draw(st.sampled_from(STEPS))(draw, x, xs))
    return list(dict.fromkeys([xs[-1], *draw(st.lists(st.sampled_from(xs), max_size=2))]))


def interpreted(outs: list[Tensor]) -> list[np.ndarray]:
    """What the reference interpreter makes of the graphs."""
    uops = [t.uop for t in outs]
    env = {u: values_of(u) for u in toposort(*uops) if u.op == "BUFFER" and u.storage is not None}
    return evaluate(uops, env)


def assert_right(outs: list[Tensor]) -> None:
    wanted, graphs = interpreted(outs), [show(t.uop) for t in outs]
    outs[0].realize(*outs[1:])
    for t, w, graph in zip(outs, wanted, graphs, strict=True):
        got = t.numpy()
        assert got.shape == w.shape and got.dtype == w.dtype
        a, b = (v.astype(np.float64) if t.dtype.is_float else v for v in (got, w))
        rtol = 1e-2 if t.dtype.bits == 16 else 1e-5
        rtol = rtol if t.dtype.is_float else 0
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol, err_msg=graph)


@settings(max_examples=often(25, 2000))
@given(programs())
def test_programs_on_the_cpu(outs):
    assert_right(outs)


@settings(max_examples=FEW)
@given(programs("python", most=5))
def test_programs_on_the_python_device(outs):
    assert_right(outs)


# ---- gradients -------------------------------------------------------------------------------------------------------
SMOOTH = [
    lambda x: x * x, lambda x: (x * 0.5).exp(), lambda x: x.sin(), lambda x: x.softmax(-1) * 3, lambda x: x.sigmoid(),
    lambda x: x.sum(-1, keepdim=True) * 0.3 + x, lambda x: x.flip(0).reshape(-1, 2).permute(1, 0).reshape(x.shape),
    lambda x: x.pad((1, 2))[:, 1:-2] * x, lambda x: x.cumsum(0) * 0.2, lambda x: (x @ x.transpose(0, 1)) @ x * 0.1,
    lambda x: x[:2].cat(x[2:] * 2), lambda x: x - x.mean(0), lambda x: x / (x * x + 1),
    lambda x: x[:, ::2].repeat(1, 2),
]  # fmt: skip


@settings(max_examples=often(5, 400))
@given(st.lists(st.integers(0, len(SMOOTH) - 1), min_size=1, max_size=4), st.integers(0, 50))
def test_gradients_are_slopes(steps, seed):
    """d(sum(w * f(x))) along a random direction, against a central difference in float64."""
    rng = np.random.default_rng(seed)
    a, direction, w = rng.normal(0, 1, (3, 4, 6))

    def f(x: Tensor) -> Tensor:
        for s in steps:
            x = SMOOTH[s](x.tanh())  # bounded: no step may run away
        return (x * Tensor(w)).sum()

    x = Tensor(a, requires_grad=True)
    f(x).backward()
    slope = float((x.grad.numpy() * direction).sum())
    h = 1e-5
    rise = f(Tensor(a + h * direction)).item() - f(Tensor(a - h * direction)).item()
    assert np.isclose(slope, rise / (2 * h), rtol=1e-4, atol=1e-5)


# ---- VERIFY=2 --------------------------------------------------------------------------------------------------------
@settings(max_examples=3 * FEW)
@given(programs())
def test_elements_are_those_of_the_interpreter(outs: list[Tensor]) -> None:
    outs = [t for t in outs if t.uop.op != "BUFFER"]
    uops = [t.uop for t in outs]
    memory = {u: values_of(u).reshape(-1) for u in toposort(*uops) if u.op == "BUFFER" and u.storage is not None}
    for u, wanted in zip(uops, interpreted(outs), strict=True):
        with np.errstate(all="ignore"):
            assert [*compare_value(u, wanted.reshape(-1), memory, EvaluationOptions({}))] == []


@settings(max_examples=2 * FEW)
@given(programs())
def test_what_programs_wrote_is_found_right(outs: list[Tensor]) -> None:
    with Context(VERIFY=2):
        outs[0].realize(*outs[1:])

"""Random programs whose loops must not be taken for others, values and gradients, against NumPy and PyTorch in float64:
several positions of an axis, additions that meet, running sums of products, long rows that several threads sort.

Bounded; the seed is in the header of pytest. Each example is a number that a generator is seeded with: choices are
even, where hypothesis prefers simple ones.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, jit
from monolect.backend.registry import Device
from tests.strategies import often

FEW = max(6, settings().max_examples // 6)
MANY = 3 * FEW  # examples of programs that compile in a moment
SEEDS = st.integers(0, 2**32 - 1)
UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)  # a smaller seed is no simpler program
MODES = ("eager", "eager", "jit", "NOOPT")
SIZES = (1, 2, 3, 5, 7, 8, 8, 13, 16, 31, 32, 40, 64, 97)


def run(mode: str, f: Callable, *args: Tensor) -> Any:
    """What `f` returns: called, replayed by the captured step, or without the optimizer."""
    if mode == "jit":
        step = jit(f)
        step(*args)
        return step(*args)
    with Context(NOOPT=int(mode == "NOOPT")):
        return [t.realize() for t in f(*args)]


def is_close(f: Callable, mode: str, *arrays: np.ndarray, grad: bool = True) -> None:
    """Values of `f`, and the gradients of all its arguments, from tensors of float32 and from PyTorch's of float64."""
    theirs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    value = f(*theirs)
    weights = np.random.default_rng(1).uniform(0.5, 1.5, value.shape)
    if grad:
        (value * torch.tensor(weights)).sum().backward()

    def step(w: Tensor, *xs: Tensor) -> list[Tensor]:
        if not grad:
            return [f(*xs)]
        leaves = [x.detach() for x in xs]
        for x in leaves:
            x.requires_grad = True
        y = f(*leaves)
        (y * w).sum().backward()
        return [y, *(x.grad for x in leaves)]

    got = run(mode, step, *(Tensor(a.astype(np.float32)).realize() for a in (weights, *arrays)))
    for g, w in zip(got, [value.detach(), *(t.grad for t in theirs if grad)], strict=True):
        np.testing.assert_allclose(g.numpy(), w.numpy(), rtol=2e-3, atol=1e-4 + 2e-3 * float(w.abs().max()))


# ---- positions of an axis --------------------------------------------------------------------------------------------
def stacked(xs: list[Any]) -> Any:
    return torch.stack(xs) if isinstance(xs[0], torch.Tensor) else Tensor.stack(*xs)


NEAR: dict[str, Callable] = {
    "tanh": lambda v: v.tanh(),
    "exp": lambda v: (v * 0.2).exp(),
    "softmax": lambda v: v.softmax(-1),
    "scaled": lambda v: v * 0.5,
}


@settings(max_examples=FEW, phases=UNSHRUNK)
@given(SEEDS)
def test_positions_of_an_axis_beside_each_other(seed: int) -> None:
    r = Random(seed)
    n, k, m, c = r.choice(SIZES), r.choice(SIZES), r.choice(SIZES), r.randint(2, 3)
    at = [(r.randrange(c), r.choice((1.0, -0.3, 2.0))) for _ in range(r.randint(2, 3))]
    first, then = (NEAR[r.choice(sorted(NEAR))] for _ in range(2))
    is_stack, is_summed = r.random() < 0.5, r.random() < 0.5
    rng = np.random.default_rng(r.randint(0, 99))
    shapes = [(n, k) if is_stack else (c, n, k), (k, m), (m, 8)]

    def f(x: Any, w: Any, last: Any) -> Any:
        y = x @ w
        y = first(stacked([y * (j + 1) for j in range(c)]) if is_stack else y)
        z = y.sum(0) if is_summed else sum(y[j] * a for j, a in at)
        return then(z) @ last

    is_close(f, r.choice(MODES), *(rng.standard_normal(s) * 0.5 for s in shapes))


# ---- additions that meet ---------------------------------------------------------------------------------------------
def operand(r: Random, shape: tuple[int, ...], n: int, device: str) -> tuple[np.ndarray, Callable, np.ndarray]:
    """Whole numbers below n: memory, how a tensor is made of it, and the values of that."""
    kind = r.choice(["all", "constant", "constant", "repeated", "repeated", "masked", "masked", "padded", "padded"])
    rng = np.random.default_rng(r.randint(0, 999))
    axis, one = r.randint(0, len(shape) - 1), r.randint(0, n - 1)
    size = shape[axis]
    first = r.randint(0, size - 1)
    whole = rng.integers(0, n, shape)
    if kind == "constant":
        return whole, lambda t: Tensor.full(shape, one, dtype=t.dtype, device=device), np.full(shape, one)
    if kind == "repeated":
        part = rng.integers(0, n, [r.choice([1, 1, k]) for k in shape])
        return part, lambda t: t.expand(*shape), np.broadcast_to(part, shape)
    if kind == "masked":
        along = [size if a == axis else 1 for a in range(len(shape))]
        is_one = np.arange(size).reshape(along) < first
        return (
            whole,
            lambda t: (Tensor.arange(size, device=device).reshape(*along) < first).where(one, t),
            np.where(is_one, one, whole),
        )
    if kind == "padded":
        first = min(first, r.choice([1, 2, size]))
        last = min(r.randint(0, size - 1 - first), r.choice([1, 2, size]))
        part = whole.take(range(size - first - last), axis)
        pads = [(first, last) if a == axis else (0, 0) for a in range(len(shape))]
        return part, lambda t: t.pad([k for p in reversed(pads) for k in p]), np.pad(part, pads)
    return whole, lambda t: t, whole


def added(op: str, out: Tensor, axis: int, at: Tensor, values: Tensor) -> Tensor:
    """`values` added to `out`, of zeros, at the places `at` along an axis; or as the gradient of what reads there."""
    if op in ("scatter_add", "index_add"):
        return getattr(out, op)(axis, at, values)
    out.requires_grad = True
    read = {
        "gather": lambda: out.gather(axis, at),
        "take_along_dim": lambda: out.take_along_dim(at, axis),
        "index": lambda: out[(slice(None),) * axis + (at,)],
    }[op]()
    (read * values).sum().backward()
    return out.grad


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "cpu:8", "python:gpu"])
@settings(max_examples=often(5, 498), phases=UNSHRUNK)
@given(SEEDS)
def test_each_addition_counts(device: str, seed: int) -> None:
    r = Random(f"{device} {seed}")
    opened(device)
    shape = tuple(r.choice([1, 1, 2, 3, 5, 8, 16, 33]) for _ in range(r.randint(1, 3)))
    shape = (r.choice([40, 80, 330, 1000, 3000]),) if r.random() < 0.3 else shape
    op = r.choice(["scatter_add", "index_add", "gather", "take_along_dim", "index"])
    axis, n = r.randint(0, len(shape) - 1), r.choice([1, 2, 9, 64])
    is_row = op in ("index_add", "index")
    x, place, at = operand(r, shape[axis : axis + 1] if is_row else shape, n, device)
    y, value, values = operand(r, shape, 5, device)
    whole = (*shape[:axis], n, *shape[axis + 1 :])
    want = np.zeros(whole)
    if is_row:
        np.add.at(np.moveaxis(want, axis, 0), at, np.moveaxis(values, axis, 0))
    else:
        places = list(np.indices(shape))
        places[axis] = at
        np.add.at(want, tuple(places), values)

    def step(x: Tensor, y: Tensor) -> list[Tensor]:
        return [added(op, Tensor.zeros(*whole, device=device), axis, place(x), value(y))]

    memory = Tensor(x, device=device).realize(), Tensor(y.astype(np.float32), device=device).realize()
    (got,) = run(r.choice(MODES), step, *memory)
    np.testing.assert_array_equal(got.numpy(), want)


@pytest.mark.sweep
@pytest.mark.parametrize("device", ["cpu", "cpu:8", "c", "python", "python:gpu"])
@pytest.mark.parametrize("noopt", [0, 1])
@pytest.mark.parametrize("shape", [(300,), (16, 7, 16)])
def test_additions_that_no_loop_tells_apart(shape: tuple, noopt: int, device: str) -> None:
    x = Tensor.zeros(1, 5, device=opened(device))
    x.requires_grad = True
    row, column = (Tensor.full(shape, k, dtype="int64", device=device) for k in (0, 3))
    with Context(NOOPT=noopt):
        x[row, column].sum().backward()
        assert x.grad.tolist() == [[0, 0, 0, np.prod(shape), 0]]


# ---- running sums ----------------------------------------------------------------------------------------------------
@settings(max_examples=MANY, phases=UNSHRUNK)
@given(SEEDS)
def test_running_sums_of_products(seed: int) -> None:
    r = Random(seed)
    n, k, m = r.choice([1, 3, 4, 8, 25, 64, 200, 700]), r.choice([1, 2, 2, 3, 4, 5]), r.choice([1, 2, 2, 3, 3, 4, 5, 7])
    batch = r.choice([(), (), (3,), (8,)])
    kind = r.choice(["cumsum", "cumsum", "cumprod", "cummax", "logcumsumexp"])
    layout = r.choice(["flat", "rows", "turned", "as it is", "outside"])
    axis, is_turned, part = r.randint(0, 1), r.random() < 0.5, r.random() < 0.5
    rng = np.random.default_rng(r.randint(0, 99))

    def f(x: Any, w: Any) -> Any:
        y = x @ w
        if layout == "flat":
            y = y.reshape(-1)
        elif layout == "rows":
            y = y.reshape(*batch, n * m)
        elif layout == "turned":
            y = y.transpose(-1, -2).reshape(-1)
        elif layout == "outside":  # a loop around the running sum, of each product as often as there are rows
            y = y.reshape(-1, 1) * w.reshape(1, -1)
        a = min(axis, y.ndim - 1)
        y = 1 + y.tanh() * 0.05 if kind == "cumprod" else y
        y = y.flip((a,)) if is_turned else y
        y = getattr(y, kind)(a)
        y = y.values if kind == "cummax" else y
        return y[: (len(y) + 1) // 2] if part else y

    arrays = rng.standard_normal((*batch, n, k)) * 0.5, rng.standard_normal((k, m))
    is_close(f, r.choice(MODES), *arrays, grad=r.random() < 0.2)


def test_a_maximum_that_is_stored_too_has_its_loops_around_those_of_the_running_sum() -> None:
    x, w = np.random.default_rng(0).standard_normal((64, 2)), np.random.default_rng(1).standard_normal((2, 3))
    is_close(lambda x, w: ((x @ w).reshape(-1, 1) * w.reshape(1, -1)).logcumsumexp(0)[:90], MODES[0], x, w, grad=False)


# ---- sorting ---------------------------------------------------------------------------------------------------------
def opened(device: str) -> str:
    """A device whose number, if it has one, is that of the threads that its kernels are for."""
    with Context(THREADS=int(device.partition(":")[2] or 0) if device.startswith("cpu") else 0):
        Device[device]
    return device


def is_sorted(x: np.ndarray, kind: str, device: str) -> None:
    t, want = Tensor(x, device=device), np.sort(x)
    if kind == "median":
        assert t.median().item() == want[(len(x) - 1) // 2]
    elif kind == "argsort":
        np.testing.assert_array_equal(t.argsort(0).numpy(), np.argsort(x, kind="stable"))
    else:
        values, indices = t.sort(0)
        np.testing.assert_array_equal(values.numpy(), want)
        np.testing.assert_array_equal(x[indices.numpy()], want)


@settings(max_examples=often(2, 166), phases=UNSHRUNK)
@given(
    st.integers(10_000, 300_000), st.sampled_from([1, 2, 3, 4, 8, 8]), st.sampled_from(["sort", "argsort", "median"])
)
def test_long_rows_by_threads(n: int, threads: int, kind: str) -> None:
    is_sorted(np.random.default_rng(n).standard_normal(n).astype(np.float32), kind, opened(f"cpu:{threads}"))


@pytest.mark.sweep
@pytest.mark.parametrize(("n", "threads"), [(100_003, 2), (224_190, 8), (145_795, 3)])
def test_the_last_digits_of_a_row_are_counted_in_a_section_of_their_own(n: int, threads: int) -> None:
    is_sorted(np.random.default_rng(0).standard_normal(n).astype(np.float32), "sort", opened(f"cpu:{threads}"))

"""Random programs whose loops must not be taken for others, values and gradients, against NumPy and PyTorch in float64:
several positions of an axis, additions that meet, running sums of products, long rows that several threads sort.

Bounded; the seed is in pytest's header.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, jit
from monolect.backend.registry import Device

Draw = Any
FEW = max(6, settings().max_examples // 6)
MANY = 3 * FEW  # examples of programs that compile in a moment
MODES = st.sampled_from(["eager", "eager", "jit", "NOOPT"])
SIZES = st.sampled_from([1, 2, 3, 5, 7, 8, 8, 13, 16, 31, 32, 40, 64, 97])


def run(mode: str, f: Callable, *args: Tensor) -> Any:
    """What `f` returns: called, replayed by the captured step, or without the optimizer."""
    if mode == "jit":
        step = jit(f)
        step(*args)
        return step(*args)
    with Context(NOOPT=int(mode == "NOOPT")):
        return [t.realize() for t in f(*args)]


def is_close(f: Callable, mode: str, *arrays: np.ndarray) -> None:
    """Values of `f`, and the gradients of all its arguments, from tensors of float32 and from PyTorch's of float64."""
    theirs = [torch.tensor(a, dtype=torch.float64, requires_grad=True) for a in arrays]
    value = f(*theirs)
    weights = np.random.default_rng(1).uniform(0.5, 1.5, value.shape)
    (value * torch.tensor(weights)).sum().backward()

    def step(w: Tensor, *xs: Tensor) -> list[Tensor]:
        leaves = [x.detach() for x in xs]
        for x in leaves:
            x.requires_grad = True
        y = f(*leaves)
        (y * w).sum().backward()
        return [y, *(x.grad for x in leaves)]

    got = run(mode, step, *(Tensor(a.astype(np.float32)).realize() for a in (weights, *arrays)))
    for g, w in zip(got, [value.detach(), *(t.grad for t in theirs)], strict=True):
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


@settings(max_examples=FEW)
@given(st.data())
def test_positions_of_an_axis_beside_each_other(data: Any) -> None:
    draw: Draw = data.draw
    n, k, m, c = draw(SIZES), draw(SIZES), draw(SIZES), draw(st.integers(2, 3))
    at = draw(st.lists(st.tuples(st.integers(0, c - 1), st.sampled_from([1.0, -0.3, 2.0])), min_size=2, max_size=3))
    first, then = (NEAR[draw(st.sampled_from(sorted(NEAR)))] for _ in range(2))
    is_stack, is_summed = draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shapes = [(n, k) if is_stack else (c, n, k), (k, m), (m, 8)]

    def f(x: Any, w: Any, last: Any) -> Any:
        y = x @ w
        y = first(stacked([y * (j + 1) for j in range(c)]) if is_stack else y)
        z = y.sum(0) if is_summed else sum(y[j] * a for j, a in at)
        return then(z) @ last

    is_close(f, draw(MODES), *(rng.standard_normal(s) * 0.5 for s in shapes))


# ---- additions that meet ---------------------------------------------------------------------------------------------
def operand(draw: Draw, shape: tuple[int, ...], n: int, device: str) -> tuple[np.ndarray, Callable, np.ndarray]:
    """Whole numbers below n: memory, how a tensor is made of it, and the values of that."""
    kind = draw(st.sampled_from(["all", "constant", "repeated", "masked", "masked", "padded"]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    axis, one = draw(st.integers(0, len(shape) - 1)), draw(st.integers(0, n - 1))
    size = shape[axis]
    first = draw(st.integers(0, size - 1))
    whole = rng.integers(0, n, shape)
    if kind == "constant":
        return whole, lambda t: Tensor.full(shape, one, dtype=t.dtype, device=device), np.full(shape, one)
    if kind == "repeated":
        part = rng.integers(0, n, [draw(st.sampled_from([1, k])) for k in shape])
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
        last = draw(st.integers(0, size - 1 - first))
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


@pytest.mark.parametrize("device", ["cpu", "cpu:8", "python:gpu"])
@settings(max_examples=MANY)
@given(st.data())
def test_each_addition_counts(device: str, data: Any) -> None:
    draw: Draw = data.draw
    opened(device)
    sizes = st.sampled_from([1, 1, 2, 3, 5, 8, 16, 64, 1000, 5000])
    shape = tuple(draw(st.lists(sizes, min_size=1, max_size=3).filter(lambda s: np.prod(s) <= 40000)))
    op = draw(st.sampled_from(["scatter_add", "index_add", "gather", "take_along_dim", "index"]))
    axis, n = draw(st.integers(0, len(shape) - 1)), draw(st.sampled_from([1, 2, 9, 64]))
    is_row = op in ("index_add", "index")
    x, place, at = operand(draw, shape[axis : axis + 1] if is_row else shape, n, device)
    y, value, values = operand(draw, shape, 5, device)
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
    (got,) = run(draw(MODES), step, *memory)
    np.testing.assert_array_equal(got.numpy(), want)


# ---- running sums ----------------------------------------------------------------------------------------------------
@settings(max_examples=FEW)
@given(st.data())
def test_running_sums_of_products(data: Any) -> None:
    draw: Draw = data.draw
    n, k, m = draw(st.sampled_from([1, 3, 4, 8, 25, 64, 200, 700])), draw(st.integers(1, 5)), draw(st.integers(1, 8))
    batch = draw(st.sampled_from([(), (), (3,), (8,)]))
    kind = draw(st.sampled_from(["cumsum", "cumsum", "cumprod", "cummax", "logcumsumexp"]))
    layout = draw(st.sampled_from(["flat", "rows", "turned", "as it is", "outside"]))
    axis, is_turned, part = draw(st.integers(0, 1)), draw(st.booleans()), draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 99)))

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

    is_close(f, draw(MODES), rng.standard_normal((*batch, n, k)) * 0.5, rng.standard_normal((k, m)))


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


@settings(max_examples=FEW)
@given(
    st.integers(10_000, 300_000), st.sampled_from([1, 2, 3, 4, 8, 8]), st.sampled_from(["sort", "argsort", "median"])
)
def test_long_rows_by_threads(n: int, threads: int, kind: str) -> None:
    is_sorted(np.random.default_rng(n).standard_normal(n).astype(np.float32), kind, opened(f"cpu:{threads}"))


@pytest.mark.parametrize(("n", "threads"), [(100_003, 2), (224_190, 8), (145_795, 3)])
def test_the_last_digits_of_a_row_are_counted_in_a_section_of_their_own(n: int, threads: int) -> None:
    is_sorted(np.random.default_rng(0).standard_normal(n).astype(np.float32), "sort", opened(f"cpu:{threads}"))

"""Operations of several operands, each on one device, whole on two, or divided along any axis: values and gradients.

The operands are placed independently, which no chain of methods on one tensor does: a table is divided along its
columns and the indices into it along theirs, or only the indices of a write are divided.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import monolect.nn.functional as F
from monolect import DeviceError, Tensor

DEVICES = ("cpu", "cpu:1")
N_DRAWN = 2  # placements of each operation in one run
Place = int | str | None  # an axis, "whole" on each device, or None for one device
_rng = np.random.default_rng(0)


def f(*shape: int) -> np.ndarray:
    return _rng.normal(size=shape)


def n(high: int, *shape: int) -> np.ndarray:
    return _rng.integers(0, high, shape)


def distinct(high: int, *shape: int) -> np.ndarray:
    """Return random positions below `high`, which differ from each other within each column."""
    columns = shape[1] if len(shape) > 1 else 1
    return np.stack([_rng.permutation(high)[: shape[0]] for _ in range(columns)], 1).reshape(shape)


def written(write: Callable[..., Any]) -> Callable[..., Tensor]:
    """`write` as a function of values: it writes to a copy."""

    def function(t: Tensor, *others: Tensor) -> Tensor:
        copy = t * 1.0
        write(copy, *others)
        return copy

    return function


def into(key: Callable[..., Any]) -> Callable[..., Tensor]:
    return written(lambda x, *rest: x.__setitem__(key(*rest[:-1]), rest[-1]))


EVERY = slice(None)
OPERATIONS: dict[str, tuple[Callable[..., Tensor], list[np.ndarray]]] = {
    "rows": (lambda t, i: t[i], [f(6, 4), n(6, 4)]),
    "columns": (lambda t, i: t[:, i], [f(2, 6, 4), n(6, 4)]),
    "elements": (lambda t, i, j: t[i, j], [f(6, 4), n(6, 8), n(4, 8)]),
    "gather": (lambda t, i: t.gather(0, i), [f(6, 4), n(6, 4, 4)]),
    "take_along_dim": (lambda t, i: t.take_along_dim(i, 1), [f(6, 4), n(4, 6, 2)]),
    "index_select": (lambda t, i: t.index_select(1, i), [f(6, 4), n(4, 4)]),
    "embedding": (lambda i, w: F.embedding(i, w), [n(6, 4, 2), f(6, 4)]),
    "embedding of odd rows": (lambda i, w: F.embedding(i, w), [n(5, 4), f(5, 4)]),
    "embedding_bag": (lambda i, w: F.embedding_bag(i, w, mode="sum"), [n(6, 4, 2), f(6, 4)]),
    "scatter": (lambda t, i, s: t.scatter(0, i, s), [f(6, 4), distinct(6, 4, 4), f(4, 4)]),
    "scatter_add": (lambda t, i, s: t.scatter_add(0, i, s), [f(6, 4), n(6, 4, 4), f(4, 4)]),
    "scatter_reduce": (lambda t, i, s: t.scatter_reduce(0, i, s, "amax"), [f(6, 4), n(6, 4, 4), f(4, 4)]),
    "index_add": (lambda t, i, s: t.index_add(0, i, s), [f(6, 4), n(6, 4), f(4, 4)]),
    "index_fill": (lambda t, i: t.index_fill(1, i, 2.0), [f(6, 4), n(4, 2)]),
    "index_put": (lambda t, i, v: t.index_put((i,), v), [f(6, 4), distinct(6, 4), f(4, 4)]),
    "index_put, added": (lambda t, i, v: t.index_put((i,), v, accumulate=True), [f(6, 4), n(6, 4), f(4, 4)]),
    "put": (lambda t, i, v: t.put(i, v, accumulate=True), [f(6, 4), n(24, 4), f(4)]),
    "masked_scatter": (lambda t, m, s: t.masked_scatter(m > 0, s), [f(6, 4), f(6, 4), f(6, 4)]),
    "select_scatter": (lambda t, s: t.select_scatter(s, 0, 2), [f(6, 4), f(4)]),
    "diagonal_scatter": (lambda t, s: t.diagonal_scatter(s), [f(4, 4), f(4)]),
    "rows written": (into(lambda i: i), [f(6, 4), distinct(6, 4), f(4, 4)]),
    "columns written": (into(lambda i: (EVERY, i)), [f(4, 6), distinct(6, 4), f(4, 4)]),
    "elements written": (into(lambda i, j: (i, j)), [f(6, 4), distinct(6, 4), distinct(4, 4), f(4)]),
    "a slice written": (into(lambda: slice(1, 3)), [f(6, 4), f(2, 4)]),
    "steps written": (into(lambda: (EVERY, slice(0, 4, 2))), [f(6, 4), f(6, 2)]),
    "a mask written": (written(lambda x, m: x.__setitem__(m > 0, 0.5)), [f(6, 4), f(6, 4)]),
    "index_add_": (written(lambda x, i, s: x.index_add_(0, i, s)), [f(6, 4), n(6, 4), f(4, 4)]),
    "index_copy_": (written(lambda x, i, s: x.index_copy_(0, i, s)), [f(6, 4), distinct(6, 4), f(4, 4)]),
    "scatter_": (written(lambda x, i, s: x.scatter_(0, i, s)), [f(6, 4), distinct(6, 4, 4), f(4, 4)]),
    "bincount": (lambda x, w: x.bincount(w, minlength=6), [n(6, 8), f(8)]),
    "where": (lambda c, a, b: (c > 0).where(a, b), [f(6, 4), f(6, 4), f(4)]),
    "cat": (lambda a, b: Tensor.cat([a, b], 0), [f(6, 4), f(2, 4)]),
    "cat of columns": (lambda a, b: Tensor.cat([a, b], 1), [f(6, 4), f(6, 2)]),
    "stack": (lambda a, b: Tensor.stack([a, b], 1), [f(6, 4), f(6, 4)]),
    "product": (lambda a, b: a @ b, [f(6, 4), f(4, 2)]),
    "products": (lambda a, b: a @ b, [f(2, 6, 4), f(2, 4, 2)]),
    "einsum": (lambda a, b: Tensor.einsum("ijk,kl->jil", a, b), [f(2, 6, 4), f(4, 2)]),
    "addmm": (lambda c, a, b: c.addmm(a, b), [f(2), f(6, 4), f(4, 2)]),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), [f(2, 4, 6, 6), f(2, 4, 3, 3)]),
    "conv2d with bias": (lambda x, w, b: F.conv2d(x, w, b), [f(2, 2, 6, 6), f(4, 2, 3, 3), f(4)]),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w), [f(2, 4, 4, 4), f(4, 2, 3, 3)]),
    "bilinear": (lambda a, b, w: F.bilinear(a, b, w), [f(6, 4), f(6, 2), f(2, 4, 2)]),
    "cross_entropy": (lambda x, y: F.cross_entropy(x, y), [f(6, 4), n(4, 6)]),
    "nll_loss": (lambda x, y: F.nll_loss(x, y, reduction="none"), [f(6, 4), n(4, 6)]),
    "lerp": (lambda a, b, w: a.lerp(b, w), [f(6, 4), f(6, 4), f(6, 1)]),
    "cdist": (lambda a, b: a.cdist(b), [f(6, 4), f(2, 4)]),
    "attention": (F.scaled_dot_product_attention, [f(2, 2, 6, 4), f(2, 2, 8, 4), f(2, 2, 8, 4)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), [f(6, 4), f(4), f(4)]),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), [f(6, 4), f(4), f(4)]),
    "cosine_similarity": (lambda a, b: F.cosine_similarity(a, b, dim=1), [f(6, 4), f(6, 4)]),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), [f(2, 2, 4, 4), f(2, 4, 4, 2) / 2]),
    "unfold": (lambda x, w: F.unfold(x, 2) * w, [f(2, 2, 4, 4), f(9)]),
    "windows": (lambda x, y: x.unfold(0, 2, 2) * y.unsqueeze(-1), [f(8, 4), f(4, 4)]),
    "order of another": (lambda x, y: y.gather(1, x.argsort(1)), [f(6, 4), f(6, 4)]),
    "running sums": (lambda x, y: x.cumsum(0) * y.cumsum(1), [f(6, 4), f(6, 4)]),
    "kron": (lambda a, b: a.kron(b), [f(2, 4), f(4, 2)]),
}
# placements that raised an error or gave wrong values before
FOUND: list[tuple[str, tuple[Place, ...]]] = [
    ("rows", (1, 0)),
    ("elements", (None, 0, 0)),
    ("embedding of odd rows", (0, 1)),
    ("scatter", (None, 0, 1)),
    ("scatter_add", (None, None, 0)),
    ("index_add", ("whole", 0, None)),
    ("index_put", ("whole", 0, 0)),
    ("index_put", (0, 0, 1)),
    ("rows written", ("whole", 0, None)),
    ("elements written", (1, 0, 0, 0)),
    ("index_copy_", (0, 0, None)),
    ("bincount", (None, 0)),
]


def placements(arrays: list[np.ndarray]) -> list[tuple[Place, ...]]:
    """Return all placements of the operands `arrays`, except those with every operand on one device."""
    choices: list[list[Place]] = [[None, "whole", *range(a.ndim)] for a in arrays]
    return [p for p in itertools.product(*choices) if any(x is not None for x in p)]


def placed(a: np.ndarray, place: Place) -> Tensor:
    """Return `a` as a Tensor at `place`; one of floats requires a gradient."""
    t = Tensor(a)
    t = t if place is None else t.replicate(DEVICES) if isinstance(place, str) else t.shard(DEVICES, place)
    return t.detach().requires_grad_(True) if a.dtype == np.float64 else t


def run(function: Callable[..., Tensor], operands: list[Tensor]) -> list[np.ndarray | None]:
    """The value, and the gradient of each operand."""
    out = function(*operands)
    (out * out).sum().backward()
    return [out.numpy(), *(None if t.grad is None else t.grad.numpy() for t in operands)]


def check(name: str, place: tuple[Place, ...]) -> None:
    """Compare an operation on operands at `place` with the same on one device: its value and the gradients."""
    function, arrays = OPERATIONS[name]
    wanted = run(function, [placed(a, None) for a in arrays])
    found = run(function, [placed(a, p) for a, p in zip(arrays, place, strict=True)])
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None), (name, place)
        if a is not None and b is not None:
            np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-9, err_msg=f"{name} {place}")


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "place"), FOUND)
def test_placements_that_once_failed(name: str, place: tuple[Place, ...]) -> None:
    check(name, place)


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_does_not_depend_on_where_its_operands_are(name: str, start: int) -> None:
    every = placements(OPERATIONS[name][1])
    for place in random.Random(f"{start} {name}").sample(every, min(N_DRAWN, len(every))):
        check(name, place)


WRITES: list[Callable[[Tensor, Tensor, Tensor], Any]] = [
    lambda t, i, v: t.index_add(0, i, v),
    lambda t, i, v: t.index_put((i,), v, accumulate=True),
    lambda t, i, v: t.scatter(0, i.reshape(2, 1).expand(2, 4), v),
    lambda t, i, v: t.__setitem__(i, v),
    lambda t, i, v: t[i] + v,
]


@pytest.mark.parametrize("write", WRITES)
def test_operands_on_other_devices_are_refused(write: Callable[[Tensor, Tensor, Tensor], Any]) -> None:
    others = ("cpu:2", "cpu:3")
    t, i, v = Tensor(np.zeros((6, 4))), Tensor(np.array([1, 3])), Tensor(np.ones((2, 4)))
    with pytest.raises(DeviceError, match="operands live on different devices"):
        write(t.shard(DEVICES), i.shard(others), v.shard(others))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_placement(name: str) -> None:
    for place in placements(OPERATIONS[name][1]):
        check(name, place)

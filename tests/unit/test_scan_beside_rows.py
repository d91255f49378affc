"""A running sum beside sums along another axis: its loop is the innermost, theirs is inside what they are sums of."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from monolect import Tensor

RNG = np.random.default_rng(11)
SHAPE = (12, 237, 127)
X, Y = (RNG.normal(size=SHAPE).astype(np.float32) for _ in range(2))
ROWS: dict[str, Callable] = {
    "scaled": lambda y, axis: y * ((y * y).mean(axis, keepdim=True) + 1e-3).rsqrt(),
    "centred": lambda y, axis: y - y.mean(axis, keepdim=True),
    "softmax": lambda y, axis: y.softmax(axis),
    "sums": lambda y, axis: y.sum(axis, keepdim=True),
    "largest": lambda y, axis: y.amax(axis, keepdim=True),
}


@pytest.mark.sweep
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("along", "axis"), [(0, 2), (0, 1), (1, 2), (1, 0), (2, 0)])
def test_both_are_right_alone_and_together(along: int, axis: int, rows: str) -> None:
    a, b = Tensor(X).realize(), Tensor(Y).realize()
    running, other = a.cumsum(along), ROWS[rows](b, axis)
    product, sums = running * other, running + other
    product.realize(running, other, sums)
    ta, tb = torch.from_numpy(X).double(), torch.from_numpy(Y).double()
    want, beside = ta.cumsum(along), ROWS[rows](tb, axis)
    for got, exact in ((running, want), (other, beside), (product, want * beside), (sums, want + beside)):
        np.testing.assert_allclose(got.numpy(), exact.numpy(), rtol=1e-4, atol=1e-3)
    alone = (a.cumsum(along) * ROWS[rows](b, axis)).numpy()
    np.testing.assert_allclose(alone, (want * beside).numpy(), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows", [10, 17, 100])
def test_rows_of_a_running_sum_are_added_once(rows: int) -> None:
    """Of products of whole numbers they are rows of a tile: the last tile may not begin earlier, to end with them."""
    x, w = RNG.integers(-9, 9, (rows, 2)).astype(np.int8), RNG.integers(-9, 9, (2, 2))
    np.testing.assert_array_equal((Tensor(x).long() @ Tensor(w)).cumsum(0).numpy(), (x.astype(np.int64) @ w).cumsum(0))

"""Bounds of integer values: every element of a tensor lies within the interval that its graph tells."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from monolect import Tensor, dtypes
from monolect.base.dtype import DType
from monolect.base.errors import IndexRangeError
from monolect.base.settings import Context
from monolect.capture.jit import jit
from monolect.ir.bounds import min_max

TABLE = np.array([10, 20, 30, 40])
AT, VALUES = np.array([0, 1, 1]), np.array([3, 1, 2])


def assigned(t: Tensor, key: Any, v: Tensor) -> Tensor:
    t[key] = v
    return t


WRITES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "scatter_add": lambda t, i, v: t.scatter_add(0, i, v),
    "scatter": lambda t, i, v: t.scatter(0, i[:2], v[:2]),
    "index_add": lambda t, i, v: t.index_add(0, i, v),
    "index_copy": lambda t, i, v: t.index_copy(0, i[:2], v[:2]),
    "put": lambda t, i, v: t.put(i[:2], v[:2]),
    "accumulate": lambda t, i, v: t.put(i, v, accumulate=True),
    "elements": lambda t, i, v: assigned(t, i[:2], v[:2]),
    "slice": lambda t, i, v: assigned(t, slice(1, 2), v[:1]),
    "twice": lambda t, i, v: t.scatter_add(0, i, v).scatter_add(0, i, -v // 2),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", WRITES)
def test_an_index_is_read_after_writes_to_it(name: str) -> None:
    """The constant that was written to must not bound the clamp of a read, the check, or the value kept in memory."""

    def counts(i: Tensor, v: Tensor) -> Tensor:
        return WRITES[name](Tensor.zeros(2, dtype=dtypes.int64), i, v)

    def read(i: Tensor, v: Tensor) -> Tensor:
        at = counts(i, v)
        return Tensor(TABLE)[at] + Tensor.zeros(4, dtype=dtypes.int64).scatter_add(0, at % 4, at).sum()

    at = counts(Tensor(AT), Tensor(VALUES)).numpy()
    wanted = TABLE[at] + at.sum()
    assert at.any()
    step = jit(read)
    for got in (read(Tensor(AT), Tensor(VALUES)), *(step(Tensor(AT), Tensor(VALUES)) for _ in range(2))):
        np.testing.assert_array_equal(got.numpy(), wanted)


def test_an_index_that_was_written_is_checked() -> None:
    at = Tensor.zeros(2, dtype=dtypes.int64).scatter_add(0, Tensor(AT), Tensor(VALUES))
    with Context(CHECK_BOUNDS=1), pytest.raises(IndexRangeError, match="out of range"):
        Tensor(TABLE[:3])[at]


# ---- random graphs ---------------------------------------------------------------------------------------------------
Rng = np.random.Generator
TYPES = (dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint32, dtypes.int32, dtypes.int64, dtypes.uint64, dtypes.bool)
SHAPE = (3, 4)


def constant(rng: Rng, d: DType) -> int:
    held = [n for n in (0, 1, 2, 3, 7, 63, 100, -1, -2, -7, -128, d.min, d.max) if d.min <= n <= d.max]
    return held[rng.integers(len(held))]


def leaf(rng: Rng, d: DType) -> Tensor:
    if rng.random() < 0.3:
        return Tensor.full(SHAPE, constant(rng, d), dtype=d)
    if rng.random() < 0.4:
        return Tensor.arange(12).reshape(SHAPE).cast(d)
    return Tensor(rng.integers(-200, 200, SHAPE)).cast(d)


def number(rng: Rng, x: Tensor) -> Tensor:
    """`x`, or another tensor of its dtype."""
    return leaf(rng, x.dtype) if rng.random() < 0.5 else Tensor.full(SHAPE, constant(rng, x.dtype), dtype=x.dtype)


def row(rng: Rng) -> Tensor:
    return Tensor(rng.integers(0, 3, SHAPE))


ARITHMETIC: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: a << b,
    lambda a, b: a >> b,
    lambda a, b: a - b,
    Tensor.minimum,
    Tensor.maximum,
)
STEPS: tuple[Callable[[Rng, Tensor], Tensor], ...] = (
    lambda rng, x: ~x,
    lambda rng, x: x.cast(TYPES[rng.integers(len(TYPES))]),
    lambda rng, x: x.bitcast(dtypes.uint8).bitcast(x.dtype),
    lambda rng, x: (x < number(rng, x)).where(x, number(rng, x)),
    lambda rng, x: (x != number(rng, x)).where(number(rng, x), 1),
    lambda rng, x: x.flip(0).contiguous(),
    lambda rng, x: x[:2].pad((0, 0, 0, 1), value=x.dtype.max),
    lambda rng, x: x.roll(1, 1).detach(),
    lambda rng, x: Tensor.cat([x[1:], number(rng, x)[:1]], 0),
    lambda rng, x: x.sum(1, keepdim=True).expand(SHAPE).cast(x.dtype),
    lambda rng, x: x.cumsum(1).cast(x.dtype),
    lambda rng, x: x.argsort(1),
    lambda rng, x: x.amax(0, keepdim=True).expand(SHAPE),
    lambda rng, x: x.scatter_add(0, row(rng), number(rng, x)),
    lambda rng, x: x.scatter(0, row(rng), number(rng, x)),
    lambda rng, x: number(rng, x).index_add(0, Tensor([0, 2, 2]), x),
    lambda rng, x: assigned(x.clone(), slice(1, 3), number(rng, x)[1:]),
    lambda rng, x: assigned(number(rng, x), slice(0, 2), x[1:]),
    lambda rng, x: number(rng, x).masked_fill(x > 3, 100),
)


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(60))
def test_values_lie_within_their_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = leaf(rng, TYPES[rng.integers(len(TYPES))])
    seen = []
    for _ in range(rng.integers(2, 6)):
        if x.dtype is dtypes.bool:
            x = x.cast(TYPES[rng.integers(len(TYPES) - 1)])
        if rng.random() < 0.5:
            x = ARITHMETIC[rng.integers(len(ARITHMETIC))](x, number(rng, x))
        else:
            x = STEPS[rng.integers(len(STEPS))](rng, x)
        seen.append((x, min_max(x.uop)))
    x.realize(*(t for t, _ in seen))
    for t, (low, high) in seen:
        values = t.numpy()
        assert low <= int(values.min()) and int(values.max()) <= high, (seed, low, high, values)


@pytest.mark.parametrize("device", ["cpu", "python"])
def test_what_has_no_elements_is_not_read_and_lives_where_it_did(device: str) -> None:
    x = Tensor(np.ones((3, 4), np.float32), device=device).realize()
    none = Tensor(np.ones((0, 4), np.float32), device=device).realize()
    with Context(CHECK_BOUNDS=1):
        for sums, want in ((none.sum(0), 0), (none.prod(0), 1), ((none.T @ none)[0], 0), (none.int().sum(0), 0)):
            assert sums.realize().device == device
            np.testing.assert_array_equal((x + sums).numpy(), np.full((3, 4), 1 + want))
        for nothing in (none.sort(0)[0], none.argsort(1), none.topk(0, 0)[1]):
            assert nothing.realize().device == device and nothing.tolist() == []
        assert (x**0).realize().device == device

"""Gathers and scattered sums written with one-hot masks, beside NumPy: any dtypes, shapes, places and epilogues."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monolect import Context, Tensor, function, jit

DTYPES = ["float32", "float64", "float16", "int32", "int64", "int16", "int8", "uint8", "uint32", "bool"]
SIZES = st.sampled_from([1, 2, 5, 16, 17, 40, 129])
MODES = {"plain": lambda f: f, "jit": jit, "function": function}


def one_hot(places: Any, n: int, offset: int, as_index: bool) -> Any:
    """[n, d]: where place d is row k + offset, of Tensors or arrays."""
    rows = Tensor.arange(n) if isinstance(places, Tensor) else np.arange(n)
    rows = rows.reshape(n, 1) + offset
    return (rows == places.reshape(1, -1)) if as_index else (places.reshape(1, -1) == rows)


def values(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    low = 0 if dtype.startswith("u") else -3
    return rng.integers(low, 4, shape).astype(dtype)


@given(
    st.sampled_from(DTYPES), SIZES, SIZES, st.sampled_from([(), (3,), (2, 5)]), st.integers(-2, 2), st.booleans(),
    st.sampled_from(["int64", "int32", "int8", "uint8"]), st.sampled_from([*MODES]), st.integers(0, 2**31),
)  # fmt: skip
@example("float32", 40, 129, (), 0, True, "int64", "jit", 0)
@example("int8", 129, 40, (3,), 1, False, "int32", "plain", 1)
def test_sums_by_place(
    dtype: str, n: int, d: int, rest: tuple, offset: int, as_index: bool, index: str, mode: str, seed: int
) -> None:
    """Places beyond the table, or below it, count nowhere."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0 if index == "uint8" else -3, min(n + 3, 127), d).astype(index)
    v, table = values(rng, dtype, d, *rest), values(rng, dtype, n, *rest)

    def scattered(table: Any, places: Any, v: Any) -> Any:
        mask = one_hot(places, n, offset, as_index).reshape(n, d, *(1,) * len(rest))
        if isinstance(v, Tensor):
            return table + (mask.cast(v.dtype) * v.reshape(1, d, *rest)).sum(1)
        total = (mask * v.reshape(1, d, *rest)).sum(1)
        return table + total

    f = MODES[mode](scattered)
    want = scattered(table.astype("float64"), places, v.astype("float64"))
    for _ in range(3 if mode == "jit" else 1):
        got = f(Tensor(table), Tensor(places), Tensor(v)).numpy()
        np.testing.assert_array_equal(got.astype("float64"), want)


@given(st.sampled_from(DTYPES[:-1]), SIZES, SIZES, st.integers(-2, 2), st.integers(0, 2**31))
def test_rows_by_place(dtype: str, n: int, d: int, offset: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    places = rng.integers(-3, n + 3, d)
    table = values(rng, dtype, n, 3)

    def gathered(table: Any, places: Any) -> Any:
        mask = one_hot(places, n, offset, True).reshape(n, d, 1)
        mask = mask.cast(table.dtype) if isinstance(table, Tensor) else mask
        return (table.reshape(n, 1, 3) * mask).sum(0)

    got = gathered(Tensor(table), Tensor(places)).numpy()
    np.testing.assert_array_equal(got.astype("float64"), gathered(table.astype("float64"), places))


@pytest.mark.parametrize("where", [0, 7, 39])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_masked_value_that_is_not_finite_makes_the_other_sums_nan(where: int, value: float) -> None:
    rng = np.random.default_rng(0)
    places, v = rng.integers(0, 20, 40), rng.integers(-3, 4, 40).astype(np.float32)
    v[where] = value
    with np.errstate(invalid="ignore"):
        want = (one_hot(places, 20, 0, True).astype(np.float32) * v.reshape(1, -1)).sum(1)
    got = (one_hot(Tensor(places), 20, 0, True).float() * Tensor(v).reshape(1, -1)).sum(1).numpy()
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["max", "min", "prod"])
def test_extremes_and_products_by_place(op: str) -> None:
    rng = np.random.default_rng(1)
    places, v = rng.integers(0, 25, 60), (rng.integers(1, 4, 60)).astype(np.float64)
    neutral = {"max": -np.inf, "min": np.inf, "prod": 1.0}[op]
    mask = one_hot(places, 30, 0, True)
    want = getattr(np.where(mask, v.reshape(1, -1), neutral), op)(1)
    chosen = one_hot(Tensor(places), 30, 0, True).where(Tensor(v).reshape(1, -1), neutral)
    got = {"max": chosen.amax, "min": chosen.amin, "prod": chosen.prod}[op](1)
    np.testing.assert_array_equal(got.numpy(), want)


def test_two_tables_and_what_reads_them_in_one_kernel() -> None:
    rng = np.random.default_rng(2)
    places, others = rng.integers(0, 30, 70), rng.integers(0, 30, 50)
    v, w = rng.standard_normal(70), rng.standard_normal(50)
    a, b = np.zeros(30), np.zeros(30)
    np.add.at(a, places, v)
    np.add.at(b, others, w)

    def total(p: np.ndarray, x: np.ndarray) -> Tensor:
        return (one_hot(Tensor(p), 30, 0, True).double() * Tensor(x).reshape(1, -1)).sum(1)

    for threads in (1, 2, 3):
        with Context(THREADS=threads):
            got = total(places, v).exp() - total(others, w) * 2
            np.testing.assert_allclose(got.numpy(), np.exp(a) - b * 2, rtol=1e-12)

"""Numbers as integers in the order of sorting, and positions of extremes, against NumPy for every dtype."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from monolect import Tensor
from monolect.graphs import sort_keys as order
from tests.strategies import often

INTS = ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]
FLOATS = ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def edges(name: str) -> np.ndarray:
    """Values of a dtype among which every pair is worth comparing."""
    if name in INTS:
        d = np.dtype(name)
        ends = [0, 1] if name == "bool" else [np.iinfo(d).min, np.iinfo(d).max, 0, 1, 5]
        return np.array(ends * 2, d)
    d = np.dtype(getattr(ml_dtypes, name, name))
    finfo = ml_dtypes.finfo(d)
    top = [np.inf, -np.inf] if name != "float8_e4m3fn" else [float(finfo.max), -float(finfo.max)]
    tiny = float(finfo.smallest_subnormal)
    return np.array([0.0, -0.0, 1.5, -1.5, tiny, -tiny, *top, np.nan, -np.nan, 0.0, 2.0], np.float64).astype(d)


def rank(x: np.ndarray) -> list[tuple[bool, float]]:
    """A number as Python sorts it: nan last, all of them equal."""
    wide = [float(v) for v in x.astype(np.float64)] if x.dtype.kind not in "iub" else [int(v) for v in x]
    return [(v != v, 0 if v != v else v) for v in wide]


@pytest.mark.sweep
@pytest.mark.parametrize("name", INTS + FLOATS)
def test_keys_are_in_the_order_of_the_values(name: str) -> None:
    x = edges(name)
    keys = [int(k) for k in Tensor._wrap(order.key(Tensor(x)._uop)).numpy()]
    for a, ka in zip(rank(x), keys, strict=True):
        for b, kb in zip(rank(x), keys, strict=True):
            assert (ka < kb, ka == kb) == (a < b, a == b)


@pytest.mark.sweep
@pytest.mark.parametrize("name", INTS + FLOATS)
@pytest.mark.parametrize("method", ["argmax", "argmin"])
def test_position_of_an_extreme(name: str, method: str) -> None:
    x = np.random.default_rng(1).permuted(np.tile(edges(name), (6, 9)), axis=1)
    wide = x if x.dtype.kind in "iub" else x.astype(np.float64)
    numbers = wide[0] == wide[0]
    for a, w in ((x, wide), (x[:1, numbers], wide[:1, numbers])):
        for axis in (0, 1, None):
            got = getattr(Tensor(np.ascontiguousarray(a)), method)(axis)
            np.testing.assert_array_equal(got.numpy(), getattr(w, method)(axis))


@settings(max_examples=often(6, 1000))
@given(st.data())
def test_position_of_an_extreme_of_random_shapes(data: Any) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=40))
    x = data.draw(hnp.arrays(np.float32, shape, elements=st.sampled_from([0.0, -0.0, 1.0, -1.0, np.inf, np.nan])))
    axis = data.draw(st.sampled_from([None, *range(len(shape))]))
    np.testing.assert_array_equal(Tensor(x).argmax(axis).numpy(), x.argmax(axis))
    np.testing.assert_array_equal(Tensor(x).argmin(axis).numpy(), x.argmin(axis))


def test_a_position_that_needs_more_than_32_bits_beside_a_short_key() -> None:
    x = np.zeros(1 << 17, np.int16)
    x[100_001] = 5
    assert Tensor(x).argmax().item() == 100_001 and Tensor(x).argmin().item() == 0

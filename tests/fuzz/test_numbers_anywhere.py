"""A number means the same wherever it arrives: written, compared, or as an argument; of Python or of NumPy.

The oracle is exact: Python's integers and fractions, and one rounding to the dtype.
"""

from collections.abc import Callable
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monolect import Tensor, dtypes
from monolect.base.dtype import DType

INTEGERS = [dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.int32, dtypes.int64]
DTYPES = [*INTEGERS, dtypes.bool, dtypes.float16, dtypes.float32, dtypes.float64]
NEAR = [n + k for n in (0, 127, 255, 32767, 2**24, 2**31, 2**53) for k in (-1, 0, 1)]
WHOLE = st.sampled_from([s * n for n in NEAR for s in (1, -1)]) | st.integers(-(2**53), 2**53)
FLOATS = st.sampled_from([nan, inf, -inf, 0.0, -0.0, 0.1, -2.7, 2.0**30 + 1, 1e-9, 1e39, 1e300]) | st.floats()


def stored(v: Any, d: DType) -> Any:
    """The number as an element of `d`, rounded once."""
    if d is dtypes.bool:
        return bool(v)
    if d.is_float:
        with np.errstate(over="ignore"):
            return d.numpy.type(v).item()
    if isinstance(v, float):
        return 0 if v != v else int(min(max(v, d.min), d.max))
    return int(np.array(v, np.int64).astype(d.numpy))


def as_row(x: Tensor, write: Callable[[Tensor], Any]) -> Tensor:
    write(x)
    return x


def set_to(key: Any, value: Any) -> Callable[[Tensor], None]:
    def write(x: Tensor) -> None:
        x[key] = value

    return write


WRITERS: dict[str, Callable[[Tensor, Any, DType], Tensor]] = {
    "slice": lambda x, v, d: as_row(x, set_to(slice(None), v)),
    "mask": lambda x, v, d: as_row(x, set_to(Tensor([True, True, True]), v)),
    "positions": lambda x, v, d: as_row(x, set_to(Tensor([2, 0, 1]), v)),
    "list": lambda x, v, d: as_row(x, set_to(slice(None), [v, v, v])),
    "copy_": lambda x, v, d: x.copy_(v),
    "copy_ of a list": lambda x, v, d: x.copy_([v, v, v]),
    "fill_": lambda x, v, d: x.fill_(v),
    "assign": lambda x, v, d: x.assign(v),
    "masked_fill": lambda x, v, d: x.masked_fill(Tensor([True, True, True]), v),
    "index_fill": lambda x, v, d: x.index_fill(0, Tensor([0, 1, 2]), v),
    "scatter": lambda x, v, d: x.scatter(0, Tensor([0, 1, 2]), v),
    "pad": lambda x, v, d: x[:0].pad((3, 0), value=v),
    "full": lambda x, v, d: Tensor.full((3,), v, dtype=d),
    "full_like": lambda x, v, d: x.full_like(v),
    "Tensor": lambda x, v, d: Tensor([v, v, v], dtype=d),
    "Tensor of a mixture": lambda x, v, d: Tensor([v, v, v, 0.5, True], dtype=d)[:3],
}


@given(st.sampled_from(list(WRITERS)), st.sampled_from(DTYPES), WHOLE | FLOATS)
@example("slice", dtypes.float64, 0.1)
@example("list", dtypes.float64, 1e300)
@example("copy_", dtypes.float64, 0.1)
@example("masked_fill", dtypes.int64, 2.0**30 + 1)
@example("Tensor of a mixture", dtypes.int64, 2**53 + 1)
def test_a_number_that_is_written_is_rounded_once(how: str, d: DType, v: Any) -> None:
    got = WRITERS[how](Tensor.zeros(3, dtype=d), v, d)
    assert got.dtype is d
    np.testing.assert_array_equal(got.numpy(), np.array([stored(v, d)] * 3, d.numpy))


def elements(d: DType) -> list[Any]:
    return [False, True] if d is dtypes.bool else [0, 1, 44, d.max, d.min] if d.is_int else [0.0, 1.0, 0.5]


@given(st.sampled_from(["and", "or", "xor"]), st.sampled_from(DTYPES), WHOLE | FLOATS)
@example("and", dtypes.int8, 256)
@example("and", dtypes.float16, 1e-9)
def test_the_truth_of_a_number_is_that_of_python(name: str, d: DType, v: Any) -> None:
    x = elements(d)
    got = getattr(Tensor(x, dtype=d), f"logical_{name}")(v).tolist()
    want = {
        "and": lambda e: bool(e) and bool(v),
        "or": lambda e: bool(e) or bool(v),
        "xor": lambda e: bool(e) != bool(v),
    }
    assert got == [want[name](e) for e in x]


@given(st.sampled_from(INTEGERS), WHOLE)
@example(dtypes.int8, 300)
@example(dtypes.uint8, -1)
def test_integers_are_close_by_value(d: DType, v: int) -> None:
    x = [0, 1, 44, d.max, d.min]
    away = [(abs(e - v), Fraction(1, 10**8) + Fraction(abs(v), 10**5)) for e in x]
    got = Tensor(x, dtype=d).isclose(v).tolist()
    assert [g for g, (a, b) in zip(got, away, strict=True) if abs(a - b) > b / 100] == [
        a <= b for a, b in away if abs(a - b) > b / 100
    ]


TAKES: dict[str, Callable[[Any], Tensor]] = {
    "where": lambda v: Tensor.where(Tensor([True, False]), v, 2),
    "where else": lambda v: Tensor.where(Tensor([True, False]), 2, v),
    "where both": lambda v: Tensor.where(Tensor([True, False]), v, v),
    "arange": lambda v: Tensor.arange(0, 3, abs(v) + v.__class__(1)),
    "arange from": lambda v: Tensor.arange(v, 40),
    "linspace": lambda v: Tensor.linspace(v, 1, 4, dtype=dtypes.float64),
    "full": lambda v: Tensor.full((2,), v),
    "full_like": lambda v: Tensor([1, 2]).full_like(v),
    "masked_fill": lambda v: Tensor([1, 2]).masked_fill(Tensor([True, False]), v),
    "isclose": lambda v: Tensor([2**53 + 1]).isclose(v, rtol=0.0),
    "add": lambda v: Tensor([1, 2]) + v,
    "clamp": lambda v: Tensor([-100, 100]).clamp(max=v),
    "logical_and": lambda v: Tensor([0, 2]).logical_and(v),
    "lerp": lambda v: Tensor([1, 2]).lerp(5, v),
}


@given(
    st.sampled_from(list(TAKES)),
    st.floats(-30, 30, width=16).map(np.float32) | st.integers(-30, 30).map(np.int32) | st.just(np.float16(0.25)),
)
@example("where", np.float32(1.5))
@example("arange", np.float32(0.25))
def test_numbers_of_numpy_are_those_of_python(name: str, v: Any) -> None:
    got, want = TAKES[name](v), TAKES[name](v.item())
    assert got.dtype is want.dtype and got.tolist() == want.tolist()


@given(WHOLE, WHOLE, st.integers(2, 9), st.sampled_from([dtypes.int64, dtypes.int32]))
@example(0, 2**24 + 1, 2, dtypes.int64)
@example(-26, 22, 16, dtypes.int32)
def test_linspace_of_integers_is_exact(start: int, end: int, steps: int, d: DType) -> None:
    exact = [int(Fraction(start) + Fraction(end - start) * k / (steps - 1)) for k in range(steps)]
    want = np.array(exact, np.int64).astype(d.numpy).tolist()
    assert Tensor.linspace(start, end, steps, dtype=d).tolist() == want


@pytest.mark.sweep
@pytest.mark.parametrize("d", INTEGERS)
@given(end=st.integers(-40, 40), weight=st.sampled_from([0.25, 0.5, 0.75, 2, 0, 1]))
@example(end=3, weight=0.5)
def test_lerp_of_integers(d: DType, end: int, weight: Any) -> None:
    end = abs(end)
    got = Tensor([1, 20], dtype=d).lerp(end, weight)
    want = [a + Fraction(weight) * (end - a) for a in (1, 20)]
    if isinstance(weight, float):
        assert got.dtype is dtypes.float32 and got.tolist() == [float(w) for w in want]
    else:
        assert got.dtype is d and got.tolist() == [stored(int(w), d) for w in want]

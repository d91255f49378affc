"""Compare random programs with NumPy. Each is called several times, with other sizes, offsets and numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from monolect import Tensor
from monolect.runtime.realize import execute, varied
from tests.strategies import often

TABLE = np.random.default_rng(0).standard_normal((24, 6))


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def part(x: Any, axis: int, key: Any) -> Any:
    return x[(*(slice(None) for _ in range(axis)), key)]


# name -> (for a Tensor, for an array): functions of (value, axis, offset, number)
OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "times": (lambda t, a, o, c: t * c, lambda x, a, o, c: x * c),
    "sum": (lambda t, a, o, c: t.sum(a), lambda x, a, o, c: x.sum(a)),
    "amax": (lambda t, a, o, c: t.amax(a), lambda x, a, o, c: x.max(a)),
    "softmax": (lambda t, a, o, c: t.softmax(a), lambda x, a, o, c: softmax(x, a)),
    "centred": (lambda t, a, o, c: t - t.mean(a, keepdim=True), lambda x, a, o, c: x - x.mean(a, keepdims=True)),
    "rows": (lambda t, a, o, c: part(t, a, slice(o, o + 3)), lambda x, a, o, c: part(x, a, slice(o, o + 3))),
    "rest": (lambda t, a, o, c: part(t, a, slice(1, None)), lambda x, a, o, c: part(x, a, slice(1, None))),
    "last": (lambda t, a, o, c: part(t, a, -1), lambda x, a, o, c: part(x, a, -1)),
    "even": (lambda t, a, o, c: part(t, a, slice(None, None, 2)), lambda x, a, o, c: part(x, a, slice(None, None, 2))),
    "twice": (lambda t, a, o, c: t.cat(t * c, dim=a), lambda x, a, o, c: np.concatenate((x, x * c), a)),
    "flip": (lambda t, a, o, c: t.flip(a), lambda x, a, o, c: np.flip(x, a)),
    "roll": (lambda t, a, o, c: t.roll(o, a), lambda x, a, o, c: np.roll(x, o, a)),
    "cumsum": (lambda t, a, o, c: t.cumsum(a), lambda x, a, o, c: x.cumsum(a)),
    "flat": (lambda t, a, o, c: t.reshape(-1), lambda x, a, o, c: x.reshape(-1)),
    "gram": (lambda t, a, o, c: t @ t.T, lambda x, a, o, c: x @ x.T),
    "pad": (lambda t, a, o, c: t.pad((o, 1)), lambda x, a, o, c: np.pad(x, [(0, 0)] * (x.ndim - 1) + [(o, 1)])),
    "table": (lambda t, a, o, c: t + Tensor(TABLE)[o], lambda x, a, o, c: x + TABLE[o]),
}


def applied(column: int, names: list[tuple[str, int]], value: Any, offset: int, number: float) -> Any:
    """Apply the operations that fit the value; those that do not are left out, for both libraries alike."""
    for name, axis in names:
        shape = value.shape
        if not shape or (name in ("rows", "rest", "even") and shape[axis % len(shape)] < 2):
            continue
        if (name == "gram" and (len(shape) != 2 or shape[0] > 60)) or (name == "table" and shape[-1:] != (6,)):
            continue
        if name == "rows" and offset >= shape[axis % len(shape)]:
            continue
        value = OPS[name][column](value, axis % len(shape), offset, number)
    return value


@settings(max_examples=often(6, 1000))
@given(
    names=st.lists(st.tuples(st.sampled_from([*OPS]), st.integers(0, 1)), min_size=1, max_size=5),
    calls=st.lists(
        st.tuples(st.integers(1, 36), st.integers(0, 20), st.sampled_from([0.5, 1.0, 1.25, 3.0])),
        min_size=5,
        max_size=9,
    ),
    varies=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_programs_at_any_sizes_offsets_and_numbers(
    names: list[tuple[str, int]], calls: list[tuple[int, int, float]], varies: tuple[bool, bool, bool]
) -> None:
    varied._programs.clear()
    execute.plans.clear()
    for call in calls:
        n, offset, number = (x if v else first for x, first, v in zip(call, calls[0], varies, strict=True))
        x = np.random.default_rng(n).standard_normal((n, 6))
        want = applied(1, names, x, offset, number)
        found = applied(0, names, Tensor(x), offset, number).numpy()
        assert found.shape == want.shape
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(want).max(initial=0.0)))

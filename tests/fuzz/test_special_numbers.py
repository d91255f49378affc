"""Random programs whose Python numbers are nan, infinite, zeros of either sign, or ordinary, beside NumPy.

Data have such values too. Where a number is known to the compiler, rules, renderers and folding may use what it is.
"""

import operator
import random
from math import inf, nan
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monolect import Context, Tensor, jit
from monolect.backend.registry import Device
from tests.strategies import often

DEVICES = [name for name, why in Device.present().items() if name in ("cpu", "c", "python") and not why]
SPECIAL = [nan, nan, inf, -inf, 0.0, -0.0, 1.0, -2.0, 0.5, 1e38]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
MODES = ["plain", "jit", "noopt"]


def is_tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def choose(c: Any, a: Any, b: Any) -> Any:
    if is_tensor(c):
        return c.where(a, b)
    return np.where(c, a, b).astype(a.dtype if isinstance(a, np.ndarray) else b.dtype)


def maximum(a: Any, b: Any) -> Any:
    return a.maximum(b) if is_tensor(a) else np.maximum(a, b)


def minimum(a: Any, b: Any) -> Any:
    return a.minimum(b) if is_tensor(a) else np.minimum(a, b)


def extreme(a: Any, name: str, axis: int) -> Any:
    return getattr(a, "a" + name)(axis, keepdim=True) if is_tensor(a) else getattr(a, name)(axis=axis, keepdims=True)


def running(a: Any, axis: int) -> Any:
    return a.cummax(axis).values if is_tensor(a) else np.maximum.accumulate(a, axis)


def chosen(a: Any, c: float, last: bool) -> Any:
    """The extreme over the elements of even place, the others replaced by a number."""
    n = a.shape[-1]
    even = (Tensor.arange(n, device=a.device) if is_tensor(a) else np.arange(n)) % 2 == 0
    return extreme(choose(even, a, c), "max" if last else "min", -1)


def padded(a: Any, c: float) -> Any:
    return a.pad((1, 2), value=c) if is_tensor(a) else np.pad(a, [(0, 0)] * (a.ndim - 1) + [(1, 2)], constant_values=c)


def bounded(a: Any, low: float, high: float) -> Any:
    return a.clamp(low, high) if is_tensor(a) else np.minimum(np.maximum(a, low), high)


def step(rng: random.Random) -> Any:
    """A function of two values of one shape."""
    c, d, axis = rng.choice(SPECIAL), rng.choice(SPECIAL), rng.randrange(2)
    compare, name = rng.choice(COMPARISONS), rng.choice(["max", "min"])
    return rng.choice(
        [
            lambda a, b: maximum(a, c),
            lambda a, b: minimum(a, c),
            lambda a, b: maximum(maximum(a, c), d),
            lambda a, b: maximum(minimum(a, c), b),
            lambda a, b: bounded(a, c, d),
            lambda a, b: a * c,
            lambda a, b: a + c,
            lambda a, b: c - a,
            lambda a, b: c / a,
            lambda a, b: a / c,
            lambda a, b: choose(compare(a, c), a, b),
            lambda a, b: choose(compare(a, b), a, c),
            lambda a, b: choose(compare(b, c), c, a),
            lambda a, b: choose(compare(a, a), d, b),
            lambda a, b: choose(compare(a * c, d), b, a),
            lambda a, b: extreme(maximum(a, c), name, axis) + b * 0.0,
            lambda a, b: extreme(choose(compare(a, d), a, c), name, axis) - b,
            lambda a, b: chosen(a, c, axis == 0) + b,
            lambda a, b: running(maximum(a, c), axis),
            lambda a, b: extreme(padded(a, c), name, 1) + b,
            lambda a, b: maximum(abs(a), c),
            lambda a, b: maximum(a, -a) + minimum(b, d),
        ]
    )


@settings(max_examples=often(6, 1000))
@given(
    st.integers(0, 2**31), st.sampled_from(["float32", "float64", "float16"]), st.sampled_from([1, 3, 16, 37]),
    st.integers(1, 5), st.sampled_from(MODES), st.sampled_from(DEVICES),
)  # fmt: skip
@example(5, "float32", 16, 1, "plain", "cpu")
def test_numbers_that_are_special(seed: int, dtype: str, n: int, steps: int, mode: str, device: str) -> None:
    rng, data = random.Random(seed), np.random.default_rng(seed)
    program = [step(rng) for _ in range(steps)]

    def run(a: Any, b: Any) -> Any:
        for f in program:
            a, b = f(a, b), a
        return a

    f = jit(run) if mode == "jit" else run
    for _ in range(3 if mode == "jit" else 1):
        x, y = (
            np.where(data.random((5, n)) < 0.3, data.choice(SPECIAL, (5, n)), data.integers(-3, 4, (5, n)))
            for _ in "xy"
        )
        with np.errstate(all="ignore"):
            x, y = x.astype(dtype), y.astype(dtype)
            want = run(x, y)
        with Context(NOOPT=int(mode == "noopt")):
            got = f(Tensor(x, device=device), Tensor(y, device=device)).numpy()
        np.testing.assert_array_equal(got, np.broadcast_to(want, got.shape))

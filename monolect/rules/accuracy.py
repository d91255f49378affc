"""State how far results may be from the exact value: the only table of the errors of functions.

What it is for: the bounds that `docs/reference/accuracy.md` prints and that tests/unit/test_accuracy.py and
tests/unit/test_decompose.py measure, both where a product and a sum are fused and where they are not.
What it is not: it does not bound sums other than running sums, products of functions (silu, gelu), or functions that a
target computes natively.

Invariant: the bounds hold for every argument, also subnormal, huge or infinite; nan and infinities come out as NumPy's.
"""

from __future__ import annotations

from typing import NamedTuple


class Bound(NamedTuple):
    """The largest error in ULP (units of least precision of the exact result); 0.5 is correctly rounded."""

    float32: float
    float64: float


# ULP; functions of narrow floats are computed in float32 and rounded once.
NARROW_ULP = 0.51

SMALL_POWER = "pow by -2, 3 or 4"

# ULP; running sums of float32 carried in float64 (`rules.loops.carry`), on targets that have it, up to 10 million
# terms. A sum of terms of one sign has float32 roundings of the carry, of the sums within a vector, and of the result.
RUNNING_ULP = {"cumsum of one sign": 5.0, "cumprod": 0.6}

MAX_ULP: dict[str, Bound] = {
    "exp2": Bound(1.2, 1.2),
    "exp": Bound(1.2, 1.2),
    "expm1": Bound(2.1, 2.1),
    "log2": Bound(1.4, 1.4),
    "log": Bound(1.0, 1.0),
    "log10": Bound(2.3, 3.3),
    "log1p": Bound(3.0, 3.0),
    "sqrt": Bound(1.3, 1.3),
    "rsqrt": Bound(1.5, 1.5),
    "pow": Bound(1.2, 1.2),
    # computed as products: the second product doubles the first rounding and adds its own
    SMALL_POWER: Bound(2.0, 2.0),
    "sin": Bound(1.0, 1.2),
    "cos": Bound(1.0, 1.2),
    "tan": Bound(2.7, 3.0),
    "asin": Bound(2.5, 2.3),
    "acos": Bound(1.4, 1.3),
    "atan": Bound(2.5, 3.1),
    "sinh": Bound(3.3, 3.2),
    "cosh": Bound(3.4, 3.5),
    "tanh": Bound(3.3, 3.0),
    "asinh": Bound(3.6, 3.6),
    "acosh": Bound(4.2, 4.2),
    "atanh": Bound(3.6, 3.6),
    "sigmoid": Bound(2.5, 2.5),
    "logsigmoid": Bound(3.7, 3.7),
    "erf": Bound(2.7, 2.7),
    "erfc": Bound(6.0, 7.5),
}


__all__ = ["Bound", "MAX_ULP", "NARROW_ULP", "RUNNING_ULP", "SMALL_POWER"]

"""Samples of floats, and errors in units in the last place."""

import math

import numpy as np
import pytest
from ml_dtypes import finfo  # NumPy's, and those of narrow floats

from monolect.base.dtype import to_numpy

HALF_PI = math.pi / 2
RNG = np.random.default_rng(20240229)
wide = np.longdouble
needs_long_double = pytest.mark.skipif(np.finfo(wide).nmant < 63, reason="long double is float64 here")


def patterns(d, n):
    """Floats of random bits, and the neighbourhoods of the edges of the format."""
    bits, mantissa = d.bits, {32: 23, 64: 52}[d.bits]
    top = ((1 << bits - 1 - mantissa) - 1) << mantissa
    edges = [0, 1 << mantissa, top, top + (1 << mantissa - 1), top // 2 & -(1 << mantissa), 150 << mantissa]
    near = np.array([(e + k) % 2**bits for e in edges for k in range(-3, 4)], np.uint64)
    near = np.concatenate([near, near ^ np.uint64(1 << bits - 1)])
    random = RNG.integers(0, 2**64, n, dtype=np.uint64) >> np.uint64(64 - bits)
    return np.concatenate([near, random]).astype(f"uint{bits}").view(to_numpy(d))


def uniform(d, low, high, n=200_000):
    return RNG.uniform(low, high, n).astype(to_numpy(d))


def near_quadrants(d, count=40_000):
    """The floats around the multiples of pi/2, where sine or cosine is smallest."""
    x = (np.arange(1, count) * HALF_PI).astype(to_numpy(d))
    return np.concatenate([x, np.nextafter(x, to_numpy(d).type(0)), -x])


def ulps(got, exact):
    """Errors in units in the last place of the exact value; nan for nan and the right infinity count as 0."""
    info = finfo(got.dtype)
    with np.errstate(all="ignore"):
        exponent = np.maximum(np.frexp(np.abs(exact))[1] - 1, info.minexp) - info.nmant
        error = np.abs(got.astype(wide) - exact) / np.ldexp(wide(1), exponent.astype(np.int32))
        rounded = exact.astype(got.dtype)
        error = np.where((got == rounded) & ~np.isfinite(rounded) | np.isnan(got) & np.isnan(exact), 0, error)
    return np.where(np.isnan(error), np.inf, error)


def assert_close(got, exact, bound, *args):
    error = ulps(got, exact)
    i = int(np.argmax(error))
    where = [a[i] for a in args]
    assert error[i] <= bound, f"{float(error[i]):.3f} ULP at {where}: {got[i]!r} instead of {exact[i]!r}"

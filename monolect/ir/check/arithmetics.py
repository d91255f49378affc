"""Decide whether rounding explains a difference between two results, by recomputing them with other roundings.

What it is for: comparing results of a compiled program with `ir.check.points`. There floats round once for each
operation, and sums are added up in float64. Another order of additions or another approximation rounds differently,
and a comparison of floats may then have another result. With a `noise_seed` of 0 floats round to nearest; each other
seed perturbs the roundings differently. The variation of a result between seeds measures the difference that rounding
explains.
What it is not: a bound on errors. A fault that is smaller than the effect of rounding is not detected.

Invariant: a perturbation depends only on the seed and the exact result, so equal computations with one seed have equal
results. For example, the largest element equals the maximum.
Source: Parker, "Monte Carlo arithmetic: exploiting randomness in floating-point arithmetic", 1997.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from monolect.base.dtype import DType
from monolect.ir.check.arrays import Array, Mask, storage

NOISE_SEEDS = (8, 32)  # numbers of noise seeds that are tried in turn, until all differences are explained
SPREAD = 6.0  # multiple of the largest deviation between seeds up to which rounding explains a difference
NEAR = 8.0  # ulps; a smaller difference needs no explanation
MOST_OPEN = 16  # differing elements that are computed with other seeds; one unexplained element is enough
# by dtype: the machine epsilon, and the smallest normal value, of floats below 32 bits
NARROW = {
    "bfloat16": (2.0**-7, 2.0**-126), "float16": (2.0**-10, 2.0**-14), "fp8e4m3": (2.0**-3, 2.0**-6),
    "fp8e5m2": (2.0**-2, 2.0**-14),
}  # fmt: skip

Evaluate = Callable[
    [int, Array], tuple[Array, Mask]
]  # (noise seed, sample numbers) -> (values, mask of those that exist)


def unit(dtype: DType) -> float:
    """Return the machine epsilon of the float dtype `dtype`: the largest relative distance of adjacent values."""
    return {64: 2.0**-52, 32: 2.0**-23}.get(dtype.bits) or NARROW[dtype.name][0]


def noise(x: Array, noise_seed: int) -> Array:
    """Return an array of pseudorandom numbers in [-1, 1], one for each float of `x`: a hash of the float's bits and
    `noise_seed`.

    Source: the finaliser of SplitMix64.
    """
    with np.errstate(over="ignore"):
        z = np.ascontiguousarray(x, np.float64).view(np.uint64) + np.uint64((noise_seed * 0x9E3779B97F4A7C15) % 2**64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1.0


def perturbed(noise_seed: int, out: Array, exact: Array, by: Array, dtype: DType) -> Array:
    """Return the array `exact` plus pseudorandom noise of at most `by` (an array), rounded to `dtype`. `noise_seed`
    selects the noise.

    Elements where `by` is 0, or where `exact` or `by` is not finite, are taken from `out`, the rounded result without
    noise.
    """
    finite = np.isfinite(exact) & np.isfinite(by)
    moved = exact + np.where(finite, by, 0.0) * noise(exact, noise_seed)
    return np.where(finite & (by != 0), moved.astype(storage(dtype)), out)


def rounded_constant(noise_seed: int, value: Array, dtype: DType) -> Array:
    """Return the constant `value` of dtype `dtype` with noise added if it is a float with many significant bits, since
    it may itself be a rounded number.

    `value`: a NumPy scalar or an array of one element. `noise_seed` selects the noise; 0 means no noise.
    """
    if not noise_seed or not dtype.is_float or dtype.bits < 32 or not np.isfinite(value):
        return value
    bits, few = (np.uint32, 12) if dtype.bits == 32 else (np.uint64, 26)
    if not int(value.view(bits)) & ((1 << few) - 1):
        return value
    exact = value.astype(np.float64)
    return perturbed(noise_seed, value, exact, np.abs(exact) * unit(dtype), dtype)


def maximum(dtype: DType, a: Array, b: Array) -> Array:
    """Compute the op MAX of the arrays `a` and `b`, where 0.0 is larger than -0.0. `dtype`: their dtype."""
    return np.logical_or(a, b) if dtype.kind == "b" else np.where((a == b) & (a == 0), a + b, np.maximum(a, b))


def multiply_add(dtype: DType, a: Array, b: Array, c: Array) -> Array:
    """Compute `a` * `b` + `c` on arrays of dtype `dtype`. Floats are computed in float64 with about one rounding, by
    adding the rounding errors of the product and the sum.

    Arrays of floats are given and returned as float64, whatever `dtype` is. Source: Dekker, "A floating-point technique
    for extending the available precision", 1971.
    """
    if not dtype.is_float:
        return np.asarray(a * b + c)
    p = a * b
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    lost = ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2
    s = p + c
    t = s - p
    total = s + (((p - (s - t)) + (c - t)) + lost)
    return np.where(np.isfinite(total), total, s)


def _halves(a: Array) -> tuple[Array, Array]:
    """Split each float64 of `a` into two floats whose sum it is: (the upper half of the digits, the lower half)."""
    x = a * 134217729.0  # 2**27 + 1
    upper = x - (x - a)
    return upper, a - upper


def differing(found: Array, dtype: DType, evaluate: Evaluate) -> tuple[Array, Array]:
    """Compare the samples `found` of a result, of dtype `dtype`, with their expected values.

    `evaluate(noise_seed, rows)` computes (expected values, validity mask) of the samples with the numbers `rows`. It is
    called with seed 0 for all samples, and with other seeds for at most MOST_OPEN samples that differ. Returns (numbers
    of the samples whose difference rounding does not explain, expected values of all samples).
    """
    expected, mask = evaluate(0, np.arange(len(found)))
    wrong = ~_near(found, expected, dtype)
    if mask is not None:
        wrong &= mask
    rows = np.flatnonzero(wrong)[:MOST_OPEN]
    runs: list[Array] = []
    for n in NOISE_SEEDS:
        if len(rows):
            runs = [evaluate(seed, rows)[0] for seed in range(1, n + 1)]
            rows = rows[~explained(found[rows], expected[rows], np.stack(runs), dtype)]
    return rows, expected


def _near(a: Array, b: Array, dtype: DType) -> Array:
    """Return a mask that is true where `a` equals `b` up to a few units in the last place of `dtype`, or both are
    nan.
    """
    if not dtype.is_float:
        return np.asarray(a == b)
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(x - y) <= NEAR * unit(dtype) * np.abs(y) + _least(dtype)
    return np.asarray((x == y) | near | (np.isnan(x) & np.isnan(y)))


def explained(found: Array, expected: Array, runs: Array, dtype: DType) -> Array:
    """Return a mask that is true where rounding explains the difference between `found` and `expected`, arrays of
    `dtype`.

    `runs`: the expected values computed with several noise seeds, one row per seed. Rounding explains a difference that
    is about as large as that between `runs` and `expected`.
    """
    if not dtype.is_float:
        lo, hi = np.minimum(runs.min(axis=0), expected), np.maximum(runs.max(axis=0), expected)
        return np.asarray((lo <= found) & (found <= hi))
    f, e, r = (x.astype(np.float64) for x in (found, expected, runs))
    with np.errstate(all="ignore"):
        e = np.where(
            np.isfinite(e), e, np.nan_to_num(np.nanmean(np.where(np.isfinite(r), r, np.nan), axis=0), nan=np.inf)
        )
    alike = np.any((r == f) | (np.isnan(r) & np.isnan(f)), axis=0)
    with np.errstate(all="ignore"):
        spread = np.nanmax(np.where(np.isfinite(r - e), np.abs(r - e), 0.0), axis=0)
        near = np.abs(f - e) <= SPREAD * spread + NEAR * unit(dtype) * np.abs(e) + _least(dtype)
    return alike | near


def _least(dtype: DType) -> float:
    """Return the smallest normal value of the float dtype `dtype`. A target may flush smaller values to 0."""
    return {64: 2.0**-1022, 32: 2.0**-126}.get(dtype.bits) or NARROW[dtype.name][1]


__all__ = ["Evaluate", "differing", "explained", "maximum", "multiply_add", "rounded_constant", "perturbed", "unit"]

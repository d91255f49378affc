"""Distributions as formulas over the numbers of a `Source`, lazily and with a fixed number of draws for each element.

What it is for: the functions of `monolect.random` and the in-place methods share these formulas.
What it is not: parameters are not checked here. They are numbers, or Tensors that broadcast to the shape of the source;
results have the dtype `wide` of the source.
Invariant: a formula draws the same number of bits whatever the values are, so it can be captured; a rejection sampler
has a fixed number of proposals, whose last one is taken unconditionally.
Gradients: those of location, scale and rate are reparametrised, that of the concentration of a gamma variate is the
implicit one. Discrete results have none.
Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000; Hormann, "The transformed
rejection method for generating Poisson random variables", 1993; Hormann, "The generation of binomial random variates",
1993; Loader, "Fast and accurate computation of binomial probabilities", 2000; Giles, "Approximating the erfinv
function", 2010.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

from monolect.base.dtype import dtypes
from monolect.tensor.base import TensorBase
from monolect.tensor.draws.source import Source

GAMMA_PROPOSALS = 6  # each is refused with a probability of at most 0.05
POISSON_PROPOSALS = 10  # each is refused with a probability of at most 0.22
BINOMIAL_PROPOSALS = 14  # each is refused with a probability of at most 0.31
FEW = 10.0  # Poisson rates and binomial means below are inverted term by term
FEW_TERMS = 48  # terms of such an inversion: a rate below FEW has no larger result with a probability of 1e-16
# Polynomials of erfinv in w - 2.5, and in sqrt(w) - 3 for w >= 5, where w = -log(1 - x * x); highest power first.
_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def inner(source: Source, value: Any) -> Any:
    """Return a parameter in the dtype `wide`: a Tensor is cast, a number stays."""
    return value.cast(source.wide) if isinstance(value, TensorBase) else value


def without_gradient(value: Any) -> Any:
    """Return a parameter of which the result has no gradient."""
    return value.detach() if isinstance(value, TensorBase) else value


def _first_taken(proposals: list[tuple[Any, Any]]) -> Any:
    """Return the value of the first pair (is taken, value) that is taken, or of the last pair."""
    found = proposals[-1][1]
    for is_taken, value in reversed(proposals[:-1]):
        found = is_taken.where(value, found)
    return found


# ---- continuous ------------------------------------------------------------------------------------------------------
def laplace(source: Source) -> Any:
    """Return numbers of the Laplace distribution of location 0 and scale 1."""
    numbers, sign = source.near_zero()
    return -numbers.log() * sign


def cauchy(source: Source) -> Any:
    """Return numbers of the Cauchy distribution of median 0 and scale 1.

    The magnitude is the cotangent of an angle near 0, where floats are dense, so the tail is long: to 2**33 / pi.
    """
    numbers, sign = source.near_zero()
    angle = numbers * (pi / 2)
    return angle.cos().abs() / angle.sin() * sign


def gumbel(source: Source) -> Any:
    """Return numbers of the Gumbel distribution of location 0 and scale 1."""
    return -source.exponential().log()


def erfinv(x: Any) -> Any:
    """Return the inverse of erf for x in (-1, 1), a float32 or float64 Tensor; float64 is refined by Newton steps."""
    single = x.cast(dtypes.float32)
    w = -((1.0 - single) * (1.0 + single)).log()
    near, far = w - 2.5, w.maximum(5.0).sqrt() - 3.0
    centre, tail = _CENTRE[0], _TAIL[0]
    for a, b in zip(_CENTRE[1:], _TAIL[1:], strict=True):
        centre, tail = near * centre + a, far * tail + b
    y = (w < 5.0).where(centre, tail) * single
    if x.dtype is not dtypes.float64:
        return y
    y = y.cast(x.dtype)
    for _ in range(2):
        error = (y.erf() - x) * (sqrt(pi) / 2) * (y * y).exp()
        y = y - error / (1.0 + y * error)  # Halley's step
    return y


def truncated_normal(source: Source, low: Any, high: Any) -> Any:
    """Return normal numbers (mean 0, variance 1) between `low` and `high`, by the inverse of the distribution function.

    `low` and `high` are Tensors of the dtype `wide`, which need not have the shape of the source.
    """
    first, last = (low * sqrt(0.5)).erf(), (high * sqrt(0.5)).erf()
    x = first + (last - first) * source.open_unit()
    most = 1.0 - (2.0**-53 if source.wide is dtypes.float64 else 2.0**-24)
    return (erfinv(x.clamp(-most, most)) * sqrt(2.0)).maximum(low).minimum(high)


def log_gamma_variate(source: Source, concentration: Any) -> Any:
    """Return logarithms of gamma variates of rate 1: a variate of a small concentration may be too small for a float.

    A concentration below 1 is raised by 1 first, and the variate scaled by the power 1 / concentration of a uniform
    number.
    """
    make = source.stream.make
    given = concentration if isinstance(concentration, TensorBase) else make.full((), concentration, dtype=source.wide)
    a = given.detach()
    d = (a < 1.0).where(a + 1.0, a) - 1.0 / 3.0
    c = (d * 9.0).rsqrt()
    proposals = []
    for _ in range(GAMMA_PROPOSALS):
        x, uniform = source.normal(), source.near_zero()[0]
        root = x * c + 1.0
        log_cube = root.abs().log() * 3.0
        is_taken = (root > 0.0) & (uniform.log() < x * x * 0.5 + d * (1.0 - root * root * root + log_cube))
        proposals.append((is_taken, log_cube))
    logarithm = _first_taken(proposals) + d.log()
    raised = -source.exponential() / a
    logarithm = logarithm + (a < 1.0).where(raised, 0.0)
    if not isinstance(concentration, TensorBase):
        return logarithm
    from monolect.tensor.methods.pointwise.incomplete_gamma import log_variate  # imported only for such a gradient

    return log_variate(logarithm, concentration)


# ---- discrete --------------------------------------------------------------------------------------------------------
def bernoulli(source: Source, p: Any) -> Any:
    """Return bools that are true with the probability `p`."""
    return source.unit() < without_gradient(p)


def geometric(source: Source, p: Any) -> Any:
    """Return the number of trials of probability `p` until the first success, 1 or more."""
    make = source.stream.make
    p = without_gradient(p) if isinstance(p, TensorBase) else make.full((), p, dtype=source.wide)
    return (source.near_zero()[0].log() / (-p).log1p()).ceil().maximum(1.0)


def poisson(source: Source, rate: Any) -> Any:
    """Return numbers of events at `rate`: by inversion for small rates, else by transformed rejection.

    A number as rate chooses one of the two; for a Tensor both are computed.
    """
    make = source.stream.make
    if not isinstance(rate, TensorBase):
        few = make.full((), rate, dtype=source.wide)
        return _few(source, few) if rate < FEW else _many(source, few)
    rate = without_gradient(rate)
    return (rate < FEW).where(_few(source, rate.minimum(FEW)), _many(source, rate.maximum(FEW)))


def _few(source: Source, rate: Any) -> Any:
    """Return the number of terms whose sum does not exceed a uniform number."""
    left = source.open_unit()
    term, k = (-rate).exp(), 0.0
    for n in range(FEW_TERMS):
        left = left - term
        k = (left > 0.0).where(1.0, 0.0) + k
        term = term * rate * (1.0 / (n + 1))
    return k


def _many(source: Source, rate: Any) -> Any:
    b = rate.sqrt() * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    proposals = []
    for _ in range(POISSON_PROPOSALS):
        u, v = source.open_unit() - 0.5, source.near_zero()[0]
        us = 0.5 - u.abs()
        k = ((a * 2.0 / us + b) * u + rate + 0.43).floor()
        bound = _log_probability(k, rate)
        is_taken = (k >= 0.0) & ((v * inverse_alpha / (a / (us * us) + b)).log() <= bound)
        proposals.append((is_taken, k.maximum(0.0)))
    return _first_taken(proposals)


def _log_probability(k: Any, rate: Any) -> Any:
    """Return the logarithm of the probability of `k` events, without differences of large numbers.

    It is -log(sqrt(2 pi n)) - n D(rate / n) - s(n) for the factorial of n = k, where D(r) = r - 1 - log(r) and s is the
    error of Stirling's formula; for k = 0 it is -rate.
    """
    n = k.maximum(1.0)
    many = -(n * (2.0 * pi)).log() * 0.5 - _deviance(n, rate) - _stirling_error(n)
    return (k < 1.0).where(-rate, many)


def _deviance(n: Any, mean: Any) -> Any:
    """Return n D(mean / n), where D(r) = r - 1 - log(r); n is at least 1."""
    r = (mean - n) / n
    series = r * r * (0.5 - r * (1.0 / 3.0 - r * (0.25 - r * (0.2 - r * (1.0 / 6.0)))))
    return n * (r.abs() < 0.02).where(series, r - r.log1p())


def _stirling_error(n: Any) -> Any:
    """Return the error of Stirling's formula for the logarithm of the factorial of n, which is at least 1."""
    i = n.reciprocal()
    return i * (1.0 / 12.0 - i * i * (1.0 / 360.0 - i * i * (1.0 / 1260.0 - i * i * (1.0 / 1680.0))))


def binomial(source: Source, n: Any, p: Any) -> Any:
    """Return numbers of successes in `n` trials of probability `p`: by inversion for small means, else by transformed
    rejection.

    Numbers choose one of the two; for a Tensor both are computed. The rarer of success and failure is counted.
    """
    make = source.stream.make
    is_known = not isinstance(n, TensorBase) and not isinstance(p, TensorBase)
    is_few = is_known and n * min(p, 1.0 - p) < FEW
    n, p = (
        without_gradient(v) if isinstance(v, TensorBase) else make.full((), float(v), dtype=source.wide) for v in (n, p)
    )
    is_rare = p <= 0.5
    rarer = is_rare.where(p, 1.0 - p)
    if is_known:
        k = _few_of(source, n, rarer) if is_few else _many_of(source, n, rarer)
    else:
        few = n * rarer < FEW
        many = _many_of(source, few.where(2.0 * FEW, n), few.where(0.5, rarer))
        k = few.where(_few_of(source, n, rarer), many)
    return is_rare.where(k, n - k)


def _few_of(source: Source, n: Any, p: Any) -> Any:
    """Return the number of terms whose sum does not exceed a uniform number, for p of at most 1/2."""
    left = source.open_unit()
    odds = p / (1.0 - p)
    term, k = (n * (-p).log1p()).exp(), 0.0
    for i in range(FEW_TERMS):
        left = left - term
        k = (left > 0.0).where(1.0, 0.0) + k
        term = term * ((n - float(i)).maximum(0.0) * odds * (1.0 / (i + 1)))
    return n.minimum(k)


def _many_of(source: Source, n: Any, p: Any) -> Any:
    """Return numbers by transformed rejection, for a mean of at least FEW and p of at most 1/2."""
    mean, spread = n * p, (n * p * (1.0 - p)).sqrt()
    b = spread * 2.53 + 1.15
    a = b * 0.0248 + p * 0.01 - 0.0873
    alpha = (2.83 + 5.1 / b) * spread
    at_mode = _log_binomial(((n + 1.0) * p).floor(), n, p)
    proposals = []
    for _ in range(BINOMIAL_PROPOSALS):
        u, v = source.open_unit() - 0.5, source.near_zero()[0]
        us = 0.5 - u.abs()
        k = ((a * 2.0 / us + b) * u + mean + 0.5).floor()
        inside = k.maximum(0.0).minimum(n)
        bound = _log_binomial(inside, n, p) - at_mode
        is_taken = k.eq(inside) & ((v * alpha / (a / (us * us) + b)).log() <= bound)
        proposals.append((is_taken, inside))
    return _first_taken(proposals)


def _log_binomial(k: Any, n: Any, p: Any) -> Any:
    """Return the logarithm of the probability of `k` successes in `n` trials, as `_log_probability` does."""
    q = 1.0 - p
    some, others = k.maximum(1.0), (n - k).maximum(1.0)
    errors = _stirling_error(n) - _stirling_error(some) - _stirling_error(others)
    deviances = _deviance(some, n * p) + _deviance(others, n * q)
    inner = errors - deviances - (some / n * others * (2.0 * pi)).log() * 0.5
    return (k < 1.0).where(n * (-p).log1p(), (k > n - 1.0).where(n * p.log(), inner))


__all__ = [
    "bernoulli",
    "binomial",
    "cauchy",
    "erfinv",
    "geometric",
    "gumbel",
    "inner",
    "laplace",
    "log_gamma_variate",
    "poisson",
    "truncated_normal",
    "without_gradient",
]

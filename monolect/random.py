"""Random numbers as functions: distributions, Generators and splittable keys.

A function takes `size`, `dtype` and `device` as keywords and its parameters as numbers or Tensors. Without `size` the
result has the broadcast shape of the parameters. Numbers come from the device's sequence in the order of the calls;
with `generator=` from the sequence of that Generator; with `key=` from the key alone: the same key gives the same
numbers, whatever else is drawn. Everything is lazy and can be part of a captured step.

>>> from monolect import random
>>> key = random.key(0)
>>> first, second = random.split(key)
>>> random.normal(size=2, key=first).tolist() == random.normal(size=2, key=first).tolist()
True
>>> random.normal(size=2, key=first).tolist() == random.normal(size=2, key=second).tolist()
False
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, IRError, ShapeError
from monolect.base.numpy import np
from monolect.tensor import random as states
from monolect.tensor.base import DeviceLike, DTypeLike, Sizes, TensorLike, as_int, as_sizes
from monolect.tensor.draws import distributions
from monolect.tensor.draws.generator import Generator, restore_state, state_copy
from monolect.tensor.draws.source import Source, float_dtype
from monolect.tensor.guard import guarded
from monolect.tensor.random import Stream, initial_seed, manual_seed
from monolect.tensor.tensor import Tensor


class _From(TypedDict, total=False):
    """Keyword options of all functions that draw: where from, and on which device."""

    device: DeviceLike | None
    generator: Generator | None
    key: Tensor | None


class _Options(_From, total=False):
    """Keyword options of the functions that draw floats."""

    dtype: DTypeLike | None


_F = TypeVar("_F", bound=Callable[..., Any])
_public: Callable[[_F], _F] = guarded  # Python errors of arguments become errors of monolect's tree


# ---- state -----------------------------------------------------------------------------------------------------------
@_public
def key(seed: int, *, device: DeviceLike | None = None) -> Tensor:
    """Return the key of a seed, a uint64 Tensor of shape (). Raises ArgumentError where `seed` is no int.

    >>> from monolect import random
    >>> random.key(3).dtype, random.key(3).item() == random.key(3).item()
    (dtypes.uint64, True)
    """
    return Tensor(np.array(states.key_of_seed(seed), np.uint64), device=device)


@_public
def split(key: Tensor, n: int = 2) -> Tensor:
    """Return `n` new keys, a uint64 Tensor of shape (n,); unpack it, or take one by its index.

    Numbers drawn by them are independent of each other and of those of `key`, which may be used further. Keys have 64
    bits: among 2**32 keys two are equal with a probability of 0.4. Raises ArgumentError for an n below 1.

    >>> from monolect import random
    >>> a, b = random.split(random.key(0))
    >>> a.item() == b.item()
    False
    """
    if as_int(n, "n") < 1:
        raise ArgumentError("random.split: n", expected="at least 1", found=n)
    return Tensor._wrap(states.split_key(key, n))


@_public
def fold_in(key: Tensor, data: TensorLike) -> Tensor:
    """Return the key that `key` and the low 32 bits of `data` determine, such as the number of a step.

    `data` is an int or an integer Tensor of shape (). Raises ArgumentError for other data.

    >>> from monolect import random
    >>> key = random.key(0)
    >>> random.fold_in(key, 1).item() == random.fold_in(key, 2).item()
    False
    """
    return Tensor._wrap(states.folded_key(key, data))


@_public
def get_rng_state(device: DeviceLike | None = None) -> Tensor:
    """Return the state of a device, a uint64 Tensor (numbers used, key): a copy that later draws do not change.

    >>> from monolect import random
    >>> state = random.get_rng_state()
    >>> a = random.uniform(size=2).tolist()
    >>> random.set_rng_state(state)
    >>> a == random.uniform(size=2).tolist()
    True
    """
    return state_copy(states.state_on(Tensor, device))


@_public
def set_rng_state(new_state: Tensor, device: DeviceLike | None = None) -> None:
    """Continue the sequence of a device from a state that `get_rng_state` returned.

    Raises ArgumentError for other values.

    >>> from monolect import random
    >>> random.set_rng_state(random.get_rng_state())
    """
    restore_state(states.state_on(Tensor, device), new_state)


@_public
def seed() -> int:
    """Restart the sequence of every device from a seed of the operating system, and return that seed.

    >>> from monolect import random
    >>> random.seed() == random.initial_seed()
    True
    """
    manual_seed(number := states.new_seed())
    return number


# ---- one call --------------------------------------------------------------------------------------------------------
def _source(name: str, size: Any, parameters: tuple[Any, ...], options: Any) -> Source:
    """Return the Source of one call of the function `name`; `options` are those that its user gave.

    Raises ShapeError where the parameters do not broadcast to `size`.
    """
    dtype = float_dtype(options.get("dtype"), name, *parameters)
    given = [p for p in parameters if isinstance(p, Tensor)]
    device = options.get("device")
    if device is None and given and options.get("key") is None and options.get("generator") is None:
        device = given[0].device
    stream = Stream(Tensor, device, options.get("generator"), options.get("key"))
    return Source(stream, _shape(name, size, [p.shape for p in given]), dtype)


def _shape(name: str, size: Any, shapes: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return `size` as a shape, or for None the common shape of the parameters, which must broadcast to it."""
    zeros = [Tensor.full(s, 0) for s in shapes]
    if size is not None:
        zeros.append(Tensor.full(size, 0))
    total = Tensor.full((), 0)
    try:
        for z in zeros:
            total = total + z
    except (IRError, ShapeError) as error:
        raise ShapeError(f"{name}: parameters", expected="shapes that broadcast", found=shapes) from error
    if size is not None and total.shape != zeros[-1].shape:
        expected = f"shapes that broadcast to the size {zeros[-1].shape}"
        raise ShapeError(f"{name}: parameters", expected=expected, found=shapes)
    return total.shape


def _check(name: str, expected: str, is_right: Callable[[Any], bool], **parameters: Any) -> None:
    """Raise ArgumentError for a number among `parameters` that is not `expected`; Tensors are not looked at."""
    for parameter, value in parameters.items():
        if not isinstance(value, Tensor) and not is_right(value):
            raise ArgumentError(f"{name}: {parameter}", expected=expected, found=value)


def _positive(name: str, **parameters: Any) -> None:
    _check(name, "above 0", lambda x: x > 0, **parameters)


def _check_range(name: str, low: Any, high: Any) -> None:
    if not isinstance(low, Tensor) and not isinstance(high, Tensor) and not low <= high:
        raise ArgumentError(f"{name}: range", expected="low <= high", found=(low, high))


def _scaled(source: Source, t: Any, scale: Any, loc: Any = 0.0) -> Tensor:
    """Return t * scale + loc, in the dtype of the call."""
    result: Tensor = source.out(t * distributions.inner(source, scale) + distributions.inner(source, loc))
    return result


# ---- continuous ------------------------------------------------------------------------------------------------------
@_public
def uniform(
    low: TensorLike = 0.0, high: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return uniform numbers in [low, high), with gradients by both. Rounding of large limits may give `high`.

    `options` are dtype, device, generator and key. Raises ArgumentError for numbers with low > high.

    >>> from monolect import random
    >>> x = random.uniform(2.0, 3.0, size=(2, 4))
    >>> x.shape, bool(((x >= 2) & (x < 3)).all().item())
    ((2, 4), True)
    """
    _check_range("uniform", low, high)
    source = _source("uniform", size, (low, high), options)
    first, last = distributions.inner(source, low), distributions.inner(source, high)
    return _scaled(source, source.unit(source.dtype).cast(source.wide), last - first, first)


@_public
def normal(
    mean: TensorLike = 0.0, std: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return normal numbers of this mean and standard deviation, with gradients by both.

    `options` are dtype, device, generator and key. Raises ArgumentError for a negative number as `std`.

    >>> from monolect import Tensor, random
    >>> random.normal(Tensor([0.0, 100.0]), 0.0).tolist()
    [0.0, 100.0]
    """
    _check("normal", "at least 0", lambda x: x >= 0, std=std)
    source = _source("normal", size, (mean, std), options)
    return _scaled(source, source.normal(), std, mean)


@_public
def log_normal(
    mean: TensorLike = 0.0, std: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return numbers whose logarithms are normal, of this mean and standard deviation, with gradients by both.

    `options` are dtype, device, generator and key. Raises ArgumentError for a negative number as `std`.

    >>> from monolect import random
    >>> random.log_normal(1.0, 0.0, size=2).tolist()
    [2.7182817459106445, 2.7182817459106445]
    """
    _check("log_normal", "at least 0", lambda x: x >= 0, std=std)
    source = _source("log_normal", size, (mean, std), options)
    normal = source.normal() * distributions.inner(source, std) + distributions.inner(source, mean)
    result: Tensor = source.out(normal.exp())
    return result


@_public
def truncated_normal(
    low: TensorLike = -2.0,
    high: TensorLike = 2.0,
    mean: TensorLike = 0.0,
    std: TensorLike = 1.0,
    size: Sizes | None = None,
    **options: Unpack[_Options],
) -> Tensor:
    """Return normal numbers of this mean and standard deviation that are in [low, high], by the inverse of the
    distribution function.

    The limits are those of the result, as in `nn.init.trunc_normal_`. An interval above 5 (float64: 8) standard
    deviations from the mean has few different numbers. `options` are dtype, device, generator and key. Raises
    ArgumentError for numbers with low > high, and for a `std` that is not above 0.

    >>> from monolect import random
    >>> x = random.truncated_normal(-1.0, 1.0, size=100)
    >>> bool((x.abs() <= 1).all().item())
    True
    """
    _check_range("truncated_normal", low, high)
    _positive("truncated_normal", std=std)
    source = _source("truncated_normal", size, (low, high, mean, std), options)
    low, high, mean, std = (
        p if isinstance(p, Tensor) else Tensor.full((), p, dtype=source.wide)
        for p in (distributions.inner(source, p) for p in (low, high, mean, std))
    )
    unit = distributions.truncated_normal(source, (low - mean) / std, (high - mean) / std)
    result: Tensor = source.out((unit * std + mean).maximum(low).minimum(high))
    return result


@_public
def exponential(rate: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return numbers of the exponential distribution, all above 0, with a gradient by `rate`.

    `options` are dtype, device, generator and key. Raises ArgumentError for a number as `rate` that is not above 0.

    >>> from monolect import random
    >>> bool((random.exponential(3.0, size=10) > 0).all().item())
    True
    """
    _positive("exponential", rate=rate)
    source = _source("exponential", size, (rate,), options)
    result: Tensor = source.out(source.exponential() / distributions.inner(source, rate))
    return result


@_public
def laplace(
    loc: TensorLike = 0.0, scale: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return numbers of the Laplace distribution, with gradients by `loc` and `scale`.

    `options` are dtype, device, generator and key. Raises ArgumentError for a number as `scale` that is not above 0.

    >>> from monolect import random
    >>> random.laplace(size=(2, 3)).shape
    (2, 3)
    """
    _positive("laplace", scale=scale)
    source = _source("laplace", size, (loc, scale), options)
    return _scaled(source, distributions.laplace(source), scale, loc)


@_public
def cauchy(
    loc: TensorLike = 0.0, scale: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return numbers of the Cauchy distribution, with gradients by `loc` (its median) and `scale`.

    `options` are dtype, device, generator and key. Raises ArgumentError for a number as `scale` that is not above 0.

    >>> from monolect import random
    >>> random.cauchy(size=(2, 3)).shape
    (2, 3)
    """
    _positive("cauchy", scale=scale)
    source = _source("cauchy", size, (loc, scale), options)
    return _scaled(source, distributions.cauchy(source), scale, loc)


@_public
def gumbel(
    loc: TensorLike = 0.0, scale: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return numbers of the Gumbel distribution, with gradients by `loc` and `scale`.

    `options` are dtype, device, generator and key. Raises ArgumentError for a number as `scale` that is not above 0.

    >>> from monolect import random
    >>> random.gumbel(size=(2, 3)).shape
    (2, 3)
    """
    _positive("gumbel", scale=scale)
    source = _source("gumbel", size, (loc, scale), options)
    return _scaled(source, distributions.gumbel(source), scale, loc)


@_public
def gamma(
    concentration: TensorLike, rate: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]
) -> Tensor:
    """Return numbers of the gamma distribution, with gradients by `concentration` (the implicit one, computed in
    float64) and `rate`.

    A rejection sampler of 6 proposals; the last one is taken unconditionally, with a probability below 2e-8. `options`
    are dtype, device, generator and key. Raises ArgumentError for numbers that are not above 0.

    >>> from monolect import random
    >>> bool((random.gamma(2.0, size=10) > 0).all().item())
    True
    """
    _positive("gamma", concentration=concentration, rate=rate)
    source = _source("gamma", size, (concentration, rate), options)
    logarithm = distributions.log_gamma_variate(source, distributions.inner(source, concentration))
    result: Tensor = source.out(logarithm.exp() / distributions.inner(source, rate))
    return result


@_public
def beta(a: TensorLike, b: TensorLike, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return numbers of the beta distribution of the concentrations `a` and `b`, in [0, 1], with implicit
    gradients by these.

    `options` are dtype, device, generator and key. Raises ArgumentError for numbers that are not above 0.

    >>> from monolect import random
    >>> random.beta(2.0, 3.0, size=4).shape
    (4,)
    """
    _positive("beta", a=a, b=b)
    source = _source("beta", size, (a, b), options)
    first, second = (distributions.log_gamma_variate(source, distributions.inner(source, p)) for p in (a, b))
    result: Tensor = source.out((first - second).sigmoid())
    return result


@_public
def dirichlet(concentration: Tensor, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return points of the Dirichlet distribution: the last axis of `concentration` is that of the point, which adds up
    to 1. The gradient by `concentration` is the implicit one of the gamma variates of which a point is made.

    `size` is the shape in front of that axis, to which the other axes of `concentration` broadcast. `options` are
    dtype, device, generator and key. Raises ShapeError for a tensor without axes.

    >>> from monolect import Tensor, random
    >>> random.dirichlet(Tensor([1.0, 2.0, 3.0]), size=5).shape
    (5, 3)
    """
    if not isinstance(concentration, Tensor) or concentration.ndim == 0:
        raise ShapeError("dirichlet: concentration", expected="a Tensor with an axis", found=repr(concentration)[:80])
    whole = None if size is None else (*as_sizes((size,)), concentration.shape[-1])
    source = _source("dirichlet", whole, (concentration,), options)
    logarithm = distributions.log_gamma_variate(source, distributions.inner(source, concentration))
    result: Tensor = source.out(logarithm.softmax(-1))
    return result


@_public
def student_t(
    df: TensorLike,
    loc: TensorLike = 0.0,
    scale: TensorLike = 1.0,
    size: Sizes | None = None,
    **options: Unpack[_Options],
) -> Tensor:
    """Return numbers of Student's t distribution of `df` degrees of freedom, with gradients by `df` (the implicit
    one of a gamma variate), `loc` and `scale`.

    `options` are dtype, device, generator and key. Raises ArgumentError for a `df` or `scale` that is not above 0.

    >>> from monolect import random
    >>> random.student_t(5.0, size=4).shape
    (4,)
    """
    _positive("student_t", df=df, scale=scale)
    source = _source("student_t", size, (df, loc, scale), options)
    shape = distributions.inner(source, df) * 0.5
    # sqrt(df / chi2), where chi2 is twice a gamma variate of df / 2
    spread = (distributions.log_gamma_variate(source, shape) * -0.5).exp() * shape**0.5
    return _scaled(source, source.normal() * spread, scale, loc)


# ---- discrete --------------------------------------------------------------------------------------------------------
@_public
def randint(
    low: int, high: int | None = None, size: Sizes = (), *, dtype: DTypeLike | None = None, **options: Unpack[_From]
) -> Tensor:
    """Return whole numbers in [low, high), or in [0, low) if `high` is None, int64 unless `dtype` is given.

    `options` are device, generator and key. Raises ArgumentError for an empty range, DTypeError for a float `dtype`.

    >>> from monolect import random
    >>> set(random.randint(3, 5, size=20).tolist()) <= {3, 4}
    True
    """
    low, high = (0, low) if high is None else (low, high)
    return Tensor.randint(low, high, as_sizes((size,)), dtype=dtype, **options)


@_public
def bernoulli(p: TensorLike = 0.5, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return 1 with the probability `p`, else 0, as floats. There is no gradient.

    `options` are dtype, device, generator and key. Raises ArgumentError for a number outside of [0, 1].

    >>> from monolect import random
    >>> random.bernoulli(1.0, size=3).tolist()
    [1.0, 1.0, 1.0]
    """
    _check("bernoulli", "from 0 to 1", lambda x: 0 <= x <= 1, p=p)
    source = _source("bernoulli", size, (p,), options)
    result: Tensor = source.out(distributions.bernoulli(source, distributions.inner(source, p)))
    return result


@_public
def geometric(p: TensorLike, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return the number of trials of probability `p` until the first success, 1 or more, as floats. There is no
    gradient.

    `options` are dtype, device, generator and key. Raises ArgumentError for a number outside of (0, 1].

    >>> from monolect import random
    >>> random.geometric(1.0, size=3).tolist()
    [1.0, 1.0, 1.0]
    """
    _check("geometric", "above 0 and at most 1", lambda x: 0 < x <= 1, p=p)
    source = _source("geometric", size, (p,), options)
    result: Tensor = source.out(distributions.geometric(source, distributions.inner(source, p)))
    return result


@_public
def poisson(rate: TensorLike = 1.0, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return numbers of events of the Poisson distribution, as floats. There is no gradient.

    Rates below 10 take the inverse of the distribution function, others a rejection sampler of 10 proposals. `options`
    are dtype, device, generator and key. Raises ArgumentError for a negative number.

    >>> from monolect import random
    >>> random.poisson(0.0, size=3).tolist()
    [0.0, 0.0, 0.0]
    """
    _check("poisson", "at least 0", lambda x: x >= 0, rate=rate)
    source = _source("poisson", size, (rate,), options)
    result: Tensor = source.out(distributions.poisson(source, distributions.inner(source, rate)))
    return result


@_public
def binomial(n: TensorLike, p: TensorLike, size: Sizes | None = None, **options: Unpack[_Options]) -> Tensor:
    """Return numbers of successes in `n` trials of probability `p`, as floats. There is no gradient.

    Means below 10 of the rarer outcome take the inverse of the distribution function, others a rejection sampler of 14
    proposals. `options` are dtype, device, generator and key. Raises ArgumentError for a number `n` that is not a whole
    number of at least 0, and for a number `p` outside of [0, 1].

    >>> from monolect import random
    >>> random.binomial(7, 1.0, size=3).tolist()
    [7.0, 7.0, 7.0]
    """
    _check("binomial", "a whole number of at least 0", lambda x: x >= 0 and x == int(x), n=n)
    _check("binomial", "from 0 to 1", lambda x: 0 <= x <= 1, p=p)
    source = _source("binomial", size, (n, p), options)
    trials, probability = distributions.inner(source, n), distributions.inner(source, p)
    result: Tensor = source.out(distributions.binomial(source, trials, probability))
    return result


@_public
def categorical(logits: Tensor, size: Sizes | None = None, *, dim: int = -1, **options: Unpack[_From]) -> Tensor:
    """Return indices along `dim` of `logits`, drawn with probabilities proportional to exp(logits), int64.

    `size` is the shape in front of the other axes: one draw for each of its elements. `options` are device, generator
    and key. Raises DTypeError for integers, AxisError for a missing axis.

    >>> from monolect import Tensor, random
    >>> random.categorical(Tensor([[0.0, -1e9], [-1e9, 0.0]])).tolist()
    [0, 1]
    >>> random.categorical(Tensor([0.0, 0.0]), size=7).shape
    (7,)
    """
    logits._check_float("categorical")
    axis = logits._axis(dim)
    front = () if size is None else as_sizes((size,))
    source = _source("categorical", (*front, *logits.shape), (logits,), options)
    noisy = distributions.gumbel(source) + distributions.inner(source, logits.detach())
    return noisy.argmax(axis + len(front))


@_public
def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
    key: Tensor | None = None,
) -> Tensor:
    """Return indices drawn by the weights `input`, as `Tensor.multinomial`.

    >>> from monolect import Tensor, random
    >>> sorted(random.multinomial(Tensor([1.0, 0.0, 2.0]), 2).tolist())
    [0, 2]
    """
    return input.multinomial(num_samples, replacement, generator=generator, key=key)


@_public
def randperm(n: int, *, dtype: DTypeLike | None = None, **options: Unpack[_From]) -> Tensor:
    """Return the numbers 0..n-1 in random order, as `Tensor.randperm`. `options` are device, generator and key.

    >>> from monolect import random
    >>> sorted(random.randperm(5).tolist())
    [0, 1, 2, 3, 4]
    """
    return Tensor.randperm(n, dtype=dtype, **options)


@_public
def permutation(x: int | Tensor, dim: int = 0, **options: Unpack[_From]) -> Tensor:
    """Return the elements of `x` along `dim` in random order, the same for all other axes; for an int, `randperm(x)`.

    `options` are device, generator and key. Raises AxisError for a missing axis.

    >>> from monolect import Tensor, random
    >>> sorted(random.permutation(Tensor([5, 7, 9])).tolist())
    [5, 7, 9]
    """
    if not isinstance(x, Tensor):
        return randperm(x, **options)
    axis = x._axis(dim)
    if options.get("device") is None:
        options["device"] = x.device
    return x.index_select(axis, Tensor.randperm(x.shape[axis], **options))


@_public
def bits(size: Sizes = (), **options: Unpack[_From]) -> Tensor:
    """Return random uint64 numbers, all 64 bits of each. `options` are device, generator and key.

    >>> from monolect import random
    >>> random.bits(3).dtype
    dtypes.uint64
    """
    source = Source(
        Stream(Tensor, options.get("device"), options.get("generator"), options.get("key")),
        as_sizes((size,)),
        dtypes.float32,
    )
    result: Tensor = source.tensor(source.stream.bits(source.n))
    return result


__all__ = [
    "Generator", "bernoulli", "beta", "binomial", "bits", "categorical", "cauchy", "dirichlet", "exponential",
    "fold_in", "gamma", "geometric", "get_rng_state", "gumbel", "initial_seed", "key", "laplace", "log_normal",
    "manual_seed", "multinomial", "normal", "permutation", "poisson", "randint", "randperm", "seed", "set_rng_state",
    "split", "student_t", "truncated_normal", "uniform",
]  # fmt: skip

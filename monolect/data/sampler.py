"""Define samplers: iterables of indices of a data set, in order or drawn at random."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from monolect.base.errors import ArgumentError
from monolect.tensor.draws.generator import Generator as OwnSequence
from monolect.tensor.guard import guard_methods
from monolect.tensor.tensor import Tensor

T_co = TypeVar("T_co", covariant=True)
Generator: TypeAlias = "int | np.random.Generator | OwnSequence | None"
MAX_SEED = 2**31 - 1


def kept_generator(generator: Generator) -> np.random.Generator | OwnSequence | None:
    """Return what a sampler keeps of `generator`: a NumPy generator instead of a seed.

    Raises ArgumentError for what is no seed and no generator.
    """
    if generator is None or isinstance(generator, np.random.Generator | OwnSequence):
        return generator
    if not isinstance(generator, int | np.integer) or isinstance(generator, bool) or generator < 0:
        expected = "a Generator, a NumPy generator or a seed of at least 0"
        raise ArgumentError("a sampler: generator", expected=expected, found=generator)
    return np.random.default_rng(generator)


def numbers_of(generator: Generator) -> np.random.Generator:
    """Return the NumPy generator for `generator`: itself, one with that seed, or one whose seed is drawn from a
    monolect Generator, or, for None, from the numbers that depend on `Tensor.manual_seed`.
    """
    kept = kept_generator(generator)
    if isinstance(kept, np.random.Generator):
        return kept
    return np.random.default_rng(int(Tensor.randint(0, MAX_SEED, (1,), generator=kept).item()))


class Sampler(Generic[T_co]):
    """Base class of samplers. A subclass defines `__iter__`, and `__len__` where the number is known.

    >>> class Backwards(Sampler):
    ...     def __iter__(self):
    ...         return iter([2, 1, 0])
    >>> list(Backwards())
    [2, 1, 0]
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError


@guard_methods
class SequentialSampler(Sampler[int]):
    """The indices of `data_source` in order.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


@guard_methods
class RandomSampler(Sampler[int]):
    """The indices of `data_source` in a new random order at each iteration, or drawn with `replacement`.

    `num_samples` None is the size of `data_source`. `generator` is a Generator, a NumPy generator, or a seed, which
    gives each sampler the same orders. Raises ArgumentError for another one, or unless `num_samples` is positive.

    >>> sorted(RandomSampler("abc", generator=0))
    [0, 1, 2]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator = None,
    ):
        if num_samples is not None and num_samples <= 0:
            raise ArgumentError("RandomSampler: num_samples", expected="a positive number", found=num_samples)
        self.data_source, self.replacement, self._num_samples = data_source, replacement, num_samples
        self.generator = kept_generator(generator)

    @property
    def num_samples(self) -> int:
        """The number of indices of one iteration.

        >>> RandomSampler("abc").num_samples
        3
        """
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        rng, n, left = numbers_of(self.generator), len(self.data_source), self.num_samples
        if self.replacement:
            yield from rng.integers(0, n, left).tolist()
            return
        while left > 0:
            yield from rng.permutation(n).tolist()[:left]
            left -= n

    def __len__(self) -> int:
        return self.num_samples


@guard_methods
class SubsetRandomSampler(Sampler[int]):
    """The given `indices` in a new random order at each iteration.

    >>> sorted(SubsetRandomSampler([4, 7], generator=0))
    [4, 7]
    """

    def __init__(self, indices: Sequence[int], generator: Generator = None):
        self.indices = indices
        self.generator = kept_generator(generator)

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in numbers_of(self.generator).permutation(len(self.indices)).tolist())

    def __len__(self) -> int:
        return len(self.indices)


@guard_methods
class WeightedRandomSampler(Sampler[int]):
    """`num_samples` indices drawn with probabilities proportional to `weights`, with `replacement` or without.

    Raises ArgumentError for weights that are no probabilities, or fewer positive ones than draws without replacement.

    >>> list(WeightedRandomSampler([0.0, 1.0, 0.0], 2))
    [1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator = None
    ):
        self.weights = np.array(weights.tolist() if isinstance(weights, Tensor) else weights, np.float64)
        self.num_samples, self.replacement = num_samples, replacement
        is_bad = self.weights.ndim != 1 or not (self.weights >= 0).all() or not 0 < self.weights.sum() < np.inf
        if is_bad or num_samples <= 0 or (not replacement and num_samples > (self.weights > 0).sum()):
            expected = "weights of at least 0, not all 0, and a number of draws that they allow"
            raise ArgumentError("WeightedRandomSampler", expected=expected, found=f"{num_samples} draws of {weights}")
        self.generator = kept_generator(generator)

    def __iter__(self) -> Iterator[int]:
        p = self.weights / self.weights.sum()
        return iter(numbers_of(self.generator).choice(len(p), self.num_samples, self.replacement, p).tolist())

    def __len__(self) -> int:
        return self.num_samples


@guard_methods
class BatchSampler(Sampler[list[int]]):
    """Lists of `batch_size` indices of `sampler`; the last may be shorter, unless `drop_last`.

    Raises ArgumentError unless `batch_size` is a positive integer.

    >>> list(BatchSampler(range(5), batch_size=2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Iterable[int], batch_size: int, drop_last: bool):
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size <= 0:
            raise ArgumentError("batch_size", expected="a positive integer", found=batch_size)
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        sampler: Any = self.sampler
        return len(sampler) // self.batch_size if self.drop_last else -(-len(sampler) // self.batch_size)


__all__ = [
    "BatchSampler",
    "Generator",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
    "numbers_of",
]

"""Define data sets: objects with items by index, or iterables, and sets made of others.

A data set may define `take(indices)`, which returns a whole batch at once: DataLoader prefers it to one call an item.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from math import floor, isclose
from typing import Any, Generic, TypeVar

import numpy as np

from monolect.base.errors import ArgumentError, ShapeError
from monolect.data.sampler import Generator, numbers_of
from monolect.tensor.guard import guard_methods, guarded
from monolect.tensor.tensor import Tensor

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base class of data sets. A subclass defines `__getitem__` and `__len__`.

    >>> class Squares(Dataset):
    ...     def __getitem__(self, index):
    ...         return index * index
    ...     def __len__(self):
    ...         return 4
    >>> Squares()[3], len(Squares() + Squares())
    (9, 8)
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError

    def __add__(self, other: Dataset[Any]) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co]):
    """Base class of data sets that are read in order. A subclass defines `__iter__`.

    >>> class Words(IterableDataset):
    ...     def __iter__(self):
    ...         return iter(["a", "b"])
    >>> list(Words() + Words())
    ['a', 'b', 'a', 'b']
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError

    def __add__(self, other: Dataset[Any]) -> Any:
        return ChainDataset([self, other])


@guard_methods
class ChainDataset(IterableDataset[Any]):
    """The items of several `datasets` that are read in order, one after the other.

    >>> list(ChainDataset([[1, 2], [3]]))
    [1, 2, 3]
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = datasets

    def __iter__(self) -> Iterator[Any]:
        for d in self.datasets:
            yield from d

    def __len__(self) -> int:
        return sum(map(len, self.datasets))


@guard_methods
class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Rows of `tensors` of equal first size: item i is the tuple of row i of each.

    Values are read once, at the first batch. Raises ShapeError for different sizes.

    >>> data = TensorDataset(Tensor([[1.0], [2.0]]), Tensor([0, 1]))
    >>> [t.tolist() for t in data[1]], len(data)
    ([[2.0], 1], 2)
    """

    def __init__(self, *tensors: Tensor):
        sizes = [t.shape[:1] for t in tensors]
        if len({*sizes}) != 1 or sizes[0] == ():
            raise ShapeError("TensorDataset", expected="tensors of one first size", found=[t.shape for t in tensors])
        self.tensors = tensors
        self._arrays: list[np.ndarray] | None = None

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def take(self, indices: Sequence[int]) -> list[Tensor]:
        """Return the rows `indices` of each tensor, on its device.

        >>> [t.tolist() for t in TensorDataset(Tensor([1.0, 2.0, 3.0])).take([2, 0])]
        [[3.0, 1.0]]
        """
        if self._arrays is None:
            self._arrays = [t.numpy() for t in self.tensors]
        pairs = zip(self._arrays, self.tensors, strict=True)
        return [
            Tensor(a[np.asarray(indices)], device=t.device if isinstance(t.device, str) else None) for a, t in pairs
        ]


@guard_methods
class StackDataset(Dataset[Any]):
    """Items of several data sets together: tuples for positional ones, dicts for named ones.

    Raises ArgumentError for different sizes, and for positional and named ones at once.

    >>> StackDataset([1, 2], [3, 4])[1], StackDataset(x=[1, 2], y=[3, 4])[0]
    ((2, 4), {'x': 1, 'y': 3})
    """

    def __init__(self, *args: Any, **kwargs: Any):
        self.datasets: Any = args or kwargs
        parts = list(args or kwargs.values())
        if bool(args) == bool(kwargs) or len({*map(len, parts)}) != 1:
            found = f"sizes {[len(p) for p in parts]}"
            raise ArgumentError("StackDataset", expected="data sets of one size, all named or none", found=found)
        self._length = len(parts[0])

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {k: d[index] for k, d in self.datasets.items()}
        return tuple(d[index] for d in self.datasets)

    def __len__(self) -> int:
        return self._length


@guard_methods
class Subset(Dataset[Any]):
    """The items `indices` of `dataset`.

    >>> data = Subset("abcd", [3, 1])
    >>> data[0], len(data)
    ('d', 2)
    """

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    @property
    def take(self) -> Callable[[Sequence[int]], Any]:
        """The function that returns a batch of items, if `dataset` has one. Raises AttributeError otherwise.

        >>> [t.tolist() for t in Subset(TensorDataset(Tensor([1.0, 2.0, 3.0])), [2, 0]).take([0])]
        [[3.0]]
        """
        whole = self.dataset.take
        return lambda at: whole([self.indices[i] for i in at])

    def __getitem__(self, index: Any) -> Any:
        return self.dataset[[self.indices[i] for i in index] if isinstance(index, list) else self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


@guard_methods
class ConcatDataset(Dataset[Any]):
    """The items of several `datasets`, one after the other. Raises ArgumentError for none, and for an index outside.

    >>> data = ConcatDataset(["ab", "cde"])
    >>> data[2], data[-1], len(data)
    ('c', 'e', 5)
    """

    def __init__(self, datasets: Iterable[Any]):
        self.datasets = list(datasets)
        if not self.datasets or any(isinstance(d, IterableDataset) for d in self.datasets):
            expected = "data sets with items by index"
            raise ArgumentError("ConcatDataset", expected=expected, found=[type(d).__name__ for d in self.datasets])
        self.cumulative_sizes = list(accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int) -> Any:
        i = index + len(self) if index < 0 else index
        if not 0 <= i < len(self):
            raise ArgumentError("ConcatDataset: index", expected=f"{-len(self)}..{len(self) - 1}", found=index)
        k = bisect_right(self.cumulative_sizes, i)
        return self.datasets[k][i - (self.cumulative_sizes[k - 1] if k else 0)]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


@guarded
def random_split(dataset: Any, lengths: Sequence[float], generator: Generator = None) -> list[Subset]:
    """Return random parts of `dataset` with the sizes `lengths`: numbers of items, or fractions with the sum 1.

    Items that fractions leave over go to the first parts. `generator` is a Generator, a NumPy generator
    or a seed. Raises ArgumentError for lengths whose sum is another.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25], generator=0)]
    [8, 2]
    """
    n, sizes = len(dataset), [*lengths]
    if isclose(sum(sizes), 1.0) and sum(sizes) <= 1.0 + 1e-9 and all(0.0 <= x <= 1.0 for x in sizes):
        whole = [floor(n * x) for x in sizes]
        left = n - sum(whole)
        sizes = [size + (i < left) for i, size in enumerate(whole)]
    if sum(sizes) != n:
        raise ArgumentError("random_split: lengths", expected=f"sizes with the sum {n}", found=list(lengths))
    order, ends = numbers_of(generator).permutation(n).tolist(), [0, *accumulate(map(int, sizes))]
    return [Subset(dataset, order[a:b]) for a, b in zip(ends, ends[1:], strict=False)]


__all__ = [
    "ChainDataset",
    "ConcatDataset",
    "Dataset",
    "IterableDataset",
    "StackDataset",
    "Subset",
    "TensorDataset",
    "random_split",
]

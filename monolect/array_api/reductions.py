"""Reductions, orders and sets, by the signatures of the array API.

Invariant: without `dtype`, sums and products of unsigned integers are uint64, those of bools and signed integers
int64.
"""

from __future__ import annotations

from typing import NamedTuple

from monolect.array_api.operands import array_of
from monolect.base.dtype import DType, as_dtype, dtypes
from monolect.base.errors import ShapeError
from monolect.tensor.base import DTypeLike, Number
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

Axis = int | tuple[int, ...] | None


def _of_sums(x: Tensor, dtype: DTypeLike | None) -> DType | None:
    """Return the dtype of a sum of the elements of `x`, or None for that of the method."""
    if dtype is None:
        return dtypes.uint64 if x.dtype.kind == "u" else None
    return as_dtype(dtype)


@guarded
def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether all elements along `axis`, by default all, are true; true for none.

    >>> array_api.all(Tensor([[True, False], [True, True]]), axis=1).tolist()
    [False, True]
    """
    return array_of(x, "all").all(axis, keepdims)


@guarded
def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return whether an element along `axis`, by default all, is true; false for none.

    >>> array_api.any(Tensor([[True, False], [False, False]]), axis=1).tolist()
    [True, False]
    """
    return array_of(x, "any").any(axis, keepdims)


@guarded
def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the first largest element along `axis`, or in all elements in one row with None.

    >>> array_api.argmax(Tensor([[1, 3], [4, 2]]), axis=1).tolist()
    [1, 0]
    """
    return array_of(x, "argmax").argmax(axis, keepdims)


@guarded
def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the first smallest element along `axis`, or in all elements in one row with None.

    >>> array_api.argmin(Tensor([[1, 3], [4, 2]]), axis=1).tolist()
    [0, 1]
    """
    return array_of(x, "argmin").argmin(axis, keepdims)


@guarded
def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the positions along `axis` that sort `x`; equal elements keep their order, and nan counts as the largest.

    >>> array_api.argsort(Tensor([3, 1, 3]), descending=True).tolist()
    [0, 2, 1]
    """
    return array_of(x, "argsort").argsort(axis, descending, stable)


@guarded
def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the number of elements along `axis`, by default all, that are not zero.

    >>> array_api.count_nonzero(Tensor([[1, 0], [2, 3]]), axis=1).tolist()
    [1, 2]
    """
    return (array_of(x, "count_nonzero") != 0).sum(axis, keepdims)


@guarded
def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Return the products of the elements up to each one along `axis`, which may be omitted for a vector.

    `include_initial` puts a 1 in front. Raises ShapeError for no axes, or several without `axis`.

    >>> array_api.cumulative_prod(Tensor([2, 3, 4]), include_initial=True).tolist()
    [1, 2, 6, 24]
    """
    at = _running_axis(x, axis, "cumulative_prod")
    out = x.cumprod(at, dtype=_of_sums(x, dtype))
    return _with_initial(out, 1, at) if include_initial else out


@guarded
def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DTypeLike | None = None, include_initial: bool = False
) -> Tensor:
    """Return the sums of the elements up to each one along `axis`, which may be omitted for a vector.

    `include_initial` puts a 0 in front. Raises ShapeError for no axes, or several without `axis`.

    >>> array_api.cumulative_sum(Tensor([1, 2, 3])).tolist()
    [1, 3, 6]
    """
    at = _running_axis(x, axis, "cumulative_sum")
    out = x.cumsum(at, dtype=_of_sums(x, dtype))
    return _with_initial(out, 0, at) if include_initial else out


def _running_axis(x: Tensor, axis: int | None, name: str) -> int:
    if array_of(x, name).ndim == 0 or axis is None and x.ndim > 1:
        raise ShapeError(f"{name}: axis", expected="a vector, or an axis of the array", found=f"shape {x.shape}")
    return x._axis(0 if axis is None else axis)


def _with_initial(x: Tensor, value: Number, axis: int) -> Tensor:
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return Tensor.cat([Tensor.full(shape, value, dtype=x.dtype, device=x.device), x], dim=axis)


@guarded
def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the differences of neighbours along `axis`, `n` times; `prepend` and `append` extend `x` first.

    >>> array_api.diff(Tensor([1, 4, 9]), prepend=Tensor([0])).tolist()
    [1, 3, 5]
    """
    return array_of(x, "diff").diff(n, axis, prepend, append)


@guarded
def max(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the largest element along `axis`, by default of all; nan if one is nan. Raises ShapeError for none.

    >>> array_api.max(Tensor([[1, 3], [4, 2]]), axis=1).tolist()
    [3, 4]
    """
    return array_of(x, "max").amax(axis, keepdims)


@guarded
def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the mean along `axis`, by default of all. Raises DTypeError for integers.

    >>> array_api.mean(Tensor([[1.0, 3.0], [4.0, 2.0]]), axis=1).tolist()
    [2.0, 3.0]
    """
    return array_of(x, "mean").mean(axis, keepdims)


@guarded
def min(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Return the smallest element along `axis`, by default of all; nan if one is nan. Raises ShapeError for none.

    >>> array_api.min(Tensor([[1, 3], [4, 2]]), axis=1).tolist()
    [1, 2]
    """
    return array_of(x, "min").amin(axis, keepdims)


@guarded
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the positions of the elements that are not zero, an array for each axis. Computes `x`.

    Raises ShapeError for no axes, JitError inside a captured step.

    >>> [i.tolist() for i in array_api.nonzero(Tensor([[1, 0], [2, 3]]))]
    [[0, 1, 1], [0, 0, 1]]
    """
    if array_of(x, "nonzero").ndim == 0:
        raise ShapeError("nonzero", expected="at least 1 axis", found="shape ()")
    found = x.nonzero(as_tuple=True)
    return found if isinstance(found, tuple) else (found,)


@guarded
def prod(x: Tensor, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Return the product along `axis`, by default of all; 1 for none.

    >>> array_api.prod(Tensor([[1, 3], [4, 2]]), axis=1).tolist()
    [3, 8]
    """
    return array_of(x, "prod").prod(axis, keepdims, dtype=_of_sums(x, dtype))


@guarded
def searchsorted(x1: Tensor, x2: Tensor, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Return the positions at which the values `x2` keep the ascending vector `x1` sorted.

    Of equal elements it is the first position, or the last with side="right". `sorter` are the positions that sort
    `x1`. Raises ArgumentError for another side.

    >>> array_api.searchsorted(Tensor([1, 3, 5]), Tensor([3, 4]), side="right").tolist()
    [2, 2]
    """
    return array_of(x1, "searchsorted").searchsorted(x2, side=side, sorter=sorter)


@guarded
def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return `x` sorted along `axis`; nan counts as the largest.

    >>> array_api.sort(Tensor([3, 1, 2]), descending=True).tolist()
    [3, 2, 1]
    """
    return array_of(x, "sort").sort(axis, descending, stable).values


@guarded
def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation along `axis`, by default of all: squares are divided by the number of elements less
    `correction`. Raises DTypeError for integers.

    >>> array_api.std(Tensor([1.0, 3.0])).item()
    1.0
    """
    return array_of(x, "std").std(axis, correction=correction, keepdim=keepdims)


@guarded
def sum(x: Tensor, /, *, axis: Axis = None, dtype: DTypeLike | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum along `axis`, by default of all; 0 for none.

    >>> array_api.sum(Tensor([[1, 3], [4, 2]]), axis=1).tolist()
    [4, 6]
    """
    return array_of(x, "sum").sum(axis, keepdims, dtype=_of_sums(x, dtype))


class UniqueAll(NamedTuple):
    """The fields of `unique_all`.

    >>> array_api.unique_all(Tensor([3, 1, 3])).indices.tolist()
    [1, 0]
    """

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The fields of `unique_counts`.

    >>> array_api.unique_counts(Tensor([3, 1, 3])).counts.tolist()
    [1, 2]
    """

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The fields of `unique_inverse`.

    >>> array_api.unique_inverse(Tensor([3, 1, 3])).inverse_indices.tolist()
    [1, 0, 1]
    """

    values: Tensor
    inverse_indices: Tensor


@guarded
def unique_all(x: Tensor, /) -> UniqueAll:
    """Return the unique elements in ascending order, the position of the first of each in all elements in one row, the
    position of each element of `x` among them, and their counts. Each nan counts for itself. Computes `x`.

    >>> [y.tolist() for y in array_api.unique_all(Tensor([3, 1, 3]))]
    [[1, 3], [1, 0], [1, 0, 1], [1, 2]]
    """
    values, inverse, counts = array_of(x, "unique_all").unique(return_inverse=True, return_counts=True)
    starts = counts.cumsum(0) - counts
    indices = x.flatten().argsort(stable=True)[starts]
    return UniqueAll(values, indices, inverse.reshape(x.shape), counts)


@guarded
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Return the unique elements in ascending order and their counts. Each nan counts for itself. Computes `x`.

    >>> [y.tolist() for y in array_api.unique_counts(Tensor([3, 1, 3]))]
    [[1, 3], [1, 2]]
    """
    return UniqueCounts(*array_of(x, "unique_counts").unique(return_counts=True))


@guarded
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Return the unique elements in ascending order, and the position of each element of `x` among them. Computes `x`.

    >>> [y.tolist() for y in array_api.unique_inverse(Tensor([3, 1, 3]))]
    [[1, 3], [1, 0, 1]]
    """
    values, inverse = array_of(x, "unique_inverse").unique(return_inverse=True)
    return UniqueInverse(values, inverse.reshape(x.shape))


@guarded
def unique_values(x: Tensor, /) -> Tensor:
    """Return the unique elements in ascending order. Each nan counts for itself. Computes `x`.

    >>> array_api.unique_values(Tensor([3, 1, 3])).tolist()
    [1, 3]
    """
    found = array_of(x, "unique_values").unique()
    return found if isinstance(found, Tensor) else found[0]


@guarded
def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance along `axis`, by default of all: squares are divided by the number of elements less
    `correction`. Raises DTypeError for integers.

    >>> array_api.var(Tensor([1.0, 3.0]), correction=1).item()
    2.0
    """
    return array_of(x, "var").var(axis, correction=correction, keepdim=keepdims)


__all__ = [
    "UniqueAll",
    "UniqueCounts",
    "UniqueInverse",
    "all",
    "any",
    "argmax",
    "argmin",
    "argsort",
    "count_nonzero",
    "cumulative_prod",
    "cumulative_sum",
    "diff",
    "max",
    "mean",
    "min",
    "nonzero",
    "prod",
    "searchsorted",
    "sort",
    "std",
    "sum",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
    "var",
]

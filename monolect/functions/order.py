"""Functions that sort, and statistics of order, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from typing import Any, overload

from monolect.tensor.base import Data
from monolect.tensor.guard import guarded
from monolect.tensor.methods.reduce import ValuesIndices
from monolect.tensor.tensor import Tensor


@guarded
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Return the int64 indices that sort `input` along axis `dim`, in the shape of `input`.

    The sort is ascending unless `descending`, and always stable, whatever `stable` says.

    >>> monolect.argsort(Tensor([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    return input.argsort(dim, descending, stable)


@guarded
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the k-th smallest element along axis `dim`, k from 1; `keepdim` keeps the
    axis.

    Raises ArgumentError if k is not in 1..size.

    >>> [t.item() for t in monolect.kthvalue(Tensor([3, 1, 2]), 2)]
    [2, 2]
    """
    return input.kthvalue(k, dim, keepdim)


@overload
def median(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...
@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices[Tensor]: ...
@guarded
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Return the middle element, the lower of two: of all elements, or (values, indices) along axis `dim`.

    `keepdim` keeps the axis with size 1. The result is nan if an element is nan. Raises ShapeError for no elements.

    >>> monolect.median(Tensor([3.0, 1.0, 2.0, 9.0])).item()
    2.0
    """
    method: Any = input.median
    return method(dim, keepdim)


@guarded
def msort(input: Tensor) -> Tensor:
    """Return the values sorted along the first axis.

    >>> monolect.msort(Tensor([[3, 1], [2, 4]])).tolist()
    [[2, 1], [3, 4]]
    """
    return input.msort()


@guarded
def quantile(
    input: Tensor, q: Data, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Return the q-th quantiles (0 <= q <= 1) along axis `dim`, by default of all elements; a vector `q` adds a first
    axis.

    `keepdim` keeps the axes with size 1. `interpolation` is linear, lower, higher, nearest or midpoint. Raises
    DTypeError for integers, ArgumentError for another interpolation or numbers `q` outside of [0, 1], and
    ShapeError for no elements or a tensor `q` with more than one axis or another dtype. The values of a tensor `q`
    are not checked.

    >>> monolect.quantile(Tensor([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """
    return input.quantile(q, dim, keepdim, interpolation=interpolation)


@guarded
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) sorted along axis `dim`, in the shape of `input`; nan is the largest.

    The sort is ascending unless `descending`. It is always stable, whatever `stable` says, and O(n) for long axes.

    >>> monolect.sort(Tensor([3, 1, 2])).indices.tolist()
    [1, 2, 0]
    """
    return input.sort(dim, descending, stable)


@guarded
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the k largest, or smallest, elements along axis `dim`, in order; of equal
    elements the first.

    Axis `dim` gets size k. A few elements of a long axis are found without sorting it. The order is the same with
    sorted=False. Raises ArgumentError if k is not in 0..size.

    >>> monolect.topk(Tensor([3, 1, 2]), 2).values.tolist()
    [3, 2]
    """
    return input.topk(k, dim, largest, sorted)


__all__ = ["argsort", "kthvalue", "median", "msort", "quantile", "sort", "topk"]

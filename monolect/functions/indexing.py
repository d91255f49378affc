"""Functions that read and write parts of tensors, and count, made from the methods of Tensor; written by `make
surface`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.tensor.base import Number, TensorLike
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.methods.selection.counts import Histogram
from monolect.tensor.tensor import Tensor


@guarded
def argwhere(input: Tensor) -> Tensor:
    """Return the int64 indices of the elements that are not zero, shape (n, ndim), as `nonzero`.

    The call computes `input`; it raises JitError inside a captured step.

    >>> monolect.argwhere(Tensor([0, 5, 7])).tolist()
    [[1], [2]]
    """
    return input.argwhere()


@guarded
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return how often each of 0, 1, 2, ... is in `input`, a vector of integers that are not negative.

    With `weights` it adds up those of each number. The result has at least `minlength` elements. The call computes
    `input`; it raises JitError inside a captured step. Raises DTypeError for floats, ShapeError for another rank,
    ArgumentError for negative numbers.

    >>> monolect.bincount(Tensor([1, 3, 1])).tolist()
    [0, 2, 0, 1]
    """
    return input.bincount(weights, minlength)


@guarded
def bucketize(
    input: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False, out: Tensor | None = None
) -> Tensor:
    """Return the number of the bucket between the ascending `boundaries`, a vector, that each element falls into.

    A boundary belongs to the bucket before it, or with `right` to the one after it. Raises ShapeError for
    boundaries that are no vector.

    >>> monolect.bucketize(Tensor([0, 1, 5]), Tensor([1, 3])).tolist()
    [0, 0, 2]
    """
    return into(out, "bucketize", input.bucketize(boundaries, out_int32=out_int32, right=right))


@guarded
def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a copy of `input` with `src` on a diagonal of the axes `dim1` and `dim2`; `offset` is column minus row.

    Raises ShapeError unless `src` has the shape of that diagonal.

    >>> monolect.diagonal_scatter(Tensor.zeros(2, 2), Tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    return input.diagonal_scatter(src, offset, dim1, dim2)


@guarded
def gather(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return out with out[i][j][k] = `input`[index[i][j][k]][j][k] for dim 0, in the shape of `index`; other dims
    alike.

    `index` holds integers and has the rank of `input`. On axes other than `dim` it is at most as long as `input`.
    Raises ShapeError for another rank or a longer index, and DTypeError for an index of floats.

    >>> monolect.gather(Tensor([[1, 2], [3, 4]]), 1, Tensor([[1], [0]])).tolist()
    [[2], [3]]
    """
    return into(out, "gather", input.gather(dim, index))


@guarded
def histc(input: Tensor, bins: int = 100, min: Number = 0, max: Number = 0, *, out: Tensor | None = None) -> Tensor:
    """Return how many elements fall into each of `bins` equal parts of [min, max], in the dtype of `input`.

    The largest and the smallest element are the bounds where `min` equals `max`. Elements outside are not counted.
    Raises DTypeError for integers, ArgumentError for no bins or bounds in another order.

    >>> monolect.histc(Tensor([1.0, 2.0, 1.0]), 4, 0, 3).tolist()
    [0.0, 2.0, 1.0, 0.0]
    """
    return into(out, "histc", input.histc(bins, min, max))


@guarded
def histogram(
    input: Tensor,
    bins: int | Tensor,
    *,
    range: tuple[float, float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> Histogram:
    """Return (hist, bin_edges): how many elements fall into each bin, and the edges of the bins.

    `bins` is a number of equal bins in `range`, by default between the smallest and the largest element, or a
    vector of ascending edges. The last bin includes its end. `weight` has the shape of `input` and is added up
    instead. With `density` the integral is 1. Raises DTypeError for integers, ShapeError for another shape of
    `weight`.

    >>> [t.tolist() for t in monolect.histogram(Tensor([1.0, 2.0, 1.0]), 2, range=(0.0, 4.0))]
    [[2.0, 1.0], [0.0, 2.0, 4.0]]
    """
    return into(out, "histogram", input.histogram(bins, range=range, weight=weight, density=density))


@guarded
def histogramdd(
    input: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Histogram:
    """Return (hist, bin_edges): how many points fall into each cell, and the edges of the bins of each coordinate.

    The last axis of `input`, of shape (..., d), has the coordinates of a point. `bins` is a number of equal bins,
    or one for each coordinate, or a vector of ascending edges for each. `range` has the first and last edge of each
    coordinate in turn, by default its smallest and largest value. The last bin includes its end. `hist` has d axes.
    `weight`, of shape (...), is added up instead. With `density` the integral is 1. Raises DTypeError for integers,
    ShapeError for a tensor with less than 2 axes and another shape of `weight`, ArgumentError for another number of
    bins or edges.

    >>> hist, edges = monolect.histogramdd(Tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), [2, 1])
    >>> hist.tolist(), [e.tolist() for e in edges]
    ([[1.0], [2.0]], [[0.0, 0.5, 1.0], [0.0, 1.0]])
    """
    return input.histogramdd(bins, range=range, weight=weight, density=density)


@guarded
def index_add(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Return a copy of `input` with alpha times the slices of `source` added at the positions in the vector `index`
    along axis `dim`.

    `source` has the dtype and shape of `input`, but as many slices along `dim` as `index` has elements. Raises
    ShapeError or DTypeError otherwise.

    >>> monolect.index_add(Tensor.zeros(3, 2), 0, Tensor([2, 2]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[0.0, 0.0], [0.0, 0.0], [4.0, 6.0]]
    """
    return into(out, "index_add", input.index_add(dim, index, source, alpha=alpha))


@guarded
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a copy of `input` with the slices of `source` written at the positions in the vector `index` along axis
    `dim`.

    `source` has the dtype and shape of `input`, but as many slices along `dim` as `index` has elements. Raises
    ShapeError or DTypeError otherwise.

    >>> monolect.index_copy(Tensor.zeros(3, 2), 0, Tensor([2, 0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    """
    return into(out, "index_copy", input.index_copy(dim, index, source))


@guarded
def index_fill(input: Tensor, dim: int, index: Tensor, value: TensorLike) -> Tensor:
    """Return a copy of `input` with `value`, a number or a tensor without axes, in the slices at the positions in the
    vector `index` along axis `dim`.

    Raises ShapeError if `value` has axes or `index` more than one.

    >>> monolect.index_fill(Tensor.zeros(2, 3), 1, Tensor([0, 2]), 7.0).tolist()
    [[7.0, 0.0, 7.0], [7.0, 0.0, 7.0]]
    """
    return input.index_fill(dim, index, value)


@guarded
def index_put(input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    """Return a copy of `input` with `values`, broadcast, at the positions that `indices` name, one tensor for each
    axis; with `accumulate` they are added, equal positions too.

    Raises DTypeError for values of another dtype, ShapeError for values that do not broadcast.

    >>> monolect.index_put(Tensor([1, 2, 3]), (Tensor([0, 2]),), Tensor([7, 8])).tolist()
    [7, 2, 8]
    """
    return input.index_put(indices, values, accumulate)


@guarded
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """Return a copy of `input` with the slices of `source` at the positions in the vector `index` along axis `dim`
    reduced by `reduce`: prod, mean, amax or amin.

    The values of `input` take part if `include_self`. `source` has the dtype and shape of `input`, but as many
    slices as `index` has elements. Negative indices count from the end. Raises ShapeError, DTypeError or
    ArgumentError otherwise.

    >>> monolect.index_reduce(Tensor([1, 2, 3]), 0, Tensor([0, 0]), Tensor([5, 4]), "amin").tolist()
    [1, 2, 3]
    """
    return into(out, "index_reduce", input.index_reduce(dim, index, source, reduce, include_self=include_self))


@guarded
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the slices along axis `dim` at the positions in `index`, a vector of integers.

    The axis gets the size of `index`. Raises ShapeError for an index of more than one axis.

    >>> monolect.index_select(Tensor([[1, 2], [3, 4], [5, 6]]), 0, Tensor([2, 0])).tolist()
    [[5, 6], [1, 2]]
    """
    return into(out, "index_select", input.index_select(dim, index))


@guarded
def isin(
    elements: Tensor,
    test_elements: TensorLike,
    *,
    assume_unique: bool = False,
    invert: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a bool tensor: True where the element is one of `test_elements`, or with `invert` where it is none.

    `assume_unique` changes nothing.

    >>> monolect.isin(Tensor([1, 2, 3]), Tensor([2, 5])).tolist()
    [False, True, False]
    """
    return into(out, "isin", elements.isin(test_elements, assume_unique=assume_unique, invert=invert))


@guarded
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """Return `input` with the elements of `source`, in order, where `mask` holds; the mask broadcasts.

    `source` has the dtype of `input` and at least as many elements as the mask has true ones, which is not checked.
    Raises DTypeError for another dtype or a mask that is not bool.

    >>> monolect.masked_scatter(Tensor([1, 2, 3]), Tensor([True, False, True]), Tensor([7, 8])).tolist()
    [7, 2, 8]
    """
    return input.masked_scatter(mask, source)


@guarded
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements where `mask` holds as a vector; both broadcast together.

    The call computes the mask. Raises DTypeError for a mask that is not bool, JitError inside a captured step.

    >>> monolect.masked_select(Tensor([1, 2, 3]), Tensor([True, False, True])).tolist()
    [1, 3]
    """
    return into(out, "masked_select", input.masked_select(mask))


@guarded
def nonzero(
    input: Tensor, *, as_tuple: bool = False, out: Tensor | tuple[Tensor, ...] | None = None
) -> Tensor | tuple[Tensor, ...]:
    """Return the int64 indices of the elements that are not zero: shape (n, ndim), or with `as_tuple` a vector for
    each axis. The call computes `input`; it raises JitError inside a captured step.

    >>> monolect.nonzero(Tensor([[0, 5], [7, 0]])).tolist()
    [[0, 1], [1, 0]]
    """
    return into(out, "nonzero", input.nonzero(as_tuple=as_tuple))


@guarded
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Return the int64 indices of the first `size` elements that are not zero, shape (size, ndim); rows that are left
    hold `fill_value`. It is lazy, and can be part of a captured step.

    Raises ArgumentError for a negative size.

    >>> monolect.nonzero_static(Tensor([[0, 5], [7, 0]]), size=3).tolist()
    [[0, 1], [1, 0], [-1, -1]]
    """
    return input.nonzero_static(size=size, fill_value=fill_value)


@guarded
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """Return a copy of `input` with `source` at the positions `index` of the flattened tensor; `accumulate` adds
    instead of writing.

    `source` has the dtype of `input` and is at least as large as `index`. Raises ShapeError or DTypeError
    otherwise.

    >>> monolect.put(Tensor.zeros(2, 2), Tensor([0, 3]), Tensor([7.0, 8.0])).tolist()
    [[7.0, 0.0], [0.0, 8.0]]
    """
    return input.put(index, source, accumulate)


@guarded
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: TensorLike | None = None,
    reduce: str | None = None,
    *,
    value: TensorLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return a copy of `input` with `src`, a tensor or a number, written at the positions `index` along axis `dim`.

    `value` is another name of `src`. If positions are equal, any one of the values is written, or all are added
    with reduce="add". `index` has the rank of `input`, and is at most as long on axes other than `dim`; `src` is at
    least as large as `index` and has the dtype of `input`. Raises ShapeError or DTypeError otherwise, and
    ArgumentError for another `reduce`.

    >>> monolect.scatter(Tensor.zeros(2, 3), 1, Tensor([[2], [0]]), Tensor([[5.0], [6.0]])).tolist()
    [[0.0, 0.0, 5.0], [6.0, 0.0, 0.0]]
    """
    return into(out, "scatter", input.scatter(dim, index, src, reduce, value=value))


@guarded
def scatter_add(input: Tensor, dim: int, index: Tensor, src: TensorLike) -> Tensor:
    """Return a copy of `input` with `src` added at the positions `index` along axis `dim`; equal positions add up.

    `index` has the rank of `input`, and is at most as long on axes other than `dim`; `src` is a number, or a tensor
    at least as large as `index` in the dtype of `input`. Raises ShapeError or DTypeError otherwise.

    >>> monolect.scatter_add(Tensor([0, 0, 0]), 0, Tensor([1, 1]), Tensor([5, 6])).tolist()
    [0, 11, 0]
    """
    return input.scatter_add(dim, index, src)


@guarded
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Return a copy of `input` with the values of `src` at the positions `index` along axis `dim` reduced by `reduce`:
    sum, prod, mean, amax or amin.

    The values of `input` take part if `include_self`. `index` has the rank of `input` and is at most as long as it
    on other axes; `src` is at least as large as `index`. Raises ShapeError, DTypeError or ArgumentError otherwise.

    >>> monolect.scatter_reduce(Tensor([1, 2, 3]), 0, Tensor([0, 0]), Tensor([5, 4]), "amax").tolist()
    [5, 2, 3]
    """
    return input.scatter_reduce(dim, index, src, reduce, include_self=include_self)


@guarded
def searchsorted(
    sorted_sequence: Tensor,
    input: TensorLike,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the positions at which the values of `input` keep the ascending `sorted_sequence` sorted along its last
    axis.

    Equal elements: the first position, or the last with `right` or side="right". `sorted_sequence` is a vector, or
    has the axes of `input` but the last. `sorter` are the indices that sort `sorted_sequence`. nan is after all
    numbers. Raises ShapeError for axes that differ, ArgumentError for another `side`.

    >>> monolect.searchsorted(Tensor([1, 3, 5]), Tensor([3, 4])).tolist()
    [1, 2]
    """
    result = sorted_sequence.searchsorted(input, out_int32=out_int32, right=right, side=side, sorter=sorter)
    return into(out, "searchsorted", result)


@guarded
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """Return a copy of `input` with `src` at position `index` of axis `dim`.

    Raises ShapeError unless `src` has the shape of that slice.

    >>> monolect.select_scatter(Tensor.zeros(2, 2), Tensor([1.0, 2.0]), 0, 1).tolist()
    [[0.0, 0.0], [1.0, 2.0]]
    """
    return input.select_scatter(src, dim, index)


@guarded
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return a copy of `input` with `src` in the slice start:end:step of axis `dim`.

    Raises ShapeError unless `src` has the shape of that slice.

    >>> monolect.slice_scatter(Tensor.zeros(4), Tensor([1.0, 2.0]), start=1, end=3).tolist()
    [0.0, 1.0, 2.0, 0.0]
    """
    return into(out, "slice_scatter", input.slice_scatter(src, dim, start, end, step))


@guarded
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the elements of the flattened tensor at the positions in `index`, in the shape of `index`.

    >>> monolect.take(Tensor([[1, 2], [3, 4]]), Tensor([3, 0])).tolist()
    [4, 1]
    """
    return into(out, "take", input.take(index))


@guarded
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return the elements of `input` at `indices` along axis `dim`: out[i][j] = `input`[indices[i][j]][j] for dim 0.

    Negative indices count from the end. Both tensors have one rank and broadcast on the other axes; the result has
    the broadcast shape of `indices`. Without `dim` both tensors are flattened.

    >>> monolect.take_along_dim(Tensor([[3, 1, 2]]), Tensor([[0, -1]]), 1).tolist()
    [[3, 2]]
    """
    return into(out, "take_along_dim", input.take_along_dim(indices, dim))


@guarded
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Return the distinct elements in ascending order, or with `dim` the distinct slices along an axis.

    With `return_inverse` and `return_counts` a tuple has also the index of each element in the result, and how
    often each element is there. The result is sorted, whatever `sorted` says, and has no gradient. Each nan is
    distinct. The call computes `input`; it raises JitError inside a captured step.

    >>> values, counts = monolect.unique(Tensor([3, 1, 3]), return_counts=True)
    >>> values.tolist(), counts.tolist()
    ([1, 3], [1, 2])
    """
    return input.unique(sorted, return_inverse, return_counts, dim)


@guarded
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """Return the elements that differ from the one before, or with `dim` the slices along an axis that do.

    With `return_inverse` and `return_counts` a tuple has also the index of the run of each element, and the length
    of each run. There is no gradient. The call computes `input`; it raises JitError inside a captured step.

    >>> monolect.unique_consecutive(Tensor([1, 1, 2, 2, 1])).tolist()
    [1, 2, 1]
    """
    return input.unique_consecutive(return_inverse, return_counts, dim)


__all__ = [
    "argwhere",
    "bincount",
    "bucketize",
    "diagonal_scatter",
    "gather",
    "histc",
    "histogram",
    "histogramdd",
    "index_add",
    "index_copy",
    "index_fill",
    "index_put",
    "index_reduce",
    "index_select",
    "isin",
    "masked_scatter",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "put",
    "scatter",
    "scatter_add",
    "scatter_reduce",
    "searchsorted",
    "select_scatter",
    "slice_scatter",
    "take",
    "take_along_dim",
    "unique",
    "unique_consecutive",
]

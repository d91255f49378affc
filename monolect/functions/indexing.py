"""Functions that read and write parts of tensors, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from monolect.tensor.base import Number, TensorLike
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def embedding(input: Tensor, weight: Tensor) -> Tensor:
    """Return the rows of `weight` whose numbers `input` holds; shape (*`input`.shape, *weight.shape[1:]).

    Raises DTypeError unless `input` holds integers.

    >>> monolect.embedding(Tensor([1, 0, 1]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    return input.embedding(weight)


@guarded
def gather(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return out with out[i][j][k] = `input`[index[i][j][k]][j][k] for dim 0, in the shape of `index`; other dims
    alike.

    `index` holds integers and has the rank of `input`. On axes other than `dim` it is at most as long as `input`.
    Raises ShapeError for another rank or a longer index, and DTypeError for an index of floats.

    >>> monolect.gather(Tensor([[1, 2], [3, 4]]), 1, Tensor([[1], [0]])).tolist()
    [[2], [3]]
    """
    return input.gather(dim, index)


@guarded
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Number = 1) -> Tensor:
    """Return a copy of `input` with alpha times the slices of `source` added at the positions in the vector `index`
    along axis `dim`.

    `source` has the dtype and shape of `input`, but as many slices along `dim` as `index` has elements. Raises
    ShapeError or DTypeError otherwise.

    >>> monolect.index_add(Tensor.zeros(3, 2), 0, Tensor([2, 2]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[0.0, 0.0], [0.0, 0.0], [4.0, 6.0]]
    """
    return input.index_add(dim, index, source, alpha=alpha)


@guarded
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Return a copy of `input` with the slices of `source` written at the positions in the vector `index` along axis
    `dim`.

    `source` has the dtype and shape of `input`, but as many slices along `dim` as `index` has elements. Raises
    ShapeError or DTypeError otherwise.

    >>> monolect.index_copy(Tensor.zeros(3, 2), 0, Tensor([2, 0]), Tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]]
    """
    return input.index_copy(dim, index, source)


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
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Return the slices along axis `dim` at the positions in `index`, a vector of integers.

    The axis gets the size of `index`. Raises ShapeError for an index of more than one axis.

    >>> monolect.index_select(Tensor([[1, 2], [3, 4], [5, 6]]), 0, Tensor([2, 0])).tolist()
    [[5, 6], [1, 2]]
    """
    return input.index_select(dim, index)


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
def scatter(input: Tensor, dim: int, index: Tensor, src: TensorLike, reduce: str | None = None) -> Tensor:
    """Return a copy of `input` with `src`, a tensor or a number, written at the positions `index` along axis `dim`.

    If positions are equal, any one of the values is written, or all are added with reduce="add". `index` has the
    rank of `input`, and is at most as long on axes other than `dim`; `src` is at least as large as `index` and has
    the dtype of `input`. Raises ShapeError or DTypeError otherwise, and ArgumentError for another `reduce`.

    >>> monolect.scatter(Tensor.zeros(2, 3), 1, Tensor([[2], [0]]), Tensor([[5.0], [6.0]])).tolist()
    [[0.0, 0.0, 5.0], [6.0, 0.0, 0.0]]
    """
    return input.scatter(dim, index, src, reduce)


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
def take(input: Tensor, index: Tensor) -> Tensor:
    """Return the elements of the flattened tensor at the positions in `index`, in the shape of `index`.

    >>> monolect.take(Tensor([[1, 2], [3, 4]]), Tensor([3, 0])).tolist()
    [4, 1]
    """
    return input.take(index)


@guarded
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Return the elements of `input` at `indices` along axis `dim`: out[i][j] = `input`[indices[i][j]][j] for dim 0.

    Negative indices count from the end. Both tensors have one rank and broadcast on the other axes; the result has
    the broadcast shape of `indices`. Without `dim` both tensors are flattened.

    >>> monolect.take_along_dim(Tensor([[3, 1, 2]]), Tensor([[0, -1]]), 1).tolist()
    [[3, 2]]
    """
    return input.take_along_dim(indices, dim)


__all__ = [
    "embedding",
    "gather",
    "index_add",
    "index_copy",
    "index_fill",
    "index_select",
    "put",
    "scatter",
    "scatter_add",
    "take",
    "take_along_dim",
]

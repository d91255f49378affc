"""Shapes, joins and selections by position, by the signatures of the array API."""

from __future__ import annotations

from collections.abc import Sequence

from monolect.array_api.operands import array_of
from monolect.base.errors import ShapeError
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

Arrays = tuple[Tensor, ...] | list[Tensor]


@guarded
def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """Return the arrays broadcast to one shape. Raises ShapeError if there is none.

    >>> [x.shape for x in array_api.broadcast_arrays(Tensor([1, 2]), Tensor([[3], [4], [5]]))]
    [(3, 2), (3, 2)]
    """
    return [*arrays[0].broadcast_tensors(*arrays[1:])] if arrays else []


@guarded
def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Return `x` broadcast to `shape`. Raises ShapeError if it does not broadcast.

    >>> array_api.broadcast_to(Tensor([1, 2]), (2, 2)).tolist()
    [[1, 2], [1, 2]]
    """
    return array_of(x, "broadcast_to").broadcast_to(shape)


@guarded
def concat(arrays: Arrays, /, *, axis: int | None = 0) -> Tensor:
    """Return the arrays joined along `axis`, or all elements in one row with None; dtypes are promoted.

    >>> array_api.concat([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """
    parts = [array_of(x, "concat") for x in arrays]
    return Tensor.cat(*parts, dim=axis) if axis is not None else Tensor.cat(*(x.flatten() for x in parts))


@guarded
def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """Return `x` with a new axis of size 1 at `axis`. Raises AxisError for an axis outside the result.

    >>> array_api.expand_dims(Tensor([1, 2]), axis=1).shape
    (2, 1)
    """
    return array_of(x, "expand_dims").unsqueeze(axis)


@guarded
def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return `x` with the elements in reverse order along `axis`, by default along all axes.

    >>> array_api.flip(Tensor([[1, 2], [3, 4]])).tolist()
    [[4, 3], [2, 1]]
    """
    return array_of(x, "flip").flip(tuple(range(x.ndim)) if axis is None else axis)


@guarded
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return `x` with its last two axes exchanged. Raises ShapeError for fewer than two axes.

    >>> array_api.matrix_transpose(Tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return array_of(x, "matrix_transpose").mT


@guarded
def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Return `x` with axes moved from `source` to `destination`; the others keep their order.

    >>> array_api.moveaxis(array_api.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    return array_of(x, "moveaxis").movedim(source, destination)


@guarded
def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """Return `x` with its axes in the order `axes`.

    >>> array_api.permute_dims(array_api.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return array_of(x, "permute_dims").permute(axes)


@guarded
def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return `x` with each element along `axis` repeated; with None, of all elements in one row.

    `repeats` is a number, or an array of a number for each element, which is computed at once.

    >>> array_api.repeat(Tensor([1, 2]), Tensor([1, 3])).tolist()
    [1, 2, 2, 2]
    """
    array_of(x, "repeat")
    if axis is None:
        x, axis = x.flatten(), 0
    if isinstance(repeats, Tensor):
        repeats = repeats.broadcast_to((x.size(axis),))
    return x.repeat_interleave(repeats, axis)


@guarded
def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """Return the elements of `x` in `shape`, of which one size may be -1. With `copy` True the memory is new.

    >>> array_api.reshape(Tensor([1, 2, 3, 4]), (2, -1)).tolist()
    [[1, 2], [3, 4]]
    """
    y = array_of(x, "reshape").reshape(shape)
    return y.clone() if copy else y


@guarded
def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Return `x` with elements moved by `shift` along `axis`, those beyond the end to the start; with None, along all
    elements in one row.

    >>> array_api.roll(Tensor([1, 2, 3]), 1).tolist()
    [3, 1, 2]
    """
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return array_of(x, "roll").roll(shift, axis)


@guarded
def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Return `x` without the axes `axis`. Raises ShapeError unless their size is 1.

    >>> array_api.squeeze(array_api.ones((1, 3, 1)), (0, -1)).shape
    (3,)
    """
    axes = array_of(x, "squeeze")._axes(axis)
    if any(x.shape[a] != 1 for a in axes):
        raise ShapeError("squeeze", expected=f"axes {axes} of size 1", found=f"shape {x.shape}")
    return x.squeeze(axes) if axes else x.reshape(x.shape)


@guarded
def stack(arrays: Arrays, /, *, axis: int = 0) -> Tensor:
    """Return the arrays, of one shape, along a new axis `axis`; dtypes are promoted.

    >>> array_api.stack([Tensor([1, 2]), Tensor([3, 4])], axis=1).tolist()
    [[1, 3], [2, 4]]
    """
    return Tensor.stack([array_of(x, "stack") for x in arrays], dim=axis)


@guarded
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the elements of `x` at `indices` along `axis`, which may be omitted for a vector.

    An index below 0 counts from the end. Raises ShapeError without an axis unless `x` is a vector.

    >>> array_api.take(Tensor([[1, 2, 3], [4, 5, 6]]), Tensor([2, 0]), axis=1).tolist()
    [[3, 1], [6, 4]]
    """
    if axis is None:
        if array_of(x, "take").ndim != 1:
            raise ShapeError("take without an axis", expected="a vector, or axis=...", found=f"shape {x.shape}")
        axis = 0
    return x[(slice(None),) * array_of(x, "take")._axis(axis) + (indices,)]


@guarded
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return, for each of `indices`, the element of `x` at that position of `axis`; the other axes are broadcast.

    >>> array_api.take_along_axis(Tensor([[3, 1], [2, 5]]), Tensor([[1], [0]])).tolist()
    [[1], [2]]
    """
    return array_of(x, "take_along_axis").take_along_dim(indices, axis)


@guarded
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sums of products over the last `axes` axes of `x1` and the first of `x2`, or over two lists of axes.

    >>> array_api.tensordot(Tensor([[1, 2]]), Tensor([[3, 4]]), axes=((1,), (1,))).tolist()
    [[11]]
    """
    return array_of(x1, "tensordot").tensordot(x2, axes)


@guarded
def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Return `x` repeated as a whole along its last axes, or along new axes in front.

    >>> array_api.tile(Tensor([1, 2]), (2, 1)).tolist()
    [[1, 2], [1, 2]]
    """
    return array_of(x, "tile").tile(repetitions)


@guarded
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Return the parts of `x` along `axis`, without that axis.

    >>> [y.tolist() for y in array_api.unstack(Tensor([[1, 2], [3, 4]]), axis=1)]
    [[1, 3], [2, 4]]
    """
    return array_of(x, "unstack").unbind(axis)


@guarded
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the sums of products along `axis`; the other axes are broadcast. Raises ShapeError for other sizes.

    >>> array_api.vecdot(Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
    [3, 7]
    """
    n, m = (array_of(x, "vecdot").size(axis) for x in (x1, x2))
    if n != m:
        raise ShapeError("vecdot", expected=f"{n} elements along axis {axis}", found=f"shape {x2.shape}")
    return x1.vecdot(x2, dim=axis)


__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "concat",
    "expand_dims",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "repeat",
    "reshape",
    "roll",
    "squeeze",
    "stack",
    "take",
    "take_along_axis",
    "tensordot",
    "tile",
    "unstack",
    "vecdot",
]

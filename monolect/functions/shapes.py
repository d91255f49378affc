"""Functions that move, join and split axes, and reshape, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monolect.tensor.base import Axes, DeviceLike, DTypeLike, Number, Size, Sizes
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.methods.movement import OneOrMore
from monolect.tensor.tensor import Tensor


@guarded
def adjoint(input: Tensor) -> Tensor:
    """Return `input` with the last two axes exchanged, as there are no complex numbers.

    >>> monolect.adjoint(Tensor.zeros(1, 2, 3)).shape
    (1, 3, 2)
    """
    return input.adjoint()


@guarded
def atleast_1d(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Any:
    """Return `tensors` with an axis if it has none; of several tensors, a tuple.

    >>> monolect.atleast_1d(Tensor(1)).shape
    (1,)
    """
    return Tensor.atleast_1d(tensors, *others)


@guarded
def atleast_2d(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Any:
    """Return `tensors` with two axes or more, a vector as a row; of several tensors, a tuple.

    >>> monolect.atleast_2d(Tensor([1, 2])).shape
    (1, 2)
    """
    return Tensor.atleast_2d(tensors, *others)


@guarded
def atleast_3d(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Any:
    """Return `tensors` with three axes or more, a matrix with a last axis of size 1; of several tensors, a tuple.

    >>> monolect.atleast_3d(Tensor([1, 2])).shape
    (1, 2, 1)
    """
    return Tensor.atleast_3d(tensors, *others)


@guarded
def block_diag(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Tensor:
    """Return a matrix with the given matrices on its diagonal and zeros elsewhere; vectors are rows.

    Raises ShapeError for more than two axes.

    >>> monolect.block_diag(Tensor([[1]]), Tensor([[2, 3]])).tolist()
    [[1, 0, 0], [0, 2, 3]]
    """
    return Tensor.block_diag(tensors, *others)


@guarded
def broadcast_shapes(*shapes: Sizes) -> tuple[int, ...]:
    """Return the common shape that tensors of `shapes` broadcast to. Raises ShapeError if there is none.

    >>> monolect.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return Tensor.broadcast_shapes(*shapes)


@guarded
def broadcast_tensors(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> tuple[Tensor, ...]:
    """Return the tensors expanded to their common shape. Raises ShapeError if there is none.

    >>> [t.shape for t in monolect.broadcast_tensors([Tensor([1, 2]), Tensor([[1], [2]])])]
    [(2, 2), (2, 2)]
    """
    return Tensor.broadcast_tensors(tensors, *others)


@guarded
def broadcast_to(input: Tensor, shape: Sizes) -> Tensor:
    """Return `input` repeated to `shape`, with the axes aligned at the last.

    Raises ShapeError for sizes that differ and are not 1.

    >>> monolect.broadcast_to(Tensor.ones(3, 1), (2, 3, 4)).shape
    (2, 3, 4)
    """
    return input.broadcast_to(shape)


@guarded
def cartesian_prod(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor]) -> Tensor:
    """Return all combinations of one element of each vector, a row each; of one vector, the vector.

    Raises ShapeError for a tensor that is no vector.

    >>> monolect.cartesian_prod([Tensor([1, 2]), Tensor([5, 6])]).tolist()
    [[1, 5], [1, 6], [2, 5], [2, 6]]
    """
    return Tensor.cartesian_prod(tensors, *others)


@guarded
def cat(
    tensors: OneOrMore[Tensor],
    *others: OneOrMore[Tensor] | int,
    dim: int = 0,
    axis: int | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return tensors concatenated along axis `dim`: `a.cat(b, c, dim=1)` or `Tensor.cat([a, b, c], dim=1)`.

    `axis` is NumPy's name of `dim`. Dtypes promote. Raises ShapeError for shapes that differ on another axis,
    ArgumentError for other objects.

    >>> monolect.cat([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """
    return into(out, "cat", Tensor.cat(tensors, *others, dim=dim, axis=axis))


@guarded
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return at most `chunks` parts of equal size along axis `dim`, as views; the last may be smaller.

    Raises ArgumentError for less than 1.

    >>> [part.shape for part in monolect.chunk(Tensor.ones(5, 2), 3)]
    [(2, 2), (2, 2), (1, 2)]
    """
    return input.chunk(chunks, dim)


@guarded
def column_stack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 1; vectors and numbers are columns.

    >>> monolect.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 3], [2, 4]]
    """
    return into(out, "column_stack", Tensor.column_stack(tensors, *others))


@guarded
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Return all combinations of `r` elements of `input`, a vector, a row each, in the order of itertools.

    Raises ShapeError for another rank, ArgumentError for a negative `r`.

    >>> monolect.combinations(Tensor([1, 2, 3])).tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    return input.combinations(r, with_replacement)


@guarded
def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Number = 0) -> Tensor:
    """Return `input` with `value` before and after its axes: widths (before, after) of the last axis, then of the axis
    before it, and so on; negative widths crop.

    >>> monolect.constant_pad_nd(Tensor([1, 2]), (1, 2), 9).tolist()
    [9, 1, 2, 9, 9]
    """
    return input.constant_pad_nd(pad, value)


@guarded
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return a diagonal of a matrix, or a matrix with the vector `input` on a diagonal; `diagonal` is column minus
    row.

    Raises ShapeError for another rank.

    >>> monolect.diag(Tensor([1, 2])).tolist(), monolect.diag(Tensor([[1, 2], [3, 4]]), 1).tolist()
    ([[1, 0], [0, 2]], [2])
    """
    return into(out, "diag", input.diag(diagonal))


@guarded
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return zeros with the last axis of `input` on a diagonal of the new axes `dim1` and `dim2`.

    >>> monolect.diag_embed(Tensor([1, 2]), 1).tolist()
    [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    """
    return input.diag_embed(offset, dim1, dim2)


@guarded
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """Return a matrix with the elements of `input`, in order, on a diagonal; `offset` is column minus row.

    >>> monolect.diagflat(Tensor([[1, 2]])).tolist()
    [[1, 0], [0, 2]]
    """
    return input.diagflat(offset)


@guarded
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """Return a diagonal of axes `dim1` and `dim2` as the last axis of the result; `offset` is column minus row.

    Raises AxisError for equal axes.

    >>> monolect.diagonal(Tensor([[1, 2, 3], [4, 5, 6]]), 1).tolist()
    [2, 6]
    """
    return input.diagonal(offset, dim1, dim2)


@guarded
def dsplit(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | None = None,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
) -> tuple[Tensor, ...]:
    """Return equal parts, or parts between indices, along axis 2.

    Raises ShapeError where parts are not equal or `input` has fewer than three axes.

    >>> [t.shape for t in monolect.dsplit(Tensor.zeros(1, 2, 4), 2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return input.dsplit(indices_or_sections, indices=indices, sections=sections)


@guarded
def dstack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 2, after they have got three axes.

    >>> monolect.dstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[[1, 3], [2, 4]]]
    """
    return into(out, "dstack", Tensor.dstack(tensors, *others))


@guarded
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Return `input` with axes `start_dim` to `end_dim` as one. Raises AxisError if one is missing or start > end.

    >>> monolect.flatten(Tensor.ones(2, 3, 4), 1).shape
    (2, 12)
    """
    return input.flatten(start_dim, end_dim)


@guarded
def flip(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """Return `input` with the elements in reverse order along `dims`.

    Raises AxisError for an axis that is missing or named twice.

    >>> monolect.flip(Tensor([[1, 2], [3, 4]]), 1).tolist()
    [[2, 1], [4, 3]]
    """
    return input.flip(*dims)


@guarded
def fliplr(input: Tensor) -> Tensor:
    """Return `input` with the order of axis 1 reversed. Raises ShapeError for fewer than two axes.

    >>> monolect.fliplr(Tensor([[1, 2], [3, 4]])).tolist()
    [[2, 1], [4, 3]]
    """
    return input.fliplr()


@guarded
def flipud(input: Tensor) -> Tensor:
    """Return `input` with the order of axis 0 reversed. Raises ShapeError without an axis.

    >>> monolect.flipud(Tensor([1, 2])).tolist()
    [2, 1]
    """
    return input.flipud()


@guarded
def hsplit(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | None = None,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
) -> tuple[Tensor, ...]:
    """Return equal parts, or parts between indices, along axis 1; of a vector, along axis 0.

    Raises ShapeError where parts are not equal or `input` has no axis.

    >>> [t.tolist() for t in monolect.hsplit(Tensor([[1, 2], [3, 4]]), 2)]
    [[[1], [3]], [[2], [4]]]
    """
    return input.hsplit(indices_or_sections, indices=indices, sections=sections)


@guarded
def hstack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 1, vectors along axis 0; numbers become vectors.

    >>> monolect.hstack([Tensor([1, 2]), Tensor([3])]).tolist()
    [1, 2, 3]
    """
    return into(out, "hstack", Tensor.hstack(tensors, *others))


@guarded
def is_complex(input: Tensor) -> bool:
    """Return False: there are no complex numbers.

    >>> monolect.is_complex(Tensor([1.0]))
    False
    """
    return input.is_complex()


@guarded
def is_nonzero(input: Tensor) -> bool:
    """Return whether the only element is not zero. The call computes `input`.

    Raises ShapeError where there is not exactly one element, JitError inside a captured step.

    >>> monolect.is_nonzero(Tensor([[2.0]]))
    True
    """
    return input.is_nonzero()


@guarded
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return whether `other` has the shape of `input`.

    >>> monolect.is_same_size(Tensor([1]), Tensor([2.0]))
    True
    """
    return input.is_same_size(other)


@guarded
def is_signed(input: Tensor) -> bool:
    """Return whether the dtype has negative numbers.

    >>> monolect.is_signed(Tensor([1])), monolect.is_signed(Tensor([True]))
    (True, False)
    """
    return input.is_signed()


@guarded
def meshgrid(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Return the coordinates of a grid over vectors, one tensor for each vector: `Tensor.meshgrid(x, y)`.

    `indexing` is "ij" or "xy"; "xy" exchanges the first two axes. Raises ShapeError for matrices, ArgumentError for
    another `indexing`.

    >>> [t.tolist() for t in monolect.meshgrid(Tensor([1, 2]), Tensor([5, 6]))]
    [[[1, 1], [2, 2]], [[5, 6], [5, 6]]]
    """
    return Tensor.meshgrid(tensors, *others, indexing=indexing)


@guarded
def movedim(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """Return `input` with axes moved from `source` to `destination`; the other axes keep their order.

    Raises AxisError unless both name equally many distinct axes.

    >>> monolect.movedim(Tensor.ones(2, 3, 4), 0, -1).shape
    (3, 4, 2)
    """
    return input.movedim(source, destination)


@guarded
def narrow(input: Tensor, dim: int, start: Size, length: Size) -> Tensor:
    """Return `length` elements of axis `dim` from index `start` on.

    Raises ShapeError for a part that leaves the axis.

    >>> monolect.narrow(Tensor([1, 2, 3, 4]), 0, 1, 2).tolist()
    [2, 3]
    """
    return input.narrow(dim, start, length)


@guarded
def pad(
    input: Tensor,
    pad: int | Sequence[Size] | Sequence[Sequence[Size] | None],
    mode: str = "constant",
    value: Number = 0,
) -> Tensor:
    """Return `input` with elements added before and after its axes; negative widths crop.

    `pad` is one width for all ends; (before, after) of the last axis, then of the axis before it, and so on; or one
    (before, after) pair for each axis, first axis first. `mode` is constant (`value`), reflect, replicate or
    circular. Raises ShapeError for widths that do not fit, ArgumentError for another `mode`.

    >>> nn.functional.pad(Tensor([1, 2]), (1, 2), value=9).tolist()
    [9, 1, 2, 9, 9]
    """
    return input.pad(pad, mode, value)


@guarded
def permute(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """Return `input` with its axes reordered: axis k of the result is axis `dims[k]`.

    Raises AxisError unless each axis is named once.

    >>> monolect.permute(Tensor.ones(2, 3, 4), 2, 0, 1).shape
    (4, 2, 3)
    """
    return input.permute(*dims)


@guarded
def ravel(input: Tensor) -> Tensor:
    """Return all elements as a vector, as `flatten`.

    >>> monolect.ravel(Tensor([[1, 2], [3, 4]])).tolist()
    [1, 2, 3, 4]
    """
    return input.ravel()


@guarded
def repeat_interleave(
    input: Tensor, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Return `input` with each element repeated `repeats` times in a row along axis `dim`; without `dim`, of the
    flattened tensor.

    A tensor of `repeats` has a number for each slice; the call computes it. `output_size` changes nothing.

    >>> monolect.repeat_interleave(Tensor([1, 2]), 2).tolist()
    [1, 1, 2, 2]
    """
    return input.repeat_interleave(repeats, dim, output_size=output_size)


@guarded
def reshape(input: Tensor, *shape: Sizes) -> Tensor:
    """Return the same elements, in row-major order, in another shape; one size may be -1.

    Raises ShapeError for another number of elements.

    >>> monolect.reshape(Tensor.arange(6), 2, -1).shape
    (2, 3)
    """
    return input.reshape(*shape)


@guarded
def roll(input: Tensor, shifts: int | Sequence[int], dims: Axes = None) -> Tensor:
    """Return `input` shifted by `shifts` along axes `dims`; elements shifted past one end re-enter at the other.

    Without `dims` the flattened tensor is rolled. Raises ArgumentError unless each axis has a shift.

    >>> monolect.roll(Tensor([1, 2, 3, 4]), 1, 0).tolist()
    [4, 1, 2, 3]
    """
    return input.roll(shifts, dims)


@guarded
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Return `input` rotated by 90 degrees `k` times, from the first axis of `dims` toward the second.

    Raises AxisError unless `dims` names two distinct axes.

    >>> monolect.rot90(Tensor([[1, 2], [3, 4]])).tolist()
    [[2, 4], [1, 3]]
    """
    return input.rot90(k, dims)


@guarded
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """Return the slice at position `index` of axis `dim`, without that axis. Raises IndexRangeError outside of it.

    >>> monolect.select(Tensor([[1, 2], [3, 4]]), 1, 0).tolist()
    [1, 3]
    """
    return input.select(dim, index)


@guarded
def split(tensor: Tensor, split_size_or_sections: Sizes, dim: int = 0) -> tuple[Tensor, ...]:
    """Return parts along axis `dim`, as views: parts of one size (the last may be smaller), or of the sizes in a list.

    Raises ShapeError for sizes that do not add up, ArgumentError for one size below 1.

    >>> [part.shape for part in monolect.split(Tensor.ones(5, 2), 2)]
    [(2, 2), (2, 2), (1, 2)]
    """
    return tensor.split(split_size_or_sections, dim)


@guarded
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return parts of the given sizes along axis `dim`. Raises ShapeError unless they add up to it.

    >>> [t.tolist() for t in monolect.split_with_sizes(Tensor([1, 2, 3]), [1, 2])]
    [[1], [2, 3]]
    """
    return input.split_with_sizes(split_sizes, dim)


@guarded
def squeeze(input: Tensor, dim: Axes = None) -> Tensor:
    """Return `input` without its axes of size 1, or without those of `dim` (an axis or several) that have size 1.

    >>> monolect.squeeze(Tensor.ones(2, 1, 3, 1)).shape, monolect.squeeze(Tensor.ones(2, 1, 3, 1), 1).shape
    ((2, 3), (2, 3, 1))
    """
    return input.squeeze(dim)


@guarded
def stack(
    tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor] | int, dim: int = 0, out: Tensor | None = None
) -> Tensor:
    """Return tensors of one shape concatenated along a new axis `dim`: `a.stack(b)` or `Tensor.stack([a, b])`.

    Dtypes promote. Raises ShapeError for different shapes, ArgumentError for other objects than Tensors.

    >>> monolect.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1).tolist()
    [[1, 3], [2, 4]]
    """
    return into(out, "stack", Tensor.stack(tensors, *others, dim=dim))


@guarded
def t(input: Tensor) -> Tensor:
    """Return a matrix transposed; a vector or a scalar is unchanged. Raises ShapeError for more than two axes.

    >>> monolect.t(Tensor([[1, 2], [3, 4]])).tolist()
    [[1, 3], [2, 4]]
    """
    return input.t()


@guarded
def tensor_split(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | Tensor | None = None,
    dim: int = 0,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
) -> tuple[Tensor, ...]:
    """Return parts along axis `dim`: as many as a number says, the first ones longer by one, or between indices.

    `indices` and `sections` are other names of the first argument. A tensor of indices is computed. Raises
    ArgumentError for no parts, ShapeError without an axis.

    >>> [t.tolist() for t in monolect.tensor_split(Tensor([1, 2, 3]), 2)]
    [[1, 2], [3]]
    """
    return input.tensor_split(indices_or_sections, dim, indices=indices, sections=sections)


@guarded
def tile(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """Return `input` repeated as by `repeat`, where missing leading counts are 1.

    >>> monolect.tile(Tensor([[1, 2], [3, 4]]), 2).tolist()
    [[1, 2, 1, 2], [3, 4, 3, 4]]
    """
    return input.tile(*dims)


@guarded
def trace(input: Tensor) -> Tensor:
    """Return the sum of the main diagonal of a matrix. Raises ShapeError for another rank.

    >>> monolect.trace(Tensor([[1, 2], [3, 4]])).item()
    5
    """
    return input.trace()


@guarded
def transpose(input: Tensor, dim0: int = 1, dim1: int = 0) -> Tensor:
    """Return `input` with axes `dim0` and `dim1` exchanged. Raises AxisError for a missing axis.

    >>> monolect.transpose(Tensor.ones(2, 3, 4), 0, 2).shape
    (4, 3, 2)
    """
    return input.transpose(dim0, dim1)


@guarded
def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return the row and column numbers of the lower triangle of a matrix, shape (2, n), as int64 or `dtype`.

    The triangle ends at the diagonal `offset`.

    >>> monolect.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]
    """
    return Tensor.tril_indices(row, col, offset, dtype=dtype, device=device)


@guarded
def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return the row and column numbers of the upper triangle of a matrix, shape (2, n), as int64 or `dtype`.

    The triangle begins at the diagonal `offset`.

    >>> monolect.triu_indices(2, 2).tolist()
    [[0, 0, 1], [0, 1, 1]]
    """
    return Tensor.triu_indices(row, col, offset, dtype=dtype, device=device)


@guarded
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Return the slices along axis `dim`, without that axis, as views.

    >>> [part.tolist() for part in monolect.unbind(Tensor([[1, 2], [3, 4]]), 1)]
    [[1, 3], [2, 4]]
    """
    return input.unbind(dim)


@guarded
def unflatten(input: Tensor, dim: int, sizes: Sizes) -> Tensor:
    """Return `input` with axis `dim` split into `sizes`, of which one may be -1. Raises ShapeError for another
    product.

    >>> monolect.unflatten(Tensor.ones(2, 12), 1, (3, -1)).shape
    (2, 3, 4)
    """
    return input.unflatten(dim, sizes)


@guarded
def unravel_index(indices: Tensor, shape: Sizes) -> tuple[Tensor, ...]:
    """Return the index along each axis of a tensor of `shape` for the row-major positions in `indices`.

    Raises ArgumentError unless `indices` holds integers.

    >>> [t.tolist() for t in monolect.unravel_index(Tensor([5, 2]), (2, 3))]
    [[1, 0], [2, 2]]
    """
    return indices.unravel_index(shape)


@guarded
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """Return `input` with a new axis of size 1 at index `dim` of the result. Raises AxisError outside of the result.

    >>> monolect.unsqueeze(Tensor.ones(2, 3), -1).shape
    (2, 3, 1)
    """
    return input.unsqueeze(dim)


@guarded
def vsplit(
    input: Tensor,
    indices_or_sections: int | Sequence[int] | None = None,
    *,
    indices: Sequence[int] | None = None,
    sections: int | None = None,
) -> tuple[Tensor, ...]:
    """Return equal parts, or parts between indices, along axis 0 of a matrix or more axes.

    Raises ShapeError where parts are not equal or `input` has fewer axes.

    >>> [t.tolist() for t in monolect.vsplit(Tensor([[1, 2], [3, 4]]), 2)]
    [[[1, 2]], [[3, 4]]]
    """
    return input.vsplit(indices_or_sections, indices=indices, sections=sections)


@guarded
def vstack(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return tensors concatenated along axis 0; vectors are rows.

    >>> monolect.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
    [[1, 2], [3, 4]]
    """
    return into(out, "vstack", Tensor.vstack(tensors, *others))


concat = cat


concatenate = cat


moveaxis = movedim


row_stack = vstack


swapaxes = transpose


swapdims = transpose


__all__ = [
    "adjoint", "atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_shapes", "broadcast_tensors",
    "broadcast_to", "cartesian_prod", "cat", "chunk", "column_stack", "combinations", "concat", "concatenate",
    "constant_pad_nd", "diag", "diag_embed", "diagflat", "diagonal", "dsplit", "dstack", "flatten", "flip", "fliplr",
    "flipud", "hsplit", "hstack", "is_complex", "is_nonzero", "is_same_size", "is_signed", "meshgrid", "moveaxis",
    "movedim", "narrow", "pad", "permute", "ravel", "repeat_interleave", "reshape", "roll", "rot90", "row_stack",
    "select", "split", "split_with_sizes", "squeeze", "stack", "swapaxes", "swapdims", "t", "tensor_split", "tile",
    "trace", "transpose", "tril_indices", "triu_indices", "unbind", "unflatten", "unravel_index", "unsqueeze", "vsplit",
    "vstack",
]  # fmt: skip

"""Functions of the extension `linalg` of the array API, without factorisations and what needs one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from monolect.array_api.manipulation import matrix_transpose, tensordot, vecdot
from monolect.array_api.operands import array_of
from monolect.array_api.reductions import Axis
from monolect.array_api.reductions import sum as total
from monolect.base.absent import hint
from monolect.base.errors import ShapeError
from monolect.functions.products import matmul, matrix_power, outer
from monolect.tensor.base import DTypeLike, Number
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the vector products along `axis`, which has size 3; the other axes are broadcast.

    Raises ShapeError for another size.

    >>> array_api.linalg.cross(Tensor([1, 0, 0]), Tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    return array_of(x1, "cross").cross(x2, axis)


@guarded
def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Return the diagonals of the last two axes, `offset` above the main one. Raises ShapeError for fewer axes.

    >>> array_api.linalg.diagonal(Tensor([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    if array_of(x, "diagonal").ndim < 2:
        raise ShapeError("diagonal", expected="at least 2 axes", found=f"shape {x.shape}")
    return x.diagonal(offset, -2, -1)


@guarded
def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Number | str | None = "fro") -> Tensor:
    """Return the norms of the matrices of the last two axes: "fro", or 1, -1, inf or -inf for sums of columns or rows.

    Raises ArgumentError for another order, which needs singular values, DTypeError for integers.

    >>> array_api.linalg.matrix_norm(Tensor([[1.0, 2.0], [3.0, 4.0]]), ord=1).item()
    6.0
    """
    return array_of(x, "matrix_norm").matrix_norm("fro" if ord is None else ord, (-2, -1), keepdims)


@guarded
def trace(x: Tensor, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """Return the sums of the diagonals of the last two axes, in the dtype of `sum`.

    >>> array_api.linalg.trace(Tensor([[1, 2], [3, 4]])).item()
    5
    """
    return total(diagonal(x, offset=offset), axis=-1, dtype=dtype)


@guarded
def vector_norm(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False, ord: Number = 2) -> Tensor:
    """Return the norms of order `ord` along `axis`, by default of all elements. Raises DTypeError for integers.

    >>> array_api.linalg.vector_norm(Tensor([[3.0, 4.0], [6.0, 8.0]]), axis=1).tolist()
    [5.0, 10.0]
    """
    return array_of(x, "vector_norm").vector_norm(ord, axis, keepdims)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        raise AttributeError(hint("linalg", name).replace("monolect.linalg", "monolect.array_api.linalg"))


__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]

"""Methods that join several tensors: stacks by axis, diagonals of blocks, products of vectors.

Each is called as `a.hstack(b)`, `Tensor.hstack([a, b])` or `monolect.hstack([a, b])`.
"""

from __future__ import annotations

import itertools
from typing import Any, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.numpy import np
from monolect.tensor.base import AnyTensor, DeviceLike, DTypeLike, Sizes, TensorBase, as_int, as_size, as_sizes
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.movement import OneOrMore, tensors_and_axis


@guard_methods
class JoinsMixin(TensorBase):
    """Methods of Tensor that join tensors."""

    __slots__ = ()

    def hstack(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return tensors concatenated along axis 1, vectors along axis 0; numbers become vectors.

        >>> Tensor.hstack([Tensor([1, 2]), Tensor([3])]).tolist()
        [1, 2, 3]
        """
        ts = [_at_least(t, 1) for t in _tensors("hstack", self, others)]
        return type(ts[0]).cat(ts, dim=0 if ts[0].ndim == 1 else 1)

    def vstack(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return tensors concatenated along axis 0; vectors are rows.

        >>> Tensor.vstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 2], [3, 4]]
        """
        ts = [_at_least(t, 2) for t in _tensors("vstack", self, others)]
        return type(ts[0]).cat(ts, dim=0)

    row_stack = vstack

    def dstack(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return tensors concatenated along axis 2, after they have got three axes.

        >>> Tensor.dstack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[[1, 3], [2, 4]]]
        """
        ts = [_at_least(t, 3) for t in _tensors("dstack", self, others)]
        return type(ts[0]).cat(ts, dim=2)

    def column_stack(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return tensors concatenated along axis 1; vectors and numbers are columns.

        >>> Tensor.column_stack([Tensor([1, 2]), Tensor([3, 4])]).tolist()
        [[1, 3], [2, 4]]
        """
        ts = [t.reshape(-1, 1) if t.ndim < 2 else t for t in _tensors("column_stack", self, others)]
        return type(ts[0]).cat(ts, dim=1)

    def block_diag(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return a matrix with the given matrices on its diagonal and zeros elsewhere; vectors are rows.

        Raises ShapeError for more than two axes.

        >>> Tensor([[1]]).block_diag(Tensor([[2, 3]])).tolist()
        [[1, 0, 0], [0, 2, 3]]
        """
        ts = [_at_least(t, 2) for t in _tensors("block_diag", self, others)]
        if any(t.ndim > 2 for t in ts):
            raise ShapeError("block_diag", expected="at most 2 axes", found=[t.shape for t in ts])
        width, at, rows = sum(t.shape[1] for t in ts), 0, []
        for t in ts:
            rows.append(t.pad([at, width - at - t.shape[1]]))
            at += t.shape[1]
        return type(ts[0]).cat(rows, dim=0)

    def cartesian_prod(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return all combinations of one element of each vector, a row each; of one vector, the vector.

        Raises ShapeError for a tensor that is no vector.

        >>> Tensor.cartesian_prod([Tensor([1, 2]), Tensor([5, 6])]).tolist()
        [[1, 5], [1, 6], [2, 5], [2, 6]]
        """
        ts = _tensors("cartesian_prod", self, others)
        if any(t.ndim != 1 for t in ts):
            raise ShapeError("cartesian_prod needs vectors", expected="1 axis each", found=[t.shape for t in ts])
        if len(ts) == 1:
            return ts[0]
        return type(ts[0]).stack([t.reshape(-1) for t in type(ts[0]).meshgrid(ts)], dim=1)

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """Return all combinations of `r` elements of self, a vector, a row each, in the order of itertools.

        Raises ShapeError for another rank, ArgumentError for a negative `r`.

        >>> Tensor([1, 2, 3]).combinations().tolist()
        [[1, 2], [1, 3], [2, 3]]
        """
        x: Any = self
        k = as_int(r, "r")
        if x.ndim != 1 or k < 0:
            kind = ShapeError if x.ndim != 1 else ArgumentError
            raise kind("combinations", expected="a vector, and r of at least 0", found=(x.shape, r))
        choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
        rows = np.array([*choose(range(x.shape[0]), k)], np.int64).reshape(-1, k)
        if not rows.size and not (k and x.shape[0]):
            empty: Self = x._kind.zeros(*((0, k) if k else (0,)), dtype=self.dtype, device=self.device)
            return empty
        out: Self = x[x._kind(rows, device=self.device)]
        return out

    def broadcast_tensors(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> tuple[AnyTensor, ...]:
        """Return the tensors expanded to their common shape. Raises ShapeError if there is none.

        >>> [t.shape for t in Tensor.broadcast_tensors([Tensor([1, 2]), Tensor([[1], [2]])])]
        [(2, 2), (2, 2)]
        """
        ts = _tensors("broadcast_tensors", self, others)
        shape = common_shape([t.shape for t in ts])
        return tuple(t.expand(*shape) for t in ts)

    @classmethod
    def broadcast_shapes(cls, *shapes: Sizes) -> tuple[int, ...]:
        """Return the common shape that tensors of `shapes` broadcast to. Raises ShapeError if there is none.

        >>> Tensor.broadcast_shapes((2, 1), (3,))
        (2, 3)
        """
        return common_shape([as_sizes((s,)) for s in shapes])

    def atleast_1d(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> Any:
        """Return self with an axis if it has none; of several tensors, a tuple.

        >>> Tensor(1).atleast_1d().shape
        (1,)
        """
        return _each("atleast_1d", self, others, 1)

    def atleast_2d(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> Any:
        """Return self with two axes or more, a vector as a row; of several tensors, a tuple.

        >>> Tensor([1, 2]).atleast_2d().shape
        (1, 2)
        """
        return _each("atleast_2d", self, others, 2)

    def atleast_3d(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> Any:
        """Return self with three axes or more, a matrix with a last axis of size 1; of several tensors, a tuple.

        >>> Tensor([1, 2]).atleast_3d().shape
        (1, 2, 1)
        """
        return _each("atleast_3d", self, others, 3)

    # ---- indices -----------------------------------------------------------------------------------------------------
    @classmethod
    def tril_indices(
        cls, row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
    ) -> Self:
        """Return the row and column numbers of the lower triangle of a matrix, shape (2, n), as int64 or `dtype`.

        The triangle ends at the diagonal `offset`.

        >>> Tensor.tril_indices(2, 2).tolist()
        [[0, 1, 1], [0, 0, 1]]
        """
        return _triangle(cls, np.tril_indices, row, offset, col, dtype, device)

    @classmethod
    def triu_indices(
        cls, row: int, col: int, offset: int = 0, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None
    ) -> Self:
        """Return the row and column numbers of the upper triangle of a matrix, shape (2, n), as int64 or `dtype`.

        The triangle begins at the diagonal `offset`.

        >>> Tensor.triu_indices(2, 2).tolist()
        [[0, 0, 1], [0, 1, 1]]
        """
        return _triangle(cls, np.triu_indices, row, offset, col, dtype, device)

    def unravel_index(self, shape: Sizes) -> tuple[Self, ...]:
        """Return the index along each axis of a tensor of `shape` for the row-major positions in self.

        Raises ArgumentError unless self holds integers.

        >>> [t.tolist() for t in Tensor([5, 2]).unravel_index((2, 3))]
        [[1, 0], [2, 2]]
        """
        if not self.dtype.is_int or self.dtype is dtypes.bool:
            raise ArgumentError("unravel_index needs integers", expected="an integer dtype", found=self.dtype.name)
        x: Any = self
        out: list[Any] = []
        for n in reversed(as_sizes((shape,))):
            out.append(x % as_size(n))
            x = x // n
        return tuple(reversed(out))


def common_shape(shapes: list[tuple]) -> tuple:
    """Return the shape that `shapes` broadcast to. Raises ShapeError if there is none."""
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError("the shapes do not broadcast", expected="equal sizes, or 1", found=shapes) from None


def _tensors(name: str, first: Any, others: Any) -> list[Any]:
    """Return the tensors of a call as `a.name(b)` or `Tensor.name([a, b])`."""
    return list(tensors_and_axis(name, first, others, 0)[0])


def _at_least(t: Any, n: int) -> Any:
    """Return the Tensor `t` with `n` axes or more, as NumPy adds them."""
    if t.ndim >= n:
        return t
    if n == 1:
        return t.reshape(1)
    if n == 2:
        return t.reshape(1, -1)
    return t.unsqueeze(-1) if t.ndim == 2 else t.reshape(1, -1, 1)


def _each(name: str, first: Any, others: Any, n: int) -> Any:
    ts = [_at_least(t, n) for t in _tensors(name, first, others)]
    return ts[0] if isinstance(first, TensorBase) and not others else tuple(ts)


def _triangle(cls: Any, indices: Any, row: int, offset: int, col: int, dtype: Any, device: Any) -> Any:
    n, m = as_int(row, "row"), as_int(col, "col")
    if min(n, m) < 0:
        raise ArgumentError("a size is negative", expected="sizes of at least 0", found=(n, m))
    found = np.stack(indices(n, as_int(offset, "offset"), m)).astype(np.int64)
    return cls(found, device=device).cast(dtypes.int64 if dtype is None else dtype)


__all__ = ["JoinsMixin", "common_shape"]

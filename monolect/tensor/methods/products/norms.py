"""Products of vectors, norms of vectors and matrices, distances between points."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Self

from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import Axes, DTypeLike, Number, TensorBase, as_int, check_sizes
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.arrangement.joins import common_shape
from monolect.tensor.methods.elementwise import computes_in_float32


@guard_methods
class NormsMixin(TensorBase):
    """Methods of Tensor for products of vectors, norms and distances."""

    __slots__ = ()

    # ---- products ----------------------------------------------------------------------------------------------------
    def ger(self, vec2: TensorBase) -> Self:
        """Return the product of each element of self with each of `vec2`, as `outer`. Raises ShapeError for matrices.

        >>> Tensor([1, 2]).ger(Tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
        """
        x: Any = self
        return x.outer(vec2)

    def inner(self, other: TensorBase) -> Self:
        """Return the products of the vectors along the last axes of self and `other`; with a number, their product.

        Raises ShapeError for last axes that differ.

        >>> Tensor([[1, 2], [3, 4]]).inner(Tensor([5, 6])).tolist()
        [17, 39]
        """
        x: Any = self
        y: Any = other
        if not x.ndim or not y.ndim:
            return x * y
        if x.shape[-1] != y.shape[-1]:
            raise ShapeError("inner: last axes", expected=x.shape[-1], found=y.shape[-1])
        return x.tensordot(y, ([-1], [-1]))

    def vdot(self, other: TensorBase) -> Self:
        """Return the product of two vectors, as `dot`, since there are no complex numbers.

        >>> Tensor([1, 2]).vdot(Tensor([3, 4])).item()
        11
        """
        x: Any = self
        return x.dot(other)

    def vecdot(self, y: TensorBase, *, dim: int = -1) -> Self:
        """Return the sums of `self * y` along axis `dim`, broadcast.

        >>> Tensor([[1, 2], [3, 4]]).vecdot(Tensor([1, 1])).tolist()
        [3, 7]
        """
        x: Any = self
        products = x * y
        return products.sum(dim, dtype=products.dtype)

    def cross(self, other: TensorBase, dim: int | None = None) -> Self:
        """Return the vector products along axis `dim` of size 3, by default the first such axis; others broadcast.

        Raises ShapeError without such an axis.

        >>> Tensor([1, 0, 0]).cross(Tensor([0, 1, 0])).tolist()
        [0, 0, 1]
        """
        x: Any = self
        y: Any = other
        shape = common_shape([x.shape, y.shape])
        x, y = x.expand(*shape), y.expand(*shape)
        if dim is None:
            a = next((i for i, n in enumerate(shape) if n == 3), -1)
        else:
            a = x._axis(dim)
        if a < 0 or shape[a] != 3:
            raise ShapeError("cross", expected="an axis of size 3", found=shape)
        one = [(t.roll(-1, a), t.roll(1, a)) for t in (x, y)]
        return one[0][0] * one[1][1] - one[0][1] * one[1][0]

    def kron(self, other: TensorBase) -> Self:
        """Return the Kronecker product: blocks of `other` multiplied by each element of self.

        >>> Tensor([1, 10]).kron(Tensor([1, 2])).tolist()
        [1, 2, 10, 20]
        """
        x: Any = self
        y: Any = other
        n = max(x.ndim, y.ndim)
        x = x.reshape(*(1,) * (n - x.ndim), *x.shape)
        y = y.reshape(*(1,) * (n - y.ndim), *y.shape)
        left = x.reshape(*(k for s in x.shape for k in (s, 1)))
        right = y.reshape(*(k for s in y.shape for k in (1, s)))
        return (left * right).reshape(*(s * t for s, t in zip(x.shape, y.shape, strict=True)))

    def vander(self, N: int | None = None, increasing: bool = False) -> Self:
        """Return the powers of each element as a row: from N - 1 down to 0, or up with `increasing`.

        N is the size of the last axis by default. Bools and integers give int64. A scalar is one row. Raises
        ArgumentError for a negative N.

        >>> Tensor([1, 2]).vander(3).tolist()
        [[1, 1, 1], [4, 2, 1]]
        """
        if not self.ndim:
            return self.reshape(1).vander(N, increasing)
        n = self.shape[-1] if N is None else as_int(N, "N")
        if n < 0:
            raise ArgumentError("vander: N", expected="at least 0", found=N)
        x: Any = self if self.dtype.is_float else self.cast(dtypes.int64)
        check_sizes((*x.shape, n))
        if not n:
            return x.unsqueeze(-1)[..., :0]
        ones = x.ones_like().unsqueeze(-1)
        powers = ones.cat(x.unsqueeze(-1).expand(*x.shape, n - 1), dim=-1).cumprod(-1) if n > 1 else ones
        return powers if increasing else powers.flip(-1)

    # ---- norms -------------------------------------------------------------------------------------------------------
    def vector_norm(
        self, ord: Number = 2, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
    ) -> Self:
        """Return the norm of order `ord` along axes `dim`, by default of all elements. Raises DTypeError for integers.

        >>> Tensor([3.0, -4.0]).vector_norm().item(), Tensor([3.0, -4.0]).vector_norm(1).item()
        (5.0, 7.0)
        """
        x: Any = self if dtype is None else self.cast(dtype)
        return x.norm(ord, dim, keepdim)

    def matrix_norm(
        self,
        ord: Number | str = "fro",
        dim: Sequence[int] = (-2, -1),
        keepdim: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Return the norm of the matrices of two axes: "fro", or 1, -1, inf or -inf for sums of columns or rows.

        Raises DTypeError for integers, ArgumentError for another order (those need singular values), ShapeError for
        fewer than two axes.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).matrix_norm(1).item()
        6.0
        """
        x: Any = self if dtype is None else self.cast(dtype)
        x._check_float("matrix_norm")
        if x.ndim < 2 or len(dim) != 2:
            raise ShapeError("matrix_norm", expected="at least 2 axes, and dim of 2", found=(x.shape, dim))
        a, b = (x._axis(d) for d in dim)
        if a == b:
            raise ArgumentError("matrix_norm: dim", expected="distinct axes", found=dim)
        if ord == "fro":
            return x.norm(2, (a, b), keepdim)
        if ord not in (1, -1, inf, -inf):
            raise ArgumentError("matrix_norm: ord", expected="'fro', 1, -1, inf or -inf", found=repr(ord))
        inner, outer = (a, b) if ord in (1, -1) else (b, a)
        sums = x.abs().sum(inner, keepdim=True)
        found = sums.amax(outer, keepdim=True) if ord in (1, inf) else sums.amin(outer, keepdim=True)
        return found if keepdim else found.squeeze((a, b))

    def frobenius_norm(self, dim: Axes = None, keepdim: bool = False) -> Self:
        """Return the square root of the sum of squares along axes `dim`, by default all.

        Raises DTypeError for integers.

        >>> Tensor([[1.0, 2.0], [2.0, 4.0]]).frobenius_norm().item()
        5.0
        """
        x: Any = self
        return x.norm(2, dim, keepdim)

    # ---- other defaults ----------------------------------------------------------------------------------------------
    def linalg_norm(
        self,
        ord: Number | str | None = None,
        dim: int | Sequence[int] | None = None,
        keepdim: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> Self:
        """Return a norm of vectors or matrices: that of `vector_norm` along one axis `dim`, of `matrix_norm` along two.

        Without `dim`, a matrix has a `matrix_norm` and a vector a `vector_norm`; without `ord` too, the result is the
        2-norm of all elements. Raises DTypeError for integers, ArgumentError for another order, ShapeError for more
        axes and no `dim`.

        >>> Tensor([[3.0], [4.0]]).linalg_norm().item(), Tensor([[1.0, 2.0], [3.0, 4.0]]).linalg_norm(1).item()
        (5.0, 6.0)
        """
        x: Any = self
        if ord is None and (dim is None or isinstance(dim, int) or len(dim) in (1, 2)):
            return x.vector_norm(2, dim, keepdim, dtype=dtype)
        axes = (dim,) if isinstance(dim, int) else tuple(range(x.ndim) if dim is None else dim)
        if len(axes) == 1:
            return x.vector_norm(ord, axes, keepdim, dtype=dtype)
        if len(axes) != 2:
            raise ShapeError("linalg.norm", expected="1 or 2 axes, or dim", found=x.shape if dim is None else dim)
        return x.matrix_norm("fro" if ord is None else ord, axes, keepdim, dtype=dtype)

    def linalg_cross(self, other: TensorBase, *, dim: int = -1) -> Self:
        """Return the vector products along axis `dim` of size 3, by default the last one; others broadcast.

        Raises ShapeError for another size.

        >>> Tensor([1, 0, 0]).linalg_cross(Tensor([0, 1, 0])).tolist()
        [0, 0, 1]
        """
        return self.cross(other, dim)

    def linalg_diagonal(self, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Return the diagonals of the matrices of two axes, by default the last two.

        >>> Tensor([[[1, 2], [3, 4]]]).linalg_diagonal().tolist()
        [[1, 4]]
        """
        x: Any = self
        return x.diagonal(offset, dim1, dim2)

    def linalg_vander(self, *, N: int | None = None) -> Self:
        """Return the powers of each element as a row, from 0 up to N - 1; N is the size of the last axis by default.

        >>> Tensor([1, 2]).linalg_vander(N=3).tolist()
        [[1, 1, 1], [1, 2, 4]]
        """
        return self.vander(N, increasing=True)

    # ---- distances ---------------------------------------------------------------------------------------------------
    @computes_in_float32
    def dist(self, other: TensorBase, p: Number = 2) -> Self:
        """Return the p-norm of `self - other`, broadcast. Raises DTypeError for integers.

        >>> Tensor([1.0, 2.0]).dist(Tensor([4.0, 6.0])).item()
        5.0
        """
        d: Any = self - other
        return d.norm(p)

    @computes_in_float32
    def cdist(self, x2: TensorBase, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Self:
        """Return the distances by the p-norm between each row of self and each of `x2`, for each matrix of a batch.

        `compute_mode` changes nothing: differences are computed. Raises DTypeError for integers, ShapeError for rows of
        different sizes, ArgumentError for a negative p.

        >>> Tensor([[0.0, 0.0]]).cdist(Tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
        [[5.0, 1.0]]
        """
        x: Any = self
        y: Any = x2
        if not (x.dtype.is_float and y.dtype.is_float):
            raise DTypeError("cdist needs floats", expected="a float dtype", found=(x.dtype.name, y.dtype.name))
        if x.ndim < 2 or y.ndim < 2 or x.shape[-1] != y.shape[-1]:
            raise ShapeError("cdist", expected="rows of one size", found=(x.shape, y.shape))
        if p < 0:
            raise ArgumentError("cdist: p", expected="at least 0", found=p)
        d = x.unsqueeze(-2) - y.unsqueeze(-3)
        if not d.shape[-1]:
            return d.sum(-1)
        return d.norm(p, -1)


__all__ = ["NormsMixin"]

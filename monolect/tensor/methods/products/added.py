"""Products that are added to a tensor: `addmm` and its relatives, products of several matrices.

Invariant: with beta = 0 the values of self are not read, so nan and infinities of it do not reach the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from monolect.base.dtype import as_dtype, dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.tensor.base import AnyTensor, DTypeLike, Number, TensorBase, as_int
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.movement import OneOrMore, tensors_and_axis


@guard_methods
class AddedProductsMixin(TensorBase):
    """Methods of Tensor that add a product to self, or multiply several matrices."""

    __slots__ = ()

    def addmm(
        self,
        mat1: TensorBase,
        mat2: TensorBase,
        out_dtype: DTypeLike | None = None,
        *,
        beta: Number = 1,
        alpha: Number = 1,
    ) -> Self:
        """Return `beta * self + alpha * (mat1 @ mat2)` of matrices; self broadcasts. `out_dtype` casts all first.

        Raises ShapeError for other ranks, DTypeError for dtypes that differ.

        >>> Tensor([[1.0, 2.0]]).addmm(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]])).tolist()
        [[14.0, 18.0]]
        """
        t, a, b = (_cast(x, out_dtype) for x in (self, mat1, mat2))
        return _added(t, "addmm", a, b, (2, 2), lambda a, b: a.mm(b), beta, alpha)

    def addmv(self, mat: TensorBase, vec: TensorBase, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Return `beta * self + alpha * (mat @ vec)` of a matrix and a vector; self broadcasts.

        Raises ShapeError for other ranks, DTypeError for dtypes that differ.

        >>> Tensor([1.0]).addmv(Tensor([[1.0, 2.0]]), Tensor([3.0, 4.0])).tolist()
        [12.0]
        """
        return _added(self, "addmv", mat, vec, (2, 1), lambda a, b: a.mv(b), beta, alpha)

    def addr(self, vec1: TensorBase, vec2: TensorBase, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Return `beta * self + alpha * outer(vec1, vec2)` of vectors; self broadcasts.

        Raises ShapeError for other ranks.

        >>> Tensor([[1, 1]]).addr(Tensor([2]), Tensor([3, 4])).tolist()
        [[7, 9]]
        """
        return _added(self, "addr", vec1, vec2, (1, 1), lambda a, b: a.unsqueeze(1) * b, beta, alpha, mixed=True)

    def baddbmm(
        self,
        batch1: TensorBase,
        batch2: TensorBase,
        out_dtype: DTypeLike | None = None,
        *,
        beta: Number = 1,
        alpha: Number = 1,
    ) -> Self:
        """Return `beta * self + alpha * (batch1 @ batch2)` of batches of matrices; self broadcasts.

        `out_dtype` casts all operands first. Raises ShapeError for other ranks, DTypeError for dtypes that differ.

        >>> Tensor([[[1.0]]]).baddbmm(Tensor([[[2.0]]]), Tensor([[[3.0]]]), beta=2).tolist()
        [[[8.0]]]
        """
        t, a, b = (_cast(x, out_dtype) for x in (self, batch1, batch2))
        return _added(t, "baddbmm", a, b, (3, 3), lambda a, b: a.bmm(b), beta, alpha)

    def addbmm(self, batch1: TensorBase, batch2: TensorBase, *, beta: Number = 1, alpha: Number = 1) -> Self:
        """Return `beta * self + alpha * (batch1 @ batch2).sum(0)` of batches of matrices; self broadcasts.

        Raises ShapeError for other ranks, DTypeError for dtypes that differ.

        >>> Tensor([[1.0]]).addbmm(Tensor([[[2.0]], [[4.0]]]), Tensor([[[3.0]], [[5.0]]])).tolist()
        [[27.0]]
        """
        return _added(self, "addbmm", batch1, batch2, (3, 3), lambda a, b: a.bmm(b).sum(0, dtype=a.dtype), beta, alpha)

    def chain_matmul(self: OneOrMore[AnyTensor], *others: OneOrMore[AnyTensor]) -> AnyTensor:
        """Return the product of several matrices, in the order that needs the fewest multiplications.

        The first and the last may be vectors. Raises ShapeError for other ranks.

        >>> Tensor.chain_matmul([Tensor([[1, 2]]), Tensor([[3], [4]]), Tensor([[2]])]).tolist()
        [[22]]
        """
        ts = list(tensors_and_axis("chain_matmul", self, others, 0)[0])
        ranks = [t.ndim for t in ts]
        if any(r != 2 for r in ranks[1:-1]) or not {ranks[0], ranks[-1]} <= {1, 2}:
            raise ShapeError("chain_matmul needs matrices", expected="2 axes each", found=[t.shape for t in ts])
        if len(ts) == 1:
            return ts[0]
        ends = (ranks[0] == 1, ranks[-1] == 1)
        if ends[0]:
            ts[0] = ts[0].unsqueeze(0)
        if ends[1]:
            ts[-1] = ts[-1].unsqueeze(1)
        out = _in_best_order(ts)
        out = out.squeeze(0) if ends[0] else out
        return out.squeeze(-1) if ends[1] else out

    def matrix_power(self, n: int) -> Self:
        """Return the matrix product of self with itself, `n` times, for each matrix of the last two axes.

        Raises ShapeError for matrices that are not square, ArgumentError for a negative `n`, which needs an inverse.

        >>> Tensor([[1, 1], [0, 1]]).matrix_power(5).tolist()
        [[1, 5], [0, 1]]
        """
        k = as_int(n, "n")
        x: Any = self
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ShapeError("matrix_power", expected="square matrices", found=x.shape)
        if k < 0:
            raise ArgumentError("matrix_power needs an inverse", expected="n of at least 0", found=n)
        if k == 0:
            return x._kind.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(*x.shape)
        power, out = x, None
        while k:
            if k & 1:
                out = power if out is None else out @ power
            k >>= 1
            power = power @ power if k else power
        return out  # type: ignore[return-value]


def _cast(x: Any, dtype: Any) -> Any:
    """Return the tensor `x` as `dtype`, if any. Raises DTypeError for a float tensor and an integer dtype."""
    if dtype is None:
        return x
    if x.dtype.is_float and not as_dtype(dtype).is_float:
        raise DTypeError("out_dtype of floats", expected="a float dtype", found=as_dtype(dtype).name)
    return x.cast(dtype)


def _added(
    t: Any, name: str, a: Any, b: Any, ranks: Any, product: Callable[[Any, Any], Any], beta: Any, alpha: Any,
    mixed: bool = False,
) -> Any:  # fmt: skip
    """Return beta * t + alpha * product(a, b). Raises ShapeError unless `a` and `b` have `ranks` axes."""
    if (a.ndim, b.ndim) != ranks:
        raise ShapeError(name, expected=f"operands of {ranks[0]} and {ranks[1]} axes", found=(a.shape, b.shape))
    if not mixed and not (t.dtype is a.dtype is b.dtype):
        raise DTypeError(f"{name}: dtypes differ", expected=t.dtype.name, found=(a.dtype.name, b.dtype.name))
    if not t.dtype.is_float and not a.dtype.is_float and any(isinstance(v, float) for v in (alpha, beta)):
        if t.dtype is not dtypes.bool:
            raise ArgumentError(f"{name}: factors of integers", expected="an int", found=(beta, alpha))
    d = t.dtype
    is_narrow = d.is_float and d.bits < 32
    if is_narrow:
        t, a, b = t.float(), a.float(), b.float()
    y = product(a, b)
    if t.dtype is dtypes.bool and y.dtype is dtypes.bool:
        y = y & bool(alpha)
        return y | t if beta else y | (t & False)
    y = y if alpha == 1 else y * alpha
    if beta == 0:
        shape = y.shape
        if t.ndim > len(shape):
            raise ShapeError(f"{name}: self", expected=f"a shape that broadcasts to {shape}", found=t.shape)
        y = y.cast(d) if not mixed else y
    else:
        total = y + (t if beta == 1 else t * beta)
        if total.shape != y.shape:
            raise ShapeError(f"{name}: self", expected=f"a shape that broadcasts to {y.shape}", found=t.shape)
        y = total
    return y.cast(d) if is_narrow else y


def _in_best_order(ts: list[Any]) -> Any:
    """Return the product of matrices in the order of fewest multiplications, by dynamic programming."""
    sizes = [ts[0].shape[0], *(t.shape[1] for t in ts)]
    n = len(ts)
    cost = {(i, i): (0, i) for i in range(n)}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            cost[i, j] = min(
                (cost[i, k][0] + cost[k + 1, j][0] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )

    def multiplied(i: int, j: int) -> Any:
        if i == j:
            return ts[i]
        k = cost[i, j][1]
        return multiplied(i, k) @ multiplied(k + 1, j)

    return multiplied(0, n - 1)


__all__ = ["AddedProductsMixin"]

"""Methods that multiply tensors: matmul and its special cases, linear, einsum, tensordot, attention.

What it is for: the methods, their checks and their documentation; `graphs.products` and `graphs.attention` build the
graphs.
What it is not: it has no decompositions (solve, svd) and no norms.
Invariant: a call with operands that do not fit raises here, at the user's line, and builds nothing.
Source: names, defaults and shape rules of PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from monolect import graphs
from monolect.autograd import graph as g
from monolect.base.dtype import dtypes
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.numpy import is_array, is_foreign_array
from monolect.graphs.products import check_rank, contract, einsum, in_dtype, linear, matmul, paired_axes, tensordot
from monolect.tensor.base import DTypeLike, TensorBase, TensorLike, node_of
from monolect.tensor.guard import guard_methods


@guard_methods
class LinalgMixin(TensorBase):
    """Methods of Tensor for matrix products and attention.

    Every method returns a lazy tensor; nothing runs before `realize`, `numpy`, `tolist` or `item`.
    """

    __slots__ = ()

    def matmul(self, other: TensorBase, *, dtype: DTypeLike | None = None) -> Self:
        """Return the matrix product `self @ other`, (..., M, K) @ (..., K, N) -> (..., M, N).

        A 1-d operand is a row on the left or a column on the right, and its axis is dropped. Batch axes broadcast.
        Dtypes promote; integers stay integers. `dtype` casts the operands first: with int32, products of int8 are exact
        and added in int32. Raises ShapeError for different K, batch axes that do not broadcast, and scalars; DTypeError
        for two bool tensors, an `other` that is no Tensor, or floats and an integer `dtype`.

        >>> (Tensor([[1.0, 2.0], [3.0, 4.0]]) @ Tensor([1.0, 1.0])).tolist()
        [3.0, 7.0]
        """
        return self._wrap(matmul(*in_dtype("matmul", self._uop, node_of(self, other, "matmul"), dtype)))

    def __matmul__(self, other: TensorLike) -> Self:
        if not isinstance(other, TensorBase):
            if not (is_array(other) or is_foreign_array(other)):
                return NotImplemented
            other = self._scalar(other)
        return self._wrap(matmul(self._uop, node_of(self, other, "matmul")))

    def __rmatmul__(self, other: TensorLike) -> Self:
        if not (is_array(other) or is_foreign_array(other)):
            return NotImplemented
        return self._scalar(other).matmul(self)

    def mm(self, mat2: TensorBase, out_dtype: DTypeLike | None = None, *, dtype: DTypeLike | None = None) -> Self:
        """Return the matrix product `self @ mat2`, (M, K) @ (K, N) -> (M, N). Raises ShapeError for any other rank.

        `dtype`, or `out_dtype` as PyTorch names it, is that of `matmul`.

        >>> Tensor([[1.0, 2.0]]).mm(Tensor([[3.0], [4.0]])).tolist()
        [[11.0]]
        """
        b = check_rank(node_of(self, mat2, "mm"), 2, "mm", "mat2")
        a = check_rank(self._uop, 2, "mm", "self")
        return self._wrap(matmul(*in_dtype("mm", a, b, dtype, out_dtype), "mm"))

    def bmm(self, mat2: TensorBase, out_dtype: DTypeLike | None = None, *, dtype: DTypeLike | None = None) -> Self:
        """Return the matrix products `self @ mat2` of two batches, (B, M, K) @ (B, K, N) -> (B, M, N).

        `dtype`, or `out_dtype` as PyTorch names it, is that of `matmul`. Raises ShapeError for other ranks or
        unequal batch sizes.

        >>> Tensor.ones(2, 1, 3).bmm(Tensor.ones(2, 3, 1)).tolist()
        [[[3.0]], [[3.0]]]
        """
        a, b = check_rank(self._uop, 3, "bmm", "self"), check_rank(node_of(self, mat2, "bmm"), 3, "bmm", "mat2")
        if a.shape[0] != b.shape[0]:
            raise ShapeError("bmm: batch sizes differ", expected=a.shape[0], found=b.shape[0])
        return self._wrap(matmul(*in_dtype("bmm", a, b, dtype, out_dtype), "bmm"))

    def mv(self, vec: TensorBase) -> Self:
        """Return the matrix-vector product `self @ vec`, (M, K) @ (K,) -> (M,). Raises ShapeError for other ranks.

        >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mv(Tensor([1.0, 0.0])).tolist()
        [1.0, 3.0]
        """
        b = check_rank(node_of(self, vec, "mv"), 1, "mv", "vec")
        return self._wrap(matmul(check_rank(self._uop, 2, "mv", "self"), b, "mv"))

    def dot(self, tensor: TensorBase, *, dtype: DTypeLike | None = None) -> Self:
        """Return the inner product of self and `tensor`, both 1-d of one size, of shape ().

        `dtype` is that of `matmul`. Raises ShapeError for other ranks or different sizes.

        >>> Tensor([1.0, 2.0]).dot(Tensor([3.0, 4.0])).item()
        11.0
        """
        b = check_rank(node_of(self, tensor, "dot"), 1, "dot", "the other operand")
        return self._wrap(matmul(*in_dtype("dot", check_rank(self._uop, 1, "dot", "self"), b, dtype), "dot"))

    def outer(self, vec2: TensorBase) -> Self:
        """Return all products of an element of self, (M,), and an element of `vec2`, (N,): shape (M, N).

        Raises ShapeError for other ranks.

        >>> Tensor([1.0, 2.0]).outer(Tensor([3.0, 4.0])).tolist()
        [[3.0, 4.0], [6.0, 8.0]]
        """
        a, b = check_rank(self._uop, 1, "outer", "self"), check_rank(node_of(self, vec2, "outer"), 1, "outer", "vec2")
        return self._wrap(contract(g.reshape(a, (*a.shape, 1)), g.reshape(b, (1, *b.shape)), ()))

    def linear(self, weight: TensorBase, bias: TensorBase | None = None) -> Self:
        """Return `self @ weight.T + bias`: (..., K) with weight (N, K) and bias (N,) -> (..., N).

        `bias` None adds nothing. A weight (K,) gives (...). Raises ShapeError for other shapes.

        >>> Tensor([[1.0, 2.0]]).linear(Tensor([[1.0, 1.0]]), Tensor([0.5])).tolist()
        [[3.5]]
        """
        x, w = self._uop, node_of(self, weight, "linear")
        if len(w.shape) not in (1, 2) or not x.shape or x.shape[-1] != w.shape[-1]:
            if len(w.shape) not in (1, 2):
                raise ShapeError("linear: weight", expected="(out features, in features)", found=w.shape)
            expected = f"(..., {w.shape[-1]}), as the weight is {w.shape}"
            raise ShapeError("linear: the input does not fit the weight", expected=expected, found=x.shape)
        out = linear(x, w)
        if bias is None:
            return self._wrap(out)
        b = node_of(self, bias, "linear")
        if b.shape not in ((), out.shape[-1:], w.shape[:-1]):
            raise ShapeError("linear: bias", expected=w.shape[:-1], found=b.shape)
        return self._wrap(out) + bias

    @classmethod
    def einsum(cls, equation: str, *operands: TensorBase | Sequence[TensorBase]) -> Self:
        """Return products summed over named axes, for example `Tensor.einsum("bik,bkj->bij", a, b)`.

        `equation` has a letter for each axis of each operand, and after `->` those of the result. `...` denotes axes
        that broadcast. A name used twice in one term takes the diagonal. Without `->` the result has the names that
        occur once, in alphabetical order, after the `...`. Operands combine from left to right. Raises ArgumentError
        for a malformed equation, ShapeError for sizes or ranks that do not fit it.

        >>> Tensor.einsum("ij,ij->i", Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]])).tolist()
        [11.0]
        """
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = tuple(operands[0])
        if not operands:
            raise ArgumentError("einsum without operands", expected="at least one Tensor", found="none")
        nodes = [node_of(operands[0], x, "einsum") for x in operands]
        return cls._wrap(einsum(equation, nodes))

    def tensordot(self, b: TensorBase, dims: int | Sequence[Sequence[int]] = 2) -> Self:
        """Return the sum of products along pairs of axes: the last `dims` axes of self with the first of `b`, or two
        lists of axes.

        The result has the other axes of self, then those of `b`. Raises ShapeError if paired sizes differ,
        AxisError for a wrong or repeated axis.

        >>> Tensor.ones(2, 3).tensordot(Tensor.ones(3, 2), dims=1).tolist()
        [[3.0, 3.0], [3.0, 3.0]]
        """
        u, v = self._uop, node_of(self, b, "tensordot")
        return self._wrap(tensordot(u, v, *paired_axes(dims, u, v)))

    def scaled_dot_product_attention(
        self,
        key: TensorBase,
        value: TensorBase,
        attn_mask: TensorBase | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Self:
        """Return `softmax(self @ key.T * scale + attn_mask) @ value`: (..., L, E), (..., S, E), (..., S, Ev) ->
        (..., L, Ev).

        A bool mask is true for keys that a query may see; a query that may see none gives zeros. A float mask is added.
        The default scale is 1 / sqrt(E). Scores and softmax are float32 at least; the result has the dtype of `value`.
        With `enable_gqa` several query heads share one key and value head. `dropout_p`: probability of dropout of a
        softmax weight. `is_causal`: query i sees the keys 0 to i. Raises ShapeError for operands that do not fit,
        DTypeError for integers, and ArgumentError if both a mask and `is_causal` are given.

        >>> q = Tensor.ones(1, 2, 4)
        >>> q.scaled_dot_product_attention(q, q, is_causal=True).shape
        (1, 2, 4)
        """
        attention = graphs.attention
        k, v = node_of(self, key, "attention"), node_of(self, value, "attention")
        mask = None if attn_mask is None else node_of(self, attn_mask, "attention")
        if mask is not None and is_causal:
            raise ArgumentError("attention: two masks", expected="attn_mask or is_causal", found="both")
        q, k, v, mask, shape = attention.prepare_operands(self._uop, k, v, mask, enable_gqa)
        s = attention.scores(q, k, scale)
        if is_causal:
            mask = attention.causal_mask(s.shape[-2], s.shape[-1])
        s = attention.apply_mask(s, mask, attention.CAUSAL_SCORE if is_causal else attention.MASKED_SCORE)
        weights = self._wrap(s).softmax(-1)
        if mask is not None and not is_causal and mask.dtype is dtypes.bool:
            weights = self._wrap(attention.zero_fully_masked_rows(weights._uop, s))
        if dropout_p:
            weights = weights.dropout(dropout_p, training=True)
        return self._wrap(attention.weighted_sum(weights._uop, v, shape))


__all__ = ["LinalgMixin"]

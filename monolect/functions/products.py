"""Functions for products of matrices and vectors, norms and distances, made from the methods of Tensor; written by
`make surface`.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.tensor.base import Axes, DTypeLike, Number
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.methods.movement import OneOrMore
from monolect.tensor.tensor import Tensor


@guarded
def addbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Return `beta * input + alpha * (batch1 @ batch2).sum(0)` of batches of matrices; `input` broadcasts.

    Raises ShapeError for other ranks, DTypeError for dtypes that differ.

    >>> monolect.addbmm(Tensor([[1.0]]), Tensor([[[2.0]], [[4.0]]]), Tensor([[[3.0]], [[5.0]]])).tolist()
    [[27.0]]
    """
    return into(out, "addbmm", input.addbmm(batch1, batch2, beta=beta, alpha=alpha))


@guarded
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    out_dtype: DTypeLike | None = None,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * (mat1 @ mat2)` of matrices; `input` broadcasts. `out_dtype` casts all first.

    Raises ShapeError for other ranks, DTypeError for dtypes that differ.

    >>> monolect.addmm(Tensor([[1.0, 2.0]]), Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]])).tolist()
    [[14.0, 18.0]]
    """
    return into(out, "addmm", input.addmm(mat1, mat2, out_dtype, beta=beta, alpha=alpha))


@guarded
def addmv(
    input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Return `beta * input + alpha * (mat @ vec)` of a matrix and a vector; `input` broadcasts.

    Raises ShapeError for other ranks, DTypeError for dtypes that differ.

    >>> monolect.addmv(Tensor([1.0]), Tensor([[1.0, 2.0]]), Tensor([3.0, 4.0])).tolist()
    [12.0]
    """
    return into(out, "addmv", input.addmv(mat, vec, beta=beta, alpha=alpha))


@guarded
def addr(
    input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1, out: Tensor | None = None
) -> Tensor:
    """Return `beta * input + alpha * outer(vec1, vec2)` of vectors; `input` broadcasts.

    Raises ShapeError for other ranks.

    >>> monolect.addr(Tensor([[1, 1]]), Tensor([2]), Tensor([3, 4])).tolist()
    [[7, 9]]
    """
    return into(out, "addr", input.addr(vec1, vec2, beta=beta, alpha=alpha))


@guarded
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    out_dtype: DTypeLike | None = None,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    out: Tensor | None = None,
) -> Tensor:
    """Return `beta * input + alpha * (batch1 @ batch2)` of batches of matrices; `input` broadcasts.

    `out_dtype` casts all operands first. Raises ShapeError for other ranks, DTypeError for dtypes that differ.

    >>> monolect.baddbmm(Tensor([[[1.0]]]), Tensor([[[2.0]]]), Tensor([[[3.0]]]), beta=2).tolist()
    [[[8.0]]]
    """
    return into(out, "baddbmm", input.baddbmm(batch1, batch2, out_dtype, beta=beta, alpha=alpha))


@guarded
def bmm(
    input: Tensor,
    mat2: Tensor,
    out_dtype: DTypeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the matrix products `input @ mat2` of two batches, (B, M, K) @ (B, K, N) -> (B, M, N).

    `dtype`, or `out_dtype` as PyTorch names it, is that of `matmul`. Raises ShapeError for other ranks or unequal
    batch sizes.

    >>> monolect.bmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """
    return into(out, "bmm", input.bmm(mat2, out_dtype, dtype=dtype))


@guarded
def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Return the distances by the p-norm between each row of `x1` and each of `x2`, for each matrix of a batch.

    `compute_mode` changes nothing: differences are computed. Raises DTypeError for integers, ShapeError for rows of
    different sizes, ArgumentError for a negative p.

    >>> monolect.cdist(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0], [0.0, 1.0]])).tolist()
    [[5.0, 1.0]]
    """
    return x1.cdist(x2, p, compute_mode)


@guarded
def chain_matmul(tensors: OneOrMore[Tensor], *others: OneOrMore[Tensor], out: Tensor | None = None) -> Tensor:
    """Return the product of several matrices, in the order that needs the fewest multiplications.

    The first and the last may be vectors. Raises ShapeError for other ranks.

    >>> monolect.chain_matmul([Tensor([[1, 2]]), Tensor([[3], [4]]), Tensor([[2]])]).tolist()
    [[22]]
    """
    return into(out, "chain_matmul", Tensor.chain_matmul(tensors, *others))


@guarded
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return the vector products along axis `dim` of size 3, by default the first such axis; others broadcast.

    Raises ShapeError without such an axis.

    >>> monolect.cross(Tensor([1, 0, 0]), Tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    return into(out, "cross", input.cross(other, dim))


@guarded
def dist(input: Tensor, other: Tensor, p: Number = 2) -> Tensor:
    """Return the p-norm of `input - other`, broadcast. Raises DTypeError for integers.

    >>> monolect.dist(Tensor([1.0, 2.0]), Tensor([4.0, 6.0])).item()
    5.0
    """
    return input.dist(other, p)


@guarded
def dot(input: Tensor, tensor: Tensor, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """Return the inner product of `input` and `tensor`, both 1-d of one size, of shape ().

    `dtype` is that of `matmul`. Raises ShapeError for other ranks or different sizes.

    >>> monolect.dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    return into(out, "dot", input.dot(tensor, dtype=dtype))


@guarded
def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor:
    """Return products summed over named axes, for example `Tensor.einsum("bik,bkj->bij", a, b)`.

    `equation` has a letter for each axis of each operand, and after `->` those of the result. `...` denotes axes
    that broadcast. A name used twice in one term takes the diagonal. Without `->` the result has the names that
    occur once, in alphabetical order, after the `...`. Operands combine from left to right. Raises ArgumentError
    for a malformed equation, ShapeError for sizes or ranks that do not fit it.

    >>> monolect.einsum("ij,ij->i", Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0]])).tolist()
    [11.0]
    """
    return Tensor.einsum(equation, *operands)


@guarded
def frobenius_norm(input: Tensor, dim: Axes = None, keepdim: bool = False) -> Tensor:
    """Return the square root of the sum of squares along axes `dim`, by default all.

    Raises DTypeError for integers.

    >>> monolect.frobenius_norm(Tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    5.0
    """
    return input.frobenius_norm(dim, keepdim)


@guarded
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the product of each element of `input` with each of `vec2`, as `outer`. Raises ShapeError for matrices.

    >>> monolect.ger(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    return into(out, "ger", input.ger(vec2))


@guarded
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the products of the vectors along the last axes of `input` and `other`; with a number, their product.

    Raises ShapeError for last axes that differ.

    >>> monolect.inner(Tensor([[1, 2], [3, 4]]), Tensor([5, 6])).tolist()
    [17, 39]
    """
    return into(out, "inner", input.inner(other))


@guarded
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the Kronecker product: blocks of `other` multiplied by each element of `input`.

    >>> monolect.kron(Tensor([1, 10]), Tensor([1, 2])).tolist()
    [1, 2, 10, 20]
    """
    return into(out, "kron", input.kron(other))


@guarded
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Return the vector products along axis `dim` of size 3, by default the last one; others broadcast.

    Raises ShapeError for another size.

    >>> linalg.cross(Tensor([1, 0, 0]), Tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    return into(out, "linalg_cross", input.linalg_cross(other, dim=dim))


@guarded
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Return the diagonals of the matrices of two axes, by default the last two.

    >>> linalg.diagonal(Tensor([[[1, 2], [3, 4]]])).tolist()
    [[1, 4]]
    """
    return A.linalg_diagonal(offset=offset, dim1=dim1, dim2=dim2)


@guarded
def linalg_norm(
    input: Tensor,
    ord: Number | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return a norm of vectors or matrices: that of `vector_norm` along one axis `dim`, of `matrix_norm` along two.

    Without `dim`, a matrix has a `matrix_norm` and a vector a `vector_norm`; without `ord` too, the result is the
    2-norm of all elements. Raises DTypeError for integers, ArgumentError for another order, ShapeError for more
    axes and no `dim`.

    >>> linalg.norm(Tensor([[3.0], [4.0]])).item(), linalg.norm(Tensor([[1.0, 2.0], [3.0, 4.0]]), 1).item()
    (5.0, 6.0)
    """
    return into(out, "linalg_norm", input.linalg_norm(ord, dim, keepdim, dtype=dtype))


@guarded
def linalg_vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Return the powers of each element as a row, from 0 up to N - 1; N is the size of the last axis by default.

    >>> linalg.vander(Tensor([1, 2]), N=3).tolist()
    [[1, 1, 1], [1, 2, 4]]
    """
    return x.linalg_vander(N=N)


@guarded
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return `input @ weight.T + bias`: (..., K) with weight (N, K) and bias (N,) -> (..., N).

    `bias` None adds nothing. A weight (K,) gives (...). Raises ShapeError for other shapes.

    >>> nn.functional.linear(Tensor([[1.0, 2.0]]), Tensor([[1.0, 1.0]]), Tensor([0.5])).tolist()
    [[3.5]]
    """
    return into(out, "linear", input.linear(weight, bias))


@guarded
def matmul(input: Tensor, other: Tensor, *, dtype: DTypeLike | None = None, out: Tensor | None = None) -> Tensor:
    """Return the matrix product `input @ other`, (..., M, K) @ (..., K, N) -> (..., M, N).

    A 1-d operand is a row on the left or a column on the right, and its axis is dropped. Batch axes broadcast.
    Dtypes promote; integers stay integers. `dtype` casts the operands first: with int32, products of int8 are exact
    and added in int32. Raises ShapeError for different K, batch axes that do not broadcast, and scalars; DTypeError
    for two bool tensors, an `other` that is no Tensor, or floats and an integer `dtype`.

    >>> (Tensor([[1.0, 2.0], [3.0, 4.0]]) @ Tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    return into(out, "matmul", input.matmul(other, dtype=dtype))


@guarded
def matrix_norm(
    input: Tensor,
    ord: Number | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the norm of the matrices of two axes: "fro", or 1, -1, inf or -inf for sums of columns or rows.

    Raises DTypeError for integers, ArgumentError for another order (those need singular values), ShapeError for
    fewer than two axes.

    >>> linalg.matrix_norm(Tensor([[1.0, 2.0], [3.0, 4.0]]), 1).item()
    6.0
    """
    return into(out, "matrix_norm", input.matrix_norm(ord, dim, keepdim, dtype=dtype))


@guarded
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """Return the matrix product of `input` with itself, `n` times, for each matrix of the last two axes.

    Raises ShapeError for matrices that are not square, ArgumentError for a negative `n`, which needs an inverse.

    >>> monolect.matrix_power(Tensor([[1, 1], [0, 1]]), 5).tolist()
    [[1, 5], [0, 1]]
    """
    return into(out, "matrix_power", input.matrix_power(n))


@guarded
def mm(
    input: Tensor,
    mat2: Tensor,
    out_dtype: DTypeLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the matrix product `input @ mat2`, (M, K) @ (K, N) -> (M, N). Raises ShapeError for any other rank.

    `dtype`, or `out_dtype` as PyTorch names it, is that of `matmul`.

    >>> monolect.mm(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    return into(out, "mm", input.mm(mat2, out_dtype, dtype=dtype))


@guarded
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the matrix-vector product `input @ vec`, (M, K) @ (K,) -> (M,). Raises ShapeError for other ranks.

    >>> monolect.mv(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 0.0])).tolist()
    [1.0, 3.0]
    """
    return into(out, "mv", input.mv(vec))


@guarded
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return all products of an element of `input`, (M,), and an element of `vec2`, (N,): shape (M, N).

    Raises ShapeError for other ranks.

    >>> monolect.outer(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    return into(out, "outer", input.outer(vec2))


@guarded
def scaled_dot_product_attention(
    input: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return `softmax(input @ key.T * scale + attn_mask) @ value`: (..., L, E), (..., S, E), (..., S, Ev) -> (..., L,
    Ev).

    A bool mask is true for keys that a query may see; a query that may see none gives zeros. A float mask is added.
    The default scale is 1 / sqrt(E). Scores and softmax are float32 at least; the result has the dtype of `value`.
    With `enable_gqa` several query heads share one key and value head. `dropout_p`: probability of dropout of a
    softmax weight. `is_causal`: query i sees the keys 0 to i. Raises ShapeError for operands that do not fit,
    DTypeError for integers, and ArgumentError if both a mask and `is_causal` are given.

    >>> q = Tensor.ones(1, 2, 4)
    >>> nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    (1, 2, 4)
    """
    return input.scaled_dot_product_attention(key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@guarded
def tensordot(a: Tensor, b: Tensor, dims: int | Sequence[Sequence[int]] = 2, *, out: Tensor | None = None) -> Tensor:
    """Return the sum of products along pairs of axes: the last `dims` axes of `a` with the first of `b`, or two lists
    of axes.

    The result has the other axes of `a`, then those of `b`. Raises ShapeError if paired sizes differ, AxisError for
    a wrong or repeated axis.

    >>> monolect.tensordot(Tensor.ones(2, 3), Tensor.ones(3, 2), dims=1).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    return into(out, "tensordot", a.tensordot(b, dims))


@guarded
def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the powers of each element as a row: from N - 1 down to 0, or up with `increasing`.

    N is the size of the last axis by default. Bools and integers give int64. A scalar is one row. Raises
    ArgumentError for a negative N.

    >>> monolect.vander(Tensor([1, 2]), 3).tolist()
    [[1, 1, 1], [4, 2, 1]]
    """
    return x.vander(N, increasing)


@guarded
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the product of two vectors, as `dot`, since there are no complex numbers.

    >>> monolect.vdot(Tensor([1, 2]), Tensor([3, 4])).item()
    11
    """
    return into(out, "vdot", input.vdot(other))


@guarded
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """Return the sums of `x * y` along axis `dim`, broadcast.

    >>> linalg.vecdot(Tensor([[1, 2], [3, 4]]), Tensor([1, 1])).tolist()
    [3, 7]
    """
    return into(out, "vecdot", x.vecdot(y, dim=dim))


@guarded
def vector_norm(
    x: Tensor,
    ord: Number = 2,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the norm of order `ord` along axes `dim`, by default of all elements. Raises DTypeError for integers.

    >>> linalg.vector_norm(Tensor([3.0, -4.0])).item(), linalg.vector_norm(Tensor([3.0, -4.0]), 1).item()
    (5.0, 7.0)
    """
    return into(out, "vector_norm", x.vector_norm(ord, dim, keepdim, dtype=dtype))


__all__ = [
    "addbmm",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "cdist",
    "chain_matmul",
    "cross",
    "dist",
    "dot",
    "einsum",
    "frobenius_norm",
    "ger",
    "inner",
    "kron",
    "linalg_cross",
    "linalg_diagonal",
    "linalg_norm",
    "linalg_vander",
    "linear",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "mm",
    "mv",
    "outer",
    "scaled_dot_product_attention",
    "tensordot",
    "vander",
    "vdot",
    "vecdot",
    "vector_norm",
]

"""Functions for products of matrices and vectors, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Sequence

from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor


@guarded
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the matrix products `input @ mat2` of two batches, (B, M, K) @ (B, K, N) -> (B, M, N).

    Raises ShapeError for other ranks or unequal batch sizes.

    >>> monolect.bmm(Tensor.ones(2, 1, 3), Tensor.ones(2, 3, 1)).tolist()
    [[[3.0]], [[3.0]]]
    """
    return input.bmm(mat2)


@guarded
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """Return the inner product of `input` and `tensor`, both 1-d of one size, of shape ().

    Raises ShapeError for other ranks or different sizes.

    >>> monolect.dot(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).item()
    11.0
    """
    return input.dot(tensor)


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
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return `input @ weight.T + bias`: (..., K) with weight (N, K) and bias (N,) -> (..., N).

    `bias` None adds nothing. A weight (K,) gives (...). Raises ShapeError for other shapes.

    >>> nn.functional.linear(Tensor([[1.0, 2.0]]), Tensor([[1.0, 1.0]]), Tensor([0.5])).tolist()
    [[3.5]]
    """
    return input.linear(weight, bias)


@guarded
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Return the matrix product `input @ other`, (..., M, K) @ (..., K, N) -> (..., M, N).

    A 1-d operand is a row on the left or a column on the right, and its axis is dropped. Batch axes broadcast.
    Dtypes promote; integers stay integers. Raises ShapeError for different K, batch axes that do not broadcast, and
    scalars; DTypeError for two bool tensors or an `other` that is no Tensor.

    >>> (Tensor([[1.0, 2.0], [3.0, 4.0]]) @ Tensor([1.0, 1.0])).tolist()
    [3.0, 7.0]
    """
    return input.matmul(other)


@guarded
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Return the matrix product `input @ mat2`, (M, K) @ (K, N) -> (M, N). Raises ShapeError for any other rank.

    >>> monolect.mm(Tensor([[1.0, 2.0]]), Tensor([[3.0], [4.0]])).tolist()
    [[11.0]]
    """
    return input.mm(mat2)


@guarded
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """Return the matrix-vector product `input @ vec`, (M, K) @ (K,) -> (M,). Raises ShapeError for other ranks.

    >>> monolect.mv(Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1.0, 0.0])).tolist()
    [1.0, 3.0]
    """
    return input.mv(vec)


@guarded
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """Return all products of an element of `input`, (M,), and an element of `vec2`, (N,): shape (M, N).

    Raises ShapeError for other ranks.

    >>> monolect.outer(Tensor([1.0, 2.0]), Tensor([3.0, 4.0])).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    return input.outer(vec2)


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
def tensordot(input: Tensor, other: Tensor, dims: int | Sequence[Sequence[int]] = 2) -> Tensor:
    """Return the sum of products along pairs of axes: the last `dims` axes of `input` with the first of `other`, or
    two lists of axes.

    The result has the other axes of `input`, then those of `other`. Raises ShapeError if paired sizes differ,
    AxisError for a wrong or repeated axis.

    >>> monolect.tensordot(Tensor.ones(2, 3), Tensor.ones(3, 2), dims=1).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    return input.tensordot(other, dims)


__all__ = [
    "bmm",
    "dot",
    "einsum",
    "linear",
    "matmul",
    "mm",
    "mv",
    "outer",
    "scaled_dot_product_attention",
    "tensordot",
]

"""Functions that reduce axes, and running reductions, made from the methods of Tensor; written by `make surface`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from monolect.tensor.base import Axes, DTypeLike, Number
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.methods.reduce import ValuesIndices
from monolect.tensor.tensor import Tensor


@guarded
def all(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a bool tensor: True where no element along axes `dim`, by default all, is zero; True for no elements.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`.

    >>> monolect.all(Tensor([[1, 1], [0, 1]]), 1).tolist()
    [True, False]
    """
    return into(out, "all", input.all(dim, keepdim, axis=axis, keepdims=keepdims))


@guarded
def amax(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the largest element along axes `dim`, by default all; equal elements share the gradient.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

    >>> monolect.amax(Tensor([[1, 4], [3, 2]]), 1).tolist()
    [4, 3]
    """
    return into(out, "amax", input.amax(dim, keepdim, axis=axis, keepdims=keepdims))


@guarded
def amin(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the smallest element along axes `dim`, by default all; equal elements share the gradient.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

    >>> monolect.amin(Tensor([[1, 4], [3, 2]]), 1).tolist()
    [1, 2]
    """
    return into(out, "amin", input.amin(dim, keepdim, axis=axis, keepdims=keepdims))


@guarded
def any(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return a bool tensor: True where some element along axes `dim`, by default all, is not zero; False for no
    elements.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`.

    >>> monolect.any(Tensor([[0, 1], [0, 0]]), 1).tolist()
    [True, False]
    """
    return into(out, "any", input.any(dim, keepdim, axis=axis, keepdims=keepdims))


@guarded
def argmax(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the index of the first largest element along axis `dim`, by default in the flattened tensor, as int64.
    nan is the largest.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

    >>> monolect.argmax(Tensor([[1, 3, 3], [5, 4, 2]]), 1).tolist()
    [1, 0]
    """
    return into(out, "argmax", input.argmax(dim, keepdim, axis=axis, keepdims=keepdims))


@guarded
def argmin(
    input: Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the index of the first smallest element along axis `dim`, by default in the flattened tensor, as int64.
    nan is the smallest.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

    >>> monolect.argmin(Tensor([[1, 3, 1], [5, 4, 2]]), 1).tolist()
    [0, 2]
    """
    return into(out, "argmin", input.argmin(dim, keepdim, axis=axis, keepdims=keepdims))


@guarded
def count_nonzero(input: Tensor, dim: Axes = None) -> Tensor:
    """Return the number of elements that are not zero along axes `dim`, by default all, as int64.

    >>> monolect.count_nonzero(Tensor([[0, 1], [2, 3]]), 0).tolist()
    [1, 2]
    """
    return input.count_nonzero(dim)


@guarded
def cummax(input: Tensor, dim: int = 0, *, out: Tensor | tuple[Tensor, ...] | None = None) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the largest element so far along axis `dim`; of equal elements the last, as in
    PyTorch.

    >>> [t.tolist() for t in monolect.cummax(Tensor([1, 3, 2, 3]), 0)]
    [[1, 3, 3, 3], [0, 1, 1, 3]]
    """
    return into(out, "cummax", input.cummax(dim))


@guarded
def cummin(input: Tensor, dim: int = 0, *, out: Tensor | tuple[Tensor, ...] | None = None) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the smallest element so far along axis `dim`; of equal elements the last, as
    in PyTorch.

    >>> [t.tolist() for t in monolect.cummin(Tensor([3, 1, 2, 1]), 0)]
    [[3, 1, 1, 1], [0, 1, 1, 3]]
    """
    return into(out, "cummin", input.cummin(dim))


@guarded
def cumprod(
    input: Tensor, dim: int = 0, *, dtype: DTypeLike | None = None, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """Return the running product along axis `dim`, in the same shape. `axis`, if given, replaces `dim`.

    Integers and bools give int64; `dtype` casts before multiplying.

    >>> monolect.cumprod(Tensor([1, 2, 3, 4]), 0).tolist()
    [1, 2, 6, 24]
    """
    return into(out, "cumprod", input.cumprod(dim, dtype=dtype, axis=axis))


@guarded
def cumsum(
    input: Tensor, dim: int = 0, *, dtype: DTypeLike | None = None, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """Return the running sum along axis `dim`, in the same shape. `axis`, if given, replaces `dim`.

    Integers and bools give int64; `dtype` casts before adding.

    >>> monolect.cumsum(Tensor([1, 2, 3]), 0).tolist()
    [1, 3, 6]
    """
    return into(out, "cumsum", input.cumsum(dim, dtype=dtype, axis=axis))


@guarded
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether shapes and all elements are equal, as a Python bool. The call computes the tensors.

    >>> monolect.equal(Tensor([1, 2]), Tensor([1, 2])), monolect.equal(Tensor([1, 2]), Tensor([[1, 2]]))
    (True, False)
    """
    return input.equal(other)


@guarded
def log_softmax(input: Tensor, dim: Axes = -1, dtype: DTypeLike | None = None, *, axis: Axes = None) -> Tensor:
    """Return the logarithm of `softmax` along `dim`, computed without it: it is finite where softmax rounds to 0.

    `axis`, if given, replaces `dim`. Raises DTypeError for integers.

    >>> monolect.log_softmax(Tensor([0.0, 200.0])).tolist()
    [-200.0, 0.0]
    """
    return input.log_softmax(dim, dtype, axis=axis)


@guarded
def logcumsumexp(input: Tensor, dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """Return log(cumsum(exp(`input`))) along axis `dim`, shifted by the largest element of the axis and computed in
    float64.

    A partial sum is -inf, a constant, if its elements are more than 745 below the largest of the axis. Raises
    DTypeError for integers.

    >>> [round(x, 3) for x in monolect.logcumsumexp(Tensor([1000.0, 1000.0]), 0).tolist()]
    [1000.0, 1000.693]
    """
    return into(out, "logcumsumexp", input.logcumsumexp(dim))


@guarded
def logsumexp(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, out: Tensor | None = None
) -> Tensor:
    """Return log(sum(exp(`input`))) along axes `dim`, by default all, without overflow; -inf if all elements are -inf.

    `axis` is NumPy's name of `dim`. Raises DTypeError for integers.

    >>> round(monolect.logsumexp(Tensor([1000.0, 1000.0]), 0).item(), 3)
    1000.693
    """
    return into(out, "logsumexp", input.logsumexp(dim, keepdim, axis=axis))


@overload
def max(
    input: Tensor,
    dim: None = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def max(
    input: Tensor,
    dim: Sequence[int] | Tensor,
    keepdim: bool = False,
    *,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def max(
    input: Tensor,
    dim: int,
    keepdim: bool = False,
    *,
    keepdims: bool = False,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> ValuesIndices[Tensor]: ...
@overload
def max(input: Tensor, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
@guarded
def max(
    input: Tensor,
    dim: Axes | Tensor = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    other: Tensor | None = None,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> Any:
    """Return the largest element: of all, as `amax`; along one axis `dim`, (values, indices); with a tensor as `dim`
    or `other`, `maximum`.

    Along one axis the element at the index gets the gradient; otherwise equal elements share it. `axis` and
    `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

    >>> monolect.max(Tensor([3, 1, 2]), dim=0).indices.item()
    0
    """
    method: Any = input.max
    return into(out, "max", method(dim, keepdim, axis=axis, keepdims=keepdims, other=other))


@guarded
def mean(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the mean along axes `dim`, by default all; `keepdim` keeps them with size 1.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises DTypeError for integers without a float
    `dtype`.

    >>> monolect.mean(Tensor([[1.0, 2.0], [3.0, 5.0]]), 1, keepdim=True).tolist()
    [[1.5], [4.0]]
    """
    return into(out, "mean", input.mean(dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims))


@overload
def min(
    input: Tensor,
    dim: None = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def min(
    input: Tensor,
    dim: Sequence[int] | Tensor,
    keepdim: bool = False,
    *,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def min(
    input: Tensor,
    dim: int,
    keepdim: bool = False,
    *,
    keepdims: bool = False,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> ValuesIndices[Tensor]: ...
@overload
def min(input: Tensor, *, other: Tensor, out: Tensor | None = None) -> Tensor: ...
@guarded
def min(
    input: Tensor,
    dim: Axes | Tensor = None,
    keepdim: bool = False,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    other: Tensor | None = None,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> Any:
    """Return the smallest element: of all, as `amin`; along one axis `dim`, (values, indices); with a tensor as `dim`
    or `other`, `minimum`.

    Along one axis the element at the index gets the gradient; otherwise equal elements share it. `axis` and
    `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

    >>> monolect.min(Tensor([3, 1, 2])).item(), monolect.min(Tensor([3, 1, 2]), dim=0).indices.item()
    (1, 1)
    """
    method: Any = input.min
    return into(out, "min", method(dim, keepdim, axis=axis, keepdims=keepdims, other=other))


@guarded
def norm(
    input: Tensor,
    p: Number | str = 2,
    dim: Axes = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
    *,
    axis: Axes = None,
    out: Tensor | None = None,
) -> Tensor:
    """Return the p-norm along axes `dim`, by default all; `p` is any number, inf, -inf, or "fro" for 2.

    `dtype` casts before. `axis` is NumPy's name of `dim`. Raises DTypeError for integers, ArgumentError for another
    `p`.

    >>> monolect.norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    return into(out, "norm", input.norm(p, dim, keepdim, dtype, axis=axis))


@guarded
def prod(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the product along axes `dim`, by default all; `keepdim` keeps them with size 1.

    Integers and bools give int64; `dtype` casts before multiplying. `axis` and `keepdims` are NumPy's names of
    `dim` and `keepdim`.

    >>> monolect.prod(Tensor([[1, 2], [3, 4]]), 1).tolist()
    [2, 12]
    """
    return into(out, "prod", input.prod(dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims))


@guarded
def softmax(input: Tensor, dim: Axes = -1, dtype: DTypeLike | None = None, *, axis: Axes = None) -> Tensor:
    """Return exp(`input`) divided by its sum along axis `dim`, in the same shape and dtype, or in `dtype`.

    `axis`, if given, replaces `dim`. Raises DTypeError for integers.

    >>> monolect.softmax(Tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """
    return input.softmax(dim, dtype, axis=axis)


@guarded
def softmin(input: Tensor, dim: Axes = -1, dtype: DTypeLike | None = None) -> Tensor:
    """Return `softmax` of -`input` along `dim`, of the same shape: the smallest element has the largest share.

    `dtype` casts before. Raises DTypeError for integers.

    >>> [round(x, 4) for x in nn.functional.softmin(Tensor([0.0, 1.0])).tolist()]
    [0.7311, 0.2689]
    """
    return input.softmin(dim, dtype)


@guarded
def std(
    input: Tensor,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the standard deviation along axes `dim`, by default all: the square root of `var`.

    The variance is divided by n - correction; `unbiased` True means correction 1, False 0, None that of
    `correction`. `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises DTypeError for integers.

    >>> monolect.std(Tensor([1.0, 5.0]), correction=0).item()
    2.0
    """
    return into(out, "std", input.std(dim, unbiased, keepdim, correction=correction, axis=axis, keepdims=keepdims))


@guarded
def std_mean(
    input: Tensor, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
) -> tuple[Tensor, Tensor]:
    """Return (standard deviation, mean) along axes `dim`, by default all; `keepdim` keeps them with size 1.

    The sum of squared distances from the mean is divided by n - correction; `unbiased` True means correction 1,
    False 0.

    Raises DTypeError for integers.

    >>> [t.item() for t in monolect.std_mean(Tensor([1.0, 5.0]), correction=0)]
    [2.0, 3.0]
    """
    return input.std_mean(dim, unbiased, keepdim, correction=correction)


@guarded
def sum(
    input: Tensor,
    dim: Axes = None,
    keepdim: bool = False,
    *,
    dtype: DTypeLike | None = None,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the sum along axes `dim`, by default all; `keepdim` keeps them with size 1.

    Integers and bools give int64; `dtype` casts before adding. `axis` and `keepdims` are NumPy's names of `dim` and
    `keepdim`.

    >>> monolect.sum(Tensor([[1, 2], [3, 4]]), dim=0).tolist()
    [4, 6]
    """
    return into(out, "sum", input.sum(dim, keepdim, dtype=dtype, axis=axis, keepdims=keepdims))


@guarded
def var(
    input: Tensor,
    dim: Axes = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
    axis: Axes = None,
    keepdims: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Return the variance along axes `dim`, by default all: the sum of squared distances from the mean over n -
    correction.

    `unbiased` True means correction 1, False 0, None that of `correction`. A bool as the only positional argument
    is `unbiased`. `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises DTypeError for integers.

    >>> monolect.var(Tensor([1.0, 3.0])).item(), monolect.var(Tensor([1.0, 3.0]), correction=0).item()
    (2.0, 1.0)
    """
    return into(out, "var", input.var(dim, unbiased, keepdim, correction=correction, axis=axis, keepdims=keepdims))


@guarded
def var_mean(
    input: Tensor, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
) -> tuple[Tensor, Tensor]:
    """Return (variance, mean) along axes `dim`, by default all; the sum of squares is divided by n - correction.

    `unbiased` True means correction 1, False 0; `keepdim` keeps the axes with size 1.

    Raises DTypeError for integers.

    >>> [t.item() for t in monolect.var_mean(Tensor([1.0, 3.0]))]
    [2.0, 2.0]
    """
    return input.var_mean(dim, unbiased, keepdim, correction=correction)


__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "equal",
    "log_softmax",
    "logcumsumexp",
    "logsumexp",
    "max",
    "mean",
    "min",
    "norm",
    "prod",
    "softmax",
    "softmin",
    "std",
    "std_mean",
    "sum",
    "var",
    "var_mean",
]

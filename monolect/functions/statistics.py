"""Functions for statistics, orders, and relations of numbers, made from the methods of Tensor; written by `make
surface`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from monolect.tensor.base import Axes, Data, DTypeLike, Number, TensorLike
from monolect.tensor.guard import guarded
from monolect.tensor.methods.in_place import into
from monolect.tensor.methods.pointwise.numbers import Frexp
from monolect.tensor.methods.reduce import ValuesIndices
from monolect.tensor.methods.statistics.samples import MinMax
from monolect.tensor.tensor import Tensor


@guarded
def aminmax(
    input: Tensor, *, dim: int | None = None, keepdim: bool = False, out: Tensor | tuple[Tensor, ...] | None = None
) -> MinMax:
    """Return (min, max) along axis `dim`, by default of all elements. Raises ShapeError for no elements.

    >>> [t.item() for t in monolect.aminmax(Tensor([3, 1, 2]))]
    [1, 3]
    """
    return into(out, "aminmax", input.aminmax(dim=dim, keepdim=keepdim))


@guarded
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the angle of real numbers: pi where `input` is negative, else 0; nan stays nan. Integers give float32.

    >>> [round(x, 4) for x in monolect.angle(Tensor([-2.0, 3.0])).tolist()]
    [3.1416, 0.0]
    """
    return into(out, "angle", input.angle())


@guarded
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, stable: bool = True, *, out: Tensor | None = None
) -> Tensor:
    """Return the int64 indices that sort `input` along axis `dim`, in the shape of `input`.

    The sort is ascending unless `descending`, and always stable, whatever `stable` says.

    >>> monolect.argsort(Tensor([3, 1, 2])).tolist()
    [1, 2, 0]
    """
    return into(out, "argsort", input.argsort(dim, descending, stable))


@guarded
def conj(input: Tensor) -> Tensor:
    """Return `input`, as there are no complex numbers.

    >>> monolect.conj(Tensor([1.0])).tolist()
    [1.0]
    """
    return input.conj()


@guarded
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return `input`, as there are no complex numbers.

    >>> monolect.conj_physical(Tensor([1.0])).tolist()
    [1.0]
    """
    return into(out, "conj_physical", input.conj_physical())


@guarded
def corrcoef(input: Tensor) -> Tensor:
    """Return the correlation coefficients of variables, which are the rows of `input`; 1 for one variable.

    Raises ShapeError for more than two axes.

    >>> monolect.corrcoef(Tensor([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    return input.corrcoef()


@guarded
def cov(
    input: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """Return the covariances of variables, which are the rows of `input`, with observations as columns.

    The sum of products is divided by n - correction. `fweights` counts each observation, `aweights` weighs it.
    Raises ShapeError for more than two axes or weights that are no vector of the observations.

    >>> monolect.cov(Tensor([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [[2.0, -2.0], [-2.0, 2.0]]
    """
    return input.cov(correction=correction, fweights=fweights, aweights=aweights)


@guarded
def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1) -> Tensor:
    """Return the integrals of `y` along axis `dim` up to each point but the first one, by trapezoids.

    Raises ShapeError without an axis or for points that do not fit.

    >>> monolect.cumulative_trapezoid(Tensor([1.0, 2.0, 3.0])).tolist()
    [1.5, 4.0]
    """
    return y.cumulative_trapezoid(x, dx=dx, dim=dim)


@guarded
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return the n-th differences between neighbours along axis `dim`, after `prepend` and `append` are joined.

    Differences of bools are bools. Raises ArgumentError for a negative `n`, ShapeError without an axis.

    >>> monolect.diff(Tensor([1, 4, 9])).tolist()
    [3, 5]
    """
    return into(out, "diff", input.diff(n, dim, prepend, append))


@guarded
def fmax(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the larger element of `input` and `other`, broadcast and promoted; nan only if both are nan.

    >>> monolect.fmax(Tensor([1.0, float("nan")]), Tensor([float("nan"), 2.0])).tolist()
    [1.0, 2.0]
    """
    return into(out, "fmax", input.fmax(other))


@guarded
def fmin(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the smaller element of `input` and `other`, broadcast and promoted; nan only if both are nan.

    >>> monolect.fmin(Tensor([1.0, float("nan")]), Tensor([float("nan"), 2.0])).tolist()
    [1.0, 2.0]
    """
    return into(out, "fmin", input.fmin(other))


@guarded
def frexp(input: Tensor, *, out: Tensor | tuple[Tensor, ...] | None = None) -> Frexp:
    """Return (mantissa, exponent): `input` is `mantissa * 2 ** exponent`, with |mantissa| in [0.5, 1) or 0.

    The exponents are int32. Infinities and nan have the exponent 0. The mantissa has a gradient. Raises DTypeError
    for integers.

    >>> [t.tolist() for t in monolect.frexp(Tensor([8.0, -0.75, 0.0]))]
    [[0.5, -0.75, 0.0], [4, 0, 0]]
    """
    return into(out, "frexp", input.frexp())


@guarded
def gcd(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the greatest common divisor, at least 0, broadcast and promoted. Raises DTypeError for floats and bools.

    >>> monolect.gcd(Tensor([12, -8, 0]), Tensor([18, 12, 5])).tolist()
    [6, 4, 5]
    """
    return into(out, "gcd", input.gcd(other))


@guarded
def gradient(
    input: Tensor,
    *,
    spacing: Number | Sequence[Number] | Sequence[Tensor] | None = None,
    dim: Axes = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Return the derivatives of samples along axes `dim`, by default all, by central differences.

    `spacing` is a distance, a distance for each axis, or a vector of points for each axis. `edge_order` 1 or 2 is
    the order of the one-sided differences at the ends. Raises ShapeError for an axis of fewer than edge_order + 1
    elements, ArgumentError for another order or number of spacings.

    >>> [t.tolist() for t in monolect.gradient(Tensor([1.0, 4.0, 9.0]))]
    [[3.0, 4.0, 5.0]]
    """
    return input.gradient(spacing=spacing, dim=dim, edge_order=edge_order)


@guarded
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor: True where the value is the negative infinity.

    >>> monolect.isneginf(Tensor([float("inf"), float("-inf"), 1.0])).tolist()
    [False, True, False]
    """
    return into(out, "isneginf", input.isneginf())


@guarded
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return a bool tensor: True where the value is the positive infinity.

    >>> monolect.isposinf(Tensor([float("inf"), float("-inf"), 1.0])).tolist()
    [True, False, False]
    """
    return into(out, "isposinf", input.isposinf())


@guarded
def isreal(input: Tensor) -> Tensor:
    """Return True for each element, as there are no complex numbers.

    >>> monolect.isreal(Tensor([1.0, 2.0])).tolist()
    [True, True]
    """
    return input.isreal()


@guarded
def kthvalue(
    input: Tensor, k: int, dim: int = -1, keepdim: bool = False, *, out: Tensor | tuple[Tensor, ...] | None = None
) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the k-th smallest element along axis `dim`, k from 1; `keepdim` keeps the
    axis.

    Raises ArgumentError if k is not in 1..size.

    >>> [t.item() for t in monolect.kthvalue(Tensor([3, 1, 2]), 2)]
    [2, 2]
    """
    return into(out, "kthvalue", input.kthvalue(k, dim, keepdim))


@guarded
def lcm(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the least common multiple, at least 0, broadcast and promoted. Raises DTypeError for floats and bools.

    >>> monolect.lcm(Tensor([4, 0]), Tensor([6, 5])).tolist()
    [12, 0]
    """
    return into(out, "lcm", input.lcm(other))


@guarded
def ldexp(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return `input * 2 ** other`, broadcast; integers give float32.

    >>> monolect.ldexp(Tensor([1.0, 3.0]), Tensor([2, -1])).tolist()
    [4.0, 1.5]
    """
    return into(out, "ldexp", input.ldexp(other))


@guarded
def logaddexp2(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return log2(2 ** `input` + 2 ** other) without overflow, broadcast; integers give float32.

    >>> round(monolect.logaddexp2(Tensor(1000.0), 1000.0).item(), 3)
    1001.0
    """
    return into(out, "logaddexp2", input.logaddexp2(other))


@overload
def median(input: Tensor, dim: None = None, keepdim: bool = False, *, out: Tensor | None = None) -> Tensor: ...
@overload
def median(
    input: Tensor, dim: int, keepdim: bool = False, *, out: Tensor | tuple[Tensor, ...] | None = None
) -> ValuesIndices[Tensor]: ...
@guarded
def median(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | tuple[Tensor, ...] | None = None
) -> Any:
    """Return the middle element, the lower of two: of all elements, or (values, indices) along axis `dim`.

    `keepdim` keeps the axis with size 1. The result is nan if an element is nan. Raises ShapeError for no elements.

    >>> monolect.median(Tensor([3.0, 1.0, 2.0, 9.0])).item()
    2.0
    """
    method: Any = input.median
    return into(out, "median", method(dim, keepdim))


@guarded
def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Tensor | tuple[Tensor, ...] | None = None
) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the most frequent element along axis `dim`, the smallest of equally frequent
    ones; the index of its last occurrence.

    The cost is the square of the size of the axis. Raises ShapeError for no elements.

    >>> [t.item() for t in monolect.mode(Tensor([3, 1, 3, 2]))]
    [3, 2]
    """
    return into(out, "mode", input.mode(dim, keepdim))


@guarded
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return the values sorted along the first axis.

    >>> monolect.msort(Tensor([[3, 1], [2, 4]])).tolist()
    [[2, 1], [3, 4]]
    """
    return into(out, "msort", input.msort())


@guarded
def nanmean(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None
) -> Tensor:
    """Return the mean of the elements that are not nan along axes `dim`, by default all.

    It is nan where all are. Raises DTypeError for integers.

    >>> monolect.nanmean(Tensor([1.0, float("nan"), 3.0])).item()
    2.0
    """
    return into(out, "nanmean", input.nanmean(dim, keepdim, dtype=dtype))


@guarded
def nanmedian(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Tensor | tuple[Tensor, ...] | None = None
) -> Any:
    """Return the middle element of those that are not nan, the lower of two: of all, or (values, indices) along axis
    `dim`. It is nan where all are. Raises ShapeError for no elements.

    >>> monolect.nanmedian(Tensor([3.0, float("nan"), 1.0, 2.0])).item()
    2.0
    """
    return into(out, "nanmedian", input.nanmedian(dim, keepdim))


@guarded
def nanquantile(
    input: Tensor,
    q: Data,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """Return the q-th quantiles of the elements that are not nan along axis `dim`, by default of all elements.

    Arguments and errors are those of `quantile`. The result is nan where all elements are.

    >>> monolect.nanquantile(Tensor([1.0, float("nan"), 3.0]), 0.5).item()
    2.0
    """
    return into(out, "nanquantile", input.nanquantile(q, dim, keepdim, interpolation=interpolation))


@guarded
def nansum(
    input: Tensor, dim: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None, out: Tensor | None = None
) -> Tensor:
    """Return the sum of the elements that are not nan along axes `dim`, by default all; integers give int64.

    >>> monolect.nansum(Tensor([1.0, float("nan"), 2.0])).item()
    3.0
    """
    return into(out, "nansum", input.nansum(dim, keepdim, dtype=dtype))


@guarded
def nextafter(input: Tensor, other: TensorLike, *, out: Tensor | None = None) -> Tensor:
    """Return the next number of the dtype after `input` in the direction of `other`, broadcast.

    Raises DTypeError for integers.

    >>> (monolect.nextafter(Tensor([1.0]), Tensor([2.0])) - 1).tolist() == [2.0**-23]
    True
    """
    return into(out, "nextafter", input.nextafter(other))


@guarded
def positive(input: Tensor) -> Tensor:
    """Return `input`. Raises DTypeError for bools.

    >>> monolect.positive(Tensor([-1, 2])).tolist()
    [-1, 2]
    """
    return input.positive()


@guarded
def quantile(
    input: Tensor,
    q: Data,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """Return the q-th quantiles (0 <= q <= 1) along axis `dim`, by default of all elements; a vector `q` adds a first
    axis.

    `keepdim` keeps the axes with size 1. `interpolation` is linear, lower, higher, nearest or midpoint. Raises
    DTypeError for integers, ArgumentError for another interpolation or numbers `q` outside of [0, 1], and
    ShapeError for no elements or a tensor `q` with more than one axis or another dtype. The values of a tensor `q`
    are not checked.

    >>> monolect.quantile(Tensor([1.0, 2.0, 4.0]), 0.75).item()
    3.0
    """
    return into(out, "quantile", input.quantile(q, dim, keepdim, interpolation=interpolation))


@guarded
def real(input: Tensor) -> Tensor:
    """The real part: `input`, as there are no complex numbers.

    >>> monolect.real(Tensor([1.0])).tolist()
    [1.0]
    """
    return input.real


@guarded
def renorm(input: Tensor, p: Number, dim: int, maxnorm: Number, *, out: Tensor | None = None) -> Tensor:
    """Return `input` with each slice along axis `dim` scaled down so that its p-norm is at most `maxnorm`.

    Raises DTypeError for integers.

    >>> monolect.renorm(Tensor([[3.0, 4.0], [0.6, 0.8]]), 2, 0, 1.0).tolist()[1]
    [0.6000000238418579, 0.800000011920929]
    """
    return into(out, "renorm", input.renorm(p, dim, maxnorm))


@guarded
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = True,
    *,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) sorted along axis `dim`, in the shape of `input`; nan is the largest.

    The sort is ascending unless `descending`. It is always stable, whatever `stable` says, and O(n) for long axes.

    >>> monolect.sort(Tensor([3, 1, 2])).indices.tolist()
    [1, 2, 0]
    """
    return into(out, "sort", input.sort(dim, descending, stable))


@guarded
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Tensor | tuple[Tensor, ...] | None = None,
) -> ValuesIndices[Tensor]:
    """Return (values, int64 indices) of the k largest, or smallest, elements along axis `dim`, in order; of equal
    elements the first.

    Axis `dim` gets size k. A few elements of a long axis are found without sorting it. The order is the same with
    sorted=False. Raises ArgumentError if k is not in 0..size.

    >>> monolect.topk(Tensor([3, 1, 2]), 2).values.tolist()
    [3, 2]
    """
    return into(out, "topk", input.topk(k, dim, largest, sorted))


@guarded
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Number = 1, dim: int = -1) -> Tensor:
    """Return the integral of `y` along axis `dim` by trapezoids, at points `x` or at distances `dx`.

    Raises ShapeError without an axis or for points that do not fit.

    >>> monolect.trapezoid(Tensor([1.0, 2.0, 3.0])).item()
    4.0
    """
    return y.trapezoid(x, dx=dx, dim=dim)


trapz = trapezoid


__all__ = [
    "aminmax",
    "angle",
    "argsort",
    "conj",
    "conj_physical",
    "corrcoef",
    "cov",
    "cumulative_trapezoid",
    "diff",
    "fmax",
    "fmin",
    "frexp",
    "gcd",
    "gradient",
    "isneginf",
    "isposinf",
    "isreal",
    "kthvalue",
    "lcm",
    "ldexp",
    "logaddexp2",
    "median",
    "mode",
    "msort",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
    "nextafter",
    "positive",
    "quantile",
    "real",
    "renorm",
    "sort",
    "topk",
    "trapezoid",
    "trapz",
]

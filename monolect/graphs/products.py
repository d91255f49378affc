"""Build matrix products and their relatives: contraction, matmul, einsum, tensordot, diagonal.

What it is for: every product is one broadcast multiply and one REDUCE ADD. matmul multiplies (..., M, 1, K) by the
transposed view (..., 1, N, K) and sums the last axis, so that both operands are read along K.
What it is not: it has no blocking, no layouts and no calls to libraries; the optimizer chooses blocking and layout for
the kernel.

Invariant: float16 and bfloat16 operands are multiplied and added in float32, and the result is cast back.
Source: shape rules of torch.matmul, torch.einsum, torch.tensordot.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from monolect.autograd import graph as g
from monolect.autograd.recorded import NOT_VIEWS, recorded
from monolect.base.dtype import accumulator, as_dtype, dtypes, promote
from monolect.base.errors import ArgumentError, AxisError, DTypeError, IRError, ShapeError
from monolect.ir.ops import broadcast
from monolect.ir.uop import UOp, build


def contract(a: UOp, b: UOp, axes: Sequence[int]) -> UOp:
    """Return the sum of a * b along `axes`, which are dropped.

    `a` and `b` have one rank and broadcast. The result has their promoted dtype. Raises DTypeError if that is bool.
    """
    dtype = promote(a.dtype, b.dtype)
    if dtype is dtypes.bool:
        raise DTypeError("product of bools", expected="numbers; cast one operand", found=dtype.name)
    wide = accumulator(dtype)
    both = build("MUL", g.cast(a, wide), g.cast(b, wide))
    if not axes:
        return g.cast(both, dtype)
    total = build("REDUCE", both, arg=("ADD", tuple(sorted(axes))))
    return g.cast(g.reshape(total, tuple([n for i, n in enumerate(both.shape) if i not in axes])), dtype)


@partial(recorded, opaque=NOT_VIEWS)
def matmul(a: UOp, b: UOp, name: str = "matmul") -> UOp:
    """Return the matrix product (..., M, K) @ (..., K, N) -> (..., M, N) by PyTorch's rules.

    A 1-d operand is a row on the left or a column on the right, and its axis is dropped. Batch axes broadcast. Raises
    ShapeError for a scalar, for different K, and for batch axes that do not broadcast; `name` is the operation in the
    message. Raises DTypeError if both operands are bools.
    """
    if a.dtype.kind == "s" or b.dtype.kind == "s":
        a, b = (g.cast(x, dtypes.float32) if x.dtype.kind == "s" else x for x in (a, b))
    if not a.shape or not b.shape:
        raise ShapeError(f"{name} of a scalar", expected="at least 1 axis each", found=f"{a.shape} and {b.shape}")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    k, inner = a.shape[-1], b.shape[0] if column else b.shape[-2]
    if k is not inner and k != inner:
        raise ShapeError(
            f"{name}: inner sizes differ", expected=f"{a.shape} @ (..., {k}, n)", found=f"{a.shape} @ {b.shape}"
        )
    left, right = a, b if column else swap_last_axes(b)
    if not row and not column:
        left, right = g.reshape(a, (*a.shape[:-1], 1, k)), g.reshape(right, (*b.shape[:-2], 1, b.shape[-1], k))
    rank = max(len(left.shape), len(right.shape))
    if len(left.shape) != len(right.shape):
        left, right = [g.reshape(x, (1,) * (rank - len(x.shape)) + x.shape) for x in (left, right)]
    try:
        return contract(left, right, (rank - 1,))
    except IRError:
        _check_batch(a, b, left.shape, right.shape, name)
        raise


@partial(recorded, opaque=NOT_VIEWS)
def linear(x: UOp, weight: UOp) -> UOp:
    """Return the product of `x` and the transposed `weight`, (N, K) or (K,)."""
    return matmul(x, g.permute(weight, tuple(reversed(range(len(weight.shape))))), "linear")


def in_dtype(name: str, a: UOp, b: UOp, *wanted: Any) -> tuple[UOp, UOp]:
    """Return the operands of the product `name` cast to the dtype of `wanted`, in which products are added.

    `wanted` has that dtype under two names, of which one or both are None. Raises ArgumentError for two dtypes, and
    DTypeError for floats that would become integers.
    """
    found = {as_dtype(d) for d in wanted if d is not None}
    if len(found) > 1:
        raise ArgumentError(f"{name}: dtype and out_dtype", expected="one of them", found=[*wanted])
    for d in found:
        if not d.is_float and (a.dtype.is_float or b.dtype.is_float):
            raise DTypeError(f"{name}: dtype of floats", expected="a float dtype", found=d.name)
        return g.cast(a, d), g.cast(b, d)
    return a, b


def swap_last_axes(x: UOp) -> UOp:
    """Return `x` with its last two axes exchanged."""
    n = len(x.shape)
    return g.permute(x, (*range(n - 2), n - 1, n - 2))


def _check_batch(a: UOp, b: UOp, left: tuple, right: tuple, name: str) -> None:
    """Raise ShapeError unless the shapes `left` and `right` of the aligned operands broadcast.

    The message shows the operation `name` and the shapes of the operands `a` and `b`.
    """
    try:
        broadcast([left, right])
    except IRError:
        expected = "batch axes (all but the last two) that are equal or 1"
        raise ShapeError(f"{name}: batch axes differ", expected=expected, found=f"{a.shape} @ {b.shape}") from None


def check_rank(x: UOp, rank: int, name: str, which: str) -> UOp:
    """Return `x` if it has `rank` axes. Otherwise raise a ShapeError that names the operation `name` and its operand
    `which`.
    """
    if len(x.shape) != rank:
        raise ShapeError(f"{name}: rank of {which}", expected=f"{rank} axes", found=f"{len(x.shape)} axes, {x.shape}")
    return x


def diagonal(x: UOp, first: int, second: int) -> UOp:
    """Return the elements of `x` with equal indices on axes `first` and `second`, which have one size; the diagonal is
    the last axis of the result.
    """
    n = x.shape[first]
    rest = [i for i in range(len(x.shape)) if i not in (first, second)]
    keep = tuple(x.shape[i] for i in rest)
    flat = g.reshape(g.permute(x, (*rest, first, second)), (*keep, n * n))
    # In rows of n + 1 elements, element (k, k) of the square, at offset k * (n + 1), is the first of row k.
    zeros = (0,) * len(keep)
    rows = g.reshape(g.pad_invalid(flat, (*zeros, 0), (*keep, n * n + n)), (*keep, n, n + 1))
    return g.reshape(g.shrink(rows, (*zeros, 0, 0), (*keep, n, 1)), (*keep, n))


def einsum(formula: str, operands: Sequence[UOp]) -> UOp:
    """Return the result of einsum `formula`, such as "ij,jk->ik", over `operands`, one for each term.

    Operands are multiplied from left to right. An axis is summed as soon as neither a later term nor the result has
    it. Raises ArgumentError for a bad formula, ShapeError for operands that do not fit it.
    """
    from monolect.graphs.einsum import Formula  # imported only for einsum, since products are in most programs

    f = Formula.parse(formula, [x.shape for x in operands])
    current: UOp | None = None
    names: list[str] = []
    for i, (x, term) in enumerate(zip(operands, f.terms, strict=True)):
        x, own = _without_repeats(x, list(term))
        later = set(f.output).union(*f.terms[i + 1 :])
        if current is None:
            current, names = _sum_axes(x, own, later)
        else:
            current, names = _multiply(current, names, x, own, later)
    assert current is not None  # a formula has at least one term
    current, names = _sum_axes(current, names, set(f.output))
    return g.permute(current, [names.index(c) for c in f.output])


def _without_repeats(x: UOp, names: list[str]) -> tuple[UOp, list[str]]:
    """Replace axes of `x` that have equal names by their diagonal; return the node and its axis names."""
    while len(set(names)) < len(names):
        first = next(i for i, c in enumerate(names) if names.count(c) > 1)
        second = names.index(names[first], first + 1)
        x = diagonal(x, first, second)
        c = names[first]
        names = [n for i, n in enumerate(names) if i not in (first, second)] + [c]
    return x, names


def _sum_axes(x: UOp, names: list[str], keep: set[str]) -> tuple[UOp, list[str]]:
    """Sum `x` over the axes whose names are not in `keep`; return the node and its axis names."""
    axes = tuple(i for i, c in enumerate(names) if c not in keep)
    return (g.reduce(x, "ADD", axes, keep=False) if axes else x), [c for c in names if c in keep]


def _multiply(a: UOp, a_names: list[str], b: UOp, b_names: list[str], keep: set[str]) -> tuple[UOp, list[str]]:
    """Multiply `a` and `b` and sum over the axes whose names are not in `keep`; return the product and its axis names.

    `a_names` and `b_names`: the distinct axis names of each operand.
    """
    both = a_names + [c for c in b_names if c not in a_names]
    order = [c for c in both if c in keep] + [c for c in both if c not in keep]
    views = []
    for x, names in ((a, a_names), (b, b_names)):
        own = [c for c in order if c in names]
        x = g.permute(x, [names.index(c) for c in own])
        sizes = dict(zip(own, x.shape, strict=True))
        views.append(g.reshape(x, tuple(sizes.get(c, 1) for c in order)))
    kept = sum(c in keep for c in order)
    return contract(views[0], views[1], range(kept, len(order))), order[:kept]


def tensordot(a: UOp, b: UOp, left: Sequence[int], right: Sequence[int]) -> UOp:
    """Sum the products along the paired axes `left` of `a` and `right` of `b`.

    `left` and `right` count from the front. The result has the other axes of `a`, then those of `b`. Raises ShapeError
    if two paired axes differ in size.
    """
    for i, j in zip(left, right, strict=True):
        if a.shape[i] != b.shape[j]:
            raise ShapeError(
                "tensordot: paired axes differ",
                expected=f"size {a.shape[i]} (axis {i} of {a.shape})",
                found=f"size {b.shape[j]} (axis {j} of {b.shape})",
            )
    free_a = [i for i in range(len(a.shape)) if i not in left]
    free_b = [j for j in range(len(b.shape)) if j not in right]
    x, y = g.permute(a, (*free_a, *left)), g.permute(b, (*free_b, *right))
    x = g.reshape(x, (*x.shape[: len(free_a)], *(1,) * len(free_b), *x.shape[len(free_a) :]))
    y = g.reshape(y, (*(1,) * len(free_a), *y.shape))
    free = len(free_a) + len(free_b)
    return contract(x, y, range(free, free + len(left)))


def paired_axes(dims: Any, a: UOp, b: UOp) -> tuple[list[int], list[int]]:
    """Return the axes of `a` and of `b` that `dims` of tensordot pairs: two lists of indices from the front.

    `dims` is a number n, for the last n axes of `a` and the first n of `b`, or a pair of axes or of lists of axes.
    Raises ArgumentError if n is out of range or the lists differ in length, AxisError for an axis that does not exist
    or is named twice.
    """
    ra, rb = len(a.shape), len(b.shape)
    if isinstance(dims, int):
        if not 0 <= dims <= min(ra, rb):
            raise ArgumentError("tensordot: dims", expected=f"0 to {min(ra, rb)}", found=dims)
        return list(range(ra - dims, ra)), list(range(dims))
    left, right = ([x] if isinstance(x, int) else list(x) for x in dims)
    if len(left) != len(right):
        raise ArgumentError("tensordot: axes come in pairs", expected=f"{len(left)} axes", found=f"{len(right)} axes")
    for axes, x in ((left, a), (right, b)):
        for n, axis in enumerate(axes):
            if not -len(x.shape) <= axis < len(x.shape):
                raise AxisError("tensordot: axis", expected=f"an axis of {x.shape}", found=axis)
            axes[n] = axis % len(x.shape)
        if len(set(axes)) < len(axes):
            raise AxisError("tensordot: axis named twice", expected="distinct axes", found=axes)
    return left, right


__all__ = [
    "check_rank",
    "contract",
    "diagonal",
    "einsum",
    "in_dtype",
    "matmul",
    "paired_axes",
    "swap_last_axes",
    "tensordot",
]

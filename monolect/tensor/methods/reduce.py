"""Methods that reduce the elements along axes: sums, extremes, statistics, softmax.

Invariants: sums of integers and bools are int64. Floats narrower than float32 are accumulated in float32. `dim` (or
`axis`) is None for all axes, one axis or several. `keepdim` (or `keepdims`) keeps the reduced axes with size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Generic, NamedTuple, Self, overload

from monolect import graphs
from monolect.autograd import graph, special
from monolect.autograd.closed_forms import closed_alone
from monolect.autograd.graph import cast, e, where
from monolect.autograd.recorded import recorded
from monolect.base.dtype import DType, as_dtype, dtypes, sum_dtype
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, build
from monolect.tensor.base import AnyTensor, Axes, DTypeLike, Number, TensorBase, on_device_of
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.elementwise import computes_in_float32


class ValuesIndices(NamedTuple, Generic[AnyTensor]):
    """Elements of a tensor and their int64 indices: the result of `max(dim)`, `cummax`, `sort` and related methods."""

    values: AnyTensor
    indices: AnyTensor


@guard_methods
class ReduceMixin(TensorBase):
    """Methods of Tensor for sums, extremes, statistics and softmax.

    Methods raise AxisError for an axis that is missing or named twice.

    `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`.
    """

    __slots__ = ()

    def _reduce_along(self, u: UOp, op: str, dim: Any, keepdim: bool) -> Self:
        """Return the reduction of `u` by `op`, ADD, MUL or MAX, along `dim` (None for all axes, one or several) as a
        tensor; the axes keep size 1 if `keepdim`.
        """
        return self._wrap(_reduce(u, op, self._axes(dim), keepdim))

    # ---- sums --------------------------------------------------------------------------------------------------------
    def sum(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        *,
        dtype: DTypeLike | None = None,
        axis: Axes = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the sum along axes `dim`, by default all; `keepdim` keeps them with size 1.

        Integers and bools give int64; `dtype` casts before adding. `axis` and `keepdims` are NumPy's names of `dim` and
        `keepdim`.

        >>> Tensor([[1, 2], [3, 4]]).sum(dim=0).tolist()
        [4, 6]
        """
        u = cast(self._uop, sum_dtype(self._uop.dtype) if dtype is None else as_dtype(dtype))
        return self._reduce_along(u, "ADD", axis if dim is None else dim, keepdim or keepdims)

    def prod(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        *,
        dtype: DTypeLike | None = None,
        axis: Axes = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the product along axes `dim`, by default all; `keepdim` keeps them with size 1.

        Integers and bools give int64; `dtype` casts before multiplying. `axis` and `keepdims` are NumPy's names of
        `dim` and `keepdim`.

        >>> Tensor([[1, 2], [3, 4]]).prod(1).tolist()
        [2, 12]
        """
        u = cast(self._uop, sum_dtype(self._uop.dtype) if dtype is None else as_dtype(dtype))
        return self._reduce_along(u, "MUL", axis if dim is None else dim, keepdim or keepdims)

    def mean(
        self,
        dim: Axes = None,
        keepdim: bool = False,
        *,
        dtype: DTypeLike | None = None,
        axis: Axes = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the mean along axes `dim`, by default all; `keepdim` keeps them with size 1.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises DTypeError for integers without a float
        `dtype`.

        >>> Tensor([[1.0, 2.0], [3.0, 5.0]]).mean(1, keepdim=True).tolist()
        [[1.5], [4.0]]
        """
        dim = axis if dim is None else dim
        u = self._uop if dtype is None else cast(self._uop, as_dtype(dtype))
        if not u.dtype.is_float:
            raise DTypeError("mean needs floats", expected="a float dtype (or dtype=...)", found=u.dtype.name)
        axes = self._axes(dim)
        n = count(tuple(self.shape[a] for a in axes))
        wide = cast(u, dtypes.float32) if u.dtype.bits < 32 else u
        total = _reduce(wide, "ADD", axes, keepdim or keepdims)
        return self._wrap(cast(_divide(total, n), u.dtype))

    def _variance(self, dim: Any, keepdim: bool, correction: float) -> UOp:
        """Return the node of the variance along `dim`: the sum of squared distances from the mean, divided by
        n - correction, in at least float32.

        Raises DTypeError for integers.
        """
        self._check_float("var")
        u = self._uop
        u = cast(u, dtypes.float32) if u.dtype.bits < 32 else u
        axes = self._axes(dim)
        n = count(tuple(self.shape[a] for a in axes))
        d = build("SUB", u, _divide(_reduce(u, "ADD", axes, True), n))
        free = max(n - correction, 0) if n.__class__ is int else e("MAX", e("SUB", cast(n, u.dtype), correction), 0.0)
        return _divide(_reduce(build("MUL", d, d), "ADD", axes, keepdim), free)

    def var(
        self,
        dim: Axes = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float = 1,
        axis: Axes = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the variance along axes `dim`, by default all: the sum of squared distances from the mean over n -
        correction.

        `unbiased` True means correction 1, False 0, None that of `correction`. A bool as the only positional argument
        is `unbiased`. `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises DTypeError for integers.

        >>> Tensor([1.0, 3.0]).var().item(), Tensor([1.0, 3.0]).var(correction=0).item()
        (2.0, 1.0)
        """
        dim, c = _corrected(dim, unbiased, correction)
        return self._wrap(cast(self._variance(axis if dim is None else dim, keepdim or keepdims, c), self.dtype))

    def std(
        self,
        dim: Axes = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float = 1,
        axis: Axes = None,
        keepdims: bool = False,
    ) -> Self:
        """Return the standard deviation along axes `dim`, by default all: the square root of `var`.

        The variance is divided by n - correction; `unbiased` True means correction 1, False 0, None that of
        `correction`. `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises DTypeError for integers.

        >>> Tensor([1.0, 5.0]).std(correction=0).item()
        2.0
        """
        dim, c = _corrected(dim, unbiased, correction)
        v = self._variance(axis if dim is None else dim, keepdim or keepdims, c)
        return self._wrap(cast(build("SQRT", _zero_gradient_at_zero(v)), self.dtype))

    def var_mean(
        self, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
    ) -> tuple[Self, Self]:
        """Return (variance, mean) along axes `dim`, by default all; the sum of squares is divided by n - correction.

        `unbiased` True means correction 1, False 0; `keepdim` keeps the axes with size 1.

        Raises DTypeError for integers.

        >>> [t.item() for t in Tensor([1.0, 3.0]).var_mean()]
        [2.0, 2.0]
        """
        dim, correction = _corrected(dim, unbiased, correction)
        return self.var(dim, correction=correction, keepdim=keepdim), self.mean(dim, keepdim)

    def std_mean(
        self, dim: Axes = None, unbiased: bool | None = None, keepdim: bool = False, *, correction: float = 1
    ) -> tuple[Self, Self]:
        """Return (standard deviation, mean) along axes `dim`, by default all; `keepdim` keeps them with size 1.

        The sum of squared distances from the mean is divided by n - correction; `unbiased` True means correction 1,
        False 0.

        Raises DTypeError for integers.

        >>> [t.item() for t in Tensor([1.0, 5.0]).std_mean(correction=0)]
        [2.0, 3.0]
        """
        dim, correction = _corrected(dim, unbiased, correction)
        return self.std(dim, correction=correction, keepdim=keepdim), self.mean(dim, keepdim)

    def count_nonzero(self, dim: Axes = None) -> Self:
        """Return the number of elements that are not zero along axes `dim`, by default all, as int64.

        >>> Tensor([[0, 1], [2, 3]]).count_nonzero(0).tolist()
        [1, 2]
        """
        return self.ne(0).sum(dim)

    @computes_in_float32
    def norm(
        self,
        p: Number | str = 2,
        dim: Axes = None,
        keepdim: bool = False,
        dtype: DTypeLike | None = None,
        *,
        axis: Axes = None,
    ) -> Self:
        """Return the p-norm along axes `dim`, by default all; `p` is any number, inf, -inf, or "fro" for 2.

        `dtype` casts before. `axis` is NumPy's name of `dim`. Raises DTypeError for integers, ArgumentError for another
        `p`.

        >>> Tensor([3.0, 4.0]).norm().item()
        5.0
        """
        dim = axis if dim is None else dim
        if dtype is not None:
            return self.cast(dtype).norm(p, dim, keepdim)
        self._check_float("norm")
        if p in ("fro", 2, None):
            u = self._uop
            squares = _reduce(build("MUL", u, u), "ADD", self._axes(dim), keepdim)
            return self._wrap(build("SQRT", _zero_gradient_at_zero(squares)))
        if not isinstance(p, int | float):
            raise ArgumentError("norm: unknown order", expected="a number, inf or 'fro'", found=repr(p))
        x: Any = self.abs()
        if p == inf:
            return x.amax(dim, keepdim)
        if p == -inf:
            return x.amin(dim, keepdim)
        if p == 0:
            return (x != x).where(1.0, x.sign()).sum(dim, keepdim)  # with gradient 0
        if p == 1:
            return x.sum(dim, keepdim)
        if p < 1:  # these powers have no derivative at 0; PyTorch uses 0
            is_zero = x == 0
            powers = is_zero.where(0.0 if p > 0 else inf, is_zero.where(1.0, x) ** p)
        else:
            powers = x**p
        return self._wrap(_zero_gradient_at_zero(powers.sum(dim, keepdim)._uop)) ** (1 / p)

    # ---- extremes ----------------------------------------------------------------------------------------------------
    def amax(self, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> Self:
        """Return the largest element along axes `dim`, by default all; equal elements share the gradient.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

        >>> Tensor([[1, 4], [3, 2]]).amax(1).tolist()
        [4, 3]
        """
        u, axes = self._uop, self._axes(axis if dim is None else dim)
        _refuse_empty(u, axes)
        return self._wrap(_reduce(u, "MAX", axes, keepdim or keepdims))

    def amin(self, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> Self:
        """Return the smallest element along axes `dim`, by default all; equal elements share the gradient.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

        >>> Tensor([[1, 4], [3, 2]]).amin(1).tolist()
        [1, 2]
        """
        flip = reverse(self.dtype)
        axes = self._axes(axis if dim is None else dim)
        _refuse_empty(self._uop, axes)
        return self._wrap(flip(_reduce(flip(self._uop), "MAX", axes, keepdim or keepdims)))

    @overload
    def max(self, dim: None = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> Self: ...
    @overload
    def max(self, dim: Sequence[int] | TensorBase, keepdim: bool = False, *, keepdims: bool = False) -> Self: ...
    @overload
    def max(self, dim: int, keepdim: bool = False, *, keepdims: bool = False) -> ValuesIndices[Self]: ...
    @overload
    def max(self, *, other: TensorBase) -> Self: ...
    def max(
        self,
        dim: Axes | TensorBase = None,
        keepdim: bool = False,
        *,
        axis: Axes = None,
        keepdims: bool = False,
        other: TensorBase | None = None,
    ) -> Any:
        """Return the largest element: of all, as `amax`; along one axis `dim`, (values, indices); with a tensor as
        `dim` or `other`, `maximum`.

        Along one axis the element at the index gets the gradient; otherwise equal elements share it. `axis` and
        `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

        >>> Tensor([3, 1, 2]).max(dim=0).indices.item()
        0
        """
        return self._extreme("max", dim if other is None else other, keepdim or keepdims, axis)

    @overload
    def min(self, dim: None = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> Self: ...
    @overload
    def min(self, dim: Sequence[int] | TensorBase, keepdim: bool = False, *, keepdims: bool = False) -> Self: ...
    @overload
    def min(self, dim: int, keepdim: bool = False, *, keepdims: bool = False) -> ValuesIndices[Self]: ...
    @overload
    def min(self, *, other: TensorBase) -> Self: ...
    def min(
        self,
        dim: Axes | TensorBase = None,
        keepdim: bool = False,
        *,
        axis: Axes = None,
        keepdims: bool = False,
        other: TensorBase | None = None,
    ) -> Any:
        """Return the smallest element: of all, as `amin`; along one axis `dim`, (values, indices); with a tensor as
        `dim` or `other`, `minimum`.

        Along one axis the element at the index gets the gradient; otherwise equal elements share it. `axis` and
        `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

        >>> Tensor([3, 1, 2]).min().item(), Tensor([3, 1, 2]).min(dim=0).indices.item()
        (1, 1)
        """
        return self._extreme("min", dim if other is None else other, keepdim or keepdims, axis)

    def _extreme(self, name: str, dim: Any, keepdim: bool, axis: Any) -> Any:
        """Return the result of `max` or `min`, as `name` says, for their arguments.

        For an int `dim` it is (values, indices), for a Tensor `dim` the elementwise maximum or minimum with it, else
        the extreme along the axes `dim` or `axis` (None for all).
        """
        is_max = name == "max"
        if isinstance(dim, TensorBase):
            return self.maximum(dim) if is_max else self.minimum(dim)
        if dim is None:
            return self.amax(axis, keepdim) if is_max else self.amin(axis, keepdim)
        if isinstance(dim, tuple | list):
            return self.amax(dim, keepdim) if is_max else self.amin(dim, keepdim)
        values = self.amax(dim, keepdim) if is_max else self.amin(dim, keepdim)
        if self.shape and self.dtype.is_float:
            sign = (lambda u: u) if is_max else reverse(self.dtype)
            derivative = graphs.sort_keys.maximum_gradient(self._axis(dim, len(self.shape)), keepdim, sign)
            values = self._wrap(closed_alone(values._uop, (self._uop,), derivative))
        return ValuesIndices(values, self.argmax(dim, keepdim) if is_max else self.argmin(dim, keepdim))

    def argmax(
        self, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False
    ) -> Self:
        """Return the index of the first largest element along axis `dim`, by default in the flattened tensor, as int64.
        nan is the largest.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

        >>> Tensor([[1, 3, 3], [5, 4, 2]]).argmax(1).tolist()
        [1, 0]
        """
        return self._position(self._uop, axis if dim is None else dim, keepdim or keepdims)

    def argmin(
        self, dim: int | None = None, keepdim: bool = False, *, axis: int | None = None, keepdims: bool = False
    ) -> Self:
        """Return the index of the first smallest element along axis `dim`, by default in the flattened tensor, as
        int64. nan is the smallest.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`. Raises ShapeError for no elements.

        >>> Tensor([[1, 3, 1], [5, 4, 2]]).argmin(1).tolist()
        [0, 2]
        """
        flip = reverse(self.dtype)
        return self._position(flip(self._uop), axis if dim is None else dim, keepdim or keepdims)

    def _position(self, u: UOp, dim: Any, keepdim: bool) -> Self:
        """Return the int64 index of the first maximum of `u` along axis `dim`, or of all elements if `dim` is None.

        `keepdim` keeps the axes with size 1. Raises ShapeError for no elements.
        """
        shape = u.shape
        if dim is None:
            a, u = 0, graph.reshape(u, (count(u.shape),))
        else:
            a = self._axis(dim, len(shape) or 1)
            u = u if shape else graph.reshape(u, (1,))
        if u.shape[a].__class__ is int and u.shape[a] == 0:
            raise ShapeError(
                "the maximum or minimum of no elements", expected="a non-empty axis", found=f"shape {u.shape}"
            )
        out = graphs.sort_keys.first_maximum(u, a)
        if dim is None:
            return self._wrap(graph.reshape(out, (1,) * len(shape) if keepdim else ()))
        drop = out.shape if keepdim and shape else tuple(n for i, n in enumerate(out.shape) if i != a)
        return self._wrap(graph.reshape(out, drop))

    # ---- logic -------------------------------------------------------------------------------------------------------
    def any(self, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> Self:
        """Return a bool tensor: True where some element along axes `dim`, by default all, is not zero; False for no
        elements.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`.

        >>> Tensor([[0, 1], [0, 0]]).any(1).tolist()
        [True, False]
        """
        return self._reduce_along(self.bool()._uop, "MAX", axis if dim is None else dim, keepdim or keepdims)

    def all(self, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None, keepdims: bool = False) -> Self:
        """Return a bool tensor: True where no element along axes `dim`, by default all, is zero; True for no elements.

        `axis` and `keepdims` are NumPy's names of `dim` and `keepdim`.

        >>> Tensor([[1, 1], [0, 1]]).all(1).tolist()
        [True, False]
        """
        return ~(~self.bool()).any(axis if dim is None else dim, keepdim or keepdims)

    def equal(self, other: TensorBase) -> bool:
        """Whether shapes and all elements are equal, as a Python bool. The call computes the tensors.

        >>> Tensor([1, 2]).equal(Tensor([1, 2])), Tensor([1, 2]).equal(Tensor([[1, 2]]))
        (True, False)
        """
        return self.shape == other.shape and bool((self == other).all().item())

    # ---- softmax -----------------------------------------------------------------------------------------------------
    def _in_float32(self, dim: Any, dtype: Any) -> tuple[UOp, tuple[int, ...]]:
        """Return (self, axes `dim`): self cast to `dtype` unless None, and in at least float32. Raises DTypeError for
        integers.
        """
        self._check_float("softmax")
        u = self._uop if dtype is None else cast(self._uop, as_dtype(dtype))
        return cast(u, dtypes.float32) if u.dtype.bits < 32 else u, self._axes(dim)

    def softmax(self, dim: Axes = -1, dtype: DTypeLike | None = None, *, axis: Axes = None) -> Self:
        """Return exp(self) divided by its sum along axis `dim`, in the same shape and dtype, or in `dtype`.

        `axis`, if given, replaces `dim`. Raises DTypeError for integers.

        >>> Tensor([0.0, 0.0]).softmax().tolist()
        [0.5, 0.5]
        """
        u, axes = self._in_float32(dim if axis is None else axis, dtype)
        return self._wrap(cast(_softmax(u, axes), self.dtype if dtype is None else as_dtype(dtype)))

    def log_softmax(self, dim: Axes = -1, dtype: DTypeLike | None = None, *, axis: Axes = None) -> Self:
        """Return the logarithm of `softmax` along `dim`, computed without it: it is finite where softmax rounds to 0.

        `axis`, if given, replaces `dim`. Raises DTypeError for integers.

        >>> Tensor([0.0, 200.0]).log_softmax().tolist()
        [-200.0, 0.0]
        """
        u, axes = self._in_float32(dim if axis is None else axis, dtype)
        return self._wrap(cast(_log_softmax(u, axes), self.dtype if dtype is None else as_dtype(dtype)))

    def softmin(self, dim: Axes = -1, dtype: DTypeLike | None = None) -> Self:
        """Return `softmax` of -self along `dim`, of the same shape: the smallest element has the largest share.

        `dtype` casts before. Raises DTypeError for integers.

        >>> [round(x, 4) for x in Tensor([0.0, 1.0]).softmin().tolist()]
        [0.7311, 0.2689]
        """
        return (-self).softmax(dim, dtype)

    def logsumexp(self, dim: Axes = None, keepdim: bool = False, *, axis: Axes = None) -> Self:
        """Return log(sum(exp(self))) along axes `dim`, by default all, without overflow; -inf if all elements are -inf.

        `axis` is NumPy's name of `dim`. Raises DTypeError for integers.

        >>> round(Tensor([1000.0, 1000.0]).logsumexp(0).item(), 3)
        1000.693
        """
        self._check_float("logsumexp")
        axes = self._axes(axis if dim is None else dim)
        u = self._uop
        w = cast(u, dtypes.float32) if u.dtype.bits < 32 else u
        m = detached_maximum(w, axes)
        # An infinite maximum is not subtracted: inf - inf is nan.
        m = where(e("CMPLT", special.absolute(m), inf), m, 0.0)
        total = _reduce(special.exp(build("SUB", w, m)), "ADD", axes, True)
        out = build("ADD", special.log_e(total), m)
        shape = u.shape if keepdim else tuple(n for i, n in enumerate(u.shape) if i not in axes)
        return self._wrap(cast(out if keepdim else graph.reshape(out, shape), u.dtype))


def _corrected(dim: Any, unbiased: bool | None, correction: float) -> tuple[Any, float]:
    """Return (dim, correction) of a variance, as PyTorch reads its arguments: `var(False)` is `var(unbiased=False)`.

    `unbiased`, unless None, overrides `correction` by 1 or 0.
    """
    if isinstance(dim, bool) and unbiased is None:
        dim, unbiased = None, dim
    return dim, correction if unbiased is None else float(unbiased)


# ---- node level ------------------------------------------------------------------------------------------------------


def _is_empty(u: UOp, axes: tuple[int, ...]) -> bool:
    """Whether one of `axes` has size 0."""
    return any(u.shape[a].__class__ is int and u.shape[a] == 0 for a in axes)


def _refuse_empty(u: UOp, axes: tuple[int, ...]) -> None:
    """Raise ShapeError if one of `axes` has size 0."""
    if _is_empty(u, axes):
        raise ShapeError("the maximum or minimum of no elements", expected="a non-empty axis", found=f"shape {u.shape}")


def _reduce(u: UOp, op: str, axes: tuple[int, ...], keepdim: bool) -> UOp:
    """Return the reduction of `u` by `op`, ADD, MUL or MAX, along `axes`; of no elements, the neutral element of `op`.

    The axes keep size 1 if `keepdim`. Raises ShapeError for a maximum of no elements, unless `u` is bool.
    """
    if op == "MAX" and u.dtype is not dtypes.bool:  # a maximum of bools is `any`
        _refuse_empty(u, axes)
    if _is_empty(u, axes):
        if not u.dtype.is_float:  # a float stays a reduction of `u`, so that its leaves get a gradient of zeros
            shape = tuple(1 if i in axes else n for i, n in enumerate(u.shape))
            shape = shape if keepdim else tuple(n for i, n in enumerate(u.shape) if i not in axes)
            return on_device_of(graph.full(shape, graphs.scans.neutral(op, u.dtype), u.dtype), u)
    return graph.reduce(u, op, axes, keepdim)


def _zero_gradient_at_zero(u: UOp) -> UOp:
    """Return the non-negative `u` unchanged, with the derivative 0 where `u` is 0: the root of `u`, which has no
    derivative there, then gets the derivative 0, as in PyTorch.
    """
    return where(e("CMPNE", u, 0.0), u, 0.0)


@recorded
def _softmax(u: UOp, axes: tuple[int, ...]) -> UOp:
    """Return the softmax of `u`, in at least float32, along `axes`."""
    p = special.exp(build("SUB", u, detached_maximum(u, axes)))
    return build("DIV", p, _reduce(p, "ADD", axes, True))


@recorded
def _log_softmax(u: UOp, axes: tuple[int, ...]) -> UOp:
    """Return the logarithm of the softmax of `u`, in at least float32, along `axes`."""
    x = build("SUB", u, detached_maximum(u, axes))
    return build("SUB", x, special.log_e(_reduce(special.exp(x), "ADD", axes, True)))


def detached_maximum(u: UOp, axes: tuple[int, ...]) -> UOp:
    """Return the largest elements along axes, which keep size 1, without a gradient; 0 for an empty axis."""
    if _is_empty(u, axes):
        return graph.full(tuple(1 if i in axes else n for i, n in enumerate(u.shape)), 0, u.dtype)
    return build("DETACH", _reduce(u, "MAX", axes, True))


def _divide(u: UOp, n: Any) -> UOp:
    """Return `u` divided by the number `n`, which may be symbolic."""
    return e("DIV", u, n if n.__class__ is not UOp else cast(n, u.dtype))


def reverse(d: DType) -> Any:
    """Return a function of nodes that reverses the order of the values of `d` exactly: NEG for floats, NOT
    otherwise.
    """
    op = "NEG" if d.is_float else "NOT"
    return lambda u: build(op, u)


__all__ = ["ReduceMixin", "ValuesIndices", "detached_maximum", "reverse"]

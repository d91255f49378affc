"""Methods that split, select and rearrange the elements of one tensor, and that describe a tensor."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any, Self

from monolect.autograd import graph
from monolect.base.errors import ArgumentError, ShapeError
from monolect.base.numpy import np
from monolect.tensor.base import Data, DeviceLike, DTypeLike, Number, Sizes, TensorBase, as_int, as_sizes, check_sizes
from monolect.tensor.guard import guard_methods

MOST_PARTS = 1_000_000  # tensors that one call of `tensor_split` makes


@guard_methods
class PartsMixin(TensorBase):
    """Methods of Tensor for parts, diagonals, new tensors of the same kind, and queries."""

    __slots__ = ()

    # ---- parts -------------------------------------------------------------------------------------------------------
    def select(self, dim: int, index: int) -> Self:
        """Return the slice at position `index` of axis `dim`, without that axis. Raises IndexRangeError outside of it.

        >>> Tensor([[1, 2], [3, 4]]).select(1, 0).tolist()
        [1, 3]
        """
        return self[(slice(None),) * self._axis(dim) + (as_int(index, "index"),)]

    def split_with_sizes(self, split_sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Return parts of the given sizes along axis `dim`. Raises ShapeError unless they add up to it.

        >>> [t.tolist() for t in Tensor([1, 2, 3]).split_with_sizes([1, 2])]
        [[1], [2, 3]]
        """
        x: Any = self
        parts: tuple[Self, ...] = x.split(list(split_sizes), dim)
        return parts

    def tensor_split(
        self,
        indices_or_sections: int | Sequence[int] | TensorBase | None = None,
        dim: int = 0,
        *,
        indices: Sequence[int] | None = None,
        sections: int | None = None,
    ) -> tuple[Self, ...]:
        """Return parts along axis `dim`: as many as a number says, the first ones longer by one, or between indices.

        `indices` and `sections` are other names of the first argument. A tensor of indices is computed. Raises
        ArgumentError for no parts, ShapeError without an axis.

        >>> [t.tolist() for t in Tensor([1, 2, 3]).tensor_split(2)]
        [[1, 2], [3]]
        """
        if not self.ndim:
            raise ShapeError("tensor_split", expected="at least 1 axis", found=self.shape)
        a, given = self._axis(dim), _one_given("tensor_split", indices_or_sections, indices, sections)
        n = self.shape[a]
        given = given.tolist() if isinstance(given, TensorBase) else given  # type: ignore[attr-defined]
        if isinstance(given, Sequence):
            ends = [*map(lambda i: slice(None, as_int(i, "index")).indices(n)[1], given), n]
            starts = [0, *ends[:-1]]
        else:
            k = as_int(given, "sections")
            if not 1 <= k <= MOST_PARTS:
                raise ArgumentError("tensor_split: sections", expected=f"1..{MOST_PARTS}", found=k)
            starts = [i * (n // k) + min(i, n % k) for i in range(k + 1)]
            starts, ends = starts[:-1], starts[1:]
        key = (slice(None),) * a
        return tuple(self[(*key, slice(i, max(i, j)))] for i, j in zip(starts, ends, strict=True))

    def hsplit(
        self,
        indices_or_sections: int | Sequence[int] | None = None,
        *,
        indices: Sequence[int] | None = None,
        sections: int | None = None,
    ) -> tuple[Self, ...]:
        """Return equal parts, or parts between indices, along axis 1; of a vector, along axis 0.

        Raises ShapeError where parts are not equal or self has no axis.

        >>> [t.tolist() for t in Tensor([[1, 2], [3, 4]]).hsplit(2)]
        [[[1], [3]], [[2], [4]]]
        """
        given = _one_given("hsplit", indices_or_sections, indices, sections)
        return _split_equally(self, "hsplit", 1, given, min(1, self.ndim - 1))

    def vsplit(
        self,
        indices_or_sections: int | Sequence[int] | None = None,
        *,
        indices: Sequence[int] | None = None,
        sections: int | None = None,
    ) -> tuple[Self, ...]:
        """Return equal parts, or parts between indices, along axis 0 of a matrix or more axes.

        Raises ShapeError where parts are not equal or self has fewer axes.

        >>> [t.tolist() for t in Tensor([[1, 2], [3, 4]]).vsplit(2)]
        [[[1, 2]], [[3, 4]]]
        """
        given = _one_given("vsplit", indices_or_sections, indices, sections)
        return _split_equally(self, "vsplit", 2, given, 0)

    def dsplit(
        self,
        indices_or_sections: int | Sequence[int] | None = None,
        *,
        indices: Sequence[int] | None = None,
        sections: int | None = None,
    ) -> tuple[Self, ...]:
        """Return equal parts, or parts between indices, along axis 2.

        Raises ShapeError where parts are not equal or self has fewer than three axes.

        >>> [t.shape for t in Tensor.zeros(1, 2, 4).dsplit(2)]
        [(1, 2, 2), (1, 2, 2)]
        """
        given = _one_given("dsplit", indices_or_sections, indices, sections)
        return _split_equally(self, "dsplit", 3, given, 2)

    def constant_pad_nd(self, pad: Sequence[int], value: Number = 0) -> Self:
        """Return self with `value` before and after its axes: widths (before, after) of the last axis, then of the axis
        before it, and so on; negative widths crop.

        >>> Tensor([1, 2]).constant_pad_nd((1, 2), 9).tolist()
        [9, 1, 2, 9, 9]
        """
        x: Any = self
        out: Self = x.pad(tuple(pad), value=value)
        return out

    def fliplr(self) -> Self:
        """Return self with the order of axis 1 reversed. Raises ShapeError for fewer than two axes.

        >>> Tensor([[1, 2], [3, 4]]).fliplr().tolist()
        [[2, 1], [4, 3]]
        """
        return _flipped(self, "fliplr", 1)

    def flipud(self) -> Self:
        """Return self with the order of axis 0 reversed. Raises ShapeError without an axis.

        >>> Tensor([1, 2]).flipud().tolist()
        [2, 1]
        """
        return _flipped(self, "flipud", 0)

    def ravel(self) -> Self:
        """Return all elements as a vector, as `flatten`.

        >>> Tensor([[1, 2], [3, 4]]).ravel().tolist()
        [1, 2, 3, 4]
        """
        return self.reshape(-1)

    def sum_to_size(self, *size: Sizes) -> Self:
        """Return self summed to `size`, a shape that broadcasts to that of self. Raises ShapeError otherwise.

        >>> Tensor([[1, 2], [3, 4]]).sum_to_size(1, 2).tolist()
        [[4, 6]]
        """
        shape = as_sizes(size)
        extra = self.ndim - len(shape)
        if extra < 0 or any(m not in (1, n) for m, n in zip(shape, self.shape[extra:], strict=True)):
            raise ShapeError("sum_to_size", expected=f"a shape that broadcasts to {self.shape}", found=shape)
        axes = [i for i in range(self.ndim) if i < extra or (shape[i - extra] == 1 and self.shape[i] != 1)]
        x: Any = self
        if not shape:
            return x.sum()
        return x.sum(axes, keepdim=True).reshape(shape) if axes else self

    def repeat_interleave(
        self, repeats: int | TensorBase, dim: int | None = None, *, output_size: int | None = None
    ) -> Self:
        """Return self with each element repeated `repeats` times in a row along axis `dim`; without `dim`, of the
        flattened tensor.

        A tensor of `repeats` has a number for each slice; the call computes it. `output_size` changes nothing.

        >>> Tensor([1, 2]).repeat_interleave(2).tolist()
        [1, 1, 2, 2]
        """
        if dim is None:
            return self.flatten().repeat_interleave(repeats, 0)
        if isinstance(repeats, TensorBase):
            r: Any = repeats
            times = r.numpy()
            if times.ndim > 1 or times.size not in (1, self.shape[self._axis(dim)]) or times.dtype.kind not in "iu":
                raise ShapeError("repeat_interleave: repeats", expected="an integer for each slice", found=times.shape)
            if times.size and times.min() < 0:
                raise ArgumentError("repeat_interleave: repeats", expected="at least 0", found=int(times.min()))
            at = np.repeat(np.arange(self.shape[self._axis(dim)]), times)
            return self[(slice(None),) * self._axis(dim) + (self._kind(at, device=self.device),)]
        a, s, n = self._axis(dim), self.shape, as_int(repeats, "repeats")
        check_sizes((n,))
        u = graph.expand(graph.reshape(self._uop, (*s[: a + 1], 1, *s[a + 1 :])), (*s[: a + 1], n, *s[a + 1 :]))
        return self._wrap(graph.reshape(u, (*s[:a], s[a] * n, *s[a + 1 :])))

    # ---- diagonals ---------------------------------------------------------------------------------------------------
    def diag(self, diagonal: int = 0) -> Self:
        """Return a diagonal of a matrix, or a matrix with the vector self on a diagonal; `diagonal` is column minus
        row.

        Raises ShapeError for another rank.

        >>> Tensor([1, 2]).diag().tolist(), Tensor([[1, 2], [3, 4]]).diag(1).tolist()
        ([[1, 0], [0, 2]], [2])
        """
        if self.ndim not in (1, 2):
            raise ShapeError("diag", expected="a vector or a matrix", found=self.shape)
        x: Any = self
        return self.diag_embed(diagonal) if self.ndim == 1 else x.diagonal(diagonal).clone()

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """Return zeros with the last axis of self on a diagonal of the new axes `dim1` and `dim2`.

        >>> Tensor([1, 2]).diag_embed(1).tolist()
        [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
        """
        if not self.ndim:
            raise ShapeError("diag_embed", expected="at least 1 axis", found=self.shape)
        a, b = self._axis(dim1, self.ndim + 1), self._axis(dim2, self.ndim + 1)
        if a == b:
            raise ArgumentError("diag_embed needs two axes", expected="distinct axes", found=(dim1, dim2))
        k = as_int(offset, "offset")
        if a > b:
            a, b, k = b, a, -k
        x: Any = self
        n = self.shape[-1] + builtins.abs(k)
        columns, rows = x._kind.arange(n, device=self.device), x._kind.arange(n, device=self.device).unsqueeze(1)
        on = columns - rows == k
        # element i is in column i + k, and for a negative k in row i - k
        wide = x.pad([builtins.abs(k), 0]).unsqueeze(-2 if k >= 0 else -1)
        out: Self = on.where(wide, x._scalar(0).cast(self.dtype))
        return out.movedim(-2, a).movedim(-1, b) if (a, b) != (out.ndim - 2, out.ndim - 1) else out

    def diagflat(self, offset: int = 0) -> Self:
        """Return a matrix with the elements of self, in order, on a diagonal; `offset` is column minus row.

        >>> Tensor([[1, 2]]).diagflat().tolist()
        [[1, 0], [0, 2]]
        """
        flat: Self = self.reshape(-1).diag(offset)
        return flat

    def trace(self) -> Self:
        """Return the sum of the main diagonal of a matrix. Raises ShapeError for another rank.

        >>> Tensor([[1, 2], [3, 4]]).trace().item()
        5
        """
        if self.ndim != 2:
            raise ShapeError("trace", expected="a matrix", found=self.shape)
        x: Any = self
        total: Self = x.diagonal().sum()
        return total

    @property
    def H(self) -> Self:
        """The transposed matrix, as there are no complex numbers. Raises ShapeError for another rank than 2 or 0.

        >>> Tensor([[1, 2], [3, 4]]).H.tolist()
        [[1, 3], [2, 4]]
        """
        if self.ndim not in (0, 2):
            raise ShapeError("H", expected="a matrix", found=self.shape)
        x: Any = self
        return x.t()

    @property
    def mH(self) -> Self:
        """Self with the last two axes exchanged, as there are no complex numbers.

        >>> Tensor.zeros(1, 2, 3).mH.shape
        (1, 3, 2)
        """
        x: Any = self
        return x.mT

    def adjoint(self) -> Self:
        """Return self with the last two axes exchanged, as there are no complex numbers.

        >>> Tensor.zeros(1, 2, 3).adjoint().shape
        (1, 3, 2)
        """
        return self.mH

    # ---- new tensors -------------------------------------------------------------------------------------------------
    def new_tensor(
        self,
        data: Data,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor of `data` with the dtype and on the device of self, unless others are given.

        >>> Tensor([1.5]).new_tensor([1, 2]).tolist()
        [1.0, 2.0]
        """
        x: Any = self
        made: Self = x._kind(data, device=device or self.device, dtype=self.dtype if dtype is None else dtype)
        made = made.clone() if isinstance(data, TensorBase) else made
        return made.requires_grad_() if requires_grad else made

    def new_zeros(
        self,
        *size: Sizes,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return zeros of `size` with the dtype and on the device of self, unless others are given.

        >>> Tensor([1.5]).new_zeros(2).tolist()
        [0.0, 0.0]
        """
        return self.new_full(as_sizes(size), 0, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_ones(
        self,
        *size: Sizes,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return ones of `size` with the dtype and on the device of self, unless others are given.

        >>> Tensor([1.5]).new_ones((1, 2)).tolist()
        [[1.0, 1.0]]
        """
        return self.new_full(as_sizes(size), 1, dtype=dtype, device=device, requires_grad=requires_grad)

    def new_empty(
        self,
        *size: Sizes,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor of `size` for values that are written later, with the dtype and on the device of self.

        >>> Tensor([1.5]).new_empty(2, 3).shape
        (2, 3)
        """
        x: Any = self
        d = self.dtype if dtype is None else dtype
        made: Self = x._kind.empty(*as_sizes(size), dtype=d, device=device or self.device, requires_grad=requires_grad)
        return made

    def new_full(
        self,
        size: Sizes,
        fill_value: Number,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor of `size` that holds `fill_value`, with the dtype and on the device of self.

        >>> Tensor([1.5]).new_full((2,), 7).tolist()
        [7.0, 7.0]
        """
        x: Any = self
        d = self.dtype if dtype is None else dtype
        made: Self = x._kind.full(
            as_sizes((size,)), fill_value, dtype=d, device=device or self.device, requires_grad=requires_grad
        )
        return made

    # ---- queries -----------------------------------------------------------------------------------------------------
    def nelement(self) -> int:
        """Return the number of elements, as `numel`.

        >>> Tensor([[1, 2]]).nelement()
        2
        """
        return int(self.numel())

    def ndimension(self) -> int:
        """Return the number of axes, as `ndim`.

        >>> Tensor([[1, 2]]).ndimension()
        2
        """
        return self.ndim

    def is_signed(self) -> bool:
        """Return whether the dtype has negative numbers.

        >>> Tensor([1]).is_signed(), Tensor([True]).is_signed()
        (True, False)
        """
        return bool(self.dtype.min < 0)

    def is_complex(self) -> bool:
        """Return False: there are no complex numbers.

        >>> Tensor([1.0]).is_complex()
        False
        """
        return False

    def is_same_size(self, other: TensorBase) -> bool:
        """Return whether `other` has the shape of self.

        >>> Tensor([1]).is_same_size(Tensor([2.0]))
        True
        """
        return bool(self.shape == other.shape)

    def is_nonzero(self) -> bool:
        """Return whether the only element is not zero. The call computes self.

        Raises ShapeError where there is not exactly one element, JitError inside a captured step.

        >>> Tensor([[2.0]]).is_nonzero()
        True
        """
        return bool(self.item())

    def __contains__(self, value: TensorBase | Number) -> bool:
        found: Any = self == value
        return bool(found.any().item())

    def __reversed__(self) -> Self:
        x: Any = self
        return x.flip(0) if self.ndim else x


def _one_given(name: str, *values: Any) -> Any:
    """Return the only one of `values` that is not None. Raises ArgumentError for none or several."""
    given = [v for v in values if v is not None]
    if len(given) != 1:
        raise ArgumentError(f"{name}: parts", expected="one of indices_or_sections, indices, sections", found=given)
    return given[0]


def _split_equally(t: Any, name: str, least: int, given: Any, a: int) -> tuple[Any, ...]:
    """Return the parts of `t` along axis `a`. Raises ShapeError for fewer than `least` axes or parts that differ."""
    if t.ndim < least:
        raise ShapeError(name, expected=f"at least {least} axes", found=t.shape)
    if not isinstance(given, Sequence) and (as_int(given, "sections") < 1 or t.shape[a] % as_int(given, "sections")):
        raise ShapeError(f"{name}: parts of equal size", expected=f"a divisor of {t.shape[a]}", found=given)
    parts: tuple[Any, ...] = t.tensor_split(given, a)
    return parts


def _flipped(t: Any, name: str, a: int) -> Any:
    if t.ndim <= a:
        raise ShapeError(name, expected=f"at least {a + 1} axes", found=t.shape)
    return t.flip(a)


__all__ = ["PartsMixin"]

"""Create Tensors from Python and NumPy data, from one value, and from counting.

What it is for: the class methods `Tensor.zeros`, `arange`, `eye` and their kin.
Invariant: only data from outside, `empty`, `empty_like` and `buffer` take memory. Every other creation is CONST and
IOTA arithmetic without a kernel of its own; its users compute it inline.
"""

from __future__ import annotations

import os
from array import array as packed
from math import ceil, isfinite, isinf
from typing import Any, Self

from monolect.autograd.graph import broadcast_to, cast, e, full, iota, where
from monolect.autograd.sharding import replicated, to_devices_of
from monolect.autograd.special import absolute
from monolect.backend.registry import maker_of
from monolect.base.dtype import INTS, DType, as_dtype, as_python, converted, dtypes, promote
from monolect.base.dtype import from_numpy as dtype_of
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import is_array, is_scalar, np
from monolect.ir.rewrite.normal import less, negate
from monolect.ir.uop import UOp, build, const, new_buffer
from monolect.runtime.buffer import LETTERS, from_bytes, from_numpy, open_disk
from monolect.tensor.base import (
    DeviceLike,
    DTypeLike,
    Number,
    Size,
    Sizes,
    TensorBase,
    TensorLike,
    as_device,
    as_int,
    as_size,
    as_sizes,
    check_sizes,
    on_device,
)
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import check_range


def _new_memory(shape: tuple, dtype: DType, device: Any) -> UOp:
    """Return a BUFFER of uninitialized memory on `device`; on a tuple of devices zeros, the whole value on each."""
    if isinstance(device, tuple):
        return replicated(full(shape, 0, dtype), device)
    return new_buffer(shape, dtype, device)


def from_data(data: Any, device: Any, dtype: DType | None) -> UOp:
    """Return the node of `data`: a CONST for a number, else a BUFFER with the values, on `device`.

    On a tuple of devices each gets the whole value. `dtype` None: bool, int64 or float32 for Python numbers, the dtype
    of an array or NumPy scalar, and the promoted one of the items of lists. Raises ShapeError for ragged lists,
    DTypeError for data that are not numbers or do not fit.
    """
    if isinstance(device, tuple):
        return replicated(from_data(data, maker_of(device), dtype), device)
    if isinstance(data, bool | int | float) and not is_scalar(data):  # np.float64 is a float
        d = dtype or (
            dtypes.bool if isinstance(data, bool) else dtypes.int64 if isinstance(data, int) else dtypes.float32
        )
        return on_device(full((), _checked(data, d, dtype), d), device)
    if isinstance(data, list | tuple | range) and (found := _numbers(data, dtype)) is not None:
        return from_bytes(*found, device)
    if not (is_array(data) or is_scalar(data)):
        return from_numpy(_array(data, dtype), device)
    array = np.asarray(data)
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "biufV":
        raise DTypeError("a tensor holds numbers", expected="a numeric array", found=str(array.dtype))
    return from_numpy(array if dtype is None else converted(array, dtype), device)


def _checked(value: Any, d: DType, given: DType | None) -> Any:
    """Return `value`. Raises DTypeError for an int outside of the range of `d`.

    If the user gave the dtype (`given`), ints wrap to it, and only an int outside of all integer dtypes raises.
    """
    low, high = (d.min, d.max) if given is None else (dtypes.int64.min, dtypes.uint64.max)
    if value.__class__ is int and d.is_int and not low <= value <= high:
        expected = f"{low}..{high}" + (" (or a dtype)" if given is None else "")
        raise DTypeError("an integer does not fit", expected=expected, found=value)
    return value


# type of a Python number: its default dtype, then other dtypes that hold the same values unless they overflow
_DTYPES = {
    bool: (dtypes.bool,),
    int: (dtypes.int64, *(d for d in INTS if d is not dtypes.int64)),
    float: (dtypes.float32, dtypes.float64),
}


def _numbers(data: Any, dtype: DType | None) -> tuple[bytes, tuple[int, ...], DType] | None:
    """Return nested lists of numbers of one type as (row-major bytes, shape, dtype).

    The result is None for other data: mixed types, ragged lists, arrays, or a `dtype` of another kind; the caller then
    goes through NumPy. `dtype` None means the default dtype of the type. Raises DTypeError for an int that does not
    fit.
    """
    shape, above = [len(data)], {id(data)}
    while len(kinds := set(map(type, data))) == 1:
        kind: Any = kinds.pop()
        if kind in (list, tuple):
            rows = set(map(id, data))
            if len(sizes := set(map(len, data))) != 1 or not above.isdisjoint(rows):
                return None  # ragged, or a list that holds itself
            above |= rows
            shape += sizes
            data = [x for row in data for x in row]
            continue
        known = _DTYPES.get(kind, ())
        d = dtype or (known[0] if known else None)
        if d is None or d not in known:
            return None
        try:
            row = bytes(data) if kind is bool else packed(LETTERS[d], data).tobytes()
        except OverflowError:
            row = b""
        return row or packed(LETTERS[d], [as_python(_checked(x, d, dtype), d) for x in data]).tobytes(), tuple(shape), d
    return None


def _array(data: Any, dtype: DType | None) -> np.ndarray:
    """Return `data`, an array or nested sequences, as an array of `dtype`, by default the promoted one of its items.

    Raises ShapeError for ragged sequences, DTypeError for values other than numbers and for ints that do not fit.
    """
    if not isinstance(data, list | tuple | range) and hasattr(data, "__array__"):
        return np.asarray(data) if dtype is None else converted(np.asarray(data), dtype)
    plain = _plain(data)
    try:
        array = np.array(plain)
    except ValueError:
        raise ShapeError("the lists are ragged", expected="lists of equal length", found=repr(data)[:80]) from None
    except OverflowError:
        raise DTypeError("an integer does not fit", expected="a value of int64", found=repr(data)[:80]) from None
    if array.dtype.kind not in "biuf":
        raise DTypeError("a tensor holds numbers", expected="numbers, or nested lists of them", found=repr(data)[:80])
    d = dtype or promote(*sorted(_item_dtypes(plain) or {dtypes.float32}, key=lambda d: d.priority))
    if d.is_int and array.dtype.kind == "f":  # floats next to integers, which a float may not hold
        exact = np.array(plain, object)
        return np.array([as_python(x, d) for x in exact.ravel()], d.numpy).reshape(exact.shape)
    if dtype is None and d is dtypes.int64 and array.dtype.kind == "u" and int(array.max()) > d.max:
        raise DTypeError("an integer does not fit", expected="values of int64 (or a dtype)", found=int(array.max()))
    return converted(array, d)


def _plain(data: Any) -> Any:
    """Return `data` with the tensors and arrays inside its lists replaced by NumPy arrays."""
    if isinstance(data, list | tuple):
        return [_plain(x) for x in data]
    return np.asarray(data) if hasattr(data, "__array__") else data


def _item_dtypes(plain: Any) -> set[DType]:
    """Return the dtypes of the numbers and arrays in nested lists; for Python numbers the default dtypes."""
    if isinstance(plain, list | range):
        return set[DType]().union(*map(_item_dtypes, plain))
    return {dtype_of(plain.dtype) if is_array(plain) else from_data_dtype(plain)}


@guard_methods
class CreationMixin(TensorBase):
    """Define the methods that create Tensors; a base class of Tensor."""

    __slots__ = ()

    @classmethod
    def _make(cls, uop: UOp, device: Any, requires_grad: bool) -> Self:
        t = cls._wrap(uop if device is None else on_device(uop, as_device(device)))
        if requires_grad:
            t.requires_grad = True
        return t

    @classmethod
    def full(
        cls,
        size: Sizes,
        fill_value: TensorLike,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor of shape `size` (an int or a tuple) filled with `fill_value`.

        `fill_value` is a number, or a tensor that broadcasts to `size`. The dtype defaults to that of the value: bool,
        int64 or float32 for a Python number. An int wraps to a given integer dtype. Raises ShapeError for a negative
        size, DTypeError for an int outside of int64, or outside of all integer dtypes if `dtype` is given.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        shape = check_sizes(as_sizes((size,)))
        if isinstance(fill_value, TensorBase):
            u = fill_value._uop if dtype is None else cast(fill_value._uop, as_dtype(dtype))
            return cls._make(broadcast_to(u, shape), device, requires_grad)
        given = None if dtype is None else as_dtype(dtype)
        d = given or from_data_dtype(fill_value)
        value = fill_value.item() if is_scalar(fill_value) else fill_value
        return cls._make(full(shape, _checked(value, d, given), d), device, requires_grad)

    @classmethod
    def zeros(
        cls, *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return zeros of shape `size` (ints or one tuple), float32 unless `dtype` is given.

        Raises ShapeError for a negative size.

        >>> Tensor.zeros(2, 2).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        return cls._make(full(check_sizes(as_sizes(size)), 0, d), device, requires_grad)

    @classmethod
    def ones(
        cls, *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return ones of shape `size` (ints or one tuple), float32 unless `dtype` is given.

        Raises ShapeError for a negative size.

        >>> Tensor.ones(2, dtype=dtypes.int64).tolist()
        [1, 1]
        """
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        return cls._make(full(check_sizes(as_sizes(size)), 1, d), device, requires_grad)

    @classmethod
    def empty(
        cls, *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return an uninitialized tensor of shape `size`, float32 unless `dtype` is given; assign to it before reading
        it.

        >>> t = Tensor.empty(2)
        >>> t.assign(Tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        shape, d = check_sizes(as_sizes(size)), dtypes.float32 if dtype is None else as_dtype(dtype)
        out = cls._wrap(_new_memory(shape, d, as_device(device)))
        out.requires_grad = requires_grad
        return out

    def full_like(
        self,
        fill_value: TensorLike,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor of this shape filled with `fill_value`; dtype and device default to this tensor's.

        >>> Tensor.ones(2, 3).full_like(7).shape
        (2, 3)
        """
        d = self.dtype if dtype is None else as_dtype(dtype)
        u = full(self.shape, fill_value, d)
        if device is None and isinstance(self.device, tuple):
            return self._make(to_devices_of(u, self._uop), None, requires_grad)
        return self._make(u, device or self.device, requires_grad)

    def zeros_like(
        self, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return zeros of this shape; dtype and device default to this tensor's.

        >>> Tensor([1, 2]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, dtype=dtype, device=device, requires_grad=requires_grad)

    def ones_like(
        self, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return ones of this shape; dtype and device default to this tensor's.

        >>> Tensor([5, 6]).ones_like(dtype=dtypes.float32).tolist()
        [1.0, 1.0]
        """
        return self.full_like(1, dtype=dtype, device=device, requires_grad=requires_grad)

    def empty_like(
        self, *, dtype: DTypeLike | None = None, device: DeviceLike | None = None, requires_grad: bool = False
    ) -> Self:
        """Return an uninitialized tensor of this shape, to be assigned to before it is read; dtype and device default
        to this tensor's.

        >>> Tensor.ones(2, 3).empty_like().shape
        (2, 3)
        """
        d = self.dtype if dtype is None else as_dtype(dtype)
        return self._make(_new_memory(self.shape, d, as_device(device or self.device)), None, requires_grad)

    @classmethod
    def buffer(cls, *size: Sizes, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Self:
        """Return float32 zeros (or zeros of `dtype`) of shape `size` in a buffer that assignments update in place.

        >>> t = Tensor.buffer(3)
        >>> t[1] = 5
        >>> t.tolist()
        [0.0, 5.0, 0.0]
        """
        shape, d = check_sizes(as_sizes(size)), dtypes.float32 if dtype is None else as_dtype(dtype)
        b = _new_memory(shape, d, as_device(device))
        return cls._wrap(build("AFTER", b, build("STORE", b, full(shape, 0, d))))

    @classmethod
    def arange(
        cls,
        start: Number | Size,
        end: Number | Size | None = None,
        step: Number | Size = 1,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return the 1-d tensor start, start + step, ... below `end` (above it for a negative step).

        With one argument it counts from 0. The dtype is int64 if all arguments are ints, else float32. `end` may be a
        symbolic size if start is 0 and step is 1. Raises ArgumentError for a step of 0.

        >>> Tensor.arange(2, 10, 3).tolist()
        [2, 5, 8]
        """
        given_numbers: tuple[Any, ...] = (0, start, step) if end is None else (start, end, step)
        numbers = first, last, by = tuple([x.item() if is_scalar(x) else x for x in given_numbers])
        if by == 0:
            raise ArgumentError("arange: the step must not be zero", expected="a step other than 0", found=by)
        if any(x.__class__ is UOp or hasattr(x, "uop") for x in numbers):
            (n,) = check_sizes((as_size(last, "end"),)) if first == 0 and by == 1 else _no_symbolic(numbers)
        else:
            n = max(0, ceil((last - first) / by))
        floats = any(isinstance(x, float) for x in numbers)
        given = None if dtype is None else as_dtype(dtype)
        d = given or (dtypes.float32 if floats else dtypes.int64)
        if n.__class__ is int and n:
            for x in (first, first + (n - 1) * by):
                _checked(x, d, given)
        counter = d if d.is_int else dtypes.int64 if floats else dtypes.int32
        u = iota(n, counter)
        if d.is_float:
            wide = dtypes.float64 if d.bits == 64 else dtypes.float32
            u = cast(u, wide)
        u = u if by == 1 else e("MUL", u, by)
        u = u if first == 0 else e("ADD", u, first)
        return cls._make(cast(u, d), device, requires_grad)

    @classmethod
    def linspace(
        cls,
        start: float,
        end: float,
        steps: int,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return `steps` evenly spaced numbers from `start` to `end`, both included; float32 unless `dtype` is given.

        For an integer dtype both ends are rounded toward zero first, as in PyTorch, and so is each exact value.
        PyTorch's values may differ by one where its float steps round. Raises ArgumentError for negative `steps`.

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        steps = as_int(steps, "steps")
        if steps < 0:
            raise ArgumentError("linspace: bad number of steps", expected="at least 0", found=steps)
        ends: tuple[Any, Any] = (start, end)
        start, end = (x.item() if is_scalar(x) else x for x in ends)
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        if d.is_int and isfinite(start) and isfinite(end):
            start, end = int(start), int(end)
        if d.is_int and steps > 1 and (exact := _whole_steps(start, end, steps)) is not None:
            return cls._make(cast(exact, d), device, requires_grad)
        wide = d if d.is_float and d.bits >= 32 else dtypes.float32
        i = iota(steps, dtypes.int32)
        if steps < 2:
            return cls._make(cast(full((steps,), start, wide), d), device, requires_grad)
        # counting from both ends makes the last value exactly `end`
        step = (end - start) / (steps - 1)
        if isinf(step):  # of ends whose distance overflows
            step = end / (steps - 1) - start / (steps - 1)
        up = e("ADD", e("MUL", cast(i, wide), step), start)
        down = e("SUB", const(end, wide), e("MUL", cast(e("SUB", const(steps - 1, dtypes.int32), i), wide), step))
        u = build("WHERE", e("CMPLT", i, steps // 2), up, down)
        return cls._make(cast(u, d), device, requires_grad)

    @classmethod
    def eye(
        cls,
        n: int,
        m: int | None = None,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return an (n, m) matrix with ones on the diagonal, zeros elsewhere; m defaults to n, the dtype to float32.

        >>> Tensor.eye(2, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        n, m = check_sizes((as_size(n), as_size(n if m is None else m)))
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        same = negate(build("CMPNE", iota(n, axis=0, rank=2), iota(m, axis=1, rank=2)))
        return cls._make(cast(same, d), device, requires_grad)

    def tril(self, diagonal: int = 0) -> Self:
        """Return this tensor with zeros above the diagonal number `diagonal` of its last two axes.

        Diagonal 0 is the main one, 1 the one above it. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.ones(2, 3).tril().tolist()
        [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
        """
        return self._triangle(diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Self:
        """Return this tensor with zeros below the diagonal number `diagonal` of its last two axes.

        Diagonal 0 is the main one, 1 the one above it. Raises ShapeError for fewer than 2 axes.

        >>> Tensor.ones(2, 3).triu(1).tolist()
        [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
        """
        return self._triangle(diagonal, lower=False)

    def _triangle(self, diagonal: int, lower: bool) -> Self:
        u, rank = self._uop, self.ndim
        if rank < 2:
            raise ShapeError("tril and triu need a matrix", expected="at least 2 axes", found=f"shape {self.shape}")
        row, column = iota(u.shape[-2], axis=rank - 2, rank=rank), iota(u.shape[-1], axis=rank - 1, rank=rank)
        row = row + as_int(diagonal, "diagonal")
        mask = less(column, row + 1) if lower else less(row + -1, column)
        return self._wrap(where(mask, u, 0))

    def one_hot(self, num_classes: int = -1) -> Self:
        """Return int64 of shape (*shape, num_classes): 1 at the class that each element names, 0 elsewhere.

        With -1 the number of classes is the largest element plus 1: the call computes self, and raises JitError inside
        a captured step. Raises DTypeError for floats and bools, ArgumentError for another num_classes below 1 and for
        -1 with no elements or one below 0, and under `CHECK_BOUNDS=1` IndexRangeError for a class outside
        [0, num_classes).

        >>> Tensor([1, 0]).one_hot(3).tolist()
        [[0, 1, 0], [1, 0, 0]]
        """
        if not self.dtype.is_int:
            raise DTypeError("one_hot needs integers", expected="an integer dtype", found=self.dtype.name)
        n = as_int(num_classes, "num_classes")
        if n == -1 and 0 not in self.shape:
            values = self.numpy()
            n = int(values.max()) + 1 if values.min() >= 0 else n
        if n < 1:
            raise ArgumentError("one_hot: the number of classes", expected="at least 1", found=n)
        check_range(self, n, "one_hot")
        column = cast(self._uop, dtypes.index)
        column = column if not self.shape else self.reshape(*self.shape, 1)._uop
        same = negate(build("CMPNE", cast(column, dtypes.index), iota(n, axis=self.ndim, rank=self.ndim + 1)))
        return self._wrap(cast(same, dtypes.int64))

    @classmethod
    def from_numpy(cls, array: np.ndarray) -> Self:
        """Return a tensor of a NumPy array; it shares the array's memory where layout and alignment allow, else the
        values are copied.

        >>> a = np.zeros(16, np.float32)
        >>> t = Tensor.from_numpy(a)
        >>> a[0] = 7
        >>> t[0].item()
        7.0
        """
        return cls(np.asarray(array))  # type: ignore[call-arg]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Map a file and return its bytes as a uint8 tensor of shape (n,) on the device `disk:path`.

        A slice that is moved to another device, and bitcast there, reads only its own pages. Raises FileFormatError
        where the file is missing or empty.

        >>> import tempfile, os
        >>> with tempfile.NamedTemporaryFile(delete=False) as f:
        ...     _ = f.write(bytes(range(16)))
        >>> Tensor.from_file(f.name)[4:8].to("cpu").tolist()
        [4, 5, 6, 7]
        >>> os.unlink(f.name)
        """
        return cls._wrap(open_disk(f"disk:{os.fspath(path)}"))


def _no_symbolic(numbers: tuple) -> Any:
    raise ArgumentError("arange over a symbolic size", expected="start 0 and step 1", found=numbers)


def _whole_steps(start: float, end: float, steps: int) -> UOp | None:
    """Return `linspace(start, end, steps)` in int64, rounded toward zero; None if an end is not a whole number or int64
    overflows.
    """
    if not (float(start).is_integer() and float(end).is_integer()):
        return None
    first, last, n = int(start), int(end), steps - 1
    if max(abs(first), abs(last)) * n > dtypes.int64.max // 2:
        return None
    total = e("ADD", e("MUL", iota(steps, dtypes.int64), last - first), first * n)
    size = e("IDIV", absolute(total), n)
    return build("WHERE", e("CMPLT", total, 0), build("NEG", size), size)


def from_data_dtype(value: Any) -> DType:
    """Return the default dtype of the Python or NumPy number `value`: bool, int64 or float32.

    Raises DTypeError for another object.
    """
    if is_scalar(value):
        value = value.item()
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.int64
    if isinstance(value, float):
        return dtypes.float32
    raise DTypeError("not a number", expected="a number", found=repr(value))


__all__ = ["CreationMixin", "from_data", "from_data_dtype"]

"""Making tensors: from Python and NumPy data, from one value, and from counting.

What it is for: the class methods `Tensor.zeros`, `arange`, `eye` and their kin.
Invariant: only data from outside takes memory here. Everything else is CONST and IOTA arithmetic, which costs no
kernel: it is computed where it is used.
"""

from __future__ import annotations

import os
from array import array as packed
from math import ceil, isinf
from typing import TYPE_CHECKING, Any

from monolect.autograd.graph import broadcast_to, cast, e, full, iota
from monolect.autograd.special import absolute
from monolect.base.dtype import INTS, DType, as_dtype, as_python, converted, dtypes
from monolect.base.errors import ArgumentError, DTypeError, ShapeError
from monolect.base.numpy import is_array, is_scalar, np
from monolect.ir.rewrite.normal import less, negate
from monolect.ir.uop import UOp, build, const, new_buffer
from monolect.runtime.buffer import LETTERS, from_bytes, from_numpy, open_disk
from monolect.tensor.base import TensorBase, as_device, as_int, as_size, as_sizes, check_sizes, on_device
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.index import check_range

if TYPE_CHECKING:
    from monolect.tensor.tensor import Tensor


def from_data(data: Any, device: Any, dtype: DType | None) -> UOp:
    """The node of `data`: a CONST for a number, otherwise a BUFFER that holds it."""
    if isinstance(data, bool | int | float):
        d = dtype or (
            dtypes.bool if isinstance(data, bool) else dtypes.int64 if isinstance(data, int) else dtypes.float32
        )
        return on_device(const(_held(data, d, dtype), d), device)
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


def _held(value: Any, d: DType, asked: DType | None) -> Any:
    """`value`, if it is no integer that the default dtype, or every dtype, would cut off. Raises DTypeError."""
    low, high = (d.min, d.max) if asked is None else (dtypes.int64.min, dtypes.uint64.max)
    if value.__class__ is int and d.is_int and not low <= value <= high:
        expected = f"{low}..{high}" + (" (or a dtype)" if asked is None else "")
        raise DTypeError("an integer does not fit", expected=expected, found=value)
    return value


# the dtype that Python's numbers take, and others that hold the same values where they do not overflow
_DTYPES = {
    bool: (dtypes.bool,),
    int: (dtypes.int64, *(d for d in INTS if d is not dtypes.int64)),
    float: (dtypes.float32, dtypes.float64),
}


def _numbers(data: Any, dtype: DType | None) -> tuple[bytes, tuple[int, ...], DType] | None:
    """Numbers of one kind in nested lists as (elements in a row, shape, dtype); None for anything else."""
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
        return row or packed(LETTERS[d], [as_python(_held(x, d, dtype), d) for x in data]).tobytes(), tuple(shape), d
    return None


def _array(data: Any, dtype: DType | None) -> np.ndarray:
    """Nested sequences as an array with this library's default dtypes. Raises ShapeError for ragged ones."""
    if not isinstance(data, list | tuple | range) and hasattr(data, "__array__"):
        return np.asarray(data) if dtype is None else converted(np.asarray(data), dtype)
    try:
        array = np.array(_plain(data))
    except ValueError:
        raise ShapeError("the lists are ragged", expected="lists of equal length", found=repr(data)[:80]) from None
    except OverflowError:
        raise DTypeError("an integer does not fit", expected="a value of int64", found=repr(data)[:80]) from None
    if array.dtype.kind not in "biuf":
        raise DTypeError("a tensor holds numbers", expected="numbers, or nested lists of them", found=repr(data)[:80])
    if dtype is not None:
        if dtype.is_int and array.dtype.kind == "f":  # floats next to integers, which a float may not hold
            exact = np.array(_plain(data), object)
            return np.array([as_python(x, dtype) for x in exact.ravel()], dtype.numpy).reshape(exact.shape)
        return converted(array, dtype)
    if array.dtype.kind == "u" and array.size and int(array.max()) > dtypes.int64.max:
        raise DTypeError("an integer does not fit", expected="values of int64 (or a dtype)", found=int(array.max()))
    return array.astype({"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float32}[array.dtype.kind])


def _plain(data: Any) -> Any:
    """`data` with tensors and arrays inside lists replaced by values NumPy can join."""
    if isinstance(data, list | tuple):
        return [_plain(x) for x in data]
    return np.asarray(data) if hasattr(data, "__array__") else data


@guard_methods
class CreationMixin(TensorBase):
    """Class methods that make tensors."""

    __slots__ = ()

    @classmethod
    def _make(cls, uop: UOp, device: Any, requires_grad: bool) -> Tensor:
        t = cls._wrap(uop if device is None else on_device(uop, as_device(device)))
        if requires_grad:
            t.requires_grad = True
        return t

    @classmethod
    def full(
        cls, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        """`fill_value` everywhere.

        >>> Tensor.full((2, 2), 7).tolist()
        [[7, 7], [7, 7]]
        """
        shape = check_sizes(as_sizes((size,)))
        if isinstance(fill_value, TensorBase):
            u = fill_value._uop if dtype is None else cast(fill_value._uop, as_dtype(dtype))
            return cls._make(broadcast_to(u, shape), device, requires_grad)
        asked = None if dtype is None else as_dtype(dtype)
        d = asked or from_data_dtype(fill_value)
        value = fill_value.item() if is_scalar(fill_value) else fill_value
        return cls._make(full(shape, _held(value, d, asked), d), device, requires_grad)

    @classmethod
    def zeros(cls, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """Zeros, float32 unless `dtype` says otherwise.

        >>> Tensor.zeros(2, 2).tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        return cls._make(full(check_sizes(as_sizes(size)), 0, d), device, requires_grad)

    @classmethod
    def ones(cls, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """Ones, float32 unless `dtype` says otherwise.

        >>> Tensor.ones(2, dtype=dtypes.int64).tolist()
        [1, 1]
        """
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        return cls._make(full(check_sizes(as_sizes(size)), 1, d), device, requires_grad)

    @classmethod
    def empty(cls, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        """A tensor of `size` to be assigned to; until then it holds whatever its memory held.

        >>> t = Tensor.empty(2)
        >>> t.assign(Tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        shape, d = check_sizes(as_sizes(size)), dtypes.float32 if dtype is None else as_dtype(dtype)
        out = cls._wrap(new_buffer(shape, d, as_device(device)))
        out.requires_grad = requires_grad
        return out

    def full_like(self, fill_value: Any, *, dtype: Any = None, device: Any = None) -> Tensor:
        """`fill_value` in the shape, dtype and device of this tensor.

        >>> Tensor.ones(2, 3).full_like(7).shape
        (2, 3)
        """
        d = self.dtype if dtype is None else as_dtype(dtype)
        return self._wrap(on_device(full(self.shape, fill_value, d), as_device(device or self.device)))

    def zeros_like(self, *, dtype: Any = None, device: Any = None) -> Tensor:
        """Zeros in the shape, dtype and device of this tensor.

        >>> Tensor([1, 2]).zeros_like().tolist()
        [0, 0]
        """
        return self.full_like(0, dtype=dtype, device=device)

    def ones_like(self, *, dtype: Any = None, device: Any = None) -> Tensor:
        """Ones in the shape, dtype and device of this tensor.

        >>> Tensor([5, 6]).ones_like(dtype=dtypes.float32).tolist()
        [1.0, 1.0]
        """
        return self.full_like(1, dtype=dtype, device=device)

    def empty_like(self, *, dtype: Any = None, device: Any = None) -> Tensor:
        """A tensor of this shape, dtype and device to be assigned to. See `empty`.

        >>> Tensor.ones(2, 3).empty_like().shape
        (2, 3)
        """
        d = self.dtype if dtype is None else as_dtype(dtype)
        return self._wrap(new_buffer(self.shape, d, as_device(device or self.device)))

    @classmethod
    def buffer(cls, *size: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """Zeros with storage of their own: assignments go into it in place.

        >>> t = Tensor.buffer(3)
        >>> t[1] = 5
        >>> t.tolist()
        [0.0, 5.0, 0.0]
        """
        shape, d = check_sizes(as_sizes(size)), dtypes.float32 if dtype is None else as_dtype(dtype)
        b = new_buffer(shape, d, as_device(device))
        return cls._wrap(build("AFTER", b, build("STORE", b, full(shape, 0, d))))

    @classmethod
    def arange(
        cls,
        start: Any,
        end: Any = None,
        step: Any = 1,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """start, start + step, ... below `end`: int64 when all are ints, otherwise float32.

        Raises ArgumentError for a step of 0.

        >>> Tensor.arange(2, 10, 3).tolist()
        [2, 5, 8]
        """
        start, end, step = (x.item() if is_scalar(x) else x for x in (start, end, step))
        if end is None:
            start, end = 0, start
        if step == 0:
            raise ArgumentError("arange: the step must not be zero", expected="a step other than 0", found=step)
        numbers = (start, end, step)
        if any(x.__class__ is UOp or hasattr(x, "uop") for x in numbers):
            (n,) = check_sizes((as_size(end, "end"),)) if start == 0 and step == 1 else _no_symbolic(numbers)
        else:
            n = max(0, ceil((end - start) / step))
        floats = any(isinstance(x, float) for x in numbers)
        asked = None if dtype is None else as_dtype(dtype)
        d = asked or (dtypes.float32 if floats else dtypes.int64)
        if n.__class__ is int and n:
            for x in (start, start + (n - 1) * step):
                _held(x, d, asked)
        counter = d if d.is_int else dtypes.int64 if floats else dtypes.int32
        u = iota(n, counter)
        if d.is_float:
            wide = dtypes.float64 if d.bits == 64 else dtypes.float32
            u = cast(u, wide)
        u = u if step == 1 else e("MUL", u, step)
        u = u if start == 0 else e("ADD", u, start)
        return cls._make(cast(u, d), device, requires_grad)

    @classmethod
    def linspace(
        cls, start: float, end: float, steps: int, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        """`steps` evenly spaced numbers from `start` to `end`, both included.

        Raises ArgumentError for negative `steps`.

        >>> Tensor.linspace(0, 1, 5).tolist()
        [0.0, 0.25, 0.5, 0.75, 1.0]
        """
        steps = as_int(steps, "steps")
        if steps < 0:
            raise ArgumentError("linspace: bad number of steps", expected="at least 0", found=steps)
        ends: tuple[Any, Any] = (start, end)
        start, end = (x.item() if is_scalar(x) else x for x in ends)
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
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
        cls, n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        """Ones on the diagonal of an (n, m) matrix, zeros elsewhere.

        >>> Tensor.eye(2, 3).tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        """
        n, m = check_sizes((as_size(n), as_size(n if m is None else m)))
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        same = negate(build("CMPNE", iota(n, axis=0, rank=2), iota(m, axis=1, rank=2)))
        return cls._make(cast(same, d), device, requires_grad)

    def tril(self, diagonal: int = 0) -> Tensor:
        """The tensor with zeros above a diagonal of its last two axes.

        >>> Tensor.ones(2, 3).tril().tolist()
        [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
        """
        return self._triangle(diagonal, lower=True)

    def triu(self, diagonal: int = 0) -> Tensor:
        """The tensor with zeros below a diagonal of its last two axes.

        >>> Tensor.ones(2, 3).triu(1).tolist()
        [[0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]
        """
        return self._triangle(diagonal, lower=False)

    def _triangle(self, diagonal: int, lower: bool) -> Tensor:
        u, rank = self._uop, self.ndim
        if rank < 2:
            raise ShapeError("tril and triu need a matrix", expected="at least 2 axes", found=f"shape {self.shape}")
        row, column = iota(u.shape[-2], axis=rank - 2, rank=rank), iota(u.shape[-1], axis=rank - 1, rank=rank)
        row = row + as_int(diagonal, "diagonal")
        mask = less(column, row + 1) if lower else less(row + -1, column)
        return self._wrap(build("WHERE", mask, u, const(0, u.dtype)))

    def one_hot(self, num_classes: int) -> Tensor:
        """1 at the position each element names on a new last axis, 0 elsewhere; int64, shape (*shape, num_classes).

        Raises DTypeError for floats, IndexRangeError under `CHECK_BOUNDS=1` for a class outside [0, num_classes).

        >>> Tensor([1, 0]).one_hot(3).tolist()
        [[0, 1, 0], [1, 0, 0]]
        """
        if not self.dtype.is_int:
            raise DTypeError("one_hot needs integers", expected="an integer dtype", found=self.dtype.name)
        n = as_int(num_classes, "num_classes")
        if n < 1:
            raise ArgumentError("one_hot: the number of classes", expected="at least 1", found=n)
        check_range(self, n, "one_hot")
        column = cast(self._uop, dtypes.index)
        column = column if not self.shape else self.reshape(*self.shape, 1)._uop
        same = negate(build("CMPNE", cast(column, dtypes.index), iota(n, axis=self.ndim, rank=self.ndim + 1)))
        return self._wrap(cast(same, dtypes.int64))

    @classmethod
    def from_numpy(cls, array: Any) -> Tensor:
        """A tensor over a NumPy array; it shares the memory where layout and alignment allow.

        >>> a = np.zeros(16, np.float32)
        >>> t = Tensor.from_numpy(a)
        >>> a[0] = 7
        >>> t[0].item()
        7.0
        """
        return cls(np.asarray(array))  # type: ignore[call-arg,return-value]

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Tensor:
        """The bytes of a file as a uint8 tensor (n,) on the device `disk:path`, mapped, not read.

        A slice that is moved to another device, and bitcast there, reads only its own pages. Raises FileFormatError
        when the file is missing or empty.

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
    """From `start` to `end`, rounded toward zero, in int64; None where an end is not whole, or that overflows."""
    if not (float(start).is_integer() and float(end).is_integer()):
        return None
    first, last, n = int(start), int(end), steps - 1
    if max(abs(first), abs(last)) * n > dtypes.int64.max // 2:
        return None
    total = e("ADD", e("MUL", iota(steps, dtypes.int64), last - first), first * n)
    size = e("IDIV", absolute(total), n)
    return build("WHERE", e("CMPLT", total, 0), build("NEG", size), size)


def from_data_dtype(value: Any) -> DType:
    """The dtype a Python number takes when none is asked for."""
    if is_scalar(value):
        value = value.item()
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.int64
    if isinstance(value, float):
        return dtypes.float32
    raise DTypeError("not a number", expected="a number", found=repr(value))

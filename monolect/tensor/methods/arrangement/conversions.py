"""Methods that make a Tensor of other data, and ask about dtypes, by PyTorch's names."""

from __future__ import annotations

from math import floor, log10
from typing import Any, NamedTuple, Self

from monolect.base.dtype import DType, as_dtype, dtypes, promote
from monolect.base.errors import ArgumentError, DTypeError
from monolect.base.numpy import np
from monolect.tensor.base import Data, DeviceLike, DTypeLike, Number, TensorBase, TensorLike, as_int
from monolect.tensor.guard import guard_methods
from monolect.tensor.methods.in_place import kind_rank

# float dtype -> (bits of the fraction, exponent of the least normal number, largest number)
_FLOATS = {
    "float64": (52, -1022, (2.0 - 2.0**-52) * 2.0**1023),
    "float32": (23, -126, (2.0 - 2.0**-23) * 2.0**127),
    "bfloat16": (7, -126, (2.0 - 2.0**-7) * 2.0**127),
    "float16": (10, -14, 65504.0),
    "fp8e4m3": (3, -6, 448.0),
    "fp8e5m2": (2, -14, 57344.0),
}


class FloatLimits(NamedTuple):
    """The result of `finfo`: `eps` is the distance from 1 to the next number, `resolution` a power of ten near it."""

    bits: int
    dtype: DType
    eps: float
    max: float
    min: float
    resolution: float
    smallest_normal: float
    tiny: float


class IntLimits(NamedTuple):
    """The result of `iinfo`."""

    bits: int
    dtype: DType
    max: int
    min: int


@guard_methods
class ConversionsMixin(TensorBase):
    """Methods of Tensor that make tensors of other data, and ask about dtypes."""

    __slots__ = ()

    @classmethod
    def asarray(
        cls,
        obj: Data,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        copy: bool | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor of `obj`, or `obj` itself where it is a tensor of that dtype on that device.

        `copy` True makes new memory; False raises ArgumentError where a tensor cannot be returned as it is.

        >>> x = Tensor([1, 2])
        >>> Tensor.asarray(x) is x, Tensor.asarray([1, 2], dtype=dtypes.float32).tolist()
        (True, [1.0, 2.0])
        """
        kind: Any = cls
        given: Any = obj  # a tensor or other data
        if isinstance(given, TensorBase):
            made: Any = given.to(device=device, dtype=dtype)
            made = made.clone() if copy else made
        else:
            made = (kind._copy_of if copy else kind)(given, dtype=dtype, device=device)
        if copy is False and made is not given:
            raise ArgumentError("asarray: copy", expected="copy=None for what is no such tensor", found="copy=False")
        out: Self = made.detach().requires_grad_() if requires_grad else made
        return out

    @classmethod
    def as_tensor(cls, data: Data, dtype: DTypeLike | None = None, device: DeviceLike | None = None) -> Self:
        """Return a tensor of `data`, or `data` itself where it is a tensor of that dtype on that device.

        >>> Tensor.as_tensor([1, 2]).tolist()
        [1, 2]
        """
        return cls.asarray(data, dtype=dtype, device=device)

    @classmethod
    def scalar_tensor(
        cls,
        s: Number,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return a tensor without axes that holds the number `s`, float32 unless `dtype` is given.

        >>> Tensor.scalar_tensor(3).item()
        3.0
        """
        kind: Any = cls
        d = dtypes.float32 if dtype is None else dtype
        made: Self = kind.full((), s, dtype=d, device=device, requires_grad=requires_grad)
        return made

    @classmethod
    def frombuffer(
        cls,
        buffer: bytes | bytearray | memoryview,
        *,
        dtype: DTypeLike,
        count: int = -1,
        offset: int = 0,
        requires_grad: bool = False,
    ) -> Self:
        """Return a vector of the bytes of `buffer` from `offset` on, as `count` numbers of `dtype`, or all for -1.

        It shares the memory where that is possible. Raises ArgumentError where the bytes do not suffice.

        >>> Tensor.frombuffer(bytearray([1, 0, 2, 0]), dtype=dtypes.int16).tolist()
        [1, 2]
        """
        kind: Any = cls
        d = as_dtype(dtype)
        made: Self = kind(np.frombuffer(buffer, d.numpy, count, offset), dtype=d)
        return made.requires_grad_() if requires_grad else made

    @classmethod
    def logspace(
        cls,
        start: float,
        end: float,
        steps: int,
        base: float = 10.0,
        *,
        dtype: DTypeLike | None = None,
        device: DeviceLike | None = None,
        requires_grad: bool = False,
    ) -> Self:
        """Return `steps` powers of `base`, with evenly spaced exponents from `start` to `end`, both included.

        They are float32 unless `dtype` is given. Raises ArgumentError for negative `steps`.

        >>> Tensor.logspace(0, 2, 3).tolist()
        [1.0, 10.0, 100.0]
        """
        kind: Any = cls
        d = dtypes.float32 if dtype is None else as_dtype(dtype)
        wide = dtypes.float64 if d.bits > 32 or d.is_int else dtypes.float32
        exponents = kind.linspace(start, end, as_int(steps, "steps"), dtype=wide, device=device)
        made: Self = (exponents.full_like(base) ** exponents).cast(d)
        return made.requires_grad_() if requires_grad else made

    @classmethod
    def is_tensor(cls, obj: object) -> bool:
        """Return whether `obj` is a Tensor.

        >>> Tensor.is_tensor(Tensor(1)), Tensor.is_tensor(1)
        (True, False)
        """
        return isinstance(obj, TensorBase)

    # ---- dtypes ------------------------------------------------------------------------------------------------------
    @classmethod
    def promote_types(cls, type1: DTypeLike, type2: DTypeLike) -> DType:
        """Return the dtype of a result of operands of two dtypes.

        >>> Tensor.promote_types(dtypes.int32, dtypes.float16)
        dtypes.float16
        """
        return promote(as_dtype(type1), as_dtype(type2))

    def result_type(self, other: TensorLike) -> DType:
        """Return the dtype of `self + other`, where `other` is a tensor or a number.

        >>> Tensor([1]).result_type(1.5), Tensor([1], dtype=dtypes.int8).result_type(Tensor(2))
        (dtypes.float32, dtypes.int8)
        """
        x: Any = self
        found: DType = x._in_common(other)[0].dtype
        return found

    @classmethod
    def can_cast(cls, from_: DTypeLike, to: DTypeLike) -> bool:
        """Return whether an in-place operation may write a result of dtype `from_` to one of `to`: no floats to
        integers, no numbers to bools.

        >>> Tensor.can_cast(dtypes.int64, dtypes.int8), Tensor.can_cast(dtypes.float32, dtypes.int64)
        (True, False)
        """
        return kind_rank(as_dtype(from_)) <= kind_rank(as_dtype(to))

    @classmethod
    def finfo(cls, type: DTypeLike | None = None) -> FloatLimits:
        """Return the limits of a float dtype, by default float32. Raises DTypeError for another dtype.

        >>> Tensor.finfo(dtypes.float16).max, Tensor.finfo().eps == 2.0**-23
        (65504.0, True)
        """
        d = dtypes.float32 if type is None else as_dtype(type)
        if d.name not in _FLOATS:
            raise DTypeError("finfo", expected="a float dtype", found=d.name)
        digits, least, most = _FLOATS[d.name]
        resolution = 10.0 ** -floor(digits * log10(2.0))
        return FloatLimits(d.bits, d, 2.0**-digits, most, -most, resolution, 2.0**least, 2.0**least)

    @classmethod
    def iinfo(cls, type: DTypeLike) -> IntLimits:
        """Return the limits of an integer dtype. Raises DTypeError for another dtype.

        >>> Tensor.iinfo(dtypes.int8).min
        -128
        """
        d = as_dtype(type)
        if not d.is_int:
            raise DTypeError("iinfo", expected="an integer dtype", found=d.name)
        return IntLimits(d.bits, d, d.max, d.min)


__all__ = ["ConversionsMixin", "FloatLimits", "IntLimits"]

"""Dtypes of the array API, their limits and promotion, and what the namespace can do.

Invariant: promotion is by dtype alone, also of arrays without axes. Beyond the standard, an integer and a float give
the float dtype, bool and a number the number's dtype, and uint64 and a signed integer float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from monolect.array_api.operands import array_of
from monolect.backend.registry import Device
from monolect.base.dtype import DType, as_dtype, dtypes, promote, scalar_dtype, to_numpy
from monolect.base.errors import ArgumentError, DTypeError
from monolect.base.numpy import np
from monolect.tensor.base import DeviceLike, DTypeLike, Number
from monolect.tensor.guard import guarded
from monolect.tensor.tensor import Tensor

OF_STANDARD: tuple[DType, ...] = (
    dtypes.bool, dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.uint32,
    dtypes.uint64, dtypes.float32, dtypes.float64,
)  # fmt: skip
KINDS = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "",
    "numeric": "iuf",
}  # kind of the standard: letters of DType.kind


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a float dtype: `bits`, `eps`, `max`, `min`, `smallest_normal` and `dtype`.

    >>> array_api.finfo(dtypes.float32).bits
    32
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntInfo:
    """Limits of an integer dtype: `bits`, `max`, `min` and `dtype`.

    >>> array_api.iinfo(dtypes.int8)
    IntInfo(bits=8, max=127, min=-128, dtype=dtypes.int8)
    """

    bits: int
    max: int
    min: int
    dtype: DType


@guarded
def finfo(type: Tensor | DTypeLike, /) -> FloatInfo:
    """Return the limits of a float dtype, or of the dtype of an array. Raises DTypeError for another dtype.

    >>> array_api.finfo(dtypes.float32).eps
    1.1920928955078125e-07
    """
    d = type.dtype if isinstance(type, Tensor) else as_dtype(type)
    if not d.is_float:
        raise DTypeError("finfo", expected="a float dtype", found=d.name)
    n = to_numpy(d)
    if n.kind == "f":
        info: Any = np.finfo(n)
    else:
        import ml_dtypes

        info = ml_dtypes.finfo(n)
    return FloatInfo(d.bits, float(info.eps), float(info.max), float(info.min), float(info.smallest_normal), d)


@guarded
def iinfo(type: Tensor | DTypeLike, /) -> IntInfo:
    """Return the limits of an integer dtype, or of the dtype of an array. Raises DTypeError for another dtype.

    >>> array_api.iinfo(dtypes.uint8).max
    255
    """
    d = type.dtype if isinstance(type, Tensor) else as_dtype(type)
    if not d.is_int:
        raise DTypeError("iinfo", expected="an integer dtype", found=d.name)
    return IntInfo(d.bits, d.max, d.min, d)


@guarded
def isdtype(dtype: DTypeLike, kind: DTypeLike | str | tuple[DTypeLike | str, ...]) -> bool:
    """Return whether `dtype` is of `kind`: a dtype, one of "bool", "signed integer", "unsigned integer", "integral",
    "real floating", "complex floating" and "numeric", or a tuple of these. Raises ArgumentError for another text.

    >>> array_api.isdtype(dtypes.int8, "integral"), array_api.isdtype(dtypes.int8, ("bool", dtypes.float32))
    (True, False)
    """
    d = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(d, k) for k in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ArgumentError("isdtype: kind", expected="a dtype or one of " + ", ".join(KINDS), found=repr(kind))
        return d.kind in KINDS[kind]
    return d is as_dtype(kind)


@guarded
def result_type(*arrays_and_dtypes: Tensor | DTypeLike | Number) -> DType:
    """Return the dtype of a result of arrays, dtypes and Python numbers. Raises ArgumentError for numbers alone.

    A Python number never widens a dtype of the same or a higher kind; next to a lower kind it gives int64 or float32.

    >>> array_api.result_type(dtypes.int8, dtypes.uint8), array_api.result_type(Tensor([1], dtype=dtypes.int8), 3)
    (dtypes.int16, dtypes.int8)
    """
    numbers = [x for x in arrays_and_dtypes if isinstance(x, bool | int | float)]
    others = [x for x in arrays_and_dtypes if not isinstance(x, bool | int | float)]
    if not others:
        raise ArgumentError("result_type", expected="an array or a dtype among the arguments", found=arrays_and_dtypes)
    found = promote(*(x.dtype if isinstance(x, Tensor) else as_dtype(x) for x in others))
    return promote(found, *(scalar_dtype(x, found) for x in numbers))


@guarded
def can_cast(from_: Tensor | DTypeLike, to: DTypeLike, /) -> bool:
    """Return whether the dtype `from_`, or that of an array, is promoted to the dtype `to` next to it.

    >>> array_api.can_cast(dtypes.int8, dtypes.int16), array_api.can_cast(dtypes.int16, dtypes.int8)
    (True, False)
    """
    return result_type(from_, to) is as_dtype(to)


@guarded
def astype(x: Tensor, dtype: DTypeLike, /, *, copy: bool = True, device: DeviceLike | None = None) -> Tensor:
    """Return `x` in `dtype`, on `device`; with `copy` False, `x` itself if nothing changes.

    Floats are truncated to integers and saturate; nan gives 0.

    >>> array_api.astype(Tensor([1.9, -1.9]), dtypes.int32).tolist()
    [1, -1]
    """
    y = array_of(x, "astype").to(device=device, dtype=dtype)
    return y.clone() if copy and y is x else y


class Info:
    """A description of the namespace: the object of `array_api.__array_namespace_info__()`.

    >>> array_api.__array_namespace_info__().default_device()
    'cpu'
    """

    def capabilities(self) -> dict[str, bool | int | None]:
        """Return what is optional in the standard.

        >>> array_api.__array_namespace_info__().capabilities()["boolean indexing"]
        True
        """
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": None}

    def default_device(self) -> str:
        """Return the device of new arrays.

        >>> array_api.__array_namespace_info__().default_device()
        'cpu'
        """
        return Device.default

    def devices(self) -> list[str]:
        """Return the devices that programs can run on here, the default device first.

        >>> "cpu" in array_api.__array_namespace_info__().devices()
        True
        """
        return [*dict.fromkeys((Device.default, *(name for name, missing in Device.present().items() if not missing)))]

    def default_dtypes(self, *, device: DeviceLike | None = None) -> dict[str, DType]:
        """Return the dtypes of new arrays by kind; they are the same on each device.

        >>> array_api.__array_namespace_info__().default_dtypes()
        {'real floating': dtypes.float32, 'integral': dtypes.int64, 'indexing': dtypes.int64}
        """
        return {"real floating": dtypes.float32, "integral": dtypes.int64, "indexing": dtypes.int64}

    def dtypes(
        self, *, device: DeviceLike | None = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the standard's dtypes of a `kind` of `isdtype`, by name; they are the same on each device.

        Raises ArgumentError for another kind.

        >>> [*array_api.__array_namespace_info__().dtypes(kind="real floating")]
        ['float32', 'float64']
        """
        return {d.name: d for d in OF_STANDARD if kind is None or isdtype(d, kind)}


def __array_namespace_info__() -> Info:
    """Return what the namespace can do.

    >>> array_api.__array_namespace_info__().default_dtypes()["integral"]
    dtypes.int64
    """
    return Info()


__all__ = [
    "FloatInfo",
    "Info",
    "IntInfo",
    "__array_namespace_info__",
    "astype",
    "can_cast",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
]

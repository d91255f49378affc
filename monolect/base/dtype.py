"""Define element types: names, sizes, limits, promotion and conversion.

Each type is one interned :class:`DType`, so equal types are identical. `index` is the type of sizes and loop variables:
it has no storage and becomes int32 or int64 when a target's width is chosen. bfloat16 and the fp8 types are storage
types; their NumPy dtypes are those of `ml_dtypes`, which is imported only when such an array is made.

Storage dtypes (kind s: formats of 8 and 4 bits that no target computes in) have values only through casts, by formulas
in `autograd/storage.py`: in the IR they are bytes that are stored, moved and reinterpreted. One of 4 bits takes a
byte, as in `ml_dtypes`. In arithmetic they count as float32.

Source: promotion follows PyTorch's lattice (a Python scalar never widens a tensor of the same or a higher category).
"""

from __future__ import annotations

import math
import struct
import sys
from functools import lru_cache
from typing import Any

from monolect.base.compiled import mypyc_attr
from monolect.base.errors import ArgumentError, DTypeError
from monolect.base.numpy import np


class DType:
    """An element type. `kind` is one of b (bool), i, u (integers), f (floats), s (storage), x (index), v (void)."""

    __slots__ = ("bits", "kind", "max", "min", "name", "priority", "short")

    def __init__(self, name: str, short: str, kind: str, bits: int, priority: int, lo: Any = None, hi: Any = None):
        self.name, self.short, self.kind, self.bits, self.priority = name, short, kind, bits, priority
        if lo is None and kind in "iux":
            lo, hi = (0, 2**bits - 1) if kind == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        self.min, self.max = lo, hi

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory (bool takes one)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iux"

    @property
    def is_unsigned(self) -> bool:
        return self.kind in "ub"

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> tuple:
        return (by_name, (self.name,))

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype of the same layout. Raises DTypeError for index and void."""
        return to_numpy(self)


_INF = math.inf


@mypyc_attr(native_class=False)
class dtypes:
    """The element types, by name; `half`, `float`, `double`, `short`, `int` and `long` are PyTorch's names of six.

    >>> dtypes.float16.itemsize, dtypes.float16.is_float, dtypes.int8.min
    (2, True, -128)
    """

    void = DType("void", "void", "v", 0, -1)
    bool = DType("bool", "b1", "b", 1, 0, False, True)
    index = DType("index", "idx", "x", 64, 0)
    uint8 = DType("uint8", "u8", "u", 8, 2)
    int8 = DType("int8", "i8", "i", 8, 1)
    uint16 = DType("uint16", "u16", "u", 16, 4)
    int16 = DType("int16", "i16", "i", 16, 3)
    uint32 = DType("uint32", "u32", "u", 32, 6)
    int32 = DType("int32", "i32", "i", 32, 5)
    uint64 = DType("uint64", "u64", "u", 64, 8)
    int64 = DType("int64", "i64", "i", 64, 7)
    fp8e4m3 = DType("fp8e4m3", "f8e4m3", "f", 8, 9, -448.0, 448.0)  # has no infinity
    fp8e5m2 = DType("fp8e5m2", "f8e5m2", "f", 8, 10, -_INF, _INF)
    float8_e4m3fnuz = DType("float8_e4m3fnuz", "f8e4m3fnuz", "s", 8, 13, -240.0, 240.0)  # no infinity, no -0.0
    float8_e5m2fnuz = DType("float8_e5m2fnuz", "f8e5m2fnuz", "s", 8, 13, -57344.0, 57344.0)  # no infinity, no -0.0
    float8_e8m0fnu = DType("float8_e8m0fnu", "f8e8m0fnu", "s", 8, 13, 2.0**-127, 2.0**127)  # powers of two, and nan
    float4_e2m1fn = DType("float4_e2m1fn", "f4e2m1fn", "s", 8, 13, -6.0, 6.0)  # no infinity, no nan
    int4 = DType("int4", "i4", "s", 8, 13, -8, 7)
    uint4 = DType("uint4", "u4", "s", 8, 13, 0, 15)
    float16 = DType("float16", "f16", "f", 16, 11, -_INF, _INF)
    bfloat16 = DType("bfloat16", "bf16", "f", 16, 12, -_INF, _INF)
    float32 = DType("float32", "f32", "f", 32, 13, -_INF, _INF)
    float64 = DType("float64", "f64", "f", 64, 14, -_INF, _INF)
    # the names PyTorch users type
    float8_e4m3fn: DType
    float8_e5m2: DType
    half: DType
    float: DType
    double: DType
    short: DType
    int: DType
    long: DType
    default_float: DType
    default_int: DType


dtypes.half, dtypes.float, dtypes.double = dtypes.float16, dtypes.float32, dtypes.float64
dtypes.float8_e4m3fn, dtypes.float8_e5m2 = dtypes.fp8e4m3, dtypes.fp8e5m2
dtypes.short, dtypes.int, dtypes.long = dtypes.int16, dtypes.int32, dtypes.int64
dtypes.default_float, dtypes.default_int = dtypes.float32, dtypes.int64


ALL: tuple[DType, ...] = tuple({v.name: v for v in vars(dtypes).values() if isinstance(v, DType)}.values())
BY_NAME: dict[str, DType] = {d.name: d for d in ALL} | {d.short: d for d in ALL}
BY_NAME |= {name: d for name, d in vars(dtypes).items() if isinstance(d, DType)}
USER: tuple[DType, ...] = tuple(d for d in ALL if d.kind not in "xvs")
STORED: tuple[DType, ...] = tuple(d for d in ALL if d.kind == "s")
FLOATS = tuple(d for d in USER if d.is_float)
INTS = tuple(d for d in USER if d.is_int)

_ML_NAMES = {"bfloat16": "bfloat16", "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}
_ML_NAMES |= {d.name: d.name for d in STORED}
_NUMPY: dict[str, np.dtype] = {}
_FORMS = {"float16": struct.Struct("e"), "float32": struct.Struct("f")}  # formats that Python's struct rounds to


def by_name(name: str) -> DType:
    """Return the type called `name` ("float32" or "f32"). Raises DTypeError for an unknown name."""
    if (d := BY_NAME.get(name)) is None:
        raise DTypeError(
            "unknown dtype", expected="one of " + ", ".join(x.name for x in (*USER, *STORED)), found=repr(name)
        )
    return d


def as_dtype(x: Any) -> DType:
    """Return the DType of a DType, a name, a Python type, a NumPy dtype or a `torch.dtype`. Raises DTypeError for
    anything else.
    """
    if isinstance(x, DType):
        return x
    if isinstance(x, str):
        return by_name(x)
    if is_torch_dtype(x):  # its text is "torch.float16"
        return by_name(str(x).removeprefix("torch."))
    if x is bool:
        return dtypes.bool
    if x is int:
        return dtypes.default_int
    if x is float:
        return dtypes.default_float
    try:
        if x is None:  # NumPy would take None as float64
            raise TypeError
        return from_numpy(np.dtype(x))
    except DTypeError:
        raise
    except (TypeError, ValueError):
        raise DTypeError("not a dtype", expected="a monolect dtype, its name or a NumPy dtype", found=repr(x)) from None


def is_torch_dtype(x: Any) -> bool:
    """Whether `x` is a `torch.dtype`; PyTorch is not imported for it."""
    return type(x).__name__ == "dtype" and type(x).__module__ == "torch"


def is_dtype(x: Any) -> bool:
    """Whether `x` names a dtype without being a text: a DType, a type, a NumPy dtype or a `torch.dtype`."""
    return isinstance(x, DType | type) or is_torch_dtype(x) or "numpy" in sys.modules and isinstance(x, np.dtype)


def to_numpy(d: DType) -> np.dtype:
    """Return the NumPy dtype of the same layout. Raises DTypeError for index and void, which have no storage."""
    if (n := _NUMPY.get(d.name)) is None:
        if d.kind == "v" or d.kind == "x":
            raise DTypeError("dtype has no storage", expected="a type with storage", found=d.name)
        if d.name in _ML_NAMES:
            import ml_dtypes

            n = np.dtype(getattr(ml_dtypes, _ML_NAMES[d.name]))
        else:
            n = np.dtype(d.name)
        _NUMPY[d.name] = n
    return n


def converted(x: np.ndarray[Any, Any], d: DType) -> np.ndarray[Any, Any]:
    """Convert the array `x` to elements of `d` as CAST does, with one rounding.

    ml_dtypes alone would round twice, because it converts to narrow types through float32.
    """
    if (d.is_int or is_whole(d)) and x.dtype.kind not in "biu":
        return whole(x, d)
    if d.name in _ML_NAMES and (x.dtype.kind in "iu" and x.dtype.itemsize > 2 or x.dtype == np.float64):
        x = _odd_singles(x)
    with np.errstate(all="ignore"):
        return x.astype(to_numpy(d), copy=False)


def _odd_singles(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round `x` to odd in float32: truncate, and set the last bit if digits were dropped.

    Rounding the result to fewer bits then gives the same value as rounding `x` once.
    """
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8:
        long = (x >= 2**53) | (x <= -(2**53))
        x = np.where(long, x - (x & 0xFFF) | ((x & 0xFFF) != 0).astype(x.dtype) << 11, x)
    wide = np.asarray(x.astype(np.float64))
    with np.errstate(over="ignore"):
        single = wide.astype(np.float32)
    back = single.astype(np.float64)
    cut = single.view(np.uint32) - (np.abs(back) > np.abs(wide))
    return (cut | (back != wide)).astype(np.uint32).view(np.float32)


@lru_cache(maxsize=64)  # NumPy makes the text of a name at each use
def from_numpy(n: np.dtype) -> DType:
    """Return the DType of a NumPy dtype. Raises DTypeError if there is none."""
    name = n.name
    for ours, theirs in _ML_NAMES.items():
        if name == theirs:
            return BY_NAME[ours]
    if name in BY_NAME and name not in ("void", "index"):
        return BY_NAME[name]
    raise DTypeError("NumPy dtype has no counterpart", expected=", ".join(d.name for d in (*USER, *STORED)), found=name)


def promote(*ds: DType) -> DType:
    """Return the common type of `ds` by PyTorch's promotion: floats over ints over bool, the wider one of a kind.

    The common type of an integer and a float is the float type, even if it does not hold all integers.
    """
    out = ds[0]
    for d in ds[1:]:
        out = _promote2(out, d)
    return out


def _promote2(a: DType, b: DType) -> DType:
    if a is b:
        return a
    if a.kind == "s" or b.kind == "s":
        return _promote2(*(dtypes.float32 if d.kind == "s" else d for d in (a, b)))
    if a.priority > b.priority:
        a, b = b, a
    if b.is_float:
        if a.is_float and {a.name, b.name} == {"float16", "bfloat16"}:
            return dtypes.float32
        if a.is_float and a.bits == b.bits == 8:
            return dtypes.float16
        return b
    if a.kind == "b" or a.kind == b.kind or a.kind == "x" or b.kind == "x":
        return b
    signed, unsigned = (a, b) if a.kind == "i" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {8: dtypes.int16, 16: dtypes.int32, 32: dtypes.int64, 64: dtypes.float32}[unsigned.bits]


def scalar_dtype(value: Any, other: DType) -> DType:
    """Return the type to give the Python scalar `value` in an operation with a tensor of type `other`: `other` itself,
    or the default type of a higher category (bool, integer, float).
    """
    if other.kind == "s":
        return dtypes.float32
    if isinstance(value, bool):
        return other
    if isinstance(value, int):
        return dtypes.default_int if other.kind == "b" else other
    return other if other.is_float else dtypes.default_float


def sum_dtype(d: DType) -> DType:
    """Return the result type of `sum` and `prod`: int64 for integers and bool, as in PyTorch."""
    return d if d.is_float else dtypes.float32 if d.kind == "s" else dtypes.int64


def is_whole(d: DType) -> bool:
    """Whether `d` is a storage dtype of integers."""
    return d.kind == "s" and d.max.__class__ is int


def readable(x: np.ndarray[Any, Any], d: DType) -> np.ndarray[Any, Any]:
    """Return the values `x` of dtype `d` as an array that has Python's numbers as elements."""
    if is_whole(d):
        return x.astype(np.int64)
    return x.astype(np.float32) if d.kind == "s" or d.is_float and d.bits < 32 else x


def accumulator(d: DType) -> DType:
    """Return the accumulator type of a reduction of `d`: float32 for floats below 32 bits, else `d`."""
    return dtypes.float32 if d.is_float and d.bits < 32 else d


def as_python(value: Any, d: DType) -> Any:
    """Convert `value` to the Python object that a CONST of type `d` holds.

    Integers wrap and floats are rounded. An infinity is nan in a type that has none. A float saturates to an integer
    type, and nan becomes 0. An index of any size is kept, because index arithmetic is exact. Raises ArgumentError for
    an integer that no float holds, DTypeError for a storage dtype.
    """
    if d.kind == "b":
        return bool(value)
    if d.kind == "s":
        if value != 0:
            raise DTypeError("a constant of a storage dtype", expected="a cast from float32", found=d.name)
        return 0.0  # the byte 0, which fills what is not read
    if d.is_float:
        try:
            x = float(_odd_digits(value) if value.__class__ is int and d.bits < 64 else value)
        except OverflowError as error:  # only an integer raises it; a float would be infinite
            bits = int(value).bit_length()
            raise ArgumentError("a number no float holds", expected="at most 1.8e308", found=f"{bits} bits") from error
        if x - x != 0.0:  # an infinity or a nan
            return x if d.max == _INF or x != x else math.nan
        return x if d.bits == 64 else _round_float(x, d)
    if value.__class__ is not int and not hasattr(value, "__index__"):  # a float
        x = float(value)  # Python compares floats with integers exactly
        return 0 if x != x else int(max(d.min, min(d.max, x)))
    v = int(value)
    if d.kind == "x" or d.min <= v <= d.max:
        return v
    v &= (1 << d.bits) - 1
    return v if d.kind == "u" or v <= d.max else v - (1 << d.bits)


def _odd_digits(v: int) -> int:
    """Round the integer `v` to odd in 53 bits, so that a further rounding to fewer bits is as one rounding of `v`."""
    n = max(abs(v).bit_length() - 53, 0)
    cut = abs(v) >> n
    cut |= cut << n != abs(v)
    return cut << n if v >= 0 else -(cut << n)


def whole(x: np.ndarray[Any, Any], d: DType) -> np.ndarray[Any, Any]:
    """Convert an array of floats to integers of `d`: truncate toward zero, saturate, and map nan to 0."""
    with np.errstate(invalid="ignore"):  # a signalling nan
        wide = np.trunc(x.astype(np.float64))
    above, below = wide >= float(d.max) + (float(d.max) < 2**53), wide < float(d.min)
    kind = to_numpy(d if d.kind != "x" else dtypes.int64).type
    out = np.where(above | below | np.isnan(wide), 0.0, wide).astype(np.int64 if is_whole(d) else kind).astype(kind)
    return np.where(above, kind(d.max), np.where(below, kind(d.min), out))


def _round_float(v: float, d: DType) -> float:
    """Round a Python float to the float type `d`."""
    if (form := _FORMS.get(d.name)) is None:
        return float(converted(np.array(v), d))
    try:
        rounded: float = form.unpack(form.pack(v))[0]
    except OverflowError:
        return math.copysign(_INF, v)
    return rounded


__all__ = [
    "ALL",
    "DType",
    "FLOATS",
    "INTS",
    "STORED",
    "USER",
    "accumulator",
    "as_dtype",
    "as_python",
    "by_name",
    "converted",
    "dtypes",
    "from_numpy",
    "is_dtype",
    "is_whole",
    "readable",
    "is_torch_dtype",
    "promote",
    "scalar_dtype",
    "sum_dtype",
    "to_numpy",
    "whole",
]

"""DLPack: memory shared with other libraries, both ways and without a copy where a device can.

NumPy makes and takes the capsules of the protocol and looks after lifetimes: memory lives as long as an array, a
capsule or a tensor of any library refers to it. What NumPy has no words for, narrow floats and the memory of a GPU, is
written into the description of the tensor while the capsule is in our hands; its values are not touched.

Only permuted, flipped and repeated row-major arrays are shared; other layouts are copied.
Source: https://dmlc.github.io/dlpack/latest/, version 1.1.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from monolect.backend.base import Sharing
from monolect.backend.registry import Device
from monolect.base.dtype import DType, dtypes
from monolect.base.dtype import from_numpy as dtype_of
from monolect.base.errors import ArgumentError, DeviceError, DTypeError
from monolect.ir.placement import device as place
from monolect.ir.uop import UOp, build, shape_source
from monolect.runtime.buffer import ALIGN_BYTES, base_of, from_numpy, to_numpy, with_storage

HOST = (1, 0)
PINNED = 3  # memory of the host as well
VERSION = (1, 1)
# (code, bits) of what NumPy has no words for, and what it is to NumPy meanwhile
FLOATS = {dtypes.bfloat16: (4, 16), dtypes.fp8e4m3: (10, 8), dtypes.fp8e5m2: (12, 8)}
STAND_INS: dict[int, Any] = {8: np.uint8, 16: np.uint16}
UNSIGNED = 1
CODES = ("integers", "unsigned integers", "floats", "handles", "bfloat", "complex numbers", "bools")
OFFSETS = {b"dltensor": 0, b"dltensor_versioned": 32}  # of the description in what a capsule holds

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Description(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("n_axes", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


def description(capsule: Any) -> Description:
    """The description in a capsule that nobody has taken yet. Raises ArgumentError."""
    name = _name_of(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if name not in OFFSETS:
        raise ArgumentError("not a DLPack capsule, or one that was taken before", found=repr(capsule))
    return Description.from_address(_pointer_of(capsule, name) + OFFSETS[name])


class Capsule:
    """A capsule as an object that NumPy takes an array from."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


class Place:
    """Memory of a device as NumPy sees it: an address that it must not read."""

    def __init__(self, memory: Any):
        self.memory = memory
        memory.n_views += 1

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3, "typestr": "|u1", "shape": (self.memory.n_bytes,), "data": (self.memory.address, False),
        }  # fmt: skip


# ---- out -------------------------------------------------------------------------------------------------------------
def device_of(name: str) -> tuple[int, int]:
    """What DLPack calls a device. Raises DeviceError for one whose memory nobody else reaches."""
    dev = Device[name]
    if dev.space == "host":
        return HOST
    if isinstance(dev, Sharing):
        return dev.dlpack
    raise DeviceError(f"{name} cannot share its memory", expected='a copy: `x.to("cpu")` can be shared', found=name)


def is_flipped(u: UOp) -> bool:
    """Whether a realised node is a view with strides below 0, at which PyTorch ends the process."""
    while u.op not in ("BUFFER", "FLIP") and u.src:
        u = u.src[0]
    return u.op == "FLIP"


def share(u: UOp, max_version: tuple[int, int] | None, stream: Any) -> Any:
    """A capsule for a realised node. Work on it that is under way is done when this returns, unless `stream` is -1."""
    where = device_of(str(place(u)))
    if where == HOST:
        array = to_numpy(u)
    else:
        if stream != -1:
            Device[str(place(u))].wait()
        array = to_numpy(u, np.asarray(Place(base_of(u).storage)))
    if u.dtype in FLOATS:
        array = array.view(STAND_INS[u.dtype.bits])
    if max_version is None and not array.flags.writeable:  # which the first protocol cannot say
        array = array.copy()
    capsule = array.__dlpack__(max_version=max_version)
    told = description(capsule)
    told.device_type, told.device_number = where
    if u.dtype in FLOATS:
        told.code, told.bits = FLOATS[u.dtype]
    return capsule


# ---- in --------------------------------------------------------------------------------------------------------------
def _lent(x: Any, stream: dict[str, int]) -> Any:
    """What another library gives. Raises ArgumentError for what it cannot: a text, an array that nobody may write."""
    try:
        try:
            return x.__dlpack__(**stream, max_version=VERSION)
        except TypeError:  # of a library that knows the first version only
            return x.__dlpack__(**stream)
    except BufferError as error:
        expected, found = "memory that DLPack can describe", f"{type(x).__name__}: {error}"
        raise ArgumentError("another library does not share this", expected=expected, found=found) from error


def borrow(x: Any, device: str | None, copy: bool | None) -> UOp:
    """The node of a tensor of another library. Raises ArgumentError, DeviceError, DTypeError."""
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentError("nothing that DLPack shares", expected="an object with __dlpack__", found=type(x).__name__)
    kind, number = (int(n) for n in x.__dlpack_device__())
    name = _device_for((HOST if kind == PINNED else (kind, number)), device)
    dev = Device[name]
    stream = {} if dev.space == "host" else {"stream": int(dev.stream)}
    told = description(capsule := _lent(x, stream))
    dtype = _dtype(told)
    if dtype in FLOATS:
        told.code = UNSIGNED
    told.device_type, told.device_number = HOST
    array = np.from_dlpack(Capsule(capsule))
    array = array.view(dtype.numpy) if dtype in FLOATS else array
    if dev.space != "host":
        return _device_views(array, dtype, dev, copy)
    if copy:
        return from_numpy(array.copy(), name)
    return _views(array, lambda rows: _borrowed(rows, name, copy))


def _borrowed(rows: np.ndarray, name: str, copy: bool | None) -> UOp:
    if copy is False and rows.size and (not rows.flags.c_contiguous or rows.ctypes.data % ALIGN_BYTES):
        raise _uncopied(f"strides {rows.strides} at {rows.ctypes.data:#x}")
    return from_numpy(rows, name)


def _device_views(array: np.ndarray, dtype: DType, dev: Any, copy: bool | None) -> UOp:
    """The same for memory that is not the host's: never copied by it."""

    def lent(rows: np.ndarray) -> UOp:
        if not rows.flags.c_contiguous or rows.ctypes.data % ALIGN_BYTES:
            raise _uncopied(f"strides {rows.strides} at {rows.ctypes.data:#x}")
        return with_storage(rows.shape, dtype, dev.name, dev.borrow(rows.ctypes.data, rows.nbytes, rows))

    out = _views(array, lent)
    return build("CONTIGUOUS", out) if copy else out


def _uncopied(found: str) -> ArgumentError:
    expected = f"a row-major tensor whose address {ALIGN_BYTES} divides, or a permuted, flipped or repeated one"
    return ArgumentError("this tensor cannot be taken without a copy", expected=expected, found=found)


def _views(array: np.ndarray, rows_of: Any) -> UOp:
    """An array as views of its elements in the order of memory, of which `rows_of` makes a node."""
    flips = tuple(s < 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    repeats = tuple(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    pick = {(True, False): slice(None, None, -1), (False, True): slice(1), (False, False): slice(None)}
    places: tuple[Any, ...] = (..., *(pick[both] for both in zip(flips, repeats, strict=True)))
    first = array[places]
    order = sorted(range(array.ndim), key=lambda i: (-first.strides[i], i))
    u = rows_of(first.transpose(order))
    if order != sorted(order):
        u = build("PERMUTE", u, arg=tuple(order.index(i) for i in range(array.ndim)))
    if any(repeats):
        u = build("EXPAND", u, shape_source(array.shape))
    return build("FLIP", u, arg=flips) if any(flips) else u


def _device_for(where: tuple[int, int], wanted: str | None) -> str:
    """The device that takes memory of a kind."""
    if where == HOST:
        name = wanted or (Device.default if Device[Device.default].space == "host" else "cpu")
        if Device[name].space == "host":
            return name
        raise DeviceError("memory of the host", expected=f'a device of the host, then `.to("{name}")`', found=name)
    name = wanted or {2: f"cuda:{where[1]}"}.get(where[0], "")
    if name and device_of(name) == where:
        return Device[name].name
    raise DeviceError(
        "memory of a device that is not here",
        expected="a tensor on the host, or on a GPU of CUDA",
        found=f"DLPack device {where}",
    )


def _dtype(told: Description) -> DType:
    if told.lanes == 1:
        for dtype, row in FLOATS.items():
            if (told.code, told.bits) == row:
                return dtype
        letter = {0: "i", 1: "u", 2: "f", 6: "b"}.get(told.code)
        size = 1 if letter == "b" else told.bits // 8
        try:
            return dtype_of(np.dtype(f"{letter}{size}"))
        except (TypeError, DTypeError):
            pass
    kind = CODES[told.code] if told.code < len(CODES) else f"type {told.code} of DLPack"
    lanes = f" of {told.lanes} lanes" if told.lanes != 1 else ""
    raise DTypeError(
        "a dtype that is not known here", expected="a dtype of `dtypes`", found=f"{told.bits} bits, {kind}{lanes}"
    )


__all__ = ["borrow", "device_of", "share"]

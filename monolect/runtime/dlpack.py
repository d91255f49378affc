"""Share memory with other libraries in both directions by DLPack, without a copy where the device allows it.

NumPy makes and takes the capsules of the protocol and manages lifetimes: memory lives as long as an array, a capsule or
a tensor of any library refers to it. NumPy cannot describe narrow floats or GPU memory. For those, this module edits
the description of the tensor while it holds the capsule; the values are not touched.

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
from monolect.ir.placement import device as node_device
from monolect.ir.uop import UOp, build, shape_source
from monolect.runtime.buffer import ALIGN_BYTES, base_of, from_numpy, to_numpy, with_storage

HOST = (1, 0)  # (device type, device number) of kDLCPU
PINNED = 3  # device type kDLCUDAHost: pinned host memory, which is treated as HOST
VERSION = (1, 1)  # DLPack (major, minor) that this module asks other libraries for
# DLPack (code, bits) of floats that NumPy lacks; NumPy sees their bytes as CARRIERS[bits] meanwhile.
FLOATS = {
    dtypes.bfloat16: (4, 16), dtypes.fp8e4m3: (10, 8), dtypes.fp8e5m2: (12, 8), dtypes.float8_e4m3fnuz: (11, 8),
    dtypes.float8_e5m2fnuz: (13, 8), dtypes.float8_e8m0fnu: (14, 8),
}  # fmt: skip
CARRIERS: dict[int, Any] = {8: np.uint8, 16: np.uint16}  # by bits
UNSIGNED = 1  # DLPack type code of unsigned integers
CODES = (
    "integers",
    "unsigned integers",
    "floats",
    "handles",
    "bfloat",
    "complex numbers",
    "bools",
)  # by DLPack type code
OFFSETS = {
    b"dltensor": 0,
    b"dltensor_versioned": 32,
}  # by capsule name: byte offset of the DLTensor in the capsule's struct

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Description(ctypes.Structure):
    """The C struct DLTensor of dlpack.h."""

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
    """Return the DLTensor in a capsule that no library has consumed yet. Raises ArgumentError for a consumed capsule or
    another object.
    """
    name = _name_of(capsule) if type(capsule).__name__ == "PyCapsule" else None
    if name not in OFFSETS:
        raise ArgumentError("not a DLPack capsule, or one that was taken before", found=repr(capsule))
    return Description.from_address(_pointer_of(capsule, name) + OFFSETS[name])


class Capsule:
    """Wrap a capsule as an object from which `np.from_dlpack` makes a host array."""

    def __init__(self, capsule: Any):
        self.capsule = capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return HOST

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule


class DeviceMemory:
    """Wrap device memory as an object that NumPy makes a uint8 array of. NumPy must not read that array: the address is
    not the host's.
    """

    def __init__(self, memory: Any):
        self.memory = memory
        memory.n_views += 1

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3, "typestr": "|u1", "shape": (self.memory.n_bytes,), "data": (self.memory.address, False),
        }  # fmt: skip


# ---- export ----------------------------------------------------------------------------------------------------------
def device_of(name: str) -> tuple[int, int]:
    """Return the DLPack (device type, device number) of a device. Raises DeviceError if the device cannot share its
    memory.
    """
    dev = Device[name]
    if dev.space == "host":
        return HOST
    if isinstance(dev, Sharing):
        return dev.dlpack
    raise DeviceError(f"{name} cannot share its memory", expected='a copy: `x.to("cpu")` can be shared', found=name)


def is_flipped(u: UOp) -> bool:
    """Return whether a realized node is a view with negative strides. PyTorch aborts the process on such a view."""
    while u.op not in ("BUFFER", "FLIP") and u.src:
        u = u.src[0]
    return u.op == "FLIP"


def share(u: UOp, max_version: tuple[int, int] | None, stream: Any) -> Any:
    """Return a DLPack capsule of a realized node.

    Pending work on the node's device has finished when this returns, unless `stream` is -1.
    """
    where = device_of(str(node_device(u)))
    if where == HOST:
        array = to_numpy(u)
    else:
        if stream != -1:
            Device[str(node_device(u))].wait()
        array = to_numpy(u, np.asarray(DeviceMemory(base_of(u).storage)))
    if u.dtype in FLOATS:
        array = array.view(CARRIERS[u.dtype.bits])
    if max_version is None and not array.flags.writeable:  # version 0 of the protocol has no read-only flag
        array = array.copy()
    capsule = array.__dlpack__(max_version=max_version)
    described = description(capsule)
    described.device_type, described.device_number = where
    if u.dtype in FLOATS:
        described.code, described.bits = FLOATS[u.dtype]
    return capsule


# ---- import ----------------------------------------------------------------------------------------------------------
def _capsule_of(x: Any, stream: dict[str, int]) -> Any:
    """Return the DLPack capsule of an object of another library.

    Raises ArgumentError if the library cannot share the object: an array of strings, a read-only array.
    """
    try:
        try:
            return x.__dlpack__(**stream, max_version=VERSION)
        except TypeError:  # the library knows only version 0, without max_version
            return x.__dlpack__(**stream)
    except BufferError as error:
        expected, found = "memory that DLPack can describe", f"{type(x).__name__}: {error}"
        raise ArgumentError("another library does not share this", expected=expected, found=found) from error


def borrow(x: Any, device: str | None, copy: bool | None) -> UOp:
    """Return a node that shares the memory of a tensor of another library. Raises ArgumentError, DeviceError,
    DTypeError.

    `copy`: True copies the values, False raises ArgumentError if a copy is needed, None copies only if needed.
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentError("nothing that DLPack shares", expected="an object with __dlpack__", found=type(x).__name__)
    kind, number = (int(n) for n in x.__dlpack_device__())
    name = _device_for((HOST if kind == PINNED else (kind, number)), device)
    dev = Device[name]
    stream = {} if dev.space == "host" else {"stream": int(dev.stream)}
    described = description(capsule := _capsule_of(x, stream))
    dtype = _dtype(described)
    if dtype in FLOATS:
        described.code = UNSIGNED
    described.device_type, described.device_number = HOST
    array = np.from_dlpack(Capsule(capsule))
    array = array.view(dtype.numpy) if dtype in FLOATS else array
    if dev.space != "host":
        return _device_views(array, dtype, dev, copy)
    if copy:
        return from_numpy(array.copy(), name)
    return _views(array, lambda rows: _host_buffer(rows, name, copy))


def _host_buffer(rows: np.ndarray, name: str, copy: bool | None) -> UOp:
    """Return a BUFFER of a host array, without a copy if its layout allows it. Raises ArgumentError if `copy` is False
    and it does not.
    """
    if copy is False and rows.size and (not rows.flags.c_contiguous or rows.ctypes.data % ALIGN_BYTES):
        raise _needs_a_copy(f"strides {rows.strides} at {rows.ctypes.data:#x}")
    return from_numpy(rows, name)


def _device_views(array: np.ndarray, dtype: DType, dev: Any, copy: bool | None) -> UOp:
    """Return a node over device memory that `array` describes; with `copy`, a CONTIGUOUS of it. The host copies
    nothing.
    """

    def borrowed(rows: np.ndarray) -> UOp:
        if not rows.flags.c_contiguous or rows.ctypes.data % ALIGN_BYTES:
            raise _needs_a_copy(f"strides {rows.strides} at {rows.ctypes.data:#x}")
        return with_storage(rows.shape, dtype, dev.name, dev.borrow(rows.ctypes.data, rows.nbytes, rows))

    out = _views(array, borrowed)
    return build("CONTIGUOUS", out) if copy else out


def _needs_a_copy(found: str) -> ArgumentError:
    """Return the error for a tensor that cannot be shared without a copy."""
    expected = f"a row-major tensor whose address {ALIGN_BYTES} divides, or a permuted, flipped or repeated one"
    return ArgumentError("this tensor cannot be taken without a copy", expected=expected, found=found)


def _views(array: np.ndarray, rows_of: Any) -> UOp:
    """Return a node with the shape and strides of `array`: PERMUTE, EXPAND and FLIP of one row-major array.

    `rows_of` makes a node of that row-major array, which has the elements in the order of memory.
    """
    flips = tuple(s < 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    repeats = tuple(s == 0 and n > 1 for s, n in zip(array.strides, array.shape, strict=True))
    pick = {(True, False): slice(None, None, -1), (False, True): slice(1), (False, False): slice(None)}
    selection: tuple[Any, ...] = (..., *(pick[both] for both in zip(flips, repeats, strict=True)))
    first = array[selection]
    order = sorted(range(array.ndim), key=lambda i: (-first.strides[i], i))
    u = rows_of(first.transpose(order))
    if order != sorted(order):
        u = build("PERMUTE", u, arg=tuple(order.index(i) for i in range(array.ndim)))
    if any(repeats):
        u = build("EXPAND", u, shape_source(array.shape))
    return build("FLIP", u, arg=flips) if any(flips) else u


def _device_for(where: tuple[int, int], wanted: str | None) -> str:
    """Return the name of the device for memory of DLPack (device type, number) `where`. Raises DeviceError."""
    if where == HOST:
        name = wanted or (Device.default if Device[Device.default].space == "host" else "cpu")
        if Device[name].space == "host":
            return name
        raise DeviceError("memory of the host", expected=f'a device of the host, then `.to("{name}")`', found=name)
    name = wanted or {2: f"cuda:{where[1]}"}.get(where[0], "")
    if name and device_of(name) == where:
        return Device[name].name
    raise DeviceError(
        "memory of a device that monolect does not have",
        expected="a tensor on the host, or on a GPU of CUDA",
        found=f"DLPack device {where}",
    )


def _dtype(described: Description) -> DType:
    """Return the dtype of a DLTensor. Raises DTypeError for one that monolect lacks."""
    if described.lanes == 1:
        for dtype, row in FLOATS.items():
            if (described.code, described.bits) == row:
                return dtype
        letter = {0: "i", 1: "u", 2: "f", 6: "b"}.get(described.code)
        size = 1 if letter == "b" else described.bits // 8
        try:
            return dtype_of(np.dtype(f"{letter}{size}"))
        except (TypeError, DTypeError):
            pass
    kind = CODES[described.code] if described.code < len(CODES) else f"type {described.code} of DLPack"
    lanes = f" of {described.lanes} lanes" if described.lanes != 1 else ""
    raise DTypeError(
        "a dtype that monolect does not have",
        expected="a dtype of `dtypes`",
        found=f"{described.bits} bits, {kind}{lanes}",
    )


__all__ = ["borrow", "device_of", "share"]

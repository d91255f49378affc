"""Buffers: the storage behind BUFFER nodes, and NumPy arrays in and out of it.

A BUFFER node owns its memory through `storage`; when the last graph that mentions it goes, the memory is recycled.
Arrays come in without a copy where they are contiguous and aligned, and go out as views that keep the memory alive.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

from monolect.backend.common.host.memory import Memory
from monolect.backend.common.host.memory import part as part_of_memory
from monolect.backend.registry import Device, is_on_disk
from monolect.base.dtype import DType, dtypes
from monolect.base.dtype import from_numpy as dtype_of
from monolect.base.errors import AllocationError, DeviceError, InternalError
from monolect.base.numpy import np
from monolect.ir.placement import device
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, new_buffer
from monolect.runtime.binding import concrete

ALIGN_BYTES = 16
VIEWS = frozenset(("RESHAPE", "PERMUTE", "FLIP", "EXPAND", "SHRINK", "DETACH", "CONTIGUOUS_BACKWARD"))


def with_storage(shape: tuple, dtype: DType, device_name: Any, storage: Any) -> UOp:
    """A BUFFER of its own that owns `storage`."""
    b = new_buffer(shape, dtype, device_name)
    b.storage = storage
    return b


def from_numpy(array: np.ndarray, device_name: str) -> UOp:
    """A BUFFER with the values of `array`: its very memory when it is contiguous, aligned and native."""
    dtype = dtype_of(array.dtype)
    if not array.flags.c_contiguous or array.ctypes.data % ALIGN_BYTES or not array.dtype.isnative:
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        array = native.reshape(array.shape)  # ascontiguousarray gives scalars an axis
    dev = Device[device_name]
    if array.size == 0:
        return with_storage(array.shape, dtype, dev.name, dev.alloc(1))
    return with_storage(array.shape, dtype, dev.name, dev.from_array(array))


def from_bytes(data: bytes, shape: tuple, dtype: DType, device_name: str) -> UOp:
    """A BUFFER with a copy of what `data` holds: the elements in a row, as this machine has them."""
    dev = Device[device_name]
    storage = dev.alloc(max(1, len(data)))
    if isinstance(storage, Memory):
        ctypes.memmove(storage.address, data, len(data))
    elif data:
        storage = dev.from_array(np.frombuffer(data, np.uint8))
    return with_storage(shape, dtype, dev.name, storage)


def open_disk(device_name: str) -> UOp:
    """The file of a disk device as one uint8 BUFFER. Raises FileFormatError when it cannot be mapped."""
    dev = Device[device_name]
    mapped = dev.open()
    return with_storage((mapped.n_bytes,), dtypes.uint8, dev.name, mapped)


def base_of(u: UOp) -> UOp:
    """What a chain of views is a view of."""
    while u.op in VIEWS:
        u = u.src[0]
    return u


def is_realized(u: UOp) -> bool:
    """True for a BUFFER with storage and for views of one."""
    while u.op in VIEWS:  # `base_of`, without its call: each value that is asked for comes by here three times
        u = u.src[0]
    return u.op == "BUFFER" and u.storage is not None


def passed_on(u: UOp) -> UOp | None:
    """The memory that `u` shows, also through calls that return what they were given: a BUFFER, or a PARAM where `u` is
    in a body. None for a value that is computed.
    """
    u = base_of(u)
    while u.op == "GETTUPLE":
        body, *args = u.src[0].src
        given = passed_on(body.src[u.arg]) if body.op == "TUPLE" else None
        if given is None or given.op != "PARAM":
            return None
        u = base_of(args[given.arg.slot])
    return u if u.op in ("BUFFER", "PARAM") else None


def part(view: UOp) -> UOp | None:
    """A BUFFER that shares the memory of a realised view: one of elements in a row of host memory, aligned as an array
    that is taken without a copy. None for other views.
    """
    at, b = _first_in_row(view), base_of(view)
    whole = b.storage
    if at is None or not isinstance(whole, Memory):
        return None
    n_elements = prod(view.shape)
    start = at * view.dtype.itemsize
    if not n_elements or (whole.address + start) % ALIGN_BYTES:
        return None
    alike = n_elements == prod(b.shape)  # then it is a shape of the BUFFER, whose memory may be nobody else's one day
    memory = whole if alike else part_of_memory(whole, start, n_elements * view.dtype.itemsize)
    return with_storage(view.shape, view.dtype, b.arg.device, memory)


def _first_in_row(u: UOp) -> int | None:
    """The place in its BUFFER of the first element of a view that is a row of elements, in their order, of known sizes;
    None for others.
    """
    first = 0
    while True:
        if any(n.__class__ is not int for n in u.shape):
            return None
        if u.op == "BUFFER":
            return first
        whole = u.src[0].shape
        if u.op == "SHRINK":
            stride, is_cut = 1, False
            for at, n, size in zip(reversed(u.src[1].sizes), reversed(u.shape), reversed(whole), strict=True):
                if at.__class__ is not int or size.__class__ is not int or (is_cut and n != 1):
                    return None
                first += at * stride
                stride *= size
                is_cut = is_cut or n != size
        elif u.op not in ("RESHAPE", "DETACH", "CONTIGUOUS_BACKWARD"):
            return None
        u = u.src[0]


def to_numpy(u: UOp, memory: np.ndarray | None = None) -> np.ndarray:
    """The values of a realised node as an array that shares its memory; `memory` stands for the bytes of its BUFFER."""
    chain = []
    while u.op in VIEWS:
        chain.append(u)
        u = u.src[0]
    if u.op != "BUFFER" or u.storage is None:
        raise InternalError("to_numpy of a value that is not realised", expected="a BUFFER with storage", found=u.op)
    n = count(u.shape)
    flat = u.storage.view(np.uint8) if memory is None else memory
    flat = flat[: n * u.dtype.itemsize].view(u.dtype.numpy)
    try:
        a = flat.reshape(u.shape)
    except ValueError:  # nothing in it, but an axis beyond what NumPy can count
        raise AllocationError("NumPy has no array of this shape", expected="sizes of 64 bits", found=u.shape) from None
    for v in reversed(chain):
        a = _view(a, v)
    return a


# The types that Python itself reads: ctypes' type, and the letter they have in memoryviews and arrays.
_PYTHON: dict[DType, tuple[Any, str]] = {
    dtypes.bool: (ctypes.c_bool, "?"),
    dtypes.uint8: (ctypes.c_uint8, "B"),
    dtypes.int8: (ctypes.c_int8, "b"),
    dtypes.uint16: (ctypes.c_uint16, "H"),
    dtypes.int16: (ctypes.c_int16, "h"),
    dtypes.uint32: (ctypes.c_uint32, "I"),
    dtypes.int32: (ctypes.c_int32, "i"),
    dtypes.uint64: (ctypes.c_uint64, "Q"),
    dtypes.int64: (ctypes.c_int64, "q"),
    dtypes.float32: (ctypes.c_float, "f"),
    dtypes.float64: (ctypes.c_double, "d"),
}
_CTYPES = {d: (kind, d.itemsize) for d, (kind, _) in _PYTHON.items()}
LETTERS = {d: letter for d, (_, letter) in _PYTHON.items()}


def listed(u: UOp) -> Any:
    """The values of a realised node as nested lists, straight from host memory; None where it is not so."""
    base = u
    while base.op == "RESHAPE":
        base = base.src[0]
    letter = LETTERS.get(u.dtype)
    shape = concrete(u.shape)
    if base.op != "BUFFER" or letter is None or not isinstance(base.storage, Memory) or 0 in shape:
        return None
    data = ctypes.string_at(base.storage.address, count(shape) * u.dtype.itemsize)
    return memoryview(data).cast("B").cast(letter, shape).tolist()  # type: ignore[call-overload]


def element(u: UOp) -> Any:
    """The only element of a realised node as a Python number, straight from host memory; None where it is not so."""
    at = 0
    while u.op == "RESHAPE":
        u = u.src[0]
    if u.op == "SHRINK":
        offsets, u = u.src[1].sizes, u.src[0]
        for offset, n in zip(offsets, u.shape, strict=True):
            if offset.__class__ is not int or n.__class__ is not int:
                return None
            at = at * n + offset
        while u.op == "RESHAPE":
            u = u.src[0]
    return element_at(u, at)


def element_at(u: UOp, at: int) -> Any:
    """Element number `at` of a BUFFER as a Python number, straight from host memory; None where it is not so."""
    kind, n_bytes = _CTYPES.get(u.dtype, (None, 0))
    memory = u.storage
    if kind is None or u.op != "BUFFER" or not isinstance(memory, Memory):
        return None
    return kind.from_address(memory.address + at * n_bytes).value


def _view(a: np.ndarray, v: UOp) -> np.ndarray:
    shape = concrete(v.shape)
    if v.op == "RESHAPE":
        return a.reshape(shape)
    if v.op == "PERMUTE":
        return a.transpose(v.arg)
    if v.op == "FLIP":
        return a[tuple(slice(None, None, -1) if f else slice(None) for f in v.arg)]
    if v.op == "EXPAND":
        return np.broadcast_to(a, shape)
    if v.op == "SHRINK":
        return a[tuple(slice(o, o + n) for o, n in zip(concrete(v.src[1].sizes), shape, strict=True))]
    return a


def one_device(us: list[UOp]) -> str:
    """The device a batch runs on, the default one for constants. Raises DeviceError when there are several."""
    if len(us) == 1 and (d := device(us[0])).__class__ is str and not is_on_disk(d):  # the usual batch
        return str(d)
    names = {d for u in us if (d := device(u)) is not None and not is_on_disk(d)}
    if len(names) > 1:
        found = sorted(map(str, names))
        raise DeviceError("values of several devices in one kernel", expected="one device", found=found)
    return str(names.pop()) if names else Device.default

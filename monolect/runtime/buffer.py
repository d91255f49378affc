"""Manage the storage behind BUFFER nodes, and convert NumPy arrays to BUFFERs and back.

A BUFFER node owns its memory through `storage`; when the last graph that refers to the node is freed, the memory is
recycled. Contiguous, aligned arrays are taken without a copy. Arrays are returned as views that keep the memory alive.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from math import prod
from struct import pack
from typing import Any

from monolect.backend.common.host.memory import Memory
from monolect.backend.common.host.memory import part as part_of_memory
from monolect.backend.registry import Device, is_here, is_on_disk
from monolect.base.dtype import DType, dtypes
from monolect.base.dtype import from_numpy as dtype_of
from monolect.base.dtype import to_numpy as numpy_of
from monolect.base.errors import AllocationError, DeviceError, InternalError
from monolect.base.numpy import np
from monolect.ir.layout import Layout, assembled
from monolect.ir.placement import device, placement
from monolect.ir.rewrite.normal import count
from monolect.ir.uop import UOp, new_buffer, new_buffer_like
from monolect.runtime.binding import concrete

ALIGN_BYTES = 16  # bytes; an array or view whose address it does not divide is copied
VIEWS = frozenset(("RESHAPE", "PERMUTE", "FLIP", "EXPAND", "SHRINK", "REPLICATED", "DETACH", "CONTIGUOUS_BACKWARD"))


class Shards:
    """The storage of a BUFFER on several devices: `parts`, a BUFFER for each device, in the layout `axis`."""

    def __init__(self, parts: tuple[UOp, ...], axis: Layout):
        self.parts, self.axis = parts, axis

    @property
    def n_bytes(self) -> int:
        """Bytes of the parts together."""
        return sum(count(p.shape) * p.dtype.itemsize for p in self.parts)

    def view(self, dtype: Any) -> np.ndarray:
        """Return a copy of all elements in row-major order as an array of `dtype`. If other processes hold parts, all
        processes call it.
        """
        here = [to_numpy(p) for p in self.parts if is_here(p.arg.device)]
        if self.axis is None:
            whole = here[0]
        else:
            parts = here if len(here) == len(self.parts) else self._gathered(here)
            whole = assembled(parts, self.axis, np.concatenate)
        return np.ascontiguousarray(whole).reshape(-1).view(np.uint8).view(dtype)

    def _gathered(self, here: list[np.ndarray]) -> list[np.ndarray]:
        """Return the array of each part from those of this process, `here`; all processes call it."""
        sent = b"".join([np.ascontiguousarray(a).tobytes() for a in here])
        received = Device[self.parts[0].arg.device].transport.gather(sent)
        held = [Device[p.arg.device].rank for p in self.parts]
        starts = dict.fromkeys(held, 0)
        out = []
        for p, rank in zip(self.parts, held, strict=True):
            n = count(p.shape)
            out.append(np.frombuffer(received[rank], numpy_of(p.dtype), n, starts[rank]).reshape(p.shape))
            starts[rank] += n * p.dtype.itemsize
        return out


def with_storage(shape: tuple, dtype: DType, device_name: Any, storage: Any) -> UOp:
    """Return a new BUFFER that owns `storage`."""
    b = new_buffer(shape, dtype, device_name, storage.axis if storage.__class__ is Shards else 0)
    b.storage = storage
    return b


def as_alias(b: UOp) -> UOp:
    """Return another BUFFER with the memory of the realized BUFFER `b`."""
    u = new_buffer_like(b)
    u.storage = b.storage
    if b.arg.device.__class__ is tuple:
        u.storage = Shards(tuple(map(as_alias, b.storage.parts)), b.arg.axis)
    return u


def parts_of(b: UOp) -> tuple[UOp, ...]:
    """Return the BUFFERs of a realized BUFFER on each of its devices; on one device that is `b` itself."""
    return (b,) if b.arg.device.__class__ is not tuple else tuple(b.storage.parts)


def from_numpy(array: np.ndarray, device_name: str) -> UOp:
    """Return a BUFFER with the values of `array`. It shares the array's memory if that is contiguous, aligned and
    native.
    """
    dtype = dtype_of(array.dtype)
    address = array.__array_interface__["data"][0]  # `array.ctypes` makes an object
    if not array.flags.c_contiguous or address % ALIGN_BYTES or not array.dtype.isnative:
        native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("="))
        array = native.reshape(array.shape)  # ascontiguousarray adds an axis to scalars
    dev = Device[device_name]
    if array.size == 0:
        return with_storage(array.shape, dtype, dev.name, dev.alloc(1))
    return with_storage(array.shape, dtype, dev.name, dev.from_array(array))


def from_bytes(data: bytes, shape: tuple, dtype: DType, device_name: str) -> UOp:
    """Return a BUFFER with a copy of `data`: the elements in row-major order, in this machine's byte order."""
    dev = Device[device_name]
    return with_storage(shape, dtype, dev.name, _copied(data, dev))


def from_number(value: float, dtype: DType, device_name: str) -> UOp:
    """Return a BUFFER of one element, float32 or float64, that holds `value`, which is in the range of `dtype`."""
    b = new_buffer_like(_template((), dtype, device_name))
    b.storage = _copied(pack(LETTERS[dtype], value), Device[device_name])
    return b


@lru_cache(maxsize=256)
def _template(shape: tuple[int, ...], dtype: DType, device_name: str) -> UOp:
    b = new_buffer(shape, dtype, device_name)
    placement(b)  # which its copies have, too
    return b


def _copied(data: bytes, dev: Any) -> Any:
    """Return memory of the device `dev` that holds `data`."""
    storage = dev.alloc(max(1, len(data)))
    if isinstance(storage, Memory):
        ctypes.memmove(storage.address, data, len(data))
    elif data:
        storage = dev.from_array(np.frombuffer(data, np.uint8))
    return storage


def open_disk(device_name: str) -> UOp:
    """Map the file of a disk device as one uint8 BUFFER. Raises FileFormatError if it cannot be mapped."""
    dev = Device[device_name]
    mapped = dev.open()
    return with_storage((mapped.n_bytes,), dtypes.uint8, dev.name, mapped)


def base_of(u: UOp) -> UOp:
    """Return the node below a chain of views; `u` itself if it is no view."""
    while u.op in VIEWS:
        u = u.src[0]
    return u


def is_realized(u: UOp) -> bool:
    """Return True for a BUFFER with storage, and for a view of such a BUFFER."""
    while u.op in VIEWS:  # `base_of` inlined: each realized value runs this loop three times
        u = u.src[0]
    return u.op == "BUFFER" and u.storage is not None


def is_steered(u: UOp) -> bool:
    """Return True for a view of a node that is another part of it, or repeats it more often, for another value of a
    Variable.
    """
    while u.op in VIEWS:
        whole = u.src[0].shape
        if u.op == "SHRINK" and any([n.__class__ is not int for n in u.src[1].sizes]):
            return True
        if u.op in ("SHRINK", "EXPAND") and any([n.__class__ is not int for n in u.shape if n not in whole]):
            return True
        u = u.src[0]
    return False


def aliased_memory(u: UOp) -> UOp | None:
    """Return the BUFFER whose memory `u` aliases, or the PARAM if `u` is in the body of a CALL; None if `u` is
    computed.

    Views are followed, and results of CALLs that return one of their arguments unchanged.
    """
    u = base_of(u)
    while u.op == "GETTUPLE":
        body, *args = u.src[0].src
        given = aliased_memory(body.src[u.arg]) if body.op == "TUPLE" else None
        if given is None or given.op != "PARAM":
            return None
        u = base_of(args[given.arg.slot])
    return u if u.op in ("BUFFER", "PARAM") else None


def contiguous_part(view: UOp) -> UOp | None:
    """Return a BUFFER that shares the memory of a realized view; None unless the view is contiguous, in host memory,
    and starts at an address that ALIGN_BYTES divides.
    """
    at, b = _contiguous_offset(view), base_of(view)
    whole = b.storage
    if at is None or not isinstance(whole, Memory):
        return None
    n_elements = prod(view.shape)
    start = at * view.dtype.itemsize
    if not n_elements or (whole.address + start) % ALIGN_BYTES:
        return None
    is_whole = n_elements == prod(b.shape)  # then it can later own the memory alone, so it shares the Memory object
    memory = whole if is_whole else part_of_memory(whole, start, n_elements * view.dtype.itemsize)
    return with_storage(view.shape, view.dtype, b.arg.device, memory)


def copied_part(view: UOp, most_bytes: int) -> UOp | None:
    """Return a BUFFER with a copy of a realized view; None unless the view is contiguous, and where `copied_run` is."""
    at = _contiguous_offset(view)
    return None if at is None else copied_run(base_of(view), at, view.shape, most_bytes)


def copied_run(b: UOp, first: int, shape: tuple[int, ...], most_bytes: int) -> UOp | None:
    """Return a BUFFER of `shape` with a copy of the elements of the BUFFER `b` from number `first` on; None unless
    `b` is in host memory and no mapped file, and the copy has elements and takes at most `most_bytes`.
    """
    n_bytes = prod(shape) * b.dtype.itemsize
    if not 0 < n_bytes <= most_bytes or not isinstance(b.storage, Memory) or is_on_disk(b.arg.device):
        return None
    new = new_buffer_like(_template(shape, b.dtype, b.arg.device))
    new.storage = Device[b.arg.device].alloc(n_bytes)
    ctypes.memmove(new.storage.address, b.storage.address + first * b.dtype.itemsize, n_bytes)
    return new


def _contiguous_offset(u: UOp) -> int | None:
    """Return the offset, in elements of its BUFFER, of a contiguous view; None for a strided view or symbolic sizes."""
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
    """Return the values of a realized node as an array that shares its memory.

    `memory`: an array of the bytes of its BUFFER, used instead of the BUFFER's own storage.
    """
    chain = []
    while u.op in VIEWS:
        chain.append(u)
        u = u.src[0]
    if u.op != "BUFFER" or u.storage is None:
        raise InternalError("to_numpy of a value that is not realized", expected="a BUFFER with storage", found=u.op)
    shape = concrete(u.shape)  # symbolic for a result without elements of a captured step
    n = count(shape)
    flat = u.storage.view(np.uint8) if memory is None else memory
    flat = flat[: n * u.dtype.itemsize].view(u.dtype.numpy)
    expected = f"at most {_MOST_AXES} axes, sizes of 64 bits"
    if (most := max(len(v.shape) for v in (u, *chain))) > _MOST_AXES:
        raise AllocationError("NumPy has no array of this shape", expected=expected, found=f"{most} axes")
    try:
        a = flat.reshape(shape)
    except ValueError:  # an empty array with an axis that is too large for NumPy
        raise AllocationError("NumPy has no array of this shape", expected=expected, found=shape) from None
    for v in reversed(chain):
        a = _view(a, v)
    return a


_MOST_AXES = 64  # of an array and of a memoryview


# The dtypes that Python itself can read: (ctypes type, format letter of memoryview and array).
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


def to_list(u: UOp) -> Any:
    """Return the values of a realized node as nested lists, read directly from host memory.

    Returns None if the node is not a reshaped BUFFER in host memory, is empty, has too many axes, or Python cannot read
    its dtype.
    """
    base = u
    while base.op == "RESHAPE":
        base = base.src[0]
    letter = LETTERS.get(u.dtype)
    shape = concrete(u.shape)
    if base.op != "BUFFER" or letter is None or not isinstance(base.storage, Memory) or 0 in shape:
        return None
    if len(shape) > _MOST_AXES:
        return None
    data = ctypes.string_at(base.storage.address, count(shape) * u.dtype.itemsize)
    return memoryview(data).cast("B").cast(letter, shape).tolist()  # type: ignore[call-overload]


def element(u: UOp) -> Any:
    """Return the only element of a realized node of one element as a Python number, read directly from host memory.

    Returns None if the node is not a row-major view of a BUFFER in host memory, or Python cannot read its dtype.
    """
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
    """Return element number `at` of the BUFFER `u` as a Python number, read directly from host memory; None if the
    memory is not on the host or Python cannot read the dtype.
    """
    kind, n_bytes = _CTYPES.get(u.dtype, (None, 0))
    memory = u.storage
    if kind is None or u.op != "BUFFER" or not isinstance(memory, Memory):
        return None
    return kind.from_address(memory.address + at * n_bytes).value


def _view(a: np.ndarray, v: UOp) -> np.ndarray:
    """Return the view of the array `a` that the movement op `v` describes."""
    shape = concrete(v.shape)
    if v.op == "RESHAPE":
        return a.reshape(shape)
    if v.op == "PERMUTE":
        return a.transpose(v.arg)
    if v.op == "REPLICATED":
        return a[(slice(None),) * v.arg + (0,)]
    if v.op == "FLIP":
        return a[tuple(slice(None, None, -1) if f else slice(None) for f in v.arg)]
    if v.op == "EXPAND":
        return np.broadcast_to(a, shape)
    if v.op == "SHRINK":
        return a[tuple(slice(o, o + n) for o, n in zip(concrete(v.src[1].sizes), shape, strict=True))]
    return a


def one_device(us: list[UOp]) -> str:
    """Return the device of the values `us`, not counting disk files; the default device if there is none, as for
    constants, and "" for one value on several devices. Raises DeviceError for values on different devices.
    """
    if len(us) == 1:
        d = device(us[0])
        if d.__class__ is str and not is_on_disk(d):  # fast path
            return str(d)
        if d.__class__ is tuple:
            return ""
    names = {d for u in us if (d := device(u)) is not None and not is_on_disk(d)}
    if len(names) > 1:
        found = sorted(map(str, names))
        raise DeviceError("values of several devices in one kernel", expected="one device", found=found)
    return str(names.pop()) if names else Device.default


__all__ = [
    "ALIGN_BYTES",
    "LETTERS",
    "Shards",
    "VIEWS",
    "aliased_memory",
    "base_of",
    "as_alias",
    "contiguous_part",
    "copied_part",
    "copied_run",
    "element",
    "element_at",
    "from_bytes",
    "from_numpy",
    "is_realized",
    "is_steered",
    "one_device",
    "open_disk",
    "parts_of",
    "to_list",
    "to_numpy",
    "with_storage",
]

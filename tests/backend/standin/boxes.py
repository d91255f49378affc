"""Tensor maps as the stand-in for CUDA reads them (`boxes.h`), and what the vendor's driver would refuse."""

import ctypes

MAP_BYTES = 128


class TensorMap(ctypes.Structure):
    """The structure of `boxes.h`."""

    _fields_ = [
        ("base", ctypes.c_uint64),
        ("strides", ctypes.c_uint64 * 4),
        ("sizes", ctypes.c_uint32 * 5),
        ("box", ctypes.c_uint32 * 5),
        ("itemsize", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
    ]


def encoded(itemsize: int, address: int, sizes, strides, box) -> bytes:
    """The map, as bytes. An AssertionError is what cuTensorMapEncodeTiled answers CUDA_ERROR_INVALID_VALUE to."""
    rank = len(sizes)
    assert 1 <= rank <= 5 and len(strides) == rank - 1 and len(box) == rank
    assert address % 16 == 0
    assert all(0 < n <= 1 << 32 for n in sizes)
    assert all(s % 16 == 0 and 0 < s < 1 << 40 for s in strides)
    assert all(s % before == 0 for before, s in zip(strides, strides[1:], strict=False))
    assert all(0 < n <= 256 for n in box)
    assert box[0] * itemsize % 16 == 0 and box[0] * itemsize <= 128  # of the swizzling mode
    made = TensorMap(address, (*strides,), (*sizes,), (*box,), itemsize, rank)
    return bytes(made).ljust(MAP_BYTES, b"\0")


def at_64(data: list[bytes]):
    """Memory that holds the maps, to be kept, and where each lies in it: at multiples of 64."""
    memory = (ctypes.c_char * (MAP_BYTES * (len(data) + 1)))()
    start = -(-ctypes.addressof(memory) // 64) * 64
    places = [start + MAP_BYTES * k for k in range(len(data))]
    for place, x in zip(places, data, strict=True):
        ctypes.memmove(place, x, MAP_BYTES)
    return memory, places

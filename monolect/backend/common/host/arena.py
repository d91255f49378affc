"""Allocate executable memory for machine code from large chunks.

What it is for: thousands of small pieces of machine code share pages, instead of a mapping each.
What it does not do: know an object format, or free memory, since an address inside of it may still be in use.
Invariant: a piece is reserved only after it is linked; an error before that leaves the arena unchanged.
"""

import ctypes
import functools
import mmap
import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from monolect.base.errors import ObjectFileError

CHUNK_BYTES: Final = 1 << 20  # least size of a chunk
PAGE_BYTES: Final = mmap.PAGESIZE
_HAS_SPLIT_CACHES: Final = hasattr(os, "uname") and os.uname().machine.lower() in ("aarch64", "arm64")


def align_up(value: int, align: int) -> int:
    """Return the least multiple of `align`, a power of two, that is not below `value`."""
    return (value + align - 1) & -align


class Arena:
    """An allocator of executable memory, which takes pieces from both ends of a chunk and never frees them.

    Code grows up, writable data grows down, and at least a page stays between them: a store close to running code makes
    an x86 processor flush its pipeline. Both are in one chunk so that 32-bit displacements always reach.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.low = self.high = 0

    def install(
        self,
        code_bytes: int,
        data_bytes: int,
        align: int,
        link: Callable[[int, int], tuple[bytearray, bytearray]],
    ) -> None:
        """Reserve memory for code and data, and fill it with the bytes that `link(code address, data address)` returns.

        An error that `link` raises leaves nothing reserved.
        """
        with self.lock:
            code, data = self._next_addresses(data_bytes, align)
            if code + code_bytes > (data & -PAGE_BYTES) - PAGE_BYTES:
                self._grow(code_bytes + data_bytes + 4 * PAGE_BYTES)
                code, data = self._next_addresses(data_bytes, align)
            linked_code, linked_data = link(code, data)  # may raise, as nothing is reserved yet
            ctypes.memmove(data, bytes(linked_data), data_bytes)
            ctypes.memmove(code, bytes(linked_code), code_bytes)
            if _HAS_SPLIT_CACHES and code_bytes:
                _instruction_flush()(code, code + code_bytes)
            self.low, self.high = code + code_bytes, data

    def _next_addresses(self, data_bytes: int, align: int) -> tuple[int, int]:
        return align_up(self.low, align), (self.high - data_bytes) & -align

    def _grow(self, n_bytes: int) -> None:
        size = align_up(max(n_bytes, CHUNK_BYTES), PAGE_BYTES)
        self.low = map_executable(size)
        self.high = self.low + size


def map_executable(n_bytes: int) -> int:
    """Map memory that is readable, writable and executable, and return its address.

    Raises ObjectFileError if the system refuses.
    """
    if not hasattr(mmap, "PROT_EXEC"):
        raise ObjectFileError(f"loading objects needs POSIX mmap, which {sys.platform} does not have")
    try:
        prot = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        chunk = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot)
    except OSError as error:
        raise ObjectFileError(f"the system refuses memory both writable and executable: {error}") from error
    # The chunk outlives the interpreter's teardown: a native thread may still run code in it then.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(chunk))
    return ctypes.addressof(ctypes.c_char.from_buffer(chunk))


@functools.cache
def _instruction_flush() -> Callable[[int, int], None]:
    """Return the C runtime's routine that synchronizes the instruction cache with fresh code."""
    for library in (None, "libgcc_s.so.1"):
        try:
            clear = ctypes.CDLL(library)["__clear_cache"]
        except (OSError, AttributeError):
            continue
        return lambda start, end: clear(ctypes.c_void_p(start), ctypes.c_void_p(end))
    raise ObjectFileError("no __clear_cache in the C runtime or libgcc_s.so.1; loading code needs it on this machine")


executable_memory = Arena()  # shared by all code of the process


def _renew_lock() -> None:
    executable_memory.lock = threading.Lock()  # another thread of the parent may have held it at the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


__all__ = ["Arena", "PAGE_BYTES", "align_up", "executable_memory", "map_executable"]

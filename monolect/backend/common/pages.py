"""Map pages of host memory: huge pages where faulting them is fast, and prefaulted before they are used.

It also returns to the system the memory that a compiler leaves behind.

Measured on virtual machines, 2 MiB take 0.2 ms as a huge page, 1.5 ms as small pages touched one by one, and 0.8 ms as
small pages faulted by one call. A huge page takes 6 ms if the hypervisor had reclaimed the memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import struct
import threading
import time
from typing import Any, Final

from monolect.base.errors import AllocationError

HUGE_PAGE_BYTES: Final = 2 << 20
SLOW_FAULT_NS: Final = 1_000_000  # ns of thread time; a huge page that takes longer is slow to fault
DROP_EVERY_S: Final = 0.1  # s between drops of a compiler's pages: mapping them again takes 2 % of the time at most
_STEP_BYTES: Final = 16 << 20  # bytes prefaulted by one call; another thread that maps memory waits for one call
POPULATE_WRITE: Final = 23  # advice of madvise since Linux 5.14; older kernels refuse it, and pages fault when touched


def map_pages(n_bytes: int) -> mmap.mmap:
    """Return a private zeroed mapping of `n_bytes`, with 2 MiB more for alignment if `n_bytes` is 2 MiB or more.

    Raises AllocationError.
    """
    room = HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else 0  # address space only: untouched pages cost nothing
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            pages = mmap.mmap(-1, n_bytes + room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            pages = mmap.mmap(-1, n_bytes + room)
    except (OSError, ValueError, OverflowError) as error:
        raise AllocationError(f"the system has no {n_bytes} bytes of memory: {error}") from error
    return pages


def advise_huge(pages: mmap.mmap, wanted: bool) -> bool:
    """Advise the system to use huge pages for `pages` or not; return whether the system has huge pages."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    try:
        pages.madvise(mmap.MADV_HUGEPAGE if wanted else mmap.MADV_NOHUGEPAGE)
    except OSError:  # a kernel without huge pages
        return False
    return True


def address_of(pages: mmap.mmap) -> int:
    """Return the address of the first byte of a mapping."""
    return ctypes.addressof(ctypes.c_char.from_buffer(pages))


def aligned_address(pages: mmap.mmap) -> int:
    """Return the address of the first whole huge page in a mapping."""
    return (address_of(pages) + HUGE_PAGE_BYTES - 1) & -HUGE_PAGE_BYTES


def is_slow_to_fault(page: int) -> bool:
    """Touch the fresh huge page at address `page`; return whether its fault took more than SLOW_FAULT_NS."""
    start = time.thread_time_ns()
    ctypes.memset(page, 0, 1)
    return time.thread_time_ns() - start > SLOW_FAULT_NS


def prefault(pages: mmap.mmap, address: int, n_bytes: int) -> threading.Thread:
    """Start a thread that faults `n_bytes` of fresh pages from `address` on, and return it.

    Other threads may write to the pages meanwhile. Once huge pages are slow to fault, the thread uses small ones.
    """
    thread = threading.Thread(target=_prefault, args=(pages, address, n_bytes), name="monolect-pages", daemon=True)
    thread.start()
    return thread


def _prefault(pages: mmap.mmap, address: int, n_bytes: int) -> None:
    madvise = _c_function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for at in range(0, n_bytes if madvise else 0, _STEP_BYTES):
        size = min(_STEP_BYTES, n_bytes - at)
        start = time.thread_time_ns()
        if madvise(address + at, size, POPULATE_WRITE):  # an older kernel, or no memory: touching the pages will tell
            return
        if time.thread_time_ns() - start > SLOW_FAULT_NS * size // HUGE_PAGE_BYTES:
            with contextlib.suppress(ValueError):  # the mapping was closed meanwhile
                advise_huge(pages, False)


def trim_memory() -> None:
    """Return memory to the system after a compilation: free memory of the C library's allocator, and the pages of the
    compiler's library.

    The system's file cache still holds those pages for the next compilation. Mapping them again costs 2 ms, so they are
    dropped at most once in DROP_EVERY_S.
    """
    if trim := _c_function("malloc_trim", ctypes.c_size_t):  # only the GNU C library has it
        trim(0)
    if _compiler_pages and time.monotonic() >= _next_drop_s:
        _drop_pages()


def register_compiler_library(function: int) -> None:
    """Let `trim_memory` drop the code and constants of the library that has `function`, the address of one function.

    Only compilers may use the library. Its pages are dropped now, too: loading touched some that are not needed again.
    """
    _compiler_pages.update(_read_only_pages(function))
    _drop_pages()


_compiler_pages: dict[int, int] = {}  # address -> bytes of the read-only pages of compilers' libraries
_next_drop_s = 0.0  # s of time.monotonic; before it, `trim_memory` drops no pages


def _drop_pages() -> None:
    global _next_drop_s
    drop = _c_function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, n_bytes in [*_compiler_pages.items()]:
        drop(address, n_bytes, mmap.MADV_DONTNEED)
    _next_drop_s = time.monotonic() + DROP_EVERY_S


class _Symbol(ctypes.Structure):
    """The C structure Dl_info, which `dladdr` fills in."""

    _fields_ = [
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


_HEADER_BYTES: Final = 64  # bytes of the header of a 64-bit ELF file
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr: kind, flags, offset, address, physical, file, memory, align
_LOADED: Final = 1  # PT_LOAD: kind of a segment that is mapped into memory
_WRITABLE: Final = 2  # PF_W: flag of a segment


def _read_only_pages(function: int) -> dict[int, int]:
    """Return the whole pages of the read-only segments of the ELF library that has `function`, as bytes by address.

    Nothing writes to these pages, not even the dynamic linker, so a dropped page is read from the file again. The
    result is empty on systems whose libraries are not 64-bit ELF files.

    `dl_iterate_phdr` is not used because its callback into Python can deadlock. The C library holds the lock of its
    list of libraries while the callback waits for the interpreter lock; a thread that imports a module takes both.
    """
    symbol = _Symbol()
    look_up = _c_function("dladdr", ctypes.c_void_p, ctypes.c_void_p) if hasattr(mmap, "MADV_DONTNEED") else None
    if look_up is None or not look_up(function, ctypes.addressof(symbol)) or not symbol.base:
        return {}
    header = ctypes.string_at(symbol.base, _HEADER_BYTES)
    if header[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian
        return {}
    (table,), (size, n) = struct.unpack_from("<Q", header, 32), struct.unpack_from("<HH", header, 54)
    rows = [_SEGMENT.unpack(ctypes.string_at(symbol.base + table + i * size, _SEGMENT.size)) for i in range(n)]
    loaded = [row for row in rows if row[0] == _LOADED]
    shift = symbol.base - loaded[0][3] // mmap.PAGESIZE * mmap.PAGESIZE
    found: dict[int, int] = {}
    for _, flags, _, address, _, _, n_bytes, _ in loaded:
        if not flags & _WRITABLE:
            first = -(-(shift + address) // mmap.PAGESIZE) * mmap.PAGESIZE
            end = (shift + address + n_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
            found[first] = max(0, end - first)
    return found


@functools.cache
def _c_function(name: str, *argtypes: Any) -> Any:
    """Return the C library's function `name`, or None if there is none; a call releases the interpreter lock."""
    try:
        found = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = argtypes
    return found


__all__ = [
    "HUGE_PAGE_BYTES",
    "POPULATE_WRITE",
    "address_of",
    "advise_huge",
    "aligned_address",
    "is_slow_to_fault",
    "map_pages",
    "prefault",
    "register_compiler_library",
    "trim_memory",
]

"""Pages of the system for host memory: mapped, huge where those come fast, made to come before they are needed.

Measured on virtual machines: 2 MiB take 0.2 ms as a huge page, 1.5 ms as small ones that are touched one by one, 0.8 ms
as small ones asked for in one call, and 6 ms as a huge page where the host had taken that memory back.
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
SLOW_NS: Final = 1_000_000  # of a thread, for a huge page
DROP_EVERY_S: Final = 0.1  # s; dropping the pages of a compiler takes 2 % of the time at most
_STEP_BYTES: Final = 16 << 20  # brought at once: whoever maps memory meanwhile waits for so much
_POPULATE_WRITE: Final = 23  # of madvise, since Linux 5.14; others refuse it, and pages come when they are touched


def map_pages(n_bytes: int) -> mmap.mmap:
    """Private zero pages; from 2 MiB on, with room to align to a huge page."""
    room = HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else 0  # address space only: untouched pages cost nothing
    try:
        if hasattr(mmap, "MAP_PRIVATE"):
            pages = mmap.mmap(-1, n_bytes + room, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        else:
            pages = mmap.mmap(-1, n_bytes + room)
    except (OSError, ValueError, OverflowError) as error:
        raise AllocationError(f"the system has no {n_bytes} bytes of memory: {error}") from error
    return pages


def want_huge(pages: mmap.mmap, wanted: bool) -> bool:
    """Advise the system for or against huge pages; False where it knows none."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return False
    try:
        pages.madvise(mmap.MADV_HUGEPAGE if wanted else mmap.MADV_NOHUGEPAGE)
    except OSError:  # a kernel without huge pages
        return False
    return True


def address_of(pages: mmap.mmap) -> int:
    """Where they begin."""
    return ctypes.addressof(ctypes.c_char.from_buffer(pages))


def aligned_address(pages: mmap.mmap) -> int:
    """Where the first whole huge page of them begins."""
    return (address_of(pages) + HUGE_PAGE_BYTES - 1) & -HUGE_PAGE_BYTES


def comes_slowly(page: int) -> bool:
    """Whether the fresh huge page at that address took long to come."""
    start = time.thread_time_ns()
    ctypes.memset(page, 0, 1)
    return time.thread_time_ns() - start > SLOW_NS


def bring(pages: mmap.mmap, address: int, n_bytes: int) -> threading.Thread:
    """A thread that makes fresh pages come, whoever writes to them meanwhile: small ones once huge ones come slowly."""
    thread = threading.Thread(target=_bring, args=(pages, address, n_bytes), name="monolect-pages", daemon=True)
    thread.start()
    return thread


def _bring(pages: mmap.mmap, address: int, n_bytes: int) -> None:
    madvise = _c_function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for at in range(0, n_bytes if madvise else 0, _STEP_BYTES):
        size = min(_STEP_BYTES, n_bytes - at)
        start = time.thread_time_ns()
        if madvise(address + at, size, _POPULATE_WRITE):  # an older kernel, or no memory: whoever touches them will see
            return
        if time.thread_time_ns() - start > SLOW_NS * size // HUGE_PAGE_BYTES:
            with contextlib.suppress(ValueError):  # given back to the system meanwhile
                want_huge(pages, False)


def give_back() -> None:
    """Return to the system what a compiler that has finished leaves: the memory that the C library's allocator holds
    free, and the pages of the compiler's library. Those are still in the system's cache of files when it runs again;
    as mapping them again costs a small compilation 2 ms, they are dropped once in DROP_EVERY_S at most.
    """
    if trim := _c_function("malloc_trim", ctypes.c_size_t):  # only the GNU C library has it
        trim(0)
    if _of_compilers and time.monotonic() >= _next_drop_s:
        _drop_pages()


def note_compiler(function: int) -> None:
    """The address of any function in a library that only compilers run: `give_back` drops the library's code and
    constants from this process. Those that only loading it needed go now.
    """
    _of_compilers.update(_constant_parts(function))
    _drop_pages()


_of_compilers: dict[int, int] = {}  # bytes by address
_next_drop_s = 0.0  # of time.monotonic


def _drop_pages() -> None:
    global _next_drop_s
    drop = _c_function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, n_bytes in [*_of_compilers.items()]:
        drop(address, n_bytes, mmap.MADV_DONTNEED)
    _next_drop_s = time.monotonic() + DROP_EVERY_S


class _Symbol(ctypes.Structure):
    """Dl_info."""

    _fields_ = [
        ("library", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    ]


_HEADER_BYTES: Final = 64  # of an ELF file of 64 bits
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr: kind, flags, offset, address, physical, file, memory, align
_LOADED: Final = 1  # kind of a segment: part of the file in memory
_WRITABLE: Final = 2  # flag of a segment


def _constant_parts(function: int) -> dict[int, int]:
    """Bytes by address of whole pages that nobody may write, not even the dynamic linker, of the ELF library that holds
    the function at that address: a page that is dropped is read from the file again. None on systems that load other
    files.

    The C library must not call Python while it walks its list of libraries (`dl_iterate_phdr`): it holds the lock of
    that list, the callback waits for the interpreter lock, and a thread that imports a module waits for both in turn.
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
    """A function of the C library, which lets other threads of Python run; None where the library has none."""
    try:
        found = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = argtypes
    return found

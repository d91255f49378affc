"""Pages of the system for host memory: mapped, huge where those come fast, made to come before they are needed.

Measured on virtual machines: 2 MiB take 0.2 ms as a huge page, 1.5 ms as small ones that are touched one by one, 0.8 ms
as small ones asked for in one call, and 6 ms as a huge page where the host had taken that memory back.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import sys
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


def note_compiler(library: str) -> None:
    """A library, loaded, that only compilers run: `give_back` drops its code and constants from this process. Those
    that only loading it needed go now.
    """
    _of_compilers.update(_constant_parts(library))
    _drop_pages()


_of_compilers: dict[int, int] = {}  # bytes by address
_next_drop_s = 0.0  # of time.monotonic


def _drop_pages() -> None:
    global _next_drop_s
    drop = _c_function("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for address, n_bytes in [*_of_compilers.items()]:
        drop(address, n_bytes, mmap.MADV_DONTNEED)
    _next_drop_s = time.monotonic() + DROP_EVERY_S


class _Segment(ctypes.Structure):
    """Elf64_Phdr."""

    _fields_ = [
        *((name, ctypes.c_uint32) for name in ("kind", "flags")),
        *((name, ctypes.c_uint64) for name in ("offset", "address", "physical", "n_bytes_of_file", "n_bytes", "align")),
    ]


class _Library(ctypes.Structure):
    """The fields of dl_phdr_info that all systems have."""

    _fields_ = [
        ("base", ctypes.c_uint64),
        ("name", ctypes.c_char_p),
        ("segments", ctypes.POINTER(_Segment)),
        ("n_segments", ctypes.c_uint16),
    ]


_LOADED: Final = 1  # kind of a segment: part of the file in memory
_WRITABLE: Final = 2  # flag of a segment


def _constant_parts(library: str) -> dict[int, int]:
    """Bytes by address of whole pages of a loaded ELF file that nobody may write, not even the dynamic linker: a page
    that is dropped is read from the file again. None on systems that load other files.
    """
    found: dict[int, int] = {}

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(_Library), ctypes.c_size_t, ctypes.c_void_p)
    def visit(at: Any, n_bytes: int, data: Any) -> int:
        here = at.contents
        if here.name == os.fsencode(library):
            for s in here.segments[: here.n_segments]:
                if s.kind == _LOADED and not s.flags & _WRITABLE:
                    first = -(-(here.base + s.address) // mmap.PAGESIZE) * mmap.PAGESIZE
                    end = (here.base + s.address + s.n_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
                    found[first] = max(0, end - first)
        return 0

    walk = _c_function("dl_iterate_phdr", ctypes.c_void_p, ctypes.c_void_p)
    if walk and sys.maxsize > 1 << 32 and hasattr(mmap, "MADV_DONTNEED"):
        walk(ctypes.cast(visit, ctypes.c_void_p), None)
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

"""Pages of the system for host memory: mapped, huge where those come fast, made to come before they are needed.

Measured on virtual machines: 2 MiB take 0.2 ms as a huge page, 1.5 ms as small ones that are touched one by one, 0.8 ms
as small ones asked for in one call, and 6 ms as a huge page where the host had taken that memory back.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import threading
import time
from typing import Any, Final

from monolect.base.errors import AllocationError

HUGE_PAGE_BYTES: Final = 2 << 20
SLOW_NS: Final = 1_000_000  # of a thread, for a huge page
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
    """Return to the system what the C library's allocator holds free: the memory of a compiler that has finished."""
    if trim := _c_function("malloc_trim", ctypes.c_size_t):  # only the GNU C library has it
        trim(0)


@functools.cache
def _c_function(name: str, *argtypes: Any) -> Any:
    """A function of the C library, which lets other threads of Python run; None where the library has none."""
    try:
        found = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes = argtypes
    return found

"""Allocate host memory for buffers: recycle blocks in size classes, aligned for vectors and huge pages.

What it is for: faulting a fresh page costs more than most kernels, so freed memory is cached and reused. Blocks are
aligned to 64 bytes. Blocks of 2 MiB and more are aligned to huge pages and use them, unless huge pages are slow to
fault: a fault takes milliseconds if the hypervisor reclaimed the memory, or if the system must compact memory first.
Reused memory is advised to use huge pages in any case. `prepare` faults the pages of large results ahead of their use,
while kernels are compiled.

What it does not do: clear memory, know dtypes, or synchronize. A block may be freed only if no thread writes to it.

Invariant: an address is in at most one live block. It stays mapped while the block, a part of it, or an array that
views it is alive. Small blocks (up to 256 KiB) come from arenas that are never unmapped, so their free lists hold at
most as much as was in use at once. Large blocks have a mapping each, and at most `max_cached_bytes` of them are cached.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from monolect.backend.common.pages import (
    HUGE_PAGE_BYTES,
    address_of,
    advise_huge,
    aligned_address,
    is_slow_to_fault,
    map_pages,
    prefault,
)
from monolect.base.errors import AllocationError, ArgumentError
from monolect.base.numpy import np

ALIGN_BYTES: Final = 64  # alignment of every block
SMALL_BYTES: Final = 256 << 10  # larger blocks have a mapping of their own
_PROBE_BYTES: Final = 64 << 20  # leading bytes of a fresh mapping that are touched to time the faults of huge pages
_MIN_PREFAULT_BYTES: Final = 4 << 20  # smaller blocks are not prefaulted: starting a thread costs more than the faults
_HUGE_PAUSE_S: Final = 1.0  # s after a slow fault during which fresh memory uses small pages
_new: Final = object.__new__
_ARENA_BYTES: Final = 8 << 20  # size of a mapping from which small blocks are carved
_BATCH_BYTES: Final = 4096  # bytes of tiny blocks that one refill carves
_MIN_CACHED_BYTES: Final = 1 << 30  # lower bound of the default of `max_cached_bytes`
CGROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # cgroups 2, 1


def _refcount_of_one() -> int:
    thing = object()
    return sys.getrefcount(thing)


# `sys.getrefcount` of an object that only one local variable refers to: 2 with the call's argument, 1 from Python 3.14
# on, which borrows the argument. To see if others hold an object, compare with this plus the references that you know.
ONE_REF: Final = _refcount_of_one()


class Stats(NamedTuple):
    """Bytes of an Allocator by use, counted in whole blocks."""

    used_bytes: int  # in live blocks
    cached_bytes: int  # in free lists
    cached_large_bytes: int  # in free lists of large blocks, which `max_cached_bytes` bounds
    mapped_bytes: int  # mapped from the system
    peak_bytes: int  # maximum of mapped_bytes


class Memory:
    """A range of host memory: `address`, `n_bytes`. The range is valid while this object, or a view of it, lives.

    `n_views` counts the arrays made so far that share the memory; code that got one may have written through it.
    """

    __slots__ = ("__weakref__", "address", "n_bytes", "n_views")

    address: int
    n_bytes: int
    n_views: int

    def view(self, dtype: Any) -> np.ndarray:
        """Return the memory as a flat array, without a copy; the array keeps the memory alive."""
        return np.asarray(self).view(dtype)

    def is_lent(self) -> bool:
        """Whether code outside of monolect can write to the memory without calling `view`, as it holds the array."""
        return False

    @property
    def __array_interface__(self) -> dict[str, Any]:
        self.n_views += 1
        return {"version": 3, "typestr": "|u1", "shape": (self.n_bytes,), "data": (self.address, self._is_read_only())}

    def _is_read_only(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"Memory(address={self.address:#x}, n_bytes={self.n_bytes})"


class _SmallBlock(Memory):
    """A block that returns to its free list when it is deleted. One list append: this runs for every small tensor."""

    __slots__ = ("_release",)

    _release: Callable[[int], None]

    def __del__(self) -> None:
        self._release(self.address)


class _LargeBlock(Memory):
    """A block with a mapping of its own."""

    __slots__ = ("_allocator", "_mapping")

    _allocator: Allocator
    _mapping: _Mapping

    def __del__(self) -> None:
        self._allocator._release_large(self._mapping)


class BorrowedMemory(Memory):
    """Memory of an array; this object keeps the array alive."""

    __slots__ = ("_array",)

    _array: np.ndarray

    def _is_read_only(self) -> bool:
        return not self._array.flags.writeable

    def is_lent(self) -> bool:
        """Whether other code holds the array or one of its bases, or owns its memory.

        Reference counts decide. An array with a base that is not a plain NumPy array counts as lent.
        """
        array, mine = self._array, ONE_REF + 1  # the local variable, and the attribute or `base`
        while type(array) is np.ndarray and sys.getrefcount(array) <= mine:
            if array.base is None:
                return not array.flags.owndata
            array = array.base
        return True


class PartOfMemory(Memory):
    """A range of another Memory, which this object keeps alive."""

    __slots__ = ("_whole",)

    _whole: Memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        self.n_views += 1
        whole = self._whole.__array_interface__  # counts as a view of the whole, too: a write to a part changes it
        return {**whole, "shape": (self.n_bytes,), "data": (self.address, whole["data"][1])}

    def is_lent(self) -> bool:
        """Return True: code that holds the whole memory can write to this part."""
        return True


class _Mapping(NamedTuple):
    pages: mmap.mmap
    address: int
    n_bytes: int  # of the size class; the mapping may be longer
    wants_huge: bool  # pages that are faulted from now on may be huge
    is_prefaulting: bool = False  # a thread was started to fault its pages, and no block used it yet


class _FreeList:
    """The free small blocks of one size class."""

    __slots__ = ("free", "pop", "push", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []
        self.pop = self.free.pop
        self.push = self.free.append


def class_bytes(n_bytes: int) -> int:
    """Return the size of the smallest class that holds `n_bytes`: 1, 5/4, 6/4 or 7/4 of a power of two; at least 64."""
    if n_bytes <= 4 * ALIGN_BYTES:
        return max(ALIGN_BYTES, -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES)
    step = 1 << ((n_bytes - 1).bit_length() - 3)
    return -(-n_bytes // step) * step


def _small_free_lists() -> list[_FreeList]:
    """Return the free list of each block size, indexed by the size in units of 64 bytes, up to SMALL_BYTES."""
    free_lists = [_FreeList(ALIGN_BYTES)]
    while len(free_lists) <= SMALL_BYTES // ALIGN_BYTES:
        size = class_bytes(len(free_lists) * ALIGN_BYTES)
        free_lists += [_FreeList(size)] * (size // ALIGN_BYTES + 1 - len(free_lists))
    return free_lists


def machine_bytes() -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of its cgroup (a container).

    Return 0 if the system does not tell.
    """
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    for path in CGROUP_LIMITS:
        try:
            with open(path) as file:
                found = min(found, int(file.read()))
        except (OSError, ValueError):  # no such file; "max"
            continue
    return found


class Allocator:
    """Allocate `Memory`. Several threads may use it at the same time; small blocks need no lock."""

    def __init__(self, max_cached_bytes: int | None = None) -> None:
        self.max_cached_bytes = (
            max(_MIN_CACHED_BYTES, machine_bytes() // 4) if max_cached_bytes is None else max_cached_bytes
        )
        self._free_lists = _small_free_lists()
        # Re-entrant: the garbage collector may free a block while this thread is inside the allocator.
        self._lock = threading.RLock()
        self._arena_next = self._arena_end = 0
        self._arena_bytes = self._carved_bytes = 0
        self._large_free: dict[int, list[_Mapping]] = {}
        self._large_mapped_bytes = self._large_cached_bytes = self._peak_bytes = 0
        self._no_huge_until = 0.0  # s of time.monotonic; before it, fresh memory uses small pages

    def alloc(self, n_bytes: int) -> Memory:
        """Return uninitialized memory of `n_bytes`, aligned to 64 bytes. Raises AllocationError if there is none."""
        if not 0 <= n_bytes <= SMALL_BYTES:
            return self._alloc_large(n_bytes)
        free_list = self._free_lists[(n_bytes + 63) >> 6]
        try:
            address = free_list.pop()
        except IndexError:
            address = self._refill(free_list)
        block: Any = _new(_SmallBlock)
        block.address = address
        block.n_bytes = n_bytes
        block.n_views = 0
        block._release = free_list.push
        return block

    def prepare(self, sizes: Sequence[int]) -> list[threading.Thread]:
        """Add free blocks for allocations of these sizes, and return the threads that fault their pages.

        Small sizes are ignored, and so are sizes for which there are free blocks already.
        """
        threads: list[threading.Thread] = []
        with self._lock:
            for size, count in Counter(map(class_bytes, sizes)).items():
                free = self._large_free.setdefault(size, [])
                for _ in range(count - len(free) if size >= _MIN_PREFAULT_BYTES else 0):
                    if self._large_cached_bytes + size > self.max_cached_bytes:
                        break
                    try:
                        mapping = self._map_large(size, HUGE_PAGE_BYTES)
                    except AllocationError:
                        return threads  # the allocation itself will raise the error
                    threads.append(prefault(mapping.pages, mapping.address, size))
                    free.append(mapping._replace(is_prefaulting=True))
                    self._large_cached_bytes += size
        return threads

    def stats(self) -> Stats:
        """Return bytes by use. It walks over all free lists, so it is for reports, not for every step."""
        with self._lock:
            small = sum(len(free_list.free) * free_list.size for free_list in dict.fromkeys(self._free_lists))
            large = self._large_cached_bytes
            used = self._carved_bytes - small + self._large_mapped_bytes - large
            return Stats(used, small + large, large, self._mapped_bytes, self._peak_bytes)

    def trim(self, max_cached_bytes: int = 0) -> None:
        """Unmap free large blocks, largest sizes first, until at most `max_cached_bytes` are cached."""
        with self._lock:
            for size in sorted(self._large_free, reverse=True):
                free = self._large_free[size]
                while free and self._large_cached_bytes > max_cached_bytes:
                    free.pop().pages.close()
                    self._large_cached_bytes -= size
                    self._large_mapped_bytes -= size

    @property
    def _mapped_bytes(self) -> int:
        return self._arena_bytes + self._large_mapped_bytes

    def _refill(self, free_list: _FreeList) -> int:
        """Carve a block from the arena and return its address; carve a batch of tiny blocks for the free list."""
        with self._lock:
            count = max(1, _BATCH_BYTES // free_list.size)
            if self._arena_end - self._arena_next < count * free_list.size:
                # The rest of the old arena is never used: less than one refill of this size.
                pages = self._map(_ARENA_BYTES)
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(pages))  # views may outlive this allocator
                self._arena_next = aligned_address(pages)
                self._probe_huge(pages, self._arena_next, HUGE_PAGE_BYTES)
                self._arena_end = self._arena_next + _ARENA_BYTES
                self._arena_bytes += _ARENA_BYTES
                self._peak_bytes = max(self._peak_bytes, self._mapped_bytes)
            first = self._arena_next
            self._arena_next += count * free_list.size
            self._carved_bytes += count * free_list.size
            free_list.free.extend(range(first + (count - 1) * free_list.size, first, -free_list.size))
            return first

    def _alloc_large(self, n_bytes: int) -> Memory:
        if n_bytes < 0:
            raise ArgumentError("size of a memory block", expected="at least 0 bytes", found=n_bytes)
        size = class_bytes(n_bytes)
        with self._lock:
            free = self._large_free.setdefault(size, [])
            if free:
                mapping = free.pop()
                self._large_cached_bytes -= size
                if mapping.is_prefaulting:
                    mapping = mapping._replace(is_prefaulting=False)
                elif not mapping.wants_huge and size >= HUGE_PAGE_BYTES:
                    advise_huge(mapping.pages, True)
                    mapping = mapping._replace(wants_huge=True)
            else:
                mapping = self._map_large(size)
        block = _LargeBlock.__new__(_LargeBlock)
        block._allocator = self
        block._mapping = mapping
        block.address = mapping.address
        block.n_bytes = n_bytes
        block.n_views = 0
        return block

    def _map(self, n_bytes: int) -> mmap.mmap:
        """Map `n_bytes`; if the system has no memory, unmap all cached blocks and try once more."""
        try:
            return map_pages(n_bytes)
        except AllocationError:
            self.trim()
        try:
            return map_pages(n_bytes)
        except AllocationError as error:
            raise AllocationError(
                f"devices of the host: {error.message}",
                expected="smaller batches, or fewer tensors that are kept",
                found=f"{self.stats().used_bytes} bytes in use",
            ) from error

    def _map_large(self, size: int, most: int = _PROBE_BYTES) -> _Mapping:
        pages = self._map(size)
        self._large_mapped_bytes += size
        self._peak_bytes = max(self._peak_bytes, self._mapped_bytes)
        if size < HUGE_PAGE_BYTES:
            return _Mapping(pages, address_of(pages), size, False)
        address = aligned_address(pages)
        return _Mapping(pages, address, size, self._probe_huge(pages, address, min(size, most)))

    def _probe_huge(self, pages: mmap.mmap, address: int, n_bytes: int) -> bool:
        """Touch the first `n_bytes` of fresh pages as huge ones; return whether the rest may be huge.

        After a slow fault the rest, and other fresh memory for _HUGE_PAUSE_S, uses small pages.
        """
        now = time.monotonic()
        if now < self._no_huge_until or not advise_huge(pages, True):
            return False
        for page in range(address, address + n_bytes, HUGE_PAGE_BYTES):
            if is_slow_to_fault(page):
                self._no_huge_until = now + _HUGE_PAUSE_S
                advise_huge(pages, False)
                return False
        return True

    def _release_large(self, mapping: _Mapping) -> None:
        with self._lock:
            self._large_free[mapping.n_bytes].append(mapping)
            self._large_cached_bytes += mapping.n_bytes
            if self._large_cached_bytes > self.max_cached_bytes:
                self.trim(self.max_cached_bytes)


def from_array(array: np.ndarray) -> BorrowedMemory:
    """Return the memory of a C-contiguous array, without a copy; it keeps the array alive."""
    if not array.flags.c_contiguous:
        raise ArgumentError(
            "an array whose memory is borrowed",
            expected="C-contiguous",
            found=f"shape {array.shape}, strides {array.strides}",
        )
    memory = BorrowedMemory.__new__(BorrowedMemory)
    memory._array = array
    memory.address = array.__array_interface__["data"][0]
    memory.n_bytes = array.nbytes
    memory.n_views = 0
    return memory


def part(whole: Memory, at: int, n_bytes: int) -> Memory:
    """Return the `n_bytes` of `whole` from byte `at` on, without a copy; the part keeps `whole` alive."""
    if at < 0 or n_bytes < 0 or at + n_bytes > whole.n_bytes:
        raise ArgumentError("a part of a memory", expected=f"within {whole.n_bytes} bytes", found=(at, n_bytes))
    memory = PartOfMemory.__new__(PartOfMemory)
    memory._whole = whole
    memory.address = whole.address + at
    memory.n_bytes = n_bytes
    memory.n_views = 0
    return memory


def copy(target: Memory, source: Memory, n_bytes: int) -> None:
    """Copy the first `n_bytes` of `source` to `target`."""
    target.view(np.uint8)[:n_bytes] = source.view(np.uint8)[:n_bytes]


HOST: Final = "host"  # name of the memory space of the host
_default: Final = Allocator()
alloc: Final = _default.alloc
prepare: Final = _default.prepare
stats: Final = _default.stats
trim: Final = _default.trim


def _renew_lock() -> None:
    _default._lock = threading.RLock()  # another thread of the parent may have held it at the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


__all__ = [
    "Allocator",
    "BorrowedMemory",
    "HOST",
    "Memory",
    "ONE_REF",
    "PartOfMemory",
    "SMALL_BYTES",
    "Stats",
    "alloc",
    "class_bytes",
    "copy",
    "from_array",
    "machine_bytes",
    "part",
    "stats",
]

"""Host memory for buffers: allocated in size classes, recycled at once, aligned for vectors.

What it is for: a fresh page costs more to touch than most kernels cost to run, so memory that was used before is kept
and handed out again. Blocks are 64-byte aligned; those of 2 MiB and more are aligned to, and advised for, huge pages,
unless those come slowly: where the host of a virtual machine took memory back, or the system must first make room for
2 MiB in one piece, one takes milliseconds. Memory that is used again is advised in any case. Who knows that large
results are to come has them prepared: their pages come while it is still compiling.

What it does not do: it clears nothing, knows no dtypes, and does not synchronise: whoever frees a block must know that
no thread still writes to it.

Invariant: an address is in at most one live block, and stays mapped while that block, a part of it, or an array viewing
it, lives. Small blocks (up to 256 KiB) are carved from arenas that are never returned: their free lists are bounded by
the most that was in use at once. Large blocks are mapped singly; what is kept of them is bounded by `max_cached_bytes`.
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
    aligned_address,
    bring,
    comes_slowly,
    map_pages,
    want_huge,
)
from monolect.base.errors import AllocationError, ArgumentError
from monolect.base.numpy import np

ALIGN_BYTES: Final = 64
SMALL_BYTES: Final = 256 << 10
_TOUCHED_BYTES: Final = 64 << 20  # of a fresh block, at most, to see how its pages come
_PREPARED_BYTES: Final = 4 << 20  # blocks whose pages take longer to come than a thread takes to start
_SLOW_FOR_S: Final = 1.0  # after a slow one, for so long none is asked for
_new: Final = object.__new__
_ARENA_BYTES: Final = 8 << 20
_BATCH_BYTES: Final = 4096  # a refill of tiny blocks carves this much at once
_MIN_CACHED_BYTES: Final = 1 << 30
GROUP_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # cgroups 2, 1


def _one_name() -> int:
    thing = object()
    return sys.getrefcount(thing)


# What `getrefcount` says of a thing that one name of a function holds and nobody else: the name and the argument, where
# Python does not lend one to the other (3.14 does). Who asks whether others hold a thing adds the holders it knows.
ONE_NAME: Final = _one_name()


class Stats(NamedTuple):
    """Bytes by where they are, counted in whole blocks."""

    used_bytes: int  # in live blocks
    cached_bytes: int  # in free lists, ready to be handed out
    cached_large_bytes: int  # the part of them that `max_cached_bytes` bounds
    mapped_bytes: int  # taken from the system
    peak_bytes: int  # the most that was mapped at once


class Memory:
    """A range of host memory: `address`, `n_bytes`. The range is valid while this object, or a view of it, lives.

    `n_views` counts the arrays handed out so far: whoever got one may have written through it.
    """

    __slots__ = ("__weakref__", "address", "n_bytes", "n_views")

    address: int
    n_bytes: int
    n_views: int

    def view(self, dtype: Any) -> np.ndarray:
        """The memory as a flat array, without a copy; the array keeps the memory alive."""
        return np.asarray(self).view(dtype)

    def is_lent(self) -> bool:
        """Whether somebody can write to it who needs no view: the memory is part of an array that others hold."""
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
    """A block that goes back to its free list when it dies. One list append: this runs for every small tensor."""

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
    """Memory that belongs to an array, kept alive by this object."""

    __slots__ = ("_array",)

    _array: np.ndarray

    def _is_read_only(self) -> bool:
        return not self._array.flags.writeable

    def is_lent(self) -> bool:
        """See `Memory`. Only plain arrays, down to the one that owns the memory, tell who else holds them."""
        array, mine = self._array, ONE_NAME + 1  # the attribute's
        while type(array) is np.ndarray and sys.getrefcount(array) <= mine:
            if array.base is None:
                return not array.flags.owndata
            array = array.base
        return True


class PartOfMemory(Memory):
    """Bytes of another memory, kept alive by this object. They are never this one's alone: others hold the whole."""

    __slots__ = ("_whole",)

    _whole: Memory

    @property
    def __array_interface__(self) -> dict[str, Any]:
        self.n_views += 1
        whole = self._whole.__array_interface__  # which counts there, too: who writes to a part writes to the whole
        return {**whole, "shape": (self.n_bytes,), "data": (self.address, whole["data"][1])}

    def is_lent(self) -> bool:
        """See `Memory`."""
        return True


class _Mapping(NamedTuple):
    pages: mmap.mmap
    address: int
    n_bytes: int  # of the size class; the pages may be more
    wants_huge: bool  # pages that come from now on may be huge
    is_coming: bool = False  # its pages were asked for, and nobody used it yet


class _Shelf:
    """The free small blocks of one size class."""

    __slots__ = ("free", "pop", "push", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.free: list[int] = []
        self.pop = self.free.pop
        self.push = self.free.append


def class_bytes(n_bytes: int) -> int:
    """Size of the smallest class that holds `n_bytes`: a power of two, or 5/4, 6/4, 7/4 of one; at least 64."""
    if n_bytes <= 4 * ALIGN_BYTES:
        return max(ALIGN_BYTES, -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES)
    step = 1 << ((n_bytes - 1).bit_length() - 3)
    return -(-n_bytes // step) * step


def _small_shelves() -> list[_Shelf]:
    """The shelf for every count of 64-byte units up to SMALL_BYTES."""
    shelves = [_Shelf(ALIGN_BYTES)]
    while len(shelves) <= SMALL_BYTES // ALIGN_BYTES:
        size = class_bytes(len(shelves) * ALIGN_BYTES)
        shelves += [_Shelf(size)] * (size // ALIGN_BYTES + 1 - len(shelves))
    return shelves


def machine_bytes() -> int:
    """The memory that this process may use: the machine's, or what its group (a container) may; 0 where nobody says."""
    try:
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 0
    for path in GROUP_LIMITS:
        try:
            with open(path) as file:
                found = min(found, int(file.read()))
        except (OSError, ValueError):  # no such file; "max"
            continue
    return found


class Allocator:
    """Hands out `Memory`. Safe to use from several threads; small blocks take no lock."""

    def __init__(self, max_cached_bytes: int | None = None) -> None:
        self.max_cached_bytes = (
            max(_MIN_CACHED_BYTES, machine_bytes() // 4) if max_cached_bytes is None else max_cached_bytes
        )
        self._shelves = _small_shelves()
        # Re-entrant: the garbage collector may free a block while this thread is inside the allocator.
        self._lock = threading.RLock()
        self._arena_next = self._arena_end = 0
        self._arena_bytes = self._carved_bytes = 0
        self._large_free: dict[int, list[_Mapping]] = {}
        self._large_mapped_bytes = self._large_cached_bytes = self._peak_bytes = 0
        self._small_pages_until = 0.0  # by time.monotonic

    def alloc(self, n_bytes: int) -> Memory:
        """Uninitialised memory of `n_bytes`, 64-byte aligned; `AllocationError` when the system has no more."""
        if not 0 <= n_bytes <= SMALL_BYTES:
            return self._alloc_large(n_bytes)
        shelf = self._shelves[(n_bytes + 63) >> 6]
        try:
            address = shelf.pop()
        except IndexError:
            address = self._refill(shelf)
        block: Any = _new(_SmallBlock)
        block.address = address
        block.n_bytes = n_bytes
        block.n_views = 0
        block._release = shelf.push
        return block

    def prepare(self, sizes: Sequence[int]) -> list[threading.Thread]:
        """Have free blocks for the large ones of these bytes; threads make their pages come, if they are fresh."""
        threads: list[threading.Thread] = []
        with self._lock:
            for size, count in Counter(map(class_bytes, sizes)).items():
                free = self._large_free.setdefault(size, [])
                for _ in range(count - len(free) if size >= _PREPARED_BYTES else 0):
                    if self._large_cached_bytes + size > self.max_cached_bytes:
                        break
                    try:
                        mapping = self._map_large(size, HUGE_PAGE_BYTES)
                    except AllocationError:
                        return threads  # whoever needs it will say so
                    threads.append(bring(mapping.pages, mapping.address, size))
                    free.append(mapping._replace(is_coming=True))
                    self._large_cached_bytes += size
        return threads

    def stats(self) -> Stats:
        """Where the memory is. Walks the free lists' lengths: for reports, not for every step."""
        with self._lock:
            small = sum(len(shelf.free) * shelf.size for shelf in dict.fromkeys(self._shelves))
            large = self._large_cached_bytes
            used = self._carved_bytes - small + self._large_mapped_bytes - large
            return Stats(used, small + large, large, self._mapped_bytes, self._peak_bytes)

    def trim(self, max_cached_bytes: int = 0) -> None:
        """Return free large blocks to the system, largest classes first, until no more than that is kept."""
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

    def _refill(self, shelf: _Shelf) -> int:
        """One block, and for tiny ones a batch into the free list, from the arena."""
        with self._lock:
            count = max(1, _BATCH_BYTES // shelf.size)
            if self._arena_end - self._arena_next < count * shelf.size:
                # What is left of the old arena is dropped: less than one block of a small class.
                pages = self._map(_ARENA_BYTES)
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(pages))  # views may outlive this allocator
                self._arena_next = aligned_address(pages)
                self._advise(pages, self._arena_next, HUGE_PAGE_BYTES)
                self._arena_end = self._arena_next + _ARENA_BYTES
                self._arena_bytes += _ARENA_BYTES
                self._peak_bytes = max(self._peak_bytes, self._mapped_bytes)
            first = self._arena_next
            self._arena_next += count * shelf.size
            self._carved_bytes += count * shelf.size
            shelf.free.extend(range(first + (count - 1) * shelf.size, first, -shelf.size))
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
                if mapping.is_coming:
                    mapping = mapping._replace(is_coming=False)
                elif not mapping.wants_huge and size >= HUGE_PAGE_BYTES:
                    want_huge(mapping.pages, True)
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
        """Pages of the system; when it has none, those that are kept are given back and it is asked once more."""
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

    def _map_large(self, size: int, most: int = _TOUCHED_BYTES) -> _Mapping:
        pages = self._map(size)
        self._large_mapped_bytes += size
        self._peak_bytes = max(self._peak_bytes, self._mapped_bytes)
        if size < HUGE_PAGE_BYTES:
            return _Mapping(pages, address_of(pages), size, False)
        address = aligned_address(pages)
        return _Mapping(pages, address, size, self._advise(pages, address, min(size, most)))

    def _advise(self, pages: mmap.mmap, address: int, n_bytes: int) -> bool:
        """Whether the rest of fresh pages may be huge, by how long the first `n_bytes` of them take to come."""
        now = time.monotonic()
        if now < self._small_pages_until or not want_huge(pages, True):
            return False
        for page in range(address, address + n_bytes, HUGE_PAGE_BYTES):
            if comes_slowly(page):
                self._small_pages_until = now + _SLOW_FOR_S
                want_huge(pages, False)
                return False
        return True

    def _release_large(self, mapping: _Mapping) -> None:
        with self._lock:
            self._large_free[mapping.n_bytes].append(mapping)
            self._large_cached_bytes += mapping.n_bytes
            if self._large_cached_bytes > self.max_cached_bytes:
                self.trim(self.max_cached_bytes)


def from_array(array: np.ndarray) -> BorrowedMemory:
    """The memory of a C-contiguous array, without a copy; the array stays alive with it."""
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
    """The bytes from `at` on, without a copy; the whole stays alive with them."""
    if at < 0 or n_bytes < 0 or at + n_bytes > whole.n_bytes:
        raise ArgumentError("a part of a memory", expected=f"within {whole.n_bytes} bytes", found=(at, n_bytes))
    memory = PartOfMemory.__new__(PartOfMemory)
    memory._whole = whole
    memory.address = whole.address + at
    memory.n_bytes = n_bytes
    memory.n_views = 0
    return memory


def copy(target: Memory, source: Memory, n_bytes: int) -> None:
    """The first `n_bytes` of one memory to another."""
    target.view(np.uint8)[:n_bytes] = source.view(np.uint8)[:n_bytes]


HOST: Final = "host"  # the space of all memory of this kind
_default: Final = Allocator()
alloc: Final = _default.alloc
prepare: Final = _default.prepare
stats: Final = _default.stats
trim: Final = _default.trim


def _renew_lock() -> None:
    _default._lock = threading.RLock()  # another thread of the parent may have held it at the fork


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

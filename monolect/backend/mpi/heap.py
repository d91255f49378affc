"""Allocate memory of this process that the other processes of its host map, for the operands and results of sums.

The heap of a process is a file without a name (memfd), which the others open while the heaps are made, and which the
system frees with the last of them, however it ends. The file has room for more than the machine has and takes memory
only for blocks in use: an allocation faults all pages of its block, so that a lack of memory is found there, not at a
write. Blocks have size classes; a freed block keeps its offset in the file and, up to a bound, its pages.

What it is not: memory for all tensors. Few systems allow huge pages for it.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections import defaultdict
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np

from monolect.backend.common.host.memory import Memory, class_bytes, machine_bytes
from monolect.backend.common.pages import HUGE_PAGE_BYTES, POPULATE_WRITE, address_of, advise_huge

ROOM = 2  # size of the files of a host as a multiple of its memory, since blocks of one size do not become others
CACHED = 8  # 1 / the part of a file up to which free blocks keep their pages; a quarter of the process's memory


class _Block(Memory):
    """A block, which returns to its heap when it is deleted."""

    __slots__ = ("_heap",)

    _heap: Heap

    def __del__(self) -> None:
        self._heap.release(self)


class Heap:
    """The heap of this process, and those of the others of its host. All of them make it at once.

    `files`: the file of each process, by its number on the host, as an array of bytes; empty if they cannot share.
    """

    def __init__(self, host: Any) -> None:
        """`host`: the communicator of the processes on this host."""
        self.n_bytes = ROOM * machine_bytes() // host.Get_size() // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES
        with ExitStack() as opened:
            maps = _mapped(host, self.n_bytes, opened)
        self.files = [np.frombuffer(pages, np.uint8) for pages in maps]
        if self.files:
            self.pages = maps[host.Get_rank()]
            self.address = address_of(self.pages)
        self.end = self.cached_bytes = 0
        self.free: dict[int, list[int]] = defaultdict(list)  # offsets of free blocks with pages, by size
        self.empty: dict[int, list[int]] = defaultdict(list)  # the same, without pages
        self.lock = threading.RLock()  # re-entrant: the garbage collector may free a block inside of `alloc`

    def alloc(self, n_bytes: int) -> Memory | None:
        """Return uninitialized memory of `n_bytes`; None if there is none."""
        size = _size(n_bytes)
        with self.lock:
            if self.free[size]:
                at = self.free[size].pop()
                self.cached_bytes -= size
            elif (found := self._fresh(size)) is not None:
                at = found
            else:
                return None
        block = _Block.__new__(_Block)
        block.address, block.n_bytes, block.n_views, block._heap = self.address + at, n_bytes, 0, self
        return block

    def release(self, block: Memory) -> None:
        """Take back a block."""
        at, size = block.address - self.address, _size(block.n_bytes)
        with self.lock:
            if self.cached_bytes + size <= self.n_bytes // CACHED:
                self.free[size].append(at)
                self.cached_bytes += size
            else:
                self._drop(at, size)

    def offset_of(self, data: np.ndarray) -> int:
        """Return where in the file of this process the array `data` starts, -1 if it is not in it."""
        at = data.ctypes.data - self.address if self.files else -1
        return at if 0 <= at < self.n_bytes else -1

    def _fresh(self, size: int) -> int | None:
        """Return the offset of a block whose pages were faulted now; None if there is no room or no memory."""
        if self.empty[size]:
            at = self.empty[size].pop()
        else:
            at = _rounded(self.end, _unit(size))
            if not self.files or at + size > self.n_bytes:
                return None
            self.end = at + size
        try:
            self.pages.madvise(POPULATE_WRITE, at, size)
        except OSError:  # no memory, or a system that cannot fault pages ahead
            self._drop(at, size)
            return None
        return at

    def _drop(self, at: int, size: int) -> None:
        """Return the pages of a free block to the system."""
        with suppress(OSError):  # in a fork, which does not have them
            self.pages.madvise(mmap.MADV_REMOVE, at, size)
        self.empty[size].append(at)


def _size(n_bytes: int) -> int:
    """Return the bytes of the block for `n_bytes`."""
    return _rounded(class_bytes(n_bytes), _unit(n_bytes))


def _unit(n_bytes: int) -> int:
    """Return the size of a page for a block of `n_bytes`."""
    return HUGE_PAGE_BYTES if n_bytes >= HUGE_PAGE_BYTES else mmap.PAGESIZE


def _rounded(n_bytes: int, unit: int) -> int:
    return -(-n_bytes // unit) * unit


def _mapped(host: Any, n_bytes: int, opened: ExitStack) -> list[mmap.mmap]:
    """Return a mapping of the file of each process of the communicator `host`, [] if one of them cannot map all.

    Files that were opened are closed with `opened`.
    """
    own, maps = None, []
    with suppress(OSError, AttributeError):  # a limit of the process, or a system without such files
        descriptor = os.memfd_create("monolect")
        opened.callback(os.close, descriptor)
        os.ftruncate(descriptor, n_bytes)
        own = f"/proc/{os.getpid()}/fd/{descriptor}", os.fstat(descriptor)[1:3], n_bytes
    offers = host.allgather(own)
    with suppress(OSError, TypeError, ValueError):  # one has none, or a limit
        for path, identity, size in offers:
            descriptor = os.open(path, os.O_RDWR)
            opened.callback(os.close, descriptor)
            if os.fstat(descriptor)[1:3] == identity:  # else of a process of another container
                maps.append(mmap.mmap(descriptor, size))
        for pages in maps:
            advise_huge(pages, True)
            pages.madvise(mmap.MADV_DONTFORK)
            pages.madvise(mmap.MADV_DONTDUMP)
    return maps if all(host.allgather(len(maps) == len(offers))) else []


__all__ = ["Heap"]

"""Memory of a device whose interface has handles: recycled in size classes, with addresses made up for it.

What it is for: everything above a device binds addresses, and an intermediate is a place in an arena. Where an
interface hands out handles (OpenCL, WebGPU), each handle gets a range of numbers of its own, and `find` turns a number
back into a handle and an offset. Subclasses say how memory is made, dropped and read.

What it does not do: it clears nothing and waits for nothing: a block is handed out again while kernels that use it may
still be queued, so a device must run what it is given in order.

Invariant: an address never means two handles, also over time.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from monolect.backend.common.host.memory import class_bytes
from monolect.base.errors import AllocationError

GRAIN_BYTES = 4096  # distance of ranges, at least: what runs over the end of one is in none


class Block:
    """A handle, its range of addresses, and the handles of parts of it that were asked for."""

    __slots__ = ("address", "handle", "n_bytes", "parts")

    def __init__(self, address: int, n_bytes: int, handle: Any):
        self.address, self.n_bytes, self.handle = address, n_bytes, handle
        self.parts: dict[tuple[int, int], Any] = {}


class HandleMemory:
    """Memory of a device; its block is recycled when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_owner", "address", "block", "n_bytes", "n_views")

    def __init__(self, owner: HandleAllocator, block: Block, n_bytes: int):
        self._owner, self.block, self.address, self.n_bytes = owner, block, block.address, n_bytes
        self.n_views = 0  # `view` makes copies: how often it was shared otherwise

    def view(self, dtype: Any) -> np.ndarray:
        """A copy of the values, once everything queued before is done."""
        return self._owner.read(self).view(dtype)

    def is_lent(self) -> bool:
        return False

    def __del__(self) -> None:
        self._owner.recycle(self.block)


class HandleAllocator:
    """Hands out HandleMemory. Keeps at most `max_cached_bytes` that nobody uses."""

    def __init__(self, name: str, max_cached_bytes: int):
        self.name, self.max_cached_bytes = name, max_cached_bytes
        self.used_bytes = self.cached_bytes = 0
        self.peak_bytes = 0  # the most that was taken from the device at once
        self._blocks: dict[int, Block] = {}
        self._addresses: list[int] = []  # of all blocks, sorted
        self._free: dict[int, list[Block]] = {}
        self._next = GRAIN_BYTES
        # Re-entrant: the garbage collector may free a block while this thread is inside the allocator.
        self._lock = threading.RLock()

    # ---- what a device supplies --------------------------------------------------------------------------------------
    def create(self, n_bytes: int) -> Any:
        """A handle. Raises AllocationError."""
        raise NotImplementedError

    def release(self, handle: Any) -> None:
        """Drop a handle that nobody uses."""
        raise NotImplementedError

    def wait(self) -> None:
        """Return when the device has run everything it was given."""
        raise NotImplementedError

    def read(self, memory: Any) -> np.ndarray:
        """The bytes of a memory."""
        raise NotImplementedError

    # ---- memory ------------------------------------------------------------------------------------------------------
    def alloc(self, n_bytes: int, is_new: bool = False) -> HandleMemory:
        """Uninitialised memory, also `is_new` though some is free. Raises AllocationError when there is none, also
        without what is kept for later.
        """
        size = class_bytes(max(1, n_bytes))
        with self._lock:
            free = self._free.get(size)
            if free and not is_new:
                self.cached_bytes -= size
                block = free.pop()
            else:
                block = self._made(size, n_bytes)
            self.used_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.used_bytes + self.cached_bytes)
        return HandleMemory(self, block, n_bytes)

    def _made(self, size: int, n_bytes: int) -> Block:
        try:
            handle = self.create(size)
        except AllocationError:
            self.wait()
            self.trim()
            try:
                handle = self.create(size)
            except AllocationError as error:
                raise AllocationError(
                    f"{self.name} has no memory for {n_bytes} bytes ({error.message})",
                    expected="smaller batches, or fewer tensors that are kept",
                    found=f"{self.used_bytes} bytes in use",
                ) from None
        block = Block(self.place(handle, size), size, handle)
        self._blocks[block.address] = block
        insort(self._addresses, block.address)
        return block

    def place(self, handle: Any, n_bytes: int) -> int:
        """The address of a new handle: the next range of numbers. A device with addresses says its own."""
        at = self._next
        self._next += -(-n_bytes // GRAIN_BYTES) * GRAIN_BYTES + GRAIN_BYTES
        return at

    def recycle(self, block: Block) -> None:
        """A block that nobody refers to any more."""
        with self._lock:
            self.used_bytes -= block.n_bytes
            self.cached_bytes += block.n_bytes
            self._free.setdefault(block.n_bytes, []).append(block)
            if self.cached_bytes > self.max_cached_bytes:
                self.trim(self.max_cached_bytes // 2)

    def trim(self, max_cached_bytes: int = 0) -> None:
        """Give free blocks back to the device, largest first, until no more than that is kept."""
        with self._lock:
            for size in sorted(self._free, reverse=True):
                while self._free[size] and self.cached_bytes > max_cached_bytes:
                    block = self._free[size].pop()
                    self.cached_bytes -= size
                    del self._blocks[block.address]
                    del self._addresses[bisect_right(self._addresses, block.address) - 1]
                    block.parts.clear()
                    self.release(block.handle)

    def find(self, address: int) -> tuple[Block, int]:
        """The block that an address lies in, and how far in it. Raises AllocationError for one that is in none."""
        block = self._blocks.get(address)
        if block is not None:
            return block, 0
        with self._lock:
            i = bisect_right(self._addresses, address) - 1
            block = self._blocks[self._addresses[i]] if i >= 0 else None
        if block is None or address >= block.address + block.n_bytes:
            raise AllocationError(f"{self.name} has no memory at this address", found=hex(address))
        return block, address - block.address

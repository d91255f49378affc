"""Allocate memory of devices by handle: recycle blocks in size classes, and give each handle virtual addresses.

What it is for: the layers above a device bind addresses, and an intermediate is an offset in an arena. If an interface
has handles instead (OpenCL, WebGPU), each handle gets its own range of numbers as addresses, and `find` maps a number
back to a handle and an offset. Subclasses create, release and read memory.

What it does not do: clear memory, or wait before memory is reused. A block is handed out again while kernels that use
it may still be queued, so a device must run its work in order.

Invariant: no address belongs to two handles at the same time; virtual addresses are never reused either.
"""

from __future__ import annotations

import threading
from bisect import bisect_right, insort
from typing import Any

import numpy as np

from monolect.backend.common.host.memory import class_bytes
from monolect.base.errors import AllocationError

GUARD_BYTES = 4096  # unused addresses between two ranges, at least: an address past the end of a block is in no block


class Block:
    """A handle, its range of addresses, and in `parts` the handles of sub-ranges: (offset, bytes) -> handle."""

    __slots__ = ("address", "handle", "n_bytes", "parts")

    def __init__(self, address: int, n_bytes: int, handle: Any):
        self.address, self.n_bytes, self.handle = address, n_bytes, handle
        self.parts: dict[tuple[int, int], Any] = {}


class HandleMemory:
    """Memory of a device; its block is recycled when no reference to this object is left."""

    __slots__ = ("__weakref__", "_owner", "address", "block", "n_bytes", "n_views")

    def __init__(self, owner: HandleAllocator, block: Block, n_bytes: int):
        self._owner, self.block, self.address, self.n_bytes = owner, block, block.address, n_bytes
        self.n_views = 0  # times that it was shared through DLPack; `view` makes copies and does not count

    def view(self, dtype: Any) -> np.ndarray:
        """Wait for all queued work and return a copy of the values as a flat array."""
        return self._owner.read(self).view(dtype)

    def is_lent(self) -> bool:
        return False

    def __del__(self) -> None:
        self._owner.recycle(self.block)


class HandleAllocator:
    """Allocate HandleMemory, and cache at most `max_cached_bytes` of free blocks."""

    def __init__(self, name: str, max_cached_bytes: int):
        self.name, self.max_cached_bytes = name, max_cached_bytes
        self.used_bytes = self.cached_bytes = 0
        self.peak_bytes = 0  # maximum of used and cached bytes
        self._blocks: dict[int, Block] = {}
        self._addresses: list[int] = []  # of all blocks, sorted
        self._free: dict[int, list[Block]] = {}  # free blocks by size
        self._next = GUARD_BYTES
        # Re-entrant: the garbage collector may free a block while this thread is inside the allocator.
        self._lock = threading.RLock()

    # ---- what a device supplies --------------------------------------------------------------------------------------
    def create(self, n_bytes: int) -> Any:
        """Return the handle of new memory. Raises AllocationError if the device has none left."""
        raise NotImplementedError

    def release(self, handle: Any) -> None:
        """Free the memory of a handle that is not used any more."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until the device has run all queued work."""
        raise NotImplementedError

    def read(self, memory: Any) -> np.ndarray:
        """Return a copy of the bytes of a memory, after all queued work."""
        raise NotImplementedError

    # ---- memory ------------------------------------------------------------------------------------------------------
    def alloc(self, n_bytes: int, is_new: bool = False) -> HandleMemory:
        """Return uninitialized memory: a free block of the size class, or a new one if there is none or if `is_new`.

        Raises AllocationError if the device has none left, even after all cached memory is freed.
        """
        size = class_bytes(max(1, n_bytes))
        with self._lock:
            free = self._free.get(size)
            if free and not is_new:
                self.cached_bytes -= size
                block = free.pop()
            else:
                block = self._create_block(size, n_bytes)
            self.used_bytes += size
            self.peak_bytes = max(self.peak_bytes, self.used_bytes + self.cached_bytes)
        return HandleMemory(self, block, n_bytes)

    def _create_block(self, size: int, n_bytes: int) -> Block:
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
        block = Block(self.address_for(handle, size), size, handle)
        self._blocks[block.address] = block
        insort(self._addresses, block.address)
        return block

    def address_for(self, handle: Any, n_bytes: int) -> int:
        """Return the address of a new handle: the next unused number. A device with real addresses overrides this."""
        at = self._next
        self._next += -(-n_bytes // GUARD_BYTES) * GUARD_BYTES + GUARD_BYTES
        return at

    def recycle(self, block: Block) -> None:
        """Put a block that is not used any more into the cache of free blocks."""
        with self._lock:
            self.used_bytes -= block.n_bytes
            self.cached_bytes += block.n_bytes
            self._free.setdefault(block.n_bytes, []).append(block)
            if self.cached_bytes > self.max_cached_bytes:
                self.trim(self.max_cached_bytes // 2)

    def trim(self, max_cached_bytes: int = 0) -> None:
        """Release free blocks, largest first, until at most `max_cached_bytes` are cached."""
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
        """Return the block that contains an address, and the offset in it. Raises AllocationError if none does."""
        block = self._blocks.get(address)
        if block is not None:
            return block, 0
        with self._lock:
            i = bisect_right(self._addresses, address) - 1
            block = self._blocks[self._addresses[i]] if i >= 0 else None
        if block is None or address >= block.address + block.n_bytes:
            raise AllocationError(f"{self.name} has no memory at this address", found=hex(address))
        return block, address - block.address


__all__ = ["Block", "HandleAllocator", "HandleMemory"]

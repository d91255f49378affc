"""Allocate memory of a CUDA or HIP device, and copy between it and the host through two pinned blocks (double buffer).

What it is for: the driver copies at full speed, and in parallel with kernels, only from pinned memory. So one pinned
block is filled while the other one is transferred. All work of a device runs in order on its main stream, except large
copies from the host. Those run on an upload stream, in parallel with work queued before, such as the previous step.
Work that is queued later waits for them; they wait for the work that was queued when their target memory became free.

Invariant: addresses are the driver's own; work on the main stream can use free memory without waiting.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from monolect.backend.common.gpu.driver import NO_TIMING, NOT_BLOCKING, Driver
from monolect.backend.common.gpu.handles import Block, HandleAllocator, HandleMemory
from monolect.backend.common.host.memory import class_bytes

PINNED_BYTES = 4 << 20  # size of a pinned block; longer copies go in several pieces
MIN_OVERLAP_BYTES = 64 << 10  # smaller copies use the main stream: they take less time than synchronizing two streams
NEVER = -1  # the epoch of a block that was never freed, or of a size that got no extra block


class PinnedBlock:
    """A block of pinned host memory, and the event that its last copy records."""

    def __init__(self, driver: Driver):
        self.address = int(driver("MemHostAlloc", PINNED_BYTES, 0, at="pinned memory"))
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * PINNED_BYTES).from_address(self.address))
        self.event = driver("EventCreate", NO_TIMING)


class Borrowed:
    """Memory of the GPU that belongs to another library; this object keeps its owner alive."""

    __slots__ = ("__weakref__", "_memory", "_owner", "address", "n_bytes", "n_views")

    def __init__(self, memory: GpuMemory, address: int, n_bytes: int, owner: Any):
        self._memory, self.address, self.n_bytes, self._owner, self.n_views = memory, address, n_bytes, owner, 0

    def view(self, dtype: Any) -> np.ndarray:
        """Wait for all queued work and return a copy of the values as a flat array."""
        return self._memory.read(self).view(dtype)

    def is_lent(self) -> bool:
        return True

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # at exit the modules that a wait needs may be gone
            self._memory.wait()  # the owner may reuse the memory at once


class UploadStream:
    """The stream of copies from the host, which runs in parallel with the stream `main`.

    Time is divided into epochs, numbered from 0: an epoch ends when a launch follows a copy.
    """

    def __init__(self, driver: Driver, main: Any):
        self.driver, self.main = driver, main
        self.stream = driver("StreamCreate", NOT_BLOCKING)
        self._epoch_start, self._queued, self._copied = (driver("EventCreate", NO_TIMING) for _ in range(3))
        driver("EventRecord", self._epoch_start, main)
        self.epoch, self._has_copies = 0, False

    def end_epoch(self) -> None:
        """End the current epoch (see the class) if it had copies: record an event after all work queued on `main`.

        Later copies to memory that became free in an older epoch wait for this event only.
        """
        if self._has_copies:
            self.driver("EventRecord", self._epoch_start, self.main)
            # after the event is recorded: a thread that sees the new epoch may wait for its start
            self.epoch, self._has_copies = self.epoch + 1, False

    @contextmanager
    def after(self, epoch: int) -> Iterator[Any]:
        """A context in which the upload stream can write to memory that became free in `epoch`.

        The stream first waits for the work that used the memory. Later work on `main` waits for the copies.
        """
        free = self._epoch_start
        if epoch == self.epoch:  # wait for all that is queued on `main`
            free = self._queued
            self.driver("EventRecord", free, self.main)
        self.driver("StreamWaitEvent", self.stream, free, 0)
        try:
            yield self.stream
        finally:
            self.driver("EventRecord", self._copied, self.stream)
            self.driver("StreamWaitEvent", self.main, self._copied, 0)
            self._has_copies = True


class GpuMemory(HandleAllocator):
    """The memory of one GPU. A handle is an address."""

    def __init__(self, driver: Driver, stream: Any, total_bytes: int):
        super().__init__(driver.device, total_bytes // 2)
        self.driver, self.stream = driver, stream
        self._pinned: list[PinnedBlock] = []
        self._copying = threading.Lock()  # guards the pinned blocks
        self._upload: UploadStream | None = None  # None before the first large copy
        self._freed_epochs: dict[int, int] = {}  # address of a block -> epoch in which it became free
        self._extra_epochs: dict[int, int] = {}  # size -> last epoch in which a block was added though one was free

    def create(self, n_bytes: int) -> int:
        return int(self.driver("MemAlloc", n_bytes, at=f"{n_bytes} bytes"))

    def release(self, handle: int) -> None:
        self.driver("MemFree", handle)
        self._freed_epochs.pop(handle, None)

    def address_for(self, handle: int, n_bytes: int) -> int:
        return handle

    def recycle(self, block: Block) -> None:
        """Put a block that is not used any more into the cache, and note the epoch in which it became free."""
        if self._upload is not None:
            self._freed_epochs[block.address] = self._upload.epoch
        super().recycle(block)

    def alloc_to_fill(self, n_bytes: int) -> HandleMemory:
        """Return memory for a copy from the host: the block of its size that has been free for longest.

        If even this block became free in the current epoch, the previous step may still use it. A new block is added
        then, so that steps alternate between blocks; at most one per size and epoch.
        """
        if n_bytes >= MIN_OVERLAP_BYTES and self._upload is not None:
            with self._lock:
                size, epoch = class_bytes(n_bytes), self._upload.epoch
                free = self._free.get(size, [])
                is_recent = free and self._freed_epochs.get(free[0].address, NEVER) == epoch
                if is_recent and self._extra_epochs.get(size, NEVER) != epoch:
                    self._extra_epochs[size] = epoch
                    return self.alloc(n_bytes, is_new=True)
                if free:
                    free.append(free.pop(0))
        return self.alloc(n_bytes)

    def before_launches(self) -> None:
        """End the epoch of the upload stream, since launches follow.

        Later copies to memory that is free now need not wait for these launches, which do not use it.
        """
        if self._upload is not None:
            self._upload.end_epoch()

    def wait(self) -> None:
        self.driver("StreamSynchronize", self.stream, at="a wait")

    def read(self, memory: HandleMemory | Borrowed) -> np.ndarray:
        """Wait for all queued work and return a copy of the bytes."""
        with self._copying:
            return self._read(memory)

    def _read(self, memory: HandleMemory | Borrowed) -> np.ndarray:
        out = np.empty(memory.n_bytes, np.uint8)
        pending: list[tuple[int, PinnedBlock]] = []
        for at, block in self._pieces(memory.n_bytes):
            n = min(PINNED_BYTES, memory.n_bytes - at)
            self.driver("MemcpyDtoHAsync", block.address, memory.address + at, n, self.stream, at="a copy to the host")
            self.driver("EventRecord", block.event, self.stream)
            pending.append((at, block))
            if len(pending) == 2:
                self._copy_out(out, *pending.pop(0))
        for piece in pending:
            self._copy_out(out, *piece)
        return out

    def _copy_out(self, out: np.ndarray, at: int, block: PinnedBlock) -> None:
        self.driver("EventSynchronize", block.event, at="a copy to the host")
        n = min(PINNED_BYTES, out.size - at)
        out[at : at + n] = block.bytes[:n]

    def write(self, memory: HandleMemory, array: np.ndarray) -> None:
        """Copy an array to memory of the GPU; the caller may change the array as soon as this returns."""
        source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self._copying:
            if source.size < MIN_OVERLAP_BYTES:
                self._write(memory, source, self.stream)
                return
            if self._upload is None:
                self._upload = UploadStream(self.driver, self.stream)
            with self._upload.after(self._freed_epochs.get(memory.address, NEVER)) as stream:
                self._write(memory, source, stream)

    def _write(self, memory: HandleMemory, source: np.ndarray, stream: Any) -> None:
        for at, block in self._pieces(source.size):
            n = min(PINNED_BYTES, source.size - at)
            self.driver("EventSynchronize", block.event, at="a copy from the host")
            block.bytes[:n] = source[at : at + n]
            self.driver("MemcpyHtoDAsync", memory.address + at, block.address, n, stream, at="a copy from the host")
            self.driver("EventRecord", block.event, stream)

    def _pieces(self, n_bytes: int) -> list[tuple[int, PinnedBlock]]:
        """Split a copy of `n_bytes` into pieces: (offset of the piece, pinned block that it uses)."""
        if not self._pinned:
            self._pinned = [PinnedBlock(self.driver) for _ in range(2)]
        return [(at, self._pinned[i % 2]) for i, at in enumerate(range(0, n_bytes, PINNED_BYTES))]


__all__ = ["Borrowed", "GpuMemory", "PinnedBlock", "UploadStream"]

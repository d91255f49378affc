"""Memory of a GPU behind a driver: recycled in size classes, filled and read through two pinned pieces of host memory.

What it is for: the driver copies at full speed, and beside kernels, only from pinned memory; so arrays go through two
pieces of it, one being filled while the other travels. All work of a device is on one stream, in order, but for arrays
on their way to it: these run beside what was queued before, such as the step before, on a stream of their own. What is
queued later waits for them. They wait for who had the memory before: what was queued when it became free.

Invariant: addresses are the driver's own; memory that is free may be given to whoever uses the one stream.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from monolect.backend.common.gpu.driver import NO_TIMES, NOT_BLOCKING, Driver
from monolect.backend.common.gpu.handles import Block, HandleAllocator, HandleMemory
from monolect.backend.common.host.memory import class_bytes

STAGE_BYTES = 4 << 20
BESIDE_BYTES = 64 << 10  # less has arrived before two streams have waited for each other
BEFORE_ALL = -1


class Stage:
    """A piece of pinned memory, and the event after its last use."""

    def __init__(self, driver: Driver):
        self.address = int(driver("MemHostAlloc", STAGE_BYTES, 0, at="pinned memory"))
        self.bytes = np.ctypeslib.as_array((ctypes.c_uint8 * STAGE_BYTES).from_address(self.address))
        self.event = driver("EventCreate", NO_TIMES)


class Borrowed:
    """Memory of the GPU that belongs to another library, kept alive with what owns it."""

    __slots__ = ("__weakref__", "_memory", "_owner", "address", "n_bytes", "n_views")

    def __init__(self, memory: GpuMemory, address: int, n_bytes: int, owner: Any):
        self._memory, self.address, self.n_bytes, self._owner, self.n_views = memory, address, n_bytes, owner, 0

    def view(self, dtype: Any) -> np.ndarray:
        """A copy of the values, once everything queued before is done."""
        return self._memory.read(self).view(dtype)

    def is_lent(self) -> bool:
        return True

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_ending():  # else the names that a wait needs are gone
            self._memory.wait()  # its owner may hand it out again at once


class Arrivals:
    """The stream of what comes from the host, beside `main`, in turns: one ends when launches follow a copy."""

    def __init__(self, driver: Driver, main: Any):
        self.driver, self.main = driver, main
        self.stream = driver("StreamCreate", NOT_BLOCKING)
        self._begun, self._now, self._here = (driver("EventCreate", NO_TIMES) for _ in range(3))
        driver("EventRecord", self._begun, main)
        self.turn, self._has_come = 0, False

    def next_turn(self) -> None:
        """What is queued by now belongs to the turn that ends."""
        if self._has_come:
            self.driver("EventRecord", self._begun, self.main)
            self.turn, self._has_come = self.turn + 1, False  # last: who sees the new turn may wait for its begin

    @contextmanager
    def after(self, turn: int) -> Iterator[Any]:
        """The stream, behind all that used memory which became free in that turn; what `main` is given later waits."""
        free = self._begun
        if turn == self.turn:  # behind all that is queued
            free = self._now
            self.driver("EventRecord", free, self.main)
        self.driver("StreamWaitEvent", self.stream, free, 0)
        try:
            yield self.stream
        finally:
            self.driver("EventRecord", self._here, self.stream)
            self.driver("StreamWaitEvent", self.main, self._here, 0)
            self._has_come = True


class GpuMemory(HandleAllocator):
    """The memory of one GPU. A handle is an address."""

    def __init__(self, driver: Driver, stream: Any, total_bytes: int):
        super().__init__(driver.device, total_bytes // 2)
        self.driver, self.stream = driver, stream
        self._stages: list[Stage] = []
        self._copying = threading.Lock()  # of the stages
        self._arrivals: Arrivals | None = None
        self._turns: dict[int, int] = {}  # at which turn a block became free, by its address
        self._added: dict[int, int] = {}  # at which turn one of a size was made beside those that were free

    def create(self, n_bytes: int) -> int:
        return int(self.driver("MemAlloc", n_bytes, at=f"{n_bytes} bytes"))

    def release(self, handle: int) -> None:
        self.driver("MemFree", handle)
        self._turns.pop(handle, None)

    def place(self, handle: int, n_bytes: int) -> int:
        return handle

    def recycle(self, block: Block) -> None:
        """See `HandleAllocator`."""
        if self._arrivals is not None:
            self._turns[block.address] = self._arrivals.turn
        super().recycle(block)

    def alloc_to_fill(self, n_bytes: int) -> HandleMemory:
        """Memory for what comes from the host: of blocks that are free, the one that is so for longest. Where the step
        before used that too, it is a new one, so that they take turns; of each size at most one a turn.
        """
        if n_bytes >= BESIDE_BYTES and self._arrivals is not None:
            with self._lock:
                size, turn = class_bytes(n_bytes), self._arrivals.turn
                free = self._free.get(size, [])
                if free and self._turns.get(free[0].address, BEFORE_ALL) == turn != self._added.get(size, BEFORE_ALL):
                    self._added[size] = turn
                    return self.alloc(n_bytes, is_new=True)
                if free:
                    free.append(free.pop(0))
        return self.alloc(n_bytes)

    def begin(self) -> None:
        """Launches follow: what is free by now is not theirs."""
        if self._arrivals is not None:
            self._arrivals.next_turn()

    def wait(self) -> None:
        self.driver("StreamSynchronize", self.stream, at="a wait")

    def read(self, memory: HandleMemory | Borrowed) -> np.ndarray:
        """The bytes, once everything queued before is done."""
        with self._copying:
            return self._read(memory)

    def _read(self, memory: HandleMemory | Borrowed) -> np.ndarray:
        out = np.empty(memory.n_bytes, np.uint8)
        coming: list[tuple[int, Stage]] = []
        for at, stage in self._pieces(memory.n_bytes):
            n = min(STAGE_BYTES, memory.n_bytes - at)
            self.driver("MemcpyDtoHAsync", stage.address, memory.address + at, n, self.stream, at="a copy to the host")
            self.driver("EventRecord", stage.event, self.stream)
            coming.append((at, stage))
            if len(coming) == 2:
                self._arrive(out, *coming.pop(0))
        for piece in coming:
            self._arrive(out, *piece)
        return out

    def _arrive(self, out: np.ndarray, at: int, stage: Stage) -> None:
        self.driver("EventSynchronize", stage.event, at="a copy to the host")
        n = min(STAGE_BYTES, out.size - at)
        out[at : at + n] = stage.bytes[:n]

    def write(self, memory: HandleMemory, array: np.ndarray) -> None:
        """Fill from an array; it may change as soon as this returns."""
        source = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self._copying:
            if source.size < BESIDE_BYTES:
                self._write(memory, source, self.stream)
                return
            if self._arrivals is None:
                self._arrivals = Arrivals(self.driver, self.stream)
            with self._arrivals.after(self._turns.get(memory.address, BEFORE_ALL)) as stream:
                self._write(memory, source, stream)

    def _write(self, memory: HandleMemory, source: np.ndarray, stream: Any) -> None:
        for at, stage in self._pieces(source.size):
            n = min(STAGE_BYTES, source.size - at)
            self.driver("EventSynchronize", stage.event, at="a copy from the host")
            stage.bytes[:n] = source[at : at + n]
            self.driver("MemcpyHtoDAsync", memory.address + at, stage.address, n, stream, at="a copy from the host")
            self.driver("EventRecord", stage.event, stream)

    def _pieces(self, n_bytes: int) -> list[tuple[int, Stage]]:
        """Where each piece of a copy begins, and the stage it goes through."""
        if not self._stages:
            self._stages = [Stage(self.driver) for _ in range(2)]
        return [(at, self._stages[i % 2]) for i, at in enumerate(range(0, n_bytes, STAGE_BYTES))]

"""Memory of a GPU behind a driver: recycled in size classes, filled and read through two pinned pieces of host memory.

What it is for: the driver copies at full speed, and beside kernels, only from pinned memory; so arrays go through two
pieces of it, one being filled while the other travels. What it does not do: keep several streams in step: all work of a
device is on one, in order. Invariant: addresses are the driver's own.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from monolect.backend.common.gpu_driver import NO_TIMES, Driver
from monolect.backend.common.handles import HandleAllocator, HandleMemory

STAGE_BYTES = 4 << 20


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

    def __del__(self) -> None:
        self._memory.wait()  # its owner may hand it out again at once


class GpuMemory(HandleAllocator):
    """The memory of one GPU. A handle is an address."""

    def __init__(self, driver: Driver, stream: Any, total_bytes: int):
        super().__init__(driver.device, total_bytes // 2)
        self.driver, self.stream = driver, stream
        self._stages: list[Stage] = []
        self._copying = threading.Lock()  # of the stages

    def create(self, n_bytes: int) -> int:
        return int(self.driver("MemAlloc", n_bytes, at=f"{n_bytes} bytes"))

    def release(self, handle: int) -> None:
        self.driver("MemFree", handle)

    def place(self, handle: int, n_bytes: int) -> int:
        return handle

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
            self._write(memory, source)

    def _write(self, memory: HandleMemory, source: np.ndarray) -> None:
        for at, stage in self._pieces(source.size):
            n = min(STAGE_BYTES, source.size - at)
            self.driver("EventSynchronize", stage.event, at="a copy from the host")
            stage.bytes[:n] = source[at : at + n]
            self.driver(
                "MemcpyHtoDAsync", memory.address + at, stage.address, n, self.stream, at="a copy from the host"
            )
            self.driver("EventRecord", stage.event, self.stream)

    def _pieces(self, n_bytes: int) -> list[tuple[int, Stage]]:
        """Where each piece of a copy begins, and the stage it goes through."""
        if not self._stages:
            self._stages = [Stage(self.driver) for _ in range(2)]
        return [(at, self._stages[i % 2]) for i, at in enumerate(range(0, n_bytes, STAGE_BYTES))]

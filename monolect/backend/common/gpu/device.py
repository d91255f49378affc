"""Define the base of CUDA and HIP devices: one stream, memory, modules and launches.

What it is for: a device adds its driver, and how its source is rendered and compiled.
Invariant: one stream runs all work in order, so freed memory can be reused at once; uploads from the host have a stream
of their own that waits where needed (`gpu/memory.py`). The host waits only when it reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monolect.backend.base import Program, unpacked
from monolect.backend.common.gpu.commands import GpuCommands
from monolect.backend.common.gpu.driver import NOT_BLOCKING, Driver
from monolect.backend.common.gpu.handles import HandleMemory
from monolect.backend.common.gpu.memory import Borrowed, GpuMemory
from monolect.backend.common.workgroups import GroupDevice
from monolect.ir.uop import UOp


class GpuDevice(GroupDevice):
    """One GPU. `kind` is the number of its device type in DLPack."""

    kind: int
    target: Any

    def __init__(self, name: str, driver: Driver, total_bytes: int):
        super().__init__(name)
        self.dlpack = (self.kind, self.number(name))
        self.driver = driver
        self.stream = driver("StreamCreate", NOT_BLOCKING)
        self.memory = GpuMemory(driver, self.stream, total_bytes)
        self._peers: set[str] = set()

    # ---- memory ------------------------------------------------------------------------------------------------------
    def from_array(self, array: np.ndarray) -> HandleMemory:
        """Copy an array to new memory of the GPU and return that memory."""
        out = self.memory.alloc_to_fill(array.nbytes)
        self.memory.write(out, array)
        return out

    def borrow(self, address: int, n_bytes: int, owner: Any) -> Borrowed:
        """Return a handle for memory of this GPU that belongs to `owner`; it keeps `owner` alive."""
        return Borrowed(self.memory, address, n_bytes, owner)

    def wait(self) -> None:
        """Wait until all queued work is done."""
        self.memory.wait()

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """Copy the first `n_bytes` of `source` to `target`, both on this GPU."""
        self.driver("MemcpyDtoDAsync", target.address, source.address, n_bytes, self.stream, at="a copy")

    def copy_from(self, target: HandleMemory, other: GpuDevice, source: HandleMemory, n_bytes: int) -> None:
        """Copy the first `n_bytes` of memory of another GPU, directly if the two GPUs can access each other; wait."""
        mine, theirs = self.driver, other.driver
        if other.name not in self._peers:
            self._peers.add(other.name)
            if int(mine("DeviceCanAccessPeer", mine.handle, theirs.handle)):
                mine("CtxEnablePeerAccess", theirs.context, 0, at=f"access to {other.name}")
        other.memory.wait()
        arguments = (target.address, mine.context, source.address, theirs.context, n_bytes)
        mine("MemcpyPeerAsync", *arguments, self.stream, at=f"a copy from {other.name}")
        self.memory.wait()  # the other GPU may reuse the source's memory after this returns

    # ---- programs ----------------------------------------------------------------------------------------------------
    def load(self, code: bytes) -> Any:
        return self.driver("ModuleLoadData", code, at="machine code")

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        return self.driver("ModuleGetFunction", module, symbol.encode(), at=f"kernel {name}")

    def encode(self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]) -> GpuCommands:
        """Encode the items of a step as a command buffer for the device's stream."""
        return GpuCommands(self.memory, unpacked(items, number, programs)[0])


__all__ = ["GpuDevice"]

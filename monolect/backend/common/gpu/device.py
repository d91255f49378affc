"""A GPU behind a vendor's driver: one stream, memory, modules, launches; what CUDA and HIP devices have in common.

What it is for: a device says how its source is rendered and compiled, and which driver it has. Invariant: one stream
runs what it is given in order, so that memory may be handed out again at once (arrays that come from the host look out
for themselves: `common.gpu_memory`); the host waits only where it reads.
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
    """One GPU. `kind` is what DLPack calls its memory."""

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
        """A copy of the array on the GPU."""
        out = self.memory.alloc_to_fill(array.nbytes)
        self.memory.write(out, array)
        return out

    def borrow(self, address: int, n_bytes: int, owner: Any) -> Borrowed:
        """Memory of this GPU that belongs to `owner`."""
        return Borrowed(self.memory, address, n_bytes, owner)

    def wait(self) -> None:
        """Return when everything queued is done."""
        self.memory.wait()

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """The first bytes of one memory to another, within this GPU."""
        self.driver("MemcpyDtoDAsync", target.address, source.address, n_bytes, self.stream, at="a copy")

    def copy_from(self, target: HandleMemory, other: GpuDevice, source: HandleMemory, n_bytes: int) -> None:
        """The first bytes of memory of another GPU, directly where the two reach each other."""
        mine, theirs = self.driver, other.driver
        if other.name not in self._peers:
            self._peers.add(other.name)
            if int(mine("DeviceCanAccessPeer", mine.handle, theirs.handle)):
                mine("CtxEnablePeerAccess", theirs.context, 0, at=f"access to {other.name}")
        other.memory.wait()
        places = (target.address, mine.context, source.address, theirs.context, n_bytes)
        mine("MemcpyPeerAsync", *places, self.stream, at=f"a copy from {other.name}")
        self.memory.wait()  # the other GPU may hand the source out again

    # ---- programs ----------------------------------------------------------------------------------------------------
    def load(self, code: bytes) -> Any:
        return self.driver("ModuleLoadData", code, at="machine code")

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        return self.driver("ModuleGetFunction", module, symbol.encode(), at=f"kernel {name}")

    def encode(self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]) -> GpuCommands:
        """The items, as a graph; the device's stream runs it behind all that it was given before."""
        return GpuCommands(self.memory, unpacked(items, number, programs)[0])

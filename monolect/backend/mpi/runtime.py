"""Define the device `mpi`: the processor of one process of an MPI job.

Each process runs the whole program. It computes and stores only what is on the device of its own rank; the devices of
other ranks have no memory here, and copies from and to them are messages (`runtime/realize/host_commands.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from threading import Thread

import numpy as np

from monolect.backend.common.host import memory
from monolect.backend.common.host.absent import AbsentMemory
from monolect.backend.cpu.runtime import CpuDevice
from monolect.backend.mpi.transport import Transport, transport
from monolect.base.disk.cache import DiskCache
from monolect.base.errors import DistributedError


def _elsewhere() -> DistributedError:
    """Return (not raise) the error for a read of memory of another process."""
    expected = 'a copy that all ranks make, such as .to("cpu")'
    return DistributedError("a read of a tensor of another process", expected=expected, found="no values here")


class MpiDevice(CpuDevice):
    """The processor of the process of one rank. `is_here`: whether that is this process."""

    def __init__(self, name: str = "mpi") -> None:
        self.transport: Transport = transport()
        self.rank = int(name.partition(":")[2] or 0)
        if self.rank >= self.transport.size:
            expected = f"rank 0..{self.transport.size - 1}, or more processes: mpiexec -n {self.rank + 1} python ..."
            raise DistributedError(f"no process for the device {name}", expected=expected, found=f"rank {self.rank}")
        super().__init__(name)
        self.is_here = self.rank == self.transport.rank
        self.space = f"mpi:{self.rank}"
        self.cache = DiskCache("cpu")  # its kernels are those of `cpu`

    def alloc(self, n_bytes: int) -> memory.Memory | AbsentMemory:  # type: ignore[override]
        """Return memory of `n_bytes`, without bytes on another rank's device."""
        return memory.alloc(n_bytes) if self.is_here else AbsentMemory(n_bytes, _elsewhere)

    def alloc_shared(self, n_bytes: int) -> memory.Memory | AbsentMemory:
        """Return memory like `alloc`, in which the transport adds up values of several processes faster, if it can."""
        return (self.transport.alloc(n_bytes) if self.is_here else None) or self.alloc(n_bytes)

    def prepare(self, sizes: Sequence[int]) -> list[Thread]:
        """Preallocate memory for results, if they are here; return the threads that do it."""
        return memory.prepare(sizes) if self.is_here else []

    def from_array(self, array: np.ndarray) -> memory.Memory | AbsentMemory:  # type: ignore[override]
        """Return memory with the contents of `array`, without them on another rank's device."""
        return memory.from_array(array) if self.is_here else AbsentMemory(array.nbytes, _elsewhere)

    def copy(self, target: memory.Memory, source: memory.Memory, n_bytes: int) -> None:
        """Copy memory of this device, if it is here."""
        if self.is_here:
            memory.copy(target, source, n_bytes)

    @staticmethod
    def missing() -> str:
        """Return a text on what is missing to use the device, "" if nothing is."""
        return "" if find_spec("mpi4py") else "mpi4py: pip install monolect[mpi]"


__all__ = ["MpiDevice"]

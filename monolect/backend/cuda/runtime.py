"""The CUDA device: kernels by NVRTC, or as PTX by LLVM, run by the driver. `cuda:1` is the second GPU.

What it is for: any GPU from compute capability 7.5. Needs NVIDIA's driver and the bindings to it. NVRTC makes machine
code of CUDA C++; without it, or with CUDACC=llvm, the driver assembles LLVM's PTX.
Invariant: one stream runs what it is given in order, so that memory may be handed out again at once; the host waits
only where it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from monolect.backend.base import Launch
from monolect.backend.common.grouped import GroupDevice
from monolect.backend.common.handles import HandleMemory
from monolect.backend.cuda import compile as nvrtc
from monolect.backend.cuda import ptx
from monolect.backend.cuda.commands import CudaCommands
from monolect.backend.cuda.driver import Driver, about, count, missing
from monolect.backend.cuda.memory import Borrowed, CudaMemory
from monolect.backend.cuda.render import render_module, target
from monolect.base.errors import DeviceError
from monolect.base.settings import settings
from monolect.ir.uop import UOp

OLDEST = 75
DLPACK_CUDA = 2
WITH_OWN_CODE = 90  # from here on, machine code may use what only this architecture has


class CudaDevice(GroupDevice):
    """One GPU. Raises MissingExtraError, or DeviceError where there is no driver, no such GPU, or too old a one."""

    def __init__(self, name: str = "cuda"):
        n, number = count(), name.partition(":")[2] or "0"
        if not number.isdigit() or int(number) >= n:
            raise DeviceError("no such GPU", expected=f"cuda or cuda:0 to cuda:{n - 1}" if n else "a GPU", found=name)
        super().__init__(name)
        self.dlpack = (DLPACK_CUDA, int(number))
        self.driver = Driver(name, int(number))
        read = self.driver.attribute
        self.arch = 10 * read("COMPUTE_CAPABILITY_MAJOR") + read("COMPUTE_CAPABILITY_MINOR")
        if self.arch < OLDEST:
            raise DeviceError(f"{self.driver.name()} is too old", expected=f"compute capability {OLDEST / 10} or more")
        self.stream = self.driver("cuStreamCreate", int(self.driver.api.CUstream_flags.CU_STREAM_NON_BLOCKING))
        self.memory = CudaMemory(self.driver, self.stream, int(self.driver("cuDeviceTotalMem", self.driver.handle)))
        self._compiler: nvrtc.Compiler | None = None
        self.by_llvm = chosen() == "llvm"
        self.opening = "define ptx_kernel" if self.by_llvm else 'extern "C"'
        self._llvm = ptx.compiler(ptx.architecture(self.arch))
        self.target = (ptx.target if self.by_llvm else target)(self.arch)._replace(
            name=name,
            local_bytes=read("MAX_SHARED_MEMORY_PER_BLOCK"),
            max_local=read("MAX_THREADS_PER_BLOCK"),
            n_units=read("MULTIPROCESSOR_COUNT"),
            key=f"sm_{self.arch}/{self._llvm.key if self.by_llvm else nvrtc.version()}",
        )
        self._peers: set[str] = set()

    @staticmethod
    def missing() -> str:
        """Why it cannot be used, or ""."""
        has_llvm = find_spec("llvmlite") is not None and settings.CUDACC != "nvrtc"
        return missing() or ("" if has_llvm else nvrtc.missing())

    @staticmethod
    def about() -> tuple[str, str]:
        """The GPUs here with their driver, and the compiler."""
        return about(), "PTX by LLVM" if chosen() == "llvm" else f"NVRTC {nvrtc.version()}"

    @property
    def compiler(self) -> nvrtc.Compiler:
        """NVRTC, loaded when something must be compiled."""
        if self._compiler is None:
            self._compiler = nvrtc.Compiler(f"{self.arch}{'a' if self.arch >= WITH_OWN_CODE else ''}")
        return self._compiler

    # ---- memory ------------------------------------------------------------------------------------------------------
    def alloc(self, n_bytes: int) -> HandleMemory:
        """Uninitialised memory. Raises AllocationError when there is none, also without what is kept for later."""
        return self.memory.alloc(n_bytes)

    def from_array(self, array: np.ndarray) -> HandleMemory:
        """A copy of the array on the GPU."""
        out = self.alloc(array.nbytes)
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
        self.driver("cuMemcpyDtoDAsync", target.address, source.address, n_bytes, self.stream, at="a copy")

    def copy_from(self, target: HandleMemory, other: CudaDevice, source: HandleMemory, n_bytes: int) -> None:
        """The first bytes of memory of another GPU, directly where the two reach each other."""
        if other.name not in self._peers:
            self._peers.add(other.name)
            if int(self.driver("cuDeviceCanAccessPeer", self.driver.handle, other.driver.handle)):
                self.driver("cuCtxEnablePeerAccess", other.driver.context, 0, at=f"access to {other.name}")
        other.memory.wait()
        contexts = self.driver.context, other.driver.context
        places = (target.address, contexts[0], source.address, contexts[1], n_bytes)
        self.driver("cuMemcpyPeerAsync", *places, self.stream, at=f"a copy from {other.name}")
        self.memory.wait()  # the other GPU may hand the source out again

    # ---- programs ----------------------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return ptx.render_module(kernels) if self.by_llvm else render_module(kernels, self.arch)

    def build(self, source: str) -> tuple[Any, bytes]:
        if self.by_llvm:
            code = self._llvm.assembly(source).encode() + b"\0"  # the driver takes text up to a zero
        else:
            code = self.compiler.compile(source)
        return self.load(code), code

    def load(self, code: bytes) -> Any:
        return self.driver("cuModuleLoadData", code, at="machine code")

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        return self.driver("cuModuleGetFunction", module, symbol.encode(), at=f"kernel {name}")

    def commands(self, launches: Sequence[Launch]) -> CudaCommands:
        """The launches, in order, on the device's stream."""
        return CudaCommands(self.driver, self.stream, launches)


def chosen() -> str:
    """Which compiler: the setting CUDACC, or NVRTC where it is installed, else LLVM. It loads neither, if it can."""
    if settings.CUDACC != "auto":
        return settings.CUDACC
    return "nvrtc" if nvrtc.version() != "system" or not nvrtc.missing() else "llvm"

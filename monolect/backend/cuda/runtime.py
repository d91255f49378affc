"""The CUDA device: kernels by NVRTC, or as PTX by LLVM, run by the driver. `cuda:1` is the second GPU.

What it is for: any GPU from compute capability 7.5. Needs NVIDIA's driver and the bindings to it. NVRTC makes machine
code of CUDA C++; without it, or with CUDACC=llvm, the driver assembles LLVM's PTX.
What it does not do: memory, copies and launches, which GPUs have in common (`common.gpu_device`).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from monolect.backend.base import Program
from monolect.backend.common.gpu.device import GpuDevice
from monolect.backend.cuda import compile as nvrtc
from monolect.backend.cuda import ptx
from monolect.backend.cuda.driver import CudaDriver, about, count, missing
from monolect.backend.cuda.render import DECLARED_BYTES, render_module, target
from monolect.base.errors import DeviceError
from monolect.base.settings import settings
from monolect.ir.uop import UOp

OLDEST = 75
DLPACK_CUDA = 2
WITH_OWN_CODE = 90  # from here on, machine code may use what only this architecture has


class CudaDevice(GpuDevice):
    """One GPU. Raises MissingExtraError, or DeviceError where there is no driver, no such GPU, or too old a one."""

    kind = DLPACK_CUDA
    driver: CudaDriver

    def __init__(self, name: str = "cuda"):
        driver = CudaDriver(name, self.number(name, count()))
        super().__init__(name, driver, int(driver("DeviceTotalMem", driver.handle)))
        read = driver.attribute
        self.arch = 10 * read("COMPUTE_CAPABILITY_MAJOR") + read("COMPUTE_CAPABILITY_MINOR")
        if self.arch < OLDEST:
            raise DeviceError(f"{driver.name()} is too old", expected=f"compute capability {OLDEST / 10} or more")
        self._compiler: nvrtc.Compiler | None = None
        self.by_llvm = chosen() == "llvm"
        self.most_local_bytes = 0 if self.by_llvm else DECLARED_BYTES
        self.opening = "define ptx_kernel" if self.by_llvm else 'extern "C"'
        self._llvm = ptx.compiler(ptx.architecture(self.arch))
        self.target = (ptx.target if self.by_llvm else target)(self.arch)._replace(
            name=name,
            local_bytes=read(f"MAX_SHARED_MEMORY_PER_BLOCK{'' if self.by_llvm else '_OPTIN'}"),
            max_local=read("MAX_THREADS_PER_BLOCK"),
            n_units=read("MULTIPROCESSOR_COUNT"),
            key=f"sm_{self.arch}/{self._llvm.key if self.by_llvm else nvrtc.version()}",
        )

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

    # ---- programs ----------------------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return ptx.render_module(kernels) if self.by_llvm else render_module(kernels, self.arch)

    def program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        """See `ProgramDevice`. A kernel that asks for local memory at its launch must be allowed to."""
        out = super().program(info, module, source)
        if n_bytes := out.entry.local_bytes:
            self.driver("FuncSetAttribute", out.entry.kernel, self.driver.most_local, n_bytes, at=f"kernel {out.name}")
        return out

    def build(self, source: str) -> tuple[Any, bytes]:
        if self.by_llvm:
            code = self._llvm.assembly(source).encode() + b"\0"  # the driver takes text up to a zero
        else:
            code = self.compiler.compile(source)
        return self.load(code), code


def chosen() -> str:
    """Which compiler: the setting CUDACC, or NVRTC where it is installed, else LLVM. It loads neither, if it can."""
    if settings.CUDACC != "auto":
        return settings.CUDACC
    return "nvrtc" if nvrtc.version() != "system" or not nvrtc.missing() else "llvm"

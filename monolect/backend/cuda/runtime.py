"""Define the device `cuda`: NVRTC or LLVM compiles kernels, and the driver runs them. `cuda:1` is the second GPU.

What it is for: GPUs from compute capability 7.5 on, with NVIDIA's driver and `cuda-bindings`. NVRTC compiles CUDA C++
to machine code; without NVRTC, or with CUDACC=llvm, the driver assembles LLVM's PTX.
What it does not do: memory, copies and launches; these are the same for all GPUs (`common.gpu.device`).
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

MIN_ARCH = 75  # 10 * compute capability; older GPUs are refused
DLPACK_CUDA = 2  # device type of DLPack
ARCH_SPECIFIC_SINCE = (
    90  # from this architecture on, code is compiled for it alone ("sm_90a") and may use its specific instructions
)


class CudaDevice(GpuDevice):
    """One GPU. Raises MissingExtraError, or DeviceError if there is no driver or no such GPU, or if it is too old."""

    kind = DLPACK_CUDA
    driver: CudaDriver

    def __init__(self, name: str = "cuda"):
        driver = CudaDriver(name, self.number(name, count()))
        super().__init__(name, driver, int(driver("DeviceTotalMem", driver.handle)))
        read = driver.attribute
        self.arch = 10 * read("COMPUTE_CAPABILITY_MAJOR") + read("COMPUTE_CAPABILITY_MINOR")
        if self.arch < MIN_ARCH:
            raise DeviceError(f"{driver.name()} is too old", expected=f"compute capability {MIN_ARCH / 10} or more")
        self._compiler: nvrtc.Compiler | None = None
        self.uses_llvm = chosen_compiler() == "llvm"
        self.static_local_bytes = 0 if self.uses_llvm else DECLARED_BYTES
        self.kernel_keyword = "define ptx_kernel" if self.uses_llvm else 'extern "C"'
        self._llvm = ptx.compiler(ptx.architecture(self.arch))
        self.target = (ptx.target if self.uses_llvm else target)(self.arch)._replace(
            name=name,
            local_bytes=read(f"MAX_SHARED_MEMORY_PER_BLOCK{'' if self.uses_llvm else '_OPTIN'}"),
            max_local=read("MAX_THREADS_PER_BLOCK"),
            n_units=read("MULTIPROCESSOR_COUNT"),
            key=f"sm_{self.arch}/{self._llvm.key if self.uses_llvm else nvrtc.version()}",
        )

    @staticmethod
    def missing() -> str:
        """Return the reason why the device cannot be used, or "" if it can."""
        has_llvm = find_spec("llvmlite") is not None and settings.CUDACC != "nvrtc"
        return missing() or ("" if has_llvm else nvrtc.missing())

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the GPUs with their driver, and of the compiler."""
        return about(), "PTX by LLVM" if chosen_compiler() == "llvm" else f"NVRTC {nvrtc.version()}"

    @property
    def compiler(self) -> nvrtc.Compiler:
        """NVRTC, loaded on first use."""
        if self._compiler is None:
            self._compiler = nvrtc.Compiler(f"{self.arch}{'a' if self.arch >= ARCH_SPECIFIC_SINCE else ''}")
        return self._compiler

    # ---- programs ----------------------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return ptx.render_module(kernels) if self.uses_llvm else render_module(kernels, self.arch)

    def program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        """Return the Program of one kernel of a loaded module; permit the shared memory that its launch requests."""
        out = super().program(info, module, source)
        if n_bytes := out.entry.local_bytes:
            self.driver(
                "FuncSetAttribute", out.entry.kernel, self.driver.max_local_attribute, n_bytes, at=f"kernel {out.name}"
            )
        return out

    def build(self, source: str) -> tuple[Any, bytes]:
        if self.uses_llvm:
            code = self._llvm.assembly(source).encode() + b"\0"  # the driver reads text up to a zero byte
        else:
            code = self.compiler.compile(source)
        return self.load(code), code


def chosen_compiler() -> str:
    """Return "nvrtc" or "llvm": the setting CUDACC, or for "auto" NVRTC if it is installed."""
    if settings.CUDACC != "auto":
        return settings.CUDACC
    return "nvrtc" if nvrtc.version() != "system" or not nvrtc.missing() else "llvm"


__all__ = ["CudaDevice", "chosen_compiler"]

"""Define the device `hip`: clang, or LLVM with lld, compiles kernels, and AMD's driver runs them.

What it is for: GPUs whose driver is ROCm 6 or later; `hip:1` is the second GPU. ROCm's compilers are not needed: clang
with AMD's code generator compiles HIP C++ to code objects. Without such a clang, LLVM compiles LLVM IR, and lld links
it.
What it does not do: memory, copies, launches and graphs; these are the same for all GPUs (`common.gpu.device`).
"""

from __future__ import annotations

from typing import Any

from monolect.backend.common.gpu.device import GpuDevice
from monolect.backend.common.llvm import lld
from monolect.backend.hip import amdgcn
from monolect.backend.hip import compile as clang
from monolect.backend.hip.driver import HipDriver, about, count, missing
from monolect.backend.hip.render import render_module, target
from monolect.ir.uop import UOp

DLPACK_ROCM = 10  # device type of DLPack


class HipDevice(GpuDevice):
    """One GPU. Raises DeviceError if there is no driver or no such GPU."""

    kind = DLPACK_ROCM

    def __init__(self, name: str = "hip"):
        driver = HipDriver(name, self.number(name, count()))
        gpu = driver.gpu
        super().__init__(name, driver, gpu.total_bytes)
        self.arch = gpu.arch
        self.uses_llvm = bool(clang.missing())
        self.kernel_keyword = "define protected amdgpu_kernel" if self.uses_llvm else 'extern "C"'
        self.compiler = None if self.uses_llvm else clang.Compiler(gpu.arch)
        self.target = (amdgcn.target if self.uses_llvm else target)(gpu.arch)._replace(
            name=name,
            local_bytes=gpu.local_bytes,
            max_local=gpu.max_local,
            warp=gpu.warp,
            n_units=gpu.n_units,
            key=f"{gpu.arch}/{(self.compiler or amdgcn.compiler(gpu.arch)).key}",
        )

    @staticmethod
    def missing() -> str:
        """Return the reason why the device cannot be used, or "" if it can."""
        return missing() or (clang.missing() and lld.missing("ld.lld"))

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the GPUs with their driver, and of the compiler."""
        return about(), clang.find() or f"LLVM and {lld.find('ld.lld')}"

    # ---- programs ----------------------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return amdgcn.render_module(kernels) if self.uses_llvm else render_module(kernels, self.arch)

    def build(self, source: str) -> tuple[Any, bytes]:
        code = self.compiler.compile(source) if self.compiler else amdgcn.code_object(source, self.arch)
        return self.load(code), code


__all__ = ["HipDevice"]

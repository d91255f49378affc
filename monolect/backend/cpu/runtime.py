"""Define the device `cpu`: it compiles kernels from LLVM IR in this process and runs them on a native thread pool."""

from __future__ import annotations

from monolect.backend.common.host.native import NativeDevice, host_target
from monolect.backend.common.llvm.compile import Compiler, host_features, missing, native_ops
from monolect.backend.cpu.units import EMULATED, units, usable_units
from monolect.base.dtype import dtypes
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp


class CpuDevice(NativeDevice):
    """The host processor, programmed in LLVM IR."""

    missing = staticmethod(missing)

    def __init__(self, name: str = "cpu"):
        self.compiler = Compiler()
        host = host_features()
        self.vector_bytes = host.vector_bytes  # of this processor, also where another is emulated
        features = self.compiler.features
        has_half = host.machine != "x86_64" or "f16c" in features
        target = host_target("cpu", native_ops(host.machine, features), self.compiler.key)._replace(
            cast_dtypes=frozenset((dtypes.float16,) if has_half else ()),
            streams=host.machine == "x86_64",
            units=usable_units(features, host.vector_bytes),
        )
        super().__init__(name, target)

    @property
    def target(self) -> Target:
        """The Target of this processor, or with EMULATE_UNITS that of a processor with the emulated units."""
        return self._targets[settings.EMULATE_UNITS]

    @target.setter
    def target(self, target: Target) -> None:
        self._targets = {"": target, **{name: _emulating(target, name) for name in EMULATED}}

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the driver ("": none) and of the compiler."""
        llvmlite, triple = Compiler().key.split()[1:3]
        return "", f"llvmlite {llvmlite.partition(chr(47))[0]}, {triple}"

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        if settings.EMULATE_UNITS:
            from monolect.backend.cpu.emulate import render_module  # imported only when a kernel is compiled
        else:
            from monolect.backend.cpu.render import render_module  # imported only when a kernel is compiled
        return render_module(kernels, self.vector_bytes)

    def emit(self, source: str) -> bytes:
        return self.compiler.compile(source)

    def kernel_source(self, source: str, symbol: str) -> str:
        start = source.index(f"define void @{symbol}(")
        return source[start : source.index("\n}\n", start) + 3]


def _emulating(target: Target, name: str) -> Target:
    """Return `target` with the matrix units and vector registers of the processor `name` in EMULATED."""
    features, vector_bytes, n_registers = EMULATED[name]
    return target._replace(
        units=units(features, vector_bytes),
        vector_bytes=vector_bytes,
        n_registers=n_registers,
        key=f"{target.key}/emulate {name}",
    )


__all__ = ["CpuDevice"]

"""The CPU device: kernels as LLVM IR, compiled in this process, run by a native thread pool."""

from __future__ import annotations

from importlib import import_module

from monolect.backend.common.llvm_compile import Compiler, host_features, missing, native_ops
from monolect.backend.common.native import NativeDevice, host_target
from monolect.backend.cpu.units import usable_units
from monolect.base.dtype import dtypes
from monolect.ir.uop import UOp


class CpuDevice(NativeDevice):
    """The host's processor."""

    missing = staticmethod(missing)

    def __init__(self, name: str = "cpu"):
        self.compiler = Compiler()
        host = host_features()
        features = self.compiler.features
        has_half = host.machine != "x86_64" or "f16c" in features
        target = host_target("cpu", native_ops(host.machine, features), self.compiler.key)._replace(
            cast_dtypes=frozenset((dtypes.float16,) if has_half else ()),
            streams=host.machine == "x86_64",
            units=usable_units(features, host.vector_bytes),
        )
        super().__init__(name, target)

    @staticmethod
    def about() -> tuple[str, str]:
        """Driver and compiler."""
        llvmlite, triple = Compiler().key.split()[1:3]
        return "", f"llvmlite {llvmlite.partition(chr(47))[0]}, {triple}"

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        text: str = import_module("monolect.backend.cpu.render").render_module(kernels)  # when something is compiled
        return text

    def emit(self, source: str) -> bytes:
        return self.compiler.compile(source)

    def one(self, source: str, symbol: str) -> str:
        start = source.index(f"define void @{symbol}(")
        return source[start : source.index("\n}\n", start) + 3]

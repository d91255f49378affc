"""The CPU device: kernels as LLVM IR, compiled in this process, run by a native thread pool."""

from __future__ import annotations

from monolect.backend.common.llvm_compile import Compiler, host_features
from monolect.backend.common.native import NativeDevice
from monolect.backend.cpu.render import NATIVE, render_module
from monolect.backend.cpu.units import usable_units
from monolect.base.dtype import dtypes
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp

LARGEST_CACHE = 32 << 20  # a last cache beyond this is shared with cores that are not ours


class CpuDevice(NativeDevice):
    """The host's processor."""

    def __init__(self, name: str = "cpu"):
        self.compiler = Compiler()
        host = host_features()
        n_threads = settings.THREADS or host.n_cores
        target = Target(
            name="cpu",
            native=NATIVE,
            cast_dtypes=frozenset((dtypes.float16,)),
            vector_bytes=host.vector_bytes,
            n_registers=host.n_vector_registers,
            loads_first=host.machine != "x86_64",
            n_threads=n_threads,
            l1_bytes=host.l1d_bytes,
            l2_bytes=host.l2_bytes,
            l3_bytes=min(host.l3_bytes, LARGEST_CACHE),
            streams=host.machine == "x86_64",
            local_bytes=4 * host.l2_bytes,
            units=usable_units(self.compiler.features, host.vector_bytes),
            key=f"{self.compiler.key}/{n_threads}",
        )
        super().__init__(name, target)

    @staticmethod
    def about() -> str:
        """The compiler."""
        llvmlite, triple = Compiler().key.split()[1:3]
        return f"llvmlite {llvmlite.partition(chr(47))[0]}, {triple}"

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return render_module(kernels)

    def emit(self, source: str) -> bytes:
        return self.compiler.compile(source)

    def one(self, source: str, symbol: str) -> str:
        start = source.index(f"define void @{symbol}(")
        return source[start : source.index("\n}\n", start) + 3]

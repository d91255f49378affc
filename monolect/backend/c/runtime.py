"""The C device: kernels as C source, compiled by the system's compiler, run by a native thread pool."""

from __future__ import annotations

import re

from monolect.backend.c.compile import Compiler, missing
from monolect.backend.c.render import NATIVE, render_module
from monolect.backend.common.llvm_compile import host_features
from monolect.backend.common.native import NativeDevice
from monolect.base.dtype import dtypes
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp


class CDevice(NativeDevice):
    """The host's processor. Raises CompileError where there is no C compiler."""

    missing = staticmethod(missing)

    def __init__(self, name: str = "c"):
        self.compiler = Compiler()
        self.has_half = self.compiler.has_half
        host = host_features()
        n_threads = settings.THREADS or host.n_cores
        target = Target(
            name="c",
            native=NATIVE,
            cast_dtypes=frozenset((dtypes.float16,)) if self.has_half else frozenset(),
            vector_bytes=host.vector_bytes,
            n_registers=host.n_vector_registers,
            loads_first=host.machine != "x86_64",
            n_threads=n_threads,
            l1_bytes=host.l1d_bytes,
            l2_bytes=host.l2_bytes,
            local_bytes=4 * host.l2_bytes,
            key=f"{self.compiler.key}/{n_threads}",
        )
        super().__init__(name, target)

    @staticmethod
    def about() -> str:
        """The compiler: its path, and its name for itself."""
        compiler = Compiler()
        return f"{compiler.command}, {compiler.version.partition(chr(10))[0]}"

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return render_module(kernels, self.has_half)

    def emit(self, source: str) -> bytes:
        return self.compiler.compile(source)

    def one(self, source: str, symbol: str) -> str:
        found = re.search(rf"^void {symbol}\(.*?^}}$", source, re.MULTILINE | re.DOTALL)
        return found[0] if found else source

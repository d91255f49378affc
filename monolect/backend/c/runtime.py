"""Define the device `c`: it compiles kernels as C with the system's compiler and runs them on a native thread pool."""

from __future__ import annotations

import re

from monolect.backend.c.compile import Compiler, missing
from monolect.backend.c.render import NATIVE, render_module
from monolect.backend.common.host.native import NativeDevice, host_target
from monolect.base.dtype import dtypes
from monolect.ir.uop import UOp


class CDevice(NativeDevice):
    """The host processor, programmed in C. Raises CompileError if no C compiler is installed."""

    missing = staticmethod(missing)

    def __init__(self, name: str = "c"):
        self.compiler = Compiler()
        self.has_half = self.compiler.facts.has_half
        native = NATIVE if self.compiler.facts.has_fma else NATIVE - {"MULACC"}
        target = host_target("c", native, self.compiler.key)
        if self.has_half:
            target = target._replace(cast_dtypes=frozenset((dtypes.float16,)))
        super().__init__(name, target)

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the driver ("": none) and of the compiler: its path and first line of its version."""
        compiler = Compiler()
        return "", f"{compiler.command}, {compiler.facts.version.partition(chr(10))[0]}"

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return render_module(kernels, self.has_half)

    def emit(self, source: str) -> bytes:
        return self.compiler.compile(source)

    def kernel_source(self, source: str, symbol: str) -> str:
        found = re.search(rf"^void {symbol}\(.*?^}}$", source, re.MULTILINE | re.DOTALL)
        return found[0] if found else source


__all__ = ["CDevice"]

"""CUDA C++ to machine code, by NVRTC from the vendor's packages. It needs no GPU and no driver.

What it is for: a cubin for one architecture. It asks for machine code, not PTX: the PTX of a new compiler is refused by
an older driver. What it does not do: load; the driver does. Invariant: equal keys and equal source give equal code.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from monolect.backend.common.diagnostics import NVRTC, complaint
from monolect.base.errors import CompileError

ARCHITECTURES = ("75", "80", "86", "89", "90a", "100a")
# products and sums are fused where the optimizer says so, and nowhere else
OPTIONS = ("--std=c++17", "--fmad=false", "--disable-warnings", "--no-source-include")


class Compiler:
    """NVRTC for one architecture, such as "80" or "90a". Raises CompileError where NVRTC is not installed."""

    def __init__(self, arch: str):
        if reason := missing():
            raise CompileError(reason)
        self.arch = arch
        self.nvrtc: Any = import_module("cuda.bindings.nvrtc")
        self.options = [f"--gpu-architecture=sm_{arch}", *OPTIONS]
        major, minor = self._checked(self.nvrtc.nvrtcVersion())
        self.key = f"nvrtc {major}.{minor} {' '.join(self.options)}"

    def compile(self, source: str) -> bytes:
        """The cubin of a source. Raises CompileError with NVRTC's message and the line it names."""
        rtc = self.nvrtc
        (program,) = self._checked(rtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
        try:
            options = [o.encode() for o in self.options]
            (result,) = rtc.nvrtcCompileProgram(program, len(options), options)
            if result != rtc.nvrtcResult.NVRTC_SUCCESS:
                raise CompileError(
                    complaint(f"NVRTC for sm_{self.arch}", self._log(program) or str(result), source, NVRTC)
                )
            (size,) = self._checked(rtc.nvrtcGetCUBINSize(program))
            out = b" " * size
            self._checked(rtc.nvrtcGetCUBIN(program, out))
            return out
        finally:
            rtc.nvrtcDestroyProgram(program)

    def _log(self, program: Any) -> str:
        (size,) = self._checked(self.nvrtc.nvrtcGetProgramLogSize(program))
        text = b" " * size
        self._checked(self.nvrtc.nvrtcGetProgramLog(program, text))
        return text.rstrip(b"\0 \n").decode(errors="replace")

    def _checked(self, answer: tuple) -> tuple:
        """What a call returned beside its status. Raises CompileError for any but success."""
        if answer[0] != self.nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC failed: {answer[0]}")
        return answer[1:]


def version() -> str:
    """What is installed, without loading it; part of the key of cached code."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return "system"


def missing() -> str:
    """Why there is no NVRTC, or ""."""
    try:
        import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except Exception as error:  # the packages raise errors of their own where a library is not found
        return f"no NVRTC: {_first_line(error)}; install it with: pip install 'monolect[cuda]'"
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

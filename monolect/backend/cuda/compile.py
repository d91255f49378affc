"""Compile CUDA C++ to machine code by NVRTC from the vendor's packages; no GPU or driver is needed.

What it is for: it makes a cubin for one architecture, not PTX: older drivers refuse the PTX of a newer compiler.
What it does not do: it does not load the code; the driver does.
Invariant: equal keys and equal source give equal code.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import Any

from monolect.backend.common.diagnostics import NVRTC, compiler_message
from monolect.base.errors import CompileError

ARCHITECTURES = ("75", "80", "86", "89", "90a", "100a")
# --fmad=false: only the optimizer fuses products and sums to multiply-adds
OPTIONS = ("--std=c++17", "--fmad=false", "--disable-warnings", "--no-source-include")


class Compiler:
    """NVRTC for one architecture, such as "80" or "90a". Raises CompileError if NVRTC is not installed."""

    def __init__(self, arch: str):
        if reason := missing():
            raise CompileError(reason)
        self.arch = arch
        self.nvrtc: Any = import_module("cuda.bindings.nvrtc")
        self.options = [f"--gpu-architecture=sm_{arch}", *OPTIONS]
        major, minor = self._checked(self.nvrtc.nvrtcVersion())
        self.key = f"nvrtc {major}.{minor} {' '.join(self.options)}"

    def compile(self, source: str) -> bytes:
        """Return the cubin of a CUDA source. Raises CompileError with NVRTC's message and the line it reports."""
        rtc = self.nvrtc
        (program,) = self._checked(rtc.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None))
        try:
            options = [o.encode() for o in self.options]
            (result,) = rtc.nvrtcCompileProgram(program, len(options), options)
            if result != rtc.nvrtcResult.NVRTC_SUCCESS:
                raise CompileError(
                    compiler_message(f"NVRTC for sm_{self.arch}", self._log(program) or str(result), source, NVRTC)
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
        """Return the results of an NVRTC call without its status. Raises CompileError unless the status is success."""
        if answer[0] != self.nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"NVRTC failed: {answer[0]}")
        return answer[1:]


def version() -> str:
    """Return the version of the installed NVRTC package without loading it, or "system"; part of the cache key."""
    try:
        return metadata.version("nvidia-cuda-nvrtc")
    except metadata.PackageNotFoundError:
        return "system"


def missing() -> str:
    """Return the reason why NVRTC is not available, or "" if it is."""
    try:
        import_module("cuda.bindings.nvrtc").nvrtcVersion()
    except Exception as error:  # the vendor's packages raise various errors if a library is not found
        return f"no NVRTC: {_first_line(error)}; install it with: pip install 'monolect[cuda]'"
    return ""


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


__all__ = ["Compiler", "missing", "version"]

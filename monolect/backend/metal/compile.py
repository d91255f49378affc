"""Find Metal's GPUs, and compile Metal source to pipelines with the system's compiler.

What it is for: it lists GPUs, reports why there are none, compiles without fast math, and reports errors with their
source line. What it does not do: it does not import PyObjC before a device is opened.
Invariant: an error or a missing object that the system returns becomes an exception.
"""

from __future__ import annotations

import functools
import platform
import sys
from typing import Any

from monolect.backend.common.diagnostics import compiler_message
from monolect.backend.common.workgroups import unavailable_reason
from monolect.base.errors import CompileError, DeviceError, MissingExtraError

# groups: line number, message
ERROR_PATTERN = r"program_source:(\d+):\d+: (?:fatal )?error: ([^\n]*)"
NO_METAL = "Metal is a part of macOS, and this is another system"
NO_GPU = "no GPU that Metal knows: macOS in a virtual machine may have none"


class MetalError(Exception):
    """Metal failed. `is_full`: because memory ran out."""

    def __init__(self, message: str, is_full: bool = False):
        super().__init__(message)
        self.is_full = is_full


def metal() -> Any:
    """Return PyObjC's package of Metal. Raises DeviceError on other systems, or MissingExtraError."""
    try:
        import Metal
    except ImportError:
        if sys.platform != "darwin":
            raise DeviceError(NO_METAL) from None
        raise MissingExtraError("pyobjc-framework-Metal", "metal") from None
    return Metal


def autorelease_pool() -> Any:
    """Return a context manager that releases Metal's temporary objects at its end."""
    import objc

    return objc.autorelease_pool()


@functools.cache
def gpus() -> tuple[Any, ...]:
    """Return all GPUs. Raises as `metal` does, and DeviceError if there is no GPU."""
    found = tuple(metal().MTLCopyAllDevices())
    if not found:
        raise DeviceError(NO_GPU)
    return found


def missing() -> str:
    """Return the reason why no Metal device is available, or "" if one is."""
    return unavailable_reason(gpus)


def about(gpu: Any) -> tuple[str, str]:
    """Return descriptions of a GPU and of its compiler, each in one line."""
    return str(gpu.name()), f"macOS {platform.mac_ver()[0]}"


def build_library(gpu: Any, source: str) -> Any:
    """Compile Metal source to a library. Raises CompileError with the system's message and the line it reports."""
    options = metal().MTLCompileOptions.alloc().init()
    options.setFastMathEnabled_(False)  # keeps nan, inf and the order of additions
    library, error = gpu.newLibraryWithSource_options_error_(source, options, None)
    if library is None:
        raise CompileError(compiler_message("Metal", error_text(error), source, ERROR_PATTERN))
    return library


def build_pipeline(gpu: Any, library: Any, symbol: str) -> Any:
    """Return the compute pipeline of the kernel `symbol` in a library. Raises MetalError."""
    function = library.newFunctionWithName_(symbol)
    if function is None:
        raise MetalError(f"the library has no kernel {symbol}")
    pipeline, error = gpu.newComputePipelineStateWithFunction_error_(function, None)
    if pipeline is None:
        raise MetalError(error_text(error))
    return pipeline


def error_text(error: Any) -> str:
    """Return the message of an NSError or None."""
    return str(error.localizedDescription()) if error is not None else "an error without a description"


__all__ = [
    "MetalError",
    "about",
    "autorelease_pool",
    "build_library",
    "build_pipeline",
    "error_text",
    "gpus",
    "metal",
    "missing",
]

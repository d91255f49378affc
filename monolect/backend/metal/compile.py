"""Metal's GPUs, and source to pipelines by the system's compiler.

What it is for: finding GPUs and saying what is missing; building with arithmetic as written; errors with their line.
What it does not do: import PyObjC before somebody asks for a device. Invariant: what the system hands back as an error,
or as nothing, is an exception here.
"""

from __future__ import annotations

import functools
import platform
import sys
from typing import Any

from monolect.backend.common.diagnostics import complaint
from monolect.backend.common.workgroups import why_not
from monolect.base.errors import CompileError, DeviceError, MissingExtraError

PLACE = r"program_source:(\d+):\d+: (?:fatal )?error: ([^\n]*)"
NO_METAL = "Metal is a part of macOS, and this is another system"
NO_GPU = "no GPU that Metal knows: macOS in a virtual machine may have none"


class Refused(Exception):
    """What Metal says no to. `is_full`: for want of memory."""

    def __init__(self, message: str, is_full: bool = False):
        super().__init__(message)
        self.is_full = is_full


def metal() -> Any:
    """PyObjC's package of the framework. Raises DeviceError on other systems, MissingExtraError."""
    try:
        import Metal
    except ImportError:
        if sys.platform != "darwin":
            raise DeviceError(NO_METAL) from None
        raise MissingExtraError("pyobjc-framework-Metal", "metal") from None
    return Metal


def pool() -> Any:
    """A context that lets go, at its end, of what Metal made in passing."""
    import objc

    return objc.autorelease_pool()


@functools.cache
def gpus() -> tuple[Any, ...]:
    """Every GPU. Raises as `metal` does, and DeviceError where there is none."""
    found = tuple(metal().MTLCopyAllDevices())
    if not found:
        raise DeviceError(NO_GPU)
    return found


def missing() -> str:
    """Why there is no Metal device, or ""."""
    return why_not(gpus)


def about(gpu: Any) -> tuple[str, str]:
    """Driver and compiler of a GPU, each in one line."""
    return str(gpu.name()), f"macOS {platform.mac_ver()[0]}"


def library_of(gpu: Any, source: str) -> Any:
    """The library of a source. Raises CompileError with the system's message and the line it names."""
    options = metal().MTLCompileOptions.alloc().init()
    options.setFastMathEnabled_(False)  # nan, inf and the order of sums as the text has them
    library, error = gpu.newLibraryWithSource_options_error_(source, options, None)
    if library is None:
        raise CompileError(complaint("Metal", text(error), source, PLACE))
    return library


def pipeline_of(gpu: Any, library: Any, symbol: str) -> Any:
    """The pipeline of a kernel. Raises Refused."""
    function = library.newFunctionWithName_(symbol)
    if function is None:
        raise Refused(f"the library has no kernel {symbol}")
    pipeline, error = gpu.newComputePipelineStateWithFunction_error_(function, None)
    if pipeline is None:
        raise Refused(text(error))
    return pipeline


def text(error: Any) -> str:
    """What an NSError says."""
    return str(error.localizedDescription()) if error is not None else "an error without a description"

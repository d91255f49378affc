"""Find OpenCL devices, and compile OpenCL C to programs with the driver's compiler.

What it is for: it lists devices, reports why there are none, builds programs from source or binaries, and reports
errors with their source line. What it does not do: it does not import pyopencl before a device is opened.
Invariant: each error of the driver becomes an error of monolect's own.
"""

from __future__ import annotations

import functools
from typing import Any

from monolect.backend.common.diagnostics import compiler_message
from monolect.backend.common.workgroups import unavailable_reason
from monolect.base.errors import CompileError, DeviceError, MissingExtraError

# groups: line number, message. Most drivers use clang; PoCL puts "error" before the position
ERROR_PATTERN = r":(\d+):\d+: (?:fatal )?(?:error: )?([^\n]*)"
NO_DRIVER = (
    "no OpenCL device: install a driver, such as PoCL for the processor (Debian: apt-get install pocl-opencl-icd)"
)
STANDARD = "-cl-std=CL1.2"
CORRECT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"


def pyopencl() -> Any:
    """Return the package pyopencl. Raises MissingExtraError if it is not installed."""
    try:
        import pyopencl
    except ImportError:
        raise MissingExtraError("pyopencl", "opencl") from None
    return pyopencl


@functools.cache
def devices() -> tuple[Any, ...]:
    """Return all devices of all platforms. Raises MissingExtraError, or DeviceError if there is none."""
    cl = pyopencl()
    try:
        found = tuple(d for p in cl.get_platforms() for d in p.get_devices())
    except cl.Error as error:  # the loader found no driver, or the driver no device
        raise DeviceError(f"{NO_DRIVER} ({error})") from None
    if not found:
        raise DeviceError(NO_DRIVER)
    return found


def missing() -> str:
    """Return the reason why no OpenCL device is available, or "" if one is."""
    return unavailable_reason(devices)


def about(d: Any) -> tuple[str, str]:
    """Return descriptions of a device's driver and compiler, each in one line."""
    driver = f"{d.platform.name}, driver {d.driver_version}, {d.name}"
    return " ".join(driver.split()), " ".join(d.opencl_c_version.split())


class Compiler:
    """The driver's compiler for one device."""

    def __init__(self, context: Any, device: Any):
        cl = pyopencl()
        self.cl, self.context, self.device = cl, context, device
        rounded = device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
        self.options = [STANDARD, "-w", *([CORRECT_DIVISION] if rounded else [])]

    @property
    def key(self) -> str:
        """Cache key of everything except the source that determines a binary."""
        return f"{', '.join(about(self.device))} {self.device.platform.version} {' '.join(self.options)}"

    def compile(self, source: str) -> Any:
        """Build a program from OpenCL C. Raises CompileError with the driver's message and the line it reports."""
        try:
            return self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.Error as error:
            raise CompileError(compiler_message("the OpenCL driver", str(error), source, ERROR_PATTERN)) from None

    def binary(self, program: Any) -> bytes:
        """Return the binary of a built program for the cache; b"" if the driver has none."""
        try:
            return bytes(program.get_info(self.cl.program_info.BINARIES)[0])
        except (self.cl.Error, IndexError):
            return b""

    def load(self, binary: bytes) -> Any:
        """Build a program from a binary. Raises CompileError if the driver refuses it."""
        try:
            return self.cl.Program(self.context, [self.device], [binary]).build(cache_dir=False)
        except self.cl.Error as error:
            raise CompileError(f"the driver does not take a binary: {error}") from None


__all__ = ["Compiler", "about", "devices", "missing", "pyopencl"]

"""OpenCL's devices, and source to programs by the driver's compiler.

What it is for: finding devices and saying what is missing; building, binaries in and out, errors with their line.
What it does not do: import pyopencl before somebody asks for a device. Invariant: whatever the driver says no to is an
error of monolect's own.
"""

from __future__ import annotations

import functools
from typing import Any

from monolect.backend.common.diagnostics import complaint
from monolect.backend.common.workgroups import why_not
from monolect.base.errors import CompileError, DeviceError, MissingExtraError

PLACE = r":(\d+):\d+: (?:fatal )?(?:error: )?([^\n]*)"  # drivers are made of clang; PoCL says "error" before
NO_DRIVER = (
    "no OpenCL device: install a driver, such as PoCL for the processor (Debian: apt-get install pocl-opencl-icd)"
)
STANDARD = "-cl-std=CL1.2"
CORRECT_DIVISION = "-cl-fp32-correctly-rounded-divide-sqrt"


def pyopencl() -> Any:
    """The package. Raises MissingExtraError."""
    try:
        import pyopencl
    except ImportError:
        raise MissingExtraError("pyopencl", "opencl") from None
    return pyopencl


@functools.cache
def devices() -> tuple[Any, ...]:
    """Every device of every platform. Raises MissingExtraError, or DeviceError where there is no driver."""
    cl = pyopencl()
    try:
        found = tuple(d for p in cl.get_platforms() for d in p.get_devices())
    except cl.Error as error:  # the loader found no driver, or the driver no device
        raise DeviceError(f"{NO_DRIVER} ({error})") from None
    if not found:
        raise DeviceError(NO_DRIVER)
    return found


def missing() -> str:
    """Why there is no OpenCL device, or ""."""
    return why_not(devices)


def about(d: Any) -> tuple[str, str]:
    """Driver and compiler of a device, each in one line."""
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
        """Everything but the source that a binary depends on."""
        return f"{', '.join(about(self.device))} {self.device.platform.version} {' '.join(self.options)}"

    def compile(self, source: str) -> Any:
        """The program of a source. Raises CompileError with the driver's message and the line it names."""
        try:
            return self.cl.Program(self.context, source).build(self.options, cache_dir=False)
        except self.cl.Error as error:
            raise CompileError(complaint("the OpenCL driver", str(error), source, PLACE)) from None

    def binary(self, program: Any) -> bytes:
        """What the driver made of a program, to be kept; b"" where it gives nothing away."""
        try:
            return bytes(program.get_info(self.cl.program_info.BINARIES)[0])
        except (self.cl.Error, IndexError):
            return b""

    def load(self, binary: bytes) -> Any:
        """The program of a binary. Raises CompileError when the driver does not take it."""
        try:
            return self.cl.Program(self.context, [self.device], [binary]).build(cache_dir=False)
        except self.cl.Error as error:
            raise CompileError(f"the driver does not take a binary: {error}") from None

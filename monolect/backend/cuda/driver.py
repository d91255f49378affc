"""The CUDA driver: its calls as calls that raise, and what is missing where there is none.

What it is for: one place that knows how the vendor's `cuda-bindings` report errors, and that a context belongs to a
thread. What it does not do: decide anything. Invariant: importing this module imports nothing of the vendor's.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import Any

from monolect.base.errors import AllocationError, DeviceError, MissingExtraError

NAME_BYTES = 256
_thread = threading.local()  # `.context`: the one that is current here


def bindings() -> Any:
    """The vendor's module. Raises MissingExtraError."""
    try:
        return import_module("cuda.bindings.driver")
    except ImportError:
        raise MissingExtraError("cuda-bindings", "cuda") from None


def missing() -> str:
    """Why there is no NVIDIA GPU to run on, or ""."""
    try:
        return "" if count() else "no NVIDIA GPU: the driver knows none"
    except (DeviceError, MissingExtraError) as error:
        return error.message


def count() -> int:
    """How many GPUs there are. Raises MissingExtraError, or DeviceError where there is no driver."""
    api = bindings()
    try:
        code = api.cuInit(0)[0]
    except Exception as error:  # the package's own, where the driver's library is not found
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise DeviceError(f"no CUDA driver: {reason}; install NVIDIA's driver for this system") from None
    if code == api.CUresult.CUDA_ERROR_NO_DEVICE:
        return 0
    if code != api.CUresult.CUDA_SUCCESS:
        raise DeviceError(f"the CUDA driver does not start: {code}; check it with nvidia-smi")
    return int(api.cuDeviceGetCount()[1])


def about() -> str:
    """The GPUs and the newest CUDA that their driver knows."""
    drivers = [Driver(f"cuda:{i}", i) for i in range(count())]
    number = int(drivers[0]("cuDriverGetVersion"))
    return f"{', '.join(d.name() for d in drivers)}; driver for CUDA {number // 1000}.{number % 1000 // 10}"


class Driver:
    """The driver's calls for one GPU: `driver("cuMemAlloc", 100)` returns what the call returns beside its status.

    Raises AllocationError when memory is out, DeviceError for all else; `at` in the message is what it was at.
    """

    def __init__(self, device: str, number: int):
        self.device, self.process = device, os.getpid()
        self.api = bindings()
        self.context: Any = None
        self.handle = self("cuDeviceGet", number)
        self.context = self("cuDevicePrimaryCtxRetain", self.handle)

    def __call__(self, name: str, *args: Any, at: str = "") -> Any:
        self.enter()
        code, *out = getattr(self.api, name)(*args)
        if code != self.api.CUresult.CUDA_SUCCESS:
            self.fail(name, code, at)
        return out[0] if len(out) == 1 else tuple(out)

    def enter(self) -> None:
        """Make the context current in this thread. Raises DeviceError in a forked child, where there is no driver."""
        if os.getpid() != self.process:
            expected = "a process that is spawned, or that opens the device itself"
            raise DeviceError(f"{self.device} was opened before a fork", expected=expected)
        if self.context is not None and getattr(_thread, "context", None) is not self.context:
            self.api.cuCtxSetCurrent(self.context)
            _thread.context = self.context

    def fail(self, name: str, code: Any, at: str) -> None:
        """Raise the error of a call."""
        text = self.api.cuGetErrorString(code)[1]
        reason = text.decode() if isinstance(text, bytes) else "unknown error"
        label = getattr(code, "name", str(code))
        message = f"{self.device}{', ' if at else ''}{at}: {name}: {reason} ({label})"
        if code == self.api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise AllocationError(message)
        raise DeviceError(message)

    def attribute(self, name: str) -> int:
        """A number about the GPU, such as "MAX_THREADS_PER_BLOCK"."""
        row = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self("cuDeviceGetAttribute", row, self.handle))

    def name(self) -> str:
        """The GPU's name."""
        return str(self("cuDeviceGetName", NAME_BYTES, self.handle).rstrip(b"\0 ").decode())

"""Call the driver of a GPU vendor and raise exceptions for its error codes; CUDA and HIP differ only in names of calls.

What it is for: the only code that checks error codes and makes a GPU current in a thread. Calls have CUDA's names
without "cu"; a vendor's class maps them to its own names. What it does not do: decide anything.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from monolect.backend.common.launch import TensorMap
from monolect.base.errors import AllocationError, DeviceError

SUCCESS, OUT_OF_MEMORY, NO_DEVICE = 0, 2, 100  # error codes of both vendors
NOT_BLOCKING, NO_TIMING = 1, 2  # flags of both vendors: of a stream, and of an event
_thread = threading.local()  # `.current`: the Driver whose GPU is current in this thread


class Driver:
    """The driver's calls for one GPU: `driver("MemAlloc", 100)` returns the results of the call without its error code.

    Raises AllocationError if the GPU's memory is exhausted, or DeviceError for another error. `at` names the action in
    the message.
    """

    def __init__(self, device: str, api: Any):
        self.device, self.process, self.api = device, os.getpid(), api
        self.handle: Any = None  # the driver's handle of this GPU
        self.context: Any = None  # the driver's context on it; None before it is opened

    # ---- what a vendor supplies --------------------------------------------------------------------------------------
    def symbol(self, name: str) -> str:
        """Return the vendor's name of a call."""
        raise NotImplementedError

    def make_current(self) -> None:
        """Make this GPU current in this thread: the thread's calls apply to it."""
        raise NotImplementedError

    def reason(self, code: Any) -> str:
        """Return the driver's text for an error code."""
        raise NotImplementedError

    def node_params(self) -> Any:
        """Return an empty structure for the parameters of a graph's kernel node."""
        raise NotImplementedError

    def tensor_map(self, m: TensorMap, address: int, at: str) -> bytes:
        """Return the hardware's descriptor of the tensor that `m` describes, in memory at `address`.

        `at` names the kernel in errors. Raises DeviceError if the driver refuses it.
        """
        raise NotImplementedError

    # ---- calls -------------------------------------------------------------------------------------------------------
    def __call__(self, name: str, *args: Any, at: str = "") -> Any:
        self.enter()
        symbol = self.symbol(name)
        code, *out = getattr(self.api, symbol)(*args)
        if code != SUCCESS:
            self.fail(symbol, code, at)
        return out[0] if len(out) == 1 else tuple(out)

    def enter(self) -> None:
        """Make the GPU current in this thread. Raises DeviceError in a forked child, where the driver does not work."""
        if os.getpid() != self.process:
            expected = "a process that is spawned, or that opens the device itself"
            raise DeviceError(f"{self.device} was opened before a fork", expected=expected)
        if self.context is not None and getattr(_thread, "current", None) is not self:
            self.make_current()
            _thread.current = self

    def fail(self, symbol: str, code: Any, at: str) -> None:
        """Raise AllocationError or DeviceError for the error code of a call."""
        label = getattr(code, "name", str(code))
        message = f"{self.device}{', ' if at else ''}{at}: {symbol}: {self.reason(code)} ({label})"
        raise (AllocationError if code == OUT_OF_MEMORY else DeviceError)(message)


__all__ = ["Driver", "NOT_BLOCKING", "NO_DEVICE", "NO_TIMING", "SUCCESS"]

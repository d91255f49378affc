"""The driver of a GPU vendor: its calls as calls that raise. CUDA's and HIP's are the same but for names.

What it is for: one place that knows how errors are reported, and that the current GPU belongs to a thread. Calls are
named as CUDA's are, without "cu"; a vendor's class says how it spells them. What it does not do: decide anything.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from monolect.backend.common.launch import TensorMap
from monolect.base.errors import AllocationError, DeviceError

# numbers that both vendors use
SUCCESS, OUT_OF_MEMORY, NO_DEVICE = 0, 2, 100
NOT_BLOCKING, NO_TIMES = 1, 2  # flags of a stream, of an event
_thread = threading.local()  # `.current`: the GPU that is, here


class Driver:
    """The driver's calls for one GPU: `driver("MemAlloc", 100)` returns what the call returns beside its status.

    Raises AllocationError when memory is out, DeviceError for all else; `at` in the message is what it was at.
    """

    def __init__(self, device: str, api: Any):
        self.device, self.process, self.api = device, os.getpid(), api
        self.handle: Any = None  # what the calls name this GPU by
        self.context: Any = None  # what they name the work on it by, once it is open

    # ---- what a vendor supplies --------------------------------------------------------------------------------------
    def symbol(self, name: str) -> str:
        """How the vendor spells a call."""
        raise NotImplementedError

    def make_current(self) -> None:
        """Make this GPU the one that calls of this thread are about."""
        raise NotImplementedError

    def reason(self, code: Any) -> str:
        """What an error says."""
        raise NotImplementedError

    def node_params(self) -> Any:
        """What describes a kernel in a graph, to be filled in."""
        raise NotImplementedError

    def tensor_map(self, m: TensorMap, address: int, at: str) -> bytes:
        """What the hardware is told of memory at `address`. Raises DeviceError where the driver refuses it."""
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
        """Make the GPU current in this thread. Raises DeviceError in a forked child, where there is no driver."""
        if os.getpid() != self.process:
            expected = "a process that is spawned, or that opens the device itself"
            raise DeviceError(f"{self.device} was opened before a fork", expected=expected)
        if self.context is not None and getattr(_thread, "current", None) is not self:
            self.make_current()
            _thread.current = self

    def fail(self, symbol: str, code: Any, at: str) -> None:
        """Raise the error of a call."""
        label = getattr(code, "name", str(code))
        message = f"{self.device}{', ' if at else ''}{at}: {symbol}: {self.reason(code)} ({label})"
        raise (AllocationError if code == OUT_OF_MEMORY else DeviceError)(message)

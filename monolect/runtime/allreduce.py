"""Run the CALL on the memory of several processes, an allreduce, as a part of a command buffer.

The transport moves the bytes; a kernel of this process combines the elements, so a sum has the bits of a sum in one
process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from monolect.backend.base import launching
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.command.forms import base_of, kernel_of
from monolect.ir.collective import Sum, sum_kernel, sum_of
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, shape_source
from monolect.runtime.realize.programs import compile_kernels

MAX_ELEMENTS = 1 << 40  # bound of the number of elements that one launch combines


class Combine:
    """A function that combines arrays of bytes, and stores the result to one or several others. `sum`: what it
    computes, for transports that have sums of their own.
    """

    def __init__(self, s: Sum, dev: str) -> None:
        self.sum, self.dev = s, dev
        self.commands: dict[int, Any] = {}  # by the number of results

    def __call__(self, results: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> None:
        commands = self.commands.get(len(results)) or self._compiled(len(results))
        commands.run(*(a.ctypes.data for a in (*results, *parts)), parts[0].size // self.sum.dtype.itemsize)

    def _compiled(self, n_results: int) -> Any:
        """Return, and keep, the command buffer that stores each element to `n_results` arrays."""
        n = n_results + self.sum.n
        size = ParamArg(n, dtypes.index, None, None, "n_combined", 1, MAX_ELEMENTS)
        kernel = sum_kernel(self.sum, node("PARAM", (shape_source(()),), size), n_results)
        program = compile_kernels([kernel], self.dev)[kernel]
        found = self.commands[n_results] = Device[self.dev].encode(*launching((program, range(n + 1))))
        return found


_combine = cache(Combine)


class AllreducePart:
    """A CALL on the memory of several processes, number `k` of the calls of the HostCommands `host`."""

    def __init__(self, host: Any, call: UOp, k: int) -> None:
        self.host, self.k = host, k
        operands = call.src[1:]
        self.sum = sum_of(kernel_of(call))
        devices = [Device[str(base_of(u).arg.device)] for u in operands[: self.sum.n]]
        self.ranks = [device.rank for device in devices]
        at = next(i for i, device in enumerate(devices) if device.is_here)
        self.link = devices[at].transport
        self.into, self.data = operands[at], operands[self.sum.n + at]
        self.combine = _combine(self.sum, devices[at].name)

    def bind(self, number: int, address: int) -> None:
        """Do nothing: addresses are read at the launch."""

    def launch(self, timed: bool) -> None:
        """Combine now; add the time to `HostCommands.ns`."""
        start = time.perf_counter_ns()
        data, into = self.host.bytes_of(self.data), self.host.bytes_of(self.into)
        self.link.allreduce(data, into, self.combine, self.ranks)
        self.host.ns[self.k] += time.perf_counter_ns() - start


__all__ = ["AllreducePart", "Combine"]

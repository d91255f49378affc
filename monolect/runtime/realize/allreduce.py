"""Run the CALL on the memory of several processes, an allreduce, as a part of a command buffer.

The transport moves the bytes; a kernel of this process combines the elements, so a sum has the bits of a sum in one
process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from monolect.backend.base import launching
from monolect.backend.registry import Device, process_of
from monolect.base.dtype import dtypes
from monolect.command.forms import base_of, kernel_of
from monolect.ir.collective import Sum, sum_kernel, sum_of
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, shape_source
from monolect.runtime.realize.programs import compile_kernels

if TYPE_CHECKING:
    from monolect.runtime.realize.host_commands import HostCommands

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
    """A CALL on the memory of several processes, number `k` of the calls of `host`."""

    def __init__(self, host: HostCommands, call: UOp, k: int) -> None:
        self.host, self.k = host, k
        operands = call.src[1:]
        self.sum = sum_of(kernel_of(call))
        self.ranks = ranks_of(call)
        names = [str(base_of(u).arg.device) for u in operands[: self.sum.n]]
        place = next(i for i, name in enumerate(names) if Device[name].is_here)
        self.device = Device[names[place]]
        self.into, self.data = operands[place], operands[self.sum.n + place]
        self.combine = _combine(self.sum, names[place])

    def bind(self, number: int, address: int) -> None:
        """Do nothing: addresses are read at the launch."""

    def launch(self, timed: bool) -> None:
        """Combine now; add the time to `HostCommands.ns`."""
        start = time.perf_counter_ns()
        data, into = self.host.bytes_of(self.data), self.host.bytes_of(self.into)
        self.device.transport.allreduce(data, into, self.combine, self.ranks)
        self.host.ns[self.k] += time.perf_counter_ns() - start


def ranks_of(call: UOp) -> list[int]:
    """Return the processes whose memory `call`, an allreduce, combines, in the order of its operands."""
    operands = call.src[1 : 1 + sum_of(kernel_of(call)).n]
    return [rank for u in operands if (rank := process_of(str(base_of(u).arg.device))) is not None]


__all__ = ["AllreducePart", "Combine", "ranks_of"]

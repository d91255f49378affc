"""Run the CALL on the memory of several processes, an allreduce, as a part of a command buffer.

The transport moves the bytes; a kernel of this process combines the elements, so a sum has the bits of a sum in one
process.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from monolect.backend.base import launching
from monolect.backend.common.host.memory import ALIGN_BYTES
from monolect.backend.registry import Device
from monolect.base.dtype import dtypes
from monolect.command.forms import base_of, buffer_bytes, kernel_of
from monolect.command.timeline import touched
from monolect.ir.collective import Sum, sum_kernel, sum_of
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, shape_source
from monolect.runtime.realize.programs import compile_kernels

MAX_ELEMENTS = 1 << 40  # bound of the number of elements that one launch combines
BLOCK = 1024  # elements of a block; several vectors
STREAMED_BYTES = 1 << 20  # bytes from which an array is combined in blocks; less stays in the caches of its readers


class Combine:
    """A function that combines arrays of bytes, and stores the result to one or several others. `sum`: what it
    computes, for transports that have sums of their own.

    Large arrays are combined in whole blocks, so that the kernel needs no masks and stores past the caches.
    """

    def __init__(self, s: Sum, dev: str) -> None:
        self.sum, self.dev = s, dev
        self.commands: dict[tuple[int, int, int], Any] = {}  # by the numbers of results, parts, elements of a block

    def __call__(self, results: Sequence[np.ndarray], parts: Sequence[np.ndarray]) -> None:
        itemsize = self.sum.dtype.itemsize
        addresses = [a.ctypes.data for a in (*results, *parts)]
        is_streamed = parts[0].size >= STREAMED_BYTES and not any(at % ALIGN_BYTES for at in addresses[: len(results)])
        n = parts[0].size // itemsize
        for block in (BLOCK, 1) if is_streamed else (1,):
            if n >= block:
                key = len(results), len(parts), block
                commands = self.commands.get(key) or self._compiled(*key)
                commands.run(*addresses, n // block)
                addresses = [at + n // block * block * itemsize for at in addresses]
                n %= block

    def _compiled(self, n_results: int, n_parts: int, block: int) -> Any:
        """Return, and keep, the commands that combine `n_parts` arrays of blocks into `n_results` arrays."""
        n = n_results + n_parts
        arg = ParamArg(n, dtypes.index, None, None, "n_blocks", 1, MAX_ELEMENTS // block)
        kernel = sum_kernel(self.sum._replace(n=n_parts), node("PARAM", (shape_source(()),), arg) * block, n_results)
        program = compile_kernels([kernel], self.dev)[kernel]
        commands = self.commands[n_results, n_parts, block] = Device[self.dev].encode(
            *launching((program, range(n + 1)))
        )
        return commands


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
        self.spans = touched(call)
        n_bytes = buffer_bytes(self.data)
        self.overlapped_bytes = n_bytes if self.link.is_remote(self.ranks) else 0

    def bind(self, number: int, address: int) -> None:
        """Do nothing: addresses are read at the launch."""

    def launch(self, timed: bool) -> None:
        """Combine now, or in parallel with the parts behind this one if the values go by messages; add the time that
        this takes here to `HostCommands.ns`.
        """
        start = time.perf_counter_ns()
        data, into = self.host.bytes_of(self.data), self.host.bytes_of(self.into)
        message = partial(self.link.allreduce, data, into, self.combine, self.ranks)
        self.host.in_flight.start(message, self.spans, 0 if timed else self.overlapped_bytes)
        self.host.ns[self.k] += time.perf_counter_ns() - start


__all__ = ["AllreducePart", "Combine"]

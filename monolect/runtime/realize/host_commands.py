"""Run command buffers with loops, branches, copies between devices or several devices, controlled by the host.

The items are cut into the longest runs that one device can encode; the host runs these parts in order. An operand whose
offset depends on a loop has its own position, which is bound again in each iteration. Long messages between processes
run in a thread, in parallel with the parts behind them, until one touches their memory (`InFlight`).

Invariant: parts run in the order of the items, each on the memory that was bound last; a part that touches memory of
an earlier one runs after it. Messages keep their order.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial
from itertools import count
from typing import Any

import numpy as np

from monolect.backend.base import Commands, Peered, Program
from monolect.backend.common.host.memory import HOST
from monolect.backend.common.host.native import NativeDevice
from monolect.backend.registry import Device, process_of
from monolect.base.dtype import dtypes
from monolect.base.errors import InternalError
from monolect.command.forms import (
    buffer_bytes,
    calls_in,
    device_of,
    is_allreduce,
    is_scalar,
    operands_of,
    read_operand,
    with_operands,
)
from monolect.command.interp import number as value_of
from monolect.command.timeline import Span, is_message, overlap, touched
from monolect.ir.ops import ParamArg
from monolect.ir.uop import UOp, node, shape_source
from monolect.runtime.allreduce import AllreducePart

MIN_OVERLAPPED_BYTES = 1 << 16  # bytes of a message for which a switch to the thread costs little


class HostCommands(Commands):
    """A command buffer whose parts the host launches in order; see the module docstring."""

    def __init__(
        self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program], dev: str, step: UOp
    ) -> None:
        """The arguments are those of `encode`; `programs`: the loaded programs of the kernels."""
        self.number, self.programs, self.dev = dict(number), programs, dev
        self.new = count(1 + max(self.number.values(), default=-1)).__next__
        self.at: dict[int, int] = {}  # address, or value of a size, by position
        self.memory: dict[int, Any] = {}  # memory object by position, for copies between devices
        self.env: dict[Any, int] = {}  # values of Variables by symbol, and of RANGEs
        self.sizes = {b.arg.symbol: n for b, n in number.items() if b.op == "PARAM" and b.arg.name is not None}
        self.calls = calls_in(items)
        self.ns = [0] * len(self.calls)
        self.in_flight = InFlight()
        self.link: Any = None  # the transport, if items exchange messages
        if any(map(is_message, self.calls)):
            from monolect.runtime.agreed import number_of  # imported only in jobs

            self.link, self.program = Device["mpi"].transport, number_of(step)
        self.parts = [*self._parts(items, iter(range(len(self.calls))))]

    def _parts(self, items: Sequence[UOp], ids: Iterator[int]) -> Iterator[Any]:
        """Cut the items into parts: runs of one device, copies, allreduces, loops and branches. `ids`: numbers for the
        calls in them.
        """
        k = 0
        while k < len(items):
            u = items[k]
            if u.op in ("RANGE", "IF"):
                end = next(e for e in range(k, len(items)) if items[e].op in ("END", "ENDIF") and u in items[e].src)
                yield _ControlPart(self, u, [*self._parts(items[k + 1 : end], ids)])
                k = end + 1
            elif u.op == "STORE":
                yield _CopyPart(self, u, next(ids))
                k += 1
            elif is_allreduce(u):
                yield AllreducePart(self, u, next(ids))
                k += 1
            elif u.op in ("CALL", "GROUP"):
                first = k
                dev = device_of(calls_in([u])[0], self.dev)
                while k < len(items) and items[k].op in ("CALL", "GROUP", "BARRIER"):
                    if any(device_of(c, self.dev) != dev or is_allreduce(c) for c in calls_in([items[k]])):
                        break
                    k += 1
                yield _DevicePart(self, items[first:k], dev, ids)
            else:
                raise InternalError("an item that cannot be encoded", expected="CALL, STORE, GROUP", found=u.op)

    def bind(self, number: int, address: int) -> None:
        """See `Commands`."""
        self.at[number] = address
        for part in self.parts:
            part.bind(number, address)

    def bind_memory(self, number: int, memory: Any) -> None:
        """Bind the memory object of a position for the next launch; copies between devices need it."""
        self.memory[number] = memory

    def bytes_of(self, u: UOp) -> np.ndarray:
        """Return the bytes of the operand `u`, whose memory the host reaches, without a copy."""
        o = read_operand(u)
        address = self.at[self.number[o.base]] + value_of(o.offset, self.env)
        return np.ctypeslib.as_array((ctypes.c_uint8 * buffer_bytes(u)).from_address(address))

    def launch(self) -> None:
        """Run all parts in order."""
        self._run(False)

    def launch_timed(self) -> list[int]:
        """Run all parts; return nanoseconds of each call or copy, summed over the iterations of its loops."""
        self.ns = [0] * len(self.calls)
        self._run(True)
        return self.ns

    def _run(self, timed: bool) -> None:
        if self.link is not None:
            self.link.program = self.program
        self.env.update((symbol, self.at[n]) for symbol, n in self.sizes.items() if n in self.at)
        try:
            for part in self.parts:
                self.launch_part(part, timed)
        finally:
            try:
                self.in_flight.wait()
            finally:
                self.memory.clear()  # a replay counts the holders of a state's memory

    def launch_part(self, part: Any, timed: bool) -> None:
        """Run a part after the messages in flight that touch its memory."""
        if self.in_flight.pending:
            self.in_flight.wait(None if timed else part.spans)
        part.launch(timed)


class InFlight:
    """Messages of this process that run in a thread, one after the other, in parallel with the parts of a launch."""

    def __init__(self) -> None:
        self.pending: list[tuple[Future[None], list[Span]]] = []

    def start(self, run: Callable[[], None], spans: list[Span], n_bytes: int) -> None:
        """Call `run`, which exchanges `n_bytes` with other processes and touches `spans`: in the thread if it is long
        or others are before it, else now.
        """
        self.pending = [pair for pair in self.pending if not pair[0].done() or pair[0].exception() is not None]
        if self.pending or n_bytes >= MIN_OVERLAPPED_BYTES:
            self.pending.append((_thread().submit(run), spans))
        else:
            run()

    def wait(self, spans: list[Span] | None = None) -> None:
        """Wait for the messages that touch `spans`, and those before them; for all if it is None."""
        n = len(self.pending)
        while spans is not None and n and not overlap(self.pending[n - 1][1], spans):
            n -= 1
        done, self.pending = self.pending[:n], self.pending[n:]
        for future, _ in done:
            future.result()


@cache
def _thread() -> ThreadPoolExecutor:
    """Return the thread that exchanges messages, one for the process, because the order of messages is their name."""
    return ThreadPoolExecutor(1, "monolect-messages")


class _DevicePart:
    """Consecutive items of one device, encoded by that device."""

    def __init__(self, host: HostCommands, items: Sequence[UOp], dev: str, ids: Iterator[int]) -> None:
        self.host = host
        self.moving: list[tuple[int, UOp, Any]] = []  # (position, base or scalar, byte offset) of operands that change
        number = dict(host.number)
        new: list[UOp] = []
        for u in items:
            new.append(self._with_bound_operands(u, number))
        self.ids = [next(ids) for _ in calls_in(items)]
        self.spans = [span for c in calls_in(items) for span in touched(c)]
        self.commands: Commands = Device[dev].encode([u for u in new if u.op != "BARRIER"], number, host.programs)

    def _with_bound_operands(self, u: UOp, number: dict[UOp, int]) -> UOp:
        """Return an item in which a PARAM with its own position replaces each operand that depends on a loop."""
        if u.op == "GROUP":
            return node("GROUP", tuple([self._with_bound_operands(c, number) for c in u.src]), u.arg)
        if u.op != "CALL":
            return u
        operands = []
        for x in u.src[1:]:
            o = read_operand(x)
            if o.offset.__class__ is int and (o.base in number):
                operands.append(_without_after(x))
                continue
            n = self.host.new()
            p = node("PARAM", (shape_source((max(1, buffer_bytes(x)),)),), ParamArg(n, dtypes.uint8, "moving"))
            number[p] = n
            self.moving.append((n, o.base, o.offset))
            operands.append(p)
        return with_operands(u, operands)

    def bind(self, number: int, address: int) -> None:
        """See `Commands`."""
        self.commands.bind(number, address)

    def launch(self, timed: bool) -> None:
        """Bind the operands that change, and run the part; `timed`: add the times to `HostCommands.ns`."""
        env = self.host.env
        for n, base, offset in self.moving:
            if is_scalar(base):
                self.commands.bind(n, value_of(base, env))
            else:
                self.commands.bind(n, self.host.at[self.host.number[base]] + value_of(offset, env))
        if timed:
            for k, ns in zip(self.ids, self.commands.launch_timed(), strict=True):
                self.host.ns[k] += ns
        else:
            self.commands.launch()


def _without_after(u: UOp) -> UOp:
    """Return the node below AFTERs."""
    while u.op == "AFTER":
        u = u.src[0]
    return u


class _CopyPart:
    """A STORE of a LOAD: a copy between devices."""

    def __init__(self, host: HostCommands, item: UOp, k: int) -> None:
        self.host, self.k, self.spans = host, k, touched(item)
        to, source = operands_of(item)
        self.to, self.source, self.n_bytes = read_operand(to), read_operand(source), buffer_bytes(source)

    def bind(self, number: int, address: int) -> None:
        """Do nothing: addresses are read at the launch."""

    def launch(self, timed: bool) -> None:
        """Copy now, device to device if possible; add the time to `HostCommands.ns`."""
        start = time.perf_counter_ns()
        home, there = (Device[str(o.base.arg.device)] for o in (self.source, self.to))
        to, source = (self.host.number[o.base] for o in (self.to, self.source))
        a, b = (value_of(o.offset, self.host.env) for o in (self.source, self.to))
        if (rank := process_of(home.name)) is not None and rank != process_of(there.name):
            message = partial(self._between_processes, home, there, source, to, a, b)
            self.host.in_flight.start(message, self.spans, 0 if timed else self.n_bytes)
        elif type(home) is type(there) and isinstance(there, Peered) and not a and not b:
            there.copy_from(self.host.memory[to], home, self.host.memory[source], self.n_bytes)
        else:
            self._by_the_host(home, there, source, to, a, b)
        self.host.ns[self.k] += time.perf_counter_ns() - start

    def _between_processes(self, home: Any, there: Any, source: int, to: int, a: int, b: int) -> None:
        """Send from the process of `home`, or receive from it: in the process of `there`, or in all others if each
        process has a device `there`. The other arguments are those of `_by_the_host`.
        """
        link = home.transport
        goal = process_of(there.name)
        if home.is_here:
            data = _bytes(home, self.host, source)[a : a + self.n_bytes]
            for rank in range(link.size) if goal is None else (goal,):
                if rank != link.rank:
                    link.send(data, rank)
            if goal is None:
                self._by_the_host(home, there, source, to, a, b)
        elif _in_host_memory(there):
            link.receive(_bytes(there, self.host, to)[b : b + self.n_bytes], home.rank)
        else:
            received = np.empty(self.n_bytes, np.uint8)
            link.receive(received, home.rank)
            there.copy(self.host.memory[to], there.from_array(received), self.n_bytes)

    def _by_the_host(self, home: Any, there: Any, source: int, to: int, a: int, b: int) -> None:
        """Copy through host memory from byte `a` of position `source`, on device `home`, to byte `b` of position `to`,
        on device `there`. `b` must be 0 unless `there` has host memory.
        """
        data = _bytes(home, self.host, source)[a : a + self.n_bytes]
        if _in_host_memory(there):
            _bytes(there, self.host, to)[b : b + self.n_bytes] = data
        elif b:
            raise InternalError("a copy into the middle of a device's memory", expected="byte 0", found=b)
        else:
            there.copy(self.host.memory[to], there.from_array(np.ascontiguousarray(data)), self.n_bytes)


def _in_host_memory(device: Any) -> bool:
    """Whether the host reaches the memory of a device; that of another processor's device is in its process."""
    return device.space == HOST or isinstance(device, NativeDevice)


def _bytes(device: Any, host: HostCommands, position: int) -> np.ndarray:
    """Return the memory at a position as uint8: a view if the host reaches it, else a copy."""
    if not _in_host_memory(device):
        found: np.ndarray = host.memory[position].view(np.uint8)
        return found
    base = next(b for b, n in host.number.items() if n == position)
    return np.ctypeslib.as_array((ctypes.c_uint8 * buffer_bytes(base)).from_address(host.at[position]))


class _ControlPart:
    """A loop (RANGE) or a branch (IF) around parts."""

    def __init__(self, host: HostCommands, opened: UOp, parts: list[Any]) -> None:
        self.host, self.opened, self.parts = host, opened, parts
        self.spans = [span for part in parts for span in part.spans]

    def bind(self, number: int, address: int) -> None:
        """See `Commands`."""
        for part in self.parts:
            part.bind(number, address)

    def launch(self, timed: bool) -> None:
        """Run the parts once for each iteration of the loop, or if the branch is taken."""
        n = value_of(self.opened.src[0], self.host.env)
        for i in range(n if self.opened.op == "RANGE" else min(n, 1)):
            if self.opened.op == "RANGE":
                self.host.env[self.opened] = i
            for part in self.parts:
                self.host.launch_part(part, timed)


__all__ = ["HostCommands"]

"""Devices with workgroups whose driver loads what a compiler made: OpenCL, CUDA and their like.

What it is for: what a launch of a kernel takes. A device says how its source is rendered, built and loaded, and which
kernel of a module a name is. What it does not do: copies and launches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from monolect.backend.base import Program
from monolect.backend.common.launch import TensorMap, bytes_at_launch, check_limits, launch_sizes, tensor_maps
from monolect.backend.common.programs import ProgramDevice
from monolect.base.errors import AllocationError, DeviceError, MissingExtraError
from monolect.ir.bounds import size_max
from monolect.ir.rewrite.normal import count
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp

SCALAR = -1  # in place of the size of a buffer


class Entry(NamedTuple):
    """A kernel of a module, and what a launch of it takes."""

    kernel: Any
    arguments: tuple[tuple[int, int, str], ...]  # (slot, bytes or SCALAR, name of the Variable)
    groups: tuple[UOp, ...]
    lanes: tuple[int, ...]
    local_bytes: int = 0  # of local memory that the launch must ask for
    maps: tuple[TensorMap, ...] = ()  # taken after the arguments


class GroupDevice(ProgramDevice):
    """The programs of one device. `name` is also its space: its memory is its own."""

    opening: str  # the word a kernel begins with in the source
    called = "GPU"  # in messages
    memory: Any  # a HandleAllocator
    most_local_bytes = 0  # that a kernel has without asking for them at the launch; 0: all

    def __init__(self, name: str):
        super().__init__(name)
        self.space = name

    @classmethod
    def number(cls, name: str, n: int | None = None) -> int:
        """Which of `n` a name means. Raises DeviceError where there is none such."""
        target, _, number = name.partition(":")
        number = number or "0"
        if not number.isdigit() or (n is not None and int(number) >= n):
            expected = f"{target} or {target}:0 to {target}:{n - 1}" if n else f"a {cls.called}"
            raise DeviceError(f"no such {cls.called}", expected=expected, found=name)
        return int(number)

    def alloc(self, n_bytes: int) -> Any:
        """Uninitialised memory. Raises AllocationError when there is none, also without what is kept for later."""
        return self.memory.alloc(n_bytes)

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        """A kernel of a module. Raises where the module has none of that symbol; `name` is for the message."""
        raise NotImplementedError

    def check(self, name: str, linear: UOp) -> None:
        """Raises CompileError for a launch over a limit."""
        check_limits(name, linear.src, self.target)

    def info(self, linear: UOp) -> dict[str, Any]:
        """See `ProgramDevice`."""
        arguments = []
        for u in sorted((u for u in linear.src if u.op == "PARAM"), key=lambda u: u.arg.slot):
            n_bytes = size_max(count(u.shape)) * u.dtype.itemsize if u.arg.name is None else SCALAR
            arguments.append((u.arg.slot, n_bytes, u.arg.name or ""))
        groups, lanes = launch_sizes(linear.src)
        return {
            "arguments": arguments,
            "groups": [show(n) for n in groups],
            "lanes": lanes,
            "maps": tensor_maps(linear.src),
            "local": bytes_at_launch(linear.src, self.most_local_bytes),
            "threads": linear.arg.threads,
        }

    def program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        """See `ProgramDevice`."""
        kernel = self.kernel(module, info["symbol"], info["name"])
        groups = tuple(parse(text) for text in info["groups"])
        arguments = tuple((int(slot), int(size), str(variable)) for slot, size, variable in info["arguments"])
        entry = Entry(
            kernel, arguments, groups, tuple(map(int, info["lanes"])), int(info["local"]), _maps(info["maps"])
        )
        return Program(info["name"], entry, int(info["threads"]), source)

    def one(self, source: str, symbol: str) -> str:
        """See `ProgramDevice`."""
        at = source.index(f"{symbol}(")
        return source[source.rindex(self.opening, 0, at) : source.index("\n}\n", at) + 3]


def told_together(parts: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Drivers and compilers of several devices, each in one line."""
    drivers, compilers = zip(*parts, strict=True)
    return "; ".join(drivers), "; ".join(dict.fromkeys(compilers))


def why_not(find: Callable[[], object], none: str = "") -> str:
    """Why devices cannot be used, or "": what `find` raises where package or driver is missing, `none` where it finds
    nothing.
    """
    try:
        return "" if find() else none
    except (DeviceError, MissingExtraError) as error:
        return error.message


def _maps(rows: list) -> tuple[TensorMap, ...]:
    """Tensor maps out of JSON."""
    return tuple(TensorMap(slot, d, start, *map(tuple, more)) for slot, d, start, *more in rows)


class Reported:
    """A context in which errors of a driver become errors that name the device and what it was at.

    `errors` are the driver's own; `is_full` tells those that say that memory ran out. `device` has a `name`, and in
    `process` the process that opened it.
    """

    def __init__(self, device: Any, what: str, errors: Any, is_full: Callable[[BaseException], bool]):
        self.device, self.what, self.errors, self.is_full = device, what, errors, is_full

    def __enter__(self) -> None:
        if os.getpid() != self.device.process:  # the driver's threads are not here: it would wait for ever
            raise DeviceError(
                f"{self.device.name} was opened before a fork",
                expected="a process that is spawned, or that opens the device itself",
                found=self.what,
            )

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, self.errors):
            told = AllocationError if self.is_full(error) else DeviceError
            raise told(f"{self.device.name}, {self.what}: {error}") from None

"""Define the base of devices with workgroups whose driver loads compiled modules: OpenCL, CUDA, Metal and others.

What it is for: the launch parameters of a kernel, and errors of drivers. A device adds how a source is rendered, built
and loaded, and how the driver finds a kernel in a module. What it does not do: copies and launches.
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

SCALAR = -1  # bytes of an argument that is a scalar, not a buffer


class Entry(NamedTuple):
    """A kernel of a loaded module and its launch parameters."""

    kernel: Any  # the driver's object
    arguments: tuple[tuple[int, int, str], ...]  # (slot, bytes or SCALAR, name of the Variable)
    groups: tuple[UOp, ...]  # number of workgroups along each dimension
    lanes: tuple[int, ...]  # of a workgroup along each dimension
    local_bytes: int = 0  # of local memory that the launch must reserve
    maps: tuple[TensorMap, ...] = ()  # further arguments of the kernel


class GroupDevice(ProgramDevice):
    """A device with workgroups and memory of its own; its memory space has the name of the device."""

    kernel_keyword: str  # text with which a kernel begins in the source
    kind_name = "GPU"  # noun for such a device in messages
    memory: Any  # a HandleAllocator
    static_local_bytes = 0  # local memory that a kernel can declare; more is reserved by the launch; 0: no limit

    def __init__(self, name: str):
        super().__init__(name)
        self.space = name

    @classmethod
    def number(cls, name: str, n: int | None = None) -> int:
        """Return the number at the end of a device's name, as in "cuda:1", or 0.

        Raises DeviceError if it is no number, or not below `n`.
        """
        target, _, number = name.partition(":")
        number = number or "0"
        if not number.isdigit() or (n is not None and int(number) >= n):
            expected = f"{target} or {target}:0 to {target}:{n - 1}" if n else f"a {cls.kind_name}"
            raise DeviceError(f"no such {cls.kind_name}", expected=expected, found=name)
        return int(number)

    def alloc(self, n_bytes: int) -> Any:
        """Return uninitialized memory.

        Raises AllocationError if the device has none left, even after all cached memory is freed.
        """
        return self.memory.alloc(n_bytes)

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        """Return the driver's object for the kernel `symbol` of a module.

        Raises if the module has no such kernel; `name` is for the message.
        """
        raise NotImplementedError

    def check(self, name: str, linear: UOp) -> None:
        """Raise CompileError or DTypeError for a launch that exceeds a limit of the target."""
        check_limits(name, linear.src, self.target)

    def info(self, linear: UOp) -> dict[str, Any]:
        """Return the launch parameters of a kernel as values that JSON can store, by the names that `program` reads."""
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
            "local": bytes_at_launch(linear.src, self.static_local_bytes),
            "threads": linear.arg.threads,
        }

    def program(self, info: dict[str, Any], module: Any, source: str) -> Program:
        """Return the Program of one kernel of a loaded module; its entry is an Entry made from `info`."""
        kernel = self.kernel(module, info["symbol"], info["name"])
        groups = tuple(parse(text) for text in info["groups"])
        arguments = tuple((int(slot), int(size), str(variable)) for slot, size, variable in info["arguments"])
        entry = Entry(
            kernel, arguments, groups, tuple(map(int, info["lanes"])), int(info["local"]), _maps(info["maps"])
        )
        return Program(info["name"], entry, int(info["threads"]), source)

    def kernel_source(self, source: str, symbol: str) -> str:
        """Return the part of a module's source that is the kernel `symbol`."""
        at = source.index(f"{symbol}(")
        return source[source.rindex(self.kernel_keyword, 0, at) : source.index("\n}\n", at) + 3]


def join_versions(parts: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Join the (driver, compiler) texts of several devices to one text of drivers and one of distinct compilers."""
    drivers, compilers = zip(*parts, strict=True)
    return "; ".join(drivers), "; ".join(dict.fromkeys(compilers))


def unavailable_reason(find: Callable[[], object], none: str = "") -> str:
    """Return why devices cannot be used, or "" if they can.

    The reason is the message of the error that `find` raises for a missing package or driver, or `none` if `find`
    returns nothing.
    """
    try:
        return "" if find() else none
    except (DeviceError, MissingExtraError) as error:
        return error.message


def _maps(rows: list) -> tuple[TensorMap, ...]:
    """Return TensorMaps from their JSON form, in which tuples are lists."""
    return tuple(TensorMap(slot, d, start, *map(tuple, more)) for slot, d, start, *more in rows)


class DriverErrors:
    """A context that turns a driver's errors into DeviceErrors or AllocationErrors that name the device and the action.

    `what` names the action. `errors` are the driver's exception classes; `is_full` returns whether an exception means
    that memory is exhausted. `device` has a `name` and a `process`, the id of the process that opened it.
    Entering raises DeviceError in a forked child.
    """

    def __init__(self, device: Any, what: str, errors: Any, is_full: Callable[[BaseException], bool]):
        self.device, self.what, self.errors, self.is_full = device, what, errors, is_full

    def __enter__(self) -> None:
        if os.getpid() != self.device.process:  # the driver's threads do not exist here, so a call would never return
            raise DeviceError(
                f"{self.device.name} was opened before a fork",
                expected="a process that is spawned, or that opens the device itself",
                found=self.what,
            )

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, self.errors):
            error_class = AllocationError if self.is_full(error) else DeviceError
            raise error_class(f"{self.device.name}, {self.what}: {error}") from None


__all__ = ["DriverErrors", "Entry", "GroupDevice", "SCALAR", "join_versions", "unavailable_reason"]

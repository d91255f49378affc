"""Define the interface of a target: a Device with its capabilities, a compiler of LINEAR programs, an allocator and a
launcher.

A target is a folder under `backend/` with `render.py`, `compile.py` and `runtime.py`, and one row in
`backend/registry.py`. The layers above see only these classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from monolect.base.dtype import dtypes
from monolect.base.numpy import np
from monolect.base.target import Target
from monolect.command.forms import read_operand
from monolect.ir.ops import ParamArg, ProgramInfo
from monolect.ir.uop import UOp, node, shape_source


class Memory(Protocol):
    """A block of device memory, freed with its last reference.

    `n_views` counts the arrays that share the memory and were made so far, by `view`, NumPy or DLPack. `is_lent` says
    whether code outside monolect can write to the memory without a further view. Memory that kernels write is aligned
    to 64 bytes; memory that they only read need not be. `address` is a byte address in the device's own space. A device
    whose interface has handles instead of addresses makes addresses up (`common/gpu/handles.py`).
    """

    address: int
    n_bytes: int
    n_views: int

    def view(self, dtype: Any) -> np.ndarray:
        """Return the elements as a flat array. It shares the memory if the host can address that; otherwise it is a
        copy, made after all launches are done.
        """

    def is_lent(self) -> bool: ...


class Program(NamedTuple):
    """A kernel ready to run. `entry` is what the device runs: a native address, or a LINEAR for the interpreter."""

    name: str
    entry: Any
    n_threads: int
    source: str = ""
    local_bytes: int = 0  # bytes of local memory per thread, on targets that emulate local memory


class Call(NamedTuple):
    """A launch of a command buffer, as an encoder reads it.

    `operands` has for each operand the number of its buffer and its byte offset in the buffer; for a size, the number
    of the size and 0. `after` holds the indices of the calls that must finish first.
    """

    program: Program
    operands: tuple[tuple[int, int], ...]
    after: tuple[int, ...] = ()


class Group(NamedTuple):
    """Calls by index that need no barrier between them, in order.

    `lanes` is for each thread its work list of (call, part of the call). Without lanes, the calls run one after the
    other.
    """

    calls: tuple[int, ...]
    lanes: tuple[tuple[tuple[int, int], ...], ...] = ()


def unpacked(
    items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
) -> tuple[list[Call], list[Group]]:
    """Return the Calls of the items of a command buffer, and its Groups, [] if no group has lanes.

    `number` maps each PARAM and BUFFER to its number, `programs` each PROGRAM to the loaded Program.
    """
    calls: list[Call] = []
    at: dict[UOp, int] = {}
    found: list[Group] = []
    for u in items:
        if u.op == "BARRIER":
            continue
        first = len(calls)
        for c in u.src if u.op == "GROUP" else (u,):
            operands, after = [], list[int]()
            for x in c.src[1:]:
                o = read_operand(x)
                operands.append((number[o.base], o.offset))
                after += [at[y] for y in o.after]
            at[c] = len(calls)
            calls.append(Call(programs[c.src[0]], tuple(operands), tuple(sorted(after))))
        members = tuple(range(first, len(calls)))
        lanes = tuple([tuple([(first + k, part) for k, part in lane]) for lane in u.arg or ()])
        found.append(Group(members, lanes if u.op == "GROUP" else ()))
    return calls, found if any(g.lanes for g in found) else []


def launching(*calls: tuple[Program, Sequence[int]]) -> tuple[list[UOp], dict[UOp, int], dict[UOp, Program]]:
    """Return the arguments of `Device.encode` for launches of programs, in order, on the buffers with these numbers."""
    number: dict[UOp, int] = {}
    programs: dict[UOp, Program] = {}
    items: list[UOp] = []
    for k, (program, positions) in enumerate(calls):
        made = node("PROGRAM", (node("SINK"),), ProgramInfo(program.name, str(k), program.n_threads))
        programs[made] = program
        params = [node("PARAM", (shape_source((1,)),), ParamArg(n, dtypes.uint8)) for n in positions]
        number |= {p: p.arg.slot for p in params}
        items.append(node("CALL", (made, *params)))
    return items, number, programs


class Commands(Protocol):
    """An encoded command buffer. Bind every buffer number, then launch, any number of times."""

    def bind(self, number: int, address: int) -> None:
        """Set buffer `number` to the memory at `address`; for a size, set its value."""

    def launch(self) -> None:
        """Run all launches in order."""

    def launch_timed(self) -> list[int]:
        """Run the launches one at a time, and return the time of each in nanoseconds."""

    def run(self, *addresses: int) -> None:
        """Bind buffer number i to `addresses[i]`, then launch. A device may implement both as one call."""
        for number, address in enumerate(addresses):
            self.bind(number, address)
        self.launch()


class Numbered(Commands):
    """Commands of a device that binds operands, not buffers: each distinct (buffer number, byte offset) is one operand
    with a number of its own.
    """

    parts: dict[int, dict[int, int]]  # buffer number -> byte offset -> operand number

    def number_operands(self, calls: Sequence[Call]) -> list[tuple[int, ...]]:
        """Give each distinct (buffer number, byte offset) in `calls` an operand number, in `parts`.

        Return for each call the operand numbers of its operands.
        """
        self.parts, n = {}, 0
        for call in calls:
            for position, offset in call.operands:
                at = self.parts.setdefault(position, {})
                if offset not in at:
                    at[offset], n = n, n + 1
        return [tuple([self.parts[position][offset] for position, offset in call.operands]) for call in calls]

    def bind(self, number: int, address: int) -> None:
        """Set buffer `number` to the memory at `address`: bind all operands in it. An unused number is ignored."""
        for offset, n in self.parts.get(number, {}).items():
            self.bind_operand(n, address + offset)

    def bind_operand(self, number: int, address: int) -> None:
        """Set operand `number` to the memory at `address`, or to the value `address` if the operand is a size."""
        raise NotImplementedError


class Device(Protocol):
    """One device of a target."""

    name: str
    target: Target
    space: str  # address space; devices of one space reach each other's memory, "host" is this process's

    def alloc(self, n_bytes: int) -> Any: ...

    def from_array(self, array: np.ndarray) -> Any:
        """Return device memory with the values of `array`: the array's own memory on the host, which it keeps alive,
        else a copy.
        """

    def copy(self, target: Any, source: Any, n_bytes: int) -> None:
        """Copy the first `n_bytes` bytes of the memory `source` to the memory `target` of this device."""

    def compile(self, kernels: Iterable[tuple[str, str, UOp]]) -> list[Program]:
        """Compile (name, key, LINEAR) triples and return their Programs; equal keys mean equal programs, also on disk.

        `kernels` is read once: the caller may lower the next kernel while the compiler works on those before.
        """

    def lookup(self, key: str) -> Program | None:
        """Return the program cached under `key` in memory or on disk, without compiling; None if there is none."""

    def encode(self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]) -> Commands:
        """Encode the items of a step that run on this device, with nothing bound yet; see `unpacked`."""


@runtime_checkable
class Sharing(Protocol):
    """A Device whose own memory other libraries can use through DLPack. Devices with host memory need no such
    support.
    """

    dlpack: tuple[int, int]  # DLPack's (device type, device number)
    stream: Any  # handle, as an integer, of the stream that orders its launches

    def wait(self) -> None:
        """Wait until all launches are done."""

    def borrow(self, address: int, n_bytes: int, owner: Any) -> Any:
        """Wrap the memory at `address`, which belongs to `owner`, and keep the owner alive with it."""


@runtime_checkable
class Peered(Protocol):
    """A Device that copies from the memory of another device of its target without the host."""

    def copy_from(self, target: Any, other: Any, source: Any, n_bytes: int) -> None:
        """Copy the first `n_bytes` bytes of `source`, memory of the device `other`, to the memory `target` of this
        device.
        """


@runtime_checkable
class Preparing(Protocol):
    """A Device that can prefault memory for upcoming allocations."""

    def prepare(self, sizes: Sequence[int]) -> Any:
        """Return free blocks of these sizes in bytes, whose pages are faulted in while other work runs."""


@runtime_checkable
class Portable(Protocol):
    """A Device whose compiled programs are bytes that another process can load. BEAM needs it."""

    def dumps(self, linear: UOp) -> bytes:
        """Compile a program without loading it, and return its bytes."""

    def loads(self, built: bytes) -> Program:
        """Load the program that `dumps` of an equal device returned."""


__all__ = [
    "Call",
    "Commands",
    "Device",
    "Group",
    "Memory",
    "Numbered",
    "Peered",
    "Portable",
    "Preparing",
    "Program",
    "Sharing",
    "launching",
    "unpacked",
]

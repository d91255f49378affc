"""What a target supplies: a Device with capabilities, a compiler of LINEAR programs, an allocator and a way to run.

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
    """A piece of device memory; freed when nothing refers to it any more.

    `n_views` counts the arrays that `view` and NumPy got of it; `is_lent` says whether others can write to it anyway.
    What kernels write is aligned to 64 bytes; what they only read need not be.
    `address` counts bytes in the device's own space; of a device whose interface has handles and no addresses they are
    made up (`common/handles.py`).
    """

    address: int
    n_bytes: int
    n_views: int

    def view(self, dtype: Any) -> np.ndarray:
        """The memory as a flat array: itself where the host reaches it, else a copy once all launches are done."""

    def is_lent(self) -> bool: ...


class Program(NamedTuple):
    """A kernel ready to run. `entry` is what the device runs: a native address, or a LINEAR for the interpreter."""

    name: str
    entry: Any
    n_threads: int
    source: str = ""
    local_bytes: int = 0  # local memory of each thread, for targets that have none of their own


class Call(NamedTuple):
    """One item of a command buffer as an encoder reads it: a program and, for each operand, the position of its memory
    and the byte in it where the operand begins; the position of a size, and 0. `after`: the items that it waits for.
    """

    program: Program
    operands: tuple[tuple[int, int], ...]
    after: tuple[int, ...] = ()


class Group(NamedTuple):
    """Calls by number, in order. `lanes`: for each thread the (call, part of it) that it runs, one after the other;
    without lanes the calls run one after the other.
    """

    calls: tuple[int, ...]
    lanes: tuple[tuple[tuple[int, int], ...], ...] = ()


def unpacked(
    items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
) -> tuple[list[Call], list[Group]]:
    """The calls of a command buffer, and its groups, () where it has none. `number` gives the position of each PARAM
    and BUFFER, `programs` what is loaded of each PROGRAM.
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
        mine = tuple(range(first, len(calls)))
        lanes = tuple([tuple([(first + k, part) for k, part in lane]) for lane in u.arg or ()])
        found.append(Group(mine, lanes if u.op == "GROUP" else ()))
    return calls, found if any(g.lanes for g in found) else []


def launching(*calls: tuple[Program, Sequence[int]]) -> tuple[list[UOp], dict[UOp, int], dict[UOp, Program]]:
    """What `encode` takes, for programs on memory at those positions, one after the other."""
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
    """An encoded command buffer. Bind every position, then launch, any number of times."""

    def bind(self, number: int, address: int) -> None:
        """The memory of position `number` is at `address` from now on (or, for a size, has this value)."""

    def launch(self) -> None:
        """Run all launches in order."""

    def launch_timed(self) -> list[int]:
        """The same, one launch at a time; nanoseconds of each."""

    def run(self, *addresses: int) -> None:
        """Bind buffer i to `addresses[i]`, then launch: for devices that make it one call. Others leave it out."""
        for number, address in enumerate(addresses):
            self.bind(number, address)
        self.launch()


class Numbered(Commands):
    """Commands of a device whose interface takes whole operands: each (position, offset) has a number of its own."""

    parts: dict[int, dict[int, int]]  # by position: the number of what begins at each offset

    def numbered(self, calls: Sequence[Call]) -> list[tuple[int, ...]]:
        """The numbers of the operands of each call."""
        self.parts, n = {}, 0
        for call in calls:
            for position, offset in call.operands:
                at = self.parts.setdefault(position, {})
                if offset not in at:
                    at[offset], n = n, n + 1
        return [tuple([self.parts[position][offset] for position, offset in call.operands]) for call in calls]

    def bind(self, number: int, address: int) -> None:
        """See `Commands`; a position that no call uses is ignored."""
        for offset, n in self.parts.get(number, {}).items():
            self.bind_part(n, address + offset)

    def bind_part(self, number: int, address: int) -> None:
        """The operand `number` is at `address` from now on, or has this value."""
        raise NotImplementedError


class Device(Protocol):
    """One device of a target."""

    name: str
    target: Target
    space: str  # devices of the same space reach each other's memory; "host" is that of this process

    def alloc(self, n_bytes: int) -> Any: ...

    def from_array(self, array: np.ndarray) -> Any:
        """The values in memory of the device: the array's own where that is host memory, and it stays alive with it."""

    def copy(self, target: Any, source: Any, n_bytes: int) -> None:
        """The first bytes of one memory of this device to another."""

    def compile(self, kernels: Iterable[tuple[str, str, UOp]]) -> list[Program]:
        """Programs for (name, key, LINEAR) triples; equal keys mean equal programs, also on disk.

        `kernels` is read once: the next may be lowered while the compiler has those before.
        """

    def lookup(self, key: str) -> Program | None:
        """The program kept under `key`, from memory or disk, without the compiler."""

    def encode(self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]) -> Commands:
        """The items of a step that run on this device, bound to nothing yet; see `unpacked`."""


@runtime_checkable
class Sharing(Protocol):
    """A Device with memory of its own that other libraries reach. Those in the host's memory need nothing for it."""

    dlpack: tuple[int, int]  # what DLPack calls it: its kind and number
    stream: Any  # as an integer, what its launches are ordered by

    def wait(self) -> None:
        """Return when all launches are done."""

    def borrow(self, address: int, n_bytes: int, owner: Any) -> Any:
        """Memory that belongs to `owner`, kept alive with it."""


@runtime_checkable
class Peered(Protocol):
    """A Device that fetches what is in the memory of another of its kind, without the host."""

    def copy_from(self, target: Any, other: Any, source: Any, n_bytes: int) -> None:
        """The first bytes of `source`, memory of the device `other`, to memory of this one."""


@runtime_checkable
class Preparing(Protocol):
    """A Device that can have memory ready for who asks next."""

    def prepare(self, sizes: Sequence[int]) -> Any:
        """Free blocks of these bytes, whose pages come while something else is done."""


@runtime_checkable
class Portable(Protocol):
    """A Device whose programs travel as bytes: one process builds them, another runs them. BEAM asks for it."""

    def dumps(self, linear: UOp) -> bytes:
        """A program compiled, without loading it."""

    def loads(self, built: bytes) -> Program:
        """The program that `dumps` of an equal device made."""

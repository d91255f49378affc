"""What a target supplies: a Device with capabilities, a compiler of LINEAR programs, an allocator and a way to run.

A target is a folder under `backend/` with `render.py`, `compile.py` and `runtime.py`, and one row in
`backend/registry.py`. The layers above see only these classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from monolect.base.numpy import np
from monolect.base.target import Target
from monolect.ir.uop import UOp


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


class Launch(NamedTuple):
    """One step of a command buffer: a program and, for each argument, the number of the buffer it takes.

    `offsets`: the byte of its buffer at which each argument begins, for devices of `has_parts`; () where all begin at
    the first.
    """

    program: Program
    args: tuple[int, ...]
    offsets: tuple[int, ...] = ()


class Phase(NamedTuple):
    """Launches of a command buffer that need no barrier between them, by number, in order.

    `lanes`: for each thread what it runs, one after the other, as (number of a launch, number of its thread). No
    lanes: the launches run one after the other.
    """

    launches: tuple[int, ...]
    lanes: tuple[tuple[tuple[int, int], ...], ...] = ()


class Commands(Protocol):
    """A compiled command buffer: the launches of a schedule. Bind every buffer, then launch, any number of times."""

    def bind(self, number: int, address: int) -> None:
        """Buffer `number` is at `address` from now on (or, for a scalar argument, has this value)."""

    def launch(self) -> None:
        """Run all launches in order."""

    def launch_timed(self) -> list[int]:
        """The same, one launch at a time; nanoseconds of each."""

    def run(self, *addresses: int) -> None:
        """Bind buffer i to `addresses[i]`, then launch: for devices that make it one call. Others leave it out."""
        for number, address in enumerate(addresses):
            self.bind(number, address)
        self.launch()


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

    def commands(self, launches: Sequence[Launch]) -> Commands: ...


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
class Threaded(Protocol):
    """A Device that shares launches out between threads of its own, `target.n_threads` of them."""

    target: Target

    def phased(self, launches: Sequence[Launch], phases: Sequence[Phase]) -> Commands:
        """`commands`, with barriers between phases alone."""


@runtime_checkable
class Ordered(Protocol):
    """A Device whose launches run side by side, but for those that wait for others."""

    def ordered(self, launches: Sequence[Launch], after: Sequence[tuple[int, ...]]) -> Commands:
        """`commands`, where each launch waits for those before it that are named, by number, and for no others."""


@runtime_checkable
class Portable(Protocol):
    """A Device whose programs travel as bytes: one process builds them, another runs them. BEAM asks for it."""

    def dumps(self, linear: UOp) -> bytes:
        """A program compiled, without loading it."""

    def loads(self, built: bytes) -> Program:
        """The program that `dumps` of an equal device made."""

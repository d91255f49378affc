"""Plan a step for its target and assign memory locations; the writers of C and WebAssembly read this Model.

What it is for: it runs the passes over command buffers, with kernels compiled for a target that this process does not
run. Each buffer then gets a location: a parameter, or an offset in a segment. What it is not: it makes no text.
Invariant: locations in a segment do not overlap, except those in the arena, which the pass `plan_memory` assigned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from monolect.backend.base import Call, Group, Program, unpacked
from monolect.backend.common.host.native import local_offsets
from monolect.backend.common.shaped import thread_local_layout
from monolect.base.settings import Context
from monolect.base.target import Target
from monolect.command.forms import buffer_bytes, is_arena, items_of, once_of, program_of
from monolect.command.passes import planned
from monolect.export.names import Names
from monolect.export.step import Copy, Exported, Parameter
from monolect.ir.uop import UOp, node
from monolect.pipeline import lower_kernel
from monolect.runtime.realize.plan import positions
from monolect.runtime.realize.programs import info_of, key_of

ALIGN_BYTES = 64  # bytes; each location in a segment begins at a multiple of it
WEIGHTS, RAW, STATES, PREPARED, ARENA = SEGMENTS = ("weights", "raw", "states", "prepared", "arena")
STORED = (WEIGHTS, RAW, STATES)  # segments with values before the first call, in the order of the weights file


class Kernel(NamedTuple):
    """A kernel of the program: its function name, its LINEAR, and the SINK that the LINEAR was lowered from."""

    name: str
    linear: UOp
    sink: UOp
    program: Program


class Location(NamedTuple):
    """The location of a buffer: a segment and a byte offset in it, or a parameter."""

    segment: str  # "" for a parameter
    name: str  # name of the parameter, of the weight or of the state
    at: int = 0  # byte offset in the segment


class Value(NamedTuple):
    """The initial value of a buffer in a segment: name, byte offset, size in bytes, and the BUFFER with the value."""

    name: str
    at: int
    n_bytes: int
    buffer: UOp


class Model(NamedTuple):
    """A planned step.

    The segment `raw` holds the weights that only `once` reads, such as those that it packs. It can be freed after
    `once` has run.
    """

    parameters: tuple[Parameter, ...]
    params: tuple[UOp, ...]  # PARAMs by slot
    notes: tuple[str, ...]  # sentences on results that are not parameters
    kernels: tuple[Kernel, ...]
    once: tuple[Call, ...]  # calls that init runs
    calls: tuple[Call, ...]  # calls of each step
    groups: tuple[Group, ...]
    locations: Mapping[int, Location]  # by buffer number
    n_bytes: Mapping[str, int]  # size of each segment
    values: Mapping[str, Sequence[Value]]  # initial values of the segments STORED
    copies: tuple[Copy, ...]
    checks: tuple[tuple[Any, int, int], ...]
    scratch: tuple[int, ...]  # byte offset of the local memory of each call
    scratch_bytes: int  # size of all local memory
    n_threads: int

    @property
    def stored_bytes(self) -> int:
        """Bytes of weights and states."""
        return sum(self.n_bytes[s] for s in STORED)


def plan(exported: Exported, target: Target, names: Names) -> Model:
    """Plan the step `exported` for `target` and return its Model."""
    compiled = _Programs(names)
    with Context(BEAM=0, **exported.compiling):
        ready = planned(exported.step, target, compiled)
    linear, number = program_of(ready), positions(ready)
    once, _ = unpacked(once_of(linear), number, compiled.programs)
    calls, groups = unpacked(items_of(linear), number, compiled.programs)
    scratch, n_scratch = local_offsets(calls, groups)
    n_once = max((c.program.local_bytes * c.program.n_threads for c in once), default=0)
    reads = {k.name: {u.arg.slot for u in k.linear.src if u.op == "PARAM"} for k in compiled.kernels}
    read_by_step = {c.operands[slot][0] for c in calls for slot in reads[c.program.entry]} | {
        c.source for c in exported.copies
    }
    memory = _Memory(exported, number, names, read_by_step)
    return Model(
        exported.parameters, exported.step.src[1:], exported.notes, tuple(compiled.kernels), tuple(once), tuple(calls),
        tuple(groups or (Group(tuple(range(len(calls)))),)), memory.locations, memory.n_bytes, memory.values,
        exported.copies, exported.checks, tuple(scratch), max(n_scratch, n_once),
        target.n_threads,
    )  # fmt: skip


class _Programs:
    """Lower kernels for a target without a device in this process, as a `passes.Programs`."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.kernels: list[Kernel] = []
        self.programs: dict[UOp, Program] = {}

    def __call__(self, operands: Mapping[UOp, Sequence[UOp]], target: Target) -> dict[UOp, UOp]:
        out = {}
        for kernel, given in operands.items():
            linear = lower_kernel(kernel, target)
            name = self.names.new(f"k{len(self.kernels)}_{linear.arg.name}", "kernel")
            program = Program(name, name, linear.arg.threads, "", thread_local_layout(linear.src)[0])
            out[kernel] = new = node(
                "PROGRAM", (kernel,), info_of(kernel, given, program, target)._replace(key=key_of(kernel))
            )
            self.kernels.append(Kernel(name, linear, kernel, program))
            self.programs[new] = program
        return out


class _Memory:
    """Assign a Location to each buffer number.

    `read_by_step`: numbers of the buffers that the calls or copies of each step use. Weights that only `once` reads go
    to the segment `raw`.
    """

    def __init__(self, exported: Exported, number: Mapping[UOp, int], names: Names, read_by_step: set[int]) -> None:
        self.n_bytes = dict.fromkeys(SEGMENTS, 0)
        self.values: dict[str, list[Value]] = {s: [] for s in STORED}
        self.locations: dict[int, Location] = {p.slot: Location("", p.name) for p in exported.parameters}
        known: dict[int, Location] = {}
        for b, n in number.items():
            if b.op == "BUFFER" and is_arena(b):
                self.locations[n] = Location(ARENA, ARENA, self._take(ARENA, buffer_bytes(b)))
        for b, n in number.items():
            if b.op == "BUFFER" and not is_arena(b):
                self.locations[n] = Location(PREPARED, names.new("prepared"), self._take(PREPARED, buffer_bytes(b)))
        roles = exported.step.arg.roles
        read = {id(exported.values[k]) for k in read_by_step if k in exported.values}
        for slot, (p, role) in enumerate(zip(exported.step.src[1:], roles, strict=True)):
            if slot in self.locations:
                continue
            segment = {"state": STATES, "old": STATES, "read": WEIGHTS, "constant": WEIGHTS}.get(role, ARENA)
            buffer = exported.values.get(slot)
            if segment == WEIGHTS and id(buffer) not in read:
                segment = RAW
            if segment in (WEIGHTS, RAW) and id(buffer) in known:
                self.locations[slot] = known[id(buffer)]
                continue
            name = names.new(exported.named.get(slot) or {STATES: "state", ARENA: "unnamed"}.get(segment, "weight"))
            at = self._take(segment, buffer_bytes(p))
            self.locations[slot] = known[id(buffer)] = Location(segment, name, at)
            if segment != ARENA and buffer is not None:
                self.values[segment].append(Value(name, at, buffer_bytes(p), buffer))

    def _take(self, segment: str, n_bytes: int) -> int:
        at = self.n_bytes[segment]
        self.n_bytes[segment] = at + -(-n_bytes // ALIGN_BYTES) * ALIGN_BYTES
        return at


__all__ = [
    "ALIGN_BYTES",
    "ARENA",
    "PREPARED",
    "RAW",
    "SEGMENTS",
    "STATES",
    "STORED",
    "WEIGHTS",
    "Kernel",
    "Location",
    "Model",
    "Value",
    "plan",
]

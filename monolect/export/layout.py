"""A step planned for its target, and where everything is: what encoders of programs of their own read.

What it is for: the passes over command buffers, with the programs of a target that this process does not run. Then each
position of memory gets a place: a parameter, or bytes of a segment. What it is not: text.
Invariant: places of a segment do not overlap, but for those of the arena, which the pass `plan_memory` gave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from monolect.backend.base import Call, Group, Program, unpacked
from monolect.backend.common.host.native import local_offsets
from monolect.backend.common.shaped import local_places
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

ALIGN_BYTES = 64
WEIGHTS, RAW, STATES, PREPARED, ARENA = SEGMENTS = ("weights", "raw", "states", "prepared", "arena")
STORED = (WEIGHTS, RAW, STATES)  # have values before the first call, which a file holds in this order


class Kernel(NamedTuple):
    """A function of the program: its LINEAR, and the SINK that it computes."""

    name: str
    linear: UOp
    sink: UOp
    program: Program


class Place(NamedTuple):
    """Where memory is: the bytes from `at` on of a segment; of a parameter, its name and 0."""

    segment: str  # "" for a parameter
    name: str
    at: int = 0


class Value(NamedTuple):
    """What a segment holds before the first call."""

    name: str
    at: int
    n_bytes: int
    buffer: UOp


class Model(NamedTuple):
    """A planned step. `scratch`: for each call the offset of its local memory, `scratch_bytes` that of all.

    The segment `raw` has the weights that only `once` reads, as those that it packs. They may go when that has run.
    """

    parameters: tuple[Parameter, ...]
    params: tuple[UOp, ...]  # by slot
    notes: tuple[str, ...]
    kernels: tuple[Kernel, ...]
    once: tuple[Call, ...]
    calls: tuple[Call, ...]
    groups: tuple[Group, ...]
    places: Mapping[int, Place]  # by position
    n_bytes: Mapping[str, int]  # of each segment
    values: Mapping[str, Sequence[Value]]  # of the segments STORED
    copies: tuple[Copy, ...]
    checks: tuple[tuple[Any, int, int], ...]
    scratch: tuple[int, ...]
    scratch_bytes: int
    n_threads: int

    @property
    def stored_bytes(self) -> int:
        """Bytes of weights and states."""
        return sum(self.n_bytes[s] for s in STORED)


def plan(exported: Exported, target: Target, names: Names) -> Model:
    """The model of a step, for a target."""
    made = _Programs(names)
    with Context(BEAM=0, **exported.compiling):
        ready = planned(exported.step, target, made)
    linear, number = program_of(ready), positions(ready)
    once, _ = unpacked(once_of(linear), number, made.programs)
    calls, groups = unpacked(items_of(linear), number, made.programs)
    scratch, n_scratch = local_offsets(calls, groups)
    n_once = max((c.program.local_bytes * c.program.n_threads for c in once), default=0)
    reads = {k.name: {u.arg.slot for u in k.linear.src if u.op == "PARAM"} for k in made.kernels}
    late = {c.operands[slot][0] for c in calls for slot in reads[c.program.entry]} | {c.source for c in exported.copies}
    memory = _Memory(exported, number, names, late)
    return Model(
        exported.parameters, exported.step.src[1:], exported.notes, tuple(made.kernels), tuple(once), tuple(calls),
        tuple(groups or (Group(tuple(range(len(calls)))),)), memory.places, memory.n_bytes, memory.values,
        exported.copies, exported.checks, tuple(scratch), max(n_scratch, n_once),
        target.n_threads,
    )  # fmt: skip


class _Programs:
    """Programs of kernels for a target that no device of this process has. See `passes.Programs`."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.kernels: list[Kernel] = []
        self.programs: dict[UOp, Program] = {}

    def __call__(self, operands: Mapping[UOp, Sequence[UOp]], target: Target) -> dict[UOp, UOp]:
        out = {}
        for kernel, mine in operands.items():
            linear = lower_kernel(kernel, target)
            name = self.names.new(f"k{len(self.kernels)}_{linear.arg.name}", "kernel")
            program = Program(name, name, linear.arg.threads, "", local_places(linear.src)[0])
            out[kernel] = new = node(
                "PROGRAM", (kernel,), info_of(kernel, mine, program, target)._replace(key=key_of(kernel))
            )
            self.kernels.append(Kernel(name, linear, kernel, program))
            self.programs[new] = program
        return out


class _Memory:
    """A place for each position."""

    def __init__(self, exported: Exported, number: Mapping[UOp, int], names: Names, late: set[int]) -> None:
        self.n_bytes = dict.fromkeys(SEGMENTS, 0)
        self.values: dict[str, list[Value]] = {s: [] for s in STORED}
        self.places: dict[int, Place] = {p.slot: Place("", p.name) for p in exported.parameters}
        known: dict[int, Place] = {}
        for b, n in number.items():
            if b.op == "BUFFER" and is_arena(b):
                self.places[n] = Place(ARENA, ARENA, self._take(ARENA, buffer_bytes(b)))
        for b, n in number.items():
            if b.op == "BUFFER" and not is_arena(b):
                self.places[n] = Place(PREPARED, names.new("prepared"), self._take(PREPARED, buffer_bytes(b)))
        roles = exported.step.arg.roles
        read = {id(exported.values[k]) for k in late if k in exported.values}
        for slot, (p, role) in enumerate(zip(exported.step.src[1:], roles, strict=True)):
            if slot in self.places:
                continue
            segment = {"state": STATES, "old": STATES, "read": WEIGHTS, "constant": WEIGHTS}.get(role, ARENA)
            buffer = exported.values.get(slot)
            if segment == WEIGHTS and id(buffer) not in read:
                segment = RAW
            if segment in (WEIGHTS, RAW) and id(buffer) in known:
                self.places[slot] = known[id(buffer)]
                continue
            name = names.new(exported.named.get(slot) or {STATES: "state", ARENA: "unnamed"}.get(segment, "weight"))
            at = self._take(segment, buffer_bytes(p))
            self.places[slot] = known[id(buffer)] = Place(segment, name, at)
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
    "Model",
    "Place",
    "Value",
    "plan",
]

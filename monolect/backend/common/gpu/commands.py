"""A schedule on a GPU: launched kernel by kernel the first time, from then on as one graph.

A node of the graph waits for the launches that it is told to wait for, so the GPU runs the others beside it: copies
beside kernels, small kernels beside each other. What that is, who makes the schedule knows
(`command/rewrites/dependencies.py`).
Invariant: what was bound last is what a launch sees; only nodes whose arguments changed are told.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from monolect.backend.base import Call, Numbered, Program
from monolect.backend.common.gpu.driver import Driver
from monolect.backend.common.gpu.memory import GpuMemory
from monolect.backend.common.launch import group_count
from monolect.backend.common.workgroups import Entry
from monolect.base.errors import DeviceError

MOST_NAMES = 8  # of kernels in a message
MAP_BYTES = 128  # of a tensor map, which begins at a multiple of 64
MOST_MAPS = 64  # of other addresses that a launch keeps


class Step:
    """One launch: its arguments in memory, as the driver reads them; tensor maps after the others."""

    def __init__(self, driver: Driver, program: Program):
        self.driver = driver
        self.name = program.name
        self.entry: Entry = program.entry
        n = max(1, len(self.entry.arguments))
        self.values = (ctypes.c_int64 * n)()
        base = ctypes.addressof(self.values)
        maps = self.entry.maps
        self.made: dict[tuple[int, int], bytes] = {}  # the tensor maps of addresses that were bound
        self.memory = (ctypes.c_char * (MAP_BYTES * (len(maps) + 1)))()
        self.maps_at = -(-ctypes.addressof(self.memory) // MAP_BYTES) * MAP_BYTES
        places = [*(base + 8 * i for i in range(n)), *(self.maps_at + MAP_BYTES * k for k in range(len(maps)))]
        # a kernel without other arguments has no maps either
        self.pointers = (ctypes.c_void_p * len(places))(*places)
        self.address = ctypes.addressof(self.pointers)
        self.changed = True  # since the graph was told
        self.node: Any = None

    def bind(self, i: int, value: int) -> None:
        """Argument `i` from now on; an address also becomes part of tensor maps."""
        if self.values[i] == value:
            return
        for k, m in enumerate(self.entry.maps):
            if m.slot == self.entry.arguments[i][0]:
                if len(self.made) > MOST_MAPS:
                    self.made.clear()
                if (k, value) not in self.made:
                    self.made[k, value] = self.driver.tensor_map(m, value, at=f"kernel {self.name}")
                ctypes.memmove(self.maps_at + MAP_BYTES * k, self.made[k, value], MAP_BYTES)
        self.values[i], self.changed = value, True

    def groups(self) -> list[int]:
        """Workgroups along each dimension, for the Variables as they are bound."""
        named = {name: self.values[i] for i, (_, _, name) in enumerate(self.entry.arguments) if name}
        return [group_count(n, named) for n in self.entry.groups]


class GpuCommands(Numbered):
    """See the module docstring."""

    def __init__(self, memory: GpuMemory, calls: Sequence[Call]) -> None:
        self.memory, self.driver, self.stream = memory, memory.driver, memory.stream
        self.after = [call.after for call in calls]
        self.steps = [Step(self.driver, call.program) for call in calls]
        self.places: dict[int, list[tuple[Step, int]]] = {}
        for step, args in zip(self.steps, self.numbered(calls), strict=True):
            for i, (slot, _, _) in enumerate(step.entry.arguments):
                self.places.setdefault(args[slot], []).append((step, i))
        self.graph: Any = None
        self.n_runs = 0

    def bind_part(self, number: int, address: int) -> None:
        """See `Numbered`."""
        for step, i in self.places.get(number, ()):
            step.bind(i, address)

    def launch(self) -> None:
        """Put all launches on the stream; whoever reads a result waits for them."""
        self.n_runs += 1
        self.memory.begin()
        empty = any(0 in step.groups() for step in self.steps)  # a graph's node cannot be of no size
        if self.n_runs == 1 or len(self.steps) < 2 or empty:
            for step in self.steps:
                self._run(step)
            return
        if self.graph is None:
            self._make_graph()
        for step in self.steps:
            if step.changed:
                self._call(step, "GraphExecKernelNodeSetParams", self.graph, step.node, self._params(step))
                step.changed = False
        self.driver("GraphLaunch", self.graph, self.stream, at=self._names())

    def launch_timed(self) -> list[int]:
        """The same, kernel by kernel; nanoseconds of each, by the GPU's clock."""
        events = []
        self.memory.begin()
        for step in self.steps:
            pair = [self.driver("EventCreate", 0) for _ in range(2)]
            self.driver("EventRecord", pair[0], self.stream)
            self._run(step)
            self.driver("EventRecord", pair[1], self.stream)
            events.append(pair)
        self.wait()
        out = [round(1e6 * float(self.driver("EventElapsedTime", *pair))) for pair in events]
        for event in (e for pair in events for e in pair):
            self.driver("EventDestroy", event)
        return out

    def wait(self) -> None:
        """Return when all is done. Raises DeviceError naming the kernels one of which failed."""
        self.driver("StreamSynchronize", self.stream, at=self._names())

    def _run(self, step: Step) -> None:
        groups = step.groups()
        if 0 not in groups:
            sizes = (*groups, *step.entry.lanes)
            self._call(
                step, "LaunchKernel", step.entry.kernel, *sizes, step.entry.local_bytes, self.stream, step.address, 0
            )

    def _call(self, step: Step, name: str, *args: Any) -> Any:
        return self.driver(name, *args, at=f"kernel {step.name}")

    def _make_graph(self) -> None:
        graph = self.driver("GraphCreate", 0)
        for step, after in zip(self.steps, self.after, strict=True):
            before = [self.steps[i].node for i in after]
            step.node = self._call(step, "GraphAddKernelNode", graph, before, len(before), self._params(step))
            step.changed = False
        self.graph = self.driver("GraphInstantiate", graph, 0, at=self._names())
        self.driver("GraphDestroy", graph)

    def _params(self, step: Step) -> Any:
        params = self.driver.node_params()
        params.func = step.entry.kernel
        params.gridDimX, params.gridDimY, params.gridDimZ = step.groups()
        params.blockDimX, params.blockDimY, params.blockDimZ = step.entry.lanes
        params.sharedMemBytes = step.entry.local_bytes
        params.kernelParams = step.address
        return params

    def _names(self) -> str:
        names = [step.name for step in self.steps]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return f"kernels {', '.join(names[:MOST_NAMES])}{more}"

    def __del__(self) -> None:
        if self.graph is not None:
            try:
                self.driver("GraphExecDestroy", self.graph)
            except DeviceError:  # the GPU failed before; it has been said
                pass

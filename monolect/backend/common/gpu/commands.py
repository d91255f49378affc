"""Run a command buffer on a GPU: launch it kernel by kernel the first time, and as one driver graph from then on.

A node of the graph waits only for the launches that its call is AFTER, so the GPU overlaps independent kernels. The
pass `dependencies` finds these launches (`command/rewrites/dependencies.py`).
Invariant: a launch sees the arguments that were bound last; only nodes whose arguments changed are updated.
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

MAX_NAMES = 8  # names of kernels in a message; the others are counted
MAP_BYTES = 128  # size of a tensor map; the driver wants it aligned to 64 bytes
MAX_CACHED_MAPS = 64  # tensor maps of earlier addresses that a launch caches; with more the cache is cleared


class KernelLaunch:
    """One launch: a kernel and its arguments in host memory, in the driver's layout; the last ones are tensor maps."""

    def __init__(self, driver: Driver, program: Program):
        self.driver = driver
        self.name = program.name
        self.entry: Entry = program.entry
        n = max(1, len(self.entry.arguments))
        self.values = (ctypes.c_int64 * n)()
        base = ctypes.addressof(self.values)
        maps = self.entry.maps
        self.map_cache: dict[tuple[int, int], bytes] = {}  # (number of a map, address) -> tensor map
        self.memory = (ctypes.c_char * (MAP_BYTES * (len(maps) + 1)))()
        self.maps_at = -(-ctypes.addressof(self.memory) // MAP_BYTES) * MAP_BYTES
        addresses = [*(base + 8 * i for i in range(n)), *(self.maps_at + MAP_BYTES * k for k in range(len(maps)))]
        # a kernel without other arguments has no maps either
        self.pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self.address = ctypes.addressof(self.pointers)
        self.changed = True  # an argument has changed since the graph's node was updated
        self.node: Any = None  # the graph's node

    def bind(self, i: int, value: int) -> None:
        """Set argument `i`, an address or the value of a Variable, and the tensor maps of an address."""
        if self.values[i] == value:
            return
        for k, m in enumerate(self.entry.maps):
            if m.slot == self.entry.arguments[i][0]:
                if len(self.map_cache) > MAX_CACHED_MAPS:
                    self.map_cache.clear()
                if (k, value) not in self.map_cache:
                    self.map_cache[k, value] = self.driver.tensor_map(m, value, at=f"kernel {self.name}")
                ctypes.memmove(self.maps_at + MAP_BYTES * k, self.map_cache[k, value], MAP_BYTES)
        self.values[i], self.changed = value, True

    def groups(self) -> list[int]:
        """Return the number of workgroups along each dimension, for the bound values of Variables."""
        named = {name: self.values[i] for i, (_, _, name) in enumerate(self.entry.arguments) if name}
        return [group_count(n, named) for n in self.entry.groups]


class GpuCommands(Numbered):
    """An encoded command buffer of a GPU, launched kernel by kernel the first time and then as a driver graph."""

    def __init__(self, memory: GpuMemory, calls: Sequence[Call]) -> None:
        self.memory, self.driver, self.stream = memory, memory.driver, memory.stream
        self.after = [call.after for call in calls]
        self.steps = [KernelLaunch(self.driver, call.program) for call in calls]
        self.bindings: dict[int, list[tuple[KernelLaunch, int]]] = {}
        for step, args in zip(self.steps, self.number_operands(calls), strict=True):
            for i, (slot, _, _) in enumerate(step.entry.arguments):
                self.bindings.setdefault(args[slot], []).append((step, i))
        self.graph: Any = None  # the executable graph
        self.nodes: Any = None  # the graph of its nodes, by which the executable graph is updated
        self.n_runs = 0

    def bind_operand(self, number: int, address: int) -> None:
        """Set operand `number` to the memory at `address`, or to the value `address` if the operand is a size."""
        for step, i in self.bindings.get(number, ()):
            step.bind(i, address)

    def launch(self) -> None:
        """Queue all launches on the stream and return; reading a result waits for them."""
        self.n_runs += 1
        self.memory.before_launches()
        empty = any(0 in step.groups() for step in self.steps)  # a graph's node cannot have 0 workgroups
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
        """Launch kernel by kernel, wait, and return the nanoseconds of each by the GPU's clock."""
        events = []
        self.memory.before_launches()
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
        """Wait until the stream is idle. Raises DeviceError that names the launched kernels if one of them failed."""
        self.driver("StreamSynchronize", self.stream, at=self._names())

    def _run(self, step: KernelLaunch) -> None:
        groups = step.groups()
        if 0 not in groups:
            sizes = (*groups, *step.entry.lanes)
            self._call(
                step, "LaunchKernel", step.entry.kernel, *sizes, step.entry.local_bytes, self.stream, step.address, 0
            )

    def _call(self, step: KernelLaunch, name: str, *args: Any) -> Any:
        return self.driver(name, *args, at=f"kernel {step.name}")

    def _make_graph(self) -> None:
        graph = self.driver("GraphCreate", 0)
        for step, after in zip(self.steps, self.after, strict=True):
            before = [self.steps[i].node for i in after]
            step.node = self._call(step, "GraphAddKernelNode", graph, before, len(before), self._params(step))
            step.changed = False
        self.nodes = graph
        self.graph = self.driver("GraphInstantiate", graph, 0, at=self._names())

    def _params(self, step: KernelLaunch) -> Any:
        params = self.driver.node_params()
        params.func = step.entry.kernel
        params.gridDimX, params.gridDimY, params.gridDimZ = step.groups()
        params.blockDimX, params.blockDimY, params.blockDimZ = step.entry.lanes
        params.sharedMemBytes = step.entry.local_bytes
        params.kernelParams = step.address
        return params

    def _names(self) -> str:
        names = [step.name for step in self.steps]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        return f"kernels {', '.join(names[:MAX_NAMES])}{more}"

    def __del__(self) -> None:
        for name, graph in (("GraphExecDestroy", self.graph), ("GraphDestroy", self.nodes)):
            try:
                if graph is not None:
                    self.driver(name, graph)
            except DeviceError:  # the GPU failed before, which was reported then
                pass


__all__ = ["GpuCommands", "KernelLaunch", "MAP_BYTES"]

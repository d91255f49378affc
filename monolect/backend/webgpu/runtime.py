"""Define the device `webgpu`: wgpu-native compiles kernels from WGSL and runs them in order on a queue.

What it is for: any GPU with a driver for Vulkan, Metal or Direct3D 12; Mesa is a driver for the processor. It needs the
extra `webgpu`. `webgpu:1` is the second adapter.
Invariant: the queue runs kernels and copies in order. So freed memory is reused at once, and the host waits only before
it reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np

from monolect.backend.base import Call, Numbered, Program, unpacked
from monolect.backend.common.gpu.handles import HandleAllocator, HandleMemory
from monolect.backend.common.launch import group_count
from monolect.backend.common.workgroups import SCALAR, DriverErrors, Entry, GroupDevice, join_versions
from monolect.backend.webgpu.compile import (
    JOINED,
    about,
    adapter_type,
    adapters,
    build_module,
    check,
    diagnostic,
    missing,
    open_device,
    wgpu,
)
from monolect.backend.webgpu.render import NATIVE, WORD_BYTES, language, padded_bytes, render_module
from monolect.base.dtype import dtypes
from monolect.base.errors import AllocationError, CompileError, DeviceError
from monolect.base.target import Target
from monolect.ir.uop import UOp

MAX_LANES = 256  # lanes of a workgroup; with more, each lane has too few registers
N_UNITS = 16  # workgroups that a GPU runs at a time, assumed: adapters do not report it
MAX_CACHED_BYTES = 1 << 30  # free memory that the allocator keeps; more is released


class WebGPUDevice(GroupDevice):
    """One opened adapter. Raises MissingExtraError or DeviceError if there is none."""

    missing = staticmethod(missing)
    kernel_keyword = "// k_"
    kind_name = "WebGPU adapter"

    def __init__(self, name: str = "webgpu"):
        found = adapters()
        number = self.number(name, len(found))
        super().__init__(name)
        self.wgpu, self.adapter = wgpu(), found[number]
        self.load_errors = (self.wgpu.GPUError,)
        self.process = os.getpid()
        try:
            self.handle = open_device(self.adapter)
        except (self.wgpu.GPUError, RuntimeError) as error:
            raise DeviceError(f"{name} cannot be opened: {error}") from None
        self.queue, self.limits, features = self.handle.queue, self.handle.limits, self.handle.features
        has_long, has_double = "shader-int64" in features, "shader-f64" in features
        max_buffers = self.limits["max-storage-buffers-per-shader-stage"]
        self.language = language("shader-f16" in features, has_long, has_double, max_buffers)
        self.target = self._target()
        self.memory = WebGPUMemory(self)
        self._layouts: dict[tuple[int, bool], tuple[Any, Any]] = {}

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the adapters and of their compilers."""
        return join_versions(map(about, adapters()))

    def _target(self) -> Target:
        base, limits = Target(name=self.name, native=NATIVE), self.limits
        is_processor, types = adapter_type(self.adapter) == "CPU", self.language.types
        lanes = min(MAX_LANES, limits["max-compute-invocations-per-workgroup"])
        return base._replace(
            native_dtypes=frozenset(d for d in base.native_dtypes if d is dtypes.index or d.name in types),
            cast_dtypes=frozenset((dtypes.float16,)) if "float16" in types else frozenset(),
            vector_bytes=16,
            n_registers=64 if is_processor else 128,
            workgroups=True,
            local_bytes=limits["max-compute-workgroup-storage-size"],
            max_local=lanes,
            max_block=tuple(min(lanes, limits[f"max-compute-workgroup-size-{c}"]) for c in "xyz"),
            max_grid=(limits["max-compute-workgroups-per-dimension"],) * 3,
            warp=1 if is_processor else 32,
            n_units=os.cpu_count() or 1 if is_processor else N_UNITS,
            atomics=frozenset((dtypes.int32, dtypes.uint32, dtypes.float32)),
            branches=True,
            align_bytes=max(64, limits["min-storage-buffer-offset-alignment"]),
            key=f"{', '.join(about(self.adapter))} {' '.join(sorted(types.values()))} {self.language.most_buffers}",
        )

    # ---- memory ------------------------------------------------------------------------------------------------------
    def from_array(self, array: np.ndarray) -> HandleMemory:
        """Copy an array to the device."""
        out = self.alloc(array.nbytes)
        if array.nbytes:
            host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            whole = host.size // WORD_BYTES * WORD_BYTES
            with self.reported("a copy from the host"):
                if whole:
                    self.queue.write_buffer(out.block.handle, 0, host[:whole])
                if whole < host.size:
                    rest = np.zeros(WORD_BYTES, np.uint8)
                    rest[: host.size - whole] = host[whole:]
                    self.queue.write_buffer(out.block.handle, whole, rest)
        return out

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """Copy the first `n_bytes` of `source` to `target`, rounded up to whole words."""
        with self.reported("a copy"):
            encoder = self.handle.create_command_encoder()
            encoder.copy_buffer_to_buffer(source.block.handle, 0, target.block.handle, 0, padded_bytes(n_bytes))
            self.queue.submit([encoder.finish()])

    def reported(self, what: str) -> DriverErrors:
        """Return a context manager that turns errors of wgpu into errors with the device's name and `what` it did."""
        full = self.wgpu.GPUOutOfMemoryError
        return DriverErrors(self, what, (self.wgpu.GPUError, full), lambda e: isinstance(e, full))

    # ---- programs ----------------------------------------------------------------------------------------------------
    def check(self, name: str, linear: UOp) -> None:
        super().check(name, linear)
        check(name, linear.src, self.target, self.language)

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return render_module(kernels, self.language)

    def build(self, source: str) -> tuple[Any, bytes]:
        with self.reported("building programs"):
            return (build_module(self.handle, source), source), source.encode()

    def load(self, code: bytes) -> Any:
        return self.build(code.decode())[0]

    def kernel(self, module: Any, symbol: str, name: str) -> EntryPoint:
        """Return the entry point `symbol` with its pipeline; its bindings are found in the source lines before it."""
        shader, source = module
        arguments = source[source.index(f"// {symbol}\n") : source.index(f"fn {symbol}(")]
        n, has_sizes = arguments.count("var<storage"), "var<uniform>" in arguments
        layout, pipeline_layout = self.layout(n, has_sizes)
        try:
            pipeline = self.handle.create_compute_pipeline(
                layout=pipeline_layout, compute={"module": shader, "entry_point": symbol}
            )
        except self.wgpu.GPUError as error:
            raise CompileError(f"{name}: {diagnostic(str(error), source)}") from None
        parts = [
            JoinedArgument(int(slot), int(at), int(n), use == "written")
            for slot, at, n, use in JOINED.findall(arguments)
        ]
        return EntryPoint(pipeline, layout, tuple(parts))

    def layout(self, n: int, has_sizes: bool) -> tuple[Any, Any]:
        """Return (bind group layout, pipeline layout) of kernels with `n` buffers, and a uniform if `has_sizes`."""
        if (n, has_sizes) not in self._layouts:
            kinds = ["storage"] * n + ["uniform"] * has_sizes
            entries = [
                {"binding": k, "visibility": self.wgpu.ShaderStage.COMPUTE, "buffer": {"type": t}}
                for k, t in enumerate(kinds)
            ]
            group = self.handle.create_bind_group_layout(entries=entries)
            self._layouts[n, has_sizes] = group, self.handle.create_pipeline_layout(bind_group_layouts=[group])
        return self._layouts[n, has_sizes]

    def encode(
        self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
    ) -> WebGPUCommands:
        """Return commands that submit the items in order to the device's queue."""
        return WebGPUCommands(self, unpacked(items, number, programs)[0])


class JoinedArgument(NamedTuple):
    """A buffer argument that is stored at a byte offset in the kernel's joined buffer."""

    slot: int
    offset: int
    n_bytes: int
    is_written: bool


class EntryPoint(NamedTuple):
    """A compiled entry point: its pipeline, its bind group layout, and the arguments in its joined buffer."""

    pipeline: Any
    layout: Any
    parts: tuple[JoinedArgument, ...]


class WebGPUMemory(HandleAllocator):
    """Allocates buffers of one device."""

    def __init__(self, device: WebGPUDevice):
        super().__init__(device.name, MAX_CACHED_BYTES)
        self.device = device
        usage = device.wgpu.BufferUsage
        self.usage = usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
        self.fence_buffer = device.handle.create_buffer(size=WORD_BYTES, usage=usage.COPY_SRC)

    def create(self, n_bytes: int) -> Any:
        limit = self.device.limits["max-buffer-size"]
        if n_bytes > limit:
            raise AllocationError(f"a buffer has at most {limit} bytes")
        with self.device.reported(f"a buffer of {n_bytes} bytes"):
            return self.device.handle.create_buffer(size=n_bytes, usage=self.usage)

    def release(self, handle: Any) -> None:
        handle.destroy()

    def wait(self) -> None:
        self.device.queue.read_buffer(
            self.fence_buffer
        )  # reading a buffer waits for the queue; wgpu 0.32 has no other working way

    def read(self, memory: HandleMemory) -> np.ndarray:
        if not memory.n_bytes:
            return np.empty(0, np.uint8)
        with self.device.reported("a copy to the host"):
            got = self.device.queue.read_buffer(memory.block.handle, 0, padded_bytes(memory.n_bytes))
        return np.frombuffer(got, np.uint8)[: memory.n_bytes].copy()

    def binding(self, address: int, n_bytes: int) -> dict[str, Any]:
        """Return the binding of `n_bytes` at an address. Raises AllocationError if a binding cannot be so large."""
        limit = self.device.limits["max-storage-buffer-binding-size"]
        if n_bytes > limit:
            expected = f"at most {limit} bytes on {self.device.name}: smaller batches, or a tensor in parts"
            raise AllocationError("a kernel reads or writes too large a tensor", expected=expected, found=n_bytes)
        block, offset = self.find(address)
        return {"buffer": block.handle, "offset": offset, "size": padded_bytes(n_bytes)}


class Launch:
    """One launch of an entry point: its arguments, its joined buffer, and its bind group, which `prepare` makes."""

    def __init__(self, device: WebGPUDevice, name: str, entry: Entry, slots: Sequence[int]):
        self.device, self.name, self.entry = device, name, entry
        self.kernel: EntryPoint = entry.kernel
        self.parts = [(slots[part.slot], part) for part in self.kernel.parts]
        joined_slots = {part.slot for part in self.kernel.parts}
        self.buffers = [(slots[slot], n) for slot, n, _ in entry.arguments if n != SCALAR and slot not in joined_slots]
        self.joined = device.alloc(sum(padded_bytes(part.n_bytes) for _, part in self.parts)) if self.parts else None
        self.sizes = {variable: slots[slot] for slot, n, variable in entry.arguments if n == SCALAR}
        usage = device.wgpu.BufferUsage
        self.uniform = (
            device.handle.create_buffer(size=16 * -(-len(self.sizes) // 4), usage=usage.UNIFORM | usage.COPY_DST)
            if self.sizes
            else None
        )
        self.group: Any = None

    def prepare(self, bound: dict[int, int]) -> tuple[int, ...]:
        """Make the bind group if an argument has changed, and return the number of workgroups along x, y, z.

        `bound` maps operand numbers to addresses, and to values of Variables.
        """
        values = {variable: bound[n] for variable, n in self.sizes.items()}
        if self.group is None:
            resources = [self.device.memory.binding(bound[number], n) for number, n in self.buffers]
            if self.joined is not None:
                resources.append(self.device.memory.binding(self.joined.address, self.joined.n_bytes))
            if self.uniform is not None:
                numbers = np.array(list(values.values()), np.int32)
                self.device.queue.write_buffer(self.uniform, 0, numbers)
                resources.append({"buffer": self.uniform, "offset": 0, "size": self.uniform.size})
            entries = [{"binding": k, "resource": r} for k, r in enumerate(resources)]
            self.group = self.device.handle.create_bind_group(layout=self.kernel.layout, entries=entries)
        return tuple(group_count(n, values) for n in self.entry.groups)

    def copy(self, encoder: Any, bound: dict[int, int], back: bool) -> None:
        """Copy the arguments into the joined buffer, or with `back` the written ones from it to their own buffers."""
        for number, part in self.parts:
            theirs = self.device.memory.binding(bound[number], part.n_bytes)
            here = (theirs["buffer"], theirs["offset"])
            there = (self.joined.block.handle, part.offset)  # type: ignore[union-attr]
            if not back:
                encoder.copy_buffer_to_buffer(*here, *there, theirs["size"])
            elif part.is_written:
                encoder.copy_buffer_to_buffer(*there, *here, theirs["size"])


class WebGPUCommands(Numbered):
    """Launches that are encoded again for each submission."""

    def __init__(self, device: WebGPUDevice, calls: Sequence[Call]):
        self.device = device
        self.steps: list[Launch] = []
        self.users: dict[int, list[Launch]] = {}
        self.bound: dict[int, int] = {}
        for call, args in zip(calls, self.number_operands(calls), strict=True):
            step = Launch(device, call.program.name, call.program.entry, args)
            self.steps.append(step)
            for slot, _, _ in call.program.entry.arguments:
                self.users.setdefault(args[slot], []).append(step)

    def bind_operand(self, number: int, address: int) -> None:
        """Set operand `number` to the memory at `address`, or to the value `address` if the operand is a size."""
        if number not in self.users or self.bound.get(number) == address:
            return
        self.bound[number] = address
        for step in self.users[number]:
            step.group = None

    def launch(self) -> None:
        """Submit all launches; reading a result waits for them."""
        self._submit(self.steps)

    def launch_timed(self) -> list[int]:
        """Run one launch at a time; return the nanoseconds of each from submission to end, by the host's clock."""
        out = []
        self.device.memory.wait()
        for step in self.steps:
            start = perf_counter_ns()
            self._submit([step])
            self.device.memory.wait()
            out.append(perf_counter_ns() - start)
        return out

    def _submit(self, steps: Sequence[Launch]) -> None:
        with self.device.reported(f"kernel {steps[0].name}" if len(steps) == 1 else "kernels"):
            encoder = self.device.handle.create_command_encoder()
            work = encoder.begin_compute_pass()
            for step in steps:
                groups = step.prepare(self.bound)
                if 0 in groups:
                    continue
                if step.parts:
                    work.end()
                    step.copy(encoder, self.bound, back=False)
                    work = encoder.begin_compute_pass()
                work.set_pipeline(step.kernel.pipeline)
                work.set_bind_group(0, step.group)
                work.dispatch_workgroups(*groups)
                if step.parts:
                    work.end()
                    step.copy(encoder, self.bound, back=True)
                    work = encoder.begin_compute_pass()
            work.end()
            self.device.queue.submit([encoder.finish()])


__all__ = ["EntryPoint", "JoinedArgument", "Launch", "WebGPUCommands", "WebGPUDevice", "WebGPUMemory"]

"""The OpenCL device: kernels as OpenCL C, compiled by the driver, run in order on a queue. `opencl:1` is the second.

What it is for: any device with an OpenCL driver; PoCL makes one of the processor. Needs the extra `opencl`.
Invariant: the queue runs what it is given in order, so that memory may be handed out again at once; the host waits only
where it reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monolect.backend.base import Call, Numbered, Program, unpacked
from monolect.backend.common.gpu.handles import HandleAllocator, HandleMemory
from monolect.backend.common.launch import group_count
from monolect.backend.common.workgroups import SCALAR, Entry, GroupDevice, Reported, told_together
from monolect.backend.opencl.compile import Compiler, about, devices, missing, pyopencl
from monolect.backend.opencl.lanes import LANES, trade
from monolect.backend.opencl.render import NATIVE, language, render_module
from monolect.base.dtype import dtypes
from monolect.base.errors import AllocationError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp

WIDE_BYTES = 16  # what one lane reads at once
MOST_LANES = 256  # of a workgroup: more leave each too few registers
OUT_OF_MEMORY = frozenset(("MEM_OBJECT_ALLOCATION_FAILURE", "INVALID_BUFFER_SIZE", "OUT_OF_HOST_MEMORY"))


class OpenCLDevice(GroupDevice):
    """One device of a platform. Raises MissingExtraError or DeviceError where there is none."""

    missing = staticmethod(missing)
    opening = "__kernel"
    called = "OpenCL device"

    def __init__(self, name: str = "opencl"):
        found = devices()
        number = self.number(name, len(found))
        self.cl, self.handle = pyopencl(), found[number]
        super().__init__(name)
        self.refusals = (self.cl.Error,)
        self.process = os.getpid()
        self.context = self.cl.Context([self.handle])
        self.queue = self.cl.CommandQueue(self.context, properties=self.cl.command_queue_properties.PROFILING_ENABLE)
        self.compiler = Compiler(self.context, self.handle)
        trades = trade(self)
        self.target = self._target(trades)
        has_double = dtypes.float64 in self.target.native_dtypes
        self.language = language("cl_khr_fp16" in self.handle.extensions, has_double, trades)
        self.memory = OpenCLMemory(self)

    @staticmethod
    def about() -> tuple[str, str]:
        """Drivers and compilers of the devices here."""
        return told_together(map(about, devices()))

    def _target(self, trades: bool) -> Target:
        d, extensions = self.handle, self.handle.extensions.split()
        base = Target(name=self.name, native=NATIVE)
        has_double = "cl_khr_fp64" in extensions
        atomics = [dtypes.int32, dtypes.uint32, dtypes.float32, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16]
        if "cl_khr_int64_base_atomics" in extensions:
            atomics += [dtypes.int64, dtypes.uint64, *([dtypes.float64] if has_double else [])]
        is_processor = bool(d.type & self.cl.device_type.CPU)
        return base._replace(
            native_dtypes=base.native_dtypes if has_double else base.native_dtypes - {dtypes.float64},
            cast_dtypes=frozenset((dtypes.float16,)),
            vector_bytes=WIDE_BYTES,
            n_registers=64 if is_processor else 128,
            workgroups=True,
            local_bytes=d.local_mem_size,
            max_local=min(d.max_work_group_size, MOST_LANES),
            max_block=tuple(min(n, MOST_LANES) for n in d.max_work_item_sizes[:3]),
            warp=LANES if trades else 1 if is_processor else 32,
            shuffles=trades,
            n_units=d.max_compute_units,
            atomics=frozenset(atomics),
            branches=True,
            align_bytes=max(64, d.mem_base_addr_align // 8),
            key=f"{self.compiler.key}/{d.max_compute_units}{'/trades' if trades else ''}",
        )

    # ---- memory ------------------------------------------------------------------------------------------------------
    def from_array(self, array: np.ndarray) -> HandleMemory:
        """A copy of the array on the device."""
        out = self.alloc(array.nbytes)
        if array.nbytes:
            with self.reported("a copy from the host"):
                host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                self.cl.enqueue_copy(self.queue, out.block.handle, host, is_blocking=True)
        return out

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """The first bytes of one memory to another."""
        with self.reported("a copy"):
            self.cl.enqueue_copy(self.queue, target.block.handle, source.block.handle, byte_count=n_bytes)

    def reported(self, what: str) -> Reported:
        """A context in which errors of the driver become errors that name the device and what it was at."""
        return Reported(self, what, self.cl.Error, lambda e: any(word in str(e) for word in OUT_OF_MEMORY))

    # ---- programs ----------------------------------------------------------------------------------------------------
    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return render_module(kernels, self.language)

    def build(self, source: str) -> tuple[Any, bytes]:
        with self.reported("building programs"):
            built = self.compiler.compile(source)
        return built, self.compiler.binary(built) if settings.COMPILE_CACHE else b""

    def load(self, code: bytes) -> Any:
        return self.compiler.load(code)

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        """What makes a kernel: one has the arguments of one launch."""
        self.cl.Kernel(module, symbol)  # raises where the program has no such kernel
        return module, symbol

    def encode(
        self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
    ) -> OpenCLCommands:
        """The items, in order, on the device's queue."""
        return OpenCLCommands(self, unpacked(items, number, programs)[0])


class OpenCLMemory(HandleAllocator):
    """Buffers of one device."""

    def __init__(self, device: OpenCLDevice):
        super().__init__(device.name, device.handle.global_mem_size // 4)
        self.device, self.cl = device, device.cl

    def create(self, n_bytes: int) -> Any:
        if n_bytes > self.device.handle.max_mem_alloc_size:
            raise AllocationError(f"a buffer has at most {self.device.handle.max_mem_alloc_size} bytes")
        with self.device.reported(f"a buffer of {n_bytes} bytes"):
            return self.cl.Buffer(self.device.context, self.cl.mem_flags.READ_WRITE, n_bytes)

    def release(self, handle: Any) -> None:
        handle.release()

    def wait(self) -> None:
        self.device.queue.finish()

    def read(self, memory: HandleMemory) -> np.ndarray:
        out = np.empty(memory.n_bytes, np.uint8)
        if memory.n_bytes:
            with self.device.reported("a copy to the host"):
                self.cl.enqueue_copy(self.device.queue, out, memory.block.handle, is_blocking=True)
        return out

    def handle(self, address: int, n_bytes: int) -> Any:
        """What a kernel takes for `n_bytes` at an address: a buffer, or a part of one."""
        block, offset = self.find(address)
        if not offset:
            return block.handle
        part = block.parts.get((offset, n_bytes))
        if part is None:
            with self.device.reported(f"a part of {n_bytes} bytes of a buffer"):
                part = block.parts[offset, n_bytes] = block.handle.get_sub_region(offset, max(1, n_bytes))
        return part


class OpenCLCommands(Numbered):
    """Kernels with their arguments set, to be put on the queue."""

    def __init__(self, device: OpenCLDevice, calls: Sequence[Call]):
        self.device, self.cl, self.queue = device, device.cl, device.queue
        self.steps: list[tuple[str, Any, Entry, dict[str, int]]] = []
        self.places: dict[int, list[tuple[Any, int, int]]] = {}
        self.bound: dict[int, int] = {}
        for call, args in zip(calls, self.numbered(calls), strict=True):
            program, entry = call.program, call.program.entry
            kernel = self.cl.Kernel(*entry.kernel)
            numbers = {}
            for position, (slot, n_bytes, variable) in enumerate(entry.arguments):
                self.places.setdefault(args[slot], []).append((kernel, position, n_bytes))
                if n_bytes == SCALAR:
                    numbers[variable] = args[slot]
            self.steps.append((program.name, kernel, entry, numbers))

    def bind_part(self, number: int, address: int) -> None:
        """See `Numbered`."""
        if number not in self.places or self.bound.get(number) == address:
            return
        for kernel, position, n_bytes in self.places[number]:
            scalar = n_bytes == SCALAR
            kernel.set_arg(position, np.int64(address) if scalar else self.device.memory.handle(address, n_bytes))
        self.bound[number] = address

    def launch(self) -> None:
        """Put all launches on the queue; whoever reads a result waits for them."""
        for step in self.steps:
            self._enqueue(*step)
        self.queue.flush()

    def launch_timed(self) -> list[int]:
        """The same; nanoseconds of each, by the device's clock."""
        events = [self._enqueue(*step) for step in self.steps]
        self.queue.finish()
        return [0 if e is None else e.profile.end - e.profile.start for e in events]

    def _enqueue(self, name: str, kernel: Any, entry: Entry, numbers: dict[str, int]) -> Any:
        values = {variable: self.bound[n] for variable, n in numbers.items()}
        groups = [group_count(n, values) for n in entry.groups]
        if 0 in groups:
            return None
        size = tuple(n * k for n, k in zip(groups, entry.lanes, strict=True))
        with self.device.reported(f"kernel {name}"):
            return self.cl.enqueue_nd_range_kernel(self.queue, kernel, size, entry.lanes)

"""Define the device `opencl`: the driver compiles kernels from OpenCL C and runs them in order on a queue.

What it is for: any device with an OpenCL driver; PoCL is a driver for the processor. It needs the extra `opencl`.
`opencl:1` is the second device.
Invariant: the queue runs kernels and copies in order. So freed memory is reused at once, and the host waits only before
it reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from monolect.backend.base import Call, Numbered, Program, unpacked
from monolect.backend.common.gpu.handles import HandleAllocator, HandleMemory
from monolect.backend.common.launch import group_count
from monolect.backend.common.workgroups import SCALAR, DriverErrors, Entry, GroupDevice, join_versions
from monolect.backend.opencl.compile import Compiler, about, devices, missing, pyopencl
from monolect.backend.opencl.lanes import LANES, can_shuffle
from monolect.backend.opencl.render import NATIVE, language, render_module
from monolect.base.dtype import dtypes
from monolect.base.errors import AllocationError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp

WIDE_BYTES = 16  # of the widest access of a lane
MAX_LANES = 256  # lanes of a workgroup; with more, each lane has too few registers
OUT_OF_MEMORY = frozenset(("MEM_OBJECT_ALLOCATION_FAILURE", "INVALID_BUFFER_SIZE", "OUT_OF_HOST_MEMORY"))


class OpenCLDevice(GroupDevice):
    """One device of an OpenCL platform. Raises MissingExtraError or DeviceError if there is none."""

    missing = staticmethod(missing)
    kernel_keyword = "__kernel"
    kind_name = "OpenCL device"

    def __init__(self, name: str = "opencl"):
        found = devices()
        number = self.number(name, len(found))
        self.cl, self.handle = pyopencl(), found[number]
        super().__init__(name)
        self.load_errors = (self.cl.Error,)
        self.process = os.getpid()
        self.context = self.cl.Context([self.handle])
        self.queue = self.cl.CommandQueue(self.context, properties=self.cl.command_queue_properties.PROFILING_ENABLE)
        self.compiler = Compiler(self.context, self.handle)
        has_shuffle = can_shuffle(self)
        self.target = self._target(has_shuffle)
        has_double = dtypes.float64 in self.target.native_dtypes
        self.language = language("cl_khr_fp16" in self.handle.extensions, has_double, has_shuffle)
        self.memory = OpenCLMemory(self)

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the devices' drivers and compilers."""
        return join_versions(map(about, devices()))

    def _target(self, has_shuffle: bool) -> Target:
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
            max_local=min(d.max_work_group_size, MAX_LANES),
            max_block=tuple(min(n, MAX_LANES) for n in d.max_work_item_sizes[:3]),
            warp=LANES if has_shuffle else 1 if is_processor else 32,
            shuffles=has_shuffle,
            n_units=d.max_compute_units,
            atomics=frozenset(atomics),
            branches=True,
            align_bytes=max(64, d.mem_base_addr_align // 8),
            key=f"{self.compiler.key}/{d.max_compute_units}{'/trades' if has_shuffle else ''}",
        )

    # ---- memory ------------------------------------------------------------------------------------------------------
    def from_array(self, array: np.ndarray) -> HandleMemory:
        """Copy an array to the device."""
        out = self.alloc(array.nbytes)
        if array.nbytes:
            with self.reported("a copy from the host"):
                host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
                self.cl.enqueue_copy(self.queue, out.block.handle, host, is_blocking=True)
        return out

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """Copy the first `n_bytes` of `source` to `target`."""
        with self.reported("a copy"):
            self.cl.enqueue_copy(self.queue, target.block.handle, source.block.handle, byte_count=n_bytes)

    def reported(self, what: str) -> DriverErrors:
        """Return a context manager that turns driver errors into errors with the device's name and `what` it did."""
        return DriverErrors(self, what, self.cl.Error, lambda e: any(word in str(e) for word in OUT_OF_MEMORY))

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
        """Return (program, symbol): each launch makes its own Kernel object, which holds its arguments."""
        self.cl.Kernel(module, symbol)  # raises if the program has no such kernel
        return module, symbol

    def encode(
        self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]
    ) -> OpenCLCommands:
        """Return commands that submit the items in order to the device's queue."""
        return OpenCLCommands(self, unpacked(items, number, programs)[0])


class OpenCLMemory(HandleAllocator):
    """Allocates buffers of one device."""

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
        """Return the kernel argument for `n_bytes` at an address: a buffer, or a cached sub-buffer."""
        block, offset = self.find(address)
        if not offset:
            return block.handle
        part = block.parts.get((offset, n_bytes))
        if part is None:
            with self.device.reported(f"a part of {n_bytes} bytes of a buffer"):
                part = block.parts[offset, n_bytes] = block.handle.get_sub_region(offset, max(1, n_bytes))
        return part


class OpenCLCommands(Numbered):
    """Launches to submit to the queue. `argument_users`: operand number -> (kernel, position, bytes) of its uses."""

    def __init__(self, device: OpenCLDevice, calls: Sequence[Call]):
        self.device, self.cl, self.queue = device, device.cl, device.queue
        self.steps: list[tuple[str, Any, Entry, dict[str, int]]] = []
        self.argument_users: dict[int, list[tuple[Any, int, int]]] = {}
        self.bound: dict[int, int] = {}
        for call, args in zip(calls, self.number_operands(calls), strict=True):
            program, entry = call.program, call.program.entry
            kernel = self.cl.Kernel(*entry.kernel)
            numbers = {}
            for position, (slot, n_bytes, variable) in enumerate(entry.arguments):
                self.argument_users.setdefault(args[slot], []).append((kernel, position, n_bytes))
                if n_bytes == SCALAR:
                    numbers[variable] = args[slot]
            self.steps.append((program.name, kernel, entry, numbers))

    def bind_operand(self, number: int, address: int) -> None:
        """Set operand `number` to the memory at `address`, or to the value `address` if the operand is a size."""
        if number not in self.argument_users or self.bound.get(number) == address:
            return
        for kernel, position, n_bytes in self.argument_users[number]:
            scalar = n_bytes == SCALAR
            kernel.set_arg(position, np.int64(address) if scalar else self.device.memory.handle(address, n_bytes))
        self.bound[number] = address

    def launch(self) -> None:
        """Submit all launches; reading a result waits for them."""
        for step in self.steps:
            self._enqueue(*step)
        self.queue.flush()

    def launch_timed(self) -> list[int]:
        """Submit all launches, wait for them, and return the nanoseconds of each, by the device's clock."""
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


__all__ = ["OpenCLCommands", "OpenCLDevice", "OpenCLMemory"]

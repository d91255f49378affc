"""Define the device `metal`: macOS compiles kernels from Metal source and runs them in order on a queue.

What it is for: the GPUs of Macs, through PyObjC; it needs the extra `metal`. `metal:1` is the second GPU.
Invariants: the queue runs kernels and copies in order, copies from the host included. So freed memory is reused at
once, and the host waits only before it reads. An error on the queue is raised by the next call that submits or waits.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from monolect.backend.base import Call, Numbered, Program, unpacked
from monolect.backend.common.gpu.handles import HandleAllocator, HandleMemory
from monolect.backend.common.launch import group_count
from monolect.backend.common.workgroups import SCALAR, DriverErrors, Entry, GroupDevice, join_versions
from monolect.backend.metal.compile import (
    MetalError,
    about,
    autorelease_pool,
    build_library,
    build_pipeline,
    error_text,
    gpus,
    metal,
    missing,
)
from monolect.backend.metal.render import TARGET, render_module
from monolect.base.dtype import dtypes
from monolect.base.errors import CompileError
from monolect.base.target import Target
from monolect.ir.uop import UOp

MAX_BUFFERS = 31  # buffers of a kernel; Metal allows no more
MAX_LANES = 256  # lanes of a workgroup; with more, each lane has too few registers
APPLE_7 = "MTLGPUFamilyApple7"  # GPUs from the M1 on: they have matrix units, atomic additions of float32 and shuffles


class MetalDevice(GroupDevice):
    """One GPU. Raises MissingExtraError or DeviceError if there is none."""

    missing = staticmethod(missing)
    kernel_keyword = "[[kernel"
    load_errors = (MetalError,)

    def __init__(self, name: str = "metal"):
        found = gpus()
        number = self.number(name, len(found))
        super().__init__(name)
        self.process = os.getpid()
        self.metal, self.handle = metal(), found[number]
        self.queue = self.handle.newCommandQueue()
        self.target = self._target()
        self.memory = MetalMemory(self)
        self.unfinished: deque[tuple[str, Any]] = deque()  # (description, command buffer) in the order of the queue

    @staticmethod
    def about() -> tuple[str, str]:
        """Return descriptions of the GPUs and of their compilers."""
        return join_versions(map(about, gpus()))

    def _target(self) -> Target:
        gpu, is_apple = self.handle, self.handle.supportsFamily_(getattr(self.metal, APPLE_7))
        max_size = gpu.maxThreadsPerThreadgroup()
        lanes = min(MAX_LANES, max_size.width)
        base = TARGET._replace(
            name=self.name,
            local_bytes=gpu.maxThreadgroupMemoryLength(),
            max_local=lanes,
            max_block=tuple(min(lanes, n) for n in (max_size.width, max_size.height, max_size.depth)),
            key=", ".join(about(gpu)),
        )
        if is_apple:
            return base
        return base._replace(units=(), shuffles=False, warp=1, atomics=base.atomics - {dtypes.float32})

    # ---- memory ------------------------------------------------------------------------------------------------------
    def from_array(self, array: np.ndarray) -> HandleMemory:
        """Copy an array to the device, through the queue: earlier kernels may still use the memory."""
        out = self.alloc(array.nbytes)
        if array.nbytes:
            host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            with self.reported("a copy from the host"):
                shared = self.metal.MTLResourceStorageModeShared
                staged = self.handle.newBufferWithBytes_length_options_(host, host.nbytes, shared)
                if staged is None:
                    raise MetalError(f"no memory for a copy of {host.nbytes} bytes", is_full=True)
                self._copy(out.block.handle, staged, host.nbytes)
        return out

    def copy(self, target: HandleMemory, source: HandleMemory, n_bytes: int) -> None:
        """Copy the first `n_bytes` of `source` to `target`."""
        with self.reported("a copy"):
            self._copy(target.block.handle, source.block.handle, n_bytes)

    def _copy(self, target: Any, source: Any, n_bytes: int) -> None:
        def encode(commands: Any) -> None:
            work = commands.blitCommandEncoder()
            work.copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(source, 0, target, 0, n_bytes)
            work.endEncoding()

        if n_bytes:
            self.submit("a copy", encode)

    def reported(self, what: str) -> DriverErrors:
        """Return a context manager that turns a MetalError into an error with the device's name and `what` it did."""
        return DriverErrors(self, what, MetalError, lambda e: getattr(e, "is_full", False))

    # ---- the queue ---------------------------------------------------------------------------------------------------
    def submit(self, what: str, encode: Callable[[Any], None]) -> Any:
        """Let `encode` fill a command buffer, submit and return it. Raises MetalError if an earlier one has failed."""
        with autorelease_pool():
            commands = self.queue.commandBuffer()
            encode(commands)
            commands.commit()
            self.unfinished.append((what, commands))
            while self.unfinished[0][1].status() >= self.metal.MTLCommandBufferStatusCompleted:
                self._finish()
                if not self.unfinished:
                    break
        return commands

    def wait(self) -> None:
        """Wait until the queue is empty. Raises MetalError if a command buffer has failed since the last check."""
        if self.unfinished:
            self.unfinished[-1][1].waitUntilCompleted()
        while self.unfinished:
            self._finish()

    def _finish(self) -> None:
        what, commands = self.unfinished.popleft()
        if commands.status() == self.metal.MTLCommandBufferStatusError:
            error = commands.error()
            full = error is not None and error.code() == self.metal.MTLCommandBufferErrorOutOfMemory
            raise MetalError(f"{what}: {error_text(error)}", is_full=full)

    # ---- programs ----------------------------------------------------------------------------------------------------
    def check(self, name: str, linear: UOp) -> None:
        super().check(name, linear)
        n = sum(u.op == "PARAM" for u in linear.src)
        if n > MAX_BUFFERS:
            expected = f"at most {MAX_BUFFERS} on {self.name}: .contiguous() in the middle of the expression"
            raise CompileError(f"{name}: too many buffers", expected=expected, found=n)

    def render(self, kernels: list[tuple[str, UOp]]) -> str:
        return render_module(kernels)

    def build(self, source: str) -> tuple[Any, bytes]:
        with self.reported("building programs"):
            return build_library(
                self.handle, source
            ), source.encode()  # the source is cached; the system caches its own machine code

    def load(self, code: bytes) -> Any:
        return build_library(self.handle, code.decode())

    def kernel(self, module: Any, symbol: str, name: str) -> Any:
        """Return the pipeline of the kernel `symbol`; `name` is for error messages."""
        with self.reported(name):
            return build_pipeline(self.handle, module, symbol)

    def encode(self, items: Sequence[UOp], number: Mapping[UOp, int], programs: Mapping[UOp, Program]) -> MetalCommands:
        """Return commands that submit the items in order to the device's queue."""
        return MetalCommands(self, unpacked(items, number, programs)[0])


class MetalMemory(HandleAllocator):
    """Allocates buffers of one GPU in memory that it shares with the host."""

    def __init__(self, device: MetalDevice):
        super().__init__(device.name, device.handle.recommendedMaxWorkingSetSize() // 4)
        self.device = device

    def create(self, n_bytes: int) -> Any:
        with self.device.reported(f"a buffer of {n_bytes} bytes"):
            shared = self.device.metal.MTLResourceStorageModeShared
            if n_bytes > (limit := self.device.handle.maxBufferLength()):
                raise MetalError(f"a buffer has at most {limit} bytes", is_full=True)
            made = self.device.handle.newBufferWithLength_options_(n_bytes, shared)
            if made is None:
                raise MetalError("no memory", is_full=True)
            return made

    def release(self, handle: Any) -> None:
        """Do nothing: dropping the last reference frees the buffer; a pending command buffer retains it."""

    def wait(self) -> None:
        with self.device.reported("waiting"):
            self.device.wait()

    def read(self, memory: HandleMemory) -> np.ndarray:
        with self.device.reported("a copy to the host"):
            self.device.wait()
            n_bytes = memory.n_bytes
            return np.frombuffer(memory.block.handle.contents().as_buffer(n_bytes), np.uint8, n_bytes).copy()


class MetalCommands(Numbered):
    """Launches that are encoded again for each submission: a command buffer of Metal runs only once."""

    def __init__(self, device: MetalDevice, calls: Sequence[Call]):
        self.device, self.bound = device, dict[int, Any]()
        pairs = zip(calls, self.number_operands(calls), strict=True)
        self.steps = [(call.program.name, call.program.entry, args) for call, args in pairs]
        self.numbers = {args[slot] for _, entry, args in self.steps for slot, n, _ in entry.arguments if n == SCALAR}
        self.used = {args[slot] for _, entry, args in self.steps for slot, _, _ in entry.arguments}

    def bind_operand(self, number: int, address: int) -> None:
        """Set operand `number` to the memory at `address`, or to the value `address` if the operand is a size."""
        if number in self.numbers:
            self.bound[number] = address
        elif number in self.used:
            block, offset = self.device.memory.find(address)
            self.bound[number] = block.handle, offset

    def launch(self) -> None:
        """Submit all launches; reading a result waits for them."""
        self._submit(self.steps)

    def launch_timed(self) -> list[int]:
        """Run one launch at a time and return the nanoseconds of each, by the GPU's clock."""
        out = []
        for step in self.steps:
            done = self._submit([step])
            self.device.memory.wait()
            out.append(round((done.GPUEndTime() - done.GPUStartTime()) * 1e9))
        return out

    def _submit(self, steps: Sequence[tuple[str, Entry, tuple[int, ...]]]) -> Any:
        what = f"kernel {steps[0][0]}" if len(steps) == 1 else "kernels"

        def encode(commands: Any) -> None:
            work = commands.computeCommandEncoder()  # a serial encoder: each launch sees the writes of earlier ones
            for _, entry, args in steps:
                self._encode(work, entry, args)
            work.endEncoding()

        with self.device.reported(what):
            return self.device.submit(what, encode)

    def _encode(self, work: Any, entry: Entry, args: tuple[int, ...]) -> None:
        values = {variable: self.bound[args[slot]] for slot, n, variable in entry.arguments if n == SCALAR}
        groups = [group_count(n, values) for n in entry.groups]
        if 0 in groups:
            return
        work.setComputePipelineState_(entry.kernel)
        for slot, n_bytes, variable in entry.arguments:
            if n_bytes == SCALAR:
                work.setBytes_length_atIndex_(np.int64(values[variable]).tobytes(), 8, slot)
            else:
                work.setBuffer_offset_atIndex_(*self.bound[args[slot]], slot)
        size = self.device.metal.MTLSizeMake
        work.dispatchThreadgroups_threadsPerThreadgroup_(size(*groups), size(*entry.lanes))


__all__ = ["MetalCommands", "MetalDevice", "MetalMemory"]

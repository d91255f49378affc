"""The parts of macOS that the Metal device calls, through PyObjC's names, over host memory and the stand-in for Metal.

Kernels really run. What is committed is put off until somebody waits for it, as a GPU does. `Metal` is the framework;
`full_at` bytes are what a GPU has, `fail` names kernels or copies that go wrong on the queue, `live` counts pools that
are open.
"""

import ctypes
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from monolect.backend.common.host import memory
from monolect.backend.metal import render as metal
from monolect.base.errors import CompileError
from tests.backend.standin import device as standins
from tests.backend.standin.driver import MODULES, Compiler

NOT_ENQUEUED, COMMITTED, COMPLETED, ERROR = 0, 2, 4, 5
OUT_OF_MEMORY = 8


class Metal:
    """The framework."""

    MTLResourceStorageModeShared = 0
    MTLGPUFamilyApple7 = 1007
    MTLCommandBufferStatusCompleted, MTLCommandBufferStatusError = COMPLETED, ERROR
    MTLCommandBufferErrorOutOfMemory = OUT_OF_MEMORY

    def __init__(self, n_gpus: int = 1, family: int = 1008):
        self.full_at, self.fail, self.live, self.n_committed = 1 << 30, {}, 0, 0
        self.gpus = [Gpu(self, i, family) for i in range(n_gpus)]
        self.options = []
        self.MTLCompileOptions = SimpleNamespace(alloc=lambda: SimpleNamespace(init=self._options))

    def _options(self):
        made = SimpleNamespace(fast=True)
        made.setFastMathEnabled_ = lambda value: setattr(made, "fast", value)
        return made

    def MTLCopyAllDevices(self):
        return self.gpus

    @staticmethod
    def MTLSizeMake(*n):
        assert len(n) == 3 and all(type(k) is int and k > 0 for k in n)
        return n

    @contextmanager
    def autorelease_pool(self):
        self.live += 1
        yield
        self.live -= 1


def failure(message: str, code: int = 1):
    return SimpleNamespace(localizedDescription=lambda: message, code=lambda: code)


class Gpu:
    def __init__(self, system: Metal, number: int, family: int):
        self.system, self.number, self.family, self.used = system, number, family, 0

    def name(self):
        return f"a GPU {self.number}"

    def supportsFamily_(self, family):
        return self.family >= family

    def maxThreadsPerThreadgroup(self):
        return SimpleNamespace(width=1024, height=1024, depth=64)

    def maxThreadgroupMemoryLength(self):
        return 32 << 10

    def recommendedMaxWorkingSetSize(self):
        return self.system.full_at

    def maxBufferLength(self):
        return 1 << 29

    def newCommandQueue(self):
        return Queue(self.system)

    def newBufferWithLength_options_(self, n_bytes, options):
        if options != self.system.MTLResourceStorageModeShared or self.used + n_bytes > self.system.full_at:
            return None
        return Buffer(self, n_bytes)

    def newBufferWithBytes_length_options_(self, data, n_bytes, options):
        made = self.newBufferWithLength_options_(n_bytes, options)
        if made is not None:
            made.bytes()[:] = np.frombuffer(data, np.uint8, n_bytes)
        return made

    def newLibraryWithSource_options_error_(self, source, options, error):
        assert error is None and not options.fast
        try:
            return Library(MODULES[MetalCompiler().compile(source)]), None
        except CompileError:
            line = next(i for i, text in enumerate(source.splitlines(), 1) if "#error" in text)
            return None, failure(f"program_source:{line}:2: error: it says so")

    def newComputePipelineStateWithFunction_error_(self, function, error):
        return (function, None) if function != "too large" else (None, failure("too many registers"))


class MetalCompiler(Compiler):
    """In place of the system's."""

    standin = standins.Metal
    kernel = r"^\[\[kernel, [^\]]*\]\] void (\w+)\((.*)\) \{$"
    waits = ("threadgroup_barrier(", "= shuffle_xor", "standin::in_warp")

    def __init__(self):
        self.language = metal.LANGUAGE


class Library:
    def __init__(self, code: ctypes.CDLL):
        self.code = code

    def newFunctionWithName_(self, name):
        return getattr(self.code, f"run_{name}", None)


class Buffer:
    def __init__(self, gpu: Gpu, n_bytes: int):
        self.gpu, self.memory = gpu, memory.alloc(n_bytes)
        gpu.used += n_bytes

    def __del__(self):
        self.gpu.used -= self.memory.n_bytes

    def bytes(self):
        return self.memory.view(np.uint8)

    def contents(self):
        return SimpleNamespace(as_buffer=lambda n: memoryview(self.bytes()[:n]))


class Queue:
    """Runs what was committed, in order, once somebody waits."""

    def __init__(self, system: Metal):
        self.system, self.committed, self.clock = system, [], 0

    def commandBuffer(self):
        assert self.system.live, "a command buffer is made without a pool: it would stay for ever"
        return CommandBuffer(self)


class CommandBuffer:
    def __init__(self, queue: Queue):
        self.queue, self.work, self.state, self.wrong, self.times = queue, [], NOT_ENQUEUED, None, (0.0, 0.0)

    def blitCommandEncoder(self):
        return Blit(self)

    def computeCommandEncoder(self):
        return Compute(self)

    def commit(self):
        self.state = COMMITTED
        self.queue.committed.append(self)
        self.queue.system.n_committed += 1

    def status(self):
        return self.state

    def error(self):
        return self.wrong

    def waitUntilCompleted(self):
        assert self.state >= COMMITTED
        while self.state < COMPLETED:
            self.queue.committed.pop(0).run()

    def run(self):
        self.state, start = COMPLETED, self.queue.clock
        for what, task in self.work:
            if what in self.queue.system.fail:
                self.wrong, self.state = self.queue.system.fail[what], ERROR
                break
            task()
            self.queue.clock += 1
        self.times = start * 1e-6, self.queue.clock * 1e-6

    def GPUStartTime(self):
        return self.times[0]

    def GPUEndTime(self):
        return self.times[1]


class Encoder:
    def __init__(self, commands: CommandBuffer):
        self.commands, self.is_open = commands, True

    def put(self, what, task):
        assert self.is_open and self.commands.state == NOT_ENQUEUED
        self.commands.work.append((what, task))

    def endEncoding(self):
        self.is_open = False


class Blit(Encoder):
    def copyFromBuffer_sourceOffset_toBuffer_destinationOffset_size_(self, source, a, target, b, n_bytes):
        self.put("copy", lambda: target.bytes().__setitem__(slice(b, b + n_bytes), source.bytes()[a : a + n_bytes]))


class Compute(Encoder):
    def __init__(self, commands):
        super().__init__(commands)
        self.arguments = {}

    def setComputePipelineState_(self, function):
        self.function, self.arguments = function, {}

    def setBuffer_offset_atIndex_(self, buffer, offset, slot):
        assert offset % 4 == 0 and 0 <= offset <= buffer.memory.n_bytes and slot < 31
        self.arguments[slot] = (buffer.memory.address + offset, buffer)

    def setBytes_length_atIndex_(self, data, n_bytes, slot):
        assert n_bytes == len(data) == 8 and slot < 31
        self.arguments[slot] = (int(np.frombuffer(data, np.int64)[0]), None)

    def dispatchThreadgroups_threadsPerThreadgroup_(self, groups, lanes):
        function, arguments = self.function, dict(self.arguments)
        assert len(function.sizes) == len(arguments) + 2  # group and lane

        def task():
            values = [arguments[slot][0] for slot in sorted(arguments)]
            code = function(
                (ctypes.c_longlong * max(1, len(values)))(*values),
                (ctypes.c_uint * 3)(*groups),
                (ctypes.c_uint * 3)(*lanes),
            )
            assert not code, standins.FAILURES.get(code, code)

        self.put("kernel", task)

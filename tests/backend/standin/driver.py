"""A CUDA driver that is not there: the calls of `cuda.bindings.driver` that we make, over host memory and stand-ins.

`Hip` is the same driver under the names of AMD's. Compilers come with it: in place of NVRTC and of clang, and one
around LLVM's. That keeps for each text of PTX the same LLVM
IR as code of the host, its intrinsics replaced by functions.

Kernels really run, so the device can be tested from tensors to results. Work on a stream is put off until somebody
waits, as a GPU does; the nodes of a graph run in any order that its edges allow, `pick`ed of those that are ready: the
last one, if nothing else is said, so that what an edge is missing for runs too early. Streams beside the first run as
early as they may (`is_early`), else when they are waited for. `calls` counts every call, `fail` makes one call return
an error.
"""

import ctypes
import enum
import re
from collections import Counter
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from monolect.backend.common.host import memory
from monolect.backend.cuda import ptx
from monolect.backend.cuda import render as cuda
from monolect.backend.hip import driver as hip_driver
from monolect.backend.hip import render as hip
from monolect.base.dtype import ALL
from monolect.base.errors import AllocationError, CompileError
from monolect.base.matrix_units import BY_NAME
from tests.backend.standin import device as standins
from tests.backend.standin.boxes import MAP_BYTES, at_64, encoded
from tests.backend.standin.device import LAUNCH, Llvm
from tests.backend.standin.fragments import emulated, tables


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_ILLEGAL_ADDRESS = 700


ATTRIBUTES = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MAX_SHARED_MEMORY_PER_BLOCK": 48 << 10,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 227 << 10,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MULTIPROCESSOR_COUNT": 132,
}
ITEMSIZES = {"FLOAT16": 2, "BFLOAT16": 2, "UINT8": 1}
MESSAGES = {2: b"out of memory", 700: b"an illegal memory access was encountered"}


class Wait:
    """In a stream: for an event as it was recorded for the `n`th time."""

    def __init__(self, event, n):
        self.event, self.n = event, n

    def __call__(self):
        pass


class Driver:
    """The module. `bytes_free` is what cuMemAlloc may still hand out."""

    CUresult = CUresult
    CUdevice_attribute = SimpleNamespace(**{f"CU_DEVICE_ATTRIBUTE_{k}": v for k, v in ATTRIBUTES.items()})
    CUfunction_attribute = SimpleNamespace(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="most local")
    CUtensorMapDataType = SimpleNamespace(**{f"CU_TENSOR_MAP_DATA_TYPE_{k}": n for k, n in ITEMSIZES.items()})
    CUtensorMapInterleave = SimpleNamespace(CU_TENSOR_MAP_INTERLEAVE_NONE="none")
    CUtensorMapSwizzle = SimpleNamespace(CU_TENSOR_MAP_SWIZZLE_128B="128")
    CUtensorMapL2promotion = SimpleNamespace(CU_TENSOR_MAP_L2_PROMOTION_L2_256B="256")
    CUtensorMapFloatOOBfill = SimpleNamespace(CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE="zeros")
    cuuint32_t = cuuint64_t = int
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
    CUDA_KERNEL_NODE_PARAMS = SimpleNamespace

    def __init__(self, n_devices: int = 1, bytes_free: int = 1 << 30):
        self.n_devices, self.bytes_free = n_devices, bytes_free
        self.calls: Counter[str] = Counter()
        self.fail: dict[str, CUresult] = {}
        self.streams: dict[int, list] = {}
        self.is_early = True
        self.order: list[str] = []  # of copies from the host and of what else ran
        self.memory: dict[int, memory.Memory] = {}
        self.pinned: list = []
        self.clock = count()
        self.graphs: list = []  # the edges of each that was instantiated
        self.pick = lambda ready: ready[-1]

    def __getattribute__(self, name: str):
        if not name.startswith("cu") or name.startswith("cuuint"):
            return super().__getattribute__(name)
        call = super().__getattribute__(name)
        self.calls[name] += 1

        def checked(*args):
            code = self.fail.get(name, CUresult.CUDA_SUCCESS)
            if code:
                return (code, None)
            out = call(*args)
            return out if isinstance(out, tuple) else (CUresult.CUDA_SUCCESS, *([] if out is None else [out]))

        return checked

    # ---- devices -----------------------------------------------------------------------------------------------------
    def cuInit(self, flags):
        return (CUresult.CUDA_SUCCESS,) if self.n_devices else (CUresult.CUDA_ERROR_NO_DEVICE,)

    def cuDriverGetVersion(self):
        return 13020

    def cuDeviceGetCount(self):
        return self.n_devices

    def cuDeviceGet(self, number):
        return number

    def cuDeviceGetName(self, n, device):
        return b"a GPU\0\0"

    def cuDeviceTotalMem(self, device):
        return 1 << 30

    def cuDeviceGetAttribute(self, value, device):
        return value

    def cuDevicePrimaryCtxRetain(self, device):
        return f"context {device}"

    def cuCtxSetCurrent(self, context):
        pass

    def cuDeviceCanAccessPeer(self, a, b):
        return int(a != b)

    def cuCtxEnablePeerAccess(self, context, flags):
        pass

    def cuGetErrorString(self, code):
        return (CUresult.CUDA_SUCCESS, MESSAGES.get(int(code), b"an error"))

    # ---- memory ------------------------------------------------------------------------------------------------------
    def cuMemAlloc(self, n):
        if n > self.bytes_free:
            return (CUresult.CUDA_ERROR_OUT_OF_MEMORY, 0)
        self.bytes_free -= n
        block = memory.alloc(n)
        block.view(np.uint8)[:] = 0xA5
        self.memory[block.address] = block
        return block.address

    def cuMemFree(self, address):
        self.bytes_free += self.memory.pop(address).n_bytes

    def cuMemHostAlloc(self, n, flags):
        self.pinned.append(memory.alloc(n))
        return self.pinned[-1].address

    def _move(self, target, source, n, stream, what="copy"):
        def work():
            ctypes.memmove(target, source, n)
            self.order.append(what)

        self.streams[stream].append(work)

    def cuMemcpyHtoDAsync(self, target, source, n, stream):
        self._move(target, source, n, stream, "from the host")

    def cuMemcpyDtoDAsync(self, target, source, n, stream):
        self._move(target, source, n, stream)

    cuMemcpyDtoHAsync = cuMemcpyDtoDAsync

    def cuMemcpyPeerAsync(self, target, to, source, of, n, stream):
        assert to != of
        self._move(target, source, n, stream)

    def cuTensorMapEncodeTiled(
        self, dtype, rank, address, sizes, strides, box, steps, interleave, swizzle, promotion, fill
    ):
        assert (interleave, swizzle, promotion, fill) == ("none", "128", "256", "zeros") and steps == [1] * rank
        assert any(m.address <= address < m.address + m.n_bytes for m in self.memory.values())
        data = (ctypes.c_char * MAP_BYTES)(*encoded(dtype, address, sizes, strides, box))
        return SimpleNamespace(getPtr=lambda: ctypes.addressof(data))

    # ---- streams, events ---------------------------------------------------------------------------------------------
    def cuStreamCreate(self, flags):
        self.streams[stream := 0x57 + len(self.streams)] = []
        return stream

    def cuStreamSynchronize(self, stream):
        while self.streams[stream]:
            self._step(stream)

    def _step(self, stream):
        """Run one piece of work of a stream, and what it waits for."""
        for other in self.streams:
            while self.is_early and other > stream and self.streams[other] and not self._waits(other):
                self.streams[other].pop(0)()
        while (event := self._waits(stream)) is not None:
            self._step(event.stream)
        if self.streams[stream]:
            self.streams[stream].pop(0)()

    def _waits(self, stream):
        """The event that the next piece of work waits for, if it was not yet recorded."""
        work = self.streams[stream][0] if self.streams[stream] else None
        return work.event if isinstance(work, Wait) and work.event.done < work.n else None

    def cuStreamWaitEvent(self, stream, event, flags):
        self.streams[stream].append(Wait(event, event.n))

    def cuEventCreate(self, flags):
        return SimpleNamespace(time=None, n=0, done=0, stream=None)

    def cuEventRecord(self, event, stream):
        event.n, event.stream = event.n + 1, stream

        def work(n=event.n):
            event.done, event.time = n, next(self.clock)

        self.streams[stream].append(work)

    def cuEventSynchronize(self, event):
        while event.done < event.n:
            self._step(event.stream)

    def cuEventElapsedTime(self, a, b):
        return float(b.time - a.time)

    def cuEventDestroy(self, event):
        pass

    # ---- programs ----------------------------------------------------------------------------------------------------
    def cuModuleLoadData(self, code):
        return MODULES[code]

    def cuModuleGetFunction(self, module, name):
        return getattr(module, f"run_{name.decode()}")

    def cuLaunchKernel(self, function, gx, gy, gz, lx, ly, lz, shared, stream, params, extra):
        values = _values(function, params)
        assert min(gx, gy, gz, lx, ly, lz) > 0 and shared <= getattr(function, "most_local", 48 << 10)
        self.streams[stream].append(lambda: self._kernel(function, values, (gx, gy, gz), (lx, ly, lz), shared))

    def _kernel(self, *args):
        _run(*args)
        self.order.append("kernel")

    def cuFuncSetAttribute(self, function, attribute, value):
        assert attribute == "most local" and value <= ATTRIBUTES["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"]
        function.most_local = value

    def cuGraphCreate(self, flags):
        return []

    def cuGraphAddKernelNode(self, graph, before, n, params):
        assert n == len(before) and all(node in graph for node in before)
        assert len({id(node) for node in before}) == n
        graph.append(node := SimpleNamespace(before=[*before], is_destroyed=False))
        self.cuGraphExecKernelNodeSetParams(graph, node, params)
        return node

    def cuGraphInstantiate(self, graph, flags):
        at = {id(node): i for i, node in enumerate(graph)}
        self.graphs.append([[at[id(b)] for b in node.before] for node in graph])
        return list(graph)

    def cuGraphDestroy(self, graph):
        for node in graph:
            node.is_destroyed = True
        graph.clear()

    def cuGraphExecDestroy(self, graph):
        pass

    def cuGraphExecKernelNodeSetParams(self, graph, node, p):
        """The driver reads the arguments now, not when the graph is launched. A destroyed node is an invalid value."""
        assert not node.is_destroyed
        values = _values(p.func, p.kernelParams)
        sizes = (p.gridDimX, p.gridDimY, p.gridDimZ), (p.blockDimX, p.blockDimY, p.blockDimZ)
        shared = p.sharedMemBytes
        assert shared <= getattr(p.func, "most_local", 48 << 10)
        node.work = lambda: self._kernel(p.func, values, *sizes, shared)

    def cuGraphLaunch(self, graph, stream):
        waits = {id(node): {id(b) for b in node.before} for node in graph}
        todo = [*graph]
        while todo:
            node = self.pick([node for node in todo if not waits[id(node)]])
            self.streams[stream].append(node.work)
            todo.remove(node)
            for waiting in waits.values():
                waiting.discard(id(node))


def _values(function, params):
    """The arguments as they are now: numbers, and tensor maps as bytes."""
    out = []
    for p, declared in zip((ctypes.c_void_p * len(function.sizes)).from_address(params), function.sizes, strict=True):
        is_map = "tensor_map" in declared
        assert not is_map or p % 64 == 0
        out.append(ctypes.string_at(p, MAP_BYTES) if is_map else ctypes.c_int64.from_address(p).value)
    return out


def _run(function, values, groups, lanes, shared):
    _kept, places = at_64([x for x in values if isinstance(x, bytes)])
    places = iter(places)
    values = [next(places) if isinstance(x, bytes) else x for x in values]
    slots = (ctypes.c_longlong * max(1, len(values)))(*values)
    local = getattr(function, "local", None)
    if local is not None:
        local[:] = 0xA5
    assert function(slots, *((ctypes.c_uint * 3)(*side) for side in (groups, lanes))) == 0
    assert local is None or (local[shared:] == 0xA5).all(), "more local memory than was asked for"


MODULES: dict[bytes, ctypes.CDLL] = {}


class Compiler:
    """In place of NVRTC: the stand-in's compiler; the code is a number."""

    standin = standins.Cuda
    kernel = r'^extern "C" .* (\w+)\(([^)]*)\) \{$'
    waits = ("__syncthreads", "workgroup_barrier", "shuffle_xor", "standin::in_warp")

    def __init__(self, arch: str):
        self.language = cuda.language(int(arch.rstrip("a")))

    def compile(self, source: str) -> bytes:
        if "#error" in source:
            raise CompileError("refused")
        kernels = source.replace(self.language.header, "")
        for words in (self.language.async_copies, self.language.memory_units, self.language.bulk_copies):
            kernels = kernels.replace(words.functions, "") if words else kernels
        found = re.findall(self.kernel, kernels, re.MULTILINE)
        types = {d: self.language.type(d) for d in ALL if d.kind in "iuf"}
        if self.language.local_at_launch:
            for align in (16, 1024):
                text = self.language.local_at_launch.format(align=align)
                kernels = kernels.replace(text, standins.LOCAL_AT_LAUNCH)
        for unit, text in self.language.units.items():
            kernels = kernels.replace(text, emulated(BY_NAME[unit], types))
        waits = any(word in kernels for word in self.waits)
        kernels = tables() + kernels
        for name, _ in found:
            kernels += LAUNCH.format(name=name, has_barrier="true" if waits else "false")
        library, _ = self.standin("standin").library(kernels)
        for name, params in found:
            function = getattr(library, f"run_{name}")
            function.sizes = [p for p in params.split(",") if p.strip()]
            if self.language.local_at_launch:
                function.local = np.ctypeslib.as_array((ctypes.c_uint8 * (256 << 10)).in_dll(library, "standin_local"))
        code = f"\x7fELF{len(MODULES)}".encode()
        MODULES[code] = library
        return code


class HipCompiler(Compiler):
    """In place of clang."""

    standin = standins.Hip
    key = "stand-in"

    def __init__(self, arch: str):
        self.language = hip.language(arch)


CUDA_NAMES = {v: k for k, v in hip_driver.HIP_NAMES.items()}


class Hip:
    """The driver as `hip.driver.Hip` shows AMD's: what is called, and with how much, is in that one's table. Kernels
    are numbers, as a structure holds them.
    """

    def __init__(self, driver: Driver, arch: str = "gfx942"):
        self.driver, self.arch = driver, arch
        self.kernels: dict = {}

    def hipModuleGetFunction(self, module, name):
        code, function = self.driver.cuModuleGetFunction(module, name)
        self.kernels[id(function)] = function
        return code, id(function)

    def __getattr__(self, symbol: str):
        out, takes = hip_driver.SIGNATURES[symbol]
        call = getattr(self.driver, f"cu{CUDA_NAMES.get(symbol, symbol.removeprefix('hip'))}")

        def checked(*args):
            assert len(args) == len(takes)
            if symbol == "hipModuleLaunchKernel":
                args = (self.kernels[args[0]], *args[1:])
            answer = call(*[self._read(a) if isinstance(a, hip_driver.NodeParams) else a for a in args])
            assert answer[0] or len(answer) == 1 + (out is not None)
            return answer

        return checked

    def _read(self, p):
        fields = {name: getattr(p, name) for name, _ in p._fields_}
        return SimpleNamespace(**{**fields, "func": self.kernels[p.func]})

    def hipGetDeviceCount(self):
        return (0, self.driver.n_devices) if self.driver.n_devices else (100, 0)

    def hipSetDevice(self, number):
        return (0,)

    def hipRuntimeGetVersion(self):
        return 0, 60443483

    def hipGetErrorString(self, code):
        return MESSAGES.get(int(code), b"an error").decode()

    def properties(self, number):
        return 0, hip_driver.Gpu("a GPU", self.arch, 1 << 30, 64 << 10, 1024, 64, 304)


HOST_NAMES = {
    "ptx_kernel ": "",
    " addrspace(1)": "",
    " addrspace(3)": "",
    **{f"@llvm.nvvm.read.ptx.sreg.ctaid.{c}()": f"@standin_group(i32 {i})" for i, c in enumerate("xyz")},
    **{f"@llvm.nvvm.read.ptx.sreg.tid.{c}()": f"@standin_lane(i32 {i})" for i, c in enumerate("xyz")},
    "@llvm.nvvm.barrier0()": "@standin_barrier()",
}
MADE_PTX = ptx.compiler


class PtxCompiler:
    """In place of `ptx.compiler`: it writes PTX, and remembers what that means."""

    def __init__(self, arch: str):
        self.llvm = MADE_PTX(arch)
        self.key = self.llvm.key

    def assembly(self, source: str) -> str:
        text = self.llvm.assembly(source)
        host = "\n".join(line for line in source.splitlines() if not line.startswith("declare") or "nvvm" not in line)
        for theirs, ours in HOST_NAMES.items():
            host = host.replace(theirs, ours)
        host = re.sub(r"@llvm.nvvm.shfl.sync.bfly.i32\(i32 -1, (.*), i32 31\)", r"@standin_shuffle(\1)", host)
        found = re.findall(r"^define void @(\w+)\((.*)\) nounwind", host, re.MULTILINE)
        sizes = {name: [p for p in params.split(", ") if p] for name, params in found}
        library = Llvm.linked(
            "\n".join([*Llvm.dialect.declares, host]),
            {name: len(p) for name, p in sizes.items()},
            "barrier()" in host or "@standin_shuffle(i32 %" in host,
        )
        for name, params in sizes.items():
            getattr(library, f"run_{name}").sizes = params
        MODULES[text.encode() + b"\0"] = library
        return text


def frees_and_tries_once_more(driver: Driver, device) -> None:
    """Where memory is out, what is cached goes back and it is asked once more; an error names device and remedy."""
    driver.bytes_free = 3 << 20
    first = device.alloc(2 << 20)
    del first
    assert driver.calls["cuMemFree"] == 0, "it is kept"
    second = device.alloc(5 << 19)
    assert driver.calls["cuMemFree"] == 1 and second.n_bytes == 5 << 19
    with pytest.raises(
        AllocationError, match=rf"(?s){device.name} has no memory for 4194304 bytes.*smaller batches"
    ) as e:
        device.alloc(4 << 20)
    assert "bytes in use" in str(e.value)
    del second
    assert device.alloc(1 << 20).n_bytes == 1 << 20

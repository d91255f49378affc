"""The HIP runtime of AMD's driver, `libamdhip64.so`, by ctypes: no package is needed.

What it is for: a row a call: what it takes, and whether it hands something out. It speaks of GPUs by their numbers.
Invariant: importing this loads nothing.
Source: the reference of the HIP runtime API, ROCm 6, whose structures keep their layout by the name R0600. A node of a
graph takes a kernel of a module where the reference speaks of a function of the host's, as the runtime does.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

from monolect.backend.common.gpu.driver import NO_DEVICE, SUCCESS, Driver
from monolect.backend.common.workgroups import why_not
from monolect.base.errors import DeviceError


class NodeParams(ctypes.Structure):
    """`hipKernelNodeParams`."""

    _fields_ = [
        ("blockDimX", c_uint),
        ("blockDimY", c_uint),
        ("blockDimZ", c_uint),
        ("extra", c_void_p),
        ("func", c_void_p),
        ("gridDimX", c_uint),
        ("gridDimY", c_uint),
        ("gridDimZ", c_uint),
        ("kernelParams", c_void_p),
        ("sharedMemBytes", c_uint),
    ]


class Nodes:
    """A list of nodes of a graph, as an argument."""

    @staticmethod
    def from_param(nodes: list) -> Any:
        """What the library is given."""
        return (c_void_p * len(nodes))(*nodes)


LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so")
# what is called otherwise than "hip" and the name of CUDA's
SPELLED = {
    "MemAlloc": "hipMalloc",
    "MemFree": "hipFree",
    "MemHostAlloc": "hipHostMalloc",
    "CtxEnablePeerAccess": "hipDeviceEnablePeerAccess",
    "StreamCreate": "hipStreamCreateWithFlags",
    "EventCreate": "hipEventCreateWithFlags",
    "LaunchKernel": "hipModuleLaunchKernel",
    "GraphInstantiate": "hipGraphInstantiateWithFlags",
}
# symbol -> (what it hands out through its first argument, what else it takes)
CALLS: dict[str, tuple[Any, tuple]] = {
    "hipInit": (None, (c_uint,)),
    "hipRuntimeGetVersion": (c_int, ()),
    "hipGetDeviceCount": (c_int, ()),
    "hipSetDevice": (None, (c_int,)),
    "hipDeviceCanAccessPeer": (c_int, (c_int, c_int)),
    "hipDeviceEnablePeerAccess": (None, (c_int, c_uint)),
    "hipMalloc": (c_void_p, (c_size_t,)),
    "hipFree": (None, (c_void_p,)),
    "hipHostMalloc": (c_void_p, (c_size_t, c_uint)),
    "hipMemcpyHtoDAsync": (None, (c_void_p, c_void_p, c_size_t, c_void_p)),
    "hipMemcpyDtoHAsync": (None, (c_void_p, c_void_p, c_size_t, c_void_p)),
    "hipMemcpyDtoDAsync": (None, (c_void_p, c_void_p, c_size_t, c_void_p)),
    "hipMemcpyPeerAsync": (None, (c_void_p, c_int, c_void_p, c_int, c_size_t, c_void_p)),
    "hipStreamCreateWithFlags": (c_void_p, (c_uint,)),
    "hipStreamSynchronize": (None, (c_void_p,)),
    "hipStreamWaitEvent": (None, (c_void_p, c_void_p, c_uint)),
    "hipEventCreateWithFlags": (c_void_p, (c_uint,)),
    "hipEventRecord": (None, (c_void_p, c_void_p)),
    "hipEventSynchronize": (None, (c_void_p,)),
    "hipEventElapsedTime": (c_float, (c_void_p, c_void_p)),
    "hipEventDestroy": (None, (c_void_p,)),
    "hipModuleLoadData": (c_void_p, (c_char_p,)),
    "hipModuleGetFunction": (c_void_p, (c_void_p, c_char_p)),
    "hipModuleLaunchKernel": (None, (c_void_p, *(c_uint,) * 7, c_void_p, c_void_p, c_void_p)),
    "hipGraphCreate": (c_void_p, (c_uint,)),
    "hipGraphAddKernelNode": (c_void_p, (c_void_p, Nodes, c_size_t, ctypes.POINTER(NodeParams))),
    "hipGraphInstantiateWithFlags": (c_void_p, (c_void_p, c_ulonglong)),
    "hipGraphExecKernelNodeSetParams": (None, (c_void_p, c_void_p, ctypes.POINTER(NodeParams))),
    "hipGraphLaunch": (None, (c_void_p, c_void_p)),
    "hipGraphDestroy": (None, (c_void_p,)),
    "hipGraphExecDestroy": (None, (c_void_p,)),
}


class Properties(ctypes.Structure):
    """The beginning of `hipDeviceProp_tR0600`, and what a device wants to know of the rest."""

    _fields_ = [
        ("name", ctypes.c_char * 256),
        ("_ids", ctypes.c_uint8 * 32),
        ("total_bytes", c_size_t),
        ("local_bytes", c_size_t),
        ("_registers", c_int),
        ("warp", c_int),
        ("_pitch", c_size_t),
        ("max_local", c_int),
        ("_sizes", c_int * 7),
        ("_constants", c_size_t),
        ("_version", c_int * 2),
        ("_texture", c_size_t * 2),
        ("_overlap", c_int),
        ("n_units", c_int),
        ("_rest", ctypes.c_uint8 * 768),
        ("arch", ctypes.c_char * 256),
        ("_end", ctypes.c_uint8 * 2680),  # room for what later versions add
    ]


class Gpu(NamedTuple):
    """What one GPU is: `arch` such as "gfx942", `n_units` its compute units."""

    name: str
    arch: str
    total_bytes: int
    local_bytes: int
    max_local: int
    warp: int
    n_units: int


class Hip:
    """The library: a call returns its status, and what it hands out."""

    def __init__(self, library: Any):
        self.library = library

    def __getattr__(self, symbol: str) -> Any:
        out, takes = CALLS[symbol]
        function = getattr(self.library, symbol)
        function.restype, function.argtypes = c_int, ([c_void_p] if out is not None else []) + list(takes)

        def call(*args: Any) -> tuple:
            if out is None:
                return (function(*args),)
            cell = out()
            return function(ctypes.addressof(cell), *args), cell.value or 0

        setattr(self, symbol, call)
        return call

    def hipGetErrorString(self, code: int) -> str:
        """What an error says."""
        self.library.hipGetErrorString.restype = c_char_p
        return (self.library.hipGetErrorString(code) or b"unknown error").decode(errors="replace")

    def properties(self, number: int) -> tuple[int, Gpu | None]:
        """(status, what the GPU is)."""
        p = Properties()
        code = self.library.hipGetDevicePropertiesR0600(ctypes.byref(p), number)
        sizes = p.total_bytes, p.local_bytes, p.max_local, p.warp, p.n_units
        return code, Gpu(p.name.decode(), p.arch.decode().partition(":")[0], *sizes) if not code else None


@functools.cache
def bindings() -> Any:
    """The library, loaded. Raises DeviceError where there is none."""
    for name in LIBRARIES:
        try:
            return Hip(ctypes.CDLL(name))
        except OSError:
            continue
    raise DeviceError("no HIP driver: libamdhip64.so is not found; install ROCm 6 or later (hip-runtime-amd)")


def count() -> int:
    """How many GPUs there are. Raises DeviceError where there is no driver."""
    api = bindings()
    code, n = api.hipGetDeviceCount()
    if code not in (SUCCESS, NO_DEVICE):
        raise DeviceError(f"the HIP driver does not start: {api.hipGetErrorString(code)}; check it with rocminfo")
    return 0 if code else n


def missing() -> str:
    """Why there is no AMD GPU to run on, or ""."""
    return why_not(count, "no AMD GPU: the driver knows none")


def about() -> str:
    """The GPUs and the version of their runtime."""
    api = bindings()
    found = [gpu for i in range(count()) if (gpu := api.properties(i)[1]) is not None]
    number = api.hipRuntimeGetVersion()[1]
    names = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in found)
    return f"{names}; HIP {number // 10_000_000}.{number // 100_000 % 100}"


class HipDriver(Driver):
    """The driver's calls for one GPU, named by its number. `gpu` says what it is."""

    def __init__(self, device: str, number: int):
        super().__init__(device, bindings())
        self.handle = self.context = number
        code, gpu = self.api.properties(number)
        if gpu is None:
            self.fail("hipGetDeviceProperties", code, "")
        self.gpu: Gpu = gpu

    def symbol(self, name: str) -> str:
        return SPELLED.get(name, f"hip{name}")

    def make_current(self) -> None:
        self.api.hipSetDevice(self.context)

    def node_params(self) -> NodeParams:
        return NodeParams()

    def reason(self, code: Any) -> str:
        return str(self.api.hipGetErrorString(code))

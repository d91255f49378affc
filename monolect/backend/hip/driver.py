"""Call the HIP runtime of AMD's driver, `libamdhip64.so`, through ctypes; no package is needed.

What it is for: a table with one row a call: its parameters and its result. GPUs are identified by their numbers.
Invariant: importing this module loads no library.
Source: "HIP Runtime API Reference", ROCm 6, whose structures keep their layout under the name R0600. A kernel node of
a graph takes a function of a module, as the runtime accepts, although the reference describes a host function.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

from monolect.backend.common.gpu.driver import NO_DEVICE, SUCCESS, Driver
from monolect.backend.common.workgroups import unavailable_reason
from monolect.base.errors import DeviceError


class NodeParams(ctypes.Structure):
    """The structure `hipKernelNodeParams`."""

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


class NodeList:
    """Argument type of a list of graph nodes."""

    @staticmethod
    def from_param(nodes: list) -> Any:
        """Return the nodes as a C array."""
        return (c_void_p * len(nodes))(*nodes)


LIBRARIES = ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so")
# CUDA name without "cu" -> HIP name, where it is not "hip" and the CUDA name
HIP_NAMES = {
    "MemAlloc": "hipMalloc",
    "MemFree": "hipFree",
    "MemHostAlloc": "hipHostMalloc",
    "CtxEnablePeerAccess": "hipDeviceEnablePeerAccess",
    "StreamCreate": "hipStreamCreateWithFlags",
    "EventCreate": "hipEventCreateWithFlags",
    "LaunchKernel": "hipModuleLaunchKernel",
    "GraphInstantiate": "hipGraphInstantiateWithFlags",
}
# symbol -> (type of the result that it stores through its first argument or None, types of the other arguments)
SIGNATURES: dict[str, tuple[Any, tuple]] = {
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
    "hipGraphAddKernelNode": (c_void_p, (c_void_p, NodeList, c_size_t, ctypes.POINTER(NodeParams))),
    "hipGraphInstantiateWithFlags": (c_void_p, (c_void_p, c_ulonglong)),
    "hipGraphExecKernelNodeSetParams": (None, (c_void_p, c_void_p, ctypes.POINTER(NodeParams))),
    "hipGraphLaunch": (None, (c_void_p, c_void_p)),
    "hipGraphDestroy": (None, (c_void_p,)),
    "hipGraphExecDestroy": (None, (c_void_p,)),
}


class DeviceProperties(ctypes.Structure):
    """The structure `hipDeviceProp_tR0600`; fields with an underscore are not used."""

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
        ("_end", ctypes.c_uint8 * 2680),  # space for fields of later versions
    ]


class Gpu(NamedTuple):
    """Properties of one GPU: `arch` such as "gfx942", `n_units` the number of its compute units."""

    name: str
    arch: str
    total_bytes: int
    local_bytes: int
    max_local: int
    warp: int
    n_units: int


class Hip:
    """The loaded library; each call in SIGNATURES is a method that returns (status,) or (status, result)."""

    def __init__(self, library: Any):
        self.library = library

    def __getattr__(self, symbol: str) -> Any:
        out, takes = SIGNATURES[symbol]
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
        """Return the message of an error code."""
        self.library.hipGetErrorString.restype = c_char_p
        return (self.library.hipGetErrorString(code) or b"unknown error").decode(errors="replace")

    def properties(self, number: int) -> tuple[int, Gpu | None]:
        """Return (status, properties of the GPU); the properties are None on failure."""
        p = DeviceProperties()
        code = self.library.hipGetDevicePropertiesR0600(ctypes.byref(p), number)
        sizes = p.total_bytes, p.local_bytes, p.max_local, p.warp, p.n_units
        return code, Gpu(p.name.decode(), p.arch.decode().partition(":")[0], *sizes) if not code else None


@functools.cache
def bindings() -> Any:
    """Load the library. Raises DeviceError if it is not found."""
    for name in LIBRARIES:
        try:
            return Hip(ctypes.CDLL(name))
        except OSError:
            continue
    raise DeviceError("no HIP driver: libamdhip64.so is not found; install ROCm 6 or later (hip-runtime-amd)")


def count() -> int:
    """Return the number of GPUs. Raises DeviceError if there is no working driver."""
    api = bindings()
    code, n = api.hipGetDeviceCount()
    if code not in (SUCCESS, NO_DEVICE):
        raise DeviceError(f"the HIP driver does not start: {api.hipGetErrorString(code)}; check it with rocminfo")
    return 0 if code else n


def missing() -> str:
    """Return the reason why no AMD GPU is available, or "" if one is."""
    return unavailable_reason(count, "no AMD GPU: the driver knows none")


def about() -> str:
    """Describe the GPUs and the version of their runtime."""
    api = bindings()
    found = [gpu for i in range(count()) if (gpu := api.properties(i)[1]) is not None]
    number = api.hipRuntimeGetVersion()[1]
    names = ", ".join(f"{gpu.name} ({gpu.arch})" for gpu in found)
    return f"{names}; HIP {number // 10_000_000}.{number // 100_000 % 100}"


class HipDriver(Driver):
    """The HIP driver's calls for the GPU with a number. `gpu` has its properties."""

    def __init__(self, device: str, number: int):
        super().__init__(device, bindings())
        self.handle = self.context = number
        code, gpu = self.api.properties(number)
        if gpu is None:
            self.fail("hipGetDeviceProperties", code, "")
        self.gpu: Gpu = gpu

    def symbol(self, name: str) -> str:
        return HIP_NAMES.get(name, f"hip{name}")

    def make_current(self) -> None:
        self.api.hipSetDevice(self.context)

    def node_params(self) -> NodeParams:
        return NodeParams()

    def reason(self, code: Any) -> str:
        return str(self.api.hipGetErrorString(code))


__all__ = [
    "DeviceProperties",
    "Gpu",
    "Hip",
    "HipDriver",
    "NodeList",
    "NodeParams",
    "about",
    "bindings",
    "count",
    "missing",
]

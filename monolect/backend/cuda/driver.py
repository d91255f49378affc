"""Call the CUDA driver through the vendor's package `cuda-bindings`, and report why it is not available.

Invariant: importing this module imports nothing of the vendor's.
"""

from __future__ import annotations

import ctypes
from importlib import import_module
from typing import Any

from monolect.backend.common.gpu.commands import MAP_BYTES
from monolect.backend.common.gpu.driver import NO_DEVICE, SUCCESS, Driver
from monolect.backend.common.launch import TensorMap
from monolect.backend.common.workgroups import unavailable_reason
from monolect.base.errors import DeviceError, MissingExtraError

NAME_BYTES = 256  # space for the name of a GPU


def bindings() -> Any:
    """Return the vendor's module of driver calls. Raises MissingExtraError if it is not installed."""
    try:
        return import_module("cuda.bindings.driver")
    except ImportError:
        raise MissingExtraError("cuda-bindings", "cuda") from None


def missing() -> str:
    """Return the reason why no NVIDIA GPU is available, or "" if one is."""
    return unavailable_reason(count, "no NVIDIA GPU: the driver knows none")


def count() -> int:
    """Return the number of GPUs. Raises MissingExtraError, or DeviceError if there is no working driver."""
    api = bindings()
    try:
        code = api.cuInit(0)[0]
    except Exception as error:  # the package's own error if the driver's library is not found
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise DeviceError(f"no CUDA driver: {reason}; install NVIDIA's driver for this system") from None
    if code == NO_DEVICE:
        return 0
    if code != SUCCESS:
        raise DeviceError(f"the CUDA driver does not start: {code}; check it with nvidia-smi")
    return int(api.cuDeviceGetCount()[1])


def about() -> str:
    """Describe the GPUs and the newest CUDA version that their driver supports."""
    drivers = [CudaDriver(f"cuda:{i}", i) for i in range(count())]
    number = int(drivers[0]("DriverGetVersion"))
    return f"{', '.join(d.name() for d in drivers)}; driver for CUDA {number // 1000}.{number % 1000 // 10}"


class CudaDriver(Driver):
    """The CUDA driver's calls for one GPU. `handle` is the driver's device handle, `context` its primary context."""

    def __init__(self, device: str, number: int):
        super().__init__(device, bindings())
        self.handle = self("DeviceGet", number)
        self.context = self("DevicePrimaryCtxRetain", self.handle)

    def symbol(self, name: str) -> str:
        return f"cu{name}"

    def make_current(self) -> None:
        self.api.cuCtxSetCurrent(self.context)

    def reason(self, code: Any) -> str:
        text = self.api.cuGetErrorString(code)[1]
        return text.decode() if isinstance(text, bytes) else "unknown error"

    def node_params(self) -> Any:
        return self.api.CUDA_KERNEL_NODE_PARAMS()

    @property
    def max_local_attribute(self) -> Any:
        """The attribute of a kernel that limits the shared memory requested at its launch, in bytes."""
        return self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

    def tensor_map(self, m: TensorMap, address: int, at: str) -> bytes:
        """Return the hardware's descriptor (128 bytes) of the tensor that `m` describes, in memory at `address`.

        Lines of 128 bytes are swizzled, as wgmma expects; elements outside of an axis are zeros. `at` names the kernel
        in errors. Raises DeviceError if the driver refuses it.
        """
        api, rank = self.api, len(m.sizes)
        names = {"float16": "FLOAT16", "bfloat16": "BFLOAT16"}
        descriptor = self(
            "TensorMapEncodeTiled",
            getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{names.get(m.dtype, 'UINT8')}"),
            rank,
            address + m.start,
            [api.cuuint64_t(n) for n in m.sizes],
            [api.cuuint64_t(n) for n in m.strides],
            [api.cuuint32_t(n) for n in m.box],
            [api.cuuint32_t(1)] * rank,
            api.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            api.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            api.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            api.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            at=at,
        )
        return ctypes.string_at(int(descriptor.getPtr()), MAP_BYTES)

    def attribute(self, name: str) -> int:
        """Return the value of a device attribute, such as "MAX_THREADS_PER_BLOCK"."""
        row = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self("DeviceGetAttribute", row, self.handle))

    def name(self) -> str:
        """Return the GPU's name."""
        return str(self("DeviceGetName", NAME_BYTES, self.handle).rstrip(b"\0 ").decode())


__all__ = ["CudaDriver", "about", "bindings", "count", "missing"]

"""WebGPU's adapters, and WGSL to pipelines by wgpu-native.

What it is for: finding adapters and saying what is missing; opening one with all it offers; errors with their line.
What it does not do: import wgpu, or look for adapters, before somebody asks: that takes half a second. Invariant:
whatever wgpu says no to is an error of monolect's own.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from monolect.backend.common.diagnostics import complaint
from monolect.backend.common.workgroups import why_not
from monolect.backend.webgpu.render import WGSL, joined
from monolect.base.errors import CompileError, DeviceError, MissingExtraError
from monolect.base.target import Target
from monolect.ir.uop import UOp

JOINED = re.compile(r"is joined: (\d+) at (\d+), (\d+) bytes, (\w+)")  # what `render` writes
PLACE = r"error: (?=[^\n]*\n[^\n:]*:(\d+):\d+)([^\n]*)"  # the reason stands before the place
NO_ADAPTER = (
    "no WebGPU adapter: install a driver for Vulkan, such as Mesa's for the processor "
    "(Debian: apt-get install mesa-vulkan-drivers)"
)
BACKENDS = ("Vulkan", "Metal", "DX12")  # OpenGL has too little of what kernels need
WANTED = ("shader-f16", "shader-int64", "shader-f64")  # features; the last two are wgpu-native's own
BINDING = "max-storage-buffer-binding-size"
MOST_BYTES = (1 << 31) - 4  # of a buffer in a kernel: see `NOTHING` in `render`
LIMITS = (
    "max-storage-buffers-per-shader-stage", BINDING, "max-buffer-size",
    "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y", "max-compute-workgroup-size-z", "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
)  # fmt: skip
ORDER = ("DiscreteGPU", "IntegratedGPU", "Unknown", "CPU")  # in which adapters are numbered


def wgpu() -> Any:
    """The package. Raises MissingExtraError."""
    try:
        import wgpu
    except ImportError:
        raise MissingExtraError("wgpu", "webgpu") from None
    return wgpu


@contextmanager
def session_folder() -> Iterator[None]:
    """The environment names a folder of the session, where it names none: drivers write an error for that."""
    if "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


@functools.cache
def adapters() -> tuple[Any, ...]:
    """Every adapter, GPUs before processors. Raises MissingExtraError, or DeviceError where there is none."""
    package = wgpu()
    try:
        from wgpu.backends.wgpu_native import extras

        extras.set_instance_extras(backends=BACKENDS)
    except (ImportError, AttributeError, KeyError, RuntimeError):
        pass  # another version of the package, or somebody has looked already: then there are more to choose from
    try:
        with session_folder():
            found = package.gpu.enumerate_adapters_sync()
        found = [a for a in found if a.info["backend_type"] in (*BACKENDS, "D3D12")]
    except (package.GPUError, RuntimeError, OSError) as error:
        raise DeviceError(f"{NO_ADAPTER} ({error})") from None
    if not found:
        raise DeviceError(NO_ADAPTER)
    return tuple(sorted(found, key=lambda a: ORDER.index(kind(a)) if kind(a) in ORDER else len(ORDER)))


def kind(adapter: Any) -> str:
    """What an adapter is: one of ORDER."""
    return str(adapter.info["adapter_type"])


def missing() -> str:
    """Why there is no WebGPU device, or ""."""
    return why_not(adapters)


def about(adapter: Any) -> tuple[str, str]:
    """Driver and compiler of an adapter, each in one line."""
    info = adapter.info
    return f"{info['device']}, {info['backend_type']}, {info['description']}", f"wgpu {wgpu().__version__}"


def opened(adapter: Any) -> Any:
    """A device with all of the adapter's limits, and the features that are wanted and there."""
    features = [f for f in WANTED if f in adapter.features]
    limits = {k: adapter.limits[k] for k in LIMITS if k in adapter.limits}
    limits[BINDING] = min(limits[BINDING], MOST_BYTES)
    return adapter.request_device_sync(required_features=features, required_limits=limits)


def module_of(device: Any, source: str) -> Any:
    """The shader module of a source. Raises CompileError with wgpu's message and the line it names."""
    try:
        return device.create_shader_module(code=source)
    except wgpu().GPUError as error:
        raise CompileError(refusal(str(error), source)) from None


def refusal(message: str, source: str) -> str:
    """What wgpu says, with the line it names."""
    return complaint("WebGPU", message, source, PLACE)


def check(name: str, program: tuple[UOp, ...], target: Target, lang: WGSL) -> None:
    """Raise CompileError for what adapters may lack: bindings."""
    buffers = [u for u in program if u.op == "PARAM" and u.arg.name is None]
    together = joined(buffers, lang)
    if len(buffers) - len(together) + bool(together) > lang.most_buffers:
        expected = f"at most {lang.most_buffers} on {target.name}: .contiguous() in the middle of the expression"
        raise CompileError(f"{name}: too many buffers of 64 bits", expected=expected, found=len(buffers))

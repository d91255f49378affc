"""Find WebGPU adapters, open them, and compile WGSL to shader modules with wgpu-native.

What it is for: it lists adapters, reports why there are none, opens an adapter with its largest limits, and reports
errors with their source line. What it does not do: it does not import wgpu or list adapters before a device is opened,
which takes half a second. Invariant: each error of wgpu becomes an error of monolect's own.
"""

from __future__ import annotations

import functools
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from monolect.backend.common.diagnostics import compiler_message
from monolect.backend.common.workgroups import unavailable_reason
from monolect.backend.webgpu.render import WGSL, joined_offsets
from monolect.base.errors import CompileError, DeviceError, MissingExtraError
from monolect.base.target import Target
from monolect.ir.uop import UOp

JOINED = re.compile(
    r"is joined: (\d+) at (\d+), (\d+) bytes, (\w+)"
)  # groups of the comments by `render`: slot, byte offset, bytes, "written" or "read"
# groups: line number, message; the message comes before the position, hence the lookahead
ERROR_PATTERN = r"error: (?=[^\n]*\n[^\n:]*:(\d+):\d+)([^\n]*)"
NO_ADAPTER = (
    "no WebGPU adapter: install a driver for Vulkan, such as Mesa's for the processor "
    "(Debian: apt-get install mesa-vulkan-drivers)"
)
BACKENDS = ("Vulkan", "Metal", "DX12")  # without OpenGL, which lacks features that kernels need
OPTIONAL_FEATURES = (
    "shader-f16",
    "shader-int64",
    "shader-f64",
)  # enabled if present; the last two are extensions of wgpu-native
BINDING = "max-storage-buffer-binding-size"
MAX_BINDING_BYTES = (1 << 31) - 4  # of a bound buffer; `HIDDEN_ZERO` in `render` requires less than 2 GiB
LIMITS = (
    "max-storage-buffers-per-shader-stage", BINDING, "max-buffer-size",
    "max-compute-workgroup-storage-size", "max-compute-invocations-per-workgroup", "max-compute-workgroup-size-x",
    "max-compute-workgroup-size-y", "max-compute-workgroup-size-z", "max-compute-workgroups-per-dimension",
    "min-storage-buffer-offset-alignment",
)  # fmt: skip
ADAPTER_ORDER = (
    "DiscreteGPU",
    "IntegratedGPU",
    "Unknown",
    "CPU",
)  # adapters are numbered in this order; other types come last


def wgpu() -> Any:
    """Return the package wgpu. Raises MissingExtraError if it is not installed."""
    try:
        import wgpu
    except ImportError:
        raise MissingExtraError("wgpu", "webgpu") from None
    return wgpu


@contextmanager
def session_folder() -> Iterator[None]:
    """Set XDG_RUNTIME_DIR while the context is open if it is unset: drivers print an error without it."""
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
    """Return all adapters, GPUs before processors. Raises MissingExtraError, or DeviceError if there is none."""
    package = wgpu()
    try:
        from wgpu.backends.wgpu_native import extras

        extras.set_instance_extras(backends=BACKENDS)
    except (ImportError, AttributeError, KeyError, RuntimeError):
        pass  # another version of wgpu, or its instance exists already: it then lists adapters of all its backends
    try:
        with session_folder():
            found = package.gpu.enumerate_adapters_sync()
        found = [a for a in found if a.info["backend_type"] in (*BACKENDS, "D3D12")]
    except (package.GPUError, RuntimeError, OSError) as error:
        raise DeviceError(f"{NO_ADAPTER} ({error})") from None
    if not found:
        raise DeviceError(NO_ADAPTER)
    return tuple(
        sorted(
            found,
            key=lambda a: (
                ADAPTER_ORDER.index(adapter_type(a)) if adapter_type(a) in ADAPTER_ORDER else len(ADAPTER_ORDER)
            ),
        )
    )


def adapter_type(adapter: Any) -> str:
    """Return the type of an adapter, such as "DiscreteGPU"; see ADAPTER_ORDER."""
    return str(adapter.info["adapter_type"])


def missing() -> str:
    """Return the reason why no WebGPU device is available, or "" if one is."""
    return unavailable_reason(adapters)


def about(adapter: Any) -> tuple[str, str]:
    """Return descriptions of an adapter's driver and compiler, each in one line."""
    info = adapter.info
    return f"{info['device']}, {info['backend_type']}, {info['description']}", f"wgpu {wgpu().__version__}"


def open_device(adapter: Any) -> Any:
    """Open an adapter as a wgpu device with the adapter's limits and those OPTIONAL_FEATURES that it has."""
    features = [f for f in OPTIONAL_FEATURES if f in adapter.features]
    limits = {k: adapter.limits[k] for k in LIMITS if k in adapter.limits}
    limits[BINDING] = min(limits[BINDING], MAX_BINDING_BYTES)
    return adapter.request_device_sync(required_features=features, required_limits=limits)


def build_module(device: Any, source: str) -> Any:
    """Compile WGSL to a shader module. Raises CompileError with wgpu's message and the line it reports."""
    try:
        return device.create_shader_module(code=source)
    except wgpu().GPUError as error:
        raise CompileError(diagnostic(str(error), source)) from None


def diagnostic(message: str, source: str) -> str:
    """Return wgpu's error message with the text of the line that it reports."""
    return compiler_message("WebGPU", message, source, ERROR_PATTERN)


def check(name: str, program: tuple[UOp, ...], target: Target, lang: WGSL) -> None:
    """Raise CompileError if a program has more buffers than the adapter can bind, even with some of them joined."""
    buffers = [u for u in program if u.op == "PARAM" and u.arg.name is None]
    together = joined_offsets(buffers, lang)
    if len(buffers) - len(together) + bool(together) > lang.most_buffers:
        expected = f"at most {lang.most_buffers} on {target.name}: .contiguous() in the middle of the expression"
        raise CompileError(f"{name}: too many buffers of 64 bits", expected=expected, found=len(buffers))


__all__ = [
    "JOINED",
    "about",
    "adapter_type",
    "adapters",
    "build_module",
    "check",
    "diagnostic",
    "missing",
    "open_device",
    "session_folder",
    "wgpu",
]

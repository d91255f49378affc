"""The devices: one row a target, opened on first use.

`Device["cpu"]` opens, `Device.default` is the setting DEVICE, `Device.present()` says what is there and why not.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from monolect.base.errors import DeviceError, nearest
from monolect.base.settings import settings

# target -> the module of its device and the class; imported when the device is opened
TARGETS: dict[str, tuple[str, str]] = {
    "cpu": ("monolect.backend.cpu.runtime", "CpuDevice"),
    "c": ("monolect.backend.c.runtime", "CDevice"),
    "opencl": ("monolect.backend.opencl.runtime", "OpenCLDevice"),
    "webgpu": ("monolect.backend.webgpu.runtime", "WebGPUDevice"),
    "cuda": ("monolect.backend.cuda.runtime", "CudaDevice"),
    "python": ("monolect.backend.python.runtime", "PythonDevice"),
    "null": ("monolect.backend.null.runtime", "NullDevice"),
    "disk": ("monolect.backend.disk.runtime", "DiskDevice"),
}


class Registry:
    """Opens devices by name. Example: `Device["cpu"].target.n_threads`."""

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}

    @property
    def default(self) -> str:
        """The name of the device new tensors live on: the setting DEVICE."""
        return self.canonical(settings.DEVICE)

    def canonical(self, name: str) -> str:
        """`name` in the form used everywhere: lower case but for a disk's path. Raises DeviceError."""
        if not isinstance(name, str):
            raise DeviceError("not a device name", expected="a string such as 'cpu'", found=repr(name))
        target, sep, rest = name.partition(":")
        target = target.lower()
        if target not in TARGETS:
            expected = nearest(target, TARGETS) or "one of " + ", ".join(TARGETS)
            raise DeviceError("unknown device", expected=expected, found=repr(name))
        if target == "disk" and not rest:
            raise DeviceError("a disk device needs a path", expected="'disk:/path/to/file'", found=repr(name))
        if target == "disk":
            return f"disk:{rest}"
        return target if not sep or rest == "0" else f"{target}:{rest}"

    def __getitem__(self, name: str) -> Any:
        dev = self._open.get(name) if isinstance(name, str) else None
        if dev is None:
            canonical = self.canonical(name)
            dev = self._open.get(canonical)
            if dev is None:
                module, cls = TARGETS[canonical.partition(":")[0]]
                dev = getattr(import_module(module), cls)(canonical)
                if not canonical.startswith("disk:"):
                    self._open[canonical] = dev
        return dev

    def present(self) -> dict[str, str]:
        """For each target "" when it can be used here, otherwise what is missing."""
        out = {}
        for name, (module, cls) in TARGETS.items():
            missing = getattr(getattr(import_module(module), cls), "missing", None)
            out[name] = missing() if missing is not None else ""
        return out

    def about(self, name: str) -> str:
        """Driver and compiler of a target that is present, "" for one that has neither."""
        module, cls = TARGETS[name]
        about = getattr(getattr(import_module(module), cls), "about", None)
        return about() if about is not None else ""


Device = Registry()

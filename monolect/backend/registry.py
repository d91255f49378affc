"""Open devices by name at their first use; one row per target.

`Device["cpu"]` opens a device, `Device.default` is the setting DEVICE, `Device.present()` tells for each target what is
missing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from monolect.base.errors import DeviceError, nearest
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.collective import is_of_a_process

# target -> (module, class) of its devices; imported when a device is opened
TARGETS: dict[str, tuple[str, str]] = {
    "cpu": ("monolect.backend.cpu.runtime", "CpuDevice"),
    "c": ("monolect.backend.c.runtime", "CDevice"),
    "opencl": ("monolect.backend.opencl.runtime", "OpenCLDevice"),
    "webgpu": ("monolect.backend.webgpu.runtime", "WebGPUDevice"),
    "cuda": ("monolect.backend.cuda.runtime", "CudaDevice"),
    "hip": ("monolect.backend.hip.runtime", "HipDevice"),
    "metal": ("monolect.backend.metal.runtime", "MetalDevice"),
    "python": ("monolect.backend.python.runtime", "PythonDevice"),
    "mpi": ("monolect.backend.mpi.runtime", "MpiDevice"),
    "null": ("monolect.backend.null.runtime", "NullDevice"),
    "disk": ("monolect.backend.disk.runtime", "DiskDevice"),
}


DISK_PREFIX = "disk:"  # prefix of the name of a device that is a file


def is_on_disk(device: Any) -> bool:
    """Whether the name of a device is that of a file."""
    return device.__class__ is str and device.startswith(DISK_PREFIX)


class Registry:
    """Open devices by name, each once.

    >>> Device["cpu"] is Device["CPU:0"]
    True
    """

    def __init__(self) -> None:
        self._open: dict[str, Any] = {}
        self._own: dict[str, Any] = {}  # name -> class that `register` added

    def __reduce__(self) -> str:
        return "Device"  # pickle refers to the one instance

    def register(self, name: str, device: Any) -> None:
        """Register a user's device: `Device["name"]` opens `device("name")`, `Device["name:1"]` another one.

        Raises DeviceError for a name that is not a lower-case identifier, or that a target of monolect has.
        `docs/how-to/add-a-device.md` builds a device.

        >>> Device.register("cpu", object)
        Traceback (most recent call last):
        monolect.base.errors.DeviceError: the name of a device of monolect
        ...
        """
        if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
            raise DeviceError("not a name for a device", expected="lower-case letters and digits", found=repr(name))
        if name in TARGETS:
            raise DeviceError("the name of a device of monolect", expected="another name", found=repr(name))
        self._own[name] = device
        self._open = {k: d for k, d in self._open.items() if k.partition(":")[0] != name}

    def targets(self) -> list[str]:
        """Return the names of all targets.

        >>> Device.targets()[:2]
        ['cpu', 'c']
        """
        return [*TARGETS, *self._own]

    def device_class(self, target: str) -> Any:
        """Import and return the class of a target's devices.

        >>> Device.device_class("null").__name__
        'NullDevice'
        """
        if target in self._own:
            return self._own[target]
        module, name = TARGETS[target]
        return getattr(import_module(module), name)

    @property
    def default(self) -> str:
        """The name of the device of new tensors: the setting DEVICE.

        >>> Device.default
        'cpu'
        """
        return self.canonical(settings.DEVICE)

    def canonical(self, name: str) -> str:
        """Return the canonical form of a device name: lower case except for a disk's path, and without ":0".

        Raises DeviceError for an unknown target, a disk without a path, or a name that is not a string.

        >>> Device.canonical("CPU:0"), Device.canonical("cuda:1")
        ('cpu', 'cuda:1')
        """
        if not isinstance(name, str):
            raise DeviceError("not a device name", expected="a string such as 'cpu'", found=repr(name))
        target, sep, rest = name.partition(":")
        target = target.lower()
        if target not in TARGETS and target not in self._own:
            expected = nearest(target, self.targets()) or "one of " + ", ".join(self.targets())
            raise DeviceError("unknown device", expected=expected, found=repr(name))
        if target == "disk" and not rest:
            raise DeviceError("a disk device needs a path", expected="'disk:/path/to/file'", found=repr(name))
        if target == "disk":
            return DISK_PREFIX + rest
        return target if not sep or rest == "0" else f"{target}:{rest}"

    def __getitem__(self, name: str) -> Any:
        dev = self._open.get(name) if isinstance(name, str) else None
        if dev is None:
            canonical = self.canonical(name)
            dev = self._open.get(canonical)
            if dev is None:
                dev = self.device_class(canonical.partition(":")[0])(canonical)
                if not is_on_disk(canonical):
                    self._open[canonical] = dev
        return dev

    def present(self) -> dict[str, str]:
        """Return for each target "" if it can be used here, else a text on what is missing.

        >>> Device.present()["cpu"]
        ''
        """
        out = {}
        for name in self.targets():
            missing = getattr(self.device_class(name), "missing", None)
            out[name] = missing() if missing is not None else ""
        return out

    def about(self, name: str) -> tuple[str, str]:
        """Return (driver, compiler) of a target that is present, "" where it has none.

        >>> Device.about("null")
        ('', '')
        """
        about = getattr(self.device_class(name), "about", None)
        driver, compiler = about() if about is not None else ("", "")
        return driver, compiler


Device = Registry()


def is_here(name: str) -> bool:
    """Whether the device `name` is of this process, and not of another process of the job."""
    return process_of(name) is None or bool(Device[name].is_here)


def process_of(name: str) -> int | None:
    """Return the rank of the process of the device `name`; None if each process has such a device."""
    return int(Device[name].rank) if is_of_a_process(name) else None


def maker_of(devices: tuple[str, ...]) -> str:
    """Return the device that makes values which then go to several devices: the first of them, or `cpu`, which
    each process has, for devices of several processes.
    """
    return devices[0] if process_of(devices[0]) is None else "cpu"


def target_of(devices: str | tuple[str, ...] | None) -> Target:
    """Return the target of a device, of the first of several devices, or of the default device for None."""
    name = devices[0] if isinstance(devices, tuple) else devices or Device.default
    target: Target = Device[name].target
    return target


__all__ = [
    "DISK_PREFIX",
    "Device",
    "Registry",
    "TARGETS",
    "is_here",
    "is_on_disk",
    "maker_of",
    "process_of",
    "target_of",
]

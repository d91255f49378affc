"""Map a file into memory as a buffer: the device `disk:/path`. Reading a slice touches only its pages.

`tensor/devices/files.py` writes files. Kernels do not run on this device: a value is moved to a computing device
first (`t.to("cpu")`), and that kernel reads the mapping.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.backend.common.host import memory
from monolect.base.errors import DeviceError, FileFormatError
from monolect.base.target import Target


class DiskDevice:
    """A device that is one file."""

    def __init__(self, name: str):
        self.name = name
        self.path = name.partition(":")[2]
        self.target = Target(name="disk", native=frozenset(), key="disk")

    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)
    space = memory.HOST

    def open(self) -> memory.Memory:
        """Map the file's bytes read-only. Raises FileFormatError where it cannot be mapped."""
        try:
            return memory.from_array(np.memmap(self.path, dtype=np.uint8, mode="r"))
        except (OSError, ValueError) as e:
            raise FileFormatError(f"cannot map {self.path}: {e}", expected="a readable, non-empty file") from None

    def _refuse(self, *args: Any) -> Any:
        raise DeviceError(
            "a disk device holds data and computes nothing", expected="t.to('cpu') before computing", found=self.name
        )

    alloc = compile = lookup = encode = _refuse


__all__ = ["DiskDevice"]

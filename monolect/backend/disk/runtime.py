"""The disk device: a memory-mapped file as a buffer. `disk:/path` opens it; reading a slice touches only its pages.
`tensor/methods/files.py` writes.

Kernels do not run here: a value is moved to a computing device first (`t.to("cpu")`), and that kernel reads the
mapping.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from monolect.backend.common.host import memory
from monolect.base.errors import DeviceError, FileFormatError
from monolect.base.target import Target


class DiskDevice:
    """One file."""

    def __init__(self, name: str):
        self.name = name
        self.path = name.partition(":")[2]
        self.target = Target(name="disk", native=frozenset(), key="disk")

    from_array = staticmethod(memory.from_array)
    copy = staticmethod(memory.copy)
    space = memory.HOST

    def open(self) -> memory.Memory:
        """The file's bytes, mapped read-only. Raises FileFormatError when it cannot be mapped."""
        try:
            return memory.from_array(np.memmap(self.path, dtype=np.uint8, mode="r"))
        except (OSError, ValueError) as e:
            raise FileFormatError(f"cannot map {self.path}: {e}", expected="a readable, non-empty file") from None

    def _refuse(self, *args: Any) -> Any:
        raise DeviceError(
            "a disk device holds data and computes nothing", expected="t.to('cpu') before computing", found=self.name
        )

    alloc = compile = lookup = encode = _refuse

"""An exported folder, built by a compiler of C and called in this process."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

COMPILERS = (("gcc",), ("clang-22", "clang-21", "clang-20", "clang-19", "clang"))


def compilers() -> list[str]:
    """One gcc and one clang, as far as they are there."""
    first = (next(filter(shutil.which, names), "") for names in COMPILERS)
    return [c for c in first if c]


def build(folder: Path, compiler: str = "", flags: str = "") -> None:
    """Run the Makefile. Raises RuntimeError with what it said."""
    words = ["make", "-s", "-C", str(folder), "clean", "all"]
    words += [f"CC={compiler}"] * bool(compiler) + [f"CFLAGS={flags}"] * bool(flags)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr.strip():
        raise RuntimeError(done.stderr + done.stdout)


class Program:
    """The library of a folder. Each object has memory of its own."""

    def __init__(self, folder: Path, name: str = "model") -> None:
        library = folder / f"lib{name}.so"
        copy = folder / f"lib{name}-{len([*folder.iterdir()])}.so"  # a library is loaded once
        shutil.copy(library, copy)
        self.library, self.name, self.folder = ctypes.CDLL(str(copy)), name, folder
        self.error: Any = getattr(self.library, f"{name}_error")
        self.error.restype = ctypes.c_char_p
        self.run: Any = getattr(self.library, f"{name}_step")
        self.init()

    def init(self) -> None:
        """Read the weights, and start over."""
        weights = self.folder / f"{self.name}.weights"
        self.check(getattr(self.library, f"{self.name}_init")(str(weights).encode()))

    def check(self, code: int) -> None:
        if code:
            raise RuntimeError(self.error(code).decode())

    @staticmethod
    def words(values: Sequence[Any]) -> list[Any]:
        """Arrays and sizes as arguments of C."""
        return [ctypes.c_void_p(v.ctypes.data) if isinstance(v, np.ndarray) else ctypes.c_int64(v) for v in values]

    def __call__(self, *values: Any) -> None:
        """One step on arrays and sizes, in the order of the header."""
        self.check(self.run(*self.words(values)))


__all__ = ["Program", "build", "compilers"]

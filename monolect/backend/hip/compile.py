"""Compile HIP C++ to AMD code objects by a clang with AMD's code generator and lld; ROCm is not needed.

What it does not do: it does not load the code; the driver does. Invariant: equal keys and equal source give equal code.
"""

from __future__ import annotations

import functools
import os
import shutil

from monolect.backend.common.external_compiler import compiled, run
from monolect.base.errors import CompileError
from monolect.base.settings import settings

ARCHITECTURES = ("gfx90a", "gfx942", "gfx1100", "gfx1201")
NAMES = ("clang-22", "clang-21", "clang-20", "clang-19", "clang")
# -ffp-contract=off: only the optimizer fuses products and sums to multiply-adds
FLAGS = (
    "-x hip --cuda-device-only -nogpuinc -nogpulib --no-gpu-bundle-output -std=c++20 -O3 -ffp-contract=off "
    "-fno-math-errno -fuse-cuid=none -w"
).split()


class Compiler:
    """Clang for one architecture, such as "gfx942". Raises CompileError if no suitable clang is found."""

    def __init__(self, arch: str, command: str | None = None):
        self.command = command or find()
        if not self.command:
            raise CompileError(missing())
        self.flags = [*FLAGS, f"--offload-arch={arch}"]
        self.key = f"{run((self.command, '--version')).stdout} {' '.join(self.flags)}"

    def compile(self, source: str) -> bytes:
        """Return the code object of a HIP source. Raises CompileError with clang's message and the line it reports."""
        return compiled((self.command, *self.flags), source)


def find() -> str:
    """Return the path of the compiler: the setting HIPCC, or the newest clang that makes code objects; "" if none."""
    if settings.HIPCC:
        return shutil.which(settings.HIPCC) or ""
    found = (path for name in NAMES if (path := shutil.which(name)))
    return next((path for path in found if _can_build(path)), "")


def missing() -> str:
    """Return the reason why no compiler for AMD GPUs is available, or "" if one is."""
    if find():
        return ""
    wanted = f"{settings.HIPCC} is not on the PATH" if settings.HIPCC else "no clang with AMD's code generator and lld"
    return f"no HIP compiler: {wanted}; install clang-19 and lld-19, or set HIPCC to a clang"


@functools.cache
def _can_build(command: str) -> bool:
    """Whether the compiler makes a code object from an empty source for the newest architecture."""
    done = run((command, *FLAGS, f"--offload-arch={ARCHITECTURES[-1]}", "-", "-o", os.devnull))
    return done.returncode == 0


__all__ = ["ARCHITECTURES", "Compiler", "find", "missing"]

"""Run LLVM's linker, a command of the system: `ld.lld` for ELF, `wasm-ld` for WebAssembly.

What it is for: code that does not run in this process: AMD's code objects, modules for a browser, libraries for another
machine. What it does not do: load code; the loader `elf` needs no linker.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from monolect.backend.common.external_compiler import run
from monolect.base.errors import CompileError

VERSIONS = ("", "-22", "-21", "-20", "-19")  # suffixes of Debian's names; the first command on the PATH is used


def find(name: str) -> str:
    """Return the path of the linker `name` ("ld.lld" or "wasm-ld"), or "" if none is installed."""
    return next((path for v in VERSIONS if (path := shutil.which(name + v))), "")


def missing(name: str) -> str:
    """Return how to install the linker `name`, or "" if it is installed."""
    return "" if find(name) else f"no {name} on the PATH; install lld, on Debian lld-19"


def link(name: str, obj: bytes, *options: str) -> bytes:
    """Link one object file and return the bytes of the output. Raises CompileError with the linker's message."""
    if reason := missing(name):
        raise CompileError(reason)
    with tempfile.TemporaryDirectory(prefix="monolect-link-") as folder:
        source, target = os.path.join(folder, "kernel.o"), os.path.join(folder, "kernel")
        with open(source, "wb") as file:
            file.write(obj)
        done = run([find(name), *options, source, "-o", target])
        if done.returncode:
            raise CompileError(f"{name}: {done.stderr.strip() or done.returncode}")
        with open(target, "rb") as file:
            return file.read()


__all__ = ["find", "link", "missing"]

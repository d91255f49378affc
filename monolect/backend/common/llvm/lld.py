"""LLVM's linker as a command of the system: `ld.lld` for ELF, `wasm-ld` for WebAssembly.

What it is for: code that is not for this process: AMD's code objects, modules for a browser, libraries for another
machine. What it does not do: load; the own loader (`elf`) needs no linker.
"""

from __future__ import annotations

import os
import shutil
import tempfile

from monolect.backend.common.external_compiler import run
from monolect.base.errors import CompileError

VERSIONS = ("", "-22", "-21", "-20", "-19")  # as Debian names them; the first that is there is taken


def find(name: str) -> str:
    """The path of `ld.lld` or `wasm-ld`, or ""."""
    return next((path for v in VERSIONS if (path := shutil.which(name + v))), "")


def missing(name: str) -> str:
    """Why there is no such linker, or ""."""
    return "" if find(name) else f"no {name} on the PATH; install lld, on Debian lld-19"


def link(name: str, obj: bytes, *options: str) -> bytes:
    """What the linker makes of one object file. Raises CompileError with its message."""
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

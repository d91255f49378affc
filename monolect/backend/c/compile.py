"""C source to object code, by the system's compiler.

What it is for: finding a compiler, asking it what it can do, running it. What it does not do: link; the loader of
object files does (`common.elf`). Invariant: equal keys and equal source give equal objects.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
from typing import NamedTuple

from monolect.backend.common.external_compiler import compiled, run
from monolect.backend.common.host.elf import load_object
from monolect.base.disk.cache import DiskCache
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import CompileError, ObjectFileError
from monolect.base.settings import settings

NAMES = ("clang", "gcc", "cc")
FLAGS = (
    "-std=gnu11 -O2 -march=native -ffreestanding -fPIC -fno-math-errno -fno-trapping-math -ffp-contract=off -fwrapv "
    "-fno-strict-aliasing -fno-stack-protector -fno-asynchronous-unwind-tables -fno-builtin -w"
).split()
GCC_FLAGS = ("-fno-tree-loop-distribute-patterns",)  # loops stay loops: there is no memset to call
FMA = "float f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n"  # else a library's
HALF = "_Float16 f(_Float16 x) { float y = x; return y != y ? 1 : y + 1; }\n"  # GCC asks its library whether x is nan
# the lines of /proc/cpuinfo that say what -march=native stands for
PROCESSOR = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")


class Facts(NamedTuple):
    """What a compiler says about itself."""

    version: str
    processor: str  # a short name for what -march=native stands for
    has_half: bool  # whether it knows `_Float16` for this processor, without a library for it
    has_fma: bool  # whether the processor has a multiply-add that rounds once


class Compiler:
    """One C compiler. Raises CompileError where there is none."""

    def __init__(self, command: str | None = None) -> None:
        self.command = command or find()
        if not self.command:
            raise CompileError(missing())
        self.facts = facts(self.command)
        self.flags = flags_for(self.facts.version)

    @property
    def key(self) -> str:
        """Everything but the source that an object depends on."""
        return f"c {self.facts.version} {' '.join(self.flags)} {self.facts.processor}"

    def compile(self, source: str) -> bytes:
        """The object file of a source. Raises CompileError with the compiler's message and the line it names."""
        return compile_with(self.command, self.flags, source)


def find() -> str:
    """The path of the compiler: the setting CC, or the first of clang, gcc and cc that is installed; "" if none."""
    names = (settings.CC,) if settings.CC else NAMES
    return next((path for name in names if (path := shutil.which(name))), "")


def missing() -> str:
    """Why there is no C compiler, or ""."""
    if find():
        return ""
    wanted = settings.CC or "clang or gcc"
    return f"no C compiler: {wanted} is not on the PATH; install clang or gcc, or set CC to one"


def flags_for(version: str) -> list[str]:
    """The flags for a compiler that calls itself so."""
    return [*FLAGS, *(() if "clang" in version else GCC_FLAGS)]


def compile_with(command: str, flags: list[str], source: str) -> bytes:
    """The object file of a source, see `Compiler.compile`."""
    return compiled([command, *flags, "-c", "-x", "c"], source)


@functools.cache
def facts(command: str) -> Facts:
    """The facts of a compiler, kept on disk while its file and the processor stay: asking takes long."""
    key, cache = _identity(command), DiskCache("c")
    kept = cache.get(key) if key else None
    if kept is not None:
        return Facts(*json.loads(kept))
    found = ask(command)
    if key:
        cache.put(key, json.dumps(found).encode())
    return found


def ask(command: str) -> Facts:
    """The facts of a compiler, from itself. Raises CompileError when it cannot be run."""
    version = run([command, "--version"]).stdout
    processor = run([command, "-march=native", "-E", "-dM", "-x", "c", os.devnull]).stdout
    has_half, has_fma = (_loads(command, version, source) for source in (HALF, FMA))
    return Facts(version, blake2b(processor.encode(), digest_size=8).hexdigest(), has_half, has_fma)


def _loads(command: str, version: str, source: str) -> bool:
    """Whether `source` compiles to code that calls no library."""
    try:
        load_object(compile_with(command, flags_for(version), source))
    except (CompileError, ObjectFileError):
        return False
    return True


def _identity(command: str) -> str:
    """A name for a compiler on this processor, by its path, size and time of change; "" where it cannot be told."""
    try:
        file = os.stat(command)
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            first = info.read(1 << 14).partition("\n\n")[0]
    except OSError:
        return ""
    processor = [line for line in first.splitlines() if line.startswith(PROCESSOR)]
    return "\n".join(
        ["facts", command, f"{file.st_size} {file.st_mtime_ns}", *FLAGS, *GCC_FLAGS, HALF, FMA, *processor]
    )

"""Compile C source to an object file with the system's compiler.

What it is for: it finds a compiler, probes its features and runs it. What it does not do: it does not link; the ELF
loader does (`common.host.elf`). Invariant: equal keys and equal source give equal objects.
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
# keeps GCC from replacing loops by calls of memset, which is not linked
GCC_FLAGS = ("-fno-tree-loop-distribute-patterns",)
# sources whose object files call library functions where the processor lacks the feature; GCC does for `y != y`
FMA_PROBE = "float f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n"
HALF_PROBE = "_Float16 f(_Float16 x) { float y = x; return y != y ? 1 : y + 1; }\n"
# first words of the lines of /proc/cpuinfo that determine what -march=native means
CPUINFO_FIELDS = ("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")


class CompilerFacts(NamedTuple):
    """The version of a compiler and the features of its code for this processor."""

    version: str
    processor: str  # hash of the macros that -march=native defines
    has_half: bool  # `_Float16` compiles for this processor without library calls
    has_fma: bool  # the processor has a fused multiply-add, which rounds once


class Compiler:
    """One C compiler: by default the one that `find` returns. Raises CompileError if none is installed."""

    def __init__(self, command: str | None = None) -> None:
        self.command = command or find()
        if not self.command:
            raise CompileError(missing())
        self.facts = facts(self.command)
        self.flags = flags_for(self.facts.version)

    @property
    def key(self) -> str:
        """Cache key of everything except the source that determines the object file."""
        return f"c {self.facts.version} {' '.join(self.flags)} {self.facts.processor}"

    def compile(self, source: str) -> bytes:
        """Return the object file of a C source. Raises CompileError with the compiler's message and the faulty line."""
        return compile_with(self.command, self.flags, source)


def find() -> str:
    """Return the path of the compiler: the setting CC, or the first of clang, gcc and cc on the PATH; "" if none."""
    names = (settings.CC,) if settings.CC else NAMES
    return next((path for name in names if (path := shutil.which(name))), "")


def missing() -> str:
    """Return the reason why no C compiler is available, or "" if one is."""
    if find():
        return ""
    wanted = settings.CC or "clang or gcc"
    return f"no C compiler: {wanted} is not on the PATH; install clang or gcc, or set CC to one"


def flags_for(version: str) -> list[str]:
    """Return the flags for a compiler whose `--version` output is `version`."""
    return [*FLAGS, *(() if "clang" in version else GCC_FLAGS)]


def compile_with(command: str, flags: list[str], source: str) -> bytes:
    """Return the object file that the compiler `command` makes of a C source. Raises CompileError with its message."""
    return compiled([command, *flags, "-c", "-x", "c"], source)


@functools.cache
def facts(command: str) -> CompilerFacts:
    """Return the facts of a compiler, cached on disk until its file or the processor changes, as probing is slow."""
    key, cache = _facts_key(command), DiskCache("c")
    stored = cache.get(key) if key else None
    if stored is not None:
        return CompilerFacts(*json.loads(stored))
    found = probe(command)
    if key:
        cache.put(key, json.dumps(found).encode())
    return found


def probe(command: str) -> CompilerFacts:
    """Run the compiler to find its version and features. Raises CompileError if it cannot be run."""
    version = run([command, "--version"]).stdout
    processor = run([command, "-march=native", "-E", "-dM", "-x", "c", os.devnull]).stdout
    has_half, has_fma = (_is_self_contained(command, version, source) for source in (HALF_PROBE, FMA_PROBE))
    return CompilerFacts(version, blake2b(processor.encode(), digest_size=8).hexdigest(), has_half, has_fma)


def _is_self_contained(command: str, version: str, source: str) -> bool:
    """Whether `source` compiles to an object file without references to library functions."""
    try:
        load_object(compile_with(command, flags_for(version), source))
    except (CompileError, ObjectFileError):
        return False
    return True


def _facts_key(command: str) -> str:
    """Return the cache key of a compiler's facts: path, size, time of change, processor; "" if these are unreadable."""
    try:
        file = os.stat(command)
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            first = info.read(1 << 14).partition("\n\n")[0]
    except OSError:
        return ""
    processor = [line for line in first.splitlines() if line.startswith(CPUINFO_FIELDS)]
    return "\n".join(
        ["facts", command, f"{file.st_size} {file.st_mtime_ns}", *FLAGS, *GCC_FLAGS, HALF_PROBE, FMA_PROBE, *processor]
    )


__all__ = ["Compiler", "CompilerFacts", "compile_with", "facts", "find", "flags_for", "missing", "probe"]

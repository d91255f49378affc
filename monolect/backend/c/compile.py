"""C source to object code, by the system's compiler.

What it is for: finding a compiler, asking it what it can do, running it. What it does not do: link; the loader of
object files does (`common.elf`). Invariant: equal keys and equal source give equal objects.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile

from monolect.backend.common.complaint import CLANG, complaint
from monolect.backend.common.elf import load_object
from monolect.base.errors import CompileError, ObjectFileError
from monolect.base.settings import settings

NAMES = ("clang", "gcc", "cc")
FLAGS = (
    "-std=gnu11 -O2 -march=native -ffreestanding -fPIC -fno-math-errno -fno-trapping-math -ffp-contract=fast -fwrapv "
    "-fno-strict-aliasing -fno-stack-protector -fno-asynchronous-unwind-tables -fno-builtin -w"
).split()
GCC_FLAGS = ("-fno-tree-loop-distribute-patterns",)  # loops stay loops: there is no memset to call
HALF = "_Float16 f(_Float16 x) { float y = x; return y != y ? 1 : y + 1; }\n"  # GCC asks its library whether x is nan
TIMEOUT_S = 300


class Compiler:
    """One C compiler. Raises CompileError where there is none."""

    def __init__(self, command: str | None = None) -> None:
        self.command = command or find()
        if not self.command:
            raise CompileError(missing())
        self.version = _ask(self.command, "--version")
        self.flags = [*FLAGS, *(() if "clang" in self.version else GCC_FLAGS)]

    @property
    def key(self) -> str:
        """Everything but the source that an object depends on."""
        processor = _ask(self.command, "-march=native", "-E", "-dM", "-x", "c", os.devnull)
        return f"c {self.version} {' '.join(self.flags)} {hash_of(processor)}"

    @functools.cached_property
    def has_half(self) -> bool:
        """Whether the compiler knows `_Float16` for this processor, without a library for it."""
        try:
            load_object(self.compile(HALF))
        except (CompileError, ObjectFileError):
            return False
        return True

    def compile(self, source: str) -> bytes:
        """The object file of a source. Raises CompileError with the compiler's message and the line it names."""
        with tempfile.TemporaryDirectory(prefix="monolect-c-") as folder:
            target = os.path.join(folder, "kernel.o")
            done = _run([self.command, *self.flags, "-c", "-x", "c", "-", "-o", target], source)
            if done.returncode or not os.path.exists(target):
                name = os.path.basename(self.command)
                raise CompileError(complaint(name, done.stderr or done.stdout, source, CLANG))
            with open(target, "rb") as file:
                return file.read()


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


def hash_of(text: str) -> str:
    """A short name for a text."""
    from hashlib import blake2b

    return blake2b(text.encode(), digest_size=8).hexdigest()


@functools.cache
def _ask(command: str, *arguments: str) -> str:
    """What the compiler prints about itself."""
    return _run([command, *arguments], "").stdout


def _run(command: list[str], text: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileError(f"{command[0]} could not be run: {error}") from None

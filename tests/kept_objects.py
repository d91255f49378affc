"""The object files of LLVM and of the C and C++ compilers, kept from one run of the tests to the next.

Most kernels of the tests have the text that they had in the run before, and code generation took a third of the time.
The text is made anew each time; equal texts give equal objects under one key of the compiler, so what is kept hides
nothing of monolect. `conftest.py` installs it in each process of a run; with the profile `thorough`, and in processes
that tests start, compilers run each time. `pytest --cache-clear` forgets all.
"""

import os
import shutil
import zlib
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

MOST_BYTES = 512 << 20  # of a folder; what was not used for the longest time is forgotten first


class Objects:
    """A folder of objects by key. Processes and threads may use it at the same time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """Return the object of `key`, or what `make` returns. What `make` raises is not kept."""
        name = blake2b(key.encode(), digest_size=16).hexdigest()
        path = self.folder / name[:2] / name
        try:
            found = zlib.decompress(path.read_bytes())
            os.utime(path)
        except (OSError, zlib.error):  # absent, or damaged
            found = make()
            self._put(path, zlib.compress(found, 1))
        return found

    def _put(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}-{id(data)}")
        new.write_bytes(data)
        new.replace(path)

    def trim(self, most_bytes: int = MOST_BYTES) -> None:
        """Forget what was not used for the longest time, so that at most `most_bytes` stay."""
        files = []
        for path in self.folder.glob("*/*"):
            with suppress(FileNotFoundError):  # another process put it in place, or forgot it
                files.append((path.stat().st_mtime, path.stat().st_size, path))
        n = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if n <= most_bytes:
                break
            path.unlink(missing_ok=True)
            n -= size


objects: Objects | None = None  # those of this process; None: compilers run each time


def kept(key: str, make: Callable[[], bytes]) -> bytes:
    """Return the object of `key` from the run before, or what `make` returns."""
    return make() if objects is None else objects.get(key, make)


def install(folder: Path) -> Objects:
    """Keep what the devices of this process compile by LLVM and in C in `folder`. Other uses of the compilers are not
    kept, as are those of their own tests.
    """
    from monolect.backend.c.runtime import CDevice
    from monolect.backend.cpu.runtime import CpuDevice

    global objects
    objects = Objects(folder)
    for cls in (CpuDevice, CDevice):
        _keep(cls)
    return objects


def _keep(cls: Any) -> None:
    made = cls.emit

    def emit(self: Any, source: str) -> bytes:
        key = getattr(self.compiler, "key", "")  # none of a compiler that a test puts in its place
        return kept(f"{key}\n{source}", lambda: made(self, source)) if key else made(self, source)

    cls.emit = emit


def text_of(*files: str | Path) -> str:
    """What tells a compiler from others, and the headers that a source includes: their files, with their times."""
    found = [Path(shutil.which(f) or f).resolve() for f in files]
    return "\n".join(f"{f} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in found)


__all__ = ["Objects", "install", "kept", "text_of"]

"""Hash the compiler's source files, so that a cache never returns an entry that another version of the compiler made.

The hash depends only on names and contents of files, so a copy of the same source has the same hash, and an edited file
changes it even if its time does not change. Reading all files takes 10 ms. The hash is therefore cached by the files'
metadata (names, sizes, times, inodes), which take 1 ms to read.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from monolect.base.disk.cache import DiskCache
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import InternalError

COMPILED: Final = not __file__.endswith(".py")  # whether mypyc compiled this build
TARGETS = ("cpu", "c", "opencl", "cuda", "hip", "metal", "webgpu")
FOLDERS = (
    "base",
    "ir",
    "rules",
    "schedule",
    "optimize",
    "lower",
    "runtime",
    "backend/common",
    *[f"backend/{t}" for t in TARGETS],
)
_cache = DiskCache("version")


@cache
def compiler_version() -> str:
    """Return the hash of the compiler's source files.

    Raises InternalError if a compiled module is older than its source.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    files = _files(root)
    key = "\n".join([root, *sorted(f"{name} {stat}" for name, stat in files)])
    known = _cache.get(key)
    if known is None:
        known = _hash_of(root, sorted(name for name, _ in files)).encode()
        _cache.put(key, known)
    return known.decode()


def _files(root: str) -> list[tuple[str, str]]:
    """Return (name below `root`, metadata) of each source file: those in `root` itself, and those below FOLDERS."""
    out: list[tuple[str, str]] = []
    folders = [*FOLDERS, *(("autograd",) if COMPILED else ())]
    _look(root, "", out)
    while folders:
        folder = folders.pop()
        folders += _look(root, folder, out)
    return out


def _look(root: str, folder: str, out: list[tuple[str, str]]) -> list[str]:
    """Add (name, metadata) of the source files and compiled modules in a folder to `out`; return its subfolders.

    Raises InternalError if a compiled module is older than its source.
    """
    written: dict[str, int] = {}  # module -> modification time of its source
    built: dict[str, int] = {}  # module -> modification time of its compiled file
    below = []
    with os.scandir(os.path.join(root, folder)) as entries:
        for e in entries:
            if e.name.endswith((".py", ".so", ".pyd")):
                s = e.stat()
                out.append((f"{folder}/{e.name}", f"{s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}"))
                (written if e.name.endswith(".py") else built)[e.name.split(".")[0]] = s.st_mtime_ns
            elif "." not in e.name and e.name != "__pycache__" and e.is_dir():
                below.append(f"{folder}/{e.name}")
    for module, when in built.items():
        if written.get(module, 0) > when:
            raise InternalError(
                f"{folder}/{module} was compiled before its source was edited",
                expected="a new build, or none: delete the .so files",
                found=os.path.join(root, folder),
            )
    return below


def _hash_of(root: str, names: list[str]) -> str:
    """Return the hash of the names and contents of the files `names` below `root`, in hexadecimal."""
    state = blake2b(digest_size=8)
    for name in names:
        with open(root + "/" + name, "rb") as file:
            data = file.read()
        state.update(f"{name} {len(data)}\n".encode())
        state.update(data)
    return state.hexdigest()


__all__ = ["COMPILED", "compiler_version"]

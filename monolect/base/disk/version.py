"""Which compiler this is: a name for the very source files, so that a cache never serves what another one made.

The name is a hash of the files' contents, so a copy of the same source on another day has the same name, and an edited
file another one, whatever its time says. Reading all of it takes 10 ms; the name is therefore remembered under what the
file system says about the files (names, sizes, times, inodes), which takes 1 ms to ask.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from monolect.base.disk.cache import DiskCache
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import InternalError

COMPILED: Final = not __file__.endswith(".py")  # is this a build by mypyc?
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
    """Changes whenever a file of the compiler does. Raises InternalError for a compiled module that is older than its
    source.
    """
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    files = _files(root)
    key = "\n".join([root, *sorted(f"{name} {stat}" for name, stat in files)])
    known = _cache.get(key)
    if known is None:
        known = _named(root, sorted(name for name, _ in files)).encode()
        _cache.put(key, known)
    return known.decode()


def _files(root: str) -> list[tuple[str, str]]:
    """Each file by its name below `root`, and what the file system says about it: those of `root` itself, which has the
    order of the passes, and those of FOLDERS with all that is below them.
    """
    out: list[tuple[str, str]] = []
    folders = [*FOLDERS, *(("autograd",) if COMPILED else ())]
    _look(root, "", out)
    while folders:
        folder = folders.pop()
        folders += _look(root, folder, out)
    return out


def _look(root: str, folder: str, out: list[tuple[str, str]]) -> list[str]:
    """Add the files of a folder to `out`; its folders."""
    written: dict[str, int] = {}  # when, by module
    built: dict[str, int] = {}
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


def _named(root: str, names: list[str]) -> str:
    """The hash of the files' names and contents."""
    state = blake2b(digest_size=8)
    for name in names:
        with open(root + "/" + name, "rb") as file:
            data = file.read()
        state.update(f"{name} {len(data)}\n".encode())
        state.update(data)
    return state.hexdigest()

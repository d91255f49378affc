"""Which compiler this is: a name for the very source files, so that a cache never serves what an older one made."""

from __future__ import annotations

import os
from functools import cache
from typing import Final

from monolect.base.errors import InternalError
from monolect.base.hashing import blake2b

COMPILED: Final = not __file__.endswith(".py")  # is this a build by mypyc?
SHARED = ("", "base", "ir", "rules", "schedule", "optimize", "lower", "runtime")  # "": the order of the passes
FOLDERS = (*SHARED, *(f"backend/{name}" for name in ("common", "cpu", "c", "opencl", "cuda", "hip", "metal", "webgpu")))


@cache
def compiler_version() -> str:
    """Changes whenever a file of the compiler does: names, sizes and times, not contents (0.3 ms).

    Raises InternalError for a compiled module that is older than its source.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    seen = []
    for folder in FOLDERS + (("autograd",) if COMPILED else ()):
        written: dict[str, int] = {}  # when, by module
        built: dict[str, int] = {}
        with os.scandir(os.path.join(root, folder)) as entries:
            for e in entries:
                if e.name.endswith((".py", ".so", ".pyd")):
                    stat = e.stat()
                    seen.append(f"{folder}/{e.name} {stat.st_size} {stat.st_mtime_ns}")
                    (written if e.name.endswith(".py") else built)[e.name.split(".")[0]] = stat.st_mtime_ns
        for module, when in built.items():
            if written.get(module, 0) > when:
                raise InternalError(
                    f"{folder}/{module} was compiled before its source was edited",
                    expected="a new build, or none: delete the .so files",
                    found=os.path.join(root, folder),
                )
    return blake2b("\n".join(sorted(seen)).encode(), digest_size=8).hexdigest()

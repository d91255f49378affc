"""Export a captured step as a folder: plan it, encode it for a target, and write all files or none.

What it is for: `step.export(folder)` and `monolect export`. Invariant: the folder has all its files, or is unchanged.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from monolect.base.collector import collection_paused
from monolect.base.errors import ArgumentError
from monolect.capture.step import Jit
from monolect.export.c_program import c_files
from monolect.export.names import identifier
from monolect.export.wasm import wasm_files
from monolect.tensor.tensor import Tensor

TARGETS = {"c": c_files, "wasm": wasm_files}


def export(
    jit: Jit,
    folder: str | os.PathLike[str],
    *,
    target: str = "c",
    march: str = "",
    threads: int = 1,
    weights: str = "file",
    name: str = "model",
    tensors: Mapping[str, Tensor] | None = None,
    capture: int | None = None,
) -> None:
    """See `Jit.export`."""
    _choice("target", target, tuple(TARGETS))
    _choice("weights", weights, ("file", "array"))
    if name != identifier(name, "model") or name == "main":
        raise ArgumentError("export: name", expected="an identifier of C that is no keyword", found=repr(name))
    path = os.path.abspath(os.fspath(folder))
    if os.path.lexists(path) and not (os.path.isdir(path) and not os.listdir(path)):
        raise ArgumentError("export: folder", expected="a new or empty folder", found=path)
    with collection_paused():
        files = TARGETS[target](jit, name, tensors or {}, capture, march, threads, weights == "array")
    _write(path, files)


def _choice(what: str, given: Any, known: tuple[str, ...]) -> None:
    if given not in known:
        raise ArgumentError(f"export: {what}", expected=" or ".join(known), found=repr(given))


def _write(path: str, files: Mapping[str, Iterable[Any]]) -> None:
    """Write the folder `path` with `files`: into a temporary folder next to it, which is then renamed."""
    temporary = tempfile.mkdtemp(prefix=os.path.basename(path) + ".", dir=os.path.dirname(path))
    try:
        for name, parts in files.items():
            with open(os.path.join(temporary, name), "wb") as f:
                f.writelines(parts)
                f.flush()
                os.fsync(f.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o777 & ~mask)  # mkdtemp creates a folder that only its owner can read
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


__all__ = ["export"]

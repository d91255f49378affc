"""Write files atomically: a save that fails, or a process that dies, leaves the old file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def write_whole(path: str | os.PathLike[str], parts: Iterable[Any]) -> None:
    """Write the concatenated `parts` to the file `path`: write a temporary file, flush it to disk, and rename it."""
    target = os.path.abspath(os.fspath(path))
    tempfile = import_module("tempfile")  # imported late: it imports compressors and random numbers
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(target) + ".", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as f:
            f.writelines(parts)
            f.flush()
            os.fsync(f.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes files that only their owner can read
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


__all__ = ["write_whole"]

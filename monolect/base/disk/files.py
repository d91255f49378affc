"""Files written as a whole or not at all.

What it is for: a save that fails, or a process that dies, leaves what was there before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def write_whole(path: str | os.PathLike[str], parts: Iterable[Any]) -> None:
    """`parts`, one after the other, as the file `path`: written beside it, made durable, and moved over it."""
    target = os.path.abspath(os.fspath(path))
    tempfile = import_module("tempfile")  # it imports compressors and random numbers, for which only a save waits
    handle, temporary = tempfile.mkstemp(prefix=os.path.basename(target) + ".", dir=os.path.dirname(target))
    try:
        with os.fdopen(handle, "wb") as f:
            f.writelines(parts)
            f.flush()
            os.fsync(f.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes files only their owner can read
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise

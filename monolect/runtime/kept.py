"""Schedules kept on disk, so that a second process does not partition and order again what a first one did.

What it is for: a process that finds all its schedules never imports the scheduler. One kernel is read in 0.1 ms,
half of what its schedule takes to make, more are read faster; an entry is written in 0.2 ms.
What it is not: it keeps no programs (a device does) and no user's lines: whoever wants to see those makes it anew.
Invariant: what is read equals what `schedule` gives; an entry that is no schedule is a miss.
"""

from __future__ import annotations

from importlib import import_module

from monolect.base.cache import DiskCache
from monolect.base.errors import IRError, ParseError
from monolect.base.hashing import blake2b
from monolect.base.settings import settings
from monolect.base.version import compiler_version
from monolect.ir.digest import digest
from monolect.ir.packed import pack, unpack
from monolect.ir.uop import UOp, node
from monolect.runtime import profile
from monolect.schedule.result import Schedule

_cache = DiskCache("schedules")


def name_of(batch: tuple | UOp, dev: str, local_bytes: int) -> str:
    """What names a batch in every process, by its `structure` or its function; "" where it is not to be kept."""
    if (
        not settings.COMPILE_CACHE
        or settings.tracing
        or settings.checks_passes
        or settings.STOP_AFTER
        or profile.recording
    ):
        return ""
    return f"{_digest(batch)}/{dev}/{local_bytes}/{compiler_version()}"


def _digest(batch: tuple | UOp) -> str:
    if not isinstance(batch, tuple):
        return digest(batch)
    names = {u: digest(u) for u in set(batch) if u.__class__ is UOp}
    text = " ".join([names[x] if x.__class__ is UOp else repr(x) for x in batch])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def find(name: str, n_roots: int) -> Schedule | None:
    """The schedule of so many values that some process kept under that name."""
    return _read(name, n_roots) if name else None


def kept_schedule(roots: list[UOp], dev: str, local_bytes: int, name: str) -> Schedule:
    """`schedule`, from the disk where it is known there under that name, and put there where it was not."""
    found = find(name, len(roots))
    if found is None:
        found = _schedule(roots, dev, local_bytes)
        if name:
            _write(name, found)
    return found


def _schedule(roots: list[UOp], dev: str, local_bytes: int) -> Schedule:
    order = import_module("monolect.schedule.order")  # the scheduler is imported when something must be scheduled
    found: Schedule = order.schedule(roots, dev, local_bytes)
    return found


def _read(key: str, n_roots: int) -> Schedule | None:
    data = _cache.get(key)
    if data is None:
        return None
    try:
        u = unpack(data)
    except ParseError:
        return None
    if u.op != "TUPLE" or len(u.src) != 1 + n_roots or u.src[0].op != "LINEAR":
        return None
    return Schedule(u.src[0], u.src[1:])


def _write(key: str, found: Schedule) -> None:
    try:
        data = pack(node("TUPLE", (found.linear, *found.outputs)))
    except IRError:  # an argument that cannot be kept
        return
    _cache.put(key, data)


__all__ = ["find", "kept_schedule", "name_of"]

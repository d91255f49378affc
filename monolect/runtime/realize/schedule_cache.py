"""Schedules kept on disk, so that a second process does not partition and order again what a first one did.

What it is for: a process that finds all its schedules never imports the scheduler. One kernel is read in 0.1 ms,
half of what its schedule takes to make, more are read faster; an entry is written in 0.2 ms.
What it is not: it keeps no programs (a device does) and no user's lines: whoever wants to see those makes it anew.
Invariant: what is read equals what `schedule` gives; an entry that is no schedule is a miss.
"""

from __future__ import annotations

from importlib import import_module

from monolect.base.disk.cache import DiskCache
from monolect.base.disk.hashing import blake2b
from monolect.base.disk.version import compiler_version
from monolect.base.errors import IRError, ParseError
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.binary import pack, unpack
from monolect.ir.digest import digest
from monolect.ir.uop import UOp
from monolect.runtime import profile

_cache = DiskCache("schedules")


def name_of(batch: tuple | UOp, target: Target) -> str:
    """What names a batch in every process, by its `structure` or its function; "" where it is not to be kept."""
    if (
        not settings.COMPILE_CACHE
        or settings.tracing
        or settings.checks_passes
        or settings.STOP_AFTER
        or settings.DUMP
        or profile.recording
    ):
        return ""
    of_target = f"{target.name}/{target.workgroups}/{target.local_bytes}"
    return f"{_digest(batch)}/{of_target}/{compiler_version()}{settings.switches}"


def _digest(batch: tuple | UOp) -> str:
    if not isinstance(batch, tuple):
        return digest(batch)
    names = {u: digest(u) for u in set(batch) if u.__class__ is UOp}
    text = " ".join([names[x] if x.__class__ is UOp else repr(x) for x in batch])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def find(name: str, n_roots: int) -> UOp | None:
    """The schedule of that many values which some process kept under that name."""
    return _read(name, n_roots) if name else None


def kept_schedule(values: UOp, target: Target, name: str) -> UOp:
    """The schedule of a TUPLE of values, from the disk where it is known there under that name, and put there where it
    was not.
    """
    found = find(name, len(values.src))
    if found is None:
        found = import_module("monolect.pipeline").scheduled(values, target)  # imported when something is scheduled
        if name:
            _write(name, found)
    return found


def _read(key: str, n_roots: int) -> UOp | None:
    data = _cache.get(key)
    if data is None:
        return None
    try:
        u = unpack(data)
    except ParseError:
        return None
    return u if u.op == "TUPLE" and len(u.src) == n_roots else None


def _write(key: str, found: UOp) -> None:
    try:
        data = pack(found)
    except IRError:  # an argument that cannot be kept
        return
    _cache.put(key, data)


__all__ = ["find", "kept_schedule", "name_of"]

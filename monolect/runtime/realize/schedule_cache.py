"""Cache schedules on disk, so that a second process does not partition and order the same batch again.

What it is for: a process that finds all its schedules never imports the scheduler. A schedule of one kernel is read in
0.1 ms, half of the time to make it; longer ones gain more. An entry is written in 0.2 ms.
What it is not: it stores no programs (the device does) and no origins, so settings that show the user's lines bypass
it.
Invariant: a schedule that is read equals the one that the scheduler would make. An entry that cannot be parsed is a
miss.
"""

from __future__ import annotations

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
    """Return the name of a batch's schedule in the cache; "" if a setting bypasses the cache. The name is the same in
    every process. `batch`: the key of the batch, from `callify.structure`, or a TUPLE of values over PARAMs.
    """
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
    """Return the digest of `batch`, a key or a graph as in `name_of`, in hexadecimal."""
    if not isinstance(batch, tuple):
        return digest(batch)
    names = {u: digest(u) for u in set(batch) if u.__class__ is UOp}
    text = " ".join([names[x] if x.__class__ is UOp else repr(x) for x in batch])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def find(name: str, n_roots: int) -> UOp | None:
    """Return the cached schedule of `n_roots` values under `name`; None if there is none."""
    return _read(name, n_roots) if name else None


def cached_schedule(values: UOp, target: Target, name: str) -> UOp:
    """Return the schedule of a TUPLE of values from the cache; if it is not there, make it and cache it under `name`
    ("": do not cache).
    """
    found = find(name, len(values.src))
    if found is None:
        from monolect.pipeline import scheduled  # imported on a miss: it imports the whole compiler

        found = scheduled(values, target)
        if name:
            _write(name, found)
    return found


def _read(key: str, n_roots: int) -> UOp | None:
    """Return the schedule of `n_roots` values under `key`; None for a missing or corrupt entry."""
    data = _cache.get(key)
    if data is None:
        return None
    try:
        u = unpack(data)
    except ParseError:
        return None
    return u if u.op == "TUPLE" and len(u.src) == n_roots else None


def _write(key: str, found: UOp) -> None:
    """Store a schedule under `key`, unless it has an arg that cannot be serialized."""
    try:
        data = pack(found)
    except IRError:  # an arg that cannot be serialized
        return
    _cache.put(key, data)


__all__ = ["find", "cached_schedule", "name_of"]

"""Schedules kept on disk, so that a second process does not partition and order again what a first one did.

What it is for: batches of some kernels; the schedule of less is made faster than it is read.
What it is not: it keeps no programs (a device does) and no user's lines: whoever wants to see those makes it anew.
Invariant: what is read equals what `schedule` gives; an entry that is not the text of a schedule is a miss.
"""

from __future__ import annotations

from importlib import import_module

from monolect.base.cache import DiskCache
from monolect.base.errors import IRError, ParseError
from monolect.base.settings import settings
from monolect.base.version import compiler_version
from monolect.ir.digest import digest
from monolect.ir.text import parse, show
from monolect.ir.uop import UOp, node
from monolect.runtime import profile
from monolect.schedule.result import Schedule

LEAST_KERNELS = 4  # fewer are scheduled faster than they are read
_cache = DiskCache("schedules")


def kept_schedule(roots: list[UOp], dev: str, local_bytes: int) -> Schedule:
    """`schedule`, from the disk where it is known there."""
    if not settings.COMPILE_CACHE or settings.tracing or settings.VERIFY or profile.recording:
        return _schedule(roots, dev, local_bytes)
    key = f"{digest(node('SINK', tuple(roots)))}/{dev}/{local_bytes}/{compiler_version()}"
    found = _read(key, len(roots))
    if found is None:
        found = _schedule(roots, dev, local_bytes)
        if len(found.linear.src) >= LEAST_KERNELS:
            _write(key, found)
    return found


def _schedule(roots: list[UOp], dev: str, local_bytes: int) -> Schedule:
    order = import_module("monolect.schedule.order")  # the scheduler is imported when something must be scheduled
    found: Schedule = order.schedule(roots, dev, local_bytes)
    return found


def _read(key: str, n_roots: int) -> Schedule | None:
    text = _cache.get(key)
    if text is None:
        return None
    try:
        u = parse(text.decode())
    except (ParseError, UnicodeDecodeError):
        return None
    if u.op != "TUPLE" or len(u.src) != 1 + n_roots or u.src[0].op != "LINEAR":
        return None
    return Schedule(u.src[0], u.src[1:])


def _write(key: str, found: Schedule) -> None:
    try:
        text = show(node("TUPLE", (found.linear, *found.outputs)))
    except IRError:  # an argument without a text
        return
    _cache.put(key, text.encode())


__all__ = ["kept_schedule"]

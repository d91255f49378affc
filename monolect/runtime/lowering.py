"""Kernels through the passes: where the runtime meets the compiler.

`runtime/plan.py` imports it when a kernel is in no cache, so that a process which finds all its kernels does not import
the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from monolect import pipeline
from monolect.backend.base import Launch
from monolect.backend.registry import Device
from monolect.base.errors import SettingError
from monolect.base.settings import settings
from monolect.ir.uop import UOp
from monolect.pipeline import lower_kernel

READY = "merge_ranges"  # the last pass before actions are chosen


def lowered(missing: list[tuple[UOp, str]], dev: str) -> Iterator[tuple[str, str, UOp]]:
    """(name, key, LINEAR) of (kernel, key), each lowered when it is asked for."""
    for linear, (_, key) in zip(lower([s for s, _ in missing], dev), missing, strict=True):
        if linear.op != "LINEAR":
            expected = "'' to run a program, or `monolect run` to look at one"
            raise SettingError("STOP_AFTER leaves nothing to run", expected=expected, found=settings.STOP_AFTER)
        yield linear.arg.name, key, linear


def lower(sinks: list[UOp], dev: str, last: str = "") -> Iterator[UOp]:
    """Each kernel through the kernel passes, up to `last`; with BEAM its actions are searched."""
    target = Device[dev].target
    first = ""
    if settings.BEAM and not settings.STOP_AFTER:
        sinks = searched([lower_kernel(s, target, last=READY) for s in sinks], dev)
        first = "optimize"
    return (lower_kernel(s, target, first=first, last=last) for s in sinks)


def searched(sinks: list[UOp], dev: str) -> list[UOp]:
    """Kernels that are ready for `optimize`, with the actions that a search found named in their info.

    They are left alone where BEAM does not ask for a search, or the device's programs cannot be timed elsewhere.
    """
    if not settings.BEAM or settings.NOOPT:
        return sinks
    return list(import_module("monolect.runtime.search").tuned(sinks, Device[dev]))  # only a search needs processes


def _interpret(linear: UOp, args: dict[int, Any]) -> None:
    """Run a program on the Python device, in place on the arrays of `args`: how VERIFY=2 sees what a program means."""
    device = Device["python"]
    (program,) = device.compile([("verify", "verify", linear)])
    commands = device.commands([Launch(program, tuple(range(1 + max(args, default=-1))))])
    for slot in range(1 + max(args, default=-1)):
        a = args.get(slot, 0)  # a pass may have made an argument needless
        commands.bind(slot, a if isinstance(a, int) else a.ctypes.data)
    commands.launch()


pipeline.interpret_program = _interpret

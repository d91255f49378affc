"""Kernels through the passes: where the runtime meets the compiler.

`runtime/realize/plan.py` imports it when a kernel is in no cache, so that a process which finds all its kernels does
not import the compiler.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

from monolect import pipeline
from monolect.backend.base import launching
from monolect.backend.registry import Device
from monolect.base.settings import settings
from monolect.base.target import Target
from monolect.ir.uop import UOp
from monolect.pipeline import lower_kernel

READY = "merge_ranges"  # the last pass before actions are chosen


def lowered(missing: list[tuple[UOp, str]], dev: str) -> Iterator[tuple[str, str, UOp]]:
    """(name, key, LINEAR) of (kernel, key), each lowered when it is asked for. Where a search failed the key is
    another: who looks for a program whose actions were searched finds none.
    """
    sinks, first = prepared([s for s, _ in missing], dev)
    failed = import_module("monolect.runtime.search.beam").failed if first else ()
    target: Target = Device[dev].target
    target = target if target.name == dev else target._replace(name=dev)
    for s, (_, key) in zip(sinks, missing, strict=True):
        linear = lower_kernel(s, target, first=first)
        if linear.op != "LINEAR":
            raise pipeline.nothing_to_run()
        pipeline.looked_at(linear, target)
        yield linear.arg.name, f"{key}/not searched" if s in failed else key, linear


def lower(sinks: list[UOp], dev: str, last: str = "") -> Iterator[UOp]:
    """Each kernel through the kernel passes, up to `last`; with BEAM its actions are searched."""
    sinks, first = prepared(sinks, dev)
    return (lower_kernel(s, Device[dev].target, first=first, last=last) for s in sinks)


def prepared(sinks: list[UOp], dev: str) -> tuple[list[UOp], str]:
    """(kernels, the pass to begin with, "" for the first): with BEAM they are ready for `choose`, and searched."""
    if not settings.BEAM or settings.STOP_AFTER:
        return sinks, ""
    return searched([lower_kernel(s, Device[dev].target, last=READY) for s in sinks], dev), "choose"


def searched(sinks: list[UOp], dev: str) -> list[UOp]:
    """Kernels that are ready for `choose`, with the actions that a search found named in their info.

    They are left alone where BEAM does not ask for a search, or the device's programs cannot be timed elsewhere.
    """
    if not settings.BEAM or settings.NOOPT:
        return sinks
    return list(
        import_module("monolect.runtime.search.beam").tuned(sinks, Device[dev])
    )  # only a search needs processes


def _interpret(linear: UOp, args: dict[int, Any]) -> None:
    """Run a program on the Python device, in place on the arrays of `args`: how VERIFY=2 sees what a program means."""
    device = Device["python"]
    (program,) = device.compile([("verify", "verify", linear)])
    commands = device.encode(*launching((program, range(1 + max(args, default=-1)))))
    for slot in range(1 + max(args, default=-1)):
        a = args.get(slot, 0)  # a pass may have made an argument needless
        commands.bind(slot, a if isinstance(a, int) else a.ctypes.data)
    commands.launch()


pipeline.interpret_program = _interpret

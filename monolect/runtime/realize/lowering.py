"""Lower kernels through the compiler passes, on behalf of the runtime.

`runtime/realize/programs.py` imports this module when a kernel is in no cache. A process that finds all its kernels in
caches does not import the compiler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
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
    """Yield (name, key, LINEAR) for each (kernel, key), lowered lazily.

    If the BEAM search of a kernel failed, "/not searched" is appended to its key, so that a lookup of the searched
    program misses.
    """
    sinks, first = prepared([s for s, _ in missing], dev)
    failed: Collection[UOp] = ()
    if first:
        from monolect.runtime.search.beam import failed  # imported only for a search, which starts processes

    target: Target = Device[dev].target
    target = target if target.name == dev else target._replace(name=dev)
    for s, (_, key) in zip(sinks, missing, strict=True):
        linear = lower_kernel(s, target, first=first)
        if linear.op != "LINEAR":
            raise pipeline.nothing_to_run()
        pipeline.inspect_program(linear, target)
        yield linear.arg.name, f"{key}/not searched" if s in failed else key, linear


def lower(sinks: list[UOp], dev: str, last: str = "") -> Iterator[UOp]:
    """Yield each kernel lowered by the kernel passes up to `last` ("" for all). With BEAM its actions are searched
    first.
    """
    sinks, first = prepared(sinks, dev)
    return (lower_kernel(s, Device[dev].target, first=first, last=last) for s in sinks)


def prepared(sinks: list[UOp], dev: str) -> tuple[list[UOp], str]:
    """Return (kernels, name of the pass to start with). With BEAM the kernels are lowered up to `choose` and searched;
    otherwise they are unchanged and the name is "".
    """
    if not settings.BEAM or settings.STOP_AFTER:
        return sinks, ""
    return searched([lower_kernel(s, Device[dev].target, last=READY) for s in sinks], dev), "choose"


def searched(sinks: list[UOp], dev: str) -> list[UOp]:
    """Return kernels that are ready for `choose` with the actions found by a search in their KernelInfo.

    They are returned unchanged without BEAM, and if the device's programs cannot be timed in another process.
    """
    if not settings.BEAM or settings.NOOPT:
        return sinks
    from monolect.runtime.search.beam import tuned  # imported only for a search, which starts processes

    return list(tuned(sinks, Device[dev]))


def _interpret(linear: UOp, args: dict[int, Any]) -> None:
    """Run a LINEAR on the Python device, in place on the arrays of `args` (by slot). VERIFY=2 runs programs this
    way.
    """
    device = Device["python"]
    (program,) = device.compile([("verify", "verify", linear)])
    commands = device.encode(*launching((program, range(1 + max(args, default=-1)))))
    for slot in range(1 + max(args, default=-1)):
        a = args.get(slot, 0)  # a pass may have removed an argument
        commands.bind(slot, a if isinstance(a, int) else a.ctypes.data)
    commands.launch()


pipeline.interpret_program = _interpret


__all__ = ["READY", "lower", "lowered", "prepared", "searched"]

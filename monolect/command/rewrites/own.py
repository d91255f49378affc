"""Leave out the items of a step that other processes run.

Each process of a job plans the whole step. It keeps the CALLs on its own devices, and the copies from or to them: a
copy between devices of two processes is a message, which both have in the same order.

Before: LINEAR(CALL(a, B1 on mpi, ..), CALL(a, B2 on mpi:1, ..), STORE(B3 on mpi, LOAD(B2)))
After:  LINEAR(CALL(a, B1 on mpi, ..), STORE(B3 on mpi, LOAD(B2)))                          on rank 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monolect.command.forms import base_of, calls_in, home, items_of, once_of, operands_of, program_of, with_program
from monolect.ir.uop import UOp


def own(step: UOp, here: Callable[[str], bool | None]) -> UOp:
    """The pass: return `step` without the CALLs and copies that touch no device of this process.

    `here(device)`: whether a device is of this process; None for a device that each process has.
    """
    linear = program_of(step)
    first, items = once_of(linear), items_of(linear)
    touched = {c: _devices(c) for c in calls_in([*first, *items])}
    if not any(here(d) is not None for devices in touched.values() for d in devices):
        return step

    def kept(us: Sequence[UOp]) -> list[UOp]:
        return [u for u in us if not touched.get(u) or any(here(d) is not False for d in touched[u])]

    return with_program(step, kept(items), kept(first))


def _devices(item: UOp) -> list[str]:
    """Return the devices of the memory that a CALL or a copy touches."""
    bases = (b for b in map(base_of, operands_of(item)) if b.op in ("PARAM", "BUFFER") and b.arg.device is not None)
    return [home(b, "") for b in bases if home(b, "")]


__all__ = ["own"]

"""Leave out the items of a step that other processes run.

Each process of a job plans the whole step. It keeps the CALLs on its own devices, and the copies from or to them: a
copy between devices of two processes is a message, which both have in the same order.

Before: LINEAR(CALL(a, B1 on mpi, ..), CALL(a, B2 on mpi:1, ..), STORE(B3 on mpi, LOAD(B2)))
After:  LINEAR(CALL(a, B1 on mpi, ..), STORE(B3 on mpi, LOAD(B2)))                          on rank 0
"""

from __future__ import annotations

from collections.abc import Callable

from monolect.command.forms import base_of, home, items_of, operands_of, program_of, with_program
from monolect.ir.uop import UOp


def own(step: UOp, runs_here: Callable[[str], bool], default: str) -> UOp:
    """The pass: return `step` without the CALLs and copies that touch no device for which `runs_here` is true.

    `default`: the device of memory without one.
    """
    items = items_of(program_of(step))
    kept = [u for u in items if u.op not in ("CALL", "STORE") or _touches(u, runs_here, default)]
    return step if len(kept) == len(items) else with_program(step, kept)


def _touches(item: UOp, runs_here: Callable[[str], bool], default: str) -> bool:
    bases = [b for b in map(base_of, operands_of(item)) if b.op in ("PARAM", "BUFFER")]
    return not bases or any(runs_here(home(b, default)) for b in bases)


__all__ = ["own"]

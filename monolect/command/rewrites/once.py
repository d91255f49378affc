"""Hoist the items (kernel launches) of a step that depend only on constants: they run once, not at every call.

An item is hoisted if it touches only PARAMs of role "constant" or "read", or results of other hoisted items. Its
results have their own memory. Kernels that store a padded frame (`forms.is_frame`) are hoisted too, and come first:
only BUFFERs with an equal frame share that memory.

Before: LINEAR(CALL(a, B1, P3), CALL(b, P1, P0, B1))                                      P3 a constant
After:  LINEAR(LINEAR(CALL(a, B1, P3), "once"), CALL(b, P1, P0, B1))
A result is never stale: the runtime runs these items again after a constant was rebound or may have been written to.
Memory that code outside can write to at any time (`StepInfo.shared`) counts as changing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monolect.base.settings import settings
from monolect.command.forms import base_of, has_loops, is_frame, operands_of, program_of, roles, with_program, writes
from monolect.ir.uop import UOp

CONSTANT = frozenset(("read", "constant"))  # roles of PARAMs that no call changes


def once(step: UOp, is_message: Callable[[UOp], bool] = lambda c: False) -> UOp:
    """The pass: return `step` with the items that depend only on constants moved to the LINEAR "once", whose items run
    once instead of at every call.

    `is_message(c)`: whether the item `c` is a copy between processes. It stays, with the items that need its result,
    because each process decides on its own when its items "once" run again.
    """
    items = program_of(step).src
    if not settings.HOIST or not step.arg.is_replayed or not items or has_loops(items):
        return step
    given = changing(step)
    frames = [c for c in items if is_frame(c) and not _touches(c, given)]
    others = [c for c in items if not (is_frame(c) and not _touches(c, given))]
    early, late = split(others, given, [c for c in others if is_message(c)])
    return with_program(step, late, (*frames, *early))


def changing(step: UOp) -> set[int]:
    """Return the slots of the PARAMs of `step` whose contents may differ at each call."""
    shared = {*step.arg.shared}
    return {k for k, role in enumerate(roles(step)) if role not in CONSTANT or k in shared}


def split(items: Sequence[UOp], given: set[int], stay: Sequence[UOp] = ()) -> tuple[list[UOp], list[UOp]]:
    """Return (items to hoist, other items), both in the order of `items`.

    `given`: slots of PARAMs whose contents may differ at each call. An item is not hoisted if it is one of `stay`, if
    it touches one of these PARAMs, or memory that another item which is not hoisted writes.
    """
    changes: set[UOp] = {base_of(operands_of(c)[k]) for c in stay for k in writes(c)}
    late: set[int] = set()
    found = -1
    bases = [[*map(base_of, operands_of(c))] for c in items]
    while found != len(late):
        found = len(late)
        for i, c in enumerate(items):
            if i not in late and any(b in changes or (b.op == "PARAM" and b.arg.slot in given) for b in bases[i]):
                late.add(i)
                changes.update(bases[i][k] for k in writes(c))
    return [c for i, c in enumerate(items) if i not in late], [c for i, c in enumerate(items) if i in late]


def _touches(c: UOp, given: set[int]) -> bool:
    """Return whether the item `c` touches a PARAM with a slot in `given`."""
    return any(b.op == "PARAM" and b.arg.slot in given for b in map(base_of, operands_of(c)))


__all__ = ["CONSTANT", "changing", "once", "split"]

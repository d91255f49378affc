"""The part of a step that depends on nothing that changes: it runs once, not at every call.

An item runs once when all it touches is constant: constants and reads of the step, or what other such items made. Its
results are in memory of their own. So are the kernels that store a padded frame around a value, whose memory no other
value takes; they come first.

Before: LINEAR(CALL(a, B1, P3), CALL(b, P1, P0, B1))                                      P3 a constant
After:  LINEAR(LINEAR(CALL(a, B1, P3), "once"), CALL(b, P1, P0, B1))
A result is never stale: who runs the step runs this part again when a constant was bound anew, or may have been written
to. Memory that code outside can write to at any time (`StepInfo.shared`) counts as changing.
"""

from __future__ import annotations

from collections.abc import Sequence

from monolect.base.settings import settings
from monolect.command.forms import base_of, has_loops, is_frame, operands_of, program_of, roles, with_program, writes
from monolect.ir.uop import UOp

CONSTANT = frozenset(("read", "constant"))


def once(step: UOp) -> UOp:
    """The pass; see the module docstring."""
    items = program_of(step).src
    if not settings.HOIST or not step.arg.is_replayed or not items or has_loops(items):
        return step
    given = changing(step)
    frames = [c for c in items if is_frame(c) and not _touches(c, given)]
    others = [c for c in items if not (is_frame(c) and not _touches(c, given))]
    early, late = split(others, given)
    return with_program(step, late, (*frames, *early))


def changing(step: UOp) -> set[int]:
    """The slots of PARAMs that may hold something else at each call."""
    shared = {*step.arg.shared}
    return {k for k, role in enumerate(roles(step)) if role not in CONSTANT or k in shared}


def split(items: Sequence[UOp], given: set[int]) -> tuple[list[UOp], list[UOp]]:
    """The items that run once, and the others: those that touch what changes, or what one of them writes."""
    changes: set[UOp] = set()
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
    return any(b.op == "PARAM" and b.arg.slot in given for b in map(base_of, operands_of(c)))


__all__ = ["CONSTANT", "changing", "once", "split"]

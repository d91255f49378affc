"""The forms that scheduling leaves. A process that finds its schedules on disk imports this module and no scheduler."""

from __future__ import annotations

from typing import NamedTuple

from monolect.ir.uop import UOp, node


class Schedule(NamedTuple):
    """`linear` is LINEAR(CALL(SINK, buffers...), ...); `outputs` the buffer of each requested value."""

    linear: UOp
    outputs: tuple[UOp, ...]


def base(operand: UOp) -> UOp:
    """The buffer of an operand, without what it comes after."""
    while operand.op == "AFTER":
        operand = operand.src[0]
    return operand


def schedule_of(step: UOp) -> Schedule:
    """The parts of TUPLE(AFTER(BUFFER, LINEAR) or an input, ...), as the pass `order` leaves it."""
    linear = next((r.src[1] for r in step.src if r.op == "AFTER"), None)
    return Schedule(node("LINEAR") if linear is None else linear, tuple([base(r) for r in step.src]))

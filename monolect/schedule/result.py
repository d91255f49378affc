"""Define the results of scheduling, without the scheduler: a process with cached schedules imports only this module."""

from __future__ import annotations

from typing import NamedTuple

from monolect.ir.uop import UOp, node


class Schedule(NamedTuple):
    """A step to run: `linear` is LINEAR(CALL(SINK, buffers...), ...); `outputs` the buffer of each requested value."""

    linear: UOp
    outputs: tuple[UOp, ...]


def base(operand: UOp) -> UOp:
    """Return the buffer of an operand, without the AFTERs around it."""
    while operand.op == "AFTER":
        operand = operand.src[0]
    return operand


def schedule_of(step: UOp) -> Schedule:
    """Return the Schedule of a `step` TUPLE(AFTER(BUFFER, LINEAR) or an input, ...), as the pass `order` leaves it."""
    linear = next((r.src[1] for r in step.src if r.op == "AFTER"), None)
    return Schedule(node("LINEAR") if linear is None else linear, tuple([base(r) for r in step.src]))


__all__ = ["Schedule", "base", "schedule_of"]

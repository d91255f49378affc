"""Predict when the items of a step run: kernels one after the other, messages between processes in parallel.

What it is for: how much of the messages a step hides behind kernels, on this machine or on links that it does not have.
The rules are those of `runtime/realize/host_commands.py`: the host runs the items in order; a message starts once the
host reaches it and the messages before it have ended; an item waits for the messages whose memory it touches.
What it is not: a model of the processes. All of them are taken to reach each message at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from monolect.command.forms import base_of, extent, is_collective, is_scalar, operands_of, read_operand
from monolect.ir.collective import is_of_a_process
from monolect.ir.uop import UOp

Span = tuple[UOp, int, int]  # memory, first byte, end byte


def touched(item: UOp) -> list[Span]:
    """Return the bytes that the operands of a CALL or a copy occupy."""
    return [(read_operand(u).base, *extent(u)) for u in operands_of(item) if not is_scalar(u)]


def overlap(a: Sequence[Span], b: Sequence[Span]) -> bool:
    """Whether two lists of spans have a common byte."""
    return any(x[0] is y[0] and x[1] < y[2] and y[1] < x[2] for x in a for y in b)


def is_message(item: UOp) -> bool:
    """Whether `item` is a sum over processes, or a copy from one to another."""
    if item.op == "CALL":
        return is_collective(item)
    to, source = (str(base_of(u).arg.device) for u in operands_of(item))
    return to != source and (is_of_a_process(to) or is_of_a_process(source))


class Event(NamedTuple):
    """An item of a step and the seconds, from the start of the step, at which it starts and ends."""

    item: UOp
    start: float
    end: float


class Timeline(NamedTuple):
    """The events of a step in the order of its items."""

    events: tuple[Event, ...]

    @property
    def seconds(self) -> float:
        """The seconds that the step takes."""
        return max((e.end for e in self.events), default=0.0)

    @property
    def kernel_seconds(self) -> float:
        """The seconds in which the host runs kernels."""
        return sum(e.end - e.start for e in self.events if not is_message(e.item))

    @property
    def message_seconds(self) -> float:
        """The seconds in which a message is on the way."""
        return sum(e.end - e.start for e in self.events if is_message(e.item))

    @property
    def exposed(self) -> float:
        """The share of the messages that no kernel hides: 0 if all are hidden, 1 if none is."""
        return (self.seconds - self.kernel_seconds) / self.message_seconds if self.message_seconds else 0.0


def timeline(items: Sequence[UOp], seconds: Sequence[float]) -> Timeline:
    """Return when `items`, CALLs and copies, run if each takes the given seconds alone."""
    now = link_is_free = 0.0
    on_the_way: list[tuple[float, list[Span]]] = []
    events = []
    for item, s in zip(items, seconds, strict=True):
        spans = touched(item)
        if is_message(item):
            start = max(now, link_is_free)
            link_is_free = start + s
            on_the_way.append((link_is_free, spans))
        else:
            start = max([now, *(end for end, other in on_the_way if overlap(spans, other))])
            now = start + s
            on_the_way = [(end, other) for end, other in on_the_way if end > now]
        events.append(Event(item, start, start + s))
    return Timeline(tuple(events))


__all__ = ["Event", "Span", "Timeline", "is_message", "overlap", "timeline", "touched"]

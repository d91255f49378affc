"""Run the items of several devices, each in its own order, with messages that start once all have come to them.

What it is for: a program whose devices do different work, such as the stages of a pipeline: when each device is done,
and whether devices wait for each other.
What it is not: `command/timeline.py`, which has one device, whose messages start when it comes to them.

A device runs its kernels in order, and its messages in order in parallel with them. A message starts once all its
devices have reached it and their messages before it have ended; a kernel waits for the messages that it `needs`.

Before: null: a, m1, b   null:1: c, m1, d      m1 is a message from null to null:1, and d reads what it brings
After:  m1 starts when a and c have ended, b when a has ended, d when m1 has
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from monolect.base.errors import DistributedError


class Part(NamedTuple):
    """An item in the list of a device: a kernel of one of `devices`, or a message, which is in the list of each.

    `key`: the same in all lists. `seconds`: how long it takes alone. `needs`: keys of messages that must have ended.
    """

    key: int
    devices: frozenset[str]
    seconds: float
    needs: frozenset[int] = frozenset()


def ends(lists: Mapping[str, Sequence[Part]]) -> dict[str, float]:
    """Return the seconds after which each device is done with its list of items.

    Raises DistributedError if devices wait for each other, with who waits for whom.
    """
    run = _Run(lists)
    while run.advance():
        pass
    for device in lists:
        if run.awaited(device):
            found = " -> ".join(run.chain(device))
            raise DistributedError("devices wait for each other", expected="one order of the messages", found=found)
    return {d: max(run.now[d], run.link_is_free[d]) for d in lists}


class _Run:
    """How far each device has come: its time, the items of its list before `at`, and the messages that it came to and
    that have not ended, in order.
    """

    def __init__(self, lists: Mapping[str, Sequence[Part]]) -> None:
        self.lists = lists
        self.at = dict.fromkeys(lists, 0)
        self.now = dict.fromkeys(lists, 0.0)
        self.link_is_free = dict.fromkeys(lists, 0.0)
        self.open: dict[str, list[tuple[Part, float]]] = {d: [] for d in lists}
        self.ended: dict[int, float] = {}

    def advance(self) -> bool:
        """Run all kernels and messages that can run now; return whether there were any."""
        before = sum(self.at.values()) + len(self.ended)
        for d in self.lists:
            self.run_kernels(d)
        for d in self.lists:
            while self.open[d] and self.is_ready(part := self.open[d][0][0]):
                came = [self.open[e].pop(0)[1] for e in part.devices]
                start = max(
                    *came, *(self.link_is_free[e] for e in part.devices), *map(self.ended.__getitem__, part.needs)
                )
                self.ended[part.key] = start + part.seconds
                self.link_is_free.update(dict.fromkeys(part.devices, start + part.seconds))
        return sum(self.at.values()) + len(self.ended) > before

    def run_kernels(self, d: str) -> None:
        """Run the items of device `d` up to a kernel that needs a message which has not ended."""
        for part in self.lists[d][self.at[d] :]:
            if len(part.devices) > 1:
                self.open[d].append((part, self.now[d]))
            elif part.needs <= self.ended.keys():
                self.now[d] = max([self.now[d], *map(self.ended.__getitem__, part.needs)]) + part.seconds
            else:
                break
            self.at[d] += 1

    def is_ready(self, part: Part) -> bool:
        """Whether a message is the next one of all who take part."""
        return part.needs <= self.ended.keys() and all(self.is_next(part, d) for d in part.devices)

    def is_next(self, part: Part, d: str) -> bool:
        """Whether device `d` has come to the message, and has no message before it."""
        return bool(self.open[d]) and self.open[d][0][0].key == part.key

    def awaited(self, d: str) -> str:
        """Return a device that device `d` waits for; "" if it waits for none."""
        if self.open[d]:
            part = self.open[d][0][0]
            return next((e for e in sorted(part.devices) if not self.is_next(part, e)), d)
        return d if self.at[d] < len(self.lists[d]) else ""

    def chain(self, d: str) -> list[str]:
        """Return who waits for whom, from `d` on: it ends with a device that occurs before, or that waits for none."""
        out = [d]
        while (d := self.awaited(d)) and d not in out:
            out.append(d)
        return [*out, d] if d else out


__all__ = ["Part", "ends"]

"""The part of a captured step that depends on nothing that changes: run once, not at every replay.

A launch belongs to the prologue when all it touches is constant: memory that the step reads and that is no argument, no
state and no result, or what other such launches made. Its results lie in memory of their own, outside of the arena
that a replay recycles.

Why a result is never stale: memory that somebody holds is not written by us. A run stores into fresh memory, a replay
into its own, and into state only where nobody else holds it; the prologue holds its constants. What remains is outside:
NumPy arrays over the memory of a constant, or the array it was made from. Handing one out is counted, a living one is
seen by its references; a constant that may have been written to makes the prologue run again, at every replay while
such an array lives. A tensor assigned anew brings another constant (`rebind`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from monolect.backend.base import Launch
from monolect.backend.common.memory import ONE_NAME
from monolect.ir.uop import UOp
from monolect.runtime.execute import launch

WRITABLE = -1  # in place of a count: somebody outside can write at any time


class Step(NamedTuple):
    """One launch of a capture, the CALL it runs, the bytes of each buffer it writes, by number, and the kernel that its
    program was made from (None: that of the CALL). `packed`: (copy, source, layout) of each packed copy that it writes,
    two numbers of buffers and the name of a layout.
    """

    launch: Launch
    call: UOp
    written: dict[int, int]
    kernel: UOp | None = None
    packed: tuple[tuple[int, int, str], ...] = ()


def split(steps: Sequence[Step], given: set[int]) -> tuple[list[Step], list[Step]]:
    """The steps of the prologue, and the others. `given`: the numbers of arguments, state and results.

    Those change, and so does whatever is written by a step that touches what changes.
    """
    changing = set(given)
    late: set[int] = set()
    found = -1
    while found != len(late):
        found = len(late)
        for i, s in enumerate(steps):
            if i not in late and not changing.isdisjoint(s.launch.args):
                late.add(i)
                changing.update(s.written)
    early = [s for i, s in enumerate(steps) if i not in late]
    return early, [s for i, s in enumerate(steps) if i in late]


def results(early: Iterable[Step], late: Iterable[Step]) -> dict[int, int]:
    """Bytes of each buffer, by number, that the `early` steps write and the `late` ones take."""
    taken = {n for s in late for n in s.launch.args}
    return {n: n_bytes for s in early for n, n_bytes in s.written.items() if n in taken}


def writes_seen(b: UOp) -> int:
    """How often the memory of the BUFFER may have been written to from outside; WRITABLE while somebody can."""
    memory = b.storage
    return WRITABLE if sys.getrefcount(memory) > ONE_NAME + 1 or memory.is_lent() else memory.n_views


class Prologue:
    """Bound commands with the constants they read."""

    def __init__(self, device: Any, steps: Sequence[Step], constants: dict[int, UOp]):
        self.device = device
        self.launches = tuple(s.launch for s in steps)
        self.kernels = tuple(s.call for s in steps)
        self.commands = device.commands(self.launches)
        touched = {n for item in self.launches for n in item.args}
        self.constants = {n: b for n, b in constants.items() if n in touched}
        self.seen: list[int] = []
        self.has_run = False

    def rebind(self, number: int, b: UOp) -> None:
        """The constant `number` is the BUFFER `b` from now on."""
        if number in self.constants:
            self.constants[number] = b
            self.has_run = False

    def refresh(self, memory: Callable[[], Mapping[int, Any]] | None = None) -> None:
        """Run, unless every constant is what it was at the last run. With `memory`, which gives what
        `verified.run_steps` takes, compare what the launches wrote.
        """
        now = [writes_seen(b) for b in self.constants.values()]
        if self.has_run and now == self.seen and WRITABLE not in now:
            return
        if memory is None:
            launch(self.commands, self.launches, self.kernels, replayed=True)
        else:
            verified = import_module("monolect.runtime.verified")  # only who asks for it waits for it
            verified.run_steps(self.device, self.launches, self.kernels, memory(), replayed=True)
        self.seen, self.has_run = now, True


__all__ = ["Prologue", "Step", "results", "split", "writes_seen"]

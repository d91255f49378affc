"""The part of a captured step that depends on nothing that changes: run once, not at every replay.

The pass `once` finds it (`command/rewrites/once.py`); here it runs when a constant changed.

Why a result is never stale: memory that somebody holds is not written by us. A run stores into fresh memory, a replay
into its own, and into state only where nobody else holds it; the prologue holds its constants. What remains is outside:
NumPy arrays over the memory of a constant, or the array it was made from. Handing one out is counted, a living one is
seen by its references; a constant that may have been written to makes the prologue run again, at every replay while
such an array lives. A tensor assigned anew brings another constant (`rebind`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from monolect.backend.common.host.memory import ONE_NAME
from monolect.command.forms import base_of, operands_of
from monolect.ir.uop import UOp
from monolect.runtime.realize.execute import launch

WRITABLE = -1  # in place of a count: somebody outside can write at any time


def writes_seen(b: UOp) -> int:
    """How often the memory of the BUFFER may have been written to from outside; WRITABLE while somebody can."""
    memory = b.storage
    return WRITABLE if sys.getrefcount(memory) > ONE_NAME + 1 or memory.is_lent() else memory.n_views


class Prologue:
    """The items of a step that run once, encoded, with the constants they read."""

    def __init__(self, commands: Any, items: tuple[UOp, ...], constants: dict[int, UOp]):
        self.commands, self.items = commands, items
        touched = {b.arg.slot for c in items for b in map(base_of, operands_of(c)) if b.op == "PARAM"}
        self.constants = {n: b for n, b in constants.items() if n in touched}
        self.seen: list[int] = []
        self.has_run = False

    def rebind(self, number: int, b: UOp) -> None:
        """The constant `number` is the BUFFER `b` from now on."""
        if number in self.constants:
            self.constants[number] = b
            self.has_run = False

    def refresh(self, verified: Callable[[tuple[UOp, ...]], None] | None = None) -> None:
        """Run, unless every constant is what it was at the last run. `verified` runs and compares, if given."""
        now = [writes_seen(b) for b in self.constants.values()]
        if self.has_run and now == self.seen and WRITABLE not in now:
            return
        if verified is None:
            launch(self.commands, self.items, replayed=True)
        else:
            verified(self.items)
        self.seen, self.has_run = now, True


__all__ = ["WRITABLE", "Prologue", "writes_seen"]

"""Run the prologue of a captured step: the kernels that depend only on constants. They run once, and again after a
constant changed.

The pass `once` finds these kernels (`command/rewrites/once.py`).

Why a result is never stale: monolect does not write to memory with other holders. A run stores into fresh memory, a
replay into its own memory, and into state only if it has no other holder; the prologue holds its constants. Only code
outside can still write: through a NumPy array over the memory of a constant, or through the array that the constant was
made from. Handing out such an array is counted, and a live one is found by its references. A constant that may have
been written to makes the prologue run again, at every replay while such an array lives. Assigning to a tensor supplies
another constant (`rebind`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from monolect.backend.common.host.memory import ONE_REF
from monolect.command.forms import base_of, operands_of
from monolect.ir.uop import UOp
from monolect.runtime.realize.execute import launch

WRITABLE = -1  # a value of `writes_seen`: code outside monolect can write to the memory at any time


def writes_seen(b: UOp) -> int:
    """Return how many times code outside of monolect may have begun to write to the memory of the BUFFER `b`.

    Returns WRITABLE while an array over this memory is alive, through which such code can write at any time.
    """
    memory = b.storage
    return WRITABLE if sys.getrefcount(memory) > ONE_REF + 1 or memory.is_lent() else memory.n_views


class Prologue:
    """The items (kernel launches) of a step that run once, as encoded `commands` of a device, and the constants that
    they read.

    `constants`: BUFFERs by position in the command buffer, which is the slot of their PARAM.
    """

    def __init__(self, commands: Any, items: tuple[UOp, ...], constants: dict[int, UOp]):
        self.commands, self.items = commands, items
        touched = {b.arg.slot for c in items for b in map(base_of, operands_of(c)) if b.op == "PARAM"}
        self.constants = {n: b for n, b in constants.items() if n in touched}
        self.seen: list[int] = []
        self.has_run = False

    def rebind(self, number: int, b: UOp) -> None:
        """Replace the constant at position `number` by the BUFFER `b`, so that the items run again at the next
        replay.
        """
        if number in self.constants:
            self.constants[number] = b
            self.has_run = False

    def refresh(
        self,
        verified: Callable[[tuple[UOp, ...]], None] | None = None,
        memory: Callable[[], Mapping[int, Any]] = dict,
    ) -> None:
        """Run the items, unless they have run and every constant is unchanged since.

        `verified`: if given, a function that runs the items instead and compares their results with expected values.
        `memory` returns the memory at each position; it is called only for commands that bind memory objects.
        """
        now = [writes_seen(b) for b in self.constants.values()]
        if self.has_run and now == self.seen and WRITABLE not in now:
            return
        if hasattr(self.commands, "bind_memory"):
            for n, m in memory().items():
                self.commands.bind_memory(n, m)
        if verified is None:
            launch(self.commands, self.items, replayed=True)
        else:
            verified(self.items)
        self.seen, self.has_run = now, True


__all__ = ["WRITABLE", "Prologue", "writes_seen"]

"""Define what a kind of action is: its names, its legality and effect, and the moves that a search tries.

One module of this folder defines one kind; `actions/plan.py` lists all of them. Legality, application, searches,
explanations, texts and documents iterate over that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.rewrite.named_rules import Row
from monolect.ir.uop import UOp
from monolect.optimize.loops.nest import Action, LoopNest

Move = tuple[Action, ...]  # one action, or several that only make sense together: pad and split
Moves = Mapping[str, Callable[[LoopNest], Iterator[Move]]]  # by kind; a search replaces a move by others of its kind


class ActionKind:
    """One kind of action on the loops of a kernel, such as SPLIT: how it is written, when it is legal, and its effect.

    An action of the kind is a tuple (op, subject, argument).
    """

    op = ""
    forms: tuple[tuple[str, str], ...] = ()  # (how the action is written, what it does)
    rows: tuple[Row, ...] = ()  # the names that DISABLE takes, with what they do
    subject = "axis"  # what the second element numbers: an axis, a load, a store; "" if it is None
    is_final = False  # only final actions may follow
    is_loop_change = True  # the axis must exist, and no final action may come before
    may_follow_peel = False  # whether the axis may be a peeled one
    may_follow_mask_peel = False  # whether the kernel may have a loop that is peeled at a mask

    def row_name(self, action: Action) -> str:
        """Return the name by which the setting DISABLE and the tables know `action`, one of the names in `rows`."""
        return self.op

    def move_kind(self, action: Action) -> str:
        """Return the key in `moves` whose function yields actions like `action`, such as UPCAST for a SPLIT
        to UPCAST.
        """
        return self.op

    def perform(self, plan: LoopNest, subject: Any, arg: Any) -> None:
        """Perform the action (op, subject, arg) on `plan`. Raises ActionError with the rule that it breaks; the plan is
        then unchanged.

        `subject`: the index of an axis part in `plan.axes`, of a load in `plan.loads` or of a store in `plan.stores`,
        or None. `arg`: the argument of the action, as `forms` shows.
        """
        raise NotImplementedError

    @property
    def moves(self) -> Moves:
        """{kind of move: a function that yields, for a plan, the moves of that kind that a search tries}."""
        return {}


def axes_with(plan: LoopNest, *types: str) -> Iterator[tuple[int, int]]:
    """Yield (index in `plan.axes`, number of iterations) of each part that has one of the axis types `types` and more
    than one iteration.
    """
    return ((i, p.size) for i, p in enumerate(plan.axes) if p.type in types and p.size > 1)


def numbered(plan: LoopNest, op: str, what: str, found: list[UOp], number: Any) -> UOp:
    """Return `found[number]`, the LOAD or STORE for which the action `op` (PREFETCH or NONTEMPORAL) sets a flag.

    `found`: the plan's loads or stores. `what`: "load" or "store", for the error's text. Raises ActionError if there is
    no such number, if the access has a flag already, or if the target has no non-temporal stores and prefetches.
    """
    if not plan.target.streams:
        raise ActionError(op, expected="a target with stores past its caches", found=plan.target.name)
    if not isinstance(number, int) or not 0 <= number < len(found):
        raise ActionError(f"{op}: no such {what}", expected=f"0..{len(found) - 1}", found=number)
    if found[number] in plan.flags:
        raise ActionError(op, expected=f"a {what} without a flag", found=plan.flags[found[number]])
    return found[number]


__all__ = ["ActionKind", "Move", "Moves", "axes_with", "numbered"]

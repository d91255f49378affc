"""Generate the neighbours of a sequence of actions: one move more, one action dropped, or one replaced by another.

The replacement is of the same kind. An action numbers the axes that exist when it is performed, so dropping an action
would change the meaning of later ones. A Trail therefore names axes: a SPLIT leaves the name to the rest of the axis
and gives its new part a new name. If an axis no longer exists, the later actions on it are dropped, and so are actions
that became illegal.

Source: local search over the legal neighbours of a good solution.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.uop import UOp
from monolect.optimize.actions.plan import ACTIONS, Action, LoopPlan
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.search.moves import MOVES, Move, kind_of, legal_moves

AXIS_ACTIONS = frozenset(k.op for k in ACTIONS.values() if k.subject == "axis")  # for SWAP the argument is an axis, too
FINAL_ACTIONS = frozenset(k.op for k in ACTIONS.values() if k.is_final)  # only such actions may follow one of them
_fresh = count()


class NamedAction(NamedTuple):
    """An action (op, axis, arg) whose axes have names instead of numbers. `made`: the name of the part that
    it makes.
    """

    op: str
    axis: Any
    arg: Any
    made: str


class Trail:
    """A plan whose parts of axes have names (`names`, in the order of `plan.axes`), with the actions performed on it,
    recorded by those names (`steps`).
    """

    def __init__(self, sink: UOp, target: Target):
        self.plan = LoopPlan(sink, target)
        self.names = [f"axis{i}" for i in range(len(self.plan.axes))]
        self.steps: list[NamedAction] = []

    def act(self, action: Action, made: str = "") -> None:
        """Perform the action and record it by names. Raises ActionError, and changes nothing, if it is illegal.

        `made`: the name for the part that the action makes; "" for a new name.
        """
        op, axis, arg = action
        before = list(self.plan.axes)
        self.plan.act(action)
        other = self.names[arg] if op == "SWAP" else arg
        step = NamedAction(op, self.names[axis] if op in AXIS_ACTIONS else axis, other, made or f"part{next(_fresh)}")
        self.steps.append(step)
        self._rename(before, step)

    def redo(self, step: NamedAction) -> bool:
        """Perform `step`, an action that another Trail recorded; return False, and change nothing, if its axes do not
        exist here or if it is illegal.
        """
        try:
            axis = self.names.index(step.axis) if step.op in AXIS_ACTIONS else step.axis
            arg = self.names.index(step.arg) if step.op == "SWAP" else step.arg
            self.act((step.op, axis, arg), step.made)
        except (ActionError, ValueError):
            return False
        return True

    def _rename(self, old_axes: list[AxisPart], step: NamedAction) -> None:
        """Update `names` after the action `step`. Of the two parts that an action makes of one, one keeps the name of
        the old part and the other gets the name `step.made`.

        `old_axes`: the parts before the action. TC may make two new parts: steps of the matrix unit, and pairs of
        adjacent elements.
        """
        known = {id(p): name for p, name in zip(old_axes, self.names, strict=True)}
        kept = {known[id(p)] for p in self.plan.axes if id(p) in known}
        new = [*(name for name in self.names if name not in kept), step.made]
        if step.op == "TC":
            new.append(f"{step.made} pair")
        if step.op == "SPLIT" and step.arg[2]:
            new.reverse()
        fill = iter(new)
        self.names = [known[id(p)] if id(p) in known else next(fill) for p in self.plan.axes]


def extensions(sink: UOp, target: Target, actions: Move) -> Iterator[Move]:
    """Yield each sequence of actions that has one legal move more than `actions`: a final action (PACK, NONTEMPORAL,
    PREFETCH) at the end, any other before the final actions.

    Final actions of `actions` that the move makes illegal are dropped.
    """
    n = next((i for i, action in enumerate(actions) if action[0] in FINAL_ACTIONS), len(actions))
    last = _joined(sink, target, actions).steps[n:]
    for move in legal_moves(sink, target, actions[:n]):
        if move[-1][0] not in FINAL_ACTIONS:
            yield _rejoined(sink, target, actions[:n], move, last)
    for kind in MOVES.keys() & FINAL_ACTIONS:
        for move in legal_moves(sink, target, actions, kind):
            yield (*actions, *move)


def edits(sink: UOp, target: Target, actions: Move) -> Iterator[Move]:
    """Yield each sequence of actions that has one action of `actions` dropped, or replaced by a legal move of the same
    kind.

    Later actions that the change makes illegal are dropped.
    """
    steps = _joined(sink, target, actions).steps
    for i, action in enumerate(actions):
        yield _rejoined(sink, target, actions[:i], (), steps[i + 1 :])
        kind = kind_of(action)
        for move in legal_moves(sink, target, actions[:i], kind) if kind in MOVES else ():
            if move[-1] != action:
                yield _rejoined(sink, target, actions[:i], move, steps[i + 1 :], steps[i].made)


def _joined(sink: UOp, target: Target, first: Move, move: Move = (), made: str = "") -> Trail:
    """Return a new Trail of the kernel `sink` after the actions `first` and then `move`. `made`: the name for the part
    that a SPLIT in `move` makes; "" for a new name.
    """
    trail = Trail(sink, target)
    for i, action in enumerate((*first, *move)):
        trail.act(action, made if i >= len(first) and action[0] == "SPLIT" else "")
    return trail


def _rejoined(sink: UOp, target: Target, first: Move, move: Move, later: list[NamedAction], made: str = "") -> Move:
    """Return the actions `first`, then `move`, then those of `later` that are still legal, with the axes renumbered.
    `made`: as in `_joined`.
    """
    trail = _joined(sink, target, first, move, made)
    for step in later:
        trail.redo(step)
    return tuple(trail.plan.actions)


__all__ = ["NamedAction", "Trail", "edits", "extensions"]

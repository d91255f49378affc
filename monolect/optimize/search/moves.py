"""List the legal moves that a search tries next on a plan.

A move is one action, or several that only make sense together: pad and split. The kinds of actions
(`optimize.actions`) yield the moves worth timing; `LoopPlan.act` decides whether one is legal.

What it is not: a choice. `heuristic` chooses by rule, `search` by timing.
"""

from __future__ import annotations

from collections.abc import Iterable

from monolect.base.errors import ActionError
from monolect.base.target import Target
from monolect.ir.uop import UOp
from monolect.optimize.actions.kind import Move, Moves
from monolect.optimize.actions.plan import ACTIONS, Action, LoopPlan

MOVES: Moves = {name: moves for kind in ACTIONS.values() for name, moves in kind.moves.items()}


def kind_of(action: Action) -> str:
    """Return the key of MOVES whose function yields actions like `action`, such as GROUP_REDUCE or BLOCK for
    a SPLIT.
    """
    return ACTIONS[action[0]].move_kind(action)


def replay(sink: UOp, target: Target, actions: Iterable[Action]) -> LoopPlan:
    """Return the plan of the kernel `sink` after `actions`. Raises ActionError for the first illegal one."""
    plan = LoopPlan(sink, target)
    for action in actions:
        plan.act(action)
    return plan


def legal_moves(sink: UOp, target: Target, actions: Move = (), kind: str = "") -> list[Move]:
    """Return the moves (each a tuple of one or more actions) that are legal on the kernel `sink` after `actions`.
    `kind`: a key of MOVES, or "" for all kinds.
    """
    plan = replay(sink, target, actions)
    rows = [MOVES[kind]] if kind else MOVES.values()
    found = dict.fromkeys(move for row in rows for move in row(plan))
    return [move for move in found if _is_legal(sink, target, (*actions, *move))]


def _is_legal(sink: UOp, target: Target, actions: Move) -> bool:
    """Whether all of `actions`, performed in order on the kernel `sink`, are legal."""
    try:
        replay(sink, target, actions)
    except ActionError:
        return False
    return True


__all__ = ["MOVES", "Move", "kind_of", "legal_moves", "replay"]

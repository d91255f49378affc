"""List the kinds of actions, and perform them on the plan of a kernel.

An action is data: (op, subject, argument). `monolect actions` lists the forms. `LoopPlan.act` performs one or raises
ActionError with the reason; `optimize.apply` turns a plan into IR.

What it is not: a choice. The heuristic, a search or a user chooses actions.
Invariant: no legal sequence changes the kernel's result, beyond the order of float additions.
Source: the OptOps table of the specification.
"""

from __future__ import annotations

from monolect.base.errors import ActionError
from monolect.base.settings import settings
from monolect.ir.rewrite.named_rules import Family, is_on
from monolect.optimize.actions.bound import Bound
from monolect.optimize.actions.kind import ActionKind
from monolect.optimize.actions.matrix_unit import MatrixUnits
from monolect.optimize.actions.no_locals import NoLocals
from monolect.optimize.actions.nontemporal import Nontemporal
from monolect.optimize.actions.pack import Pack
from monolect.optimize.actions.pad import Pad
from monolect.optimize.actions.peel import Peel
from monolect.optimize.actions.prefetch import Prefetch
from monolect.optimize.actions.split import Split, split_as_given
from monolect.optimize.actions.swap import Swap
from monolect.optimize.loops.nest import Action, LoopNest

ACTIONS: dict[str, ActionKind] = {
    kind.op: kind
    for kind in (
        Split(), Pad(), Swap(), Peel(), Bound(), MatrixUnits(), Pack(), Nontemporal(), Prefetch(), NoLocals()
    )
}  # fmt: skip
ROWS = Family(
    "actions",
    " ".join(sorted({type(kind).__module__ for kind in ACTIONS.values()})),
    *(row for kind in ACTIONS.values() for row in kind.rows),
)


def row_name(action: Action) -> str:
    """Return the name by which the setting DISABLE and the table ROWS know `action`: its op, for a SPLIT with the axis
    type, such as SPLIT_UPCAST.
    """
    kind = ACTIONS.get(action[0])
    return kind.row_name(action) if kind is not None else action[0]


def allowed(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """Return `actions` up to the first that the setting DISABLE names. Later actions are dropped too, as they depend on
    it.
    """
    first = next((k for k, a in enumerate(actions) if not is_on(row_name(a))), len(actions))
    return actions[:first]


class LoopPlan(LoopNest):
    """The axes of one kernel with the actions performed on them so far, and the method `act` that performs one more."""

    def act(self, action: Action) -> None:
        """Perform `action`, (op, subject, argument), on the plan. Raises ActionError with the rule that it breaks; the
        plan is then unchanged.
        """
        op, subject, arg = action
        if not is_on(name := row_name(action)):
            raise ActionError(f"{name} is switched off", expected="DISABLE without it", found=settings.DISABLE)
        if self.is_given:
            raise ActionError(
                f"{op} of a kernel whose axis types a user fixed", expected="LOOP and REDUCE ranges", found=op
            )
        kind = ACTIONS.get(op)
        if kind is None:
            *most, last = ACTIONS
            raise ActionError("unknown action", expected=f"{', '.join(most)} or {last}", found=op)
        if kind.is_loop_change:
            self._check_loop_change(kind, subject)
        kind.perform(self, subject, arg)
        self.actions.append(action)

    def _check_loop_change(self, kind: ActionKind, axis: int) -> None:
        """Raise ActionError if an earlier action forbids that an action of this kind changes the loop `axes[axis]`, or
        if there is no such loop.
        """
        op = kind.op
        if self.packs or self.flags:
            raise ActionError(f"{op} after PACK, NONTEMPORAL or PREFETCH", expected="only one of those", found=op)
        if not isinstance(axis, int) or not 0 <= axis < len(self.axes):
            raise ActionError(f"{op}: no such axis", expected=f"0..{len(self.axes) - 1}", found=axis)
        if not kind.may_follow_peel and any(p.root is self.axes[axis].root for p in self.peeled):
            raise ActionError(f"{op} of a peeled axis", expected="SWAP, or another axis", found=op)
        if not kind.may_follow_mask_peel and any("mask" in ends for ends in self.peeled.values()):
            raise ActionError(f"{op} after PEEL at a mask", expected="no further change of the loops", found=op)

    def split_as_given(self, axis: int, target: str) -> None:
        """Make the whole part `axes[axis]` one of axis type `target`, as a user fixed it. Raises ActionError where
        SPLIT would.
        """
        split_as_given(self, axis, target)


__all__ = ["ACTIONS", "Action", "LoopPlan", "ROWS", "allowed", "row_name"]

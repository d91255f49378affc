"""NOLOCALS: use no local memory and no workgroup dimensions.

Source: the OptOps table of the specification.
"""

from __future__ import annotations

from typing import Any

from monolect.base.errors import ActionError
from monolect.ir.rewrite.named_rules import Row
from monolect.optimize.actions.kind import ActionKind
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.loops.partial_sums import check_sums


class NoLocals(ActionKind):
    """Action NOLOCALS: forbid local memory for all later actions of the plan. No search tries it."""

    op = "NOLOCALS"
    forms = (('("NOLOCALS", None, None)', "use no local memory and no workgroup dimensions"),)
    rows = (Row("NOLOCALS", "no local memory, no workgroup dimensions"),)
    subject = ""
    is_loop_change = False

    def perform(self, plan: LoopNest, subject: Any, arg: Any) -> None:
        if plan.packs or any(p.type in ("LOCAL", "GROUP_REDUCE") and plan.workgroup for p in plan.axes):
            raise ActionError("NOLOCALS", expected="no local memory in use yet", found="lanes, or a packed load")
        check_sums(plan, locals=False)
        plan.locals = False


__all__ = ["NoLocals"]

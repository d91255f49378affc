"""PADTO: grow an axis to a multiple, guarded by masks, so that a SPLIT divides it.

Source: the OptOps table of the specification.
"""

from __future__ import annotations

from monolect.base.errors import ActionError
from monolect.ir.rewrite.named_rules import Row
from monolect.optimize.actions.kind import ActionKind
from monolect.optimize.loops.axis_part import AxisPart
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.loops.partial_sums import check_sums


class Pad(ActionKind):
    """Action PADTO: grow an axis to the next multiple of `m`; masks guard the additional iterations.

    A search tries it only together with the SPLIT that needs it.
    """

    op = "PADTO"
    forms = (
        ('("PADTO", axis, m)', "grow the axis, or its outer loop, to the next multiple of m, guarded by masks"),
    )  # fmt: skip
    rows = (Row("PADTO", "an axis grows to a multiple, guarded by masks"),)

    def perform(self, plan: LoopNest, subject: int, arg: int) -> None:
        pad(plan, subject, arg)


def pad(plan: LoopNest, axis: int, multiple: int) -> None:
    """Perform PADTO: grow `plan.axes[axis]` to the next multiple of `multiple` iterations. Raises ActionError where
    that is illegal.
    """
    p = plan.axes[axis]
    parts = [q for q in plan.axes if q.root is p.root]
    if p.root in plan.padded:
        raise ActionError("PADTO", expected="an axis that was not padded before", found=p.type)
    if len(parts) > 1 and not _may_grow(p, parts):
        expected = "a whole axis, or the outer loop of one of constant size whose parts are all of one size"
        raise ActionError("PADTO after SPLIT", expected=expected, found=p.type)
    if not isinstance(multiple, int) or multiple < 2:
        raise ActionError("PADTO", expected="a multiple of at least 2", found=multiple)
    if not p.size and (plan.workgroup or p.root in plan.sequential):
        raise ActionError("PADTO", expected="an axis of constant size", found="a symbolic one")
    if p.root in plan.sequential - plan.running:
        raise ActionError("PADTO", expected="an axis whose iterations are independent", found="a scan")
    grown = AxisPart(p.root, -(-p.size // multiple) * multiple, p.stride, p.type, p.clipped, p.created)
    order = [*plan.axes[:axis], grown, *plan.axes[axis + 1 :]]
    check_sums(plan, axes=order)
    plan.padded[p.root], plan.axes = multiple * p.stride, order


def _may_grow(p: AxisPart, parts: list[AxisPart]) -> bool:
    """Whether PADTO may add iterations to the part `p` of an axis that was split: they must all be beyond the end of
    the axis. `parts`: all parts of that axis.
    """
    outermost = all(q.stride < p.stride for q in parts if q is not p)
    return (
        outermost
        and p.type in ("LOOP", "REDUCE")
        and not p.created
        and bool(p.size)
        and not any(q.clipped or q.round_robin_with is not None for q in parts)
    )


__all__ = ["Pad"]

"""SWAP: interchange two output loops or two reduction loops of a kernel.

Source: the OptOps table of the specification.
"""

from __future__ import annotations

from collections.abc import Iterator

from monolect.base.errors import ActionError
from monolect.ir.rewrite.named_rules import Row
from monolect.optimize.actions.kind import ActionKind, Move, Moves, axes_with
from monolect.optimize.loops.nest import LoopNest
from monolect.optimize.loops.order import nests, sequential_pairs


class Swap(ActionKind):
    """Action SWAP: interchange two output loops or two reduction loops."""

    op = "SWAP"
    forms = (('("SWAP", axis, other)', "interchange two axes of one kind"),)
    rows = (Row("SWAP", "two loops of the nest are exchanged"),)
    may_follow_peel = True

    def perform(self, plan: LoopNest, subject: int, arg: int) -> None:
        swap(plan, subject, arg)

    @property
    def moves(self) -> Moves:
        return {self.op: swaps}


def swap(plan: LoopNest, a: int, b: int) -> None:
    """Perform SWAP: exchange the loops `plan.axes[a]` and `plan.axes[b]`. Raises ActionError where that is illegal."""
    if not isinstance(b, int) or not 0 <= b < len(plan.axes):
        raise ActionError("SWAP: no such axis", expected=f"0..{len(plan.axes) - 1}", found=b)
    pa, pb = plan.axes[a], plan.axes[b]
    if (pa.root in plan.reduced) != (pb.root in plan.reduced) or "THREAD" in (pa.type, pb.type):
        raise ActionError("SWAP", expected="two output axes or two reduction axes", found=(pa.type, pb.type))
    if pa.is_block or pb.is_block:
        raise ActionError("SWAP", expected="loops inside the blocks, which nest in the order made", found="a block")
    order = list(plan.axes)
    order[a], order[b] = order[b], order[a]
    clipped = [(i, p) for i, p in enumerate(order) if p.clipped]
    if any(q.root is p.root and q.stride > p.stride for i, p in clipped for q in order[i:]):
        raise ActionError("SWAP", expected="a clipped part inside its outer part", found="the reverse")
    if any(p is not q for p, q in sequential_pairs(plan, order)):
        raise ActionError("SWAP", expected="an axis whose iterations are independent", found="a scan")
    if not nests(plan, order):
        raise ActionError("SWAP", expected="every reduction's own loops outermost", found="another order")
    plan.axes = order


def swaps(plan: LoopNest) -> Iterator[Move]:
    """Yield a SWAP of every two LOOP axes and of every two REDUCE axes, legal or not."""
    for kind in ("LOOP", "REDUCE"):
        axes = [i for i, _ in axes_with(plan, kind)]
        yield from ((("SWAP", a, b),) for a in axes for b in axes if a < b)


__all__ = ["Swap", "swaps"]

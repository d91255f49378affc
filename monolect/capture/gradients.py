"""Track the gradients that exist on Tensors before a call of a captured step, and those that the step sets.

What it is for: a step reads and adds to gradients of earlier calls, as in PyTorch. A gradient that exists when the step
first reads it becomes an input that is supplied to each call, like an argument. A call before which this gradient does
not exist needs another capture.
What it is not: it computes nothing of the step.
Invariant: after a call each gradient is the one that the function would set. If the step used a gradient only to update
its Tensor, the gradient is stored only if it is read later: storing it takes as long as the update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monolect.base.errors import JitError
from monolect.capture.returned import replace_tensors
from monolect.ir.uop import UOp, build
from monolect.runtime.realize import execute
from monolect.runtime.replay.in_progress import OWN, Noted, NotKept, note_before
from monolect.tensor.tensor import Tensor
from monolect.tensor.view import root_of

Gradients = dict[int, tuple[Tensor, Tensor | None]]  # (tensor, its gradient) by id of an external Tensor
Supplied = list[tuple[Tensor, Tensor, Tensor, UOp]]  # tensor, gradient, placeholder of the gradient, node of that
Name = Callable[[Tensor], Any]  # Tensor -> its position if an argument, itself if external, else None
MakePlaceholder = Callable[[Tensor, UOp], Tensor]


class FinalGradients:
    """Lists of the Tensors whose gradient a call changes, sorted by the final gradient of each.

    `kept`: a new gradient. `aliased`: an external Tensor, a view, or the gradient of another Tensor. `cleared`: None.
    `consumed`: a gradient that the Tensor was updated with, which is not stored. `dropped`: a sum with a gradient that
    is not stored. The arguments: `before`, the gradients before the call; `assigned`, the Tensors that it assigned;
    `noted`, the Tensors whose gradient it read or set; `name(tensor)`, which returns the position of an argument, an
    external Tensor itself, and None for any other Tensor.
    """

    def __init__(self, before: Gradients, assigned: Sequence[Tensor], noted: Noted, name: Name):
        updated = {id(t) for t in assigned}
        self.kept: list[Tensor] = []
        self.aliased: list[Tensor] = []
        self.cleared: list[Tensor] = []
        self.consumed: list[Tensor] = []
        self.dropped: list[Tensor] = []
        for t, first in noted.alive():
            new = t._grad
            if id(t) not in before or (new is first and new is not None):  # only read, or written in place
                continue
            if new is None:
                self.cleared += [t] * (first is not None)
            elif new.__class__ is NotKept:
                self.dropped.append(t)
            elif name(new) is not None or name(root_of(new)) is not None:
                self.aliased.append(t)
            elif id(t) in updated:
                self.consumed.append(t)
            else:
                is_shared = new._is_view or any(new is u._grad for u in self.kept)
                (self.aliased if is_shared else self.kept).append(t)


def rewrap_gradients(noted: Noted, name: Name) -> dict[int, Tensor]:
    """Give each gradient that the step made a new Tensor, which no other code holds. Return these Tensors by the id of
    the old one.

    The function may hold the old Tensor; it must not count as state of the step if it was written to. `noted`: Tensors
    whose gradient was read or set, with the gradient before. `name(tensor)` returns the position of an argument, an
    external Tensor itself, and None for any other Tensor.
    """
    own: dict[int, Tensor] = {}
    for t, first in noted.alive():
        new = t._grad
        if new is None or new is first or new.__class__ is NotKept or new._is_view or name(new) is not None:
            continue
        if id(new) not in own:
            own[id(new)] = Tensor._holding(new._uop)
        t._grad = own[id(new)]
    for t, _ in noted.alive():
        if isinstance(t._grad, Tensor) and t._grad._is_view:
            t._grad = replace_tensors(t._grad, own)
    return own


def gradient_supplier(supplied: Supplied, make_placeholder: MakePlaceholder) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function (tensor, its gradient) -> placeholder, for captures. It turns a gradient that exists before the
    step into an input of the step.

    The function is called when the step first reads such a gradient. It appends a row to `supplied` and returns the
    placeholder, `make_placeholder(gradient, node)`. A gradient that is a view is returned unchanged: its memory is that
    of an external Tensor.
    """

    def bring(t: Tensor, g: Tensor) -> Tensor:
        if g._is_view:
            return g
        if g._uop.op != "BUFFER":
            captures, execute.listening.captures = execute.listening.captures, []
            try:
                g.uop = as_buffer(g._uop)
            finally:
                execute.listening.captures = captures
        note_before(g, g._uop)  # it gets the node of its placeholder before the capture is complete
        new = make_placeholder(g, g._uop)
        supplied.append((t, g, new, new._uop))
        return new

    return bring


def as_buffer(u: UOp) -> UOp:
    """Return a BUFFER with memory that holds the value of the node `u`: `u` itself if it is one, else a new one."""
    if u.op != "BUFFER" or u.storage is None:
        (u,) = execute.realize([u])
        if u.op != "BUFFER":
            (u,) = execute.realize([build("CONTIGUOUS", u)])
    return u


def gradient_state(g: Any) -> Any:
    """Return the properties of a gradient `g` that a capture depends on.

    The result is None for no gradient, NotKept for a gradient that a step did not store, and for a view its Window,
    which is another one after a change of its axes in place. Any other gradient is an input of each call: the result is
    (shape, dtype, device, requires_grad).
    """
    if g is None:
        return None
    if g.__class__ is NotKept:
        return NotKept
    return g._view if g._is_view else (g.shape, g.dtype, g.device, g._requires_grad)


def matches_state(g: Any, state: Any) -> bool:
    """Whether the gradient `g` has the state `state`: the `gradient_state` that was seen when the step was captured."""
    now = gradient_state(g)
    return now is state or (is_supplied(state) and is_supplied(now) and bool(now == state))


def initial_gradients(noted: Noted, owners: Gradients, supplied: Supplied) -> list[tuple[Tensor, Any]]:
    """Return (external Tensor, `gradient_state` before the call) for each external Tensor whose gradient the step read;
    those with supplied gradients are last.

    `noted`: Tensors whose gradient was read or set, with the gradient before. `owners`: the external Tensors by id.
    `supplied`: the rows of gradients that are inputs.
    """
    first = {id(t) for t, *_ in supplied}
    others = [(t, old) for t, old in noted.alive() if old is not OWN and id(t) in owners and id(t) not in first]
    return [(t, gradient_state(old)) for t, old in others] + [(t, gradient_state(g)) for t, g, *_ in supplied]


def is_supplied(state: Any) -> bool:
    """Whether a gradient whose `gradient_state` is `state` is an input of each call."""
    return state.__class__ is tuple


def refuse_duplicates(tensors: Sequence[Tensor], assigned: Sequence[Any]) -> None:
    """Raise JitError if one of `tensors` is both an argument and a supplied gradient, and the step assigns to it.

    `tensors`: the arguments, then the supplied gradients (existing gradients that are inputs). `assigned`: positions in
    `tensors`, and external Tensors.
    """
    positions = {s for s in assigned if s.__class__ is int}
    numbers: dict[int, int] = {}
    for i, t in enumerate(tensors):
        first = numbers.setdefault(id(t), i)
        if first != i and not positions.isdisjoint((first, i)):
            expected, found = "different tensors, such as x.clone()", f"a gradient of shape {t.shape}"
            message = "a jitted function assigns to a tensor that is both an argument and a gradient"
            raise JitError(message, expected=expected, found=found)


def refuse_ambiguous_gradients(tensors: Sequence[Tensor], looked: Sequence[Any]) -> None:
    """Raise JitError if the step reads or sets the gradient of one Tensor both as an argument and as an external
    Tensor.

    Each role would have only the gradient of its own uses. `tensors`: the arguments. `looked`: the Tensors whose
    gradient the step reads or sets; external ones as themselves, arguments as positions in `tensors`.
    """
    outside = {id(t) for t in looked if t.__class__ is not int}
    if both := [tensors[i] for i in looked if i.__class__ is int and id(tensors[i]) in outside]:
        expected = "a tensor that is either an argument or from outside"
        found = f"a tensor of shape {both[0].shape} that is both"
        message = "a jitted function reads or sets gradients of an argument that it also reaches from outside"
        raise JitError(message, expected=expected, found=found)


__all__ = [
    "FinalGradients",
    "Supplied",
    "Gradients",
    "gradient_supplier",
    "initial_gradients",
    "as_buffer",
    "matches_state",
    "is_supplied",
    "rewrap_gradients",
    "refuse_ambiguous_gradients",
    "refuse_duplicates",
    "gradient_state",
]

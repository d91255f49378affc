"""Gradients around a captured step: those that it finds, and those that it leaves.

What it is for: a step reads and adds to gradients of earlier calls, as PyTorch does. A gradient that is there when the
step first looks at it is brought to each call, as an argument is; another call may find none, and is another capture.
What it is not: it computes nothing of the step.
Invariant: after a call each gradient is what the function leaves. One that the step updated its tensor with is computed
only if somebody reads it: storing it takes as long as the update.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monolect.base.errors import JitError
from monolect.capture.returned import put_back
from monolect.ir.uop import UOp, build
from monolect.runtime.realize import execute
from monolect.runtime.replay.capture import OWN, Noted, NotKept
from monolect.tensor.tensor import Tensor
from monolect.tensor.view import root_of

Gradients = dict[int, tuple[Tensor, Tensor | None]]  # of tensors from outside, by identity
Brought = list[tuple[Tensor, Tensor, Tensor, UOp]]  # a tensor, its gradient, what stands for that, and the node of that
Name = Callable[[Tensor], Any]  # of a Tensor from outside: its place as an argument, or itself; else None
StandIn = Callable[[Tensor, UOp], Tensor]


class After:
    """The tensors whose gradients a call leaves: `kept` ones; a Tensor from outside, a view, or that of another of them
    (`given`); none any more (`cleared`); those that were updated with it, which no step writes out (`used_up`); those
    where one was added to what is not kept (`dropped`).
    """

    def __init__(self, before: Gradients, assigned: Sequence[Tensor], looked: Noted, name: Name):
        updated = {id(t) for t in assigned}
        self.kept: list[Tensor] = []
        self.given: list[Tensor] = []
        self.cleared: list[Tensor] = []
        self.used_up: list[Tensor] = []
        self.dropped: list[Tensor] = []
        for t, first in looked.alive():
            new = t._grad
            if id(t) not in before or (new is first and new is not None):  # only read, or written to
                continue
            if new is None:
                self.cleared += [t] * (first is not None)
            elif new.__class__ is NotKept:
                self.dropped.append(t)
            elif name(new) is not None or name(root_of(new)) is not None:
                self.given.append(t)
            elif id(t) in updated:
                self.used_up.append(t)
            else:
                is_shared = new._is_view or any(new is u._grad for u in self.kept)
                (self.given if is_shared else self.kept).append(t)


def own_gradients(looked: Noted, name: Name) -> dict[int, Tensor]:
    """Give each gradient that the step makes a Tensor that nobody else holds: one that was written to is no state.
    Returns the new Tensors by the identity of the old ones.
    """
    own: dict[int, Tensor] = {}
    for t, first in looked.alive():
        new = t._grad
        if new is None or new is first or new.__class__ is NotKept or new._is_view or name(new) is not None:
            continue
        if id(new) not in own:
            own[id(new)] = Tensor._wrap(new._uop)
        t._grad = own[id(new)]
    for t, _ in looked.alive():
        if isinstance(t._grad, Tensor) and t._grad._is_view:
            t._grad = put_back(t._grad, own)
    return own


def bringing(brought: Brought, stand_in: StandIn) -> Callable[[Tensor, Tensor], Tensor]:
    """What a capture does with a gradient that the step finds: note it in `brought`, and give what stands for it. A
    view stays: its memory is that of a tensor from outside.
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
        new = stand_in(g, g._uop)
        brought.append((t, g, new, new._uop))
        return new

    return bring


def as_buffer(u: UOp) -> UOp:
    """The value of a gradient as a BUFFER."""
    if u.op != "BUFFER" or u.storage is None:
        (u,) = execute.realize([u])
        if u.op != "BUFFER":
            (u,) = execute.realize([build("CONTIGUOUS", u)])
    return u


def state_of(g: Any) -> Any:
    """What a capture depends on of a gradient: None, NotKept, the kind of one that is brought, or a view itself."""
    if g is None:
        return None
    if g.__class__ is NotKept:
        return NotKept
    return g if g._is_view else (g.shape, g.dtype, g.device, g._requires_grad)


def is_found(g: Any, state: Any) -> bool:
    """Whether a gradient is of the state that a capture found."""
    now = state_of(g)
    return now is state or (is_brought(state) and is_brought(now) and bool(now == state))


def found_by(looked: Noted, grads: Gradients, brought: Brought) -> list[tuple[Tensor, Any]]:
    """The tensors from outside whose gradient the step looked at, with what it found; those that are brought last."""
    first = {id(t) for t, *_ in brought}
    others = [(t, old) for t, old in looked.alive() if old is not OWN and id(t) in grads and id(t) not in first]
    return [(t, state_of(old)) for t, old in others] + [(t, state_of(g)) for t, g, *_ in brought]


def is_brought(state: Any) -> bool:
    """Whether a gradient of this state comes with the call."""
    return state.__class__ is tuple


def refuse_twice(tensors: Sequence[Tensor], assigned: Sequence[Any]) -> None:
    """Raise JitError for a tensor that comes twice, as an argument and as a gradient, where the step assigns to it."""
    places = {s for s in assigned if s.__class__ is int}
    numbers: dict[int, int] = {}
    for i, t in enumerate(tensors):
        first = numbers.setdefault(id(t), i)
        if first != i and not places.isdisjoint((first, i)):
            expected, found = "a tensor of its own, such as x.clone()", f"a gradient of shape {t.shape}"
            raise JitError("a jitted function assigns to a gradient that comes twice", expected=expected, found=found)


def refuse_both_gradients(tensors: Sequence[Tensor], looked: Sequence[Any]) -> None:
    """Raise JitError for an argument that the step also reaches from outside, where it reads or sets the gradient of
    either: each has the gradient of its own uses. `looked`: tensors from outside, and arguments by place.
    """
    outside = {id(t) for t in looked if t.__class__ is not int}
    if both := [tensors[i] for i in looked if i.__class__ is int and id(tensors[i]) in outside]:
        expected, found = "a tensor that is either an argument or from outside", f"both, of shape {both[0].shape}"
        message = "a jitted function has gradients of an argument that it also reaches from outside"
        raise JitError(message, expected=expected, found=found)


__all__ = [
    "After",
    "Brought",
    "Gradients",
    "bringing",
    "found_by",
    "as_buffer",
    "is_found",
    "is_brought",
    "own_gradients",
    "refuse_both_gradients",
    "refuse_twice",
    "state_of",
]

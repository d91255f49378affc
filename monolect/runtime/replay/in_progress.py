"""Record the effects that captures and traces in progress see, so that a replay can repeat or refuse them.

A capture runs a function once to record its kernels (`@jit`); a trace runs it to get its graph (`@function`).

What it is for: a Tensor that is assigned, read or given a gradient reports this here; the capture or trace in progress
keeps the effects that a replay has to repeat. A read by the host, which no replay can repeat, is refused.
What it is not: it binds and replays nothing (`runtime/replay/capture.py`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from monolect.base.errors import IndexRangeError, JitError
from monolect.base.settings import settings
from monolect.ir.uop import UOp, toposort
from monolect.runtime.buffer import base_of
from monolect.runtime.realize.locks import CheckedLock


class Check(NamedTuple):
    """The check that the indices which a step computes are in range: `first` <= index < `n`.

    After each call of the step, the minimum and the maximum of the indices are checked.
    """

    first: int
    n: int
    name: str  # the Tensor method that takes the indices
    line: tuple[str, int]  # (file, line) of its call

    def look(self, least: int, greatest: int) -> None:
        """Raise IndexRangeError unless `least` and `greatest`, the minimum and maximum of the indices of a call, are in
        range.
        It is called after each call of the step.
        """
        if least < self.first or greatest >= self.n:
            expected = f"{self.first}..{self.n - 1}, at {self.line[0]}:{self.line[1]}"
            found = least if least < self.first else greatest
            message = f"{self.name}: an index of a jitted step, or of a @function, is out of range"
            raise IndexRangeError(message, expected=expected, found=found)


class Noted:
    """A map from live Tensors, by identity and weakly, to the first value that was noted for each.

    A Tensor that a step makes and drops is no change that the step causes: its entry is gone when the step is over.
    """

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def note(self, tensor: Any, value: Any) -> None:
        """Store `value` for `tensor`, unless a value was noted for this tensor before."""
        known = self._by_identity.get(id(tensor))
        if known is None or known[0]() is None:  # of a freed tensor with the same id
            self._by_identity[id(tensor)] = weakref.ref(tensor), value

    def get(self, tensor: Any) -> Any:
        """Return the value that was noted for `tensor`, for which `knows` must be true."""
        return self._by_identity[id(tensor)][1]

    def knows(self, tensor: Any) -> bool:
        """Return whether a value was noted for `tensor`."""
        known = self._by_identity.get(id(tensor))
        return known is not None and known[0]() is not None

    def forget(self, tensor: Any) -> None:
        """Remove the value that was noted for `tensor`, if there is one."""
        self._by_identity.pop(id(tensor), None)

    def alive(self) -> list[tuple[Any, Any]]:
        """Return (Tensor, noted value) for each noted Tensor that is still alive."""
        return [(t, value) for ref, value in self._by_identity.values() if (t := ref()) is not None]


class Assigned(Noted):
    """The record of one capture or trace: the Tensors that it saw assigned, each with its node before the first
    assignment, and other effects.
    A replay repeats these effects. `changes.seen` makes the record.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looked = Noted()  # tensors whose gradient was read or set, with the gradient found; OWN if set first
        self.before = Noted()  # tensors that change, with (node, gradient, requires_grad) before
        self.checks: list[tuple[Check, Any, Any]] | None = None  # (check, min Tensor, max Tensor); None: not checked
        self.start = 0  # serial number; nodes with a lower one existed before the step
        self.bring: Callable[[Any, Any], Any] | None = None  # (tensor, external gradient) -> its placeholder
        self.on_read: Callable[[], None] | None = None  # NotKept.on_read of the step under capture
        self.inputs: frozenset[UOp] = frozenset()  # placeholders of the arguments
        self.known: Collection[int] = ()  # ids of Tensors that existed before the step
        self.is_disturbed = False  # another thread computed a state of the step: the record of its kernels lacks that

    def is_outside(self, tensor: Any, u: UOp) -> bool:
        """Return whether `tensor`, of node `u`, existed before the step, or may have: a trace, for which `start` is 0,
        does not know when memory was made.
        """
        b = base_of(u)
        is_older = b.serial < self.start or not self.start or b in self.inputs
        return id(tensor) in self.known or (b.op == "BUFFER" and is_older)


under_way: list[Any] = []  # captures, traces and derivatives in progress, of all threads
OWN: Any = object()  # marks a gradient that was set before it was read


class NotKept:
    """A marker that replaces the gradient of a tensor if a captured step used the gradient to update the tensor and did
    not store it.

    Reading the gradient calls `on_read` of the step, whose next call then stores the gradient. `tensor`: the gradient;
    it is available only after the call that was captured.
    """

    __slots__ = ("on_read", "tensor")

    def __init__(self, on_read: Callable[[], None] | None = None, tensor: Any = None) -> None:
        self.on_read, self.tensor = on_read, tensor

    def __reduce__(self) -> tuple:
        return NotKept, (None, self.tensor)

    def read(self, shape: tuple) -> Any:
        """Call `on_read` if it is set, and return the gradient. Raises JitError, which names the gradient's shape
        `shape`, if the gradient is not available.
        """
        if self.on_read is not None:
            self.on_read()
        if self.tensor is None:
            expected = "a gradient that the step returns, or one that was read after its first call"
            raise JitError(
                "the gradient of a tensor that a jitted step updated",
                expected=expected if self.on_read is None else f"{expected}; the next call keeps it",
                found=f"a gradient that was not kept, of shape {shape}",
            )
        return self.tensor

    def plus(self, own: Any) -> NotKept:
        """Return the marker for the sum of this gradient and `own`, a gradient that was added to it.
        It is this marker itself if the gradient is not available.
        """
        return self if self.tensor is None else NotKept(self.on_read, self.tensor + own)

    def without(self) -> NotKept:
        """Return the marker for this gradient after a replay added to it: the sum is not stored, so `tensor` is no
        longer available.
        """
        return self if self.tensor is None else NotKept(self.on_read)


# Held while capturing, and by calls off the fast path, so that a capture sees no state of another thread's step.
steps = CheckedLock()


class _Changes(threading.local):
    """The captures and traces in progress in this thread, with their records of assigned tensors.
    The only instance is `changes`.
    """

    def __init__(self) -> None:
        self.captures: list[Assigned] = []
        self.enclosing: list[Assigned] = []  # `captures`, and those that do not record assignments here
        self.calls: list[Noted] = []  # for each call in progress: tensors before they change
        self.is_inside = False  # whether a called step is part of the capture or trace in progress

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Context manager: within the block, steps and `@function`s that are called run as plain functions, as part of
        the capture or trace in progress.
        """
        outer, mine = self.is_inside, object()
        try:  # an interrupt may follow any call
            under_way.append(mine)
            self.is_inside = True
            yield
        finally:
            self.is_inside = outer
            if mine in under_way:
                under_way.remove(mine)

    @contextmanager
    def seen(self, alone: bool = False) -> Iterator[Assigned]:
        """Context manager: within the block, record the tensors that are assigned in the yielded Assigned.

        With `alone`, enclosing captures do not record these assignments, only reads of gradients.
        """
        mine = Assigned()
        outer = self.captures, self.enclosing, self.calls
        try:  # an interrupt may follow any call
            under_way.append(mine)
            self.captures = [mine] if alone else [*self.captures, mine]
            self.calls = [] if alone else self.calls
            self.enclosing = [*self.enclosing, mine]
            yield mine
        finally:
            self.captures, self.enclosing, self.calls = outer
            if mine in under_way:
                under_way.remove(mine)

    @contextmanager
    def called(self) -> Iterator[Noted]:
        """Context manager for a block that calls a step or `@function`: record the state of each tensor before it
        changes in the yielded Noted.

        The noted value of a tensor is ((node, gradient, leaf flag), captures that have already noted its gradient).
        """
        mine = Noted()
        outer, self.calls = self.calls, [*self.calls, mine]
        try:
            yield mine
        finally:
            self.calls = outer


changes = _Changes()


def restore(tensor: Any, node: UOp, gradient: Any, is_leaf: bool) -> None:
    """Set `tensor` back to the state that was noted before it changed: its node `node`, its gradient, and its leaf flag
    (requires_grad) `is_leaf`.
    """
    tensor._grad = gradient
    if tensor._requires_grad is not is_leaf:
        was_frozen = getattr(tensor, "_is_frozen", False)
        tensor.requires_grad = is_leaf
        tensor._is_frozen = was_frozen
    if not tensor._is_view:
        tensor.uop = node


def note_assign(tensor: Any, before: UOp) -> None:
    """Record, in each capture of this thread that is in progress, that `tensor` is assigned. `before`: its node before
    the assignment.
    """
    for c in changes.captures:
        c.note(tensor, before)
    note_before(tensor, before)


def note_computed(tensor: Any) -> None:
    """Tell each capture of another thread that assigns `tensor` that this thread computed the value of `tensor`, so
    that the capture cannot be replayed.
    """
    for c in [*under_way]:
        if isinstance(c, Assigned) and c not in changes.enclosing and c.knows(tensor):
            c.is_disturbed = True


def checks_under_way() -> list[tuple[Check, Any, Any]] | None:
    """Return the list to which index checks of the innermost capture are appended, as (Check, minimum Tensor, maximum
    Tensor).

    Returns None if there is no capture or indices are not checked; then nothing is appended.
    """
    return changes.captures[-1].checks if changes.captures else None


def is_external_state(u: UOp) -> bool:
    """Return whether `u` is a BUFFER that existed before the step under capture, and is no argument of the step.

    False without a capture or with HOIST off. Values computed from such a BUFFER may be hoisted: they are kept from
    call to call unless the BUFFER's tensor is assigned.
    """
    return u.op == "BUFFER" and bool(changes.captures and settings.HOIST) and u.serial < changes.captures[-1].start


def note_gradient(tensor: Any, gradient: Any) -> Any:
    """Record that the gradient of `tensor` is read or set during a capture.

    `gradient`: the gradient that is read, or OWN if it is set. Returns `gradient`, or its placeholder in the capture.
    """
    note_before(tensor, tensor._uop)
    for c in changes.enclosing:
        if c.bring is not None and not c.looked.knows(tensor):
            if gradient.__class__ is NotKept and gradient.tensor is not None and gradient.on_read is c.on_read:
                gradient = gradient.read(tensor.shape)  # this step adds to the gradient that it left
            if gradient is not None and gradient is not OWN and gradient.__class__ is not NotKept:
                gradient = tensor._grad = c.bring(tensor, gradient)
    for c in changes.enclosing:
        c.looked.note(tensor, gradient)
    return gradient


def sums_unkept(tensor: Any) -> bool:
    """Return whether the step under capture accumulates into a gradient of `tensor` that is not stored (see
    NotKept).
    """
    return any(c.looked.knows(tensor) for c in changes.enclosing if c.bring is not None)


def note_before(tensor: Any, node: UOp, is_leaf: bool | None = None) -> None:
    """Record, for each capture and call in progress, the state of `tensor` before it changes: its node, gradient and
    leaf flag.

    `node`: its node before the change. `is_leaf`: its leaf flag before the change, if it is not the current one.
    """
    if not (changes.captures or changes.calls):  # plain code, the most common case
        return
    state = node, tensor._grad, tensor._requires_grad if is_leaf is None else is_leaf
    for c in changes.captures:
        c.before.note(tensor, state)
    for called in changes.calls:
        called.note(tensor, (state, [c for c in changes.enclosing if c.looked.knows(tensor)]))


def refuse_while_capturing(what: str, u: UOp) -> None:
    """Raise JitError if a capture or trace is in progress, or if `u` depends on the inputs of one in another thread.

    `what`: name of the operation, which reads the value of node `u` to the host; a replay cannot repeat this.
    """
    if changes.captures or (under_way and _is_of_a_capture(u)):
        raise JitError(
            f"{what} inside a jitted function or a @function",
            expected="a function of tensors only",
            found="a host read",
        )


def _is_of_a_capture(u: UOp) -> bool:
    """Return whether the node `u` depends on an input of a capture or trace in progress in any thread."""
    captures = [c for c in under_way if isinstance(c, Assigned) and c.inputs]
    return bool(captures) and not set(toposort(u)).isdisjoint(*(c.inputs for c in captures))


__all__ = [
    "OWN",
    "Check",
    "Noted",
    "Assigned",
    "NotKept",
    "changes",
    "checks_under_way",
    "is_external_state",
    "note_assign",
    "note_before",
    "note_computed",
    "note_gradient",
    "refuse_while_capturing",
    "restore",
    "steps",
    "sums_unkept",
    "under_way",
]

"""Capture and replay: what one call of a step ran becomes one command buffer that runs again on other memory.

A capture joins the runs of a step into a single list of launches. Each buffer it touched is an argument (given anew at
each call), state (a tensor the step reads and assigns: updated in place where that is safe), an output (fresh memory at
each call), or private (constants and intermediates, bound once). What depends on constants alone is a prologue
(`runtime/prologue.py`). Replaying does no graph work.

Invariant: a replay leaves exactly what running the step again would leave; a captured value is never stale, because
what may change is an argument or state, and the caller keys captures on everything else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

from monolect.backend.base import Launch
from monolect.backend.registry import Device
from monolect.base.errors import JitError
from monolect.base.settings import settings
from monolect.ir.call import stored_slots
from monolect.ir.uop import UOp, new_buffer, new_buffer_like, substitute
from monolect.runtime.binding import concrete, value_of
from monolect.runtime.buffer import base_of, with_storage
from monolect.runtime.execute import Run, realize, run, running
from monolect.runtime.hoist import hoist
from monolect.runtime.in_place import is_copy, may_overwrite, uses_of
from monolect.runtime.prologue import WRITABLE, Prologue, Step, split, writes_seen
from monolect.schedule.memory import ALIGN_BYTES, buffer_bytes


class _Changes(threading.local):
    """Captures under way in this thread: the tensors each saw assigned, with their nodes before."""

    def __init__(self) -> None:
        self.captures: list[dict[int, tuple[Any, UOp]]] = []


changes = _Changes()


def note_assign(tensor: Any, before: UOp) -> None:
    """Called by an assign while a capture is under way."""
    for c in changes.captures:
        c.setdefault(id(tensor), (tensor, before))


def refuse_while_capturing(what: str) -> None:
    """Raise JitError when a capture is under way: what a replay could not repeat must not be recorded."""
    if changes.captures:
        raise JitError(f"{what} inside a jitted function", expected="a function of tensors only", found="a host read")


class Value(NamedTuple):
    """What a node of the capture is at a replay: `node` with `base` replaced by item `at` of the list `source`."""

    source: int  # MADE, BROUGHT, READ or KEPT
    at: int
    node: UOp
    base: UOp


MADE, BROUGHT, READ, KEPT = range(4)  # fresh memory; arguments and states; tensors read from outside; constants


class State:
    """A tensor that the step assigns: `tensor`, or the argument `argument` of each call.

    In place, buffer `number` is bound to the memory of `uop`, for as long as nobody else sees that. Otherwise (`after`)
    the old version is brought at each call and the tensor becomes a new one.
    """

    __slots__ = ("after", "argument", "memory", "number", "tensor", "uop")

    def __init__(self, tensor: Any, number: int, after: Any = None):
        self.argument = tensor if tensor.__class__ is int else None
        self.tensor = tensor
        self.number, self.after = number, after
        self.uop: UOp | None = None
        self.memory: Any = None


class Read:
    """A tensor that the step reads from outside, and the BUFFER it is bound to."""

    __slots__ = ("number", "tensor", "uop")

    def __init__(self, tensor: Any, uop: UOp, number: int):
        self.tensor, self.uop, self.number = tensor, uop, number


class Capture:
    """A replayable step. `args` are the BUFFERs of the arguments at capture, `outputs` the realised results.

    `states` are (tensor, or the place of an argument; BUFFER before; BUFFER after), `reads` the tensors read from
    outside. Each call brings the addresses of the buffers 0, 1 ...: of arguments, of states that are not updated in
    place, and of fresh memory for what the step makes.
    """

    def __init__(
        self,
        runs: list[Run],
        args: Sequence[UOp],
        outputs: Sequence[UOp],
        states: list[tuple[Any, UOp, UOp]],
        reads: list[tuple[Any, UOp]],
        woven: Sequence[tuple[Callable[[], Any], UOp]] = (),
    ) -> None:
        devices = {r.plan.device for r in runs}
        if len(devices) > 1:
            raise JitError("a captured step runs on one device", expected="one device", found=sorted(devices))
        self.device = Device[devices.pop()] if devices else None
        self.number: dict[Any, int] = {b: n for n, b in enumerate(args)}
        self.keep: list[Any] = []
        self.variables = list({v.arg.name: v for r in runs for v in r.plan.variables}.values())
        self.sizes = {b: n for r in runs for b, n in zip(r.fresh, r.plan.fresh_bytes, strict=True)}
        self.symbolic = _symbolic_results(runs) if self.variables else {}
        self.woven = woven  # tensors, weakly, that cannot be bound anew, with the nodes they were
        self._number_brought(runs, outputs, states)
        steps = self._steps(runs)
        self.reads = [Read(t, b, self.number[b]) for t, b in reads if b in self.number]
        for state in self.moves:
            state.after = self._value(state.after)
        self.outputs = [self._value(o) for o in outputs]
        whole = all(v.source == MADE and v.node is v.base for v in self.outputs)
        self.plain = whole and [v.at for v in self.outputs] == [*range(len(self.made))]  # it returns all that it makes
        numbered = ((self.number.get(b, -1), b) for b in external(runs, args))
        constants = {n: b for n, b in numbered if n >= 0 and n not in self.given}
        early, late = self._hoisted(steps, constants) if settings.HOIST else ([], steps)
        self.launches = tuple(s.launch for s in late)
        self.kernels = tuple(s.call for s in late)
        self.commands: Any = self.device.commands(self.launches) if self.device is not None else None
        self.prologue: Prologue | None = None
        if early:
            self.prologue = Prologue(self.device, early, constants)
        self._bind_private(runs)
        for kept in (self._made, self.number, self.sizes, self.symbolic):
            kept.clear()  # the memory of the capture would live on

    # ---- capture -----------------------------------------------------------------------------------------------------
    def _number_brought(self, runs: list[Run], outputs: Sequence[UOp], states: list[tuple[Any, UOp, UOp]]) -> None:
        """Number what each call brings: arguments, old versions, fresh memory; then the states in place."""
        uses = uses_of(runs) if states else {}
        written = {b for r in runs for b in r.fresh}
        returned = {base_of(o) for o in outputs}
        stays, moves = [], []
        for tensor, before, after in states:
            hidden = before not in self.number and before not in returned and after not in returned and after in written
            if hidden and may_overwrite(before, after, uses):
                stays.append((tensor, before, after))
            elif after is not before:
                moves.append((tensor, before, after))
        n_args = len(self.number)
        for _, before, _ in moves:
            self.number.setdefault(before, len(self.number))
        self.n_olds = len(self.number)
        for v in self.variables:
            self.number["size", v.arg.name] = len(self.number)
        own = {after for _, _, after in stays}
        bases = [*(after for _, _, after in moves), *returned]
        made = [b for b in dict.fromkeys(bases) if b in written and b not in own]
        self._made = {b: k for k, b in enumerate(made)}
        self.made = [(new_buffer_like(b), self.sizes[b], self.symbolic.get(b)) for b in made]
        for b in made:
            self.number[b] = len(self.number)
        self.given = set(range(len(self.number)))  # what a call may change
        self.moves = [State(t, self.number[before], after) for t, before, after in moves]
        self.brought = [s for s in self.moves if s.number >= n_args]
        self.in_place = []
        for t, before, after in stays:
            self.number[after] = n = self.number.setdefault(before, len(self.number))
            self.in_place.append(State(t, n))
            self.given.add(n)

    def _value(self, u: UOp) -> Value:
        """What the node of a result will be at a replay; without memory of the capture."""
        b = base_of(u)
        n = self.number.get(b, -1)
        if b in self._made:
            k, mark = self._made[b], self.made[self._made[b]][0]
            if b in self.symbolic and u is not b:
                expected = "a result with a buffer of its own (contiguous())"
                raise JitError("a captured step returns a view of symbolic size", expected=expected, found=u.op)
            return Value(MADE, k, substitute(u, {b: mark}), mark)
        if 0 <= n < self.n_olds:
            mark = new_buffer_like(b)
            return Value(BROUGHT, n, substitute(u, {b: mark}), mark)
        for i, r in enumerate(self.reads):
            if r.uop is b:
                return Value(READ, i, u, b)
        return Value(KEPT, 0, u, b)

    def _steps(self, runs: list[Run]) -> list[Step]:
        out = []
        for k, r in enumerate(runs):
            names: list[Any] = [*r.inputs, *r.fresh, *((k, i) for i in range(len(r.plan.offsets)))]
            names += [("size", v.arg.name) for v in r.plan.variables]
            for item, call in zip(r.plan.launches, r.plan.kernels, strict=True):
                args = tuple(self.number.setdefault(names[a], len(self.number)) for a in item.args)
                if len(args) == 2 and args[0] == args[1] and is_copy(call.src[0]):
                    continue  # of a state to itself: parts of it are stored in place
                written = {args[s]: buffer_bytes(call.src[1 + s]) for s in stored_slots(call.src[0])}
                out.append(Step(Launch(item.program, args), call, written))
        return out

    def _hoisted(self, steps: list[Step], constants: dict[int, UOp]) -> tuple[list[Step], list[Step]]:
        """The steps of the prologue, and the others; what somebody outside can write to now is no constant for them."""
        writable = {n for n, b in constants.items() if writes_seen(b) == WRITABLE}
        early, late = split(steps, self.given | writable)
        frozen = (constants.keys() - writable) | {n for s in early for n in s.written}
        fills, late = hoist(late, frozen, self.device.name, self._new) if self.device is not None else ([], late)
        return early + fills, late

    def _new(self) -> int:
        """The number of one more buffer, of the capture's own."""
        return self.number.setdefault(("kept", len(self.number)), len(self.number))

    def _bind_private(self, runs: list[Run]) -> None:
        """Addresses that never change: constants, what passes between runs, intermediates.

        A buffer that passes between runs gets memory of its own: a tensor may hold what the capture wrote.
        """
        if self.device is None:
            return
        size = max(r.plan.arena_bytes for r in runs)
        arena = self.device.alloc(size) if size else None
        written = {b for r in runs for b in r.fresh}
        early = {} if self.prologue is None else self.prologue.results(self.launches)
        early |= {n: self.sizes[b] for b, n in self.number.items() if b in written and n not in self.given}
        for n, n_bytes in early.items():
            memory = self.device.alloc(n_bytes)
            self._bind(n, memory.address)
            self.keep.append(memory)
        for b, n in self.number.items():
            if n in early or n in self.given:
                continue
            if isinstance(b, tuple):
                assert arena is not None
                self._bind(n, arena.address + runs[b[0]].plan.offsets[b[1]])
            elif b.storage is not None:
                self._bind(n, b.storage.address)
                self.keep.append(b)
        self.keep.append(arena)

    def _bind(self, number: int, address: int) -> None:
        self.commands.bind(number, address)
        if self.prologue is not None:
            self.prologue.commands.bind(number, address)

    def is_current(self) -> bool:
        """False once a tensor whose node is part of the kernels stands for another one: capture again."""
        return all((t := ref()) is None or t._uop is u for ref, u in self.woven)

    # ---- replay ------------------------------------------------------------------------------------------------------
    def replay(self, args: Sequence[UOp], addresses: list[int], tensors: Sequence[Any]) -> list[UOp]:
        """Run on these BUFFERs, at these addresses, of the arguments `tensors`; the results, in memory of their own."""
        if self.device is None:
            return [self._today(v, ((), args, self.reads)) for v in self.outputs]
        with running.lock:
            for r in self.reads:
                if r.tensor._uop is not r.uop:
                    self._rebind(r)
            for s in self.in_place:
                # references: the tensor's, the state's, the argument of getrefcount; the BUFFER's, the state's, that
                if s.tensor._uop is not s.uop or getrefcount(s.uop) > 3 or getrefcount(s.memory) > 3:
                    self._own(s)
            for s in self.brought:
                args = [*args, _buffer_of(s.tensor)]
                addresses.append(args[-1].storage.address)
            if self.prologue is not None:
                self.prologue.refresh()
            for v in self.variables:
                addresses.append(value_of(v))
            made = []
            for template, n_bytes, shape in self.made:
                u = new_buffer_like(template) if shape is None else new_buffer(concrete(shape), *template.arg[1:3])
                u.storage = memory = self.device.alloc(n_bytes)
                addresses.append(memory.address)
                made.append(u)
            run(self.commands, addresses, self.launches, self.kernels, replayed=True)
            if self.moves:
                news = [self._today(s.after, (made, args, self.reads)) for s in self.moves]
                for s, new in zip(self.moves, news, strict=True):
                    (s.tensor if s.argument is None else tensors[s.argument])._uop = new
        return made if self.plain else [self._today(v, (made, args, self.reads)) for v in self.outputs]

    @staticmethod
    def _today(v: Any, lists: tuple[Any, ...]) -> UOp:
        if v.source == KEPT:
            return v.node
        new = lists[v.source][v.at]
        new = new.uop if v.source == READ else new
        return new if v.node is v.base else substitute(v.node, {v.base: new})

    def _rebind(self, r: Read) -> None:
        """A tensor the step reads, but does not assign, was assigned since: bind its memory of today."""
        new = _buffer_of(r.tensor)
        if new.shape != r.uop.shape or new.dtype is not r.uop.dtype:
            expected, found = (f"{b.dtype.name} {b.shape}" for b in (r.uop, new))
            raise JitError("a captured tensor changed its kind", expected=expected, found=found)
        r.uop = new
        self._bind(r.number, new.storage.address)
        if self.prologue is not None:
            self.prologue.rebind(r.number, new)

    def _own(self, s: State) -> None:
        """Bind the memory of a state that is updated in place: its own, or a copy where somebody else sees that."""
        assert self.device is not None
        s.uop = s.memory = None
        u = _buffer_of(s.tensor)
        memory = u.storage
        # references: the tensor's or the BUFFER's, the name here, the argument of getrefcount
        held = getrefcount(u) > 3 or getrefcount(memory) > 3  # by a graph, or by a NumPy view
        if held or memory.is_lent() or memory.address % ALIGN_BYTES:  # an array that became state
            memory = self.device.alloc(buffer_bytes(u))
            self.device.copy(memory, u.storage, buffer_bytes(u))
            u = s.tensor._uop = with_storage(u.shape, u.dtype, u.arg.device, memory)
        s.uop, s.memory = u, memory
        self._bind(s.number, memory.address)


def _buffer_of(tensor: Any) -> UOp:
    """The BUFFER a tensor stands for, computed if it is not. Raises JitError when that is a view of another."""
    u: UOp = tensor._uop
    if u.op != "BUFFER" or u.storage is None:
        (u,) = realize([u])
        if u.op != "BUFFER":
            raise JitError("a captured tensor became a view", expected="a buffer of its own", found=u.op)
        tensor._uop = u
    return u


def external(runs: list[Run], args: Sequence[UOp]) -> list[UOp]:
    """The buffers a step reads that are neither its arguments nor made by it."""
    made: set[UOp] = set(args)
    out: dict[UOp, None] = {}
    for r in runs:
        out.update((b, None) for b in r.inputs if b not in made and b.storage is not None)
        made.update(r.fresh)
    return list(out)


def _symbolic_results(runs: list[Run]) -> dict[UOp, tuple]:
    """The shapes of what is made in a symbolic size. Raises JitError when a later run reads that."""
    out: dict[UOp, tuple] = {}
    for r in runs:
        if any(b in out for b in r.inputs):
            expected = "one batch: no realize() in between"
            raise JitError("a captured step computes a value of symbolic size, then reads it", expected=expected)
        shapes = ((b, t.shape) for b, t in zip(r.fresh, r.plan.fresh, strict=True))
        out.update((b, shape) for b, shape in shapes if any(n.__class__ is not int for n in shape))
    return out


__all__ = ["Capture", "changes", "external", "note_assign", "refuse_while_capturing"]

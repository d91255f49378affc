"""Capture and replay: what one call of a step ran becomes one command buffer that runs again on other memory.

A capture joins the runs of a step into a single list of launches. Each buffer it touched is an argument (given anew at
each call), state (a tensor the step reads and assigns: updated in place where that is safe), an output (fresh memory at
each call), or private (constants and intermediates, bound once). What depends on constants alone is a prologue
(`runtime/prologue.py`). Replaying does no graph work.

Invariant: a replay leaves exactly what running the step again would leave; a captured value is never stale, because
what may change is an argument or state, and the caller keys captures on everything else.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from monolect.backend.base import Launch
from monolect.backend.registry import Device
from monolect.base.errors import JitError
from monolect.base.settings import settings
from monolect.ir.call import stored_slots
from monolect.ir.uop import UOp, new_buffer_like, substitute, toposort
from monolect.runtime import profile
from monolect.runtime.buffer import base_of, with_storage
from monolect.runtime.execute import Run, launch, realize, running
from monolect.runtime.hoist import hoist
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


Uses = dict[UOp, list[tuple[int, UOp, int]]]


class State(NamedTuple):
    """A tensor the step updates: its buffer's number going in and coming out (equal: in place)."""

    tensor: Any
    before: int
    after: int
    template: UOp


class Capture:
    """A replayable step. `args` are the BUFFERs of the arguments at capture, `outputs` the realised results."""

    def __init__(
        self,
        runs: list[Run],
        args: Sequence[UOp],
        outputs: Sequence[UOp],
        states: list[tuple[Any, UOp, UOp]],
        reads: list[tuple[Any, UOp]],
        woven: Sequence[tuple[Callable[[], Any], UOp]] = (),
    ) -> None:
        if any(r.plan.variables for r in runs):
            found = sorted({v.arg.name for r in runs for v in r.plan.variables})
            raise JitError("a captured step with symbolic sizes", expected="constant sizes", found=found)
        self.number: dict[Any, int] = {}
        self.keep: list[Any] = []
        devices = {r.plan.device for r in runs}
        if len(devices) > 1:
            raise JitError("a captured step runs on one device", expected="one device", found=sorted(devices))
        self.device = Device[devices.pop()] if devices else None
        for b in args:
            self._of(b)
        self.n_args = len(args)
        self._check_arguments(args)
        uses = _uses(runs) if states else {}
        self.states = [self._state(t, before, after, uses, outputs) for t, before, after in states]
        steps = self._steps(runs)
        self.outputs = list(outputs)
        self.fresh = self._fresh_outputs(runs, outputs)
        self.reads = [(t, b, b) for t, b in reads if b in self.number]
        self.woven = woven  # tensors, weakly, that cannot be bound anew, with the nodes they were
        self.today: dict[UOp, UOp] = {}  # what stands for a constant that was assigned anew
        # what each call brings or gets: arguments, state, results
        self.given = {s.before for s in self.states} | {s.after for s in self.states}
        self.given |= {*range(self.n_args), *(n for n, _, _ in self.fresh)}
        constants = {self.number[b]: b for b in external(runs, args) if b in self.number}
        early, late = self._hoisted(steps, constants) if settings.HOIST else ([], steps)
        self.launches = tuple(s.launch for s in late)
        self.kernels = tuple(s.call for s in late)
        self.commands = self.device.commands(self.launches) if self.device is not None else None
        self.prologue: Prologue | None = None
        if early:
            self.prologue = Prologue(self.device, early, constants)
        self._bind_private(runs)

    def _check_arguments(self, args: Sequence[UOp]) -> None:
        if len(set(args)) != len(args):
            raise JitError("a captured step was given one buffer twice", expected="distinct arguments")

    def _of(self, b: UOp) -> int:
        return self.number.setdefault(b, len(self.number))

    def _state(self, t: Any, before: UOp, after: UOp, uses: Uses, outputs: Sequence[UOp]) -> State:
        n = self._of(before)
        returned = {base_of(o) for o in outputs}
        if after is not before and after not in returned and _may_overwrite(before, after, uses):
            self.number[after] = n
        return State(t, n, self._of(after), after)

    def _steps(self, runs: list[Run]) -> list[Step]:
        out = []
        for k, r in enumerate(runs):
            names: list[Any] = [*r.inputs, *r.fresh, *((k, i) for i in range(len(r.plan.offsets)))]
            for item, call in zip(r.plan.launches, r.plan.kernels, strict=True):
                args = tuple(self.number.setdefault(names[a], len(self.number)) for a in item.args)
                written = {args[s]: buffer_bytes(call.src[1 + s]) for s in stored_slots(call.src[0])}
                out.append(Step(Launch(item.program, args), call, written))
        return out

    def _hoisted(self, steps: list[Step], constants: dict[int, UOp]) -> tuple[list[Step], list[Step]]:
        """The steps of the prologue, and the others; what somebody outside can write to now is no constant for them."""
        writable = {n for n, b in constants.items() if writes_seen(b) == WRITABLE}
        early, late = split(steps, self.given | writable)
        frozen = (constants.keys() - self.given - writable) | {n for s in early for n in s.written}
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
        early |= {n: buffer_bytes(b) for b, n in self.number.items() if b in written and n not in self.given}
        for n, n_bytes in early.items():
            memory = self.device.alloc(n_bytes)
            self._bind(n, memory.address)
            self.keep.append(memory)
        for b, n in self.number.items():
            if n in early:
                continue
            if isinstance(b, tuple):
                assert arena is not None
                self._bind(n, arena.address + runs[b[0]].plan.offsets[b[1]])
            elif n not in self.given and b.storage is not None:
                self._bind(n, b.storage.address)
        self.keep.append(arena)

    def _bind(self, number: int, address: int) -> None:
        self.commands.bind(number, address)  # type: ignore[union-attr]
        if self.prologue is not None:
            self.prologue.commands.bind(number, address)

    def _fresh_outputs(self, runs: list[Run], outputs: Sequence[UOp]) -> list[tuple[int, UOp, int]]:
        """(number, BUFFER at capture, bytes) of what each call must allocate: written buffers that are returned."""
        written = {b for r in runs for b in r.fresh}
        state = {s.after for s in self.states}
        mine = [b for b in dict.fromkeys(map(base_of, outputs)) if b in written and self.number[b] not in state]
        return [(self.number[b], b, buffer_bytes(b)) for b in mine]

    def is_current(self) -> bool:
        """False once a tensor whose node is part of the kernels stands for another one: capture again."""
        return all((t := ref()) is None or t._uop is u for ref, u in self.woven)

    # ---- replay ------------------------------------------------------------------------------------------------------
    def replay(self, args: Sequence[UOp]) -> list[UOp]:
        """Run on these argument BUFFERs; the results, in memory of their own."""
        if self.commands is None or self.device is None:
            return self.outputs
        with running.lock:
            return self._replay(args, self.commands, self.device)

    def _replay(self, args: Sequence[UOp], commands: Any, device: Any) -> list[UOp]:
        for n, b in enumerate(args):
            commands.bind(n, b.storage.address)
        for i, (t, b, _) in enumerate(self.reads):
            if t._uop is not b:
                self._rebind(i)
        updates = [self._bind_state(s) for s in self.states]
        if self.prologue is not None:
            self.prologue.refresh()
        new = dict(self.today)
        for n, b, n_bytes in self.fresh:
            memory = device.alloc(n_bytes)
            commands.bind(n, memory.address)
            fresh = new[b] = new_buffer_like(b)
            fresh.storage = memory
        if settings.tracing or profile.recording:
            launch(commands, self.launches, self.kernels, replayed=True)
        else:
            commands.launch()
        for s, u in zip(self.states, updates, strict=True):
            if u is not None:
                s.tensor._uop = u
                new[s.template] = u
        return [new[o] if o in new else o if o.op == "BUFFER" else substitute(o, new) for o in self.outputs]

    def _rebind(self, i: int) -> None:
        """A tensor the step reads, but does not assign, was assigned since: bind its memory of today."""
        t, old, original = self.reads[i]
        (new,) = realize([t._uop])
        if new.op != "BUFFER":
            raise JitError("a captured tensor became a view", expected="a buffer of its own", found=new.op)
        if new.shape != old.shape or new.dtype is not old.dtype:
            expected, found = (f"{b.dtype.name} {b.shape}" for b in (old, new))
            raise JitError("a captured tensor changed its kind", expected=expected, found=found)
        t._uop = self.today[original] = new
        n = self.number[original]
        self._bind(n, new.storage.address)
        if self.prologue is not None:
            self.prologue.rebind(n, new)
        self.reads[i] = (t, new, original)

    def _bind_state(self, s: State) -> UOp | None:
        """Bind a state's memory; the BUFFER its tensor gets after the run, None when it is updated in place."""
        u = s.tensor._uop
        if u.op != "BUFFER" or u.storage is None:
            (u,) = realize([u])
            if u.op != "BUFFER":
                raise JitError("a captured tensor became a view", expected="a buffer of its own", found=u.op)
            s.tensor._uop = u
        held = sys.getrefcount(u) > 3 or sys.getrefcount(u.storage) > 2  # by a graph, or by a NumPy view
        held |= u.storage.is_lent() or u.storage.address % ALIGN_BYTES != 0  # an array that became state
        if s.before == s.after and held:
            copy = self.device.alloc(buffer_bytes(u))  # type: ignore[union-attr]
            self.device.copy(copy, u.storage, buffer_bytes(u))  # type: ignore[union-attr]
            u = s.tensor._uop = with_storage(u.shape, u.dtype, u.arg.device, copy)
        assert self.commands is not None and self.device is not None
        self.commands.bind(s.before, u.storage.address)
        if s.before == s.after:
            return None
        memory = self.device.alloc(buffer_bytes(s.template))
        self.commands.bind(s.after, memory.address)
        return with_storage(s.template.shape, s.template.dtype, s.template.arg.device, memory)


def external(runs: list[Run], args: Sequence[UOp]) -> list[UOp]:
    """The buffers a step reads that are neither its arguments nor made by it."""
    made: set[UOp] = set(args)
    out: dict[UOp, None] = {}
    for r in runs:
        out.update((b, None) for b in r.inputs if b not in made and b.storage is not None)
        made.update(r.fresh)
    return list(out)


def _uses(runs: list[Run]) -> Uses:
    """For each buffer the launches that take it, in order: (the number of the launch, its CALL, the slot)."""
    out: Uses = {}
    at = 0
    for r in runs:
        names = [*r.inputs, *r.fresh]
        for item, call in zip(r.plan.launches, r.plan.kernels, strict=True):
            for slot, a in enumerate(item.args):
                if a < len(names):
                    out.setdefault(names[a], []).append((at, call, slot))
            at += 1
    return out


def _may_overwrite(before: UOp, after: UOp, uses: Uses) -> bool:
    """True when `after` can be written over `before`: nobody reads `before` once `after` is being written, except the
    writing kernel itself at the very element it writes.
    """
    if before.shape != after.shape or before.dtype is not after.dtype:
        return False
    reads = uses.get(before, [])
    if not (writes := uses.get(after)):
        return False
    first, call, out = writes[0]
    if any(at > first for at, _, _ in reads):
        return False
    source = next((slot for at, _, slot in reads if at == first), None)
    return source is None or _same_elements(call.src[0], source, out)


def _same_elements(sink: UOp, source: int, out: int) -> bool:
    """True when the kernel reads PARAM `source` only at the index at which it stores PARAM `out`."""
    at: dict[int, set[UOp]] = {source: set(), out: set()}
    for u in toposort(sink):
        if u.op == "INDEX" and u.src[0].op == "PARAM" and u.src[0].arg.slot in at:
            at[u.src[0].arg.slot].add(u.src[1])
    return len(at[out]) == 1 and at[source] <= at[out]


__all__ = ["Capture", "State", "changes", "external", "note_assign", "refuse_while_capturing"]

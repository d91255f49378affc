"""Capture and replay: what one call of a step ran becomes one command buffer that runs again on other memory.

What it runs on which buffers is a recipe (`runtime/recipe.py`); here that is bound to memory and to the tensors around
it. What depends on constants alone is a prologue (`runtime/prologue.py`). Replaying does no graph work.

Invariant: a replay leaves exactly what running the step again would leave; a captured value is never stale, because
what may change is an argument or state, and the caller keys captures on everything else.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from sys import getrefcount
from typing import Any, NamedTuple

from monolect.backend.common.memory import ONE_NAME, Memory
from monolect.backend.registry import Device
from monolect.base.errors import IndexRangeError, JitError
from monolect.base.settings import settings
from monolect.ir.uop import UOp, new_buffer, new_buffer_like, substitute, toposort
from monolect.runtime import profile
from monolect.runtime.binding import concrete, value_of
from monolect.runtime.buffer import with_storage
from monolect.runtime.execute import realize, run, running
from monolect.runtime.packing import PackedCopy, packed_copy
from monolect.runtime.prologue import Prologue, Step
from monolect.runtime.recipe import KEPT, MADE, READ, Outside, Recipe, Value
from monolect.runtime.turns import Turns
from monolect.schedule.memory import ALIGN_BYTES, buffer_bytes


class Check(NamedTuple):
    """Indices that a step computes, from `first` to n - 1: their least and greatest are looked at after a call."""

    first: int
    n: int
    name: str  # of the method, called there
    line: tuple[str, int]

    def look(self, least: int, greatest: int) -> None:
        """Raise IndexRangeError where one is outside."""
        if least < self.first or greatest >= self.n:
            expected = f"{self.first}..{self.n - 1}, at {self.line[0]}:{self.line[1]}"
            found = least if least < self.first else greatest
            raise IndexRangeError(
                f"{self.name}: an index of a jitted step is out of range", expected=expected, found=found
            )


class Noted:
    """What was noted first of each Tensor, for as long as it lives: one that a step makes and nobody keeps is not what
    the step changes, and is gone when the step is over.
    """

    def __init__(self) -> None:
        self._by_identity: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def note(self, tensor: Any, value: Any) -> None:
        known = self._by_identity.get(id(tensor))
        if known is None or known[0]() is None:  # of another, which is gone
            self._by_identity[id(tensor)] = weakref.ref(tensor), value

    def knows(self, tensor: Any) -> bool:
        known = self._by_identity.get(id(tensor))
        return known is not None and known[0]() is not None

    def alive(self) -> list[tuple[Any, Any]]:
        """The Tensors that are still held by somebody, with what was noted."""
        return [(t, value) for ref, value in self._by_identity.values() if (t := ref()) is not None]


class Assigned(Noted):
    """Tensors with their nodes before; `looked`: those whose gradient was read before it was set; `checks`: None where
    nobody would look; `start`: what was made before is no part of the step; `inputs`: what stands for its arguments.
    """

    def __init__(self) -> None:
        super().__init__()
        self.looked = Noted()
        self.before = Noted()  # of all that changes: node, gradient, and whether it is a leaf
        self.checks: list[tuple[Check, Any, Any]] | None = None  # with the least and the greatest, as Tensors
        self.start = 0
        self.bring: Callable[[Any, Any], Any] | None = None  # what stands for a gradient from outside; see a capture
        self.asked: Callable[[], None] | None = None  # as in NotKept, of the step under capture
        self.inputs: frozenset[UOp] = frozenset()


SHORT_WORK = 1 << 17  # operations and bytes of a step that is over in a few times what letting in another thread takes
under_way: list[Any] = []  # captures, traces and derivatives of all threads
OWN: Any = object()  # in place of a gradient that was set before it was read


class NotKept:
    """In place of the gradient of a tensor that a step updated with it. Whoever asks for it is told to `asked`, of the
    step that did: its next call keeps it. `tensor`: the gradient, where the call that left it was the capture.
    """

    __slots__ = ("asked", "tensor")

    def __init__(self, asked: Callable[[], None] | None = None, tensor: Any = None) -> None:
        self.asked, self.tensor = asked, tensor

    def __reduce__(self) -> tuple:
        return NotKept, (None, self.tensor)

    def read(self, shape: tuple) -> Any:
        """The gradient. Raises JitError where there is none."""
        if self.asked is not None:
            self.asked()
        if self.tensor is None:
            expected = "a gradient that the step returns, or one that was read after its first call"
            raise JitError(
                "the gradient of a tensor that a jitted step updated",
                expected=expected if self.asked is None else f"{expected}; the next call keeps it",
                found=f"a gradient that was not kept, of shape {shape}",
            )
        return self.tensor

    def plus(self, own: Any) -> NotKept:
        """Once `own` is added to it."""
        return self if self.tensor is None else NotKept(self.asked, self.tensor + own)

    def without(self) -> NotKept:
        """As it is once a replay has added to it."""
        return self if self.tensor is None else NotKept(self.asked)


# held by who captures, and by calls that are not usual: a capture sees no state of another thread's step
steps = Turns()


class _Changes(threading.local):
    """Captures and traces under way in this thread: the tensors each saw assigned."""

    def __init__(self) -> None:
        self.captures: list[Assigned] = []
        self.is_inside = False  # steps that are called are parts of what is under way

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Steps that are called in the block are parts of it, as any function would be."""
        outer, self.is_inside = self.is_inside, True
        under_way.append(self)
        try:
            yield
        finally:
            self.is_inside = outer
            under_way.pop()

    @contextmanager
    def seen(self, alone: bool = False) -> Iterator[Assigned]:
        """The tensors that are assigned in the block. `alone`: captures around it take no note of them."""
        mine = Assigned()
        outer = self.captures
        self.captures = [mine] if alone else [*outer, mine]
        under_way.append(mine)
        try:
            yield mine
        finally:
            self.captures = outer
            under_way.pop()  # whichever: it is asked only whether there are any


changes = _Changes()


def note_assign(tensor: Any, before: UOp) -> None:
    """Called by an assign while a capture is under way."""
    for c in changes.captures:
        c.note(tensor, before)
    note_before(tensor, before)


def checks_under_way() -> list[tuple[Check, Any, Any]] | None:
    """Where a capture notes what is to be looked at after each call; None where none is under way."""
    return changes.captures[-1].checks if changes.captures else None


def is_held(u: UOp) -> bool:
    """Whether `u` is memory that the step under capture finds and that no call brings: what is made of it is kept from
    one call to the next, if nobody assigns to it.
    """
    return u.op == "BUFFER" and bool(changes.captures and settings.HOIST) and u.serial < changes.captures[-1].start


def note_gradient(tensor: Any, gradient: Any) -> Any:
    """Called when a gradient is read, or set (then it is OWN), while a capture is under way: what it is there."""
    note_before(tensor, tensor._uop)
    for c in changes.captures:
        if c.bring is not None and not c.looked.knows(tensor):
            if gradient.__class__ is NotKept and gradient.tensor is not None and gradient.asked is c.asked:
                gradient = gradient.read(tensor.shape)  # of a step that adds to its own
            if gradient is not None and gradient is not OWN and gradient.__class__ is not NotKept:
                gradient = tensor._grad = c.bring(tensor, gradient)
    for c in changes.captures:
        c.looked.note(tensor, gradient)
    return gradient


def sums_unkept(tensor: Any) -> bool:
    """Whether the step under capture has added to a gradient of the tensor that is not kept."""
    return any(c.looked.knows(tensor) for c in changes.captures if c.bring is not None)


def note_before(tensor: Any, node: UOp) -> None:
    """Called before anything of a tensor changes while a capture is under way; its node was this."""
    for c in changes.captures:
        c.before.note(tensor, (node, tensor._grad, tensor._requires_grad))


def refuse_while_capturing(what: str, u: UOp) -> None:
    """Raise JitError when a capture is under way, or another thread's that has brought `u` its arguments: what a replay
    could not repeat must not be recorded.
    """
    if changes.captures or (under_way and _is_of_a_capture(u)):
        raise JitError(f"{what} inside a jitted function", expected="a function of tensors only", found="a host read")


def _is_of_a_capture(u: UOp) -> bool:
    captures = [c for c in under_way if isinstance(c, Assigned) and c.inputs]
    return bool(captures) and not set(toposort(u)).isdisjoint(*(c.inputs for c in captures))


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


def two_ways(tensors: Sequence[Any], assigned: Sequence[Any], read: Sequence[Any]) -> list[Any]:
    """The arguments that a step also reaches from outside, when it assigns to them either way. `assigned`: tensors, and
    arguments by place.
    """
    given = {id(t): i for i, t in enumerate(tensors)}
    places = {s for s in assigned if s.__class__ is int}
    outside = [t for t in assigned if t.__class__ is not int and id(t) in given]
    return outside + [t for t in read if given.get(id(t)) in places]


class Capture:
    """A replayable step: a recipe bound to memory, and to the tensors and constants around it.

    Each call brings the addresses of the buffers 0, 1 ...: of arguments, of states that are not updated in place, and
    of fresh memory for what the step makes. `woven` are tensors, weakly, that cannot be bound anew, with the nodes they
    were.
    """

    def __init__(self, recipe: Recipe, outside: Outside, woven: Sequence[tuple[Callable[[], Any], UOp]] = ()) -> None:
        self.recipe, self.draft, self.woven = recipe, recipe.draft, woven
        draft = recipe.draft
        self.device = None if draft.device is None else Device[draft.device]
        self.variables, self.made = draft.variables, draft.made
        self.constants = dict(zip(draft.constants, outside.constants, strict=True))
        self.reads = [Read(t, self.constants[n], n) for t, n in zip(outside.reads, draft.reads, strict=True)]
        self.moves = [
            State(t, n, _whole(v, outside.kept)) for t, (n, v) in zip(outside.moves, draft.moves, strict=True)
        ]
        self.brought = [s for s in self.moves if s.number >= draft.n_args]
        self.in_place = [State(t, n) for t, n in zip(outside.in_place, draft.in_place, strict=True)]
        self.assigned = [*outside.moves, *outside.in_place]  # arguments by place
        self.read = outside.reads
        self.kept = outside.kept
        self.outputs = [_whole(v, outside.kept) for v in draft.outputs]
        whole = all(v.source == MADE and v.node is v.base for v in self.outputs)
        self.plain = whole and [v.at for v in self.outputs] == [*range(len(self.made))]  # it returns all that it makes
        self.launches = tuple(s.launch for s in recipe.late)
        self.kernels = tuple(s.call for s in recipe.late)
        self.commands: Any = None
        if self.device is not None:
            if recipe.phases:
                self.commands = self.device.phased(self.launches, recipe.phases)
            elif recipe.after:
                self.commands = self.device.ordered(self.launches, recipe.after)
            else:
                self.commands = self.device.commands(self.launches)
        self.prologue: Prologue | None = None
        if recipe.early:
            self.prologue = Prologue(self.device, recipe.early, self.constants)
        self.keep: list[Any] = []
        self.packed = {n: (source, layout) for s in recipe.early for n, source, layout in s.packed}
        self.copies: dict[int, PackedCopy] = {}  # of constants, by number
        if self.device is not None:
            self._bind_private(self.device)
        self.native: Any = getattr(self.commands, "run", None)
        self.may_fail = not hasattr(self.commands, "run_held")  # native code runs all launches, and does not
        self.short: Any = None
        alone = self.prologue is None and not getattr(self.commands, "shares_local", False)
        if alone and not any(p.lanes for p in recipe.phases) and _is_short(recipe.late):
            # never `run`: it would let in threads whose calls, without a lock, bind their addresses in the same slots
            self.native = self.short = getattr(self.commands, "run_held", self.native)
        profile.captured(self.device, len(recipe.late), len(recipe.early), self.bytes_by_kind)

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """What a call takes beside its arguments, state and constants."""
        return {**self.recipe.bytes_by_kind, "kernels' own": getattr(self.commands, "local_bytes", 0)}

    def _bind_private(self, device: Any) -> None:
        """Addresses that no call brings: constants, what the prologue makes, intermediates."""
        for n, n_bytes in self.recipe.kept_bytes.items():
            if self.packed.get(n, (-1, ""))[0] in self.constants:
                self._bind_packed(n)
            else:
                self.keep.append(device.alloc(n_bytes))
                self._bind(n, self.keep[-1].address)
        for n, b in self.constants.items():
            self._bind(n, b.storage.address)
        if self.recipe.arena_bytes:
            arena = device.alloc(self.recipe.arena_bytes)
            for n, offset in self.recipe.offsets.items():
                self._bind(n, arena.address + offset)
            self.keep.append(arena)

    def _bind_packed(self, number: int) -> None:
        """Bind the packed copy of a constant, which other captures may share."""
        source, layout = self.packed[number]
        n_bytes = self.recipe.kept_bytes[number]
        self.copies.pop(number, None)  # its memory may be the new copy's
        copy = self.copies[number] = packed_copy(self.device, self.constants[source], layout, n_bytes)
        self._bind(number, copy.memory.address)

    def _private(self) -> dict[int, tuple[Any, int, int]]:
        """By number: memory, where in it a buffer begins, its bytes. Of all that a call does not bring."""
        out = {n: (b.storage, 0, buffer_bytes(b)) for n, b in self.constants.items()}
        own = iter(self.keep)
        for n, n_bytes in self.recipe.kept_bytes.items():
            out[n] = (self.copies[n].memory if n in self.copies else next(own), 0, n_bytes)
        written = {n: n_bytes for s in (*self.recipe.early, *self.recipe.late) for n, n_bytes in s.written.items()}
        out |= {n: (self.keep[-1], offset, written[n]) for n, offset in self.recipe.offsets.items()}
        return out | {s.number: (s.memory, 0, s.memory.n_bytes) for s in self.in_place if s.memory is not None}

    def _run_verified(self, args: Sequence[UOp], addresses: list[int], made: Sequence[UOp]) -> None:
        """The launches one by one, and what each wrote compared with what it should have."""
        verified = import_module("monolect.runtime.verified")  # only who asks for it waits for it
        sizes = addresses[len(args) : len(addresses) - len(made)]
        brought = [*((u.storage, 0, u.storage.n_bytes) for u in args), *sizes]
        brought += [(u.storage, 0, u.storage.n_bytes) for u in made]
        pieces = self._private() | dict(enumerate(brought))
        verified.run_steps(self.device, self.launches, self.kernels, pieces, self.variables, replayed=True)

    def _bind(self, number: int, address: int) -> None:
        self.commands.bind(number, address)
        if self.prologue is not None:
            self.prologue.commands.bind(number, address)

    def is_current(self) -> bool:
        """False once a tensor whose node is part of the kernels stands for another one: capture again."""
        return all((t := ref()) is None or t._uop is u for ref, u in self.woven)

    def weaves(self, tensors: Sequence[Any]) -> bool:
        """Whether the node of one of them is part of the kernels, or of a result."""
        return any(ref() is t for t in tensors for ref, _ in self.woven)

    def outside(self) -> Outside:
        """The tensors and constants of today, as the recipe numbers them."""
        for r in self.reads:
            if r.tensor._uop is not r.uop:
                self._rebind(r)
        states = [s.tensor if s.argument is None else s.argument for s in self.moves]
        for t in (*states, *(s.tensor for s in self.in_place)):
            if t.__class__ is not int:
                _buffer_of(t)
        reads, stays = [r.tensor for r in self.reads], [s.tensor for s in self.in_place]
        return Outside(states, stays, reads, [*self.constants.values()], self.kept)

    # ---- replay ------------------------------------------------------------------------------------------------------
    def replay(
        self,
        args: Sequence[UOp],
        addresses: list[int],
        tensors: Sequence[Any],
        finish: Callable[[list[UOp]], None] = lambda _: None,
    ) -> list[UOp]:
        """Run on these BUFFERs, at these addresses, of the arguments `tensors`; the results, in memory of their own.

        `finish` gets them, and does what else a call leaves behind: with the states, or not at all.
        """
        if self.device is None:
            outs = [self._today(v, ((), args, self.reads)) for v in self.outputs]
            finish(outs)
            return outs
        running.wait()
        with running.lock:
            args, taken = self._bring(args, addresses)
            made: list[UOp] = []
            for template, n_bytes, shape in self.made:
                u = new_buffer_like(template) if shape is None else new_buffer(concrete(shape), *template.arg[1:3])
                u.storage = memory = (taken and taken.get(len(made))) or self.device.alloc(n_bytes)
                addresses.append(memory.address)
                made.append(u)
            lists = made, args, self.reads
            outs = made if self.plain else [self._today(v, lists) for v in self.outputs]
            moved = [s.tensor if s.argument is None else tensors[s.argument] for s in self.moves]
            news = [self._today(s.after, lists) for s in self.moves]
            if self.may_fail or settings.VERIFY > 1 or settings.tracing or profile.recording:
                self._run_in_steps(args, addresses, made)
                _move(moved, news)
                finish(outs)
                return outs
            try:
                self.native(*addresses)
            finally:  # an interrupt is raised once it has run
                _move(moved, news)
                finish(outs)
        return outs

    def _run_in_steps(self, args: Sequence[UOp], addresses: list[int], made: Sequence[UOp]) -> None:
        """The launches, of which one may fail: states in host memory are then what they were."""
        assert self.device is not None
        saved = []
        for s in self.in_place:
            if isinstance(s.memory, Memory):
                saved.append((s.memory, copy := self.device.alloc(s.memory.n_bytes)))
                self.device.copy(copy, s.memory, s.memory.n_bytes)
        try:
            if settings.VERIFY > 1:
                self._run_verified(args, addresses, made)
            else:
                run(self.commands, addresses, self.launches, self.kernels, replayed=True)
        except BaseException:
            for memory, copy in saved:
                self.device.copy(memory, copy, memory.n_bytes)
            raise

    def _bring(self, args: Sequence[UOp], addresses: list[int]) -> tuple[Sequence[UOp], dict[int, Any] | None]:
        """What a call brings beside its arguments, at `addresses` too; and the memory that results may take."""
        taken = self._donated(args) if self.draft.reuse else None
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
            self.prologue.refresh(self._private if settings.VERIFY > 1 else None)
        for v in self.variables:
            addresses.append(value_of(v))
        return args, taken

    def _donated(self, args: Sequence[UOp]) -> dict[int, Any]:
        """The memory of donated arguments, for results by number: what nobody else holds."""
        taken = {}
        for k, n in self.draft.reuse.items():
            u = args[n]
            memory = u.storage
            # references: the tensor's, the list's; the BUFFER's
            if getrefcount(u) <= ONE_NAME + 2 and getrefcount(memory) <= ONE_NAME + 1 and not memory.is_lent():
                taken[k] = None if memory.address % ALIGN_BYTES else memory
        return taken

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
        self.constants[r.number] = new
        self._bind(r.number, new.storage.address)
        if self.prologue is not None:
            self.prologue.rebind(r.number, new)
            for n, (source, _) in self.packed.items():
                if source == r.number:
                    self._bind_packed(n)
        r.uop = new  # last: other threads see by it what is bound

    def _own(self, s: State) -> None:
        """Bind the memory of a state that is updated in place: its own, or a copy where somebody else sees that."""
        assert self.device is not None
        s.uop = s.memory = None
        u = _buffer_of(s.tensor)
        memory = u.storage
        # references: the tensor's; the BUFFER's
        held = getrefcount(u) > ONE_NAME + 1 or getrefcount(memory) > ONE_NAME + 1  # by a graph, or by a NumPy view
        if held or memory.is_lent() or memory.address % ALIGN_BYTES:  # an array that became state
            memory = self.device.alloc(buffer_bytes(u))
            self.device.copy(memory, u.storage, buffer_bytes(u))
            u = s.tensor._uop = with_storage(u.shape, u.dtype, u.arg.device, memory)
        self._bind(s.number, memory.address)
        s.memory, s.uop = memory, u  # last: other threads see by it what is bound


def _move(tensors: Sequence[Any], news: Sequence[UOp]) -> None:
    """Let states stand for their new versions."""
    for t, new in zip(tensors, news, strict=True):
        t._uop = new


def _is_short(steps: Sequence[Step]) -> bool:
    """Whether steps are over so soon that they may run without letting another thread have the interpreter."""
    work = 0
    for s in steps:
        kernel = s.call.src[0]
        if kernel.op != "SINK" or not kernel.src or s.launch.program.n_threads > 1:  # native code, or no longer known
            return False
        work += sum(profile.estimate(s.call))
        if work > SHORT_WORK:
            return False
    return has_lock()


def has_lock() -> bool:
    """Whether Python runs one thread at a time, which free-threaded Python does not."""
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled


def _buffer_of(tensor: Any) -> UOp:
    """The BUFFER a tensor stands for, computed if it is not. Raises JitError when that is a view of another."""
    u: UOp = tensor._uop
    if u.op != "BUFFER" or u.storage is None:
        (new,) = realize([u])
        if new.op != "BUFFER":
            raise JitError("a captured tensor became a view", expected="a buffer of its own", found=new.op)
        if tensor._uop is u:  # otherwise another thread has assigned to it since
            tensor._uop = new
        return new
    return u


def _whole(v: Value, kept: list[UOp]) -> Value:
    """With memory, where the step does not compute it: a constant, or a view of one."""
    return v._replace(node=substitute(v.node, {v.base: kept[v.at]})) if v.source == KEPT else v


__all__ = [
    "OWN",
    "Capture",
    "Check",
    "NotKept",
    "changes",
    "has_lock",
    "checks_under_way",
    "is_held",
    "note_assign",
    "note_before",
    "note_gradient",
    "refuse_while_capturing",
    "steps",
    "sums_unkept",
    "under_way",
]

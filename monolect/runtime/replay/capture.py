"""Capture and replay: what one call of a step ran becomes one command buffer that runs again on other memory.

What it runs on which memory is a step (`runtime/replay/record.py`); here that is planned, and bound to memory and to
the tensors around it. What depends on constants alone is a prologue (`runtime/replay/prologue.py`). Replaying does no
graph work.

Invariant: a replay leaves exactly what running the step again would leave; a captured value is never stale, because
what may change is an argument or state, and the caller keys captures on everything else.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from sys import getrefcount
from typing import Any, NamedTuple

from monolect.backend.common.host.memory import ONE_NAME, Memory
from monolect.backend.registry import Device
from monolect.base.errors import IndexRangeError, JitError
from monolect.base.settings import settings
from monolect.command.estimate import estimate
from monolect.command.forms import (
    base_of,
    buffer_bytes,
    calls_in,
    home,
    is_arena,
    items_of,
    kernel_of,
    once_of,
    program_of,
)
from monolect.command.passes import planned
from monolect.command.rewrites.memory import ALIGN_BYTES
from monolect.ir.placement import memory_of
from monolect.ir.uop import UOp, build, new_buffer, new_buffer_like, node, substitute, toposort
from monolect.runtime import profile
from monolect.runtime.binding import concrete, value_of
from monolect.runtime.buffer import with_storage
from monolect.runtime.realize.encode import encode
from monolect.runtime.realize.execute import realize, run, running
from monolect.runtime.realize.locks import Turns
from monolect.runtime.realize.plan import positions, target_of
from monolect.runtime.replay.packing import PackedCopy, packed_copy
from monolect.runtime.replay.prologue import Prologue
from monolect.runtime.replay.record import Outside, mark


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
        self.around: list[Assigned] = []  # those that took no note of assignments, too
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
        """The tensors that are assigned in the block. `alone`: captures around it take no note of them; they do of
        gradients that are read.
        """
        mine = Assigned()
        outer = self.captures, self.around
        self.captures, self.around = [mine] if alone else [*self.captures, mine], [*self.around, mine]
        under_way.append(mine)
        try:
            yield mine
        finally:
            self.captures, self.around = outer
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
    for c in changes.around:
        if c.bring is not None and not c.looked.knows(tensor):
            if gradient.__class__ is NotKept and gradient.tensor is not None and gradient.asked is c.asked:
                gradient = gradient.read(tensor.shape)  # of a step that adds to its own
            if gradient is not None and gradient is not OWN and gradient.__class__ is not NotKept:
                gradient = tensor._grad = c.bring(tensor, gradient)
    for c in changes.around:
        c.looked.note(tensor, gradient)
    return gradient


def sums_unkept(tensor: Any) -> bool:
    """Whether the step under capture has added to a gradient of the tensor that is not kept."""
    return any(c.looked.knows(tensor) for c in changes.around if c.bring is not None)


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


class Value(NamedTuple):
    """How to rebuild a result of a replay: `node` with the mark `base` replaced by item `at` of the list `source`.

    The lists are "given" (arguments and old versions of states), "fresh" memory, "read" from outside, and "constant".
    """

    source: str
    at: int
    node: UOp
    base: UOp


class Fresh(NamedTuple):
    """Fresh memory of each call: a mark of its kind, its bytes, and its shape where that is symbolic."""

    mark: UOp
    n_bytes: int
    shape: tuple | None


class Capture:
    """A replayable step: its command buffer bound to memory, and to the tensors and constants around it.

    Each call brings the addresses of the first positions: of arguments, of states that are not updated in place, sizes,
    and fresh memory for results. `woven` are tensors, weakly, that cannot be bound anew, with the nodes they were.
    """

    def __init__(
        self,
        step: UOp,
        outside: Outside,
        device: str | None,
        woven: Sequence[tuple[Callable[[], Any], UOp]] = (),
    ) -> None:
        self.woven = woven
        self.device = None if device is None else Device[device]
        ready = step if device is None else planned(step, target_of(device))
        self.params = step.src[1:]  # by slot; of constants the BUFFERs that they were
        self.step, self.ready = _unbound(step), _unbound(ready)
        self.roles = roles = step.arg.roles
        self.n_args = roles.count("argument")
        self.n_given = len(roles) - sum(roles.count(r) for r in ("state", "read", "constant"))
        self._bind_outside(outside)
        self.params = ()
        self.program = program_of(self.ready)
        self.items = tuple(calls_in(items_of(self.program)))
        self.number = positions(self.ready)
        self.commands: Any = None
        self.prologue: Prologue | None = None
        if device is not None:
            self.commands = encode(items_of(self.program), self.number, device)
            if once := once_of(self.program):
                self.prologue = Prologue(encode(once, self.number, device), once, self.constants)
        self.keep: list[Any] = []
        self.owned: dict[UOp, Any] = {}  # memory of the step's own, by its BUFFER
        self.packed = _packed(once_of(self.program))
        self.copies: dict[UOp, PackedCopy] = {}  # of constants, by BUFFER
        if self.device is not None:
            self._bind_private()
        by_host = hasattr(self.commands, "bind_memory")  # several devices, or loops
        self.native: Any = None if by_host else getattr(self.commands, "run", None)
        self.may_fail = not hasattr(self.commands, "run_held")  # native code runs all launches, and does not
        self.short: Any = None
        alone = self.prologue is None and not getattr(self.commands, "shares_local", False)
        if alone and not any(u.op == "GROUP" for u in items_of(self.program)) and _is_short(self.items):
            # never `run`: it would let in threads whose calls, without a lock, bind their addresses in the same slots
            self.native = self.short = getattr(self.commands, "run_held", self.native)
        profile.captured(self.device, len(self.items), len(once_of(self.program)), self.bytes_by_kind)

    def _bind_outside(self, outside: Outside) -> None:
        """What is around the step: tensors and constants by slot, and what its results are made of."""
        step, roles = self.step, self.roles
        slots = {role: [k for k, r in enumerate(roles) if r == role] for role in set(roles)}
        params = self.params
        self.variables = tuple([params[k] for k in slots.get("size", ())])
        self.fresh_slots = slots.get("result", [])
        self.made = tuple([_fresh(params[k]) for k in self.fresh_slots])
        bound = [k for k, r in enumerate(roles) if r in ("read", "constant")]
        self.constants = dict(zip(bound, outside.constants, strict=True))
        self.reads = [Read(t, self.constants[n], n) for t, n in zip(outside.reads, slots.get("read", ()), strict=True)]
        self.reuse = {self.fresh_slots.index(k): n for k, n in step.arg.reuse}
        outs = step.src[0].src
        n, moves = step.arg.n_results, step.arg.moves
        self.outputs = [self._value(u) for u in outs[:n]]
        news = [self._value(u) for u in outs[n : n + len(moves)]]
        self.moves = [State(t, k, after) for t, k, after in zip(outside.moves, moves, news, strict=True)]
        self.brought = [s for s in self.moves if s.number >= self.n_args]
        self.in_place = [State(t, k) for t, k in zip(outside.in_place, slots.get("state", ()), strict=True)]
        self.assigned = [*outside.moves, *outside.in_place]  # arguments by place
        self.read = outside.reads
        whole = all(v.source == "fresh" and v.node is v.base for v in self.outputs)
        self.plain = whole and [v.at for v in self.outputs] == [*range(len(self.made))]  # it returns all that it makes

    def _value(self, u: UOp) -> Value:
        """What a result will be at a replay."""
        u = u.src[0] if u.op == "AFTER" else u
        p = memory_of(u)
        slot = p.arg.slot
        role = self.roles[slot]
        b = mark(p)
        new = b if u is p else substitute(u, {p: b})
        if role == "result":
            return Value("fresh", self.fresh_slots.index(slot), new, b)
        if role == "read":
            return Value("read", next(i for i, r in enumerate(self.reads) if r.number == slot), new, b)
        if role == "constant":
            return Value("constant", slot, substitute(u, {p: self.constants[slot]}), b)
        return Value("given", slot, new, b)

    def home(self, b: UOp) -> Any:
        """The device that the memory of a BUFFER is on."""
        assert self.device is not None
        return Device[home(b, self.device.name)]

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """What a call takes besides its arguments, state and constants."""
        owned = [b for b in self.number if b.op == "BUFFER"]
        return {
            "intermediates": sum(buffer_bytes(b) for b in owned if is_arena(b)),
            "results": sum(m.n_bytes for k, m in enumerate(self.made) if k not in self.reuse),
            "made once": sum(buffer_bytes(b) for b in owned if not is_arena(b)),
            "kernels' own": getattr(self.commands, "local_bytes", 0),
        }

    def _bind_private(self) -> None:
        """Addresses that no call brings: constants, what runs once leaves, intermediates."""
        for b, n in self.number.items():
            if b.op != "BUFFER":
                if n in self.constants:
                    self._bind(n, self.constants[n].storage.address)
            elif b in self.packed and self.packed[b][0] in self.constants:
                self._bind_packed(b)
            else:
                self.owned[b] = memory = self.home(b).alloc(buffer_bytes(b))
                self._bind(n, memory.address)

    def _bind_packed(self, b: UOp) -> None:
        """Bind the packed copy of a constant, which other captures may share."""
        source, layout = self.packed[b]
        self.copies.pop(b, None)  # its memory may be the new copy's
        copy = self.copies[b] = packed_copy(self.device, self.constants[source], layout, buffer_bytes(b))
        self._bind(self.number[b], copy.memory.address)

    def _pieces(self) -> dict[int, Any]:
        """The memory behind each position that a call does not bring."""
        out: dict[int, Any] = {n: b.storage for n, b in self.constants.items()}
        out |= {self.number[b]: m for b, m in self.owned.items()}
        out |= {self.number[b]: c.memory for b, c in self.copies.items()}
        return out | {s.number: s.memory for s in self.in_place if s.memory is not None}

    def _run_verified(self, args: Sequence[UOp], addresses: list[int], made: Sequence[UOp]) -> None:
        """The items one by one, and what each wrote compared with what it should have."""
        sizes = addresses[len(args) : len(addresses) - len(made)]
        brought = [*(u.storage for u in args), *sizes, *(u.storage for u in made)]
        self._verify(self.items, self._pieces() | dict(enumerate(brought)))

    def _verify(self, items: tuple[UOp, ...], pieces: dict[int, Any] | None = None) -> None:
        verified = import_module("monolect.runtime.realize.verified")  # imported where a setting asks for it
        pieces = self._pieces() if pieces is None else pieces
        verified.run_items(self.device, items, self.number, pieces, self.variables, replayed=True)

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

    def bound_now(self) -> dict[int, UOp]:
        """The BUFFERs of states and constants, by slot."""
        out = {s.number: s.tensor._uop for s in (*self.brought, *self.in_place)}
        return out | self.constants

    def outside(self) -> Outside:
        """The tensors and constants of today, by slot."""
        for r in self.reads:
            if r.tensor._uop is not r.uop:
                self._rebind(r)
        states = [s.tensor if s.argument is None else s.argument for s in self.moves]
        for t in (*states, *(s.tensor for s in self.in_place)):
            if t.__class__ is not int:
                _buffer_of(t)
        reads, stays = [r.tensor for r in self.reads], [s.tensor for s in self.in_place]
        return Outside(states, stays, reads, [*self.constants.values()])

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
            outs = [self._today(v, {"given": args, "read": self.reads}) for v in self.outputs]
            finish(outs)
            return outs
        running.wait()
        with running.lock:
            args, taken = self._bring(args, addresses)
            made: list[UOp] = []
            for template, n_bytes, shape in self.made:
                u = new_buffer_like(template) if shape is None else new_buffer(concrete(shape), *template.arg[1:3])
                u.storage = memory = (taken and taken.get(len(made))) or Device[home(template, self.device.name)].alloc(
                    n_bytes
                )
                addresses.append(memory.address)
                made.append(u)
            lists = {"fresh": made, "given": args, "read": self.reads}
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
            if hasattr(self.commands, "bind_memory"):
                sizes = addresses[len(args) : len(addresses) - len(made)]
                brought = [*(u.storage for u in args), *sizes, *(u.storage for u in made)]
                for n, memory in (self._pieces() | dict(enumerate(brought))).items():
                    self.commands.bind_memory(n, memory)
            if settings.VERIFY > 1 and not hasattr(self.commands, "bind_memory"):
                self._run_verified(args, addresses, made)
            else:
                run(self.commands, addresses, self.items, replayed=True)
        except BaseException:
            for memory, copy in saved:
                self.device.copy(memory, copy, memory.n_bytes)
            raise

    def _bring(self, args: Sequence[UOp], addresses: list[int]) -> tuple[Sequence[UOp], dict[int, Any] | None]:
        """What a call brings beside its arguments, at `addresses` too; and the memory that results may take."""
        taken = self._donated(args) if self.reuse else None
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
            self.prologue.refresh(self._verify if settings.VERIFY > 1 else None)
        for v in self.variables:
            addresses.append(value_of(v))
        return args, taken

    def _donated(self, args: Sequence[UOp]) -> dict[int, Any]:
        """The memory of donated arguments, for results by number: what nobody else holds."""
        taken = {}
        for k, n in self.reuse.items():
            u = args[n]
            memory = u.storage
            # references: the tensor's, the list's; the BUFFER's
            if getrefcount(u) <= ONE_NAME + 2 and getrefcount(memory) <= ONE_NAME + 1 and not memory.is_lent():
                taken[k] = None if memory.address % ALIGN_BYTES else memory
        return taken

    @staticmethod
    def _today(v: Value, lists: Mapping[str, Any]) -> UOp:
        if v.source == "constant":
            return v.node
        new = lists[v.source][v.at]
        new = new.uop if v.source == "read" else new
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
            for b, (source, _) in self.packed.items():
                if source == r.number:
                    self._bind_packed(b)
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
            own = self.home(u)
            memory = own.alloc(buffer_bytes(u))
            own.copy(memory, u.storage, buffer_bytes(u))
            u = s.tensor._uop = with_storage(u.shape, u.dtype, u.arg.device, memory)
        self._bind(s.number, memory.address)
        s.memory, s.uop = memory, u  # last: other threads see by it what is bound


def _move(tensors: Sequence[Any], news: Sequence[UOp]) -> None:
    """Let states stand for their new versions."""
    for t, new in zip(tensors, news, strict=True):
        t._uop = new


def _unbound(step: UOp) -> UOp:
    """The step without the constants it was planned for."""
    return node("FUNCTION", step.src[:1], step.arg)


def _fresh(p: UOp) -> Fresh:
    symbolic = any(n.__class__ is not int for n in p.shape)
    return Fresh(mark(p), buffer_bytes(p), p.shape if symbolic else None)


def _packed(once: Sequence[UOp]) -> dict[UOp, tuple[int, str]]:
    """The slot of the source and the layout of each packed block that items fill from a PARAM; -1 for other sources."""
    out = {}
    for c in once:
        layouts = c.src[0].arg.layouts if c.src[0].op == "PROGRAM" else ()
        for k, layout in enumerate(layouts):
            block, source = (base_of(c.src[1 + 2 * k + i]) for i in range(2))
            out[block] = (source.arg.slot if source.op == "PARAM" else -1, layout)
    return out


def _is_short(items: Sequence[UOp]) -> bool:
    """Whether items are over so soon that they may run without letting another thread have the interpreter."""
    work = 0
    for c in items:
        kernel = kernel_of(c)
        if kernel.op != "SINK" or kernel.arg.fills or c.src[0].arg.threads > 1:  # native code, or packing
            return False
        work += sum(estimate(c))
        if work > SHORT_WORK:
            return False
    return has_lock()


def has_lock() -> bool:
    """Whether Python runs one thread at a time, which free-threaded Python does not."""
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled


def _buffer_of(tensor: Any) -> UOp:
    """The BUFFER a tensor stands for: computed if it is not, copied if it is a part of what was computed."""
    u: UOp = tensor._uop
    if u.op != "BUFFER" or u.storage is None:
        (new,) = realize([u])
        if new.op != "BUFFER":
            (new,) = realize([build("CONTIGUOUS", new)])
        if tensor._uop is u:  # otherwise another thread has assigned to it since
            tensor._uop = new
        return new
    return u


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

"""Bind a recorded step to memory and tensors, and replay it as one command buffer.

A step (`runtime/replay/record.py`) says which kernels run on which memory. This module plans the step and binds it to
memory and to the tensors outside of it. Kernels that depend only on constants are a prologue
(`runtime/replay/prologue.py`). A replay does no graph work.

Invariant: a replay has exactly the effects of running the step again. A captured value is never stale: whatever may
change is an argument or state, and the caller keys captures on everything else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from sys import getrefcount
from typing import Any, NamedTuple

from monolect.backend.common.host.memory import ONE_REF, Memory
from monolect.backend.registry import Device
from monolect.base.errors import JitError
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
from monolect.ir.uop import UOp, build, new_buffer, new_buffer_like, node, substitute
from monolect.runtime import profile
from monolect.runtime.binding import concrete, value_of
from monolect.runtime.buffer import Shards, parts_of, with_storage
from monolect.runtime.realize.encode import encode
from monolect.runtime.realize.execute import own_memory, realize, run
from monolect.runtime.realize.locks import running
from monolect.runtime.realize.plan import positions, target_of
from monolect.runtime.replay.packing import PackedCopy, packed_copy
from monolect.runtime.replay.prologue import Prologue
from monolect.runtime.replay.record import Outside, mark

SHORT_WORK = 1 << 17  # operations + bytes; a step up to this runs without releasing the GIL, which would cost as much

MAPPED_REF = max(map(getrefcount, (object(),)))  # `getrefcount` in a `map` of an object that only a tuple holds


class State:
    """A tensor that the step assigns: the external tensor `tensor`, or argument number `argument` of each call.

    There are two kinds. A state that is updated in place has `after` None: position `number` of the command buffer is
    bound to the memory of its BUFFER `uop`, while no other reference to that memory exists; on several devices position
    `number` and those after it are bound, to one `memory` each. For a state with `after` (the rule for its new node),
    each call supplies the old version, and the tensor is rebound to a new BUFFER. `origin`: the origin of its BUFFERs,
    if an unjitted call would give them a graph.
    """

    __slots__ = ("after", "argument", "memory", "number", "origin", "tensor", "uop")

    def __init__(self, tensor: Any, number: int, after: Any = None):
        self.argument = tensor if tensor.__class__ is int else None
        self.tensor = tensor
        self.number, self.after = number, after
        self.uop: UOp | None = None
        self.memory: Any = None
        self.origin: tuple | None = None

    @property
    def memories(self) -> dict[int, Any]:
        """The memory that each position is bound to, as a dict; empty for a state that is not bound yet."""
        if self.memory.__class__ is not tuple:
            return {} if self.memory is None else {self.number: self.memory}
        return dict(enumerate(self.memory, self.number))

    def has_shared_part(self) -> bool:
        """Return whether other code holds the BUFFER or the memory of one device."""
        if self.uop is None or self.memory.__class__ is not tuple:
            return False
        parts = self.uop.storage.parts  # held by the Shards; their memory by them and by `memory`
        return max(map(getrefcount, parts)) > MAPPED_REF or max(map(getrefcount, self.memory)) > MAPPED_REF + 1


class Read:
    """A tensor that the step reads but does not assign, and the BUFFER `uop` that its slots are bound to.

    `slots`: pairs (slot, number of the part), one for each device that the step reads.
    """

    __slots__ = ("slots", "tensor", "uop")

    def __init__(self, tensor: Any, uop: UOp):
        self.tensor, self.uop = tensor, uop
        self.slots: list[tuple[int, int]] = []


def aliased_arguments(tensors: Sequence[Any], assigned: Sequence[Any], read: Sequence[Any]) -> list[Any]:
    """Return the arguments among `tensors` that a step also reaches as external tensors, if the step assigns them in
    either role.

    `tensors`: the argument tensors. `assigned`: assigned external tensors, and numbers of assigned arguments. `read`:
    external tensors that are read.
    """
    given = {id(t): i for i, t in enumerate(tensors)}
    assigned_arguments = {s for s in assigned if s.__class__ is int}
    outside = [t for t in assigned if t.__class__ is not int and id(t) in given]
    return outside + [t for t in read if given.get(id(t)) in assigned_arguments]


class Output(NamedTuple):
    """A rule to rebuild the node of a result at a replay: replace the placeholder `base` in `node` by item `at` of the
    list named `source`.

    The lists are "given" (arguments and old versions of states), "fresh" (new memory), "read" (tensors from outside)
    and "constant". For a result on several devices `source` is "parts", and `at` has the rule for each device.
    """

    source: str
    at: Any
    node: UOp
    base: UOp

    @property
    def made_at(self) -> int | None:
        """The index in the list "fresh" of the memory of the result, on several devices of its first part; None if it
        is not fresh memory.
        """
        first = self.at[0] if self.source == "parts" else self
        return first.at if first.source == "fresh" else None

    def joined(self, *parts: UOp) -> UOp:
        """Return the node of a result on several devices from its part on each."""
        b = new_buffer_like(self.base)
        b.storage, b.origin = Shards(parts, b.arg.axis), parts[0].origin
        return self.shown(b)

    def shown(self, new: UOp) -> UOp:
        """Return `node` with the memory `new`, whose origin it gets, in place of `base`."""
        if self.node is self.base:
            return new
        u = substitute(self.node, {self.base: new})
        u.origin = new.origin
        return u


class Fresh(NamedTuple):
    """The rule for memory that each call allocates: a placeholder BUFFER (`mark`), its size in bytes, and its shape if
    that is symbolic.
    """

    mark: UOp
    n_bytes: int
    shape: tuple | None


class Capture:
    """A replayable step: its command buffer, bound to memory and to the tensors and constants outside of it.

    Each call supplies the addresses of the first positions: arguments, states that are not updated in place, sizes, and
    fresh memory for results. `baked_in`: (weak reference to a tensor, its node) for tensors whose nodes are part of the
    kernels, so that they cannot be rebound.
    """

    def __init__(
        self,
        step: UOp,
        outside: Outside,
        device: str | None,
        baked_in: Sequence[tuple[Callable[[], Any], UOp]] = (),
    ) -> None:
        self.baked_in = baked_in
        self.device = None if device is None else Device[device]
        ready = step if device is None else planned(step, target_of(device))
        self.params = step.src[1:]  # by slot; for a constant its BUFFER
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
            self.commands = encode(items_of(self.program), self.number, device, step)
            if once := once_of(self.program):
                self.prologue = Prologue(encode(once, self.number, device, step), once, self.constants)
        self.keep: list[Any] = []
        self.owned: dict[UOp, Any] = {}  # memory private to the step, by BUFFER
        self.packed = _packed(once_of(self.program))
        self.copies: dict[UOp, PackedCopy] = {}  # of constants, by BUFFER
        if self.device is not None:
            self._bind_private()
        by_host = hasattr(self.commands, "bind_memory")  # HostCommands: several devices, or loops
        self.native: Any = None if by_host else getattr(self.commands, "run", None)
        self.may_fail = not hasattr(self.commands, "run_held")  # False if native code runs all launches
        self.short: Any = None
        alone = self.prologue is None and not getattr(self.commands, "shares_local", False)
        if alone and not any(u.op == "GROUP" for u in items_of(self.program)) and _is_short(self.items):
            # not `run`, which releases the GIL: threads that call without a lock would bind addresses in the same slots
            self.native = self.short = getattr(self.commands, "run_held", self.native)
        profile.captured(self.device, len(self.items), len(once_of(self.program)), self.bytes_by_kind)

    def _bind_outside(self, outside: Outside) -> None:
        """Set the attributes that connect the step with the outside: tensors and constants by slot, rules for
        results.
        """
        step, roles = self.step, self.roles
        slots = {role: [k for k, r in enumerate(roles) if r == role] for role in set(roles)}
        params = self.params
        self.variables = tuple([params[k] for k in slots.get("size", ())])
        self.fresh_slots = slots.get("result", [])
        self.made = tuple([_fresh(params[k]) for k in self.fresh_slots])
        bound = [k for k, r in enumerate(roles) if r in ("read", "constant")]
        self.constants = dict(zip(bound, outside.constants, strict=True))
        self.reads = self._reads(outside, slots.get("read", ()))
        self.reuse = {self.fresh_slots.index(k): n for k, n in step.arg.reuse}
        outs = iter(step.src[0].src)
        n, moves = step.arg.n_results, step.arg.moves
        results = outside.results or [None] * n
        self.outputs = [self._value(next(outs)) if u is None else self._on_several(u, outs) for u in results]
        old_slots, held = iter(moves), iter(slots.get("state", ()))
        self.moves: list[State] = []
        self.in_place: list[State] = []
        for t in outside.moves:
            u = t._uop if t.__class__ is not int else outside.args[t] if outside.args else None
            if u is None or u.arg.device.__class__ is not tuple:
                self.moves.append(State(t, next(old_slots), self._value(next(outs))))
            else:
                (k, *_) = [next(old_slots) for _ in u.arg.device]
                self.moves.append(State(t, k, self._on_several(mark(u), outs)))
        self.brought = [s for s in self.moves if s.number >= self.n_args]
        for t in outside.in_place:
            (k, *_) = [next(held) for _ in _devices(t._uop)]
            self.in_place.append(State(t, k))
        self.assigned = [*outside.moves, *outside.in_place]  # arguments by number
        self.read = [*dict.fromkeys(outside.reads)]
        seen = [*outside.in_place, *outside.reads, *(state.tensor for state in self.brought)]
        self.is_on_several = bool(outside.results) or any(len(_devices(t._uop)) > 1 for t in seen)
        whole = all(v.source == "fresh" and v.node is v.base for v in self.outputs)
        self.plain = whole and [v.at for v in self.outputs] == [
            *range(len(self.made))
        ]  # the results are exactly the fresh BUFFERs

    def _reads(self, outside: Outside, slots: Sequence[int]) -> list[Read]:
        """Return the Reads of the tensors of `outside`, one for each tensor."""
        out: dict[int, Read] = {}
        for t, k in zip(outside.reads, slots, strict=True):
            b = self.constants[k]
            u = t._uop if t.device.__class__ is tuple else b
            out.setdefault(id(t), Read(t, u)).slots.append((k, parts_of(u).index(b)))
        return [*out.values()]

    def _on_several(self, u: UOp, outs: Iterator[UOp]) -> Output:
        """Return the rule to rebuild the result `u`, a view of a placeholder on several devices, from the next of
        `outs`.
        """
        b = memory_of(u)
        return Output("parts", tuple([self._value(next(outs)) for _ in b.arg.device]), u, b)

    def _value(self, u: UOp) -> Output:
        """Return the rule to rebuild the result `u` at a replay."""
        u = u.src[0] if u.op == "AFTER" else u
        p = memory_of(u)
        slot = p.arg.slot
        role = self.roles[slot]
        b = mark(p)
        new = b if u is p else substitute(u, {p: b})
        if role == "result":
            return Output("fresh", self.fresh_slots.index(slot), new, b)
        if role == "read":
            found = ((i, part) for i, r in enumerate(self.reads) for k, part in r.slots if k == slot)
            return Output("read", next(found), new, b)
        if role == "constant":
            return Output("constant", slot, substitute(u, {p: self.constants[slot]}), b)
        return Output("given", slot, new, b)

    def home(self, b: UOp) -> Any:
        """Return the device that owns the memory `b`, a PARAM or BUFFER."""
        assert self.device is not None
        return Device[home(b, self.device.name)]

    @property
    def bytes_by_kind(self) -> dict[str, int]:
        """Bytes that a call takes besides its arguments, state and constants, as a dict from kind of memory to
        bytes.
        """
        owned = [b for b in self.number if b.op == "BUFFER"]
        return {
            "intermediates": sum(buffer_bytes(b) for b in owned if is_arena(b)),
            "results": sum(m.n_bytes for k, m in enumerate(self.made) if k not in self.reuse),
            "made once": sum(buffer_bytes(b) for b in owned if not is_arena(b)),
            "kernels' own": getattr(self.commands, "local_bytes", 0),
        }

    def _bind_private(self) -> None:
        """Bind the addresses that no call supplies: constants, results of the prologue, intermediates."""
        for b, n in self.number.items():
            if b.op != "BUFFER":
                if n in self.constants:
                    self._bind(n, self.constants[n].storage.address)
            elif b in self.packed and self.packed[b][0] in self.constants:
                self._bind_packed(b)
            else:
                self.owned[b] = memory = own_memory(self.home(b), b)
                self._bind(n, memory.address)

    def _bind_packed(self, b: UOp) -> None:
        """Bind the BUFFER `b`, which holds a packed copy of a constant, to the copy that captures share."""
        source, layout = self.packed[b]
        self.copies.pop(b, None)  # freed first, so that the new copy can take its memory
        copy = self.copies[b] = packed_copy(self.device, self.constants[source], layout, buffer_bytes(b))
        self._bind(self.number[b], copy.memory.address)

    def _pieces(self) -> dict[int, Any]:
        """Return {position in the command buffer: memory} for the positions that no call supplies."""
        out: dict[int, Any] = {n: b.storage for n, b in self.constants.items()}
        out |= {self.number[b]: m for b, m in self.owned.items()}
        out |= {self.number[b]: c.memory for b, c in self.copies.items()}
        return out | {n: m for s in self.in_place for n, m in s.memories.items()}

    def _run_verified(self, args: Sequence[UOp], addresses: list[int], made: Sequence[UOp]) -> None:
        """Run all kernel launches one by one and compare the values that each stored with expected ones.

        `args`: nodes of arguments and old versions of states. `addresses`: those to bind, in the order of `args`,
        sizes, `made`. `made`: the new BUFFERs of this call.
        """
        sizes = addresses[len(args) : len(addresses) - len(made)]
        brought = [*(u.storage for u in args), *sizes, *(u.storage for u in made)]
        self._verify(self.items, self._pieces() | dict(enumerate(brought)))

    def _verify(self, items: tuple[UOp, ...], pieces: dict[int, Any] | None = None) -> None:
        """Run the kernel launches `items` one by one and compare the values that each stored with expected ones.
        `pieces`: memory or size by position.
        """
        from monolect.runtime.realize import verified  # imported only for VERIFY

        pieces = self._pieces() if pieces is None else pieces
        verified.run_items(self.device, items, self.number, pieces, self.variables, replayed=True)

    def _bind(self, number: int, address: int) -> None:
        """Bind position `number` of the command buffer, and of that of the prologue, to the memory at `address`."""
        self.commands.bind(number, address)
        if self.prologue is not None:
            self.prologue.commands.bind(number, address)

    def is_current(self) -> bool:
        """Return False if a tensor that is baked into the kernels has another node now, so that the step must be
        captured again.
        """
        return all((t := ref()) is None or t._uop is u for ref, u in self.baked_in)

    def bakes_in(self, tensors: Sequence[Any]) -> bool:
        """Return whether the node of one of `tensors` is part of the kernels or of a result, so that the tensor cannot
        be rebound.
        """
        return any(ref() is t for t in tensors for ref, _ in self.baked_in)

    def bound_now(self) -> dict[int, UOp]:
        """Return {slot: BUFFER} of the states and constants that are bound now."""
        out = {s.number: s.tensor._uop for s in (*self.brought, *self.in_place)}
        return out | self.constants

    def outside(self) -> Outside:
        """Return the current tensors and constants by slot; rebind tensors that were assigned since."""
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
        tensors: Sequence[Any],
        finish: Callable[[list[UOp]], None] = lambda _: None,
    ) -> list[UOp]:
        """Run the step on the BUFFERs `args` of the argument tensors `tensors`; return the results in fresh memory.

        `finish` is called with the results, to apply the call's other effects. It runs together with the update of
        states; if a launch fails, neither happens.
        """
        if self.is_on_several:
            args = [p for u in args for p in parts_of(u)]
        if self.device is None:
            outs = [self._rebuilt(v, {"given": args, "read": self.reads}) for v in self.outputs]
            finish(outs)
            return outs
        addresses = [u.storage.address for u in args]
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
            outs = made if self.plain else [self._rebuilt(v, lists) for v in self.outputs]
            moved = [s.tensor if s.argument is None else tensors[s.argument] for s in self.moves]
            news = [self._rebuilt(s.after, lists) for s in self.moves]
            for s, u in zip(self.moves, news, strict=True):
                if s.origin is not None:
                    base_of(u).origin = s.origin
            if self.may_fail or settings.VERIFY > 1 or settings.tracing or profile.recording:
                self._run_with_rollback(args, addresses, made)
                _move(moved, news)
                finish(outs)
                return outs
            try:
                self.native(*addresses)
            finally:  # an interrupt is raised after the native code has run
                _move(moved, news)
                finish(outs)
        return outs

    def _run_with_rollback(self, args: Sequence[UOp], addresses: list[int], made: Sequence[UOp]) -> None:
        """Run the launches; if one raises, restore the states that are updated in place and are in host memory, and
        re-raise. `addresses`: those to bind, in order of `args`, sizes, `made`; `made`: the new BUFFERs of this call.
        """
        assert self.device is not None
        saved = []
        for m in (m for s in self.in_place for m in s.memories.values()):
            if isinstance(m, Memory):  # not that of another process
                saved.append((m, copy := self.device.alloc(m.n_bytes)))
                self.device.copy(copy, m, m.n_bytes)
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
        """Bind or append to `addresses` the memory that a call needs besides its arguments: tensors read, states,
        results of the prologue, and sizes.

        Returns (`args` followed by the old versions of states, memory of donated arguments by number of the result that
        takes it).
        """
        taken = self._donated(args) if self.reuse else None
        for r in self.reads:
            if r.tensor._uop is not r.uop:
                self._rebind(r)
        for s in self.in_place:
            # references: the tensor's, the state's, the argument of getrefcount; the BUFFER's, the state's, that
            if s.tensor._uop is not s.uop or getrefcount(s.uop) > 3 or getrefcount(s.memory) > 3:
                self._bind_state(s)
            elif self.is_on_several and s.has_shared_part():
                self._bind_state(s)
        for s in self.brought:
            old = parts_of(_buffer_of(s.tensor))
            args = [*args, *old]
            addresses += [p.storage.address for p in old]
        if self.prologue is not None:
            self.prologue.refresh(self._verify if settings.VERIFY > 1 else None, self._pieces)
        for v in self.variables:
            addresses.append(value_of(v))
        return args, taken

    def _donated(self, args: Sequence[UOp]) -> dict[int, Any]:
        """Return {number of a result: memory that it takes} for those donated arguments in `args` to whose memory there
        is no other reference. None for the memory if its address is not aligned: the result gets new memory.
        """
        taken = {}
        for k, n in self.reuse.items():
            u = args[n]
            memory = u.storage
            # references: the tensor's, the list's; the BUFFER's
            if getrefcount(u) <= ONE_REF + 2 and getrefcount(memory) <= ONE_REF + 1 and not memory.is_lent():
                taken[k] = None if memory.address % ALIGN_BYTES else memory
        return taken

    @staticmethod
    def _rebuilt(v: Output, lists: Mapping[str, Any]) -> UOp:
        """Return the node that the rule `v` gives for a result or new version of a state in this call. `lists`:
        "fresh", "given" and "read", which the rule refers to.
        """
        if v.source == "constant":
            if v.node.op != "BUFFER" or concrete(v.node.shape) is v.node.shape:
                return v.node
            b = new_buffer(concrete(v.node.shape), *v.node.arg[1:3])  # of no elements: others are computed
            b.storage = v.node.storage
            return b
        if v.source == "parts":
            return v.joined(*[Capture._rebuilt(part, lists) for part in v.at])
        new = lists[v.source][v.at] if v.source != "read" else parts_of(lists["read"][v.at[0]].uop)[v.at[1]]
        return new if v.node is v.base else substitute(v.node, {v.base: new})

    def _rebind(self, r: Read) -> None:
        """Bind the present memory of the tensor of `r`, which the step reads and which was assigned since the last
        call. Raises JitError if its dtype, shape or devices changed.
        """
        new = _buffer_of(r.tensor)
        if new.shape != r.uop.shape or new.dtype is not r.uop.dtype or _placement_of(new) != _placement_of(r.uop):
            expected, found = (f"{b.dtype.name} {b.shape} on {b.arg.device}" for b in (r.uop, new))
            raise JitError(
                "a captured tensor changed its dtype or shape, or its devices", expected=expected, found=found
            )
        for k, u in ((k, parts_of(new)[i]) for k, i in r.slots):
            self.constants[k] = u
            self._bind(k, u.storage.address)
            if self.prologue is not None:
                self.prologue.rebind(k, u)
                for b, (source, _) in self.packed.items():
                    if source == k:
                        self._bind_packed(b)
        r.uop = new  # set last: other threads compare it without a lock

    def _bind_state(self, s: State) -> None:
        """Bind the memory of a state that is updated in place: its own memory, or a copy if there are other references
        to it. Its BUFFER is a new one: gradients would pass from the old one to what it was computed from.
        """
        assert self.device is not None
        s.uop = s.memory = None
        u = _buffer_of(s.tensor)
        # references: the tensor's, and that of the Shards
        held = getrefcount(u) > ONE_REF + 1 or getrefcount(u.storage) > ONE_REF
        memory: Any
        if u.arg.device.__class__ is tuple:
            parts = u.storage.parts
            # references: that of the Shards, and the local variable's
            memory = tuple([self._own_memory(b, held or getrefcount(b) > ONE_REF + 1) for b in parts])
            new = [with_storage(b.shape, b.dtype, b.arg.device, m) for b, m in zip(parts, memory, strict=True)]
            storage: Any = Shards(tuple(new), u.arg.axis)
        else:
            storage = memory = self._own_memory(u, held)
        u = s.tensor._uop = with_storage(u.shape, u.dtype, u.arg.device, storage)
        u.origin = s.origin
        for k, m in enumerate(memory if memory.__class__ is tuple else (memory,), s.number):
            self._bind(k, m.address)
        s.memory, s.uop = memory, u  # set last: other threads compare it without a lock

    def _own_memory(self, b: UOp, is_held: bool) -> Any:
        """Return the memory of `b`, a BUFFER on one device, if the step may overwrite it, else a copy. `is_held`: other
        code holds the BUFFER, such as a graph.
        """
        memory = b.storage
        # references: the BUFFER's, the local variable's; a NumPy view has another
        held = is_held or getrefcount(memory) > ONE_REF + 1
        if held or memory.is_lent() or memory.address % ALIGN_BYTES:  # an array that became state
            own = self.home(b)
            memory = own.alloc(buffer_bytes(b))
            own.copy(memory, b.storage, buffer_bytes(b))
        return memory


def _devices(u: UOp) -> tuple[str, ...]:
    """Return the names of the devices of the BUFFER `u`, as a tuple."""
    return u.arg.device if u.arg.device.__class__ is tuple else (u.arg.device,)


def _placement_of(b: UOp) -> tuple[tuple[str, ...], Any]:
    """Return the devices of a BUFFER, and the axis that they divide."""
    return _devices(b), b.arg.axis


def _move(tensors: Sequence[Any], news: Sequence[UOp]) -> None:
    """Set the node of each state tensor in `tensors` to its new version in `news`."""
    for t, new in zip(tensors, news, strict=True):
        t._uop = new


def _unbound(step: UOp) -> UOp:
    """Return `step` without the arguments (PARAMs and constants) that it was applied to for planning."""
    return node("FUNCTION", step.src[:1], step.arg)


def _fresh(p: UOp) -> Fresh:
    """Return the Fresh (rule to allocate memory at each call) for `p`, a PARAM of role "result"."""
    symbolic = any(n.__class__ is not int for n in p.shape)
    return Fresh(mark(p), buffer_bytes(p), p.shape if symbolic else None)


def _packed(once: Sequence[UOp]) -> dict[UOp, tuple[int, str]]:
    """Return {BUFFER that a PROGRAM of `once` packs: (slot of the PARAM that it is packed from, layout name)}; slot -1
    if the source is no PARAM.
    """
    out = {}
    for c in once:
        layouts = c.src[0].arg.layouts if c.src[0].op == "PROGRAM" else ()
        for k, layout in enumerate(layouts):
            block, source = (base_of(c.src[1 + 2 * k + i]) for i in range(2))
            out[block] = (source.arg.slot if source.op == "PARAM" else -1, layout)
    return out


def _is_short(items: Sequence[UOp]) -> bool:
    """Return whether the kernel launches `items` take so little time that releasing the GIL would not pay."""
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
    """Return whether Python has the GIL enabled; False on free-threaded Python."""
    enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return enabled


def _buffer_of(tensor: Any) -> UOp:
    """Return the BUFFER of `tensor`. The tensor is computed if it has no memory, and copied if it is a view."""
    u: UOp = tensor._uop
    if u.op != "BUFFER" or u.storage is None:
        (new,) = realize([u])
        if new.op != "BUFFER":
            (new,) = realize([build("CONTIGUOUS", new)])
        u = tensor._take_memory(u, new)
    return u


__all__ = ["Capture", "Fresh", "Output", "aliased_arguments", "has_lock"]

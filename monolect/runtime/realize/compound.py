"""Batches with calls and copies between devices as one schedule.

A batch is cut where it calls a precompiled function, a kernel of the user's or native code, and where a value comes
from a device whose memory kernels cannot reach. Operands and results of a call or a copy get buffers. Each part is
scheduled by itself, so that equal bodies have equal kernels; the parts follow each other in one LINEAR, in which a copy
is STORE(there, LOAD(here)).

Invariant: the schedule is in the form that the pass `order` leaves; no value crosses devices but by a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from monolect.backend.registry import Device, is_on_disk
from monolect.base.errors import DeviceError
from monolect.command.rewrites.join import items_of_run
from monolect.ir.check.custom_kernels import admit_called
from monolect.ir.ops import BufferArg, LoadArg, ParamArg
from monolect.ir.placement import device as place
from monolect.ir.rewrite.calls import applied, check_arguments, is_body, is_opaque, stored_slots
from monolect.ir.uop import UOp, build, node, rebuild, shape_source, substitute, toposort
from monolect.runtime.buffer import from_bytes, one_device
from monolect.schedule.callify import callify, resolve_functions
from monolect.schedule.result import schedule_of

HOST_DEVICE = "cpu"  # computes on the contents of a file, before they go to a device with memory of its own
Schedule = Callable[[UOp, str], UOp]  # of a TUPLE of values over PARAMs, on a device


def is_apart(a: str, b: str) -> bool:
    """Whether kernels of one device cannot reach memory of the other."""
    return bool(Device[a].space != Device[b].space)


def compound_schedule(values: UOp, n_inputs: int, dev: str, schedule: Schedule) -> UOp:
    """The schedule of a TUPLE of values over PARAMs, with CALLs and copies among them."""
    parts = _Parts(n_inputs, dev, schedule)
    roots = parts.resolved([*values.src])
    found = parts.stored(roots)
    linear = node("LINEAR", tuple(parts.items))
    outs = [parts.memory[b] for b in found]
    written = {o for c in parts.items for o in (c.src[1:] if c.op == "CALL" else c.src[:1])}
    return node("TUPLE", tuple([node("AFTER", (o, linear)) if o.op == "BUFFER" and o in written else o for o in outs]))


def with_bytes_bound(batch: list[UOp], dev: str) -> list[UOp]:
    """The batch with a buffer of `dev` for each BINARY; those inside of a precompiled function become its arguments."""

    def bound(u: UOp) -> UOp:
        return from_bytes(u.arg, u.shape, u.dtype, dev)

    done: dict[UOp, UOp] = {}
    for u in toposort(*batch, stop=is_body):
        if u.op == "BINARY" or is_body(u):
            done[u] = bound(u) if u.op == "BINARY" else u
            continue
        src = [done[s] for s in u.src]
        if u.op == "CALL" and u.src[0].op == "TUPLE":
            inside = [v for v in toposort(u.src[0]) if v.op == "BINARY"]
            params = [ParamArg(len(src) - 1 + k, v.dtype, dev, "GLOBAL") for k, v in enumerate(inside)]
            new = {v: node("PARAM", (shape_source(v.shape),), p) for v, p in zip(inside, params, strict=True)}
            src = [substitute(u.src[0], new), *src[1:], *map(bound, inside)]
        done[u] = rebuild(u, tuple(src))
    return [done[r] for r in batch]


class _Parts:
    """The items so far. `memory`: for each buffer of the graphs that are scheduled, the PARAM or BUFFER that it is."""

    def __init__(self, n_inputs: int, dev: str, schedule: Schedule) -> None:
        self.dev, self.schedule = dev, schedule
        self.items: list[UOp] = []
        self.memory: dict[UOp, UOp] = {}
        self.slots = count(n_inputs)

    def buffer(self, shape: tuple, like: UOp, dev: str) -> UOp:
        """One more buffer, which only this schedule knows."""
        b = node("BUFFER", (shape_source(shape),), BufferArg(next(self.slots), like.dtype, dev))
        self.memory[b] = b
        return b

    def input(self, p: UOp) -> UOp:
        """The buffer that is an input."""
        b = node("BUFFER", p.src, BufferArg(p.arg.slot, p.dtype, p.arg.device))
        self.memory[b] = p
        return b

    def resolved(self, roots: list[UOp]) -> list[UOp]:
        """The values over buffers, without calls and without copies between devices that do not share memory."""
        roots = resolve_functions(roots)
        new: dict[UOp, UOp] = {}
        results: dict[UOp, list[UOp]] = {}
        for u in toposort(*roots, stop=is_body):
            if is_body(u):
                new[u] = u
            elif u.op == "PARAM" and u.arg.name is None:
                new[u] = self.input(u)
            elif u.op == "CALL":
                results[u] = self.called(u, [new[a] for a in u.src[1:]])
                new[u] = u
            elif is_opaque(u):
                call = next(s for s in u.src if s.op == "CALL")
                new[u] = results[call][u.arg if u.op == "GETTUPLE" else call.src.index(u.src[0]) - 1]
            else:
                v = rebuild(u, tuple([new[s] for s in u.src]))
                new[u] = self.copied(v) if self.is_copy(v) else v
        return [new[r] for r in roots]

    def is_copy(self, u: UOp) -> bool:
        """Whether `u` is a value of another device, whose memory kernels of its own cannot reach."""
        to = u.arg.device if u.op == "LOAD" and u.arg is not None else None
        home = place(u.src[0]) if to is not None else None
        return isinstance(home, str) and is_apart(home, str(to))

    def copied(self, u: UOp) -> UOp:
        """The buffer on the device that a LOAD is to."""
        source, *gated = u.src
        if is_on_disk(place(source)):  # a file computes nothing
            source = build("LOAD", source, arg=LoadArg(HOST_DEVICE, "GLOBAL"))
        if len(gated) > 1:
            source = build("WHERE", gated[1], source, gated[0])
        (b,) = self.stored([self.whole(source, None)])
        if not is_apart(str(b.arg.device), u.arg.device):
            return rebuild(u, (b,))
        out = self.buffer(b.shape, b, u.arg.device)
        self.items.append(node("STORE", (self.memory[out], node("LOAD", (self.memory[b],), u.arg))))
        return out

    def called(self, call: UOp, args: list[UOp]) -> list[UOp]:
        """The buffers with the results of a CALL."""
        body, dev = call.src[0], place(call)
        if body.op == "TUPLE":
            given = self.stored([self.whole(a, dev) for a in args])
            inner = self.resolved([*applied(body, tuple(given))])
            return self.stored([self.whole(v, dev) for v in inner])
        check_arguments(body, tuple(args), is_typed=True)
        if body.op == "SINK":
            admit_called(body, Device[one_device(args)].target)
        n = len(stored_slots(body))
        results = [self.buffer(b.shape, b, str(b.arg.device)) for b in args[:n]]
        given = self.stored([self.whole(a, dev) for a in args[n:]])
        operands = [self.memory[b] for b in (*results, *given)]
        self.items.append(node("CALL", (body, *operands)))
        return results

    def whole(self, u: UOp, dev: str | None) -> UOp:
        """A value that is stored in a buffer of its own; on `dev` if it has no device, as a constant."""
        if u.op == "BUFFER":
            return u
        if dev is None or place(u) is not None:
            return build("CONTIGUOUS", u)
        return build("LOAD", u, arg=LoadArg(dev, "GLOBAL"))

    def stored(self, values: Sequence[UOp]) -> list[UOp]:
        """A buffer for each value; those of one device are scheduled together."""
        done: dict[UOp, UOp] = {v: v for v in values if v.op == "BUFFER"}
        groups: dict[str, list[UOp]] = {}
        for v in dict.fromkeys(values):
            if v not in done:
                groups.setdefault(one_device([v]) if place(v) is not None else self.dev, []).append(v)
        for dev, mine in groups.items():
            done.update(zip(mine, self.run(mine, dev), strict=True))
        return [done[v] for v in values]

    def run(self, values: list[UOp], dev: str) -> list[UOp]:
        """Values of one device as items."""
        function = callify(node("TUPLE", tuple(values)))
        buffers = function.src[1:]
        for b in buffers:
            if is_apart(str(b.arg.device), dev):
                found = sorted({str(b.arg.device) for b in buffers} | {dev})
                raise DeviceError("values of several devices in one kernel", expected="one device", found=found)
        schedule = self.schedule(function.src[0], dev)
        outputs = schedule_of(schedule).outputs
        fresh = {b: self.buffer(b.shape, b, dev) for b in dict.fromkeys(outputs) if b.op == "BUFFER"}
        sizes = {p.arg.symbol: p for p in toposort(function.src[0]) if p.op == "PARAM" and p.arg.name is not None}
        args = (*[self.memory[b] for b in buffers], *fresh.values(), *sizes.values())
        self.items += items_of_run(node("FUNCTION", (schedule, *args)), self.slots)
        return [buffers[o.arg.slot] if o.op == "PARAM" else fresh[o] for o in outputs]


__all__ = ["compound_schedule", "is_apart", "with_bytes_bound"]

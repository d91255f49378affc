"""Schedule a batch with CALLs and copies between devices as one LINEAR.

The batch is cut at calls of precompiled functions, of user kernels and of native code, and where a value comes from a
device whose memory kernels cannot reach. Operands and results of a call or a copy get buffers. Each part is scheduled
separately, so that equal bodies have equal kernels. The parts follow each other in one LINEAR; a copy is
STORE(destination, LOAD(source)).

Invariant: the schedule has the form that the pass `order` leaves. Only a copy moves a value between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from monolect.backend.registry import Device, is_on_disk
from monolect.base.disk.hashing import blake2b
from monolect.base.errors import DeviceError, DistributedError
from monolect.command.rewrites.join import items_of_run
from monolect.ir.binary import pack, unpack
from monolect.ir.check.custom_kernels import admit_called
from monolect.ir.ops import BufferArg, LoadArg, ParamArg
from monolect.ir.placement import device as device_of
from monolect.ir.rewrite.calls import check_arguments, inlined, is_body, is_opaque, stored_slots
from monolect.ir.uop import UOp, build, node, rebuild, shape_source, substitute, toposort
from monolect.runtime.buffer import from_bytes, one_device
from monolect.schedule.callify import callify, resolve_functions
from monolect.schedule.result import schedule_of

HOST_DEVICE = "cpu"  # computes on the contents of a disk file before they are copied to a device with separate memory
Schedule = Callable[[UOp, str], UOp]  # (TUPLE of values over PARAMs, device) -> schedule


def needs_copy(a: str, b: str) -> bool:
    """Return whether kernels of device `a` cannot reach memory of device `b`, so that values must be copied."""
    return bool(Device[a].space != Device[b].space)


def compound_schedule(values: UOp, n_inputs: int, dev: str, schedule: Schedule) -> UOp:
    """Return the schedule of a TUPLE of values over PARAMs that contains CALLs and copies between devices.

    `n_inputs`: number of input PARAMs; further buffers take slots from there on. `schedule`: schedules a TUPLE without
    calls on one device.
    """
    parts = _Parts(n_inputs, dev, schedule)
    roots = parts.resolved([*values.src])
    found = parts.stored(roots)
    linear = node("LINEAR", tuple(parts.items))
    outs = [parts.memory[b] for b in found]
    written = {o for c in parts.items for o in (c.src[1:] if c.op == "CALL" else c.src[:1])}
    return node("TUPLE", tuple([node("AFTER", (o, linear)) if o.op == "BUFFER" and o in written else o for o in outs]))


def agreed_schedule(values: UOp, shared: str, make: Callable[[], UOp]) -> UOp:
    """Return the schedule of `values` that all processes of a job run: rank 0 calls `make`, the others receive it.

    So the copies between processes have one order. `shared`: a device of one of the processes. Raises DistributedError
    if the processes compute different values.
    """
    link = Device[shared].transport
    outline = "\n".join(sorted(f"{u.op} {u.dtype.name}{u.shape}@{device_of(u)}" for u in toposort(values)))
    sums = link.gather(blake2b(outline.encode(), digest_size=16).digest())
    if other := [rank for rank, s in enumerate(sums) if s != sums[link.rank]]:
        expected = "all ranks to run one program: equal shapes, operations in one order"
        found = f"other values on rank {', '.join(map(str, other))}"
        raise DistributedError(
            f"rank {link.rank}: the processes run different programs", expected=expected, found=found
        )
    made = make() if link.rank == 0 else None
    data = link.gather(b"" if made is None else pack(made))[0]
    return unpack(data) if made is None else made


def with_binaries_loaded(batch: list[UOp], dev: str) -> list[UOp]:
    """Return the batch with each BINARY node replaced by a BUFFER on `dev`.

    A BINARY inside of a precompiled function becomes a PARAM of the function and an argument of its CALL.
    """

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
    """The schedule of a batch under construction.

    `items`: the LINEAR's items so far. `memory`: for each BUFFER of the scheduled graphs, the PARAM or BUFFER of the
    LINEAR.
    """

    def __init__(self, n_inputs: int, dev: str, schedule: Schedule) -> None:
        self.dev, self.schedule = dev, schedule
        self.items: list[UOp] = []
        self.memory: dict[UOp, UOp] = {}
        self.slots = count(n_inputs)

    def buffer(self, shape: tuple, like: UOp, dev: str) -> UOp:
        """Return a new BUFFER of `shape` on `dev` with the dtype of `like`; it is internal to this schedule."""
        b = node("BUFFER", (shape_source(shape),), BufferArg(next(self.slots), like.dtype, dev))
        self.memory[b] = b
        return b

    def input(self, p: UOp) -> UOp:
        """Return a BUFFER node for the input PARAM `p`, for use in the graphs that are scheduled."""
        b = node("BUFFER", p.src, BufferArg(p.arg.slot, p.dtype, p.arg.device))
        self.memory[b] = p
        return b

    def resolved(self, roots: list[UOp]) -> list[UOp]:
        """Append the items of all calls and copies below `roots`; return the roots with the buffers of their results
        instead.
        """
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
        """Return whether `u` is a LOAD to a device whose kernels cannot reach the memory of the loaded value."""
        to = u.arg.device if u.op == "LOAD" and u.arg is not None else None
        home = device_of(u.src[0]) if to is not None else None
        return isinstance(home, str) and needs_copy(home, str(to))

    def copied(self, u: UOp) -> UOp:
        """Append the copy of the LOAD `u`; return its buffer on the destination device.

        If kernels of the destination reach the loaded value once a file is read, return a LOAD of it without a copy.
        """
        source, *gated = u.src
        if is_on_disk(device_of(source)):  # a disk device runs no kernels
            source = build("LOAD", source, arg=LoadArg(HOST_DEVICE, "GLOBAL"))
        if len(gated) > 1:
            source = build("WHERE", gated[1], source, gated[0])
        (b,) = self.stored([self.whole(source, None)])
        if not needs_copy(str(b.arg.device), u.arg.device):
            return rebuild(u, (b,))
        out = self.buffer(b.shape, b, u.arg.device)
        self.items.append(node("STORE", (self.memory[out], node("LOAD", (self.memory[b],), u.arg))))
        return out

    def called(self, call: UOp, args: list[UOp]) -> list[UOp]:
        """Append the items of a CALL with arguments `args`; return the buffers of its results."""
        body, dev = call.src[0], device_of(call)
        if body.op == "TUPLE":
            given = self.stored([self.whole(a, dev) for a in args])
            inner = self.resolved([*inlined(body, tuple(given))])
            return self.stored([self.whole(v, dev) for v in inner])
        check_arguments(body, tuple(args), is_typed=True)
        if body.op == "SINK" and device_of(args[0]) == device_of(args[-1]):  # else an allreduce, which no device runs
            admit_called(body, Device[one_device(args)].target)
        n = len(stored_slots(body))
        results = [self.buffer(b.shape, b, str(b.arg.device)) for b in args[:n]]
        given = self.stored([self.whole(a, dev) for a in args[n:]])
        operands = [self.memory[b] for b in (*results, *given)]
        self.items.append(node("CALL", (body, *operands)))
        return results

    def whole(self, u: UOp, dev: str | None) -> UOp:
        """Wrap `u` so that scheduling it stores it in a buffer of its own: CONTIGUOUS, or a LOAD to `dev` if `u` has no
        device (a constant). A BUFFER is returned unchanged.
        """
        if u.op == "BUFFER":
            return u
        if dev is None or device_of(u) is not None:
            return build("CONTIGUOUS", u)
        return build("LOAD", u, arg=LoadArg(dev, "GLOBAL"))

    def stored(self, values: Sequence[UOp]) -> list[UOp]:
        """Append the items that compute `values`; return a BUFFER for each. Values of one device are scheduled
        together.
        """
        done: dict[UOp, UOp] = {v: v for v in values if v.op == "BUFFER"}
        groups: dict[str, list[UOp]] = {}
        for v in dict.fromkeys(values):
            if v not in done:
                groups.setdefault(one_device([v]) if device_of(v) is not None else self.dev, []).append(v)
        for dev, mine in groups.items():
            done.update(zip(mine, self.run(mine, dev), strict=True))
        return [done[v] for v in values]

    def run(self, values: list[UOp], dev: str) -> list[UOp]:
        """Append the items that compute `values` on `dev`; return a BUFFER for each. Raises DeviceError for an input
        that kernels of `dev` cannot reach.
        """
        function = callify(node("TUPLE", tuple(values)))
        buffers = function.src[1:]
        for b in buffers:
            if needs_copy(str(b.arg.device), dev):
                found = sorted({str(b.arg.device) for b in buffers} | {dev})
                raise DeviceError("values of several devices in one kernel", expected="one device", found=found)
        schedule = self.schedule(function.src[0], dev)
        outputs = schedule_of(schedule).outputs
        fresh = {b: self.buffer(b.shape, b, dev) for b in dict.fromkeys(outputs) if b.op == "BUFFER"}
        sizes = {p.arg.symbol: p for p in toposort(function.src[0]) if p.op == "PARAM" and p.arg.name is not None}
        args = (*[self.memory[b] for b in buffers], *fresh.values(), *sizes.values())
        self.items += items_of_run(node("FUNCTION", (schedule, *args)), self.slots)
        return [buffers[o.arg.slot] if o.op == "PARAM" else fresh[o] for o in outputs]


__all__ = ["agreed_schedule", "compound_schedule", "needs_copy", "with_binaries_loaded"]

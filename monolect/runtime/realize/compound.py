"""Schedule a batch with CALLs and copies between devices as one LINEAR.

The batch is cut at calls of precompiled functions, of user kernels and of native code, and where a value comes from a
device whose memory kernels cannot reach. Operands and results of a call or a copy get buffers. Each part is scheduled
separately, so that equal bodies have equal kernels. The parts follow each other in one LINEAR; a copy is
STORE(destination, LOAD(source)).

Invariant: the schedule has the form that the pass `order` leaves. Only a copy moves a value between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, zip_longest

from monolect.backend.registry import Device, is_on_disk
from monolect.base.errors import DeviceError
from monolect.command.forms import base_of, is_allreduce, is_scalar, operands_of
from monolect.command.rewrites.join import items_of_run
from monolect.ir.bounds import size_max
from monolect.ir.check.custom_kernels import admit_called
from monolect.ir.collective import exchange_of
from monolect.ir.ops import BufferArg, LoadArg, ParamArg
from monolect.ir.placement import device as device_of
from monolect.ir.rewrite.calls import check_arguments, inlined, is_body, is_opaque, stored_slots
from monolect.ir.rewrite.normal import count as n_elements
from monolect.ir.uop import UOp, build, node, rebuild, shape_source, substitute, toposort
from monolect.runtime.buffer import from_bytes, one_device
from monolect.schedule.callify import callify, components, resolve_functions
from monolect.schedule.result import schedule_of
from monolect.schedule.rewrites.parts import is_widened

HOST_DEVICE = "cpu"  # computes on the contents of a disk file before they are copied to a device with separate memory
MIN_BYTES_APART = 1 << 18  # bytes of results whose kernels take much longer than a launch
_EFFECTS = frozenset(("STORE", "ATOMICADD"))
_VIEWS = frozenset(("EXPAND", "RESHAPE", "PERMUTE", "FLIP", "SHRINK", "PAD", "DETACH", "CONTIGUOUS_BACKWARD"))
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


class Levels:
    """The nodes of a graph in levels. A node of level n needs n calls or copies one after the other.

    `nodes`: those of each level, operands first. `stored`: nodes that get a buffer at their level, because a call or a
    copy takes them, or because they need a reduction, or are CONTIGUOUS, and a later level needs them too.
    """

    def __init__(self, roots: Sequence[UOp], is_cut: Callable[[UOp], bool]) -> None:
        order = toposort(*roots, stop=is_body)
        self.cuts = {u for u in order if is_cut(u)}
        # an effect writes to its target and not to a copy of it, and others read what was there before
        self.targets = {v for u in order if u.op in _EFFECTS for v in _chain(u.src[0])}
        self.level: dict[UOp, int] = {}
        self.has_reduction: dict[UOp, bool] = {}  # of what its level computes
        self.has_effect: dict[UOp, bool] = {}
        for u in order:
            below = self.level[u] = max([self.level[s] for s in _operands(u)], default=0)
            mine = [s for s in _operands(u) if self.level[s] == below and s not in self.cuts]
            self.has_reduction[u] = u.op == "REDUCE" or any(self.has_reduction[s] for s in mine)
            self.has_effect[u] = u.op in _EFFECTS or any(self.has_effect[s] for s in mine)
            self.level[u] += u in self.cuts
        last = max(self.level.values(), default=0)
        self.nodes: list[list[UOp]] = [[] for _ in range(last + 1)]
        for u in order:
            self.nodes[self.level[u]].append(u)
        needed = self.level | dict.fromkeys(roots, last)  # the last level that computes with the node
        self.stored: set[UOp] = set()
        for u in reversed(order):
            if u in self.cuts:
                self.stored |= {s for s in _operands(u) if self._is_value(s)}
            elif needed[u] > self.level[u] and self._is_worth_storing(u):
                self.stored.add(u)
            is_buffer = u in self.cuts or u in self.stored
            for s in _operands(u):
                needed[s] = max(needed[s], self.level[u] if is_buffer else needed[u])

    def _is_worth_storing(self, u: UOp) -> bool:
        """Return whether a later level reads `u` faster than it computes it, or the program asks for memory
        (CONTIGUOUS). A view is cheap, and an effect must not happen twice.
        """
        if self.has_effect[u] or u.op in _VIEWS or is_widened(u) or not self._is_value(u):
            return False
        return self.has_reduction[u] or u.op == "CONTIGUOUS" or self._reads_more_than_twice(u)

    def _reads_more_than_twice(self, u: UOp) -> bool:
        """Return whether computing `u` reads more than twice its bytes, as the sum of a residual stream and the results
        of several levels does.
        """
        limit = 2 * _bytes(u)
        seen, stack, n_bytes = {u}, [*_operands(u)], 0
        while stack and n_bytes <= limit:
            s = stack.pop()
            if s in seen:
                continue
            seen.add(s)
            if s in self.cuts or s.op in ("BUFFER", "PARAM") or (self.has_reduction[s] and s.op not in _VIEWS):
                n_bytes += _bytes(s) if s.dtype.kind != "v" else 0
            else:
                stack += _operands(s)
        return n_bytes > limit

    def _is_value(self, u: UOp) -> bool:
        """Return whether `u` is a value on a device that kernels compute."""
        d = device_of(u)
        is_computed = u.op not in ("BUFFER", "PARAM") and u.dtype.kind != "v" and u not in self.targets
        return is_computed and isinstance(d, str) and not is_on_disk(d)


def _goes_by_messages(item: UOp) -> bool:
    """Return whether an allreduce waits for messages. In shared memory it is work of all processes, which waits least
    where they meet least often.
    """
    devices = [Device[str(base_of(u).arg.device)] for u in operands_of(item) if not is_scalar(u)]
    return bool(devices[0].transport.is_remote([*dict.fromkeys(d.rank for d in devices)]))


def _reading_reductions(values: Sequence[UOp]) -> list[UOp]:
    """Return `values`, in which the CONTIGUOUS of a reduction replaces that reduction below other values: a reduction
    that several values need is stored, and would be stored twice.
    """
    reductions = {v.src[0] for v in values if v.op == "CONTIGUOUS" and v.src[0].op == "REDUCE"}
    if not reductions:
        return [*values]
    new: dict[UOp, UOp] = {}
    for u in toposort(*values, stop=is_body):
        v = u if is_body(u) else rebuild(u, tuple([new[s] for s in u.src]))
        new[u] = build("CONTIGUOUS", v) if u in reductions else v
    return [new[v] for v in values]


def _apart(values: list[UOp]) -> list[list[UOp]]:
    """Divide `values` into batches: large ones without shared work are apart, so that none of their kernels waits for
    the operands of another. The last is first, as in a schedule.
    """
    if len(values) == 1:
        return [values]
    small, large = [], []
    for part in components(values):
        if sum(map(_bytes, part)) < MIN_BYTES_APART:
            small += part
        else:
            large.append(part)
    large.reverse()
    return [small, *large] if small else large


def _bytes(u: UOp) -> int:
    """Return the bytes of the value `u`, at the largest values of symbolic sizes."""
    return size_max(n_elements(u.shape)) * u.dtype.itemsize


def _chain(u: UOp) -> Iterator[UOp]:
    """Yield `u` and the first sources below it, to memory or to a computed value that views show."""
    yield u
    while u.op in _VIEWS or u.op in ("INDEX", "AFTER", "BITCAST", "CONTIGUOUS"):
        u = u.src[0]
        yield u


def _operands(u: UOp) -> tuple[UOp, ...]:
    """Return the sources of `u`; those of a body are nodes of another graph."""
    return () if is_body(u) else u.src


class _Parts:
    """The schedule of a batch under construction.

    `items`: the LINEAR's items so far. `memory`: for each BUFFER of the scheduled graphs, the PARAM or BUFFER of the
    LINEAR.
    """

    def __init__(self, n_inputs: int, dev: str, schedule: Schedule) -> None:
        self.dev, self.schedule = dev, schedule
        self.items: list[UOp] = []
        self.starts: list[int] = []  # the first item of each level so far
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
        """Append the items of all calls and copies below `roots`, and of what they need; return the roots with buffers
        instead of the values that are stored.

        Values that need equally many calls and copies one after the other (their level) are scheduled together, so
        that none is computed twice.
        """
        roots = resolve_functions(roots)
        levels = Levels(roots, self.is_cut)
        new: dict[UOp, UOp] = {}
        results: dict[UOp, list[UOp]] = {}
        for nodes in levels.nodes:
            for u in nodes:
                new[u] = self.with_buffers(u, new, results)
            # a schedule computes its last results first: large ones, whose moves overlap with the kernels of the rest
            wanted = sorted([u for u in nodes if u in levels.stored and new[u].op != "BUFFER"], key=_bytes)
            self.starts.append(len(self.items))
            stored = dict(zip(wanted, self.stored([self.whole(new[u], None) for u in wanted]), strict=True))
            new |= stored
            above = {*wanted}  # what later levels compute from them reads the buffers
            for u in nodes:
                if u not in stored and u not in levels.cuts and not above.isdisjoint(_operands(u)) and not is_opaque(u):
                    new[u] = rebuild(u, tuple([new[s] for s in u.src]))
                    above.add(u)
        return [new[r] for r in roots]

    def with_buffers(self, u: UOp, new: dict[UOp, UOp], results: dict[UOp, list[UOp]]) -> UOp:
        """Return `u` with the nodes `new` as its sources, or the buffer of its value; append the items of a call or a
        copy. `results`: the buffers of the results of each CALL.
        """
        if is_body(u):
            return u
        if u.op == "PARAM" and u.arg.name is None:
            return self.input(u)
        if u.op == "CALL":
            results[u] = self.called(u, [new[a] for a in u.src[1:]])
            return u
        if is_opaque(u):
            call = next(s for s in u.src if s.op == "CALL")
            return results[call][u.arg if u.op == "GETTUPLE" else call.src.index(u.src[0]) - 1]
        v = rebuild(u, tuple([new[s] for s in u.src]))
        return self.copied(v) if self.is_copy(v) else v

    def is_cut(self, u: UOp) -> bool:
        """Return whether `u` is a CALL or a copy: its operands are stored before it, and its results are buffers."""
        return u.op == "CALL" or self.is_copy(u)

    def moved(self, item: UOp, operands: Sequence[UOp], earliest: int) -> None:
        """Insert an item that moves data between devices, after the items that touch its `operands` (PARAMs or BUFFERs
        of the LINEAR), and not before item number `earliest`: it overlaps with the kernels behind it.
        """
        at = len(self.items)
        while at > earliest and not any(base_of(x) in operands for x in operands_of(self.items[at - 1])):
            at -= 1
        self.items.insert(at, item)

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
        item = node("STORE", (self.memory[out], node("LOAD", (self.memory[b],), u.arg)))
        # it starts with the level before, no earlier: else a device would hold the copies for all levels at once
        self.moved(item, [self.memory[b]], self.starts[-1] if self.starts else 0)
        return out

    def called(self, call: UOp, args: list[UOp]) -> list[UOp]:
        """Append the items of a CALL with arguments `args`; return the buffers of its results."""
        body, dev = call.src[0], device_of(call)
        if body.op == "TUPLE":
            given = self.stored([self.whole(a, dev) for a in args])
            inner = self.resolved([*inlined(body, tuple(given))])
            return self.stored([self.whole(v, dev) for v in inner])
        check_arguments(body, tuple(args), is_typed=True)
        is_exchange = exchange_of(body) is not None  # no device runs it, nor an allreduce
        if body.op == "SINK" and device_of(args[0]) == device_of(args[-1]) and not is_exchange:
            admit_called(body, Device[one_device(args)].target)
        n = len(stored_slots(body))
        results = [self.buffer(b.shape, b, str(b.arg.device)) for b in args[:n]]
        given = self.stored([self.whole(a, dev) for a in args[n:]])
        operands = [self.memory[b] for b in (*results, *given)]
        item = node("CALL", (body, *operands))
        if is_exchange or (is_allreduce(item) and _goes_by_messages(item)):
            self.moved(item, operands, 0)  # early: its results take the memory of its operands
        else:
            self.items.append(item)
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
        runs: list[list[UOp]] = []
        for dev, mine in groups.items():
            runs.append([])
            for part in _apart(mine):
                buffers, items = self.run(part, dev)
                done.update(zip(part, buffers, strict=True))
                runs[-1] += items
        # equal items of several devices are neighbours, so what needs one of each may start right after them
        self.items += [item for items in zip_longest(*runs) for item in items if item is not None]
        return [done[v] for v in values]

    def run(self, values: list[UOp], dev: str) -> tuple[list[UOp], list[UOp]]:
        """Return a BUFFER for each of `values`, and the items that compute them on `dev`. Raises DeviceError for an
        input that kernels of `dev` cannot reach.
        """
        function = callify(node("TUPLE", tuple(_reading_reductions(values))))
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
        items = items_of_run(node("FUNCTION", (schedule, *args)), self.slots)
        return [buffers[o.arg.slot] if o.op == "PARAM" else fresh[o] for o in outputs], items


__all__ = ["compound_schedule", "needs_copy", "with_binaries_loaded"]

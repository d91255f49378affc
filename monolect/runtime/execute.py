"""Realising: from requested values to memory that holds them.

`realize` callifies the batch, takes its plan from the schedule cache or makes it (schedule, compile, memory plan,
command buffer), binds memory and runs it. A plan is stateless: it can be run again on other buffers, which is what
replay does.

Invariant: nothing is visible before everything ran; a failed batch leaves every tensor as it was. Plans, command
buffers and arenas are shared by all threads: whoever compiles, binds or launches holds `running`.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from monolect.backend.base import Launch, Peered, Preparing
from monolect.backend.registry import Device, is_on_disk
from monolect.base.errors import AllocationError, DeviceError, JitError
from monolect.base.settings import settings
from monolect.ir.call import applied, is_body, is_opaque, stored_slots
from monolect.ir.ops import LoadArg
from monolect.ir.place import device as place
from monolect.ir.uop import UOp, build, new_buffer, new_buffer_like, rebuild, toposort
from monolect.runtime import profile
from monolect.runtime.binding import concrete, value_of
from monolect.runtime.buffer import base_of, from_bytes, from_numpy, is_realized, one_device, to_numpy, with_storage
from monolect.runtime.callify import callify, independent, resolve_functions, structure
from monolect.runtime.held import note_stored, to_store
from monolect.runtime.turns import Turns
from monolect.runtime.varied import with_inputs
from monolect.schedule.memory import buffer_bytes

if TYPE_CHECKING:
    from monolect.runtime.plan import Plan

MOST_PLANS = 1024
HOST_DEVICE = "cpu"  # computes on what is in a file, before it goes to a device with memory of its own


class Run(NamedTuple):
    """One execution of a plan, for capture: which memory it read and wrote."""

    plan: Plan
    inputs: tuple[UOp, ...]
    fresh: tuple[UOp, ...]  # the BUFFERs it wrote


plans: OrderedDict[tuple, Plan] = OrderedDict()  # of a batch by its function, and by the `structure` it was made from
native_functions: dict[str, tuple[int, Any]] = {}  # of the user's, by the name of their CUSTOMFUNCTION: address, owner
stand_ins: weakref.WeakSet[UOp] = weakref.WeakSet()  # what stands for Tensors while a function is traced


class _Listeners(threading.local):
    """Captures under way in this thread: the runs are appended to each. A capture records its own thread alone."""

    def __init__(self) -> None:
        self.captures: list[list[Run]] = []

    @contextmanager
    def to(self, runs: list[Run]) -> Iterator[None]:
        """What runs in the block is appended to `runs`, too."""
        outer, self.captures = self.captures, [*self.captures, runs]
        try:
            yield
        finally:
            self.captures = outer


listening = _Listeners()


running = Turns()  # around compiling, binding and launching


def realize(roots: list[UOp], as_symbolic: bool = False, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    """For each root a BUFFER with storage, or a view of one, holding its value.

    A BUFFER of symbolic shape gets the shape that it has at the bound values; with `as_symbolic` it keeps its own, for
    graphs that are valid at every value. `also`: takes nodes that were stored besides (`runtime/held.py`), with theirs.
    """
    todo = [r for r in roots if not is_realized(r)]
    if not todo:
        return list(roots)
    running.wait()
    with running.lock:
        return _realize(roots, list(dict.fromkeys(todo)) if len(todo) > 1 else todo, as_symbolic, also)


def _realize(roots: list[UOp], todo: list[UOp], as_symbolic: bool, also: list[tuple[UOp, UOp]] | None) -> list[UOp]:
    done: dict[UOp, UOp] = {}
    groups: dict[str, list[UOp]] = {}
    for r in todo:
        b = base_of(r)
        if b.op == "BUFFER" and b.storage is None:
            refuse_stand_in(b)
            b.storage = Device[b.arg.device].alloc(buffer_bytes(b))
        elif 0 in r.shape:
            dev = one_device([r])
            done[r] = with_storage(r.shape, r.dtype, dev, Device[dev].alloc(1))
        else:
            groups.setdefault(one_device([r]), []).append(r)
    for dev, values in groups.items():
        for batch in independent(values):
            done.update(zip(batch, _run_batch(batch, dev, as_symbolic, also), strict=True))
    return [done.get(r, r) for r in roots]


def _run_batch(batch: list[UOp], dev: str, as_symbolic: bool, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    shape, buffers, known = structure(batch)
    if also is not None and known != batch and (more := to_store(batch, known, dev)):
        try:
            outs = _run_batch([*batch, *more], dev, as_symbolic)
        except AllocationError:
            pass  # there is no room for what nobody asked for
        else:
            for u, b in zip(more, outs[len(batch) :], strict=True):
                note_stored(u, b)
                also.append((u, b))
            return outs[: len(batch)]
    here = (shape, dev, settings.choices)
    if here not in plans:
        if shape is not None and not listening.captures and (general := with_inputs(batch, shape, dev)) is not None:
            return _run_batch(general, dev, as_symbolic)
        _prepare(batch, Device[dev])
    plan = None if shape is None else _planned(here, "kept_plan", shape, len(batch), len(buffers), dev)
    if plan is not None:
        return run_plan(plan, buffers, as_symbolic, batch)
    sink, buffers, _ = callify(batch)
    if any(b.op != "BUFFER" for b in buffers):
        batch = with_inputs_made(batch, dev)
        return realize(batch if as_symbolic else [_of_today(r) for r in batch], as_symbolic)
    bases = map(base_of, sink.src)
    if any(b.op == "PARAM" and b.arg.name is None for b in bases):  # a function that returns what it was given
        return realize(resolve_functions(batch), as_symbolic)
    if any(b.arg.device != dev and is_apart(b.arg.device, dev) for b in buffers):
        return realize(brought(batch), as_symbolic)
    key = here if shape is not None else (sink, dev, settings.choices)  # a structure keeps no graph alive
    plan = _planned(key, "make_plan", list(sink.src), len(buffers), dev, shape)
    return run_plan(plan, buffers, as_symbolic, batch)


def _prepare(batch: list[UOp], device: Any) -> None:
    """Memory for the results, whose pages come while their plan is read or made."""
    if isinstance(device, Preparing):
        device.prepare([buffer_bytes(r) for r in batch if base_of(r).op not in ("BUFFER", "AFTER")])


def _planned(key: tuple, make: str, *args: Any) -> Any:
    """The plan of that key, which that function of `runtime.plan` makes or finds."""
    plan = plans.get(key)
    if plan is not None:
        plans.move_to_end(key)
        return plan
    compiler = import_module("monolect.runtime.plan")  # the compiler is imported when something must be compiled
    plan = getattr(compiler, make)(*args)
    if plan is not None:
        _remember(key, plan)
    return plan


def _remember(key: tuple, plan: Plan) -> None:
    """Keep a plan under a key; the one used longest ago makes room for it."""
    plans[key] = plan
    if len(plans) > MOST_PLANS:
        plans.popitem(last=False)


def with_inputs_made(batch: list[UOp], dev: str) -> list[UOp]:
    """The batch with a buffer in place of each result of a CALL: its arguments realised, its body run on its own. The
    bytes of a BINARY are in a buffer of `dev`.
    """
    batch = resolve_functions(batch)
    new: dict[UOp, UOp] = {}
    results: dict[UOp, list[UOp]] = {}
    for u in toposort(*batch, stop=is_body):
        if is_body(u):
            new[u] = u
        elif u.op == "BINARY":
            new[u] = from_bytes(u.arg, u.shape, u.dtype, dev)
        elif u.op == "CALL":
            results[u] = run_call(u, [new[a] for a in u.src[1:]])
            new[u] = u
        elif is_opaque(u):
            call = next(s for s in u.src if s.op == "CALL")
            new[u] = results[call][u.arg if u.op == "GETTUPLE" else call.src.index(u.src[0]) - 1]
        else:
            new[u] = rebuild(u, tuple([new[s] for s in u.src]))
    return [new[r] for r in batch]


def run_call(call: UOp, args: list[UOp]) -> list[UOp]:
    """The results of a CALL on `args`: of a TUPLE its values, computed as a batch of their own on whole buffers.

    Of a kernel, new buffers in place of those that the CALL names as its results.
    """
    body = call.src[0]
    if body.op == "TUPLE":
        args = realize([_whole(a, place(call)) for a in args], as_symbolic=True)
        return realize(list(applied(body, tuple(args))), as_symbolic=True)
    n = len(stored_slots(body))
    results, inputs = args[:n], realize([_whole(a, place(call)) for a in args[n:]])
    dev = one_device(args)
    key = (body, tuple([b.src for b in results]), dev, settings.choices)  # the body does not tell their shapes
    return run_plan(_planned(key, "make_kernel_plan", body, results, inputs, dev), inputs)


def _whole(u: UOp, dev: Any) -> UOp:
    """What a buffer of its own is made of; of what has no device, such as a constant, one of `dev`."""
    if u.op == "BUFFER":
        return u
    return (
        build("CONTIGUOUS", u) if dev is None or place(u) is not None else build("LOAD", u, arg=LoadArg(dev, "GLOBAL"))
    )


def _of_today(u: UOp) -> UOp:
    """A copy, where `u` is memory of symbolic shape: a result has the shape of the bound values."""
    is_symbolic = is_realized(u) and any(n.__class__ is not int for n in base_of(u).shape)
    return build("LOAD", u, arg=LoadArg(one_device([u]), "GLOBAL")) if is_symbolic else u


def brought(batch: list[UOp]) -> list[UOp]:
    """The batch with every copy between devices that do not share memory made: its source realised, and `copied`.

    Raises JitError in a capture, which could not repeat it.
    """
    new: dict[UOp, UOp] = {}
    for u in toposort(*batch):
        src = tuple(new.get(s, s) for s in u.src)
        v = u if src == u.src else rebuild(u, src)
        if u.op == "LOAD" and u.arg and (home := place(v.src[0])) is not None and is_apart(home, u.arg.device):
            if listening.captures:
                found = f"from {home} to {u.arg.device}"
                raise JitError("a copy between devices in a jitted function", expected="a copy before", found=found)
            source = v.src[0]
            if is_on_disk(home):  # it computes nothing
                source = build("LOAD", source, arg=LoadArg(HOST_DEVICE, "GLOBAL"))
            if len(v.src) > 2:
                source = build("WHERE", v.src[2], source, v.src[1])
            v = copied(source, u.arg.device)
        if v is not u:
            new[u] = v
    if not new:
        names = sorted({str(d) for u in toposort(*batch) if (d := place(u)) is not None})
        raise DeviceError("values of several devices in one kernel", expected="one device", found=names)
    return [new.get(r, r) for r in batch]


def copied(source: UOp, dev: str) -> UOp:
    """A BUFFER of `dev` with the value: between devices of one kind as they copy, else by way of the host."""
    (source,) = realize([source])
    home, there = Device[str(place(source))], Device[dev]
    if type(home) is not type(there) or not isinstance(there, Peered) or 0 in source.shape:
        return from_numpy(to_numpy(source), dev)
    if source.op != "BUFFER":
        (source,) = realize([build("CONTIGUOUS", source)])
    n_bytes = buffer_bytes(source)
    out = with_storage(source.shape, source.dtype, dev, Device[dev].alloc(n_bytes))
    there.copy_from(out.storage, home, source.storage, n_bytes)
    return out


def is_apart(a: str, b: str) -> bool:
    """Whether kernels of one device cannot reach memory of the other."""
    return bool(Device[a].space != Device[b].space)


def run_plan(plan: Plan, buffers: list[UOp], as_symbolic: bool = False, batch: Sequence[UOp] = ()) -> list[UOp]:
    """Run on `buffers`, the inputs in order; one BUFFER for each root, of the shape that `realize` says. `batch`: the
    values, where they are known.
    """
    device = Device[plan.device]
    sizes = [value_of(v) for v in plan.variables] if plan.variables else []
    try:
        addresses = [b.storage.address for b in buffers]
    except AttributeError:  # some have no memory
        addresses = [_input_address(b, i in plan.reads) for i, b in enumerate(buffers)]
    new = []
    for template, n_bytes in zip(plan.fresh, plan.fresh_bytes, strict=True):
        is_bound = bool(sizes) and not as_symbolic
        b = new_buffer(concrete(template.shape), template.dtype, plan.device) if is_bound else new_buffer_like(template)
        b.storage = memory = device.alloc(n_bytes)
        addresses.append(memory.address)
        new.append(b)
    arena = device.alloc(plan.arena_bytes) if plan.arena_bytes else None
    if arena is not None:
        addresses += [arena.address + o for o in plan.offsets]
    if settings.VERIFY > 1:
        verified = import_module("monolect.runtime.verified")  # only who asks for it waits for it
        verified.run_plan(plan, batch, [*(b.storage for b in buffers), *(b.storage for b in new)], arena, sizes)
    else:
        run(plan.commands, [*addresses, *sizes], plan.launches, plan.kernels)
    outs = [buffers[i] if i < plan.n_inputs else new[i - plan.n_inputs] for i in plan.outputs]
    for capture in listening.captures:
        capture.append(Run(plan, tuple(buffers), tuple(new)))
    return outs


def run(
    commands: Any, addresses: list[int], launches: tuple[Launch, ...], kernels: tuple[UOp, ...], replayed: bool = False
) -> None:
    """Bind the first buffers of a command buffer, and run it: by one call where the device has one."""
    if settings.tracing or profile.recording or not hasattr(commands, "run"):
        for number, address in enumerate(addresses):
            commands.bind(number, address)
        launch(commands, launches, kernels, replayed)
    else:
        commands.run(*addresses)


def launch(commands: Any, launches: tuple[Launch, ...], kernels: tuple[UOp, ...], replayed: bool = False) -> None:
    """Run a bound command buffer, each launch timed when somebody wants to see it."""
    if settings.tracing or profile.recording:
        profile.record(launches, kernels, commands.launch_timed(), replayed)
    else:
        commands.launch()


def _input_address(b: UOp, is_read: bool) -> int:
    if b.storage is None:
        if not is_read:
            return 0  # overwritten before it is read
        refuse_stand_in(b)
        b.storage = Device[b.arg.device].alloc(buffer_bytes(b))  # declared and never written: whatever is there
    return b.storage.address


def refuse_stand_in(b: UOp) -> None:
    """Raise JitError for a buffer that stands for a Tensor while a function is traced: it has no value."""
    if b in stand_ins:
        expected = "a function that only builds graphs; or a Tensor that another thread does not trace at this moment"
        raise JitError(
            "reading values while a @function is traced", expected=expected, found="a value that is asked for"
        )


__all__ = [
    "Run",
    "from_numpy",
    "launch",
    "listening",
    "native_functions",
    "plans",
    "realize",
    "run",
    "run_plan",
    "running",
    "stand_ins",
    "to_numpy",
]

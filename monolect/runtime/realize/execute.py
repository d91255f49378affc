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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from monolect.backend.base import Preparing
from monolect.backend.registry import Device
from monolect.base.errors import AllocationError, JitError
from monolect.base.settings import settings
from monolect.command.forms import buffer_bytes, home
from monolect.ir.uop import UOp, new_buffer, new_buffer_like, node, substitute, toposort
from monolect.runtime import profile
from monolect.runtime.binding import concrete, value_of
from monolect.runtime.buffer import VIEWS, base_of, from_numpy, is_realized, one_device, to_numpy, with_storage
from monolect.runtime.realize.held import note_stored, to_store
from monolect.runtime.realize.locks import Turns
from monolect.runtime.realize.varied import with_inputs
from monolect.schedule.callify import callify, independent, over_params, resolve_functions, structure

if TYPE_CHECKING:
    from monolect.runtime.realize.plan import Plan

MOST_PLANS = 1024


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
        self.see: Callable[[list[UOp], str], None] | None = None  # called before each batch, by `batches_to`

    @contextmanager
    def to(self, runs: list[Run]) -> Iterator[None]:
        """What runs in the block is appended to `runs`, too."""
        outer, self.captures = self.captures, [*self.captures, runs]
        try:
            yield
        finally:
            self.captures = outer


listening = _Listeners()


@contextmanager
def batches_to(see: Callable[[list[UOp], str], None]) -> Iterator[None]:
    """In the block, `see` is called before each batch that this thread runs, with its values and its device."""
    outer, listening.see = listening.see, see
    plans.clear()  # a plan that is known runs unseen
    try:
        yield
    finally:
        listening.see = outer


running = Turns()  # around compiling, binding and launching


def realize(roots: list[UOp], as_symbolic: bool = False, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    """For each root a BUFFER with storage, or a view of one, holding its value.

    A BUFFER of symbolic shape gets the shape that it has at the bound values; with `as_symbolic` it keeps its own, for
    graphs that are valid at every value. `also`: takes nodes that were stored besides (`runtime/realize/held.py`), with
    theirs.
    """
    todo = [r for r in roots if not is_realized(r)]
    if not todo:
        return list(roots)
    running.wait()
    with running.lock:
        new = compute(todo, as_symbolic, also)
    if len(todo) == len(roots):
        return new
    done = dict(zip(todo, new, strict=True))
    return [done.get(r, r) for r in roots]


def compute(todo: list[UOp], as_symbolic: bool = False, also: list[tuple[UOp, UOp]] | None = None) -> list[UOp]:
    """`realize` of values that have no memory, by who holds `running`."""
    done: dict[UOp, UOp] = {}
    groups: dict[str, list[UOp]] = {}
    for r in dict.fromkeys(todo):
        b = base_of(r)
        if b.op == "BUFFER" and b.storage is None:
            refuse_stand_in(b)
            b.storage = Device[b.arg.device].alloc(buffer_bytes(b))
        elif 0 in r.shape:
            dev = one_device([r])
            done[r] = with_storage(r.shape, r.dtype, dev, Device[dev].alloc(1))
        else:
            dev = one_device([r])
            if len(todo) == 1:  # as most batches are: what follows would take half a microsecond
                return _run_batch(todo, dev, as_symbolic, also)
            groups.setdefault(dev, []).append(r)
    for dev, values in groups.items():
        for batch in independent(values):
            done.update(zip(batch, _run_batch(batch, dev, as_symbolic, also), strict=True))
    return [done.get(r, r) for r in todo]


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
    plan = None if shape is None else _known(here)
    if plan is None:
        if shape is not None and not listening.captures and (general := with_inputs(batch, shape, dev)) is not None:
            return _run_batch(general, dev, as_symbolic)
        if listening.see is not None:
            listening.see(batch, dev)
            plans.clear()
        _prepare(batch, Device[dev])
        plan = None if shape is None else _planned(here, "kept_plan", shape, len(batch), len(buffers), dev)
    if plan is not None:
        return run_plan(plan, buffers, as_symbolic, batch)
    function = _callified(node("TUPLE", tuple(batch)))
    values, buffers = function.src[0], [*function.src[1:]]
    if any(b.op != "BUFFER" for b in buffers):
        return _run_compound(batch, dev, as_symbolic)
    bases = map(base_of, values.src)
    if any(b.op == "PARAM" and b.arg.name is None for b in bases):  # a function that returns what it was given
        return realize(resolve_functions(batch), as_symbolic)
    if _crosses(values, buffers, dev):
        return _run_compound(batch, dev, as_symbolic, here if shape is not None else None)
    key = here if shape is not None else (values, dev, settings.choices)  # a structure keeps no graph alive
    plan = _planned(key, "make_plan", values, len(buffers), dev, shape)
    return run_plan(plan, buffers, as_symbolic, batch)


def _callified(values: UOp) -> UOp:
    """The batch as a FUNCTION over PARAMs; by the pipeline where a setting looks at each pass."""
    if settings.looking:
        pipeline = import_module("monolect.pipeline")
        function: UOp = pipeline.run_pass(pipeline.GRAPH[0], values, pipeline.NO_TARGET)
        return function
    return callify(values)


def _prepare(batch: list[UOp], device: Any) -> None:
    """Memory for the results, whose pages come while their plan is read or made."""
    if isinstance(device, Preparing):
        device.prepare([buffer_bytes(r) for r in batch if base_of(r).op not in ("BUFFER", "AFTER")])


def _known(key: tuple) -> Plan | None:
    """The plan of that key, if this process has it: it is now the one used last."""
    plan = plans.get(key)
    if plan is not None and plan is not next(reversed(plans.values())):  # looking up a long key again takes its time
        plans.move_to_end(key)
    return plan


def _planned(key: tuple, make: str, *args: Any) -> Any:
    """The plan of that key, which that function of `runtime.realize.plan` makes or finds."""
    if (plan := _known(key)) is not None:
        return plan
    compiler = import_module(
        "monolect.runtime.realize.plan"
    )  # the compiler is imported when something must be compiled
    plan = getattr(compiler, make)(*args)
    if plan is not None:
        _remember(key, plan)
    return plan


def _remember(key: tuple, plan: Plan) -> None:
    """Keep a plan under a key; the one used longest ago makes room for it."""
    plans[key] = plan
    if len(plans) > MOST_PLANS:
        plans.popitem(last=False)


def _crosses(values: UOp, buffers: Sequence[UOp], dev: str) -> bool:
    """Whether a value comes from a device whose memory kernels of `dev` cannot reach, or is taken to one."""
    names = {b.arg.device for b in buffers}.union(
        u.arg.device for u in toposort(values) if u.op == "LOAD" and u.arg is not None and u.arg.device is not None
    )
    return any(name != dev and Device[name].space != Device[dev].space for name in names)


def _run_compound(batch: list[UOp], dev: str, as_symbolic: bool, key: tuple | None = None) -> list[UOp]:
    """A batch with calls, or with copies between devices: one plan, whose results are memory that views are made of.

    `key`: where the plan is found again, if its results are the values of the batch.
    """
    batch = import_module("monolect.runtime.realize.compound").with_bytes_bound(resolve_functions(batch), dev)
    bases = [_viewed(r) for r in batch]
    todo = [b for b in dict.fromkeys(bases) if b.op != "BUFFER"]
    if not todo:  # functions that return what they were given
        return realize(batch, as_symbolic)
    values, buffers, _ = over_params(todo, with_calls=True)
    key = key if key is not None and todo == batch else (values, dev, settings.choices)
    plan = _planned(key, "make_compound_plan", values, len(buffers), dev)
    done = dict(zip(todo, run_plan(plan, buffers, as_symbolic), strict=True))
    return realize([substitute(r, {b: done.get(b, b)}) for r, b in zip(batch, bases, strict=True)], as_symbolic)


def _viewed(u: UOp) -> UOp:
    """The value that a result is a view of; of one of symbolic size itself, as a result has the size of the call."""
    base = u
    while base.op in VIEWS:
        base = base.src[0]
    return base if all(n.__class__ is int for n in base.shape) else u


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
        name = template.arg.device
        b = new_buffer(concrete(template.shape), template.dtype, name) if is_bound else new_buffer_like(template)
        b.storage = memory = (device if name == plan.device else Device[home(b, plan.device)]).alloc(n_bytes)
        addresses.append(memory.address)
        new.append(b)
    addresses += sizes
    owned = [Device[home(b, plan.device)].alloc(buffer_bytes(b)) for b in plan.owned] if plan.owned else []
    addresses += [memory.address for memory in owned]
    if settings.VERIFY > 1 and not hasattr(plan.commands, "bind_memory"):
        verified = import_module("monolect.runtime.realize.verified")  # imported where a setting asks for it
        verified.run_plan(plan, batch, [*(b.storage for b in buffers), *(b.storage for b in new)], owned, sizes)
    else:
        if hasattr(plan.commands, "bind_memory"):
            every = [*(b.storage for b in buffers), *(b.storage for b in new), *sizes, *owned]
            for n, memory in enumerate(every):
                plan.commands.bind_memory(n, memory)
        run(plan.commands, addresses, plan.items)
    outs = [buffers[i] if i < plan.n_inputs else new[i - plan.n_inputs] for i in plan.outputs]
    for capture in listening.captures:
        capture.append(Run(plan, tuple(buffers), tuple(new)))
    return outs


def run(commands: Any, addresses: list[int], items: tuple[UOp, ...], replayed: bool = False) -> None:
    """Bind the first positions of a command buffer, and run it: by one call where the device has one."""
    if settings.tracing or profile.recording or not hasattr(commands, "run"):
        for number, address in enumerate(addresses):
            commands.bind(number, address)
        launch(commands, items, replayed)
    else:
        commands.run(*addresses)


def launch(commands: Any, items: tuple[UOp, ...], replayed: bool = False) -> None:
    """Run a bound command buffer, each item timed when a setting or a recorder asks."""
    if settings.tracing or profile.recording:
        profile.record(items, commands.launch_timed(), replayed)
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
    "compute",
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
